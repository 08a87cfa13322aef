//! The program, and what it answers.

use std::process::{Command, Output};

pub const NUMAHERD: &str = env!("CARGO_BIN_EXE_numaherd");

/// Runs it, and waits for its end.
pub fn numaherd(arguments: &[&str]) -> Output {
    Command::new(NUMAHERD)
        .args(arguments)
        // Whatever this machine is configured to do is not looked at.
        .env("NUMAHERD_CONFIG", "none")
        .output()
        .expect("the program can be started")
}

/// What it printed.
pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What it said beside that.
pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails with what was said, unless the program ended with this code.
#[track_caller]
pub fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "{}{}",
        out(output),
        err(output)
    );
}
