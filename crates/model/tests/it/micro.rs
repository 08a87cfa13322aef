//! The micro-benchmark of BRM on its machine: what Figs 4, 5 and 7 say, and hand-made arithmetic.
//!
//! None of the machine's figures is from the paper's, but for sizes and bandwidth.

use std::sync::Arc;
use std::time::Duration;

use numaherd_model::{Hardware, Job, Micro, Model, ModelError, Options, Outcome, Placement, Until};
use numaherd_topology::{CpuId, Machine, NodeId};
use numaherd_world::{Progress, World};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// Aggregate working sets of Figs 5a, 5c and 8a, in MiB.
const WORKING_SETS: [u64; 6] = [4, 8, 16, 32, 64, 128];

fn hardware() -> Hardware {
    Hardware::of(&Machine::preset("xeon-e5620-2s").unwrap()).unwrap()
}

fn cpus(cpus: &[u32]) -> Vec<CpuId> {
    cpus.iter().copied().map(CpuId).collect()
}

fn micro(threads: u32, working_set_bytes: u64, shared_bytes: u64) -> Micro {
    Micro {
        threads,
        working_set_bytes,
        shared_bytes,
        loops: 20,
    }
}

fn on_node_0() -> Placement {
    Placement::On(NodeId(0))
}

/// All threads on one socket, and spread evenly over both: Intra-S and Inter-S.
fn intra_and_inter(micro: Micro, memory: Placement) -> (Outcome, Outcome) {
    let each = micro.threads;
    let intra = (0..each).map(CpuId).collect();
    let inter = (0..each / 2).chain(4..4 + each / 2).map(CpuId).collect();
    let run = |cpus| micro.bound(&hardware(), cpus, memory.clone()).unwrap();
    (run(intra), run(inter))
}

/// Relative change of the run time from Intra-S to Inter-S.
fn change(micro: Micro, memory: Placement) -> f64 {
    let (intra, inter) = intra_and_inter(micro, memory);
    inter.seconds / intra.seconds - 1.0
}

#[test]
fn remote_memory_costs_nothing_in_cache_a_quarter_at_16_mb_and_all_of_it_at_256() {
    let penalty = |mib: u64| {
        let time = |cpu| {
            let micro = micro(1, mib * MIB, 0);
            let outcome = micro.bound(&hardware(), cpus(&[cpu]), on_node_0());
            outcome.unwrap().seconds
        };
        time(4) / time(0)
    };
    assert!((penalty(8) - 1.0).abs() < 1e-9);
    // Fig 4a: 26 and 44 %.
    assert!((penalty(16) - 1.26).abs() < 0.01, "{}", penalty(16));
    assert!((penalty(256) - 1.44).abs() < 0.015, "{}", penalty(256));
    // Beyond these, walks read the last-level cache, wherever the list is.
    let sizes = [16, 32, 64];
    assert!(sizes.is_sorted_by(|&a, &b| penalty(a) < penalty(b)));
}

#[test]
fn a_list_takes_the_latency_of_what_answers_each_step() {
    let time = |bytes: u64| {
        let micro = micro(1, bytes, 0);
        let outcome = micro.bound(&hardware(), cpus(&[0]), on_node_0()).unwrap();
        outcome.seconds * 1e9 / 20.0 / (bytes / 64) as f64
    };
    assert!((time(128 * KIB) - 4.0).abs() < 1e-6, "level 2");
    let quarter_near = 0.25 * 4.0 + 0.75 * 16.7;
    assert!((time(MIB) - quarter_near).abs() < 1e-6, "level 3 beside it");
    // Half of 24 MiB misses; a lone list hardly uses the controller.
    // Of its pages, all but the 512 that the TLB holds are walked to.
    let walk = (1.0 - 512.0 / 6144.0) * 12.5;
    let half_far = (1.0 / 96.0) * 4.0 + (0.5 - 1.0 / 96.0) * 16.7 + 0.5 * 65.0 + walk;
    assert!((time(24 * MIB) / half_far - 1.0).abs() < 0.02);
}

#[test]
fn sharing_a_cache_costs_while_one_is_too_small_and_two_are_not() {
    let gain = |mib: u64| -change(micro(4, mib * MIB, 0), Placement::FirstTouch);
    assert!(gain(4).abs() < 1e-6 && gain(8).abs() < 1e-6);
    // Fig 4b: separate caches save up to 33 %.
    assert!((0.30..0.40).contains(&gain(16)), "{}", gain(16));
    assert!((0.30..0.40).contains(&gain(32)), "{}", gain(32));
    assert!(gain(32) > gain(64) && gain(64) > gain(128) && gain(128) > gain(256));
    assert!(gain(256) < 0.08, "{}", gain(256));
}

