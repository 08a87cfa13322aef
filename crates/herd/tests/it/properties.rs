//! What must hold whatever the plans, the machine and its users do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use numaherd_herd::ledger::Placing;
use numaherd_herd::{Herd, Limits, Line, Record, Settings};
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{Placement, Snapshot, ThreadId, Unmanaged};
use proptest::prelude::*;

use crate::fake::{Fake, machine, policy, thread, tid};

static GO: AtomicBool = AtomicBool::new(false);
const NODES: u32 = 3;
const CPUS: u32 = 4;
const THREADS: u32 = 6;

/// What may happen to a machine between two intervals.
#[derive(Clone, Debug)]
enum Event {
    /// The thread ends.
    Dies(u32),
    /// The thread starts another, which inherits its mask.
    Starts { parent: u32, child: u32 },
    /// Its user pins the thread.
    Pinned(u32, CpuSet),
    /// Its administrator gives the thread's cgroup other CPUs.
    Cpuset(u32, CpuSet),
    /// These CPUs are online.
    Online(CpuSet),
    /// The world finds that the thread must be left alone.
    HandsOff(u32),
}

fn some_cpus() -> impl Strategy<Value = CpuSet> {
    proptest::collection::btree_set(0..NODES * CPUS, 1..8)
        .prop_map(|set| set.into_iter().map(CpuId).collect())
}

fn some_thread() -> impl Strategy<Value = u32> {
    1..=THREADS
}

/// What happens without anyone else steering.
fn quiet_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        some_thread().prop_map(Event::Dies),
        (some_thread(), 100u32..110).prop_map(|(parent, child)| Event::Starts { parent, child }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        quiet_event(),
        (some_thread(), some_cpus()).prop_map(|(t, cpus)| Event::Pinned(t, cpus)),
        (some_thread(), some_cpus()).prop_map(|(t, cpus)| Event::Cpuset(t, cpus)),
        some_cpus().prop_map(Event::Online),
        some_thread().prop_map(Event::HandsOff),
    ]
}

/// Threads and CPUs that a plan names: some of them not there.
fn plans() -> impl Strategy<Value = Vec<Vec<(u32, u32)>>> {
    let entry = (0..=THREADS + 1, 0..NODES * CPUS + 2);
    proptest::collection::vec(proptest::collection::vec(entry, 0..8), 1..12)
}

fn events(of: impl Strategy<Value = Event>) -> impl Strategy<Value = Vec<Vec<Event>>> {
    proptest::collection::vec(proptest::collection::vec(of, 0..3), 12)
}

fn happen(world: &mut Fake, event: &Event) {
    let there = |world: &Fake, n| world.threads.iter().any(|t| t.id == tid(n));
    match event {
        Event::Dies(n) => world.threads.retain(|t| t.id != tid(*n)),
        Event::Starts { parent, child } if there(world, *parent) && !there(world, *child) => {
            let mut heir = world.thread(*parent).clone();
            heir.id = tid(*child);
            heir.assigned = None;
            world.threads.push(heir);
        }
        Event::Pinned(n, cpus) if there(world, *n) => {
            let thread = world.thread(*n);
            let mask = cpus.intersection(&thread.cpuset);
            if !mask.is_empty() {
                thread.affinity = Arc::new(mask);
            }
        }
        Event::Cpuset(n, cpus) if there(world, *n) => {
            let thread = world.thread(*n);
            let left = thread.affinity.intersection(cpus);
            thread.cpuset = Arc::new(cpus.clone());
            thread.affinity = if left.is_empty() {
                thread.cpuset.clone()
            } else {
                Arc::new(left)
            };
        }
        Event::Online(cpus) => world.online = cpus.clone(),
        Event::HandsOff(n) if there(world, *n) => {
            world.thread(*n).unmanaged = Some(Unmanaged::other("as scripted"));
        }
        _ => {}
    }
}

fn world(events: Vec<Vec<Event>>) -> Fake {
    let topology = machine(NODES, CPUS);
    let threads = (1..=THREADS)
        .map(|n| thread(n, n / 2, n % (NODES * CPUS), &topology))
        .collect();
    let mut world = Fake::new(topology, threads).scripted(move |interval, world| {
        for event in &events[usize::try_from(interval).unwrap() % events.len()] {
            happen(world, event);
        }
    });
    world.ends_after = 12;
    world
}

/// Runs the plans, one an interval, and returns the lines.
fn run(world: &mut Fake, settings: Settings, plans: Vec<Vec<(u32, u32)>>) -> Vec<Line> {
    let mut plans = plans.into_iter();
    let plan = move |snapshot: &Snapshot| -> Vec<Placement> {
        let entries = plans.next().unwrap_or_default();
        let from = |id: ThreadId| snapshot.thread(id).map_or(CpuId(0), |t| t.place());
        let placement = |(n, to): (u32, u32)| Placement {
            thread: tid(n),
            from: from(tid(n)),
            to: CpuId(to),
            rule: "property".into(),
            why: "at random".to_owned(),
            instead_of: String::new(),
        };
        entries.into_iter().map(placement).collect()
    };
    let mut lines = Vec::new();
    Herd::new(world, policy(plan))
        .settings(settings)
        .watched(|line| lines.push(line.clone()))
        .run(&GO)
        .unwrap();
    lines
}

