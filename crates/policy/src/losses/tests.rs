use numaherd_testing::Scene;
use numaherd_topology::NodeId;
use numaherd_world::{Counts, Residency};
use proptest::prelude::*;
use rand::SeedableRng;

use super::*;
use crate::placement::adaptive::Adaptive;
use crate::placement::adaptive::tests::{program, scene};
use crate::policy::Place;

/// Two pairs of threads that press on one cache each, and four that use none.
fn pairs() -> Scene {
    let mut scene = scene();
    for (number, cpu) in [(1, 0), (2, 1), (3, 4), (4, 5)] {
        program(&mut scene, number, cpu, 100.0, 400);
    }
    for (number, cpu) in [(5, 2), (6, 3), (7, 6), (8, 7)] {
        program(&mut scene, number, cpu, 0.0, 100);
    }
    scene
}

/// A thread with all its memory on another node, not counted.
fn uncounted() -> Scene {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 4000);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), 4000)],
        kinds: None,
    });
    scene.snapshot.threads[0].counts = None;
    scene
}

fn look(scene: &Scene) -> Losses {
    let mut observer = Observer::default();
    (observer.look(&scene.snapshot, &scene.topology, None)).expect("a long interval")
}

fn known(scene: &Scene) -> Known {
    match look(scene).estimate {
        Estimate::Known(known) => known,
        other => panic!("{other:?}"),
    }
}

/// All ranges of draws with these figures, within these bounds, each once.
fn ranges() -> Vec<Range> {
    let figures = [-1.0, 0.0, 0.5, 1.0, 3.0];
    let mut ranges: Vec<Range> = Vec::new();
    for draws in 0..figures.len().pow(4) {
        let draw = |place: u32| figures[draws / figures.len().pow(place) % figures.len()];
        let cores = [0, 1, 2, 3].map(draw);
        for bound in [0.0, 0.75, 2.0] {
            let range = Range::of(&cores, bound);
            assert!(0.0 <= range.least && range.most <= bound, "{range:?}");
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
    }
    ranges
}

fn is_ordered(range: &Range) -> bool {
    let mean = range.mean.unwrap_or(range.least);
    range.least <= mean && mean <= range.most
}

#[test]
fn ranges_stay_ordered_whatever_is_added_to_them_or_bounds_them() {
    let mut ranges = ranges();
    let without_mean = |range: &Range| Range {
        mean: None,
        ..*range
    };
    ranges.extend(ranges.clone().iter().map(without_mean));
    for one in &ranges {
        assert!(is_ordered(one), "{one:?}");
        for other in &ranges {
            let within = one.within(other);
            assert!(is_ordered(&within), "{one:?} within {other:?}");
            assert!(within.least <= other.least && within.most <= other.most);
            for times in [0.0, 0.5, 3.0] {
                // Only those of the same basis are added.
                if one.mean.is_some() == other.mean.is_some() {
                    let mut sum = *one;
                    sum.add(other, times);
                    assert!(is_ordered(&sum), "{one:?} and {times} times {other:?}");
                }
            }
        }
    }
}

#[test]
fn what_threads_lose_that_press_on_one_cache_could_be_had() {
    let known = known(&pairs());
    assert_eq!(known.from, Basis::Uncore);
    // Each of the four waits ten elevenths of its time for lines that a cache of its own would spare it.
    let lost = known.lost.mean.unwrap();
    assert!((1.0..4.0).contains(&lost), "{known:?}");
    let recoverable = known.recoverable.unwrap().mean.unwrap();
    assert!(recoverable > 0.9 * lost, "{known:?}");
}

#[test]
fn what_is_lost_is_shared_out_by_what_it_is_lost_to() {
    let of_pairs = known(&pairs());
    let parts = of_pairs.parts.unwrap();
    assert!((parts.sum() - of_pairs.lost.mean.unwrap()).abs() < 0.01);
    // The lines that they fetch for it wait for each other at the controllers.
    assert!(parts.caches > 0.75 * parts.sum(), "{parts:?}");

    // One thread, all of whose memory is two hops away.
    let mut far = uncounted();
    let mut counted = scene();
    program(&mut counted, 1, 6, 100.0, 4000);
    let counts = counted.snapshot.threads[0].counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), counts.local);
    far.snapshot.threads[0].counts = counted.snapshot.threads[0].counts;
    let parts = known(&far).parts.unwrap();
    assert!(parts.remote > 0.9 * parts.sum(), "{parts:?}");
}

#[test]
fn what_is_lost_is_shared_out_by_process() {
    let scene = pairs();
    let losses = look(&scene);
    let mean = known(&scene).lost.mean.unwrap();
    let processes = losses.processes.unwrap();
    let sum: f64 = processes.iter().map(|process| process.lost).sum();
    assert!((sum - mean).abs() < 0.01, "{processes:?} of {mean}");
    // The four threads that use no cache lose nothing that is worth a line.
    let pressing = scene.snapshot.threads.iter().take(4);
    let pressing: Vec<ProcessId> = pressing.map(|thread| thread.process).collect();
    assert!(
        processes.iter().all(|p| pressing.contains(&p.id)),
        "{processes:?}"
    );
    assert!(look(&uncounted()).processes.is_none());
}

#[test]
fn without_the_uncore_penalty_it_is_by_counters_alone() {
    let mut scene = pairs();
    for thread in &mut scene.snapshot.threads {
        let counts = thread.counts.as_mut().unwrap();
        (counts.uncore_busy_cycles, counts.uncore_requests) = (None, None);
    }
    let without = known(&scene);
    assert_eq!(without.from, Basis::Counters);
    // Each of the four waits ten elevenths of its time, for one line after the other.
    assert_eq!((without.lost.mean, without.recoverable), (None, None));
    assert!((3.0..4.0).contains(&without.lost.most), "{without:?}");
    assert!(without.lost.least <= 4.0 * 10.0 / 11.0, "{without:?}");
}

