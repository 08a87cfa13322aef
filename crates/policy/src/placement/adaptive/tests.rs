mod by_use;
mod common;
mod dealt;
mod home;
mod looks;
mod others;
mod phases;
mod portions;
pub(crate) mod sharing;
mod uncounted;

use std::sync::Arc;

use numaherd_testing::Scene;
use numaherd_topology::CpuId;
use numaherd_world::{Counts, Mapped, MemoryKind, MemoryKinds, Pages, Part, Process, Residency};
use proptest::prelude::*;
use rand::SeedableRng;

use super::*;
use crate::estimate::{Memory, PORTIONS};
use crate::policy::Place;
use crate::stage::Staged;

/// A machine of four nodes with two cores each, whose caches have 2 MiB.
pub(crate) fn scene() -> Scene {
    let mut scene = Scene::uniform(4, 2);
    scene.snapshot.interval_ns = 100_000_000;
    scene.snapshot.time_ns = 100_000_000;
    scene.snapshot.nodes = numaherd_testing::snapshot(&scene.topology, 0.1, &[]).nodes;
    scene
}

/// A thread of a process of its own, with so many lines per 1000 instructions, one in flight, all local, and so
/// many pages on the node that it runs on.
pub(crate) fn program(scene: &mut Scene, number: u32, cpu: u32, lines: f64, pages: u64) {
    scene.home(number, "program", cpu / 2);
    let id = Scene::process(number);
    let node = numaherd_topology::NodeId(cpu / 2);
    let process: &mut Process = (scene.snapshot.processes.iter_mut())
        .find(|process| process.id == id)
        .unwrap();
    process.residency = Some(Residency {
        pages: vec![(node, pages)],
        kinds: None,
    });
    let thread = scene.thread(number, lines, cpu);
    // 100 ns a line and 1 ns an instruction.
    let ns = 1000.0 + lines * 100.0;
    let instructions = 100e6 / ns * 1000.0;
    let fetched = (instructions * lines / 1000.0) as u64;
    thread.counts = Some(Counts {
        instructions: instructions as u64,
        cycles: Some(100_000_000),
        lines: fetched,
        local: Some(fetched),
        remote: Some(0),
        uncore_busy_cycles: Some((fetched as f64 * 100.0) as u64),
        uncore_requests: Some(fetched),
        counted_share: 1.0,
    });
}

/// Half as much in the same time.
fn slower(counts: &mut Counts) {
    counts.instructions /= 2;
    counts.lines /= 2;
    for count in [
        &mut counts.local,
        &mut counts.remote,
        &mut counts.uncore_requests,
    ] {
        *count = count.map(|count| count / 2);
    }
}

pub(super) fn adaptive() -> Staged<Adaptive> {
    let settings = Settings::default();
    Staged::new(&settings, Adaptive::new(&settings))
}

/// Looks as often as that, 100 ms each, and carries out what is decided.
fn look(adaptive: &mut Staged<Adaptive>, scene: &mut Scene, times: usize) -> Vec<String> {
    let mut rules = Vec::new();
    for _ in 0..times {
        let plan = adaptive.place(
            &scene.snapshot,
            &scene.topology,
            &mut Random::seed_from_u64(1),
        );
        rules.extend(plan.iter().map(|p| p.rule.to_string()));
        rules.extend(
            adaptive
                .pages(&scene.snapshot)
                .iter()
                .map(|p| p.rule.to_string()),
        );
        scene.carry_out(&plan);
        for released in adaptive.release(&scene.snapshot) {
            let threads = &mut scene.snapshot.threads;
            let thread = threads
                .iter_mut()
                .find(|thread| thread.id == released.thread);
            thread.unwrap().assigned = None;
        }
        for thread in &mut scene.snapshot.threads {
            thread.cpu = thread.place();
        }
        scene.snapshot.time_ns += scene.snapshot.interval_ns;
    }
    rules
}

