//! Memory that a process's credit does not pay for at once, which follows in portions.

use numaherd_topology::NodeId;
use numaherd_world::{Mapped, MemoryKinds};

use super::*;
use crate::losses::Estimate;

const PAGES: u64 = 100_000;

/// A thread on node 3, whose memory is on node 0 but for a part that is beside it. It reads as fast as that lets it.
fn far(beside: u64, remote_ns: f64) -> Scene {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, PAGES);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), PAGES - beside), (NodeId(3), beside)],
        kinds: None,
    });
    let thread = &mut scene.snapshot.threads[0];
    thread.cpuset = Arc::new([CpuId(6), CpuId(7)].into_iter().collect());
    let local = beside as f64 / PAGES as f64;
    let latency_ns = 100.0 * local + remote_ns * (1.0 - local);
    let counts = thread.counts.as_mut().unwrap();
    let instructions = 100e6 / (1000.0 + 100.0 * latency_ns) * 1000.0;
    counts.instructions = instructions as u64;
    counts.lines = (instructions / 10.0) as u64;
    counts.local = Some((counts.lines as f64 * local) as u64);
    counts.remote = Some(counts.lines - counts.local.unwrap());
    counts.uncore_busy_cycles = Some((counts.lines as f64 * latency_ns) as u64);
    counts.uncore_requests = Some(counts.lines);
    scene
}

/// The portions that are ordered, to which nodes, while each goes where it is ordered, and memory on node 0 takes so long
/// once some has moved.
fn ordered(remote_ns: f64, looks: u64) -> Vec<(u64, u64, u32)> {
    let (mut adaptive, mut scene) = (adaptive(), far(0, 200.0));
    let mut all = Vec::new();
    let mut is_beside = [false; PORTIONS as usize];
    for look in 1..=looks {
        let plan = adaptive.place(
            &scene.snapshot,
            &scene.topology,
            &mut Random::seed_from_u64(1),
        );
        let orders = adaptive.pages(&scene.snapshot);
        let assigned = scene.snapshot.threads[0].assigned;
        for order in orders {
            let Pages::OfKind { part, .. } = order.pages else {
                panic!("{:?}", order.pages);
            };
            assert_eq!(part.of, PORTIONS);
            let portions = part.first..part.first + part.count;
            all.push((part.first, part.count, order.to.0));
            (portions.clone()).for_each(|at| is_beside[at as usize] = order.to.0 == 3);
        }
        let beside = is_beside.iter().filter(|beside| **beside).count() as u64;
        let remote_ns = if beside == 0 { 200.0 } else { remote_ns };
        scene = far(beside * PAGES / PORTIONS, remote_ns);
        scene.snapshot.threads[0].assigned = assigned;
        scene.carry_out(&plan);
        scene.snapshot.time_ns += look * scene.snapshot.interval_ns;
    }
    all
}

#[test]
fn one_portion_after_the_other_follows_while_each_gains() {
    let ordered = ordered(200.0, 300);
    assert!(ordered.len() > 1, "{ordered:?}");
    // 100,000 pages cost 300 ms: 21 portions of 64 are within the first 100 ms.
    assert!((15..30).contains(&ordered[0].1), "{ordered:?}");
    let mut next = 0;
    for (first, count, to) in ordered {
        assert_eq!((first, to), (next, 3));
        next += count;
    }
    // What is left is not worth a move once less than the least is gained by it.
    assert!(next > PORTIONS * 3 / 4 && next <= PORTIONS, "{next}");
}

#[test]
fn a_portion_that_did_not_gain_goes_back_and_is_the_first_again() {
    let ordered = ordered(600.0, 300);
    let [there, back, again, ..] = &*ordered else {
        panic!("{ordered:?}");
    };
    assert_eq!((there.0, there.2), (0, 3));
    assert_eq!(*back, (0, there.1, 0));
    assert_eq!((again.0, again.2), (0, 3));
}

/// Memory of a virtual machine of 384 MiB: a twentieth of its pages is of QEMU and its libraries.
#[test]
fn files_that_others_map_neither_cost_anything_nor_keep_a_process_whole() {
    let programs = PAGES / 16;
    let owner = |alone: u64| {
        let mut scene = far(0, 200.0);
        let on = |pages| vec![(NodeId(0), pages)];
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: on(PAGES),
            kinds: Some(MemoryKinds {
                shared: Mapped::default(),
                file: Mapped {
                    pages: on(programs),
                    again: true,
                    alone: on(alone),
                    programs,
                },
            }),
        });
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let picture = Estimator::default().observe(&stage);
        let cost = picture.to_move(0, &[CpuId(6)]);
        (cost as u64, picture.processes[0].has_portions)
    };
    assert_eq!(owner(0), (PAGES - programs, true));
    // A file of its own moves, and would not follow in portions of private memory.
    assert_eq!(owner(programs), (PAGES, false));
}

