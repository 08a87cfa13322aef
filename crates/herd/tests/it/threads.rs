//! Each guard of the thread half of the governor, by itself.

use std::sync::Arc;

use numaherd_herd::governor::{Governed, Guard, ThreadGovernor};
use numaherd_herd::settings::{AffinityScope, Limits};
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{
    AffinityOutcome, AffinityResult, Bounds, Placement, Plan, Snapshot, Thread, Unmanaged,
};

use crate::fake::{cpus, machine, place, plan_of, release, snapshot, thread, virtual_machine};

/// Two nodes of four CPUs.
fn two_nodes() -> Arc<Topology> {
    machine(2, 4)
}

fn governor(limits: Limits) -> ThreadGovernor {
    ThreadGovernor::new(&limits, &two_nodes())
}

/// What the governor with these limits says to moving one thread, changed as told, to a CPU.
fn told(limits: Limits, to: u32, change: impl FnOnce(&mut Thread)) -> Result<String, String> {
    let topology = two_nodes();
    let mut one = thread(1, 1, 0, &topology);
    change(&mut one);
    let snapshot = snapshot(&topology, 1.0, &[one.clone()]);
    let governed = governor(limits).govern(&snapshot, &plan_of(&[place(&one, to)]));
    match (&governed.changes[..], &governed.refusals[..]) {
        ([change], []) => Ok(change.order.cpus.to_string()),
        ([], [refusal]) => Err(format!("{}: {}", refusal.guard, refusal.why)),
        _ => panic!("one entry, one answer: {governed:?}"),
    }
}

fn refused(limits: Limits, to: u32, change: impl FnOnce(&mut Thread)) -> String {
    told(limits, to, change).unwrap_err()
}

/// Tells the governor that all it ordered was done, and the threads that they have what it ordered.
pub fn carry_out(
    governor: &mut ThreadGovernor,
    now: &Snapshot,
    governed: &Governed,
    all: &mut [Thread],
) {
    let outcomes: Vec<AffinityOutcome> = governed
        .changes
        .iter()
        .map(|change| AffinityOutcome {
            thread: change.order.thread,
            result: AffinityResult::Done,
        })
        .collect();
    governor.carried_out(now.time_ns, &governed.changes, &outcomes);
    for change in &governed.changes {
        if let Some(thread) = all.iter_mut().find(|t| t.id == change.order.thread) {
            thread.affinity = change.order.cpus.clone();
            thread.assigned = change.order.core;
            thread.cpu = change.order.core.unwrap_or(thread.cpu);
        }
    }
}

/// A governor that has given the first of these threads CPU 5 in second 1, which has been carried out.
fn first_on_cpu_5(all: &mut [Thread]) -> ThreadGovernor {
    let mut governor = governor(Limits::default());
    let seen = snapshot(&two_nodes(), 1.0, all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 5)]));
    carry_out(&mut governor, &seen, &governed, all);
    governor
}

#[test]
fn a_thread_is_given_the_memory_domain_of_its_core() {
    assert_eq!(told(Limits::default(), 5, |_| {}).unwrap(), "4-7");
}

#[test]
fn the_affinity_scope_of_threads_can_be_set() {
    let scope = |scope| Limits {
        scope: Some(scope),
        ..Limits::default()
    };
    assert_eq!(told(scope(AffinityScope::Core), 5, |_| {}).unwrap(), "5");
    assert_eq!(
        told(scope(AffinityScope::Domain), 5, |_| {}).unwrap(),
        "4-7"
    );
    assert_eq!(told(scope(AffinityScope::Node), 5, |_| {}).unwrap(), "4-7");
}

#[test]
fn a_mask_never_goes_beyond_cpuset_and_limits() {
    let limits = Limits {
        cpus: Some(cpus("0-5")),
        ..Limits::default()
    };
    let narrow = |thread: &mut Thread| {
        thread.cpuset = Arc::new(cpus("0,5-7"));
        thread.affinity = thread.cpuset.clone();
    };
    assert_eq!(told(limits, 5, narrow).unwrap(), "5");
}