#[test]
fn a_shared_line_goes_round_and_every_thread_waits_its_turn() {
    // 8 words, 20 times, an add of 20 cycles each.
    let add = 20.0 / 2.4;
    let each = |seconds: f64| seconds * 1e9 / 160.0;
    let close = |found: f64, expected: f64| {
        assert!(
            (found / expected - 1.0).abs() < 1e-3,
            "{found}, not {expected}"
        );
    };
    let (within, across) = intra_and_inter(micro(2, 0, 64), on_node_0());
    close(each(within.seconds), 2.0 * (28.0 + add));
    close(each(across.seconds), 2.0 * (106.0 + add));
    let (within, across) = intra_and_inter(micro(4, 0, 64), on_node_0());
    close(each(within.seconds), 4.0 * (28.0 + add));
    // The other of the same socket, or one of two of the other socket.
    let mean = (28.0 + 2.0 * 106.0) / 3.0;
    close(each(across.seconds), 4.0 * (mean + add));
    close(
        across.uncore_penalty.unwrap(),
        2.4 * (4.0 * mean + 3.0 * add),
    );
    let alone = micro(1, 0, 64)
        .bound(&hardware(), cpus(&[0]), on_node_0())
        .unwrap();
    close(each(alone.seconds), add);
    assert_eq!(alone.uncore_penalty, None);
}

#[test]
fn who_is_alone_in_the_shared_area_takes_each_line_once() {
    // One thread's list is remote, the other's local, and both are long: they seldom come together.
    let micro = micro(2, 256 * MIB, 64 * KIB);
    let time = |shared_bytes| {
        let micro = Micro {
            shared_bytes,
            ..micro
        };
        let outcome = micro.bound(&hardware(), cpus(&[0, 4]), on_node_0());
        outcome.unwrap().seconds * 1e9 / 20.0
    };
    let words = 8192.0 * 20.0 / 2.4;
    let lines = 1024.0 * 106.0;
    let share = (time(64 * KIB) - time(0)) / (words + lines);
    // When the nearer thread has ended nobody takes the other's lines; had they gone together, it would
    // be eleven times as much.
    assert!((0.8..1.0).contains(&share), "{share}");
}

#[test]
fn with_memory_on_one_node_contention_matters_first_and_then_locality() {
    let change = |mib: u64| change(micro(4, mib * MIB, 0), on_node_0());
    assert!(change(4).abs() < 1e-6 && change(8).abs() < 1e-6);
    assert!(change(16) < -0.2 && change(32) < -0.2, "Fig 5a");
    assert!(change(128) > 0.05, "{}", change(128));
}

#[test]
fn sharing_outweighs_contention_from_about_32_kb_on() {
    let change = |kib: u64| change(micro(4, 16 * MIB, kib * KIB), Placement::FirstTouch);
    let sizes = [1, 2, 4, 8, 16, 32, 64, 128];
    assert!(sizes.is_sorted_by(|&a, &b| change(a) < change(b)), "Fig 5b");
    assert!(change(16) < 0.0 && change(32) > 0.0);
}

#[test]
fn with_all_factors_grouping_is_good_then_bad_then_good() {
    let changes = WORKING_SETS.map(|mib| change(micro(4, mib * MIB, 128 * KIB), on_node_0()));
    let grouped: Vec<bool> = changes.iter().map(|&change| change > 0.0).collect();
    let expected = [true, true, true, false, false, true];
    assert_eq!(grouped, expected, "Fig 5c: {changes:?}");
}

/// Linear correlation coefficient.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let count = pairs.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let product = mean(&|p| (p.0 - x) * (p.1 - y));
    let (own, other) = (mean(&|p| (p.0 - x).powi(2)), mean(&|p| (p.1 - y).powi(2)));
    product / (own * other).sqrt()
}

