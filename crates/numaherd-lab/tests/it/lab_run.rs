//! `numaherd lab run --policy`: a program herded in the real guest. Its output and exit code come back,
//! and the ledger is there to be read while it runs. One boot.
//!
//! Needs the lab (`make setup` and `make build`); without it the test fails and says so.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use numaherd_herd::ledger::{Ledger, Record};

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd-lab");

/// What is herded: it works until a file is there, which the host makes. The guest keeps what it once
/// looked up, also that there is nothing, but a listing is always a new one.
const WORK: &str = "echo out; echo err >&2; until ls \"$0\" | grep -q go; do :; done; exit 7";

/// Reads a growing ledger until it holds a snapshot; `false` if the run ends before.
fn await_snapshot(ledger: &Path, run: u32) -> bool {
    // Ends by itself once somebody has waited for the run.
    let mut tail = Command::new("tail")
        .args(["--bytes=+1", "--follow=name", "--retry"])
        .arg(format!("--pid={run}"))
        .arg(ledger)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let seen = lines
        .map_while(Result::ok)
        .any(|line| line.contains("\"kind\":\"snapshot\""));
    let _ = tail.kill();
    tail.wait().unwrap();
    seen
}

#[test]
fn a_program_is_herded_in_the_guest_and_the_ledger_comes_out_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("herd.jsonl");
    let run = Command::new(PROGRAM)
        .args([
            "lab",
            "run",
            "--policy",
            "dino",
            "--interval",
            "100ms",
            "--ledger",
        ])
        .arg(&ledger)
        .args(["--limit", "4m", "--", "sh", "-c", WORK])
        .arg(folder.path())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let pid = run.id();
    let run = thread::spawn(|| run.wait_with_output());
    let seen = await_snapshot(&ledger, pid);
    fs::write(folder.path().join("go"), "").unwrap();
    let output = run.join().unwrap().unwrap();

    assert!(
        seen,
        "the run ended before the ledger held a snapshot: {output:?}"
    );
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{told}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "out\n", "{told}");
    assert!(told.starts_with("err\n"), "{told}");
    assert!(told.contains("\ndino ran for "), "{told}");
    let numaherd = Path::new(PROGRAM).with_file_name("numaherd");
    let next = format!("{} explain {}\n", numaherd.display(), ledger.display());
    assert!(told.contains(&next), "{told}");

    let ledger = Ledger::read(&ledger).unwrap();
    assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
    assert!(ledger.header.begun_unix_ms.is_some());
    let first = &ledger.lines.first().unwrap().record;
    assert!(matches!(first, Record::Start(start) if start.policy == "dino"));
    let last = &ledger.lines.last().unwrap().record;
    assert!(matches!(last, Record::End(summary) if summary.totals.intervals >= 1));
}