#[test]
fn a_cpu_beyond_the_cpuset_is_refused() {
    let narrow = |thread: &mut Thread| {
        thread.cpuset = Arc::new(cpus("0-3"));
        thread.affinity = thread.cpuset.clone();
    };
    assert_eq!(
        refused(Limits::default(), 5, narrow),
        "cpuset: CPU 5 is beyond its cpuset (0-3)"
    );
}

#[test]
fn a_cpu_beyond_the_limits_is_refused() {
    let limits = Limits {
        cpus: Some(cpus("0-3")),
        ..Limits::default()
    };
    assert_eq!(
        refused(limits, 5, |_| {}),
        "limits: CPU 5 is beyond the CPUs that may be used"
    );
}

#[test]
fn a_cpu_that_the_machine_does_not_have_is_refused() {
    assert_eq!(
        refused(Limits::default(), 64, |_| {}),
        "unknown CPU: the machine has no CPU 64"
    );
}

#[test]
fn an_offline_cpu_is_refused() {
    let topology = two_nodes();
    let one = thread(1, 1, 0, &topology);
    let mut seen = snapshot(&topology, 1.0, std::slice::from_ref(&one));
    seen.online = cpus("0-4");
    let governed = governor(Limits::default()).govern(&seen, &plan_of(&[place(&one, 5)]));
    assert_eq!(governed.refusals[0].guard, Guard::Offline);
    let governed = governor(Limits::default()).govern(&seen, &plan_of(&[place(&one, 4)]));
    assert_eq!(governed.changes[0].order.cpus.to_string(), "4", "not 4-7");
}

#[test]
fn a_thread_that_was_not_observed_is_refused() {
    let topology = two_nodes();
    let (one, other) = (thread(1, 1, 0, &topology), thread(2, 1, 0, &topology));
    let seen = snapshot(&topology, 1.0, &[one]);
    let governed = governor(Limits::default()).govern(&seen, &plan_of(&[place(&other, 5)]));
    assert_eq!(governed.refusals[0].guard, Guard::UnknownThread);
    assert!(governed.changes.is_empty());
}

#[test]
fn a_thread_named_twice_is_moved_once() {
    let topology = two_nodes();
    let one = thread(1, 1, 0, &topology);
    let seen = snapshot(&topology, 1.0, std::slice::from_ref(&one));
    let plan = [place(&one, 5), place(&one, 1)];
    let governed = governor(Limits::default()).govern(&seen, &plan_of(&plan));
    assert_eq!(governed.changes[0].order.core, Some(CpuId(5)));
    assert_eq!(governed.refusals[0].guard, Guard::Duplicate);
    assert_eq!(governed.refusals[0].entry, Some(1));
}

#[test]
fn a_thread_to_be_left_alone_is_left_alone_even_when_taking_over() {
    let limits = Limits {
        take_over: true,
        ..Limits::default()
    };
    let kernel = |thread: &mut Thread| thread.unmanaged = Some(Unmanaged::other("a kernel thread"));
    assert_eq!(
        refused(limits, 5, kernel),
        "hands off: it must be left alone: a kernel thread"
    );
}

#[test]
fn an_affinity_of_its_own_is_respected_unless_told_otherwise() {
    let pin = |thread: &mut Thread| thread.affinity = Arc::new(cpus("0-1"));
    assert_eq!(
        refused(Limits::default(), 5, pin),
        "foreign affinity: it has an affinity of its own (0-1)"
    );
    let limits = Limits {
        take_over: true,
        ..Limits::default()
    };
    assert_eq!(told(limits, 5, pin).unwrap(), "4-7");
}

#[test]
fn our_own_mask_is_not_foreign_and_someone_elses_later_one_is() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);

    let seen = snapshot(&topology, 2.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 1)]));
    assert_eq!(governed.changes.len(), 1, "ours: {:?}", governed.refusals);
    carry_out(&mut governor, &seen, &governed, &mut all);

    all[0].affinity = Arc::new(cpus("2"));
    let seen = snapshot(&topology, 3.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 5)]));
    assert_eq!(governed.refusals[0].guard, Guard::ForeignAffinity);
    let mut released = governor.release(&seen);
    let bounds = |mask| Bounds::new(cpus(mask), cpus("0-7"));
    let changed = governor.may_be_changed(&released);
    assert_eq!(changed, [all[0].id].into());
    assert!(governor.is_changed(all[0].id, &bounds("2")));
    assert!(!governor.is_changed(all[0].id, &bounds("0-3")));
    governor.leave_alone(&mut released, &changed);
    assert!(released.changes.is_empty());
    assert_eq!(released.left_alone, [all[0].id]);
}

