//! What BRM decides, tick by tick; and what always holds.

use super::*;
use crate::policy::Place;
use crate::settings::{AverageOver, CandidatesBy, Steps, SystemPenaltyForm};
use crate::stage::Staged;
use numaherd_testing::{Scene, Shape};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{Counts, Placement, Tag, Unmanaged};
use rand::SeedableRng;
use std::sync::Arc;

mod printed;
mod properties;
mod turns;

const TICK_NS: u64 = 10_000_000;

/// A BRM and its world. Penalties are set from outside; orders are carried out at once.
struct Run {
    scene: Scene,
    brm: Staged<Brm>,
    random: Random,
}

impl Run {
    fn new(shape: &Shape, settings: &Settings) -> Self {
        let mut scene = Scene::new(shape);
        scene.snapshot.interval_ns = TICK_NS;
        Self {
            scene,
            brm: Staged::new(settings, Brm::new(settings)),
            random: Random::seed_from_u64(1),
        }
    }

    /// Adds a tagged thread on a CPU, of a process of its own.
    fn vcpu(&mut self, cpu: u32) -> usize {
        let at = self.scene.snapshot.threads.len();
        let process = u32::try_from(at).expect("few threads");
        self.scene.thread(process, 0.0, cpu).tag = Some(Tag::Mask);
        at
    }

    /// One tick in which each thread's penalty is what `penalty` says of it and its node.
    fn tick(&mut self, penalty: impl Fn(usize, u32) -> f64) -> Vec<Placement> {
        for at in 0..self.scene.snapshot.threads.len() {
            let cpu = self.scene.snapshot.threads[at].cpu;
            let node = self
                .scene
                .topology
                .node_of(cpu)
                .expect("a CPU of the machine");
            let cycles = penalty(at, node.0) * 1e5;
            self.scene.snapshot.threads[at].counts = Some(Counts {
                instructions: 1_000_000,
                uncore_busy_cycles: Some(cycles as u64),
                uncore_requests: Some(100_000),
                ..Counts::default()
            });
        }
        self.tick_as_it_is()
    }

    fn tick_as_it_is(&mut self) -> Vec<Placement> {
        self.scene.snapshot.time_ns += TICK_NS;
        let (snapshot, topology) = (&self.scene.snapshot, &self.scene.topology);
        let plan = self.brm.place(snapshot, topology, &mut self.random);
        self.scene.carry_out(&plan);
        plan
    }

    fn node(&self, thread: usize) -> u32 {
        let cpu = self.scene.snapshot.threads[thread].cpu;
        self.scene
            .topology
            .node_of(cpu)
            .expect("a CPU of the machine")
            .0
    }

    fn vcpu_of(&mut self, thread: usize) -> Vcpu {
        let threads = self.brm.rule.threads.line_up(&self.scene.snapshot.threads);
        threads[thread].vcpu.clone()
    }
}

fn two_nodes() -> Run {
    Run::new(&Shape::uniform(2, 4), &Settings::default())
}

/// The plans of a run until a thread has moved to another node.
fn until_it_moves(run: &mut Run, penalty: impl Fn(usize, u32) -> f64) -> Placement {
    for _ in 0..5000 {
        let moves = |placement: &Placement| placement.from != placement.to;
        if let Some(made) = run.tick(&penalty).into_iter().find(moves) {
            return made;
        }
    }
    panic!("nobody moved in 5000 ticks");
}

/// Ticks until the first thread takes part.
fn until_it_takes_part(run: &mut Run, penalty: impl Fn(usize, u32) -> f64) -> usize {
    (1..1000)
        .find(|_| {
            run.tick(&penalty);
            run.vcpu_of(0) != Vcpu::default()
        })
        .expect("it takes part some time")
}

#[test]
fn candidates_begin_one_after_the_other() {
    // Within 25 ticks for each of 16 and each of 3 other nodes, not all at once; held from the
    // first.
    let mut run = Run::new(&Shape::uniform(4, 4), &Settings::default());
    (0..16).for_each(|cpu| {
        run.vcpu(cpu);
    });
    assert_eq!(run.tick(|_, _| 200.0).len(), 16);
    let mut begun = std::collections::BTreeMap::new();
    for tick in 1..=3000 {
        run.tick(|_, _| 200.0);
        for at in 0..16 {
            if run.vcpu_of(at) != Vcpu::default() {
                begun.entry(at).or_insert(tick);
            }
        }
    }
    let at: Vec<u32> = begun.values().copied().collect();
    assert_eq!(at.len(), 16);
    let (first, last) = (at.iter().min().unwrap(), at.iter().max().unwrap());
    assert!(last - first > 1500, "{at:?}");
}

