//! A world that carries placements out by hints: no mask changes, nothing is owed, and every hint is taken back.

use std::sync::Arc;

use numaherd_herd::governor::{Guard, ThreadGovernor};
use numaherd_herd::{Herd, Limits};
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{Enforcement, Plan, Thread};
use tempfile::TempDir;

use crate::fake::{
    Fake, cpus, everyone_to, machine, place, plan_of, policy, snapshot, thread, tid,
};
use crate::run::{GO, fake, journal, journal_path};
use crate::threads::carry_out;

/// A machine of so many threads that takes hints.
fn hinted(threads: u32) -> Fake {
    let mut world = fake(threads);
    world.enforcement = Enforcement::Scx;
    world
}

/// The core of each order that the machine was given for a thread.
fn orders(world: &Fake, thread: u32) -> Vec<Option<CpuId>> {
    let orders = world.applied.iter().flat_map(|orders| &orders.affinities);
    orders
        .filter(|order| order.thread == tid(thread))
        .map(|order| order.core)
        .collect()
}

#[test]
fn each_thread_gets_one_hint_which_is_taken_back_at_the_end() {
    let directory = TempDir::new().unwrap();
    let mut world = hinted(3);
    let found = world.masks();
    let placing = policy(everyone_to(5));
    let herd = Herd::new(&mut world, placing).journal(Some(journal(&directory)));
    let summary = herd.run(&GO).unwrap();
    assert_eq!(world.masks(), found);
    assert_eq!(orders(&world, 2), [Some(CpuId(5)), None]);
    assert_eq!(summary.totals.restored, Some(3));
    assert!(summary.notices.is_empty(), "{:?}", summary.notices);
}

#[test]
fn a_killed_run_owes_nothing_and_what_threads_start_is_nobodys() {
    let directory = TempDir::new().unwrap();
    let path = journal_path(&directory);
    let mut world = hinted(1).scripted(move |interval, world| {
        if interval == 2 {
            let child = thread(2, 1, 5, &machine(2, 4));
            world.threads.push(child);
        }
        assert!(!path.exists(), "no line is written");
    });
    let only_first = |snapshot: &numaherd_world::Snapshot| {
        let mut first = everyone_to(5)(snapshot);
        first.retain(|placement| placement.thread == tid(1));
        first
    };
    let herd = Herd::new(&mut world, policy(only_first)).journal(Some(journal(&directory)));
    herd.run(&GO).unwrap();
    assert_eq!(orders(&world, 2), []);
}

#[test]
fn a_hint_is_taken_back_though_its_user_has_set_the_affinity_since() {
    let mut world = hinted(1).scripted(|interval, world| {
        if interval == 2 {
            world.thread(1).affinity = Arc::new(cpus("4"));
        }
    });
    Herd::new(&mut world, policy(everyone_to(5)))
        .run(&GO)
        .unwrap();
    assert_eq!(orders(&world, 1), [Some(CpuId(5)), None]);
    assert_eq!(world.masks()[&tid(1)], cpus("4"));
}

#[test]
fn a_thread_that_leaves_the_selection_loses_its_hint() {
    let mut world = hinted(2).scripted(|interval, world| {
        if interval == 2 {
            world.unseen = vec![tid(2)];
        }
    });
    Herd::new(&mut world, policy(everyone_to(5)))
        .run(&GO)
        .unwrap();
    assert_eq!(orders(&world, 2), [Some(CpuId(5)), None]);
}

/// What the governor says to a hint for a thread with this affinity.
fn told(affinity: &str, take_over: bool) -> Result<CpuSet, (Guard, String)> {
    let topology = machine(2, 4);
    let mut one = thread(1, 1, 0, &topology);
    one.affinity = Arc::new(cpus(affinity));
    let limits = Limits {
        take_over,
        ..Limits::default()
    };
    let mut governor = ThreadGovernor::new(&limits, &topology).enforced(Enforcement::Scx);
    let seen = snapshot(&topology, 1.0, &[one.clone()]);
    let mut governed = governor.govern(&seen, &plan_of(&[place(&one, 5)]));
    match governed.refusals.pop() {
        None => Ok((*governed.changes[0].order.cpus).clone()),
        Some(refusal) => Err((refusal.guard, refusal.why)),
    }
}

#[test]
fn who_has_an_affinity_of_its_own_gets_no_hint_unless_it_is_taken_over_and_then_within_it() {
    assert_eq!(told("0-7", false), Ok(cpus("4-7")));
    assert_eq!(told("0-5", false).unwrap_err().0, Guard::ForeignAffinity);
    assert_eq!(told("0-5", true), Ok(cpus("4-7")));
    let beyond = "CPU 5 is beyond its own affinity (0-4), which hints leave unchanged";
    assert_eq!(
        told("0-4", true),
        Err((Guard::ForeignAffinity, beyond.to_owned()))
    );
}

#[test]
fn a_hint_that_a_thread_has_already_is_no_change() {
    let topology = machine(2, 4);
    let mut all: Vec<Thread> = vec![thread(1, 1, 0, &topology)];
    let mut governor =
        ThreadGovernor::new(&Limits::default(), &topology).enforced(Enforcement::Scx);
    let mut govern = |all: &[Thread], plan: &Plan| {
        let seen = snapshot(&topology, 1.0, all);
        let governed = governor.govern(&seen, plan);
        let mut after = all.to_vec();
        carry_out(&mut governor, &seen, &governed, &mut after);
        (governed, after[0].assigned)
    };
    let plan = plan_of(&[place(&all[0], 5)]);
    let (_, assigned) = govern(&all, &plan);
    all[0].assigned = assigned;
    let (governed, _) = govern(&all, &plan);
    assert_eq!(governed.refusals[0].guard, Guard::Unchanged);
}