#[test]
fn a_mask_that_a_smaller_cpuset_has_narrowed_is_still_ours() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);
    all[0].cpuset = Arc::new(cpus("0-5"));
    all[0].affinity = Arc::new(cpus("4-5"));
    let seen = snapshot(&topology, 2.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 1)]));
    assert_eq!(governed.changes.len(), 1, "{:?}", governed.refusals);
}

#[test]
fn a_thread_started_with_our_mask_is_ours_and_is_given_back() {
    let topology = two_nodes();
    let mut all = vec![thread(1, 1, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);

    let mut heir = thread(2, 1, 5, &topology);
    heir.affinity = all[0].affinity.clone();
    let mut stranger = thread(3, 3, 5, &topology);
    stranger.affinity = all[0].affinity.clone();
    // Even when the world takes it for the mask of a core that was given.
    stranger.assigned = all[0].assigned;
    all.extend([heir.clone(), stranger]);
    let seen = snapshot(&topology, 2.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[]));
    let adopted: Vec<_> = governed.adopted.iter().map(|(id, _)| *id).collect();
    assert_eq!(adopted, [heir.id], "the stranger's mask is its own");
    let released = governor.release(&seen).orders();
    assert_eq!(released.len(), 2);
    assert!(released.iter().all(|order| order.cpus.to_string() == "0-7"));
}

#[test]
fn an_heir_that_was_found_in_a_narrow_cpuset_is_ours_when_that_is_widened() {
    let topology = two_nodes();
    let mut all = vec![thread(1, 1, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);
    let mut heir = thread(2, 1, 5, &topology);
    heir.cpuset = Arc::new(cpus("0-5"));
    heir.affinity = Arc::new(cpus("4-5"));
    all.push(heir);
    let governed = governor.govern(&snapshot(&topology, 2.0, &all), &plan_of(&[]));
    assert_eq!(governed.adopted.len(), 1);
    all[1].cpuset = Arc::new(cpus("0-7"));
    all[1].affinity = Arc::new(cpus("4-7"));
    let released = governor.release(&snapshot(&topology, 3.0, &all));
    assert_eq!(released.orders().len(), 2);
    assert_eq!(governor.may_be_changed(&released), [].into());
}

/// Thread 2 of the process of a thread that has CPUs 4-7 is new in the second snapshot with CPU 2, for so many snapshots, and
/// then has CPUs 4-7. Returns whether it is taken for an heir.
fn is_heir_after(snapshots: u32, cpuset_of_another: &str) -> bool {
    let topology = two_nodes();
    let mut all = vec![thread(1, 1, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);
    all.extend([thread(2, 1, 5, &topology), thread(3, 3, 5, &topology)]);
    all[1].affinity = Arc::new(cpus("2"));
    for second in 0..snapshots {
        let seen = snapshot(&topology, f64::from(2 + second), &all);
        assert!(governor.govern(&seen, &plan_of(&[])).adopted.is_empty());
        all[2].cpuset = Arc::new(cpus(cpuset_of_another));
    }
    all[1].affinity = all[0].affinity.clone();
    let seen = snapshot(&topology, f64::from(2 + snapshots), &all);
    let adopted = governor.govern(&seen, &plan_of(&[])).adopted;
    adopted.iter().any(|(thread, _)| *thread == all[1].id)
}

#[test]
fn a_new_thread_is_no_stranger_at_first_sight_nor_while_a_cpuset_changes() {
    assert!(is_heir_after(1, "0-7"), "its mask may not be its cpuset's");
    assert!(!is_heir_after(2, "0-7"), "its user has given it that mask");
    assert!(is_heir_after(2, "0-5"), "a cpuset has changed");
    assert!(is_heir_after(10, "0-5"));
    assert!(!is_heir_after(14, "0-5"));
}

#[test]
fn a_thread_that_ends_as_its_mask_is_set_may_have_handed_it_on() {
    let topology = two_nodes();
    let all = [thread(1, 1, 0, &topology)];
    let mut governor = governor(Limits::default());
    let seen = snapshot(&topology, 1.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 5)]));
    let outcome = AffinityOutcome {
        thread: all[0].id,
        result: AffinityResult::Gone,
    };
    governor.carried_out(seen.time_ns, &governed.changes, &[outcome]);
    assert!(governor.holdings().iter().next().is_none());
    let donors = governor.holdings().donors();
    assert_eq!(donors[0].mask, governed.changes[0].order.cpus);
}

