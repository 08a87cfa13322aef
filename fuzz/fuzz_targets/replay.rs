//! Recordings played again: every policy and the governor on snapshots that nobody vouches for, in a dry run and as
//! `numaherd replay` asks a policy.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them), and which policy to
//! run on it, dry, with the settings that the ledger says it was recorded with.
//!
//! Holds: no recording makes the loop, a policy or the governor panic; each move that a plan wants
//! is of a thread that was seen; each order that passes the governor is for CPUs that the thread's
//! cpuset, the machine and the limits allow, and never for a thread that is not to be touched. A policy
//! that is replayed has each thread that was seen on a CPU.
//!
//! Reader: crates/herd/src/replay.rs crates/herd/src/replay
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_fuzz::sealed;
use numaherd_herd::ledger::{Reader, Record};
use numaherd_herd::replay::{Basis, Candidate, Interval};
use numaherd_herd::{Herd, Line, Settings};
use numaherd_policy::registry;
use numaherd_testing::Played;
use numaherd_world::{Outcome, Snapshot};

numaherd_fuzz::target!(|input: (u8, &[u8])| {
    let (policy, text) = input;
    let path = Path::new("fuzz.ledger");
    let Ok(reader) = Reader::of_bytes(path, sealed(text)) else {
        return;
    };
    let lines: Vec<Line> = reader.map_while(Result::ok).collect();
    let mut records = lines.iter().map(|line| line.record.clone());
    let Some(Record::Start(start)) = records.next() else {
        return;
    };
    let online = start.topology.online_cpus();
    let snapshots = records.filter_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let topology = Arc::new(start.topology.clone());
    let mut world = Played::new(start.topology, start.signals, snapshots);
    let entry = &registry::POLICIES[usize::from(policy) % registry::POLICIES.len()];
    let settings = numaherd_policy::Settings::default();
    let build = || registry::build(entry.name, &settings).expect("defaults are right");
    let policy = build();
    let settings = Settings {
        dry_run: true,
        ..start.settings
    };
    let loops = settings.clone();
    let limits = settings.limits.clone();
    let mut seen: Option<Snapshot> = None;
    let herd = Herd::new(&mut world, policy)
        .settings(settings)
        .watched(|line| match &line.record {
            Record::Snapshot(snapshot) => seen = Some(snapshot.clone()),
            Record::Placing(placing) => {
                let Some(seen) = &seen else { return };
                let of = |id| seen.threads.iter().find(move |thread| thread.id == id);
                for wanted in &placing.plan.placements {
                    assert!(of(wanted.thread).is_some(), "a move of a thread nobody saw");
                }
                for order in placing
                    .affinities
                    .iter()
                    .filter(|order| order.core.is_some())
                {
                    let thread = of(order.thread).expect("an order for a thread that was seen");
                    assert!(!order.cpus.is_empty());
                    assert!(order.cpus.is_subset(&thread.cpuset));
                    assert!(order.cpus.is_subset(&online));
                    assert!(
                        limits
                            .cpus
                            .as_ref()
                            .is_none_or(|cpus| order.cpus.is_subset(cpus))
                    );
                    assert!(thread.unmanaged.is_none());
                }
            }
            _ => {}
        });
    if let Err(error) = herd.run(&AtomicBool::new(false)) {
        assert!(!error.to_string().is_empty());
        return;
    }
    let intervals = intervals(&lines);
    for basis in [Basis::Recorded, Basis::Carried] {
        let mut candidate = Candidate::new(build(), &loops, &topology, basis);
        for interval in &intervals {
            let decided = candidate.decide(interval);
            let threads = interval.snapshot.threads.len();
            for places in [decided.places, interval.wanted(), interval.had()] {
                assert_eq!(places.len(), threads);
            }
            for wanted in &decided.placements {
                assert!(decided.seen.thread(wanted.thread).is_some());
            }
        }
    }
});

/// Each snapshot with what was decided on it and what came of that.
fn intervals(lines: &[Line]) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = Vec::new();
    for line in lines {
        match (&line.record, intervals.last_mut()) {
            (Record::Snapshot(snapshot), _) => intervals.push(Interval {
                snapshot: Arc::new(snapshot.clone()),
                placing: None,
                outcome: Outcome::default(),
            }),
            (Record::Placing(placing), Some(last)) => last.placing = Some(placing.clone()),
            (Record::Outcome(outcome), Some(last)) => last.outcome = outcome.clone(),
            _ => {}
        }
    }
    intervals
}
