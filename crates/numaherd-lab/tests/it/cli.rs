//! The laboratory's command line as a person meets it.

use std::process::{Command, Output};

fn laboratory(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(arguments)
        .output()
        .expect("the program can be started")
}

#[test]
fn an_unknown_policy_is_refused_with_the_nearest() {
    let output = laboratory(&[
        "lab",
        "compare",
        "devils-on-one-node",
        "--policies",
        "linux,dimo",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("did you mean \"dino\"?"), "{said}");
}

#[test]
fn help_speaks_of_numaherds_commands() {
    for arguments in [&["help", "simulate"][..], &["simulate", "--help"]] {
        let help = laboratory(arguments);
        let text = String::from_utf8_lossy(&help.stdout);
        assert!(text.contains("Usage: numaherd simulate "), "{text}");
    }
    insta::assert_snapshot!(String::from_utf8_lossy(&laboratory(&["--help"]).stdout));
}
