//! IPM in the real guest: its unit tells whose TLBs hold a page, and the policy moves the page there. One boot.
//!
//! Needs the lab (`make setup` and `make build`); without it the test fails and says so.

use std::path::Path;
use std::process::Command;

use numaherd_herd::ledger::{Ledger, Record};
use numaherd_topology::NodeId;

use crate::profile_in_lab::menagerie;

/// A chase on CPU 4, which is on node 1, through memory on node 0: some seven times what its TLBs hold.
const WORK: [&str; 9] = [
    "chase",
    "--working-set",
    "16MiB",
    "--home",
    "0",
    "--start-cpu",
    "4",
    "--rounds",
    "100",
];
/// Pages of 16 MiB.
const PAGES: u64 = 4096;

#[test]
fn pages_go_to_the_node_whose_tlbs_hold_them() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("l.jsonl");
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .args(["lab", "run", "--machine", "lab-2x4", "--limit", "5m"])
        .args(["--policy", "ipm", "--interval", "200ms", "--ledger"])
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
    let orders = records().filter_map(|record| match record {
        Record::Paging(tick) => Some(&tick.plan),
        _ => None,
    });
    let mut rules = orders.flatten().map(|order| (&*order.rule, order.to));
    let expected = ("ipm: intensely used page", NodeId(1));
    assert!(rules.all(|rule| rule == expected), "{told}");
    let Some(Record::End(summary)) = records().next_back() else {
        panic!("a ledger ends with its summary");
    };
    assert!(summary.totals.pages_moved >= PAGES / 2, "{told}");
    assert!(summary.totals.pages_moved <= 2 * PAGES, "{told}");
}
