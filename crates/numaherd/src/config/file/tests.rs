//! The messages for wrong files; and every misspelling is named.

use proptest::prelude::*;

use super::*;
use crate::config::keys;

/// The message for a wrong file of this text.
#[track_caller]
fn told(text: &str) -> String {
    match Config::parse(text, "n.toml") {
        Ok(_) => panic!("nothing is wrong with {text:?}"),
        Err(wrong) => wrong.to_string(),
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_known_one() {
    for (text, expected) in [
        (
            "\n[herd.limits]\nmoves_per_secnd = 3\n",
            "n.toml:3: herd.limits.moves_per_secnd: unknown key; did you mean \
             `moves_per_second`?",
        ),
        (
            "polcy = \"dino\"",
            "n.toml:1: polcy: unknown key; did you mean `policy`?",
        ),
        (
            "[herd.limit]\nfreeze_s = 3",
            "n.toml:1: herd.limit: unknown key; did you mean `limits`?",
        ),
        (
            "[herd]\nfreeze_s = 3",
            "n.toml:2: herd.freeze_s: unknown key; it belongs in [herd.limits]",
        ),
        (
            "[limits]\nfreeze_s = 3",
            "n.toml:1: limits: unknown key; it belongs in [herd]",
        ),
        (
            "[herd]\npolicy = \"dino\"",
            "n.toml:2: herd.policy: unknown key; it belongs in the beginning of the file, \
             before any heading or [[group]]",
        ),
        (
            "[herd]\nbounce_limit = 3",
            "n.toml:2: herd.bounce_limit: unknown key; it belongs in [herd.limits] or \
             [policies.paging]",
        ),
        (
            "[herd]\nwindow_page = 3",
            "n.toml:2: herd.window_page: unknown key; did you mean \
             `policies.paging.window_pages`?",
        ),
        (
            "[herd]\ncolour = \"red\"",
            "n.toml:2: herd.colour: unknown key",
        ),
        (
            "herd.limits.cpu = \"0\"",
            "n.toml:1: herd.limits.cpu: unknown key; did you mean `cpus`?",
        ),
        (
            "[[group]]\nname = \"a\"\nuser = [\"b\"]",
            "n.toml:3: group.user: unknown key; did you mean `users`? Or: it belongs in \
             [selection]",
        ),
    ] {
        assert_eq!(told(text), expected);
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_is_wanted() {
    for (text, expected) in [
        (
            "[herd.limits]\nfreeze_s = \"long\"",
            "n.toml:2: herd.limits.freeze_s: must be a number from 0 to 1000000000, not \"long\"",
        ),
        (
            "policy = 3",
            "n.toml:1: policy: must be text in quotes, not 3",
        ),
        (
            "[herd]\ndry_run = \"yes\"",
            "n.toml:2: herd.dry_run: must be true or false, not \"yes\"",
        ),
        (
            "[herd]\npaging_interval_ms = 1.5",
            "n.toml:2: herd.paging_interval_ms: must be a whole number from 1 to 86400000, a day, not 1.5",
        ),
        (
            "[herd.limits]\nmoves_per_interval = 5_000_000_000",
            "n.toml:2: herd.limits.moves_per_interval: must be a whole \
             number from 0 to 4294967295, not 5000000000",
        ),
        (
            "[herd.limits]\nscope = \"nod\"",
            "n.toml:2: herd.limits.scope: must be \"core\", \"domain\" or \
             \"node\", not \"nod\"; did you mean \"node\"?",
        ),
        (
            "[herd.limits]\ncpus = \"0-\"",
            "n.toml:2: herd.limits.cpus: cannot read \"0-\" as a list such as 0-3,8: not a \
             number",
        ),
        (
            "[herd.limits]\nnode_reserve = 1.5",
            "n.toml:2: herd.limits.node_reserve: must be a number from 0 to 1, not 1.5",
        ),
        (
            "[policies.brm]\nforget_after_least_ms = 40000",
            "n.toml: policies.brm.forget_after_most_ms: must be at least `forget_after_least_ms` (40000), not \
             30000 (its default)",
        ),
        (
            "[policies.penalty]\nprograms = { mcf = true }",
            "n.toml:2: policies.penalty.programs.mcf: must be a number, 1 or more, not true",
        ),
        (
            "[herd]\nlimits = 3",
            "n.toml:2: herd.limits: must be a table, not 3",
        ),
        (
            "[group]\nname = \"a\"",
            "n.toml:1: group: must be a list of tables, each under a heading in \
             [[double brackets]], not a table",
        ),
        (
            "[selection]\nuser = \"a\"\nname = \"b\"",
            "n.toml:1: selection: sets more than one of cgroup, name and user, but only one is \
             allowed; use [[group]] for several kinds of processes",
        ),
        (
            "[selection]\ncgroup = \"machine.slice\"",
            "n.toml:2: selection.cgroup: the path of a control group begins with a slash, unlike \
             \"machine.slice\"",
        ),
    ] {
        assert_eq!(told(text), expected);
    }
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    for (text, line) in [
        ("policy = \"dino\"\npolicy = \"brm\"", 2),
        ("[herd\n", 1),
        ("\n\npolicy = dino", 3),
        ("[herd.limits]\nbounce_limit = -0x1", 2),
    ] {
        let told = told(text);
        let expected = format!("n.toml:{line}: not TOML: ");
        assert!(
            told.starts_with(&expected) && told.len() > expected.len(),
            "{told}"
        );
    }
}

#[test]
fn a_policy_that_is_none_is_refused_with_the_nearest() {
    let told = told("policy = \"dimo\"");
    assert!(
        told.starts_with("n.toml:1: policy: there is no")
            && told.contains("did you mean \"dino\"?"),
        "{told}"
    );
}

#[test]
fn groups_that_cannot_be_are_refused() {
    for (text, expected) in [
        (
            "[[group]]\nusers = [\"a\"]",
            "n.toml:1: group: needs a name: name = \"…\"",
        ),
        (
            "[[group]]\nname = \"a\"",
            "n.toml:1: group: names no process: give it names, users, cgroups or pids",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [1]\n[[group]]\nname = \"a\"\npids = [2]",
            "n.toml:5: group.name: an earlier group is called \"a\" as well",
        ),
        (
            "[[group]]\nname = \"a\"\ncgroups = [\"/b\", \"c\"]",
            "n.toml:3: group.cgroups: the path of a control group begins with a slash, unlike \"c\"",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [0]",
            "n.toml:3: group.pids: must be a whole number, 1 or more, not 0",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [1]\nplacement_interval_ms = 0",
            "n.toml:4: group.placement_interval_ms: must be a whole number from 1 to 86400000, a day, not 0",
        ),
        (
            "[[group]]\nname = \"a\"\nnames = [\"\"]",
            "n.toml:3: group.names: has an empty one",
        ),
    ] {
        assert_eq!(told(text), expected);
    }
    let together = told(
        "policy = \"linux\"\n[[group]]\nname = \"batch\"\nusers = [\"me\"]\npolicy = \"interleave\"\n",
    );
    let expected = "n.toml:2: group: these groups cannot be herded together: the group batch ";
    assert!(together.starts_with(expected), "{together}");
    let policy = told("[[group]]\nname = \"a\"\npids = [1]\npolicy = \"non\"");
    assert!(
        policy.starts_with("n.toml:4: group.policy: there is no"),
        "{policy}"
    );
    assert!(
        policy.ends_with("; or \"none\" to leave it alone"),
        "{policy}"
    );
}

#[test]
fn all_that_is_wrong_is_told_in_the_order_of_the_file() {
    assert_eq!(
        told("polcy = 1\n[herd]\nseed = -1\ndry_rn = true\n"),
        "n.toml is wrong in 3 places:\n  \
         n.toml:1: polcy: unknown key; did you mean `policy`?\n  \
         n.toml:3: herd.seed: must be a whole number, 0 or more, not -1\n  \
         n.toml:4: herd.dry_rn: unknown key; did you mean `dry_run`?"
    );
    let many: String = (0..50).map(|number| format!("x{number} = 1\n")).collect();
    assert!(told(&many).ends_with("\n  and 30 more"));
}

#[test]
fn what_is_told_of_a_file_is_on_few_lines_whatever_is_in_it() {
    let long = format!("\"{}\\n\\u0007\" = 1", "x".repeat(100_000));
    let told = told(&long);
    assert!(
        told.len() < 500 && !told.contains(['\n', '\u{7}']),
        "{told}"
    );
}

#[test]
fn where_each_key_is_in_the_file_is_known() {
    let text = "policy = \"linux\"\n\n[herd.limits]\nfreeze_s = 3\n[[group]]\nname = \"a\"\n\
                pids = [1]\n[[group]]\nname = \"b\"\npids = [2]\n";
    let (config, read) = Config::parse(text, "n.toml").unwrap();
    assert_eq!(config.policy(), "linux");
    let line = |key: &str| read.lines.get(key).copied();
    assert_eq!(line("policy"), Some(1));
    assert_eq!(line("herd.limits.freeze_s"), Some(4));
    assert_eq!(line("group[1].name"), Some(9));
    assert_eq!(line("herd.seed"), None);
}

/// A key of the configuration and its name with one letter too many, too few, wrong, or two that changed
/// places.
fn misspelled() -> impl Strategy<Value = (String, String)> {
    let keys: Vec<String> = keys::keys().into_iter().map(|key| key.name).collect();
    (
        prop::sample::select(keys),
        any::<prop::sample::Index>(),
        "[a-z_0-9]",
        0..4_u8,
    )
        .prop_map(|(key, at, letter, how)| {
            let last = key.rsplit('.').next().unwrap_or(&key).to_owned();
            let mut letters: Vec<char> = last.chars().collect();
            let letter = letter.chars().next().unwrap_or('x');
            match how {
                0 => letters.insert(at.index(letters.len() + 1), letter),
                1 => drop(letters.remove(at.index(letters.len()))),
                2 => {
                    let at = at.index(letters.len());
                    letters[at] = letter;
                }
                _ => {
                    let at = at.index(letters.len() - 1);
                    letters.swap(at, at + 1);
                }
            }
            (key, letters.into_iter().collect())
        })
}

proptest! {
    #[test]
    fn any_key_with_one_mistake_in_its_name_is_named((key, written) in misspelled()) {
        let (table, last) = key.rsplit_once('.').unwrap_or(("", &key));
        let tables = keys::tables();
        let table = tables.iter().find(|known| known.name == table).expect("a table");
        let known = table.section.settings.iter().any(|known| known.name == written);
        prop_assume!(!known && !written.is_empty());
        let heading = match table.name.as_str() {
            "" => String::new(),
            _ => format!("{}\n", table.heading()),
        };
        let told = told(&format!("{heading}{written} = 1\n"));
        prop_assert!(told.contains(&format!("`{last}`")), "{}", told);
    }

    #[test]
    fn no_text_makes_it_panic_and_an_error_names_a_line(text in "[\\[\\]a-z_.=\" \n0-9{}-]{0,200}") {
        if let Err(wrong) = Config::parse(&text, "n.toml") {
            prop_assert!(!wrong.findings().is_empty());
            for finding in wrong.findings() {
                prop_assert_eq!(&finding.file, "n.toml");
            }
        }
    }

    #[test]
    fn what_is_written_reads_back(freeze in 0.0..1e6_f64, seed in 0..i64::MAX as u64, user in "[a-z]{1,8}") {
        let mut config = Config::default();
        config.herd.limits.freeze_s = freeze;
        config.herd.seed = seed;
        config.group.push(Group { name: user.clone(), users: vec![user], ..Group::default() });
        let text = toml::to_string(&config).unwrap();
        prop_assert_eq!(Config::parse(&text, "n.toml").unwrap().0, config);
    }
}