#[test]
fn a_thread_that_was_pinned_before_we_came_is_no_heir_of_the_same_mask() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology), thread(2, 1, 5, &topology)];
    all[1].affinity = Arc::new(cpus("4-7"));
    let mut governor = first_on_cpu_5(&mut all);
    // Even when the world takes it for one.
    all[1].assigned = Some(CpuId(5));
    let seen = snapshot(&topology, 2.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[1], 1)]));
    assert!(governed.adopted.is_empty());
    assert_eq!(governed.refusals[0].guard, Guard::ForeignAffinity);
    let released: Vec<_> = governor.release(&seen).orders();
    assert_eq!(released.len(), 1);
    assert_eq!(released[0].thread, all[0].id);
}

#[test]
fn a_thread_that_leaves_the_selection_is_given_back() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology), thread(2, 2, 0, &topology)];
    let mut governor = first_on_cpu_5(&mut all);
    let seen = snapshot(&topology, 2.0, &all[1..]);
    let governed = governor.govern(&seen, &plan_of(&[]));
    assert_eq!(governed.changes.len(), 1);
    assert_eq!(governed.changes[0].order.core, None);
    assert_eq!(governed.changes[0].order.cpus.to_string(), "0-7");
    carry_out(&mut governor, &seen, &governed, &mut all);
    assert!(
        governor.govern(&seen, &plan_of(&[])).changes.is_empty(),
        "once"
    );
}

#[test]
fn a_thread_that_the_policy_releases_gets_its_own_mask_back() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology), thread(2, 2, 0, &topology)];
    let mut governor = governor(Limits {
        moves_per_interval: 1,
        ..Limits::default()
    });
    let seen = snapshot(&topology, 1.0, &all);
    let governed = governor.govern(&seen, &plan_of(&[place(&all[0], 5)]));
    carry_out(&mut governor, &seen, &governed, &mut all);
    let seen = snapshot(&topology, 2.0, &all);
    let plan = Plan {
        releases: vec![release(&all[1]), release(&all[0]), release(&all[0])],
        ..plan_of(&[place(&all[1], 6)])
    };
    let governed = governor.govern(&seen, &plan);
    let orders: Vec<_> = governed.orders();
    assert_eq!((orders[1].thread, orders[1].core), (all[0].id, None));
    assert_eq!(orders[1].cpus.to_string(), "0-7");
    assert!(!governed.changes[1].is_move(), "a release is no move");
    let refused: Vec<_> = governed
        .refusals
        .iter()
        .map(|refusal| (refusal.entry, refusal.guard))
        .collect();
    assert_eq!(
        refused,
        [(Some(1), Guard::Duplicate), (Some(3), Guard::Duplicate)]
    );
    carry_out(&mut governor, &seen, &governed, &mut all);
    let seen = snapshot(&topology, 3.0, &all);
    let plan = Plan {
        releases: vec![release(&all[0])],
        ..Plan::default()
    };
    let governed = governor.govern(&seen, &plan);
    assert_eq!(governed.refusals[0].guard, Guard::Unchanged, "once");
    assert_eq!(governor.release(&seen).orders().len(), 1, "thread 2 alone");
}

#[test]
fn what_is_so_already_is_not_ordered_again() {
    let settled = |thread: &mut Thread| {
        thread.assigned = Some(CpuId(0));
        thread.affinity = Arc::new(cpus("0-3"));
    };
    let limits = Limits {
        take_over: true,
        ..Limits::default()
    };
    assert_eq!(
        refused(limits, 0, settled),
        "unchanged: CPU 0 is given to it already"
    );
}

