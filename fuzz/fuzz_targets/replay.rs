//! Recordings played again: every policy and the governor on snapshots that nobody vouches for.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them), and which policy to
//! run on it, dry, with the settings that the ledger says it was recorded with.
//!
//! Holds: no recording makes the loop, a policy or the governor panic; each move that a plan wants
//! is of a thread that was seen; each order that passes the governor is for CPUs that the thread's
//! cpuset, the machine and the limits allow, and never for a thread that is not to be touched.
//!
//! Reader: crates/herd/src/replay.rs crates/herd/src/replay
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use numaherd_fuzz::sealed;
use numaherd_herd::ledger::{Reader, Record};
use numaherd_herd::{Herd, Settings};
use numaherd_policy::registry;
use numaherd_testing::Played;
use numaherd_world::Snapshot;

numaherd_fuzz::target!(|input: (u8, &[u8])| {
    let (policy, text) = input;
    let path = Path::new("fuzz.ledger");
    let Ok(reader) = Reader::of_bytes(path, sealed(text)) else {
        return;
    };
    let mut records = reader.map_while(Result::ok).map(|line| line.record);
    let Some(Record::Start(start)) = records.next() else {
        return;
    };
    let online = start.topology.online_cpus();
    let snapshots = records.filter_map(|record| match record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    });
    let mut world = Played::new(start.topology, start.signals, snapshots);
    let entry = &registry::POLICIES[usize::from(policy) % registry::POLICIES.len()];
    let settings = numaherd_policy::Settings::default();
    let policy = registry::build(entry.name, &settings).expect("defaults are right");
    let settings = Settings {
        dry_run: true,
        ..start.settings
    };
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
    }
});
