//! `numaherd config` as a person meets it, and which file a run reads.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use numaherd::config::{Effective, values};
use rustix::time::{ClockId, clock_gettime};

use crate::program::{NUMAHERD, err, out};

/// Runs numaherd without any configuration but that which is named.
fn numaherd(folder: &Path, variable: Option<&str>, arguments: &[&str]) -> Output {
    Command::new(NUMAHERD)
        .args(arguments)
        .current_dir(folder)
        .env("NUMAHERD_CONFIG", variable.unwrap_or("none"))
        .output()
        .expect("the program can be started")
}

const FILE: &str = "\
policy = \"brm\"

[herd.limits]
freeze_s = 7

[[group]]
name = \"web\"
names = [\"nginx\"]
policy = \"none\"
";

/// Processor time in ns that reading so many groups takes, and counting their keys, as a check does: the least of some.
fn work_of(folder: &Path, groups: usize) -> i128 {
    let file = folder.join(format!("{groups}.toml"));
    let group = |n| {
        format!(
            "[[group]]\nname = \"{n}\"\npids = [{}]\npolicy = \"brm\"\n",
            n + 1
        )
    };
    fs::write(&file, (0..groups).map(group).collect::<String>()).unwrap();
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
    };
    let read = || {
        let before = now();
        let effective = Effective::of_named(&file).unwrap();
        let set = values(&effective.config);
        let keys = effective
            .origins
            .keys()
            .filter(|key| set.contains_key(*key));
        assert_eq!(keys.count(), 3 * groups);
        now() - before
    };
    (0..3).map(|_| read()).min().unwrap()
}

/// Twenty thousand took 12.7 s once: the lines of the text were counted anew for each key.
#[test]
fn the_work_of_reading_groups_grows_as_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let (few, many) = (500, 500 * 16);
    let ratio = work_of(folder.path(), many) / work_of(folder.path(), few);
    assert!(ratio < 16 * 4, "as their square it would be 256: {ratio}");
}

#[test]
fn what_holds_is_shown_with_what_sets_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("n.toml"), FILE).unwrap();
    let show = |arguments: &[&str]| {
        let all = [&["config", "show", "--config", "n.toml"], arguments].concat();
        let output = numaherd(folder.path(), None, &all);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        out(&output)
    };
    insta::assert_snapshot!(show(&["--changed", "--scope", "core"]), @r#"
    # Built-in defaults, then n.toml, then the command line.
    policy = "brm"                            # n.toml line 1

    [herd.limits]
    scope = "core"                            # --scope
    freeze_s = 7.0                            # n.toml line 4

    [[group]]
    name = "web"                              # n.toml line 7
    names = ["nginx"]                         # n.toml line 8
    policy = "none"                           # n.toml line 9
    "#);
    let whole = show(&[]);
    // What the policy makes of what is left out, and what nothing is made of.
    assert!(whole.contains("#placement_interval_ms = 10 "), "{whole}");
    assert!(whole.contains("#scope = \"node\""), "{whole}");
    assert!(
        whole.contains("#ledger left out: nothing is recorded"),
        "{whole}"
    );
    assert!(whole.contains("\nbounce_limit = 5\n"), "{whole}");
    let json: serde_json::Value = serde_json::from_str(&show(&["--json"])).unwrap();
    assert_eq!(json["herd.limits.freeze_s"]["value"], 7.0);
    assert_eq!(json["herd.limits.freeze_s"]["from"], "n.toml line 4");
    assert_eq!(json["herd.seed"]["from"], "default");
    assert_eq!(json["herd.limits.scope"]["from"], "left out");
    assert_eq!(json["herd.limits.scope"]["value"], "node");
    assert_eq!(json["group[0].policy"]["value"], "none");
    // What is shown is a configuration that says the same.
    fs::write(folder.path().join("again.toml"), &whole).unwrap();
    let again = numaherd(
        folder.path(),
        None,
        &["config", "show", "--config", "again.toml"],
    );
    let bare = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .skip(1)
            .map(|line| line.split('#').next().unwrap_or("").trim());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(bare(&out(&again)), bare(&whole));
}

#[test]
fn a_file_is_checked_without_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        numaherd(folder.path(), None, &["config", "check", name])
    };
    let right = check("right.toml", FILE);
    assert_eq!(right.status.code(), Some(0), "{}", err(&right));
    insta::assert_snapshot!(out(&right), @"right.toml is correct: 5 keys set, 1 group. `numaherd config show` prints the resulting settings.");
    let wrong = check("wrong.toml", "[herd]\nfreeze_s = 3\ndry_run = 1\n");
    assert_eq!(wrong.status.code(), Some(2));
    insta::assert_snapshot!(err(&wrong), @r"
    numaherd: wrong.toml is wrong in 2 places:
      wrong.toml:2: herd.freeze_s: unknown key; it belongs in [herd.limits]
      wrong.toml:3: herd.dry_run: must be true or false, not 1
    ");
    let missing = check("events.toml", "events = \"nowhere.toml\"\n");
    assert_eq!(missing.status.code(), Some(2), "{}", err(&missing));
    assert!(err(&missing).contains("nowhere.toml"), "{}", err(&missing));
    let none = numaherd(folder.path(), None, &["config", "check"]);
    assert!(
        out(&none).contains("the built-in settings apply"),
        "{}",
        out(&none)
    );
}

