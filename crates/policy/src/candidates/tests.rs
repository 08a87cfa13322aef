//! Who is a candidate, interval by interval, and what always holds.

use super::*;
use numaherd_testing::Scene;
use numaherd_topology::CpuId;
use numaherd_world::{Counts, Process, VirtualMachine};
use proptest::prelude::*;
use std::sync::Arc;

const TICK_NS: u64 = 10_000_000;

/// Two nodes of four CPUs, and one thread on each of the first CPUs; 10 ms intervals.
fn scene(threads: u32) -> Scene {
    let mut scene = Scene::uniform(2, 4);
    scene.snapshot.interval_ns = TICK_NS;
    for thread in 0..threads {
        scene.thread(thread, 0.0, thread % 8);
    }
    scene
}

fn settings(by: CandidatesBy) -> Settings {
    let mut settings = Settings::default();
    settings.brm.candidates = by;
    settings
}

/// Lets a thread ask for that many requests in an interval, of that penalty.
fn asks(scene: &mut Scene, thread: usize, requests: u64, penalty: u64) {
    scene.snapshot.threads[thread].counts = Some(Counts {
        instructions: 1_000_000,
        uncore_busy_cycles: Some(requests * penalty),
        uncore_requests: Some(requests),
        ..Counts::default()
    });
}

/// The standings after one more interval.
fn next(candidates: &mut Candidates, scene: &mut Scene) -> Vec<Standing> {
    scene.snapshot.time_ns += TICK_NS;
    candidates.judge(&scene.snapshot, &scene.topology).to_vec()
}

#[test]
fn a_tag_makes_a_candidate_and_no_tag_none() {
    let mut scene = scene(4);
    let tags = [Some(Tag::Mask), Some(Tag::Agent), Some(Tag::Clear), None];
    for (thread, tag) in scene.snapshot.threads.iter_mut().zip(tags) {
        thread.tag = tag;
    }
    (0..4).for_each(|thread| asks(&mut scene, thread, 1_000_000, 200));
    let mut candidates = Candidates::new(&settings(CandidatesBy::Tagged));
    let standings = next(&mut candidates, &mut scene);
    let are: Vec<bool> = standings.iter().map(|s| s.is_candidate()).collect();
    assert_eq!(are, [true, true, false, false]);
    let told: Vec<String> = standings.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "its CPU mask is smaller than the machine",
            "the agent in its machine says so",
            "the agent in its machine says that it is none",
            "nobody says so"
        ]
    );
}

#[test]
fn where_nobody_tells_it_is_seen_and_where_anybody_does_it_is_not() {
    let mut scene = scene(6);
    (0..6).for_each(|thread| asks(&mut scene, thread, 1_000_000, 200));
    let process = Scene::process;
    // 0 and 1 of a process of which one is tagged; 2 of a machine whose agent is heard, 3 of one
    // whose agent is not; 4 of no known process; 5 is cleared.
    scene.snapshot.threads[1].process = process(0);
    scene.snapshot.threads[1].tag = Some(Tag::Mask);
    scene.snapshot.threads[5].tag = Some(Tag::Clear);
    for (number, agent) in [(2, Agent::Telling), (3, Agent::Distrusted)] {
        scene.home(number, "machine", 0);
        let all = &mut scene.snapshot.processes;
        let of = |p: &&mut Process| p.id == process(number);
        let found = all.iter_mut().find(of).expect("added above");
        found.machine = Some(Arc::new(VirtualMachine {
            name: "machine".into(),
            vcpus: Vec::new(),
            memory_bytes: None,
            source: "test".into(),
            agent,
            fixed_memory: None,
        }));
    }
    let mut candidates = Candidates::new(&settings(CandidatesBy::Auto));
    let standings = next(&mut candidates, &mut scene);
    let frequent = Standing::Frequent {
        requests_per_s: 1e8,
    };
    assert_eq!(
        standings,
        [
            Standing::Untagged,
            Standing::Tagged(Tag::Mask),
            Standing::Untagged,
            frequent,
            frequent,
            Standing::Tagged(Tag::Clear),
        ]
    );
    // Inferring does not go by tags at all, nor does "all".
    let mut inferring = Candidates::new(&settings(CandidatesBy::Inferred));
    assert_eq!(next(&mut inferring, &mut scene), [frequent; 6]);
    let mut all = Candidates::new(&settings(CandidatesBy::All));
    assert_eq!(next(&mut all, &mut scene), [Standing::Everybody; 6]);
}

#[test]
fn one_that_asks_often_is_a_candidate_until_it_asks_for_half_of_that() {
    let mut scene = scene(1);
    let mut candidates = Candidates::new(&settings(CandidatesBy::Inferred));
    let mut is = |requests: u64, intervals: usize| {
        asks(&mut scene, 0, requests, 200);
        let mut last = false;
        for _ in 0..intervals {
            last = next(&mut candidates, &mut scene)[0].is_candidate();
        }
        last
    };
    // In 10 ms, 10,000 requests are a million a second.
    assert!(!is(9_999, 50));
    // An eighth of what an interval brings counts at once.
    assert!(is(10_008, 1));
    assert!(is(5_001, 100));
    assert!(!is(4_999, 100));
    assert!(!is(9_000, 100));
}

