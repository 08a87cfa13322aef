//! The program on a real kernel with four nodes: what it must leave alone, what it gives back, and
//! what it says when it may not. One boot serves all of it.
//!
//! Needs the lab (`make setup` and `make build`); without it the tests fail and say so.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a script in the guest, in real time; the program is `$NUMAHERD` in it.
fn in_guest(script: &str) -> String {
    let program = env!("CARGO_BIN_EXE_numaherd-lab");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.sh");
    fs::write(&path, script).unwrap();
    let output = Command::new(program)
        .args([
            "lab",
            "run",
            "--real-time",
            "--limit",
            "4m",
            "--",
            "sh",
            "-u",
        ])
        .arg(&path)
        .env("NUMAHERD", Path::new(program).with_file_name("numaherd"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the script failed: {}\n{told}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap() + &told
}

#[test]
fn what_was_found_is_given_back_and_what_is_foreign_left_alone() {
    let told = in_guest(include_str!("guest/leaves-as-found.sh"));
    for line in [
        "after SIGTERM the affinity is as found",
        "after kill -9 the affinity was ours",
        "a second numaherd is refused with 6",
        "after release the affinity is as found",
        "a pinned thread was left alone",
        "a dry run changed nothing",
        "a cpuset that forbids the rest was obeyed",
        "without permission dino is refused with 3",
    ] {
        assert!(
            told.lines().any(|told| told == line),
            "missing {line:?} in:\n{told}"
        );
    }
}