#[test]
fn chases_that_press_on_one_cache_are_parted() {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1), (3, 4), (4, 5)] {
        program(&mut scene, number, cpu, 100.0, 400);
    }
    for (number, cpu) in [(5, 2), (6, 3), (7, 6), (8, 7)] {
        program(&mut scene, number, cpu, 0.0, 100);
    }
    let mut adaptive = adaptive();
    let rules = look(&mut adaptive, &mut scene, 1);
    assert_eq!(rules, Vec::<String>::new(), "nothing was counted before");
    while look(&mut adaptive, &mut scene, 1).is_empty() {}
    let mut nodes: Vec<u32> = scene.places()[..4].iter().map(|cpu| cpu / 2).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, [0, 1, 2, 3]);
}

#[test]
fn threads_that_do_not_wait_for_memory_are_left_alone() {
    let mut scene = scene();
    for number in 1..9 {
        program(&mut scene, number, number - 1, 0.01, 100);
    }
    assert_eq!(look(&mut adaptive(), &mut scene, 20), Vec::<String>::new());
}

/// A program with two threads that may run on different nodes, whose memory is all on a third.
fn two_threads_far_from_their_memory(scene: &mut Scene, lines: f64) {
    program(scene, 1, 2, lines, 4000);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(0), 4000)],
        kinds: None,
    });
    let mut other = scene.snapshot.threads[0].clone();
    other.id.tid += 1;
    scene.snapshot.threads.push(other);
    for (thread, cpu) in scene.snapshot.threads.iter_mut().zip([2, 6]) {
        thread.cpu = CpuId(cpu);
        thread.cpuset = Arc::new([CpuId(cpu), CpuId(cpu + 1)].into_iter().collect());
        let counts = thread.counts.as_mut().unwrap();
        (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    }
}

#[test]
fn threads_on_two_nodes_are_held_so_that_their_memory_can_follow_as_it_is_used() {
    let mut scene = scene();
    two_threads_far_from_their_memory(&mut scene, 100.0);
    let rules = look(&mut adaptive(), &mut scene, 3);
    let dealt = ["adaptive: memory dealt"; 2];
    assert_eq!(rules, [["adaptive: hold"; 2], dealt].concat());
}

/// Own memory that follows.
const FOLLOWS: Memory = Memory {
    follows: PORTIONS,
    spreads: false,
};

/// Eight processes, one on each CPU, that read 4000 pages of shared memory on node 0 as fast as its controller lets
/// them, and have 100 pages of their own beside them.
pub(super) fn buffers(mapped_again: bool) -> Scene {
    let mut scene = scene();
    let on = |node: u32| numaherd_topology::NodeId(node);
    for cpu in 0..8 {
        program(&mut scene, cpu + 1, cpu, 100.0, 100);
        let process = scene.snapshot.processes.last_mut().unwrap();
        process.residency = Some(Residency {
            pages: match cpu / 2 {
                0 => vec![(on(0), 4100)],
                node => vec![(on(0), 4000), (on(node), 100)],
            },
            kinds: Some(MemoryKinds {
                shared: Mapped {
                    pages: vec![(on(0), 4000)],
                    again: mapped_again,
                    ..Mapped::default()
                },
                file: Mapped::default(),
            }),
        });
        // Four lines in flight, of 200 ns each.
        let thread = scene.snapshot.threads.last_mut().unwrap();
        let lines = 1_900_000;
        let local = if cpu / 2 == 0 { lines } else { 0 };
        thread.counts = Some(Counts {
            instructions: lines * 10,
            cycles: Some(100_000_000),
            lines,
            local: Some(local),
            remote: Some(lines - local),
            uncore_busy_cycles: Some(95_000_000),
            uncore_requests: Some(lines),
            counted_share: 1.0,
        });
    }
    scene
}

/// The first page orders of some looks.
fn page_orders(scene: &mut Scene) -> Vec<PageOrder> {
    page_orders_of(&mut adaptive(), scene)
}

pub(super) fn page_orders_of(adaptive: &mut Staged<Adaptive>, scene: &mut Scene) -> Vec<PageOrder> {
    for _ in 0..10 {
        let plan = adaptive.place(
            &scene.snapshot,
            &scene.topology,
            &mut Random::seed_from_u64(1),
        );
        scene.carry_out(&plan);
        let orders = adaptive.pages(&scene.snapshot);
        if !orders.is_empty() {
            return orders;
        }
        scene.snapshot.time_ns += scene.snapshot.interval_ns;
    }
    Vec::new()
}