#[test]
fn it_asks_for_the_papers_tick_and_leaves_the_node_to_the_kernel() {
    let brm = Staged::new(&Settings::default(), Brm::new(&Settings::default()));
    assert_eq!(brm.needs().own.interval, Some(Duration::from_millis(10)));
    assert_eq!(brm.needs().own.scope, Some(AffinityScope::Node));
}

#[test]
fn a_candidate_is_held_where_it_is_and_others_are_left_alone() {
    let mut run = two_nodes();
    run.vcpu(5);
    run.vcpu(2);
    run.scene.snapshot.threads[1].tag = Some(Tag::Clear);
    let plan = run.tick(|_, _| 200.0);
    let named: Vec<_> = plan.iter().map(|p| (p.thread.tid, p.from, p.to)).collect();
    assert_eq!(named, [(0, CpuId(5), CpuId(5))]);
    assert_eq!(plan[0].rule, "brm: hold");
    assert_eq!(
        plan[0].why,
        "it is on node 1, and its penalty belongs to that node while it stays there"
    );
}

#[test]
fn one_that_did_not_run_is_neither_held_nor_moved() {
    let mut run = two_nodes();
    run.vcpu(0);
    run.scene.snapshot.threads[0].counts = None;
    for _ in 0..200 {
        assert_eq!(run.tick_as_it_is(), []);
    }
}

#[test]
fn it_goes_to_see_the_other_node_comes_back_and_stays() {
    let mut run = two_nodes();
    run.vcpu(0);
    let penalty = |_: usize, node: u32| [100.0, 150.0][node as usize];
    let explored = until_it_moves(&mut run, penalty);
    assert_eq!(explored.rule, "brm: explore");
    assert_eq!((explored.from, explored.to), (CpuId(0), CpuId(4)));
    assert_eq!(run.vcpu_of(0).probability(), 0);
    let back = until_it_moves(&mut run, penalty);
    assert_eq!(back.rule, "brm: bias random pick");
    assert_eq!(run.node(0), 0);
    // At rest, until it forgets: no sooner than 10 s after it was first seen.
    let passed = run.scene.snapshot.time_ns / TICK_NS;
    for _ in passed..1000 {
        assert_eq!(run.tick(penalty), []);
    }
    assert_eq!(until_it_moves(&mut run, penalty).rule, "brm: explore");
}

#[test]
fn a_node_that_is_hardly_better_is_not_gone_back_to() {
    let last = |least_gain: f64, penalties: [f64; 2]| {
        let mut settings = Settings::default();
        settings.brm.least_gain = least_gain;
        let mut run = Run::new(&Shape::uniform(2, 4), &settings);
        run.vcpu(0);
        for _ in 0..900 {
            run.tick(|_, node| penalties[node as usize]);
        }
        run.node(0)
    };
    assert_eq!(last(0.03, [100.0, 102.0]), 1);
    assert_eq!(last(0.03, [100.0, 105.0]), 0);
    assert_eq!(last(0.0, [100.0, 102.0]), 0);
}

