//! `numaherd simulate` as a person meets it: tables, JSON, charts, and what is said when it is wrong.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .arg("simulate")
        .args(arguments)
        .env_remove("RAYON_NUM_THREADS")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate"))
        .output()
        .expect("the program can be started")
}

/// What it printed, after it ended well.
#[track_caller]
fn printed(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it said, after it refused.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    told
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = simulate(&[arguments, &["--json", "-"]].concat());
    serde_json::from_str(&printed(&output)).expect("--json prints JSON")
}

#[test]
fn a_small_scenario_gives_its_tables() {
    insta::assert_snapshot!("small", printed(&simulate(&["small.toml"])));
    insta::assert_snapshot!("requests", printed(&simulate(&["requests.toml"])));
    insta::assert_snapshot!("list", printed(&simulate(&["--list"])));
    insta::assert_snapshot!("help-simulate", printed(&simulate(&["--help"])));
}

#[test]
fn what_is_bound_to_far_memory_waits_for_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("far.toml");
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate");
    let text = format!(
        "name = \"far\"\nabout = \"\"\nmachine = \"{0}/machine.toml\"\nprofiles = \
         [\"{0}/programs.toml\"]\nuntil = {{ completions = 1 }}\npolicies = [\"linux\"]\n\
         [[program]]\nprofile = \"chase\"\npinned = \"0\"\nmemory = 1\n",
        here.display()
    );
    fs::write(&scenario, text).unwrap();
    let report = json(&[scenario.to_str().unwrap()]);
    let program = &report["policies"][0]["programs"][0];
    let seconds = |key: &str| program[key].as_f64().unwrap();
    // Alone: 0.5 ns for an instruction, and ten lines of 100 - 20 ns for a thousand. Far: of 130 ns.
    // Hardly any queue: one line at a time.
    let (alone, far) = (seconds("alone_s"), seconds("mean_s"));
    assert!((1.3..1.31).contains(&alone), "{alone}");
    assert!((1.8..1.82).contains(&far), "{far}");
    assert_eq!(report["policies"][0]["local_access_ratio"], 0.0);
}

#[test]
fn the_same_seed_gives_the_same_however_many_threads_run_it() {
    let run = |threads: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
            .args(["simulate", "mixed.toml", "--seed", "7", "--json", "-"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate"))
            .env("RAYON_NUM_THREADS", threads)
            .output()
            .expect("the program can be started");
        printed(&output)
    };
    let once = run("1");
    assert_eq!(once, run("1"));
    assert_eq!(once, run("4"));
    let report: Value = serde_json::from_str(&once).unwrap();
    let trials = report["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 12);
    // Chance is there to be had: repeats differ, but start alike under each policy.
    let of = |at: usize, key: &str| trials[at]["jobs"][0][key].clone();
    assert_ne!(of(0, "seconds"), of(1, "seconds"));
    assert_eq!(trials[0]["seed"], trials[3]["seed"]);
}

#[test]
fn charts_json_and_ledgers_are_written_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (charts, report, ledgers) = (at("charts"), at("report.json"), at("ledgers"));
    let files = ["--svg", &charts, "--json", &report, "--ledgers", &ledgers];
    let output = simulate(&[&["small.toml"], &files[..]].concat());
    assert!(printed(&output).contains("small: Three loops"));
    let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(report["machine"], "round");
    let svg = fs::read_to_string(folder.path().join("charts/slowdown.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("loop"));
    let ledger = folder.path().join("ledgers/random.1.ledger");
    let numaherd = Path::new(env!("CARGO_BIN_EXE_numaherd-lab")).with_file_name("numaherd");
    let explained = Command::new(numaherd)
        .arg("explain")
        .arg(ledger)
        .output()
        .unwrap();
    assert!(printed(&explained).contains("random"));
}

#[test]
fn a_scenario_can_be_run_elsewhere_with_other_profiles_and_settings() {
    let other = json(&["small.toml", "--machine", "lab-4x2", "--repeat", "1"]);
    assert_eq!(other["machine"], "lab-4x2");
    assert_eq!(other["trials"].as_array().unwrap().len(), 2);
    // Own profiles go before those that come with the program.
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("mcf.toml");
    let text = fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate/programs.toml"),
    );
    fs::write(&profiles, text.unwrap().replace("\"loop\"", "\"mcf\"")).unwrap();
    let report = json(&[
        "mixed.toml",
        "--programs",
        profiles.to_str().unwrap(),
        "--policies=linux",
        "--repeat=1",
    ]);
    let mcf = &report["policies"][0]["programs"][0];
    assert_eq!(mcf["program"], "mcf");
    let slowdown = mcf["slowdown"].as_f64().unwrap();
    assert!((slowdown - 1.0).abs() < 1e-9, "{slowdown}");
}

#[test]
fn the_oracle_sees_what_the_model_foresees() {
    let report = json(&[
        "mixed.toml",
        "--policies=linux,oracle",
        "--repeat=1",
        "--set=policies.oracle.layouts=200",
    ]);
    let slowdown = |at: usize| report["policies"][at]["slowdown"].as_f64().unwrap();
    assert!(slowdown(1) < slowdown(0), "{} {}", slowdown(1), slowdown(0));
}

#[test]
fn what_is_wrong_is_refused_with_what_to_do() {
    let cases: [(&[&str], &str); 9] = [
        (
            &["devils"],
            "no scenario is called \"devils\": give one of memory-on-one-node",
        ),
        (
            &["gone.toml"],
            "cannot read gone.toml: there is no such file",
        ),
        (
            &["machine.toml"],
            "machine.toml:11: cache: unknown field `cache`",
        ),
        (
            &["small.toml", "--policies", "dimo"],
            "did you mean \"dino\"?",
        ),
        (&["small.toml", "--machine", "no-such"], "no-such"),
        (
            &["small.toml", "--programs", "small.toml"],
            "small.toml:2: about: ",
        ),
        (
            &["small.toml", "--set", "herd"],
            "cannot set \"herd\": it has no =",
        ),
        (
            &["small.toml", "--set", "model.variation=9"],
            "model.variation: must be a number from 0 to 0.5, not 9",
        ),
        (&["small.toml", "--repeat", "0"], "0 is not in 1.."),
    ];
    for (arguments, expected) in cases {
        let told = refused(arguments);
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
}