#[test]
fn shared_memory_is_spread_where_one_controller_is_the_bottleneck() {
    let orders = page_orders(&mut buffers(true));
    let of_first: Vec<(Pages, u32)> = (orders.iter())
        .map(|order| (order.pages, order.to.0))
        .collect();
    let part = |first| Pages::OfKind {
        kind: MemoryKind::Shared,
        part: Part {
            first,
            count: 1,
            of: 4,
        },
    };
    let expected = [0, 1, 2, 3].map(|node| (part(u64::from(node)), node));
    assert_eq!(of_first, expected, "by how many threads are on each node");
    let is_spread =
        |order: &PageOrder| order.rule == SPREAD.name && order.process == Scene::process(1);
    assert!(orders.iter().all(is_spread), "by one for all");
}

#[test]
fn shared_memory_that_many_map_is_dear_to_move() {
    let mut scene = buffers(true);
    for process in &mut scene.snapshot.processes {
        let residency = process.residency.as_mut().unwrap();
        residency.pages[0].1 += 4000;
        residency.kinds.as_mut().unwrap().shared.pages[0].1 += 4000;
    }
    // 6000 pages move, at 3 µs for each of 8 processes: more than the 100 ms that each has at first.
    assert_eq!(page_orders(&mut scene), []);
}

#[test]
fn shared_memory_that_no_other_maps_follows_its_process() {
    let orders = page_orders(&mut buffers(false));
    assert!(!orders.is_empty());
    let is_whole = |order: &PageOrder| order.pages == Pages::All && order.rule == FOLLOW.name;
    assert!(orders.iter().all(is_whole), "{orders:?}");
}

#[test]
fn of_processes_with_memory_in_common_the_private_part_alone_follows() {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 4000);
    let on = |node: u32, pages| vec![(numaherd_topology::NodeId(node), pages)];
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: on(0, 5600),
        kinds: Some(MemoryKinds {
            shared: Mapped {
                pages: on(0, 1600),
                again: true,
                ..Mapped::default()
            },
            file: Mapped::default(),
        }),
    });
    let thread = &mut scene.snapshot.threads[0];
    thread.cpuset = Arc::new([CpuId(6), CpuId(7)].into_iter().collect());
    let counts = thread.counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    let orders = page_orders(&mut scene);
    let private = Pages::OfKind {
        kind: MemoryKind::Private,
        part: Part::WHOLE,
    };
    let home: Vec<_> = orders
        .iter()
        .filter(|order| order.rule == FOLLOW.name)
        .collect();
    assert_eq!(home.len(), 1, "{orders:?}");
    assert_eq!((home[0].pages, home[0].to.0), (private, 3));
}

#[test]
fn shared_memory_stays_where_one_who_has_it_has_a_memory_policy() {
    let mut scene = buffers(true);
    scene.snapshot.processes[5].memory_policy = Some("bind:0".into());
    let orders = page_orders(&mut scene);
    let spread = orders.iter().filter(|order| order.rule == SPREAD.name);
    assert_eq!(spread.count(), 0);
}

#[test]
fn memory_of_which_its_user_decided_stays() {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 4000);
    let process = &mut scene.snapshot.processes[0];
    process.memory_policy = Some("bind:0".into());
    process.residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(0), 4000)],
        kinds: None,
    });
    let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    let rules = look(&mut adaptive(), &mut scene, 20);
    assert!(
        !rules.contains(&"adaptive: memory follows".to_owned()),
        "{rules:?}"
    );
}

#[test]
fn what_made_threads_slower_is_undone_and_not_tried_again_at_once() {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1), (3, 4), (4, 5)] {
        program(&mut scene, number, cpu, 100.0, 400);
    }
    let mut adaptive = adaptive();
    let before = scene.places();
    while look(&mut adaptive, &mut scene, 1).is_empty() {}
    assert_ne!(scene.places(), before);
    for thread in &mut scene.snapshot.threads {
        thread.cpu = thread.place();
        slower(thread.counts.as_mut().unwrap());
    }
    let rules = look(&mut adaptive, &mut scene, 6);
    assert!(rules.contains(&"adaptive: undo".to_owned()), "{rules:?}");
    assert_eq!(scene.places(), before);
    assert_eq!(look(&mut adaptive, &mut scene, 20), Vec::<String>::new());
    assert_eq!(withheld(&mut adaptive), Some(Withheld::Resting));
}

