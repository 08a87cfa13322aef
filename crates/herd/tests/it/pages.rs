//! Each guard of the page half of the governor, by itself.

use std::sync::Arc;

use numaherd_herd::governor::{Guard, PageGovernor};
use numaherd_herd::settings::Limits;
use numaherd_topology::{NodeId, Topology};
use numaherd_world::{
    FixedMemory, Mapped, MemoryKind, MemoryKinds, PageOrder, Pages, Part, Process, Residency,
    Snapshot, Thread, Unmanaged,
};

use crate::fake::{
    MIB, all_pages, machine, moved, nodes, snapshot, thread, virtual_machine, window,
};

/// Pages of a MiB.
const MIB_PAGES: u64 = 256;

struct Scene {
    topology: Arc<Topology>,
    one: Thread,
    seen: Snapshot,
}

fn scene() -> Scene {
    let topology = machine(2, 4);
    let one = thread(1, 1, 0, &topology);
    let seen = snapshot(&topology, 1.0, &[one.clone(), thread(2, 2, 0, &topology)]);
    Scene {
        topology,
        one,
        seen,
    }
}

impl Scene {
    fn governor(&self, limits: Limits) -> PageGovernor {
        let mut governor = PageGovernor::new(&limits, &self.topology);
        governor.see(Arc::new(self.seen.clone()));
        governor
    }

    /// What the governor with these limits says to one order.
    fn told(&self, limits: Limits, order: &PageOrder) -> Result<(), String> {
        let governed = self.governor(limits).govern(std::slice::from_ref(order));
        match (&governed.orders[..], &governed.refusals[..]) {
            ([let_through], []) => {
                assert_eq!(let_through, order);
                Ok(())
            }
            ([], [refusal]) => Err(format!("{}: {}", refusal.guard, refusal.why)),
            _ => panic!("one entry, one answer: {governed:?}"),
        }
    }
}

#[test]
fn pages_may_go_where_there_is_room() {
    let scene = scene();
    let order = window(&scene.one, 0, 4096, 1);
    scene.told(Limits::default(), &order).unwrap();
}

#[test]
fn nothing_moves_before_anything_was_observed() {
    let scene = scene();
    let mut governor = PageGovernor::new(&Limits::default(), &scene.topology);
    let governed = governor.govern(&[window(&scene.one, 0, 1, 1)]);
    assert_eq!(governed.refusals[0].guard, Guard::UnknownProcess);
}

#[test]
fn pages_of_others_are_not_touched() {
    let scene = scene();
    let stranger = thread(9, 9, 0, &scene.topology);
    let told = scene.told(Limits::default(), &window(&stranger, 0, 1, 1));
    let why = "unknown process: process 9 is not among the processes that were observed";
    assert_eq!(told.unwrap_err(), why);
    let mut scene = scene;
    scene.seen.threads[0].unmanaged = Some(Unmanaged::other("a kernel thread"));
    let told = scene.told(Limits::default(), &window(&scene.one, 0, 1, 1));
    let why = "hands off: its thread must be left alone: a kernel thread";
    assert_eq!(told.unwrap_err(), why);
}

#[test]
fn memory_is_its_user_s_by_a_memory_policy_and_not_by_a_pinned_thread() {
    let mut scene = scene();
    let order = window(&scene.one, 0, 1, 1);
    scene.seen.threads[0].unmanaged = Some(Unmanaged::UserAffinity { cpus: None });
    scene.told(Limits::default(), &order).unwrap();
    scene.seen.threads[0].unmanaged = None;
    scene.seen.processes[0].memory_policy = Some("interleave:0-1".into());
    let told = scene.told(Limits::default(), &order);
    let why = "hands off: its memory has a policy of its user's (interleave:0-1)";
    assert_eq!(told.unwrap_err(), why);
}

#[test]
fn the_fixed_memory_of_a_virtual_machine_is_left_alone_with_the_reason() {
    let mut scene = scene();
    let order = window(&scene.one, 0, 1, 1);
    for (fixed, because) in [
        (
            FixedMemory::HugePages,
            "it is of huge pages that were set aside (hugetlb)",
        ),
        (
            FixedMemory::Device,
            "it is pinned for a device that was passed through (VFIO)",
        ),
    ] {
        let mut machine = virtual_machine("web", &scene.seen.threads[..1]);
        Arc::make_mut(&mut machine).fixed_memory = Some(fixed);
        scene.seen.processes[0].machine = Some(machine);
        let told = scene.told(Limits::default(), &order).unwrap_err();
        let why =
            format!("hands off: the memory of the virtual machine stays where it is: {because}");
        assert_eq!(told, why);
    }
}