#[test]
fn one_that_sleeps_asks_for_nothing_and_one_that_is_not_measured_is_not_known() {
    let mut scene = scene(2);
    (0..2).for_each(|thread| asks(&mut scene, thread, 100_000, 200));
    let mut candidates = Candidates::new(&settings(CandidatesBy::Inferred));
    next(&mut candidates, &mut scene);
    for thread in &mut scene.snapshot.threads {
        thread.counts = None;
    }
    scene.snapshot.threads[0].cpu_share = 0.0;
    let last = (0..40).map(|_| next(&mut candidates, &mut scene)).last();
    let are: Vec<bool> = last.unwrap().iter().map(|s| s.is_candidate()).collect();
    assert_eq!(are, [false, true]);
}

/// A candidate on node 0 for 20 intervals and then on node 1, with these penalties; after how many
/// intervals on node 1 it was no longer a candidate.
fn dropped_after(penalties: (u64, u64), intervals: usize) -> (Scene, Candidates, Option<usize>) {
    let mut scene = scene(1);
    let mut candidates = Candidates::new(&settings(CandidatesBy::Inferred));
    asks(&mut scene, 0, 100_000, penalties.0);
    for _ in 0..20 {
        assert!(next(&mut candidates, &mut scene)[0].is_candidate());
    }
    scene.snapshot.threads[0].cpu = CpuId(4);
    asks(&mut scene, 0, 100_000, penalties.1);
    let dropped = (1..=intervals).find(|_| !next(&mut candidates, &mut scene)[0].is_candidate());
    (scene, candidates, dropped)
}

#[test]
fn one_whose_penalty_another_node_does_not_change_is_dropped_for_a_time() {
    assert_eq!(dropped_after((200, 210), 100).2, None);
    assert_eq!(dropped_after((200, 190), 100).2, None);
    let (mut scene, mut candidates, dropped) = dropped_after((200, 209), 100);
    assert_eq!(dropped, Some(8));
    // After 20 s, the middle of 10 and 30 for one other node, it is judged anew.
    let mut out = 0;
    while !next(&mut candidates, &mut scene)[0].is_candidate() {
        out += 1;
        assert!(out < 4000);
    }
    assert_eq!(out, 1999);
    // And is not dropped again before it has been on another node.
    for _ in 0..2000 {
        assert!(next(&mut candidates, &mut scene)[0].is_candidate());
    }
    scene.snapshot.threads[0].cpu = CpuId(0);
    let again = (1..20).find(|_| !next(&mut candidates, &mut scene)[0].is_candidate());
    assert_eq!(again, Some(8));
}

#[test]
fn a_stay_that_is_too_short_is_not_compared() {
    let (mut scene, mut candidates, _) = dropped_after((200, 200), 7);
    // Back home after 7 intervals: it has not been elsewhere for long enough, ever.
    scene.snapshot.threads[0].cpu = CpuId(0);
    for _ in 0..100 {
        assert!(next(&mut candidates, &mut scene)[0].is_candidate());
    }
}

#[test]
fn accuracy_is_of_those_that_somebody_tells_of() {
    let mut scene = scene(5);
    let tags = [Some(Tag::Mask), Some(Tag::Mask), Some(Tag::Clear), None];
    for (thread, tag) in scene.snapshot.threads.iter_mut().zip(tags) {
        thread.process = Scene::process(0);
        thread.tag = tag;
    }
    for thread in [0, 2, 4] {
        asks(&mut scene, thread, 100_000, 200);
    }
    let mut candidates = Candidates::new(&settings(CandidatesBy::Inferred));
    let standings = next(&mut candidates, &mut scene);
    let mut accuracy = Accuracy::default();
    accuracy.count(&scene.snapshot, &standings);
    let expected = Accuracy {
        both: 1,
        missed: 1,
        wrong: 1,
        neither: 1,
    };
    assert_eq!(accuracy, expected);
    assert_eq!(
        (accuracy.precision(), accuracy.recall()),
        (Some(0.5), Some(0.5))
    );
    assert_eq!(Accuracy::default().precision(), None);
}

proptest! {
    #[test]
    fn nobody_is_taken_who_never_asks_often_nor_dropped_who_never_went_elsewhere(
        intervals in proptest::collection::vec((0u64..20_000, 1u64..500, 0u32..8), 1..200),
    ) {
        let mut scene = scene(2);
        let mut candidates = Candidates::new(&settings(CandidatesBy::Inferred));
        for (requests, penalty, cpu) in intervals {
            // The first goes about and never asks often, the second stays and always does.
            scene.snapshot.threads[0].cpu = CpuId(cpu);
            asks(&mut scene, 0, requests.min(9_999), penalty);
            scene.snapshot.threads[1].cpu = CpuId(cpu % 4);
            asks(&mut scene, 1, 10_000 + requests, penalty);
            let standings = next(&mut candidates, &mut scene);
            prop_assert!(!standings[0].is_candidate());
            prop_assert!(standings[1].is_candidate());
        }
    }
}
