//! A recording is a world: the same policy on it decides the same.

use std::fs;
use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::{Ledger, Writer};
use numaherd_herd::{Ending, Herd, Record, Replay, Settings};
use numaherd_world::{Placement, Snapshot};
use tempfile::TempDir;

use crate::fake::{Fake, MIB, everyone_to, machine, policy, thread};

static GO: AtomicBool = AtomicBool::new(false);

fn record(path: &std::path::Path) {
    let writer = Writer::create(path, "numaherd test", None, 100 * MIB).unwrap();
    let topology = machine(2, 2);
    let threads = (1..=3).map(|n| thread(n, n, 0, &topology)).collect();
    let mut world = Fake::new(topology, threads).scripted(|interval, world| {
        world.threads[0].cpu_share = 1.0 / (interval + 3) as f64;
    });
    world.ends_after = 4;
    let settings = Settings::default();
    Herd::new(
        &mut world,
        policy(everyone_to(3)),
        settings,
        Some(writer),
        None,
    )
    .run(&GO)
    .unwrap();
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
    let mut seen: Vec<Snapshot> = Vec::new();
    let mut decided: Vec<Vec<Placement>> = Vec::new();
    let mut replay = Replay::open(&path).unwrap();
    let settings = Settings {
        dry_run: true,
        ..replay.start().settings.clone()
    };
    let summary = Herd::new(&mut replay, policy(everyone_to(3)), settings, None, None)
        .watched(|line| match &line.record {
            Record::Snapshot(snapshot) => seen.push(snapshot.clone()),
            Record::Placing(placing) => decided.push(placing.plan.placements.clone()),
            _ => {}
        })
        .run(&GO)
        .unwrap();
    assert_eq!(summary.ending, Ending::World);
    assert_eq!(summary.totals.intervals, 4);
    let ledger = Ledger::read(&path).unwrap();
    let recorded: Vec<Snapshot> = ledger
        .lines
        .iter()
        .filter_map(|line| match &line.record {
            Record::Snapshot(snapshot) => Some(snapshot.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(seen, recorded, "to the last bit");
    // The last of the recorded ones is the release at the end.
    assert_eq!(decided, plans(&ledger)[..4]);
}

#[test]
fn a_damaged_recording_is_replayed_up_to_the_damage() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    record(&path);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let mut replay = Replay::open(&path).unwrap();
    let settings = Settings {
        dry_run: true,
        ..Settings::default()
    };
    let summary = Herd::new(&mut replay, policy(everyone_to(3)), settings, None, None)
        .run(&GO)
        .unwrap();
    assert_eq!(summary.ending, Ending::World);
    assert!(summary.totals.intervals < 4);
    assert!(replay.damage().unwrap().contains("is damaged at line"));
}

#[test]
fn a_recording_is_not_changed() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("run.ledger");
    record(&path);
    let mut replay = Replay::open(&path).unwrap();
    let settings = Settings::default();
    let summary = Herd::new(&mut replay, policy(everyone_to(3)), settings, None, None)
        .run(&GO)
        .unwrap();
    assert_eq!(summary.totals.thread_moves, 0);
    assert!(summary.notices[0].contains("a recording cannot be changed"));
}