#[test]
fn nodes_beyond_machine_cpuset_and_limits_are_refused() {
    let mut scene = scene();
    let told = scene.told(Limits::default(), &window(&scene.one, 0, 1, 7));
    assert_eq!(told.unwrap_err(), "unknown node: the machine has no node 7");
    let limits = Limits {
        nodes: Some(nodes("0")),
        ..Limits::default()
    };
    let told = scene.told(limits, &window(&scene.one, 0, 1, 1));
    let why = "limits: node 1 is beyond the nodes that may be used";
    assert_eq!(told.unwrap_err(), why);
    scene.seen.processes[0].allowed_nodes = Arc::new(nodes("0"));
    let told = scene.told(Limits::default(), &window(&scene.one, 0, 1, 1));
    let why = "cpuset: node 1 is beyond the nodes of its cpuset (0)";
    assert_eq!(told.unwrap_err(), why);
}

#[test]
fn a_full_node_is_spared_and_what_is_under_way_counts() {
    let mut scene = scene();
    // 1024 MiB, of which 5 % are kept free: 51 MiB.
    scene.seen.nodes[1].free_bytes = 60 * MIB;
    let order = |first: u64, mib: u64| window(&scene.one, first, mib * MIB_PAGES, 1);
    let told = scene.told(Limits::default(), &order(0, 10));
    let why = "full node: node 1 has 60 MiB free, of which 51 MiB are kept free, and 10 MiB would \
               come";
    assert_eq!(told.unwrap_err(), why);
    let mut governor = scene.governor(Limits::default());
    let governed = governor.govern(&[order(0, 5), order(100_000, 5)]);
    assert_eq!(governed.orders.len(), 1);
    assert_eq!(governed.refusals[0].guard, Guard::FullNode);
}

#[test]
fn pages_ordered_to_two_nodes_at_once_go_to_the_first() {
    let scene = scene();
    let mut governor = scene.governor(Limits::default());
    let plan = [
        window(&scene.one, 0, 100, 1),
        window(&scene.one, 99, 100, 0),
        window(&scene.one, 50, 100, 1),
        window(&scene.one, 0, 100, 1),
    ];
    let governed = governor.govern(&plan);
    assert_eq!(governed.orders, [plan[0].clone(), plan[2].clone()]);
    let guards: Vec<_> = governed
        .refusals
        .iter()
        .map(|r| (r.entry, r.guard))
        .collect();
    assert_eq!(
        guards,
        [(Some(1), Guard::Duplicate), (Some(3), Guard::Duplicate)]
    );
}

#[test]
fn traffic_of_a_process_is_limited_and_what_was_not_moved_does_not_count() {
    let scene = scene();
    let limits = Limits {
        process_pages_mib_per_s: 100.0,
        pages_burst_ms: 100,
        ..Limits::default()
    };
    let mut governor = scene.governor(limits);
    let first = window(&scene.one, 0, 10 * MIB_PAGES, 1);
    let second = window(&scene.one, 100_000, 10 * MIB_PAGES, 1);
    let governed = governor.govern(&[first.clone(), second.clone()]);
    assert_eq!(governed.orders, std::slice::from_ref(&first));
    assert_eq!(governed.refusals[0].guard, Guard::Bandwidth);
    // The other process has a budget of its own.
    let other = window(&thread(2, 2, 0, &scene.topology), 0, MIB_PAGES, 1);
    assert_eq!(
        governor.govern(std::slice::from_ref(&other)).orders,
        [other]
    );
    // Nothing of it moved: the budget is there again.
    governor.carried_out(std::slice::from_ref(&first), &[moved(&first, 0)]);
    assert_eq!(
        governor.govern(std::slice::from_ref(&second)).orders,
        std::slice::from_ref(&second)
    );
    governor.carried_out(
        std::slice::from_ref(&second),
        &[moved(&second, 10 * MIB_PAGES)],
    );
    assert!(
        governor
            .govern(std::slice::from_ref(&first))
            .orders
            .is_empty()
    );
    governor.advance(1_200_000_000);
    assert_eq!(
        governor.govern(std::slice::from_ref(&first)).orders,
        [first]
    );
}

