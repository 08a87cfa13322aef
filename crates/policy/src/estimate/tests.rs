use numaherd_testing::Scene;
use numaherd_topology::NodeId;
use numaherd_world::{Counts, Residency};
use proptest::prelude::*;

use super::*;
use crate::placement::adaptive::tests::{program, scene};

/// What a thread is counted to do per 1000 instructions: its lines from memory, the share of them that is local, its
/// requests, and ns without waiting.
type Counted = (f64, f64, f64, f64);

/// So few lines that no controller is full by any draw.
fn counted() -> impl Strategy<Value = Counted> {
    (1.0..10.0, 0.0..1.0, 1.0..4.0, 1000.0..4000.0)
        .prop_map(|(lines, local, more, ns)| (lines, local, lines * more, ns))
}

/// Counts of 100 ms with so many lines in flight.
fn counts((lines, local, requests, ns): Counted, in_flight: f64) -> Counts {
    let latency = 100.0 * local + 167.0 * (1.0 - local);
    let busy_ns = (lines * latency + (requests - lines) * 20.0) / in_flight;
    let instructions = 100e6 / (ns + busy_ns) * 1000.0;
    let of = |per_1000: f64| (instructions * per_1000 / 1000.0) as u64;
    Counts {
        instructions: instructions as u64,
        cycles: Some(100_000_000),
        lines: of(lines),
        local: Some(of(lines * local)),
        remote: Some(of(lines * (1.0 - local))),
        uncore_busy_cycles: Some(of(busy_ns)),
        uncore_requests: Some(of(requests)),
        counted_share: 1.0,
    }
}

/// Threads of one process on the first CPUs; its memory is on all nodes.
fn threads_of_one(threads: &[Counted], in_flight: f64) -> Scene {
    let mut scene = scene();
    for (number, &counted) in (0..).zip(threads) {
        program(&mut scene, number + 1, number, 10.0, 0);
        let thread = scene.snapshot.threads.last_mut().unwrap();
        thread.process = Scene::process(1);
        thread.counts = Some(counts(counted, in_flight));
    }
    scene.snapshot.processes.truncate(1);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: (0..4).map(|node| (NodeId(node), 20_000)).collect(),
        kinds: None,
    });
    scene
}

fn observed(scene: &Scene) -> Picture {
    Estimator::default().observe(&Stage::of_all(&scene.snapshot, &scene.topology))
}

proptest! {
    /// Whichever threads share a cache, and whatever each brings in: each is as fast as it was.
    #[test]
    fn where_threads_are_each_draw_gives_the_measured_speeds(
        threads in prop::collection::vec(counted(), 8),
        in_flight in 2.0..5.0,
    ) {
        let picture = observed(&threads_of_one(&threads, in_flight));
        let stays = vec![Memory::default(); picture.processes.len()];
        for draw in 0..DRAWS {
            let solved = picture.solve(draw, &picture.now(), &stays);
            for (at, &of) in solved.speeds.iter().enumerate() {
                let (given, measured) = (solved.solution.speeds[of].ns, picture.threads[at].ns());
                prop_assert!((given / measured - 1.0).abs() < 0.05, "{draw} {at}: {given} of {measured}");
            }
        }
    }
}

#[test]
fn threads_too_idle_to_be_placed_are_judged_by_what_is_counted_of_them() {
    let mut scene = threads_of_one(&[(5.0, 0.5, 10.0, 1000.0); 4], 1.0);
    for thread in &mut scene.snapshot.threads {
        thread.cpu_share = 0.6;
    }
    let mut stage = Stage::of_all(&scene.snapshot, &scene.topology);
    stage.pools.iter_mut().for_each(|pool| pool.busy.clear());
    let picture = Estimator::default().observe(&stage);
    assert_eq!(picture.from, Basis::Uncore);
    assert!(picture.threads.iter().all(|load| !load.is_free));
}

