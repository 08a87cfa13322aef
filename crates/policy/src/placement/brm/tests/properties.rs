//! What must hold of every run of BRM, on machines and threads of any shape.

use super::*;
use numaherd_world::Unmanaged;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A thread before it is put on a machine.
#[derive(Clone, Debug)]
struct Seed {
    cpu: usize,
    tag: Option<Tag>,
    unmanaged: bool,
    /// 0: all CPUs; else one of a few cpusets.
    cpuset: usize,
    /// How much it suffers on each node, by its number modulo 5.
    penalties: Vec<f64>,
    /// How much more with each other thread on its node.
    crowded: f64,
}

fn seeds() -> impl Strategy<Value = Vec<Seed>> {
    let tag = prop_oneof![
        3 => Just(Some(Tag::Agent)), 1 => Just(Some(Tag::Clear)), 1 => Just(None),
    ];
    let seed = (
        any::<usize>(),
        tag,
        proptest::bool::weighted(0.1),
        0usize..4,
        proptest::collection::vec(10.0..500.0f64, 5),
        0.0..50.0f64,
    );
    let seed = seed.prop_map(|(cpu, tag, unmanaged, cpuset, penalties, crowded)| Seed {
        cpu,
        tag,
        unmanaged,
        cpuset,
        penalties,
        crowded,
    });
    proptest::collection::vec(seed, 1..16)
}

fn shapes() -> impl Strategy<Value = Shape> {
    let nodes = proptest::collection::vec(proptest::collection::vec(1u32..4, 0..3), 1..7);
    (nodes, 1u32..3, proptest::collection::vec(1u32..40, 0..4)).prop_map(
        |(mut nodes, siblings, offline)| {
            // There is a CPU, and CPU 0 stays online.
            nodes.insert(0, vec![1]);
            Shape {
                nodes,
                siblings,
                offline,
            }
        },
    )
}

fn run(shape: &Shape, seeds: &[Seed], form: SystemPenaltyForm, steps: Steps) -> Run {
    let mut settings = Settings::default();
    settings.brm.candidates = CandidatesBy::Tagged;
    settings.brm.system_penalty = form;
    settings.brm.steps = steps;
    // So short that it happens often.
    settings.brm.forget_after_least_ms = 200;
    settings.brm.forget_after_most_ms = 600;
    let mut run = Run::new(shape, &settings);
    let cpus: Vec<CpuId> = run.scene.topology.cpus().iter().map(|cpu| cpu.id).collect();
    for seed in seeds {
        let at = run.vcpu(cpus[seed.cpu % cpus.len()].0);
        let thread = &mut run.scene.snapshot.threads[at];
        thread.tag = seed.tag;
        thread.unmanaged = seed.unmanaged.then(|| Unmanaged::other("real-time class"));
        let chosen = |at: usize| match seed.cpuset {
            0 => true,
            1 => at.is_multiple_of(2),
            2 => at == cpus.len() / 2,
            _ => at < cpus.len().div_ceil(2),
        };
        let own = (0..cpus.len()).filter(|&at| chosen(at));
        thread.cpuset = Arc::new(own.map(|at| cpus[at]).collect());
    }
    run
}

/// One tick in which threads suffer as their seeds say.
fn tick(run: &mut Run, seeds: &[Seed]) -> Vec<Placement> {
    let nodes: Vec<u32> = (0..seeds.len()).map(|at| run.node(at)).collect();
    run.tick(|at, node| {
        let seed = &seeds[at];
        let beside = nodes.iter().filter(|&&other| other == node).count() - 1;
        seed.penalties[node as usize % 5] + seed.crowded * beside as f64
    })
}