#[test]
fn every_key_can_be_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let keys = |key: &str| numaherd(folder.path(), None, &["config", "keys", key]);
    insta::assert_snapshot!(out(&keys("herd.limits.bounce_window_s")), @r"
    herd.limits.bounce_window_s
      The time over which bounces are counted: see `bounce_limit`.
      default   60.0
      unit      s
      wanted    a number from 0 to 1000000000
      read      at the start, and again on SIGHUP
    ");
    // As it may be copied out of a file.
    let table = out(&keys("[herd.limits.steal]"));
    assert!(table.starts_with("herd.limits.steal.when\n"), "{table}");
    let unknown = keys("freze_s");
    assert_eq!(unknown.status.code(), Some(2));
    assert_eq!(
        err(&unknown),
        "numaherd: there is no key `freze_s`; did you mean `herd.limits.freeze_s`?\n"
    );
    let all = numaherd(folder.path(), None, &["config", "keys", "--json"]);
    let all: serde_json::Value = serde_json::from_slice(&all.stdout).unwrap();
    let all = all.as_array().unwrap();
    assert!(
        all.iter()
            .all(|key| key["what"].as_str().is_some_and(|what| !what.is_empty()))
    );
    assert!(all.iter().any(|key| key["key"] == "group.policy"));
}

#[test]
fn the_example_is_a_file_that_is_right_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let example = numaherd(folder.path(), None, &["config", "example"]);
    fs::write(folder.path().join("example.toml"), &example.stdout).unwrap();
    let check = numaherd(folder.path(), Some("example.toml"), &["config", "check"]);
    assert!(
        out(&check).contains("is correct: 0 keys set"),
        "{}{}",
        out(&check),
        err(&check)
    );
}

#[test]
fn a_run_says_which_file_it_reads_and_a_named_one_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("n.toml"), "policy = \"linux\"\n").unwrap();
    let run = |variable: Option<&str>, option: &[&str]| {
        let all = [
            &["run", "--dry-run", "--for", "1ms"],
            option,
            &["--", "true"],
        ]
        .concat();
        numaherd(folder.path(), variable, &all)
    };
    let told = "numaherd: configuration from n.toml\n";
    for output in [run(Some("n.toml"), &[]), run(None, &["--config", "n.toml"])] {
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        assert!(err(&output).contains(told), "{}", err(&output));
    }
    let ignored = run(
        Some("nowhere.toml"),
        &["--config", "none", "--policy", "linux"],
    );
    assert_eq!(ignored.status.code(), Some(0), "{}", err(&ignored));
    assert!(
        !err(&ignored).contains("configuration"),
        "{}",
        err(&ignored)
    );
    for output in [
        run(Some("nowhere.toml"), &[]),
        run(None, &["--config", "nowhere.toml"]),
    ] {
        assert_eq!(output.status.code(), Some(2));
        let expected = "cannot read nowhere.toml";
        assert!(err(&output).contains(expected), "{}", err(&output));
    }
}

#[test]
fn a_check_finds_what_cannot_be_on_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let told = |text: &str| {
        fs::write(folder.path().join("n.toml"), text).unwrap();
        let output = numaherd(folder.path(), None, &["config", "check", "n.toml"]);
        (output.status.code(), err(&output))
    };
    fs::create_dir(folder.path().join("kept")).unwrap();
    fs::write(folder.path().join("notes"), "milk, bread\n").unwrap();
    for (text, expected) in [
        (
            "[herd.limits]\nnodes = \"999\"",
            "n.toml line 2: herd.limits.nodes: this machine has no nodes 999",
        ),
        (
            "[herd.limits]\ncpus = \"0,9999\"",
            "n.toml line 2: herd.limits.cpus: this machine has no CPUs 9999",
        ),
        (
            "ledger = \"a\\u0000b\"",
            "n.toml:1: ledger: must be the path of a file, which has no NUL",
        ),
        (
            "journal = \"\"",
            "n.toml:1: journal: must be the path of a file, not empty",
        ),
        (
            "policy = \"dino\"\nledger = \"kept\"",
            "n.toml line 2: ledger: cannot use ",
        ),
        ("ledger = \"notes\"", "n.toml line 1: ledger: cannot use "),
        ("journal = \"kept\"", "n.toml line 1: journal: cannot "),
    ] {
        let (code, said) = told(text);
        assert_eq!(code, Some(2), "{text}: {said}");
        assert!(said.contains(expected), "{said}");
    }
    let right =
        "ledger = \"new\"\njournal = \"of/no/run\"\n[herd.limits]\ncpus = \"0\"\nnodes = \"0\"";
    assert_eq!(told(right), (Some(0), String::new()));
}