#[test]
fn the_program_of_a_small_process_is_no_data_that_it_has_in_common() {
    let common = |programs: u64| {
        let mut scene = far(0, 200.0);
        let on = |pages| vec![(NodeId(0), pages)];
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: on(1000),
            kinds: Some(MemoryKinds {
                file: Mapped {
                    pages: on(600),
                    again: true,
                    programs,
                    ..Mapped::default()
                },
                ..MemoryKinds::default()
            }),
        });
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let picture = Estimator::default().observe(&stage);
        let owner = &picture.processes[0];
        let sum = |pages: &[u64]| pages.iter().sum::<u64>();
        (sum(&owner.common), sum(&owner.pages))
    };
    assert_eq!(common(0), (600, 400));
    assert_eq!(common(600), (0, 400));
}

/// A file of the process alone would not follow in portions, so all of its memory waits.
#[test]
fn memory_that_follows_whole_could_be_had_before_and_follows_once_credit_pays() {
    let (mut adaptive, mut scene) = (adaptive(), far(0, 200.0));
    let on = |pages| vec![(NodeId(0), pages)];
    let file = Mapped {
        pages: on(PAGES / 16),
        again: true,
        alone: on(PAGES / 16),
        programs: 0,
    };
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: on(PAGES),
        kinds: Some(MemoryKinds {
            shared: Mapped::default(),
            file,
        }),
    });
    // It begins to search with the second look at threads.
    let mut looks = 1;
    assert!(look(&mut adaptive, &mut scene, 1).is_empty());
    while look(&mut adaptive, &mut scene, 1).is_empty() {
        looks += 1;
        let losses = adaptive.losses().expect("an interval has passed");
        let Estimate::Known(known) = losses.estimate else {
            panic!("{losses:?}");
        };
        let had = known.recoverable.and_then(|cores| cores.mean);
        assert!(had.is_some_and(|cores| cores > 0.3), "{looks}: {had:?}");
        assert_eq!(losses.withheld, Some(Withheld::Credit), "{looks}");
    }
    // 100,000 pages cost 300 ms: 100 ms are there at first, and each look adds 1 ms.
    assert!((198..=202).contains(&looks), "{looks}");
}

/// Two threads on two nodes, with so many lines per 1000 instructions, far from memory that they do not have credit for
/// as a whole.
fn apart(lines: f64) -> Scene {
    let mut scene = scene();
    two_threads_far_from_their_memory(&mut scene, lines);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), PAGES)],
        kinds: None,
    });
    scene
}

/// The pages that may follow their use, of the one process that has a ration.
fn ration(adaptive: &Staged<Adaptive>) -> u64 {
    match *adaptive.rations() {
        [(process, pages)] if process == Scene::process(1) => pages,
        ref rations => panic!("{rations:?}"),
    }
}

/// The rules of the first look at which anything is done, and the ration then.
fn first_ration(adaptive: &mut Staged<Adaptive>, scene: &mut Scene) -> (Vec<String>, u64) {
    let mut looks = (0..40).map(|_| look(adaptive, scene, 1));
    let rules = looks.find(|rules| !rules.is_empty()).unwrap_or_default();
    (rules, ration(adaptive))
}

/// Both threads run so many times as fast, and half of what they read is local.
fn half_followed(scene: &mut Scene, times: f64) {
    for thread in &mut scene.snapshot.threads[..2] {
        let counts = thread.counts.as_mut().unwrap();
        counts.instructions = (counts.instructions as f64 * times) as u64;
        counts.lines = (counts.lines as f64 * times) as u64;
        (counts.local, counts.remote) = (Some(counts.lines / 2), Some(counts.lines / 2));
        counts.uncore_requests = Some(counts.lines);
    }
}

#[test]
fn memory_on_several_nodes_follows_its_use_by_rations() {
    let (mut adaptive, mut scene) = (adaptive(), apart(100.0));
    let (rules, first) = first_ration(&mut adaptive, &mut scene);
    assert_eq!(rules, ["adaptive: hold"; 2]);
    // As with one node: 21 of 64 portions.
    assert!((PAGES / 4..PAGES / 2).contains(&first), "{first}");
    // Both are faster since: what it cost is paid back, and pays for more.
    half_followed(&mut scene, 1.25);
    look(&mut adaptive, &mut scene, 100);
    let then = adaptive.rations();
    assert!(then.is_empty() || then[0].1 > first, "{then:?}");
}

/// What is left gains enough, and less than four times as much: the first ration decided for good.
#[test]
fn only_the_first_ration_must_gain_four_times_as_much() {
    let (mut adaptive, mut scene) = (adaptive(), apart(12.0));
    let (_, first) = first_ration(&mut adaptive, &mut scene);
    half_followed(&mut scene, 1.02);
    for (number, cpu) in (2..).zip([1, 4]) {
        program(&mut scene, number, cpu, 0.0, 100);
    }
    look(&mut adaptive, &mut scene, 100);
    let then = adaptive.rations();
    assert!(then.is_empty() || then[0].1 > first, "{then:?} {first}");
}