#[test]
fn how_far_memory_is_is_not_learned_of_what_cannot_be() {
    let learned = |cpu_share: f64, each_ns: u64, looks: usize| {
        let mut scene = scene();
        program(&mut scene, 1, 0, 100.0, 400);
        let thread = &mut scene.snapshot.threads[0];
        thread.cpu_share = cpu_share;
        // Two lines per 1000 instructions in 11 us.
        let counts = thread.counts.as_mut().unwrap();
        counts.lines /= 50;
        (counts.local, counts.uncore_requests) = (Some(counts.lines), Some(counts.lines));
        counts.uncore_busy_cycles = Some(counts.lines * each_ns);
        let mut estimator = Estimator::default();
        for _ in 0..looks {
            scene.snapshot.time_ns += scene.snapshot.interval_ns;
            estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        }
        estimator.local_ns.round()
    };
    assert_eq!(learned(1.0, 120, 2), 120.0);
    assert_eq!(learned(1.0, 120, 1), 70.0, "its pages were made");
    assert_eq!(learned(1.0, 5_000, 2), 200.0, "waits are not distance");
    assert_eq!(learned(0.05, 120, 2), 70.0, "it hardly ran");
}

#[test]
fn who_brings_in_more_lines_has_more_of_the_cache() {
    let picture = observed(&threads_of_one(
        &[(30.0, 1.0, 30.0, 1000.0), (10.0, 1.0, 10.0, 1000.0)],
        1.0,
    ));
    let held: Vec<f64> = picture.threads.iter().map(|load| load.held).collect();
    assert!((held[0] + held[1] - f64::from(2 << 20)).abs() < 1.0);
    // 30 lines in 4000 ns beside 10 in 2000 ns.
    assert!((held[0] / held[1] - 1.5).abs() < 0.01, "{held:?}");
}

/// In each pair on a node, one thread has half of what it reads beside it and the other has not. What all share is on
/// the first node. It is not known where the other threads' own memory is.
#[test]
fn a_thread_whose_memory_is_somewhere_else_may_gain_nothing_elsewhere() {
    let counted = |at: usize| match at % 2 {
        0 => (20.0, 0.5, 20.0, 1000.0),
        _ => (20.0, 0.02, 20.0, 1000.0),
    };
    let mut scene = threads_of_one(&(0..8).map(counted).collect::<Vec<_>>(), 1.0);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: [(0, 50_000), (1, 5000), (2, 5000), (3, 5000)]
            .map(|(node, pages)| (NodeId(node), pages))
            .to_vec(),
        kinds: None,
    });
    let picture = observed(&scene);
    // The fourth changes places with the first.
    let mut cpus = picture.now();
    cpus.swap(0, 3);
    let stays = vec![Memory::default(); 1];
    let (now, then) = (picture.lost_now(), picture.lost(&cpus, &stays));
    assert!(then[0] < now[0], "as the pages are: {then:?} of {now:?}");
    assert!(then[1] > now[1], "evenly: {then:?} of {now:?}");
}

/// Where the lines of the first thread come from, after another interval.
fn memory_of_the_first(estimator: &mut Estimator, scene: &Scene) -> Vec<(usize, f64)> {
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    estimator.observe(&stage).threads.remove(0).memory
}

#[test]
fn the_memory_of_a_thread_that_was_moved_stays_where_it_was_seen() {
    let mut scene = scene();
    program(&mut scene, 1, 0, 100.0, 4000);
    let mut estimator = Estimator::default();
    let mut memory = |scene: &Scene| memory_of_the_first(&mut estimator, scene);
    assert_eq!(memory(&scene), [(0, 1.0)]);
    // All of the interval but its end was on node 0.
    scene.snapshot.threads[0].cpu = CpuId(6);
    assert_eq!(memory(&scene), [(0, 1.0)]);
    // What is counted from now on is of where it is.
    assert_eq!(memory(&scene), [(3, 1.0)]);
}

#[test]
fn where_the_memory_of_a_moved_thread_is_stays_known_while_as_much_is_local_as_that_says() {
    let mut scene = scene();
    program(&mut scene, 1, 0, 100.0, 4000);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), 4000), (NodeId(1), 4000)],
        kinds: None,
    });
    let mut estimator = Estimator::default();
    let mut memory = |scene: &Scene| memory_of_the_first(&mut estimator, scene);
    assert_eq!(memory(&scene), [(0, 1.0)]);
    scene.snapshot.threads[0].cpu = CpuId(6);
    let mut local = |scene: &mut Scene, lines: u64| {
        let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
        (counts.local, counts.remote) = (Some(lines), Some(counts.lines - lines));
        memory(scene)
    };
    for _ in 0..3 {
        assert_eq!(local(&mut scene, 0), [(0, 1.0)]);
    }
    // Half of it has followed: where the rest is, its process's pages say.
    let half = scene.snapshot.threads[0].counts.unwrap().lines / 2;
    assert_eq!(local(&mut scene, half), [(0, 0.25), (1, 0.25), (3, 0.5)]);
}
