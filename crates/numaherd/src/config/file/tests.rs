//! What is said about files that are wrong, and that no misspelling goes unnamed.

use proptest::prelude::*;

use super::*;

/// What is said about a file of this text.
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
            "unknown key `herd.limits.moves_per_secnd` in n.toml line 3; did you mean \
             `moves_per_second`?",
        ),
        (
            "polcy = \"dino\"",
            "unknown key `polcy` in n.toml line 1; did you mean `policy`?",
        ),
        (
            "[herd.limit]\nfreeze_s = 3",
            "unknown key `herd.limit` in n.toml line 1; did you mean `limits`?",
        ),
        (
            "[herd]\nfreeze_s = 3",
            "unknown key `herd.freeze_s` in n.toml line 2; it belongs in [herd.limits]",
        ),
        (
            "[limits]\nfreeze_s = 3",
            "unknown key `limits` in n.toml line 1; it belongs in [herd]",
        ),
        (
            "[herd]\npolicy = \"dino\"",
            "unknown key `herd.policy` in n.toml line 2; it belongs in the beginning of the file, \
             before any heading or [[group]]",
        ),
        (
            "[herd]\nbounce_limit = 3",
            "unknown key `herd.bounce_limit` in n.toml line 2; it belongs in [herd.limits] or \
             [policies.paging]",
        ),
        (
            "[herd]\nwindow_page = 3",
            "unknown key `herd.window_page` in n.toml line 2; did you mean \
             `policies.paging.window_pages`?",
        ),
        (
            "[herd]\ncolour = \"red\"",
            "unknown key `herd.colour` in n.toml line 2; `numaherd config keys` lists all there are",
        ),
        (
            "herd.limits.cpu = \"0\"",
            "unknown key `herd.limits.cpu` in n.toml line 1; did you mean `cpus`?",
        ),
        (
            "[[group]]\nname = \"a\"\nuser = [\"b\"]",
            "unknown key `group.user` in n.toml line 3; did you mean `users`? Or: it belongs in \
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
            "`herd.limits.freeze_s` in n.toml line 2 is \"long\", but must be a number",
        ),
        (
            "policy = 3",
            "`policy` in n.toml line 1 is 3, but must be text in quotes",
        ),
        (
            "[herd]\ndry_run = \"yes\"",
            "`herd.dry_run` in n.toml line 2 is \"yes\", but must be true or false",
        ),
        (
            "[herd]\npaging_interval_ms = 1.5",
            "`herd.paging_interval_ms` in n.toml line 2 is 1.5, but must be a whole number, 0 or more",
        ),
        (
            "[herd.limits]\nmoves_per_interval = 5_000_000_000",
            "`herd.limits.moves_per_interval` in n.toml line 2 is 5000000000, but must be a whole \
             number from 0 to 4294967295",
        ),
        (
            "[herd.limits]\nstray = \"nod\"",
            "`herd.limits.stray` in n.toml line 2 is \"nod\", but must be \"core\", \"domain\" or \
             \"node\"; did you mean \"node\"?",
        ),
        (
            "[herd.limits]\ncpus = \"0-\"",
            "`herd.limits.cpus` in n.toml line 2: cannot read \"0-\" as a list such as 0-3,8: not a \
             number",
        ),
        (
            "[herd.limits]\nnode_reserve = 1.5",
            "`herd.limits.node_reserve` in n.toml line 2 is 1.5: it is a share, from 0 to 1",
        ),
        (
            "[policies.brm]\nforget_after_least_ms = 40000",
            "`policies.brm.forget_after_most_ms` in n.toml, where it is left out, is 30000, but must be \
             at least brm.forget_after_least_ms and at most 86400000, a day",
        ),
        (
            "[policies.penalty]\nprograms = { mcf = true }",
            "`policies.penalty.programs.mcf` in n.toml line 2 is true, but must be a number",
        ),
        (
            "[herd]\nlimits = 3",
            "`herd.limits` in n.toml line 2 is 3, but must be a table",
        ),
        (
            "[group]\nname = \"a\"",
            "`group` in n.toml line 1 is a table, but must be a list of tables, each under a heading in \
             [[double brackets]]",
        ),
        (
            "[selection]\nuser = \"a\"\nname = \"b\"",
            "`selection` in n.toml line 1 names more than one of cgroup, name and user: one is the \
             limit; several kinds of processes can be told apart by [[group]]",
        ),
        (
            "[selection]\ncgroup = \"machine.slice\"",
            "`selection.cgroup` in n.toml line 2 is \"machine.slice\": the path of a control group begins \
             with a slash",
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
        let expected = format!("n.toml line {line} is not TOML: ");
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
        told.starts_with("`policy` in n.toml line 1: there is no")
            && told.contains("did you mean \"dino\"?"),
        "{told}"
    );
}

