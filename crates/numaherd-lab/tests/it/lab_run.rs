//! `numaherd lab run --policy`: a program herded in the real guest. Its output and exit code come back,
//! and the ledger is there to be read while it runs. One boot each.
//!
//! Needs the lab (`make setup` and `make build`); without it the test fails and says so.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use numaherd_herd::ledger::{Ledger, Record};

use crate::profile_in_lab::menagerie;

const PROGRAM: &str = env!("CARGO_BIN_EXE_numaherd-lab");

/// What is herded: it runs until a file is there, which the host makes. The guest keeps what it once
/// looked up, also that there is nothing, but a listing is always a new one. It rests between two: a process costs the host much.
const WORK: &str =
    "echo out; echo err >&2; until ls \"$0\" | grep -q go; do sleep 0.02; done; exit 7";

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

#[test]
fn ipm_sends_pages_to_the_node_whose_tlbs_hold_them() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("herd.jsonl");
    // Its 1,024 pages, twice what a TLB holds, are on node 0; it is pinned to CPU 4, of node 1. It takes its time over
    // each, so that the unit finds no more at a time than a debug build reads. The kernel leaves pages where they are.
    let chase = "echo 0 >/proc/sys/kernel/numa_balancing && \
                 exec \"$0\" chase --working-set 4MiB --thp off --compute 1000 --home 0 --cpus 4 --seconds 2";
    let output = Command::new(PROGRAM)
        .args(["lab", "run", "--machine", "lab-2x4", "--policy", "ipm"])
        .args(["--interval", "100ms", "--limit", "4m", "--ledger"])
        .arg(&ledger)
        .args(["--", "sh", "-c", chase])
        .arg(menagerie())
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");

    let ledger = Ledger::read(&ledger).unwrap();
    let plans = ledger.lines.iter().filter_map(|line| match &line.record {
        Record::Paging(paging) => Some(&paging.plan),
        _ => None,
    });
    let mut orders = plans.flatten().peekable();
    assert!(orders.peek().is_some(), "{told}");
    for order in orders {
        assert_eq!(order.rule, "ipm: intensely used page");
        assert_eq!(order.to.0, 1, "{order:?}");
    }
    let Some(Record::End(end)) = ledger.lines.last().map(|line| &line.record) else {
        panic!("the ledger has no end");
    };
    assert!(end.totals.pages_moved >= 900, "{told}");
}
