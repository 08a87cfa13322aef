//! A recording played again: the same policy on it decides the same.

use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::{Ledger, Start, Writer};
use numaherd_herd::{Ending, Herd, Record, Settings};
use numaherd_world::{Placement, Snapshot};
use tempfile::TempDir;

use crate::fake::{Fake, MIB, Played, everyone_to, machine, policy, thread};

static GO: AtomicBool = AtomicBool::new(false);

fn record(path: &std::path::Path) {
    let writer = Writer::create(path, "numaherd test", None, 100 * MIB).unwrap();
    let topology = machine(2, 2);
    let threads = (1..=3).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads).scripted(|interval, world| {
        world.threads[0].cpu_share = 1.0 / (interval + 3) as f64;
    });
    world.ends_after = 4;
    Herd::new(&mut world, policy(everyone_to(3)))
        .ledger(writer)
        .run(&GO)
        .unwrap();
}

/// How the recorded run began, and its snapshots as a world.
pub fn played(ledger: &Ledger) -> (Start, Played<std::vec::IntoIter<Snapshot>>) {
    let Record::Start(start) = ledger.lines[0].record.clone() else {
        panic!("{:?}", ledger.lines[0]);
    };
    let world = Played::new(
        start.topology.clone(),
        start.signals.clone(),
        snapshots(ledger).into_iter(),
    );
    (start, world)
}

fn snapshots(ledger: &Ledger) -> Vec<Snapshot> {
    let snapshots = ledger.lines.iter().filter_map(|line| match &line.record {
        Record::Snapshot(snapshot) => Some(snapshot.clone()),
        _ => None,
    });
    snapshots.collect()
}

fn plans(ledger: &Ledger) -> Vec<Vec<Placement>> {
    let placings = ledger.lines.iter().filter_map(|line| match &line.record {
        Record::Placing(placing) => Some(placing.plan.placements.clone()),
        _ => None,
    });
    placings.collect()
}

#[test]
fn a_replayed_policy_decides_as_it_did() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    record(&path);
    let ledger = Ledger::read(&path).unwrap();
    let mut seen: Vec<Snapshot> = Vec::new();
    let mut decided: Vec<Vec<Placement>> = Vec::new();
    let (start, mut world) = played(&ledger);
    let settings = Settings {
        dry_run: true,
        ..start.settings
    };
    let summary = Herd::new(&mut world, policy(everyone_to(3)))
        .settings(settings)
        .watched(|line| match &line.record {
            Record::Snapshot(snapshot) => seen.push(snapshot.clone()),
            Record::Placing(placing) => decided.push(placing.plan.placements.clone()),
            _ => {}
        })
        .run(&GO)
        .unwrap();
    assert_eq!(summary.ending, Ending::World);
    assert_eq!(summary.totals.intervals, 4);
    assert_eq!(seen, snapshots(&ledger), "to the last bit");
    // The last of the recorded ones is the release at the end.
    assert_eq!(decided, plans(&ledger)[..4]);
}