#[test]
fn groups_that_cannot_be_are_refused() {
    for (text, expected) in [
        (
            "[[group]]\nusers = [\"a\"]",
            "`group` in n.toml line 1 needs a name: name = \"…\"",
        ),
        (
            "[[group]]\nname = \"a\"",
            "`group` in n.toml line 1 names no process: give it names, users, cgroups or pids",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [1]\n[[group]]\nname = \"a\"\npids = [2]",
            "`group.name` in n.toml line 5 is \"a\", as that of a group before it",
        ),
        (
            "[[group]]\nname = \"a\"\ncgroups = [\"/b\", \"c\"]",
            "`group.cgroups` in n.toml line 3 has \"c\": the path of a control group begins with a slash",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [0]",
            "`group.pids` in n.toml line 3 has 0, which is no process",
        ),
        (
            "[[group]]\nname = \"a\"\npids = [1]\nplacement_interval_ms = 0",
            "`group.placement_interval_ms` in n.toml line 4 is 0: it must be from 1 to 86400000, a day",
        ),
        (
            "[[group]]\nname = \"a\"\nnames = [\"\"]",
            "`group.names` in n.toml line 3 has an empty one",
        ),
    ] {
        assert_eq!(told(text), expected);
    }
    let together = told(
        "policy = \"linux\"\n[[group]]\nname = \"batch\"\nusers = [\"me\"]\npolicy = \"interleave\"\n",
    );
    let expected =
        "`group` in n.toml line 2: these groups cannot be steered together: the group batch ";
    assert!(together.starts_with(expected), "{together}");
    let policy = told("[[group]]\nname = \"a\"\npids = [1]\npolicy = \"non\"");
    assert!(
        policy.starts_with("`group.policy` in n.toml line 4: there is no"),
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
         unknown key `polcy` in n.toml line 1; did you mean `policy`?\n  \
         `herd.seed` in n.toml line 3 is -1, but must be a whole number, 0 or more\n  \
         unknown key `herd.dry_rn` in n.toml line 4; did you mean `dry_run`?"
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
    let (config, lines) = Config::parse(text, "n.toml").unwrap();
    assert_eq!(config.policy(), "linux");
    let line = |key: &str| lines.get(key).copied();
    assert_eq!(line("policy"), Some(1));
    assert_eq!(line("herd.limits.freeze_s"), Some(4));
    assert_eq!(line("group[1].name"), Some(9));
    assert_eq!(line("herd.seed"), None);
}

/// A key of the configuration and its name with one letter too many, too few, wrong, or two that changed
/// places.
fn misspelled() -> impl Strategy<Value = (String, String)> {
    let keys: Vec<String> = Config::shape()
        .keys()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
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
        let fields = Config::shape().tables().into_iter().find(|(name, _)| name == table);
        let known = fields.is_some_and(|(_, fields)| fields.iter().any(|f| f.name == written));
        prop_assume!(!known && !written.is_empty());
        let heading = match table {
            "" => String::new(),
            table => format!("{}\n", look::heading(table)),
        };
        let told = told(&format!("{heading}{written} = 1\n"));
        prop_assert!(told.contains(&format!("`{last}`")), "{}", told);
    }

    #[test]
    fn no_text_makes_it_panic_and_an_error_names_a_line(text in "[\\[\\]a-z_.=\" \n0-9{}-]{0,200}") {
        if let Err(wrong) = Config::parse(&text, "n.toml") {
            prop_assert!(!wrong.findings.is_empty());
            for finding in &wrong.findings {
                prop_assert!(finding.contains("n.toml"), "{}", finding);
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