/// Each interval's snapshot with what was made of its plan; the release at the end left out.
fn intervals(lines: &[Line]) -> Vec<(&Snapshot, &Placing)> {
    let mut latest = None;
    let mut intervals = Vec::new();
    for line in lines {
        match &line.record {
            Record::Snapshot(snapshot) => latest = Some(snapshot),
            Record::Placing(placing) => intervals.extend(latest.take().map(|s| (s, placing))),
            _ => {}
        }
    }
    intervals
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn orders_keep_to_what_is_allowed_and_every_entry_has_one_answer(
        plans in plans(),
        events in events(event()),
        take_over in any::<bool>(),
        cpus in prop::option::of(some_cpus()),
        moves_per_interval in 0u32..4,
        moves_per_second in 0.0..3.0f64,
    ) {
        let limits = Limits {
            take_over,
            cpus: cpus.clone(),
            moves_per_interval,
            moves_per_second,
            ..Limits::default()
        };
        let settings = Settings { limits, ..Settings::default() };
        let lines = run(&mut world(events), settings, plans);
        let mut moves_so_far = 0.0;
        for (snapshot, placing) in intervals(&lines) {
            let mut moves = 0;
            let mut ordered = BTreeSet::new();
            for order in &placing.affinities {
                let Some(core) = order.core else { continue };
                let thread = snapshot.thread(order.thread).expect("only threads that were seen");
                prop_assert!(thread.unmanaged.is_none());
                prop_assert!(order.cpus.contains(core));
                prop_assert!(order.cpus.is_subset(&thread.cpuset));
                prop_assert!(order.cpus.is_subset(&snapshot.online));
                prop_assert!(cpus.as_ref().is_none_or(|cpus| order.cpus.is_subset(cpus)));
                prop_assert!(ordered.insert(order.thread), "each thread once");
                moves += u32::from(!order.cpus.contains(thread.cpu));
            }
            prop_assert!(moves <= moves_per_interval);
            moves_so_far += f64::from(moves);
            let first_ns = Settings::default().first_interval_ms * 1_000_000;
            let seconds = (snapshot.time_ns - first_ns) as f64 / 1e9;
            prop_assert!(moves_so_far <= moves_per_second.max(1.0) + moves_per_second * seconds + 1.0);

            let refused: BTreeSet<usize> = placing.refusals.iter().filter_map(|r| r.entry).collect();
            prop_assert_eq!(refused.len(), placing.refusals.len(), "no entry is refused twice");
            for (entry, placement) in placing.plan.placements.iter().enumerate() {
                let let_through = placing.affinities.iter().any(|order| {
                    order.thread == placement.thread && order.core == Some(placement.to)
                });
                prop_assert!(refused.contains(&entry) || let_through, "{:?}", placement);
            }
            let undone = placing.undone.iter().filter(|u| u.to.is_some()).count();
            let let_through = ordered.len() - undone;
            prop_assert_eq!(let_through + refused.len(), placing.plan.placements.len());
        }
    }

    #[test]
    fn masks_are_in_the_end_as_they_were_found(plans in plans(), events in events(quiet_event())) {
        let mut world = world(events);
        let whole: CpuSet = world.topology.online_cpus();
        run(&mut world, Settings::default(), plans);
        for (thread, mask) in world.masks() {
            prop_assert_eq!(&mask, &whole, "{}", thread);
        }
    }

    #[test]
    fn what_others_pinned_stays_pinned(
        plans in plans(),
        mut events in events(quiet_event()),
        pinned in proptest::collection::btree_map(some_thread(), some_cpus(), 1..4),
    ) {
        // Pinned before the herd comes; a child of a pinned thread has its parent's mask.
        let before: Vec<Event> = pinned.iter().map(|(&n, c)| Event::Pinned(n, c.clone())).collect();
        events.iter_mut().for_each(|events| {
            events.retain(|event| !matches!(event, Event::Starts { .. }));
        });
        let mut world = world(events);
        before.iter().for_each(|event| happen(&mut world, event));
        let found: BTreeMap<ThreadId, CpuSet> = world.masks();
        let lines = run(&mut world, Settings::default(), plans);
        for (thread, mask) in world.masks() {
            prop_assert_eq!(&mask, &found[&thread]);
        }
        let whole = world.topology.online_cpus();
        for orders in &world.applied {
            for order in &orders.affinities {
                prop_assert_eq!(&found[&order.thread], &whole, "never touched");
            }
        }
        prop_assert!(!lines.is_empty());
    }

    #[test]
    fn a_dry_run_asks_for_nothing(plans in plans(), events in events(event())) {
        let mut world = world(events);
        let settings = Settings { dry_run: true, ..Settings::default() };
        run(&mut world, settings, plans);
        prop_assert!(world.applied.is_empty());
    }
}