#[test]
fn a_mask_around_the_cpu_it_is_on_is_no_move_and_is_not_counted_against_the_rate() {
    let limits = Limits {
        moves_per_interval: 0,
        ..Limits::default()
    };
    assert_eq!(told(limits.clone(), 1, |_| {}).unwrap(), "0-3");
    assert_eq!(
        refused(limits, 5, |_| {}),
        "rate: the limit is 0 thread moves per interval"
    );
}

#[test]
fn moves_per_second_are_limited_over_time() {
    let topology = two_nodes();
    let threads: Vec<Thread> = (1..=6).map(|n| thread(n, n, 0, &topology)).collect();
    let plan: Vec<Placement> = threads.iter().map(|t| place(t, 5)).collect();
    let mut governor = governor(Limits {
        moves_per_second: 2.0,
        ..Limits::default()
    });
    let mut ordered = |seconds| {
        let seen = snapshot(&topology, seconds, &threads);
        governor.govern(&seen, &plan_of(&plan)).changes.len()
    };
    assert_eq!(ordered(1.0), 2, "one second's worth");
    assert_eq!(ordered(1.4), 0);
    assert_eq!(ordered(1.5), 1);
    assert_eq!(ordered(100.0), 2);
}

#[test]
fn a_thread_that_goes_to_and_fro_is_frozen() {
    let topology = two_nodes();
    let mut all = [thread(1, 1, 0, &topology)];
    let mut governor = governor(Limits::default());
    let mut moves = 0;
    for second in 0..20 {
        let to = if second % 2 == 0 { 5 } else { 1 };
        let seen = snapshot(&topology, f64::from(second), &all);
        let governed = governor.govern(&seen, &plan_of(&[place(&all[0], to)]));
        moves += governed.changes.iter().filter(|c| c.leaves).count();
        carry_out(&mut governor, &seen, &governed, &mut all);
    }
    assert_eq!(moves, 5, "Clavis's limit");
}

#[test]
fn a_cpuset_without_a_cpu_is_named_once_with_what_is_wrong() {
    let topology = two_nodes();
    let mut one = thread(1, 1, 0, &topology);
    one.cpuset = Arc::new(cpus("0-3"));
    one.affinity = one.cpuset.clone();
    let mut governor = governor(Limits {
        cpus: Some(cpus("4-7")),
        ..Limits::default()
    });
    let seen = snapshot(&topology, 1.0, &[one.clone()]);
    let notices = governor.govern(&seen, &plan_of(&[])).notices;
    assert_eq!(
        notices,
        [
            "thread 1 (t1) has no CPU that may be given to it: its cpuset is 0-3, online are 0-7 \
             and the limits name 4-7; its process is left alone until that changes"
        ]
    );
    let seen = snapshot(&topology, 2.0, &[one]);
    assert!(governor.govern(&seen, &plan_of(&[])).notices.is_empty());
}

#[test]
fn one_virtual_machine_does_not_take_all_moves_there_are() {
    let topology = two_nodes();
    let all: Vec<Thread> = (1..=8)
        .map(|n| thread(n, if n <= 6 { 1 } else { n }, 0, &topology))
        .collect();
    let limits = Limits {
        vm_moves_per_second: 4.0,
        ..Limits::default()
    };
    let mut governor = governor(limits);
    let mut at = |seconds: f64| {
        let mut seen = snapshot(&topology, seconds, &all);
        seen.processes[0].machine = Some(virtual_machine("guest-a", &all[..6]));
        let plan: Vec<_> = all.iter().map(|thread| place(thread, 5)).collect();
        governor.govern(&seen, &plan_of(&plan))
    };
    let governed = at(1.0);
    let moved: Vec<u32> = governed
        .changes
        .iter()
        .map(|c| c.order.thread.tid)
        .collect();
    assert_eq!(moved, [1, 2, 3, 4, 7, 8], "others go on");
    let refusal = &governed.refusals[0];
    assert_eq!(refusal.guard, Guard::VmRate);
    assert_eq!(
        refusal.why,
        "the limit is 4 moves per second of the threads of one virtual machine, and it belongs to guest-a"
    );
    assert_eq!(at(1.5).changes.len(), 2 + 2, "two in half a second");
}
