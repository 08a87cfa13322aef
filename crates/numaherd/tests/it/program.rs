//! The program, and what it answers.

use std::fs;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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

/// How long anything may take. Far longer than it does: nothing is learnt from it but that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    // A channel on which nothing comes: it waits for a millisecond at a time.
    let (_sender, pause) = mpsc::channel::<()>();
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        let _ = pause.recv_timeout(Duration::from_millis(1));
    }
}

/// The CPUs that a process may run on, as the kernel lists them; nothing where there is no such process.
pub fn mask(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap_or_default().trim().to_owned()
}