#[test]
fn an_order_for_all_pages_waits_for_its_turn() {
    let mut scene = scene();
    for process in &mut scene.seen.processes {
        process.residency = Some(Residency {
            pages: vec![(NodeId(0), 200 * MIB_PAGES)],
            kinds: None,
        });
    }
    let limits = Limits {
        pages_mib_per_s: 100.0,
        pages_burst_ms: 100,
        ..Limits::default()
    };
    let mut governor = scene.governor(limits);
    let two = thread(2, 2, 0, &scene.topology);
    let (first, second) = (all_pages(&scene.one, 1), all_pages(&two, 1));
    let governed = governor.govern(&[first.clone(), second]);
    assert_eq!(governed.orders, std::slice::from_ref(&first));
    assert_eq!(governed.waiting, [1]);
    assert!(governed.refusals.is_empty());
    governor.carried_out(
        std::slice::from_ref(&first),
        &[moved(&first, 200 * MIB_PAGES)],
    );

    // A later order for the same pages takes its place.
    let later = all_pages(&two, 0);
    let governed = governor.govern(std::slice::from_ref(&later));
    assert_eq!(governed.waiting, [0]);
    assert_eq!(governed.refusals[0].guard, Guard::Superseded);
    assert_eq!(governed.refusals[0].entry, None);

    // 200 MiB were moved at 100 MiB/s: the debt is paid 2 s later, burst aside.
    governor.advance(2_800_000_000);
    assert!(governor.govern(&[]).orders.is_empty());
    governor.advance(3_000_000_000);
    assert_eq!(governor.govern(&[]).orders, [later]);
    assert!(governor.govern(&[]).orders.is_empty(), "once");
}

/// All processes have 300 MiB on node 0, of which 100 are shared with others.
fn who_share() -> Scene {
    let mut scene = scene();
    for process in &mut scene.seen.processes {
        process.residency = Some(Residency {
            pages: vec![(NodeId(0), 300 * MIB_PAGES)],
            kinds: Some(MemoryKinds {
                shared: Mapped {
                    pages: vec![(NodeId(0), 100 * MIB_PAGES)],
                    again: true,
                    ..Mapped::default()
                },
                file: Mapped::default(),
            }),
        });
    }
    scene
}

fn of_kind(thread: &Thread, kind: MemoryKind, first: u64, to: u32) -> PageOrder {
    let part = Part {
        first,
        count: 1,
        of: 4,
    };
    PageOrder {
        pages: Pages::OfKind { kind, part },
        ..all_pages(thread, to)
    }
}

#[test]
fn an_order_for_a_kind_is_as_large_as_its_part_and_waits_beside_the_others() {
    let scene = who_share();
    let limits = Limits {
        pages_mib_per_s: 100.0,
        pages_burst_ms: 100,
        ..Limits::default()
    };
    let mut governor = scene.governor(limits);
    let shared = |first, to| of_kind(&scene.one, MemoryKind::Shared, first, to);
    let (first, second) = (shared(0, 1), shared(1, 1));
    let governed = governor.govern(&[first.clone(), second]);
    assert_eq!(governor.pages_in(&governed.orders), 25 * MIB_PAGES);
    assert_eq!(governed.orders, [first]);
    assert_eq!(governed.waiting, [1]);
    // Other pages of the same process: nobody's place is taken.
    let governed = governor.govern(&[shared(2, 1)]);
    assert_eq!((governed.waiting, governed.refusals.len()), (vec![0], 0));
    // The same pages elsewhere.
    let governed = governor.govern(&[shared(1, 0)]);
    assert_eq!(governed.refusals[0].guard, Guard::Superseded);
    let private = of_kind(&scene.one, MemoryKind::Private, 0, 1);
    assert_eq!(governor.pages_in(&[private]), 50 * MIB_PAGES);
}