#[test]
fn the_uncore_penalty_tells_the_run_time_better_than_the_miss_rate() {
    let private = WORKING_SETS.map(|mib| (micro(4, mib * MIB, 0), on_node_0()));
    let shared =
        [4, 8, 16, 32, 64, 128].map(|kib| (micro(4, 16 * MIB, kib * KIB), Placement::FirstTouch));
    let all = WORKING_SETS.map(|mib| (micro(4, mib * MIB, 128 * KIB), on_node_0()));
    let (mut penalty, mut misses) = (Vec::new(), Vec::new());
    for (micro, memory) in private.into_iter().chain(shared).chain(all) {
        let (intra, inter) = intra_and_inter(micro, memory);
        let change = |of: &dyn Fn(Outcome) -> f64| {
            let (from, to) = (of(intra), of(inter));
            // No misses before and after is no change.
            if from == to { 0.0 } else { to / from - 1.0 }
        };
        let time = change(&|outcome| outcome.seconds);
        penalty.push((change(&|outcome| outcome.uncore_penalty.unwrap()), time));
        misses.push((change(&|outcome| outcome.miss_rate), time));
    }
    let (penalty, misses) = (correlation(&penalty), correlation(&misses));
    // Fig 7: 0.91 and 0.61.
    assert!(
        penalty >= 0.9 && penalty > misses,
        "{penalty} against {misses}"
    );
}

#[test]
fn memory_of_a_wide_machine_is_local_to_nobody_whole() {
    let micro = micro(4, 128 * MIB, 128 * KIB);
    let program = Arc::new(micro.program(&hardware()).unwrap());
    let job = Job {
        memory: Placement::Split(vec![(NodeId(0), 2), (NodeId(1), 1)]),
        ..Job::new(program).on(cpus(&[0, 1, 4, 5]))
    };
    let until = Until::Completions(1);
    let mut model = Model::new(hardware(), vec![job], until, Options::default()).unwrap();
    model.run_for(Duration::from_millis(10));
    let seen = model.observe().unwrap();
    let pages = &seen.processes[0].residency.as_ref().unwrap();
    let share = pages.on(NodeId(0)) as f64 / pages.total() as f64;
    assert!((share - 2.0 / 3.0).abs() < 1e-3, "{share}");
    for thread in &seen.threads {
        let local = thread.counts.unwrap().local_access_ratio().unwrap();
        let expected = if thread.cpu.0 < 4 {
            2.0 / 3.0
        } else {
            1.0 / 3.0
        };
        assert!((local - expected).abs() < 1e-3, "{local}");
    }
    let wrong = Job {
        memory: Placement::Split(vec![(NodeId(0), 0)]),
        ..Job::new(Arc::new(micro.program(&hardware()).unwrap()))
    };
    let refused = Model::new(hardware(), vec![wrong], until, Options::default()).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("split into no parts"), "{text}");
}

#[test]
fn it_is_seen_every_10_ms_as_a_program_that_does_the_same_all_the_time() {
    let micro = Micro {
        loops: 200,
        ..micro(4, 16 * MIB, 32 * KIB)
    };
    let job = Job::new(Arc::new(micro.program(&hardware()).unwrap())).on(cpus(&[0, 1, 2, 3]));
    let until = Until::Completions(1);
    let mut model = Model::new(hardware(), vec![job], until, Options::default()).unwrap();
    let mut penalties = Vec::new();
    while model.run_for(Duration::from_millis(10)) == Progress::Ran {
        let seen = model.observe().unwrap();
        let threads = seen.threads.iter();
        penalties.extend(threads.filter_map(|thread| thread.counts?.uncore_penalty()));
    }
    let whole = model.work()[0].uncore_penalty_ns().unwrap() * 2.4;
    assert!(penalties.len() >= 4 * 40, "{}", penalties.len());
    for penalty in &penalties {
        // Four loops, more or less.
        assert!(
            (0.75..1.25).contains(&(penalty / whole)),
            "{penalty} of {whole}"
        );
    }
}

#[test]
fn nothing_to_do_is_refused() {
    for wrong in [
        micro(4, 0, 0),
        micro(0, MIB, 0),
        Micro {
            loops: 0,
            ..micro(4, MIB, 0)
        },
    ] {
        let refused = wrong.program(&hardware());
        assert!(matches!(refused, Err(ModelError::Jobs { .. })), "{wrong:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Fig 4c: across sockets is dearer than within whatever the threads, and larger areas are dearer.
    #[test]
    fn sharing_across_sockets_is_always_dearer(pairs in 1u32..3, words in 1u64..40_000) {
        let micro = micro(2 * pairs, 0, words * 8);
        let (within, across) = intra_and_inter(micro, on_node_0());
        prop_assert!(across.seconds > within.seconds);
        prop_assert!(across.uncore_penalty > within.uncore_penalty);
    }
}