#[test]
fn without_counters_remote_pages_say_what_is_lost_at_most() {
    let known = known(&uncounted());
    // Memory at a distance of 20 takes at most 1.95 times as long (estimate/beliefs.rs).
    let expected = Known {
        from: Basis::Residency,
        lost: Range {
            least: 0.0,
            mean: None,
            most: 0.487,
        },
        recoverable: None,
        parts: None,
    };
    assert_eq!(known, expected);
}

#[test]
fn what_could_only_be_guessed_is_not_said() {
    let mut scene = uncounted();
    scene.snapshot.processes[0].residency = None;
    let why = |scene: &Scene| look(scene).estimate;
    assert_eq!(why(&scene), Estimate::Unknown(Unknown::NotSeen));

    let mut one_node = Scene::uniform(1, 4);
    one_node.thread(1, 100.0, 0).counts = None;
    assert_eq!(why(&one_node), Estimate::Unknown(Unknown::NotCounted));

    let mut small = Scene::uniform(2, 16);
    for number in 0..30 {
        small.thread(number, 100.0, number).cpu_share = 0.09;
    }
    assert_eq!(why(&small), Estimate::Unknown(Unknown::FewJudged));
}

#[test]
fn at_rest_nothing_is_looked_into() {
    let mut scene = pairs();
    for thread in &mut scene.snapshot.threads {
        thread.cpu_share = 0.001;
    }
    assert_eq!(look(&scene).estimate, Estimate::Idle);
}

#[test]
fn it_looks_once_a_second_and_not_before_counters_have_counted() {
    let mut scene = pairs();
    let mut observer = Observer::default();
    scene.snapshot.interval_ns = 1_000_000;
    let looked = observer.look(&scene.snapshot, &scene.topology, None);
    assert_eq!(looked, None);
    scene.snapshot.interval_ns = 100_000_000;
    let looks = (0..21).filter(|_| {
        let looked = observer.look(&scene.snapshot, &scene.topology, None);
        scene.snapshot.time_ns += 100_000_000;
        looked.is_some()
    });
    assert_eq!(looks.count(), 3);
}

#[test]
fn what_the_policy_found_itself_is_not_found_again() {
    let own = Losses {
        cpus: 8,
        judged: 7.0,
        estimate: Estimate::Idle,
        processes: None,
        withheld: None,
    };
    let scene = pairs();
    let mut observer = Observer::default();
    let looked = observer.look(&scene.snapshot, &scene.topology, Some(own.clone()));
    assert_eq!(looked, Some(own));
}

#[test]
fn adaptive_loses_what_the_observer_sees() {
    let scene = pairs();
    let settings = Settings::default();
    let mut adaptive = Staged::new(&settings, Adaptive::new(&settings));
    let mut random = Random::seed_from_u64(1);
    // It begins to search with the second look at threads.
    for _ in 0..2 {
        adaptive.place(&scene.snapshot, &scene.topology, &mut random);
    }
    let own = adaptive.losses().expect("a long interval");
    let seen = look(&scene);
    let (Estimate::Known(own), Estimate::Known(seen)) = (own.estimate, seen.estimate) else {
        panic!("{own:?}, {seen:?}");
    };
    assert_eq!(own.lost, seen.lost);
    let had = |known: Known| known.recoverable.unwrap().mean.unwrap();
    let difference = (had(own) - had(seen)).abs();
    assert!(difference < 0.05 * had(own), "{own:?}, {seen:?}");
}

/// What an interval shows of a thread: instructions, lines, its share of a CPU, whether it was counted.
fn shown() -> impl Strategy<Value = Vec<(u64, u64, f64, bool)>> {
    let any_count = || prop_oneof![Just(0), Just(u64::MAX), 0u64..2_000_000_000];
    let thread = (any_count(), any_count(), 0.0..=1.0f64, any::<bool>());
    proptest::collection::vec(thread, 8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever counters say, ranges ascend, and no thread loses more than there is.
    #[test]
    fn ranges_ascend_and_are_of_the_threads(shown in shown()) {
        let mut scene = pairs();
        let threads = scene.snapshot.threads.iter_mut();
        for (thread, (instructions, lines, share, is_counted)) in threads.zip(shown) {
            thread.cpu_share = share;
            thread.counts = is_counted.then_some(Counts {
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
        let losses = look(&scene);
        let processes = losses.processes.iter().flatten().map(|process| process.lost);
        let (each, sum) = (processes.clone().fold(0.0, f64::max), processes.sum::<f64>());
        prop_assert!(each.is_finite() && sum <= losses.judged + 0.1, "{losses:?}");
        if let Estimate::Known(Known { lost, recoverable, parts, .. }) = losses.estimate {
            if let Some(parts) = parts {
                let each = [parts.controllers, parts.remote, parts.caches, parts.cpus];
                prop_assert!(each.iter().all(|part| *part >= 0.0), "{losses:?}");
                prop_assert!((parts.sum() - lost.mean.unwrap()).abs() < 0.01, "{losses:?}");
            }
            for range in [Some(lost), recoverable].into_iter().flatten() {
                let mean = range.mean.unwrap_or(range.least);
                prop_assert!(0.0 <= range.least && range.least <= mean, "{losses:?}");
                prop_assert!(mean <= range.most, "{losses:?}");
                prop_assert!(range.most <= losses.judged + 0.001, "{losses:?}");
            }
            if let Some(recoverable) = recoverable {
                prop_assert!(recoverable.mean <= lost.mean && recoverable.most <= lost.most);
            }
        }
    }
}
