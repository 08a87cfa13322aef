//! `numaherd reproduce` as a person meets it; what it finds is in `docs/FIDELITY.md`, which a unit
//! test holds against the record.

use std::process::{Command, Output};

fn reproduce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .arg("reproduce")
        .args(arguments)
        .output()
        .expect("the program can be started")
}

#[test]
fn help_tells_what_it_does_and_how_it_ends() {
    let output = reproduce(&["--help"]);
    insta::assert_snapshot!("help-reproduce", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_record_can_be_shown_without_running_anything() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let record = format!("{docs}/fidelity.json");
    let output = reproduce(&["all", "--from", &record, "--json", "-"]);
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8_lossy(&output.stdout);
    let recorded = std::fs::read_to_string(&record).unwrap();
    let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&shown), read(&recorded));
    let output = reproduce(&[
        "all",
        "--from",
        &record,
        "--markdown",
        "-",
        "--json",
        "/dev/null",
    ]);
    let page = String::from_utf8_lossy(&output.stdout);
    let in_docs = std::fs::read_to_string(format!("{docs}/FIDELITY.md")).unwrap();
    assert!(page.ends_with(&in_docs));
}

#[test]
fn an_unknown_paper_or_a_damaged_record_is_refused_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    std::fs::write(&record, "{}").unwrap();
    let record = record.to_str().unwrap();
    let cases: [(&[&str], &str); 2] = [
        (&["dimo"], "invalid value 'dimo'"),
        (
            &["all", "--record", record],
            "record.json is not a record of claims: missing field",
        ),
    ];
    for (arguments, expected) in cases {
        let output = reproduce(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn a_record_for_which_traces_are_missing_is_refused_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.json");
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["reproduce", "dino", "--traces"])
        .arg(folder.path())
        .arg("--record")
        .arg(&record)
        .env("NUMAHERD_LAB_DIR", folder.path())
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(told.contains("claims were not run (sra-"), "{told}");
    assert!(
        told.contains("cannot record `menagerie kernel bt "),
        "{told}"
    );
    assert!(told.ends_with("; a record needs them all\n"), "{told}");
    assert!(!record.exists());
}