#[test]
fn shared_memory_stays_where_one_who_may_have_it_forbids_that() {
    let refused_by = |change: &dyn Fn(&mut Process), kind| {
        let mut scene = who_share();
        let other = scene.seen.processes.last_mut().unwrap();
        assert_ne!(other.id, scene.one.process);
        change(other);
        let governed = scene
            .governor(Limits::default())
            .govern(&[of_kind(&scene.one, kind, 0, 1)]);
        governed.refusals.first().map(|refusal| refusal.guard)
    };
    let policy = |process: &mut Process| process.memory_policy = Some("bind:0".into());
    let cpuset = |process: &mut Process| {
        process.allowed_nodes = Arc::new("0".parse().unwrap());
    };
    let (shared, private) = (MemoryKind::Shared, MemoryKind::Private);
    assert_eq!(refused_by(&policy, shared), Some(Guard::HandsOff));
    assert_eq!(refused_by(&cpuset, shared), Some(Guard::Cpuset));
    assert_eq!(refused_by(&policy, private), None);
    let alone = |process: &mut Process| {
        policy(process);
        let residency = process.residency.as_mut().unwrap();
        residency.kinds.as_mut().unwrap().shared.again = false;
    };
    assert_eq!(
        refused_by(&alone, shared),
        None,
        "nobody else has what it shares"
    );
}

#[test]
fn pages_that_go_to_and_fro_are_frozen_and_their_neighbours_are_not() {
    let scene = scene();
    let mut governor = scene.governor(Limits::default());
    let (mut at, mut times) = (0, 0);
    for round in 0..20 {
        governor.advance(1_000_000_000 + round * 100_000_000);
        let to = u32::from(round % 2 == 0);
        let order = window(&scene.one, 0, 2048, to);
        for order in &governor.govern(&[order]).orders {
            let pages = if at == to { 0 } else { 2048 };
            governor.carried_out(std::slice::from_ref(order), &[moved(order, pages)]);
            times += u32::from(at != to);
            at = to;
        }
    }
    assert_eq!(times, 6, "there, and five times to and fro");
    let neighbour = window(&scene.one, 4096, 2048, 1);
    assert_eq!(
        governor.govern(std::slice::from_ref(&neighbour)).orders,
        [neighbour]
    );
}

#[test]
fn single_pages_side_by_side_that_go_to_different_nodes_do_not_bounce() {
    let scene = scene();
    let mut governor = scene.governor(Limits::default());
    for page in 0..100 {
        let order = window(&scene.one, page, 1, page as u32 % 2);
        let governed = governor.govern(std::slice::from_ref(&order));
        assert_eq!(governed.refusals, [], "page {page}");
        governor.carried_out(&governed.orders, &[moved(&order, 1)]);
    }
    // A page that does is frozen by itself. It is on node 1 by now.
    let (mut at, mut went) = (1, 0);
    for round in 0..20u32 {
        let order = window(&scene.one, 7, 1, round % 2);
        let governed = governor.govern(std::slice::from_ref(&order));
        if !governed.orders.is_empty() && at != order.to.0 {
            governor.carried_out(&governed.orders, &[moved(&order, 1)]);
            (at, went) = (order.to.0, went + 1);
        }
    }
    assert_eq!(went, 5);
    let neighbour = window(&scene.one, 8, 1, 1);
    assert!(governor.govern(&[neighbour]).refusals.is_empty());
}

#[test]
fn an_order_for_no_pages_is_refused() {
    let scene = scene();
    let told = scene.told(Limits::default(), &window(&scene.one, 0, 0, 1));
    assert_eq!(told.unwrap_err(), "unchanged: it names no pages");
}

#[test]
fn a_virtual_machine_has_a_bandwidth_of_its_own() {
    let scene = scene();
    let limits = Limits {
        vm_pages_mib_per_s: 100.0,
        pages_burst_ms: 100,
        ..Limits::default()
    };
    let mut governor = scene.governor(limits);
    let mut send = |seen: &Snapshot, at: u64, mib: u64| {
        governor.see(Arc::new(seen.clone()));
        let order = window(&scene.one, at * MIB_PAGES, mib * MIB_PAGES, 1);
        let governed = governor.govern(&[order]);
        governed.refusals.first().map(|r| (r.guard, r.why.clone()))
    };
    let mut guest = scene.seen.clone();
    assert_eq!(send(&guest, 0, 10), None, "a process like any other");
    guest.processes[0].machine = Some(virtual_machine("guest-a", std::slice::from_ref(&scene.one)));
    guest.time_ns += 1_000_000_000;
    assert_eq!(send(&guest, 100, 10), None);
    let (guard, why) = send(&guest, 200, 1).unwrap();
    assert_eq!(guard, Guard::VmBandwidth);
    assert_eq!(
        why,
        "page moves of one virtual machine are limited to 100 MiB/s, and it is of guest-a"
    );
    guest.time_ns += 10_000_000;
    assert_eq!(send(&guest, 200, 1), None, "a MiB in 10 ms");
}
