//! BRM in the real guest: what it reads there (§3), and what it does about it (Algorithm 1). One boot.
//!
//! Needs the lab (`make setup` and `make build`); without it the test fails and says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use numaherd_herd::ledger::{Ledger, Record};
use numaherd_topology::NodeId;
use numaherd_world::{Counts, Snapshot};

use crate::profile_in_lab::menagerie;

/// Candidates forget often, so that a run of a second sees some go and come back.
const SETTINGS: &str = "
policy = \"brm\"
[policies.brm]
candidates = \"all\"
forget_after_least_ms = 200
forget_after_most_ms = 400
";

/// BRM's micro-benchmark: four threads follow lists on node 0 that no cache holds.
const WORK: [&str; 11] = [
    "micro",
    "--threads",
    "4",
    "--working-set",
    "16MiB",
    "--sharing-size",
    "128KiB",
    "--home",
    "0",
    "--rounds",
    "80",
];

/// Cycles that a request to the uncore of threads on that node took on average.
fn cycles_per_request<'a>(snapshots: impl Iterator<Item = &'a Snapshot>, cpus: &[u32]) -> f64 {
    let threads = snapshots.flat_map(|snapshot| &snapshot.threads);
    let there = threads.filter(|thread| cpus.contains(&thread.cpu.0));
    let counts = there.filter_map(|thread| thread.counts.as_ref());
    let uncore = |counts: &Counts| counts.uncore_busy_cycles.zip(counts.uncore_requests);
    let (busy, requests) = counts
        .filter_map(uncore)
        .fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    busy as f64 / requests as f64
}

#[test]
fn penalties_are_larger_away_from_memory_and_candidates_go_and_see() {
    let folder = tempfile::tempdir().unwrap();
    let (ledger, config) = (folder.path().join("l.jsonl"), folder.path().join("c.toml"));
    fs::write(&config, SETTINGS).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["lab", "run", "--machine", "lab-2x4", "--limit", "5m"])
        .arg("--config")
        .arg(&config)
        .arg("--ledger")
        .arg(&ledger)
        .arg("--")
        .arg(menagerie())
        .args(WORK)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");

    let ledger = Ledger::read(&ledger).unwrap();
    assert!(ledger.damage.is_none(), "{:?}", ledger.damage);
    let records = || ledger.lines.iter().map(|line| &line.record);
    let rules: Vec<&str> = records()
        .filter_map(|record| match record {
            Record::Placing(placing) if placing.carried_out => Some(&placing.plan.placements),
            _ => None,
        })
        .flatten()
        .map(|placement| placement.rule.as_ref())
        .collect();
    for rule in ["brm: hold", "brm: explore"] {
        assert!(rules.contains(&rule), "{rule} is not among {rules:?}");
    }

    let Some(Record::Start(start)) = records().next() else {
        panic!("a ledger begins with its start");
    };
    let penalty = |node| {
        let snapshots = records().filter_map(|record| match record {
            Record::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        });
        let cpus = start
            .topology
            .cpus()
            .iter()
            .filter(|cpu| cpu.node == NodeId(node));
        let cpus: Vec<u32> = cpus.map(|cpu| cpu.id.0).collect();
        cycles_per_request(snapshots, &cpus)
    };
    let (at_home, away) = (penalty(0), penalty(1));
    assert!(away > at_home, "{away} cycles away, {at_home} at home");
}
