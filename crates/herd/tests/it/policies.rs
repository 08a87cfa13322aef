//! The real policies in the loop.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use numaherd_herd::{Ending, Herd, Record, Summary};
use numaherd_policy::registry;
use numaherd_topology::NodeId;
use numaherd_world::{NewPages, Snapshot};

use crate::fake::{Fake, machine, thread};

/// Two devils on node 0, two turtles on node 1, each node of two CPUs; twenty intervals. Returns
/// what it came to and the last snapshot.
fn run(policy: &str) -> (Summary, Snapshot) {
    let topology = machine(2, 2);
    let threads = (1..=4)
        .map(|n| {
            let mut thread = thread(n, n, n - 1, &topology);
            let devil = n <= 2;
            thread.counts.as_mut().unwrap().lines = if devil { 50_000_000 } else { 1000 };
            thread
        })
        .collect();
    let mut world = Fake::new(topology, threads);
    world.ends_after = 20;
    world.can_place_new_pages = vec![NewPages::FirstTouch, NewPages::Interleave, NewPages::Random];
    let found = world.masks();
    let mut last = None;
    let policy = registry::build(policy, &numaherd_policy::Settings::default()).unwrap();
    let summary = Herd::new(&mut world, policy)
        .watched(|line| {
            if let Record::Snapshot(snapshot) = &line.record {
                last = Some(snapshot.clone());
            }
        })
        .run(&AtomicBool::new(false))
        .unwrap();
    assert_eq!(world.masks(), found, "all is given back");
    (summary, last.unwrap())
}

fn nodes_of_devils(snapshot: &Snapshot) -> BTreeSet<NodeId> {
    let topology = machine(2, 2);
    let devils = snapshot.threads.iter().take(2);
    devils.filter_map(|t| topology.node_of(t.place())).collect()
}

#[test]
fn every_policy_runs_and_leaves_the_machine_as_it_was() {
    for entry in registry::for_live_machines() {
        let (summary, _) = run(entry.name);
        assert_eq!(summary.ending, Ending::World, "{}", entry.name);
        assert_eq!(summary.totals.intervals, 20, "{}", entry.name);
    }
}

#[test]
fn ipm_says_that_it_goes_by_samples_when_it_does() {
    let topology = machine(2, 2);
    let threads = vec![thread(1, 1, 0, &topology)];
    let mut world = Fake::new(topology, threads);
    world.ends_after = 1;
    let settings = numaherd_policy::Settings::parse("[ipm]\nevidence = \"samples\"").unwrap();
    let policy = registry::build("ipm", &settings).unwrap();
    let summary = Herd::new(&mut world, policy)
        .run(&AtomicBool::new(false))
        .unwrap();
    assert_eq!(summary.notices.len(), 1);
    assert!(summary.notices[0].starts_with("ipm uses memory samples instead of TLB residency"));
}

#[test]
fn linux_moves_nothing() {
    let (summary, snapshot) = run("linux");
    assert_eq!(
        (summary.totals.thread_moves, summary.totals.restored),
        (0, Some(0))
    );
    assert_eq!(nodes_of_devils(&snapshot).len(), 1, "where they were");
}

#[test]
fn dino_puts_the_devils_apart_with_two_moves_and_then_rests() {
    let (summary, snapshot) = run("dino");
    assert_eq!(nodes_of_devils(&snapshot).len(), 2);
    assert_eq!(
        summary.totals.thread_moves, 2,
        "one devil and one turtle change places"
    );
    assert!(
        summary.totals.refusals.is_empty(),
        "{:?}",
        summary.totals.refusals
    );
}