fn readings() -> impl Strategy<Value = (SystemPenaltyForm, Steps)> {
    let form = prop_oneof![
        Just(SystemPenaltyForm::Plain),
        Just(SystemPenaltyForm::Sharded)
    ];
    (form, prop_oneof![Just(Steps::Text), Just(Steps::Printed)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn only_candidates_are_named_and_only_with_what_they_may_have(
        shape in shapes(), seeds in seeds(), (form, steps) in readings(),
    ) {
        let mut run = run(&shape, &seeds, form, steps);
        for _ in 0..150 {
            let before = run.scene.snapshot.clone();
            let plan = tick(&mut run, &seeds);
            let named: BTreeSet<_> = plan.iter().map(|placement| placement.thread).collect();
            prop_assert_eq!(named.len(), plan.len());
            for placement in &plan {
                let thread = before.thread(placement.thread).expect("a known thread");
                prop_assert!(thread.tag.is_some_and(Tag::is_candidate));
                prop_assert!(thread.unmanaged.is_none());
                prop_assert!(thread.cpuset.contains(placement.to));
                prop_assert!(before.online.contains(placement.to));
                prop_assert_eq!(placement.from, thread.place());
                if placement.rule != "brm: hold" {
                    let at = placement.thread.tid as usize;
                    prop_assert_eq!(run.vcpu_of(at).probability(), 0);
                    let node = |cpu| run.scene.topology.node_of(cpu);
                    prop_assert_ne!(node(thread.cpu), node(placement.to));
                }
            }
            for at in 0..seeds.len() {
                prop_assert!(run.vcpu_of(at).probability() <= 100);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_plans(
        shape in shapes(), seeds in seeds(), (form, steps) in readings(),
    ) {
        let mut one = run(&shape, &seeds, form, steps);
        let mut other = run(&shape, &seeds, form, steps);
        for _ in 0..60 {
            prop_assert_eq!(tick(&mut one, &seeds), tick(&mut other, &seeds));
        }
    }

    #[test]
    fn the_system_wide_penalty_is_the_mean_of_the_candidates_averages(
        shape in shapes(), seeds in seeds(), (form, steps) in readings(),
        changes in proptest::collection::vec((0usize..16, any::<bool>()), 0..40),
    ) {
        let mut run = run(&shape, &seeds, form, steps);
        for (at, candidate) in changes {
            let at = at % seeds.len();
            run.scene.snapshot.threads[at].tag = candidate.then_some(Tag::Agent);
            tick(&mut run, &seeds);
            let threads = &run.scene.snapshot.threads;
            let known = run.brm.rule.threads.line_up(threads);
            let candidates = known.iter().zip(threads).filter(|(_, thread)| {
                thread.tag.is_some_and(Tag::is_candidate)
            });
            let averages: Vec<f64> = candidates.map(|(k, _)| k.average.value().unwrap()).collect();
            let (_, system) = run.brm.rule.system.as_ref().unwrap();
            let mean = averages.iter().sum::<f64>() / averages.len() as f64;
            match system.mean() {
                None => prop_assert!(averages.is_empty()),
                // Parts are rounded to 1/1024 of a cycle.
                Some(kept) => prop_assert!((kept - mean).abs() <= 1.0 / 2048.0 + 1e-9),
            }
        }
    }

    #[test]
    fn alone_and_with_constant_penalties_it_ends_on_the_least_node(
        order in Just((0..18usize).collect::<Vec<_>>()).prop_shuffle(), nodes in 2usize..18,
        cpu in any::<usize>(), form in readings(), seed in any::<u64>(),
    ) {
        let settings = Settings::default();
        let shape = Shape::uniform(nodes, 2);
        let mut run = Run::new(&shape, &Settings {
            brm: BrmSettings { system_penalty: form.0, ..settings.brm },
            ..settings
        });
        run.random = Random::seed_from_u64(seed);
        run.vcpu(u32::try_from(cpu % (nodes * 2)).unwrap());
        let least = (0..nodes).min_by_key(|&node| order[node]).unwrap();
        // It begins within 100 ticks for each other node, sees one in 25 or so, and does not forget
        // before 1000 for each.
        let ticks = 200 + 160 * (nodes - 1);
        for _ in 0..ticks {
            run.tick(|_, node| 100.0 + 20.0 * order[node as usize] as f64);
        }
        prop_assert_eq!(run.node(0) as usize, least);
    }
}