#[test]
fn it_tells_what_keeps_it_from_acting_while_something_could_be_had() {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1), (3, 4), (4, 5)] {
        program(&mut scene, number, cpu, 100.0, 400);
    }
    let mut adaptive = adaptive();
    let mut told = Vec::new();
    while look(&mut adaptive, &mut scene, 1).is_empty() {
        told.push(withheld(&mut adaptive));
    }
    assert_eq!(told, [None], "nothing was known to be had yet");
    assert_eq!(withheld(&mut adaptive), None, "it acts");
    look(&mut adaptive, &mut scene, 1);
    assert_eq!(withheld(&mut adaptive), Some(Withheld::Judging));
}

/// What kept it from acting at the last look.
fn withheld(adaptive: &mut Staged<Adaptive>) -> Option<Withheld> {
    adaptive.losses().expect("a long interval").withheld
}

#[test]
fn what_disappointed_twice_is_not_tried_again() {
    let mut scene = scene();
    for number in 1..5 {
        program(&mut scene, number, number * 2 - 2, 50.0, 4000);
        let process = scene.snapshot.processes.last_mut().unwrap();
        process.residency = Some(Residency {
            pages: vec![(numaherd_topology::NodeId(0), 4000)],
            kinds: None,
        });
    }
    for thread in &mut scene.snapshot.threads[1..] {
        let counts = thread.counts.as_mut().unwrap();
        (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    }
    let mut adaptive = adaptive();
    while look(&mut adaptive, &mut scene, 1).is_empty() {}
    // As if remote memory were as near as local: nothing is worth putting back.
    assert_eq!(look(&mut adaptive, &mut scene, 10), Vec::<String>::new());
    let rules = look(&mut adaptive, &mut scene, 2000);
    assert_eq!(rules, vec!["adaptive: memory follows"; 3]);
}

#[test]
fn without_counters_memory_goes_to_a_thread_that_may_not_go_to_it_when_it_has_been_seen_for_ten_seconds()
 {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 4000);
    program(&mut scene, 2, 2, 100.0, 4000);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(0), 4000)],
        kinds: None,
    });
    (scene.snapshot.threads.iter_mut()).for_each(|thread| thread.counts = None);
    scene.snapshot.threads[0].cpuset = Arc::new([6, 7].map(CpuId).into_iter().collect());
    let mut adaptive = adaptive();
    assert_eq!(look(&mut adaptive, &mut scene, 99), Vec::<String>::new());
    let plan = look(&mut adaptive, &mut scene, 2);
    assert_eq!(plan, ["adaptive: hold", "adaptive: memory follows"]);
}

#[test]
fn a_thread_that_no_longer_uses_memory_is_let_go() {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1)] {
        program(&mut scene, number, cpu, 100.0, 400);
    }
    let mut adaptive = adaptive();
    while look(&mut adaptive, &mut scene, 1).is_empty() {}
    for thread in &mut scene.snapshot.threads {
        let counts = thread.counts.as_mut().unwrap();
        counts.instructions *= 10;
        (counts.lines, counts.local, counts.uncore_requests) = (0, Some(0), Some(0));
        counts.uncore_busy_cycles = Some(0);
    }
    look(&mut adaptive, &mut scene, 8);
    let held = |scene: &Scene| {
        scene
            .snapshot
            .threads
            .iter()
            .any(|thread| thread.assigned.is_some())
    };
    assert!(!held(&scene));
}

/// Four threads that hardly wait for memory, on two CPUs.
fn crowded() -> Scene {
    let mut scene = scene();
    for number in 1..5 {
        program(&mut scene, number, number % 2, 0.1, 100);
        let thread = scene.snapshot.threads.last_mut().unwrap();
        (thread.cpu_share, thread.wait_share) = (0.5, 0.5);
    }
    scene
}

#[test]
fn threads_that_the_kernel_will_spread_over_free_cpus_are_left_to_it() {
    let rules = look(&mut adaptive(), &mut crowded(), 20);
    assert_eq!(rules, Vec::<String>::new());
}