#[test]
fn plans_in_words() {
    let mut run = two_nodes();
    run.vcpu(0);
    let penalty = |_: usize, node: u32| [100.0, 150.0][node as usize];
    let told = |p: Placement| format!("{}\n  {}\n  not: {}", p.rule, p.why, p.instead_of);
    let explored = told(until_it_moves(&mut run, penalty));
    let back = told(until_it_moves(&mut run, penalty));
    insta::assert_snapshot!(format!("{explored}\n{back}"), @r"
    brm: explore
      nothing is known of node 1 (any more); drawn with a probability of 11 %
      not: stay on node 0, where candidates lose 100.0 cycles per request
    brm: bias random pick
      candidates lost 100.0 cycles per request when it was last on node 0; drawn with a probability of 24 %
      not: stay on node 1, where candidates lose 150.0 cycles per request
    ");
}

#[test]
fn what_counts_is_everybodys_penalty_and_not_its_own() {
    // The first is better off on node 1 by 50 cycles, and the second suffers 150 there for it.
    let mut run = two_nodes();
    run.vcpu(0);
    run.vcpu(4);
    run.scene.snapshot.threads[1].cpuset = Arc::new((4..8).map(CpuId).collect());
    let mut on = [0, 0];
    for _ in 0..900 {
        let with_it = run.node(0) == 1;
        run.tick(|thread, node| match (thread, node) {
            (0, 0) => 200.0,
            (0, _) => 150.0,
            _ if with_it => 350.0,
            _ => 200.0,
        });
        on[run.node(0) as usize] += 1;
    }
    assert!(on[0] > 800, "{on:?}");
    assert_eq!(run.node(0), 0);
}

#[test]
fn the_core_is_the_one_used_least_and_moves_of_the_same_tick_count() {
    let mut run = Run::new(
        &Shape {
            nodes: vec![vec![4], vec![2]],
            siblings: 2,
            offline: Vec::new(),
        },
        &Settings::default(),
    );
    // Node 1 has CPUs 8 and 9 of one core, 10 and 11 of another. 8 is half used, 10 and 11 wait.
    for (cpu, share) in [(8, 0.5), (10, 0.4), (11, 0.4)] {
        run.scene.thread(90 + cpu, 0.0, cpu).cpu_share = share;
    }
    let snapshot = &run.scene.snapshot;
    let mut loads = Loads::new(snapshot, &run.scene.topology);
    let node = || (8..12).map(CpuId);
    assert_eq!(loads.least(node()), CpuId(9));
    loads.moves(&snapshot.threads[0], CpuId(9));
    // Now 8 is free, and 9 has what 8 had.
    assert_eq!(loads.least(node()), CpuId(8));
    loads.moves(&snapshot.threads[1], CpuId(8));
    assert_eq!(loads.least(node()), CpuId(10));
}

#[test]
fn waiting_counts_as_use() {
    let mut run = two_nodes();
    let waiting = run.scene.thread(0, 0.0, 0);
    waiting.cpu_share = 0.1;
    waiting.wait_share = 0.5;
    run.scene.thread(1, 0.0, 1).cpu_share = 0.4;
    let mut loads = Loads::new(&run.scene.snapshot, &run.scene.topology);
    assert_eq!(loads.least([0, 1].map(CpuId).into_iter()), CpuId(1));
}

#[test]
fn who_comes_or_goes_moves_nobody() {
    // One candidate at rest between two nodes that are alike; another comes and goes with ten times
    // its penalty.
    let mut run = two_nodes();
    run.vcpu(0);
    run.vcpu(4);
    run.scene.snapshot.threads[1].cpuset = Arc::new((4..8).map(CpuId).collect());
    run.scene.snapshot.threads[1].tag = None;
    let penalty = |thread: usize, _: u32| [100.0, 1000.0][thread];
    until_it_moves(&mut run, penalty);
    for tick in 0..400 {
        let comes = (tick / 20) % 2 == 0;
        run.scene.snapshot.threads[1].tag = comes.then_some(Tag::Mask);
        let moves = |p: &Placement| p.thread.tid == 0;
        assert!(!run.tick(penalty).iter().any(moves), "tick {tick}");
    }
}

#[test]
fn a_candidate_that_ends_is_counted_no_more() {
    let mut run = two_nodes();
    run.vcpu(0);
    run.vcpu(1);
    run.tick(|thread, _| [100.0, 300.0][thread]);
    let mean = |run: &Run| {
        run.brm
            .rule
            .system
            .as_ref()
            .and_then(|(_, system)| system.mean())
    };
    assert_eq!(mean(&run), Some(200.0));
    run.scene.snapshot.threads.pop();
    run.tick(|_, _| 100.0);
    assert_eq!(mean(&run), Some(100.0));
}

#[test]
fn one_that_is_unmanaged_counts_and_is_not_moved() {
    let mut run = two_nodes();
    run.vcpu(0);
    run.scene.snapshot.threads[0].unmanaged = Some(Unmanaged::other("real-time class"));
    for _ in 0..200 {
        assert_eq!(run.tick(|_, _| 300.0), []);
    }
    let (_, system) = run.brm.rule.system.as_ref().expect("made");
    assert_eq!(system.mean(), Some(300.0));
}

#[test]
fn one_that_somebody_else_moved_knows_what_it_knew() {
    let mut run = two_nodes();
    run.vcpu(0);
    let penalty = |_: usize, node: u32| [150.0, 100.0][node as usize];
    until_it_moves(&mut run, penalty);
    for _ in 0..50 {
        run.tick(penalty);
    }
    let before = run.vcpu_of(0);
    run.scene.snapshot.threads[0].cpu = CpuId(1);
    run.scene.snapshot.threads[0].assigned = Some(CpuId(1));
    run.tick(penalty);
    run.tick(penalty);
    let after = run.vcpu_of(0);
    assert_eq!(after.penalty_on(1), before.penalty_on(1));
    assert!(after.penalty_on(0) > after.penalty_on(1));
    assert_eq!(
        until_it_moves(&mut run, penalty).rule,
        "brm: bias random pick"
    );
}

/// The penalty that a vCPU has kept of node 1 after so many ticks there, of 100 and 200 cycles by
/// node.
fn kept_of_another_node(average: AverageOver, ticks: usize) -> Option<f64> {
    let mut settings = Settings::default();
    settings.brm.average = average;
    let mut run = Run::new(&Shape::uniform(2, 4), &settings);
    run.vcpu(0);
    let penalty = |_: usize, node: u32| [100.0, 200.0][node as usize];
    until_it_takes_part(&mut run, penalty);
    run.scene.snapshot.threads[0].cpu = CpuId(4);
    for _ in 0..ticks {
        run.tick(penalty);
    }
    run.vcpu_of(0).penalty_on(1)
}

#[test]
fn an_average_is_of_one_node_unless_it_is_to_go_through() {
    let anew = |ticks| kept_of_another_node(AverageOver::Anew, ticks);
    assert_eq!((anew(1), anew(2)), (None, Some(200.0)));
    let through = |ticks| kept_of_another_node(AverageOver::Through, ticks);
    assert_eq!(through(1), Some(112.5));
}

#[test]
fn one_that_is_a_candidate_again_begins_anew() {
    let mut run = two_nodes();
    run.vcpu(0);
    until_it_takes_part(&mut run, |_, _| 200.0);
    run.scene.snapshot.threads[0].tag = Some(Tag::Clear);
    run.tick(|_, _| 200.0);
    assert_eq!(run.vcpu_of(0), Vcpu::default());
}

#[test]
fn one_whose_core_is_taken_away_is_held_on_another() {
    let mut run = two_nodes();
    run.vcpu(0);
    run.tick(|_, _| 200.0);
    // Its node keeps CPU 2; then only node 1 is left.
    for (cpus, expected) in [(vec![2, 4], 2), (vec![6], 6)] {
        run.scene.snapshot.threads[0].cpuset = Arc::new(cpus.into_iter().map(CpuId).collect());
        let plan = run.tick(|_, _| 200.0);
        assert_eq!(plan.len(), 1);
        assert_eq!(
            (plan[0].rule.as_ref(), plan[0].to),
            ("brm: hold", CpuId(expected))
        );
    }
}

#[test]
fn nodes_without_cpus_and_nodes_out_of_reach_do_not_exist() {
    // Node 1 has no CPUs, node 2 none that the thread may have.
    let shape = Shape {
        nodes: vec![vec![2], vec![], vec![2], vec![2]],
        ..Shape::uniform(1, 1)
    };
    let mut run = Run::new(&shape, &Settings::default());
    run.vcpu(0);
    run.scene.snapshot.threads[0].cpuset = Arc::new([0, 1, 4, 5].map(CpuId).into_iter().collect());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3000 {
        run.tick(|_, _| 200.0);
        seen.insert(run.node(0));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn as_printed_a_vcpu_stays_on_the_second_best_of_four_nodes_and_as_the_text_has_it_does_not() {
    let penalties = [100.0, 200.0, 300.0, 400.0];
    let ticks_on_second = |steps| {
        let mut vcpu = Vcpu::default();
        let mut random = Random::seed_from_u64(1);
        for node in [0, 2, 3] {
            vcpu.update(node, &[0, 1, 2, 3], penalties[node], 0.0, steps);
        }
        while vcpu.bias_random_pick(&mut random).is_some() {}
        (0..2000).find(|_| {
            vcpu.update(1, &[0, 1, 2, 3], penalties[1], 0.0, steps);
            vcpu.bias_random_pick(&mut random).is_some()
        })
    };
    assert!(ticks_on_second(Steps::Text).is_some_and(|ticks| ticks < 60));
    assert_eq!(ticks_on_second(Steps::Printed), None);
}

#[test]
fn settings_reach_it() {
    let mut settings = Settings::default();
    settings.brm.candidates = CandidatesBy::All;
    settings.brm.system_penalty = SystemPenaltyForm::Sharded;
    settings.brm.forget_after_least_ms = 20;
    settings.brm.forget_after_most_ms = 20;
    let mut run = Run::new(&Shape::uniform(2, 4), &settings);
    run.scene.thread(0, 0.0, 0);
    let mut explored = 0;
    for _ in 0..200 {
        explored += usize::from(
            run.tick(|_, _| 200.0)
                .iter()
                .any(|p| p.rule == "brm: explore"),
        );
    }
    // It knows nothing of the other node for all but a tick or two at a time.
    assert!(explored > 8, "{explored}");
    assert_eq!(NodeId(run.node(0)).0, run.node(0));
}
