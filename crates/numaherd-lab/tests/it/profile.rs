//! `numaherd profile` as a person meets it: what it refuses, before anything is started.

use std::process::{Command, Output};

fn profile(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"));
    command.arg("profile").args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    profile(arguments)
        .output()
        .expect("the program can be started")
}

/// Fails with what was said, unless the program ended with this code and said all of this.
#[track_caller]
fn assert_refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named() {
    assert_refused(
        &run(&["--", "no-such-program"]),
        2,
        &["no-such-program", "on the PATH"],
    );
    let output = run(&["--here", "--", "/no/such/program"]);
    assert_refused(&output, 2, &["/no/such/program"]);
}

#[test]
fn a_machine_that_is_not_there_or_lacks_a_figure_is_refused_by_name() {
    let output = run(&["--machine", "lab-5x3", "--", "true"]);
    assert_refused(&output, 2, &["lab-5x3", "lab-4x2-half"]);
    // The files of real machines leave out what the lab's model needs.
    let output = run(&["--machine", "xeon-e7-4800v2-4s", "--", "true"]);
    assert_refused(&output, 2, &["xeon-e7-4800v2-4s", "does not give"]);
}

#[test]
fn a_cache_size_needs_a_unit_and_the_lab() {
    assert_refused(
        &run(&["--cache-sizes", "2", "--", "true"]),
        2,
        &["512KiB or 2MiB"],
    );
    let output = run(&["--here", "--cache-sizes", "1MiB", "--", "true"]);
    assert_refused(&output, 2, &["--here", "--cache-sizes"]);
}

#[test]
fn a_lab_that_is_not_set_up_is_said_with_what_to_do() {
    let output = profile(&["--", "true"])
        .env("NUMAHERD_LAB_DIR", "/nonexistent")
        .output()
        .expect("the program can be started");
    assert_refused(&output, 5, &["make setup"]);
}

#[test]
fn a_profile_of_this_machine_needs_to_know_what_it_is_like() {
    let output = run(&["--here", "-o", "/nonexistent/profile.toml", "--", "true"]);
    assert_refused(&output, 2, &["latencies", "--machine"]);
}

/// What is refused depends on the machine: one node, no counters, or, on one that has both, a
/// program that does nothing.
#[test]
fn this_machine_is_refused_with_its_reason() {
    let output = run(&["--here", "--", "true"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let reasons = [
        (2, "memory node"),
        (3, "no counters"),
        (1, "too shortly"),
        (5, "numactl"),
    ];
    let known =
        |&(code, part): &(i32, &str)| output.status.code() == Some(code) && said.contains(part);
    assert!(
        reasons.iter().any(known),
        "{:?}: {said}",
        output.status.code()
    );
}