/// Whether three threads that are held in a domain of two CPUs still are after a look, with so many others in each domain.
fn are_held_beside(others: [u32; 4]) -> bool {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1), (3, 0)] {
        program(&mut scene, number, cpu, 100.0, 400);
        let thread = scene.snapshot.threads.last_mut().unwrap();
        thread.assigned = Some(CpuId(cpu));
    }
    let cpus = (0..4)
        .zip(others)
        .flat_map(|(domain, others)| (0..others).map(move |at| domain * 2 + at));
    for (number, cpu) in (4..).zip(cpus) {
        program(&mut scene, number, cpu, 0.0, 100);
    }
    look(&mut adaptive(), &mut scene, 1);
    let held = scene
        .snapshot
        .threads
        .iter()
        .filter(|thread| thread.assigned.is_some());
    held.count() == 3
}

#[test]
fn threads_of_which_more_are_held_than_there_are_cpus_are_let_go_once_another_domain_has_one() {
    assert!(are_held_beside([0, 2, 2, 2]));
    assert!(!are_held_beside([0, 2, 2, 1]));
}

/// What is done about a thread that waits for memory, beside one that reads as much while it runs: for that share
/// of the time, so that it is not placed itself.
fn beside_a_part_time_reader(share: f64) -> Vec<String> {
    let mut scene = scene();
    program(&mut scene, 1, 0, 100.0, 400);
    program(&mut scene, 2, 1, 100.0, 400);
    let reader = &mut scene.snapshot.threads[1];
    reader.cpu_share = share;
    let counts = reader.counts.as_mut().unwrap();
    let part = |count: u64| (count as f64 * share) as u64;
    counts.instructions = part(counts.instructions);
    counts.lines = part(counts.lines);
    counts.cycles = counts.cycles.map(part);
    counts.local = counts.local.map(part);
    counts.uncore_busy_cycles = counts.uncore_busy_cycles.map(part);
    counts.uncore_requests = counts.uncore_requests.map(part);
    look(&mut adaptive(), &mut scene, 3)
}

#[test]
fn threads_count_from_a_tenth_of_a_cpu_on() {
    let rules = beside_a_part_time_reader(0.1);
    assert!(
        rules.contains(&"adaptive: fewer lost cores".to_owned()),
        "{rules:?}"
    );
    assert_eq!(beside_a_part_time_reader(0.09), Vec::<String>::new());
}

/// What an interval shows of a thread: how fast it was, its lines, and the share of a CPU it had, all hostile.
fn shown() -> impl Strategy<Value = Vec<(u64, u64, f64)>> {
    let any_count = || prop_oneof![Just(0), Just(u64::MAX), 0u64..2_000_000_000];
    proptest::collection::vec((any_count(), any_count(), 0.0..=1.0f64), 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever counters say, what has been charged for a process and not refunded is at most its budget.
    #[test]
    fn no_process_is_charged_more_than_its_budget(
        intervals in proptest::collection::vec(shown(), 1..12),
    ) {
        let mut scene = scene();
        for cpu in 0..8 {
            program(&mut scene, cpu + 1, cpu, 100.0, 400);
        }
        let settings = AdaptiveSettings::default();
        let mut adaptive = adaptive();
        let mut ran_ns = [0.0; 8];
        for shown in intervals {
            for (at, (instructions, lines, share)) in shown.into_iter().enumerate() {
                let thread = &mut scene.snapshot.threads[at];
                thread.cpu = thread.place();
                thread.cpu_share = share;
                ran_ns[at] += share * scene.snapshot.interval_ns as f64;
                thread.counts = Some(Counts {
                    instructions,
                    lines,
                    cycles: Some(lines),
                    uncore_busy_cycles: Some(instructions),
                    uncore_requests: Some(lines),
                    local: Some(0),
                    remote: Some(lines),
                    counted_share: 1.0,
                });
            }
            look(&mut adaptive, &mut scene, 1);
            for (number, ran_ns) in (1..).zip(&ran_ns) {
                let credit = adaptive.rule.credit.of(Scene::process(number));
                let most = settings.first_credit_ms * 1e6 + ran_ns * settings.loss_budget;
                prop_assert!((0.0..=most + 1.0).contains(&credit), "{credit} of {most}");
            }
        }
    }
}
