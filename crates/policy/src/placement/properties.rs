//! What must hold of every plan, on machines and threads of any shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{Placement, ThreadId, Unmanaged};
use proptest::prelude::*;
use rand::SeedableRng;

use crate::cost_model::{CostModel, Home, Means};
use crate::placement::brm::Brm;
use crate::placement::di::DistributedIntensity;
use crate::placement::dino::Dino;
use crate::placement::n_mass::{NMass, Steps};
use crate::placement::oracle::Oracle;
use crate::placement::random::RandomCore;
use crate::policy::{Place, Random};
use crate::settings::{CandidatesBy, Settings};
use crate::stage::{PlacementRule, Staged};
use numaherd_testing::{Scene, Shape};

/// One thread before it is put on a machine: numbers are taken modulo what the machine has.
#[derive(Clone, Debug)]
struct Seed {
    process: u32,
    rate: f64,
    cpu: usize,
    assigned: bool,
    busy: bool,
    unmanaged: bool,
    /// 0: all CPUs; else one of a few cpusets.
    cpuset: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let node = proptest::collection::vec(1u32..5, 1..3);
    let nodes = proptest::collection::vec(node, 1..5);
    let offline = proptest::collection::vec(1u32..40, 0..4);
    (nodes, 1u32..3, offline).prop_map(|(nodes, siblings, offline)| Shape {
        nodes,
        siblings,
        // CPU 0 stays online, so that there is always a machine.
        offline,
    })
}

fn seeds(cpusets: usize, unmanaged: f64) -> impl Strategy<Value = Vec<Seed>> {
    let rate = prop_oneof![Just(0.5), Just(20.0), Just(150.0), 0.0..200.0f64];
    let seed = (
        0u32..6,
        rate,
        any::<usize>(),
        any::<bool>(),
        proptest::bool::weighted(0.9),
        proptest::bool::weighted(unmanaged),
        0..cpusets,
    );
    let seed = seed.prop_map(
        |(process, rate, cpu, assigned, busy, unmanaged, cpuset)| Seed {
            process,
            rate,
            cpu,
            assigned,
            busy,
            unmanaged,
            cpuset,
        },
    );
    proptest::collection::vec(seed, 0..60)
}

fn scene(shape: &Shape, seeds: &[Seed]) -> Scene {
    let mut scene = Scene::new(shape);
    let cpus: Vec<CpuId> = scene.topology.cpus().iter().map(|cpu| cpu.id).collect();
    // Cpusets that overlap, that are apart, and that have only one CPU.
    let cpuset = |number: usize| -> CpuSet {
        let chosen = |at: usize| match number {
            0 => true,
            1 => at.is_multiple_of(2),
            2 => !at.is_multiple_of(2),
            3 => at == cpus.len() / 2,
            _ => at < cpus.len().div_ceil(2),
        };
        (0..cpus.len())
            .filter(|&at| chosen(at))
            .map(|at| cpus[at])
            .collect()
    };
    let sets: Vec<Arc<CpuSet>> = (0..5).map(|number| Arc::new(cpuset(number))).collect();
    let nodes = u32::try_from(scene.topology.nodes().len()).expect("few nodes");
    for process in 0..6 {
        // Some homes have several processes, some none.
        scene.home(process, "program", process * process % nodes);
    }
    for seed in seeds {
        let cpu = cpus[seed.cpu % cpus.len()];
        let thread = scene.thread(seed.process, seed.rate, cpu.0);
        thread.assigned = seed.assigned.then_some(cpu);
        thread.cpuset = Arc::clone(&sets[seed.cpuset]);
        thread.cpu_share = if seed.busy { 1.0 } else { 0.0 };
        thread.unmanaged = seed.unmanaged.then(|| Unmanaged::other("real-time class"));
    }
    scene
}

fn place(policy: &mut dyn Place, scene: &Scene) -> Vec<Placement> {
    policy.place(
        &scene.snapshot,
        &scene.topology,
        &mut Random::seed_from_u64(3),
    )
}

type Named = (&'static str, Box<dyn Place>);

fn on_stage(name: &'static str, rule: impl PlacementRule + 'static) -> Named {
    (name, Box::new(Staged::new(&Settings::default(), rule)))
}

fn policies() -> Vec<Named> {
    let mut all = policies_with_slots();
    all.push(on_stage("random", RandomCore::default()));
    let mut everybody = Settings::default();
    everybody.brm.candidates = CandidatesBy::All;
    all.push(on_stage("brm", Brm::new(&everybody)));
    all
}

/// The added placements. What holds for all plans must hold for theirs; which threads they place is
/// up to them.
fn added() -> Vec<Named> {
    let lists = crate::added::ALL.iter().skip(1);
    let halves = lists.flat_map(|added| added.placements);
    halves
        .filter_map(|half| {
            Some((
                half.name,
                (half.make)(&Settings::default(), &Means::default())?,
            ))
        })
        .collect()
}

/// Wants threads of high numbers on CPUs of high numbers. Like cores do not cost the same to it: what
/// must hold of every plan holds for any costs.
struct Numbered;

impl CostModel for Numbered {
    fn cost(&self, layout: &[(ThreadId, CpuId)], _: &[Home]) -> Option<f64> {
        let far = |&(thread, cpu): &(ThreadId, CpuId)| f64::from(thread.tid.abs_diff(cpu.0));
        Some(layout.iter().map(far).sum())
    }
}

/// Those that give no CPU more threads than it has slots.
fn policies_with_slots() -> Vec<Named> {
    let settings = Settings::default();
    let mut exchanging = settings.clone();
    exchanging.n_mass.exchange = true;
    let mut few = settings.clone();
    few.oracle.layouts = 20;
    vec![
        on_stage("dino", Dino),
        on_stage("di", DistributedIntensity::default()),
        on_stage("maximum-local", NMass::new(&settings, Steps::MaximumLocal)),
        on_stage("n-mass", NMass::new(&settings, Steps::All)),
        on_stage("n-mass exchanging", NMass::new(&exchanging, Steps::All)),
        on_stage("oracle", Oracle::new(&few, Arc::new(Numbered))),
    ]
}

/// Threads on each CPU that run or are placed there: those that a slot is for.
fn load(scene: &Scene) -> BTreeMap<CpuId, usize> {
    let mut load = BTreeMap::new();
    for thread in scene.snapshot.threads.iter().filter(|t| t.cpu_share > 0.0) {
        *load.entry(thread.place()).or_insert(0) += 1;
    }
    load
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_plan_names_a_thread_once_and_only_cpus_that_it_may_have(
        shape in shapes(), seeds in seeds(5, 0.2),
    ) {
        let scene = scene(&shape, &seeds);
        let all = || policies().into_iter().chain(added());
        for (name, mut policy) in all() {
            let plan = place(policy.as_mut(), &scene);
            let named: BTreeSet<_> = plan.iter().map(|placement| placement.thread).collect();
            prop_assert_eq!(named.len(), plan.len(), "{}", name);
            for placement in &plan {
                let thread = scene.snapshot.thread(placement.thread).expect("a known thread");
                prop_assert!(thread.unmanaged.is_none(), "{}", name);
                prop_assert!(thread.cpuset.contains(placement.to), "{}", name);
                prop_assert!(scene.snapshot.online.contains(placement.to), "{}", name);
                prop_assert_eq!(placement.from, thread.place());
                prop_assert!(!placement.why.is_empty());
            }
            // The same once more from the start.
            let (_, mut again) = all().find(|(n, _)| *n == name).unwrap();
            prop_assert_eq!(place(again.as_mut(), &scene), plan);
        }
    }

    #[test]
    fn every_busy_thread_that_can_be_placed_is(shape in shapes(), seeds in seeds(5, 0.2)) {
        for (name, mut policy) in policies() {
            let mut scene = scene(&shape, &seeds);
            let plan = place(policy.as_mut(), &scene);
            scene.carry_out(&plan);
            for thread in &scene.snapshot.threads {
                let can = thread.unmanaged.is_none()
                    && thread.cpu_share > 0.0
                    && thread.cpuset.intersects(&scene.snapshot.online);
                if can {
                    let core = thread.assigned.expect("a thread that can be placed is");
                    prop_assert!(scene.snapshot.online.contains(core), "{}", name);
                }
            }
        }
    }

    #[test]
    fn nothing_moves_when_nothing_changed(shape in shapes(), seeds in seeds(5, 0.2)) {
        for (name, mut policy) in policies() {
            let mut scene = scene(&shape, &seeds);
            let plan = place(policy.as_mut(), &scene);
            scene.carry_out(&plan);
            for _ in 0..3 {
                prop_assert_eq!(place(policy.as_mut(), &scene), [], "{}", name);
            }
            // Nor when the policy starts anew; what is drawn or searched for may then differ.
            if name != "random" && name != "oracle" {
                let (_, mut anew) = policies().into_iter().find(|(n, _)| *n == name).unwrap();
                prop_assert_eq!(place(anew.as_mut(), &scene), [], "{}", name);
            }
        }
    }

    #[test]
    fn threads_that_fall_asleep_are_given_back_once(
        shape in shapes(), seeds in seeds(1, 0.0),
    ) {
        for (name, mut policy) in policies_with_slots() {
            let mut scene = scene(&shape, &seeds);
            let plan = place(policy.as_mut(), &scene);
            scene.carry_out(&plan);
            let given = |scene: &Scene| -> Vec<ThreadId> {
                let given = scene.snapshot.threads.iter().filter(|t| t.assigned.is_some());
                given.map(|thread| thread.id).collect()
            };
            let placed = given(&scene);
            scene.snapshot.threads.iter_mut().for_each(|thread| thread.cpu_share = 0.0);
            let mut released = Vec::new();
            for interval in 1..=10 {
                prop_assert_eq!(place(policy.as_mut(), &scene), [], "{}", name);
                for release in policy.release(&scene.snapshot) {
                    // Some were quiet before.
                    prop_assert!(interval >= 6, "{name}: a few quiet intervals give nobody back");
                    released.push(release.thread);
                }
                for thread in &mut scene.snapshot.threads {
                    thread.assigned = thread.assigned.filter(|_| !released.contains(&thread.id));
                }
            }
            released.sort_unstable();
            prop_assert_eq!(released, placed, "{}", name);
        }
    }

    #[test]
    fn slots_are_never_exceeded(shape in shapes(), seeds in seeds(1, 0.2)) {
        for (name, mut policy) in policies_with_slots() {
            let mut scene = scene(&shape, &seeds);
            let held: BTreeMap<CpuId, usize> = {
                let mut held = scene.clone();
                held.snapshot.threads.retain(|thread| thread.unmanaged.is_some());
                load(&held)
            };
            let plan = place(policy.as_mut(), &scene);
            scene.carry_out(&plan);
            let load = load(&scene);
            let online = |cpu: &CpuId| scene.snapshot.online.contains(*cpu);
            let threads: usize = load.iter().filter(|(cpu, _)| online(cpu)).map(|(_, n)| n).sum();
            let slots = threads.div_ceil(scene.snapshot.online.len());
            for (cpu, &threads) in load.iter().filter(|(cpu, _)| online(cpu)) {
                let most = slots.max(held.get(cpu).copied().unwrap_or(0));
                prop_assert!(threads <= most, "{name}: {threads} threads on CPU {cpu} of {most}");
            }
        }
    }

    #[test]
    fn no_two_threads_share_a_core_while_another_is_free(
        shape in shapes(), seeds in seeds(1, 0.0),
    ) {
        for (name, mut policy) in policies_with_slots() {
            let mut scene = scene(&shape, &seeds);
            let plan = place(policy.as_mut(), &scene);
            scene.carry_out(&plan);
            let core_of = |cpu: CpuId| scene.topology.cpu(cpu).expect("known").core;
            let mut by_core: BTreeMap<_, usize> = BTreeMap::new();
            for cpu in scene.snapshot.online.iter() {
                by_core.entry(core_of(cpu)).or_insert(0);
            }
            for (cpu, threads) in load(&scene) {
                *by_core.entry(core_of(cpu)).or_insert(0) += threads;
            }
            let (most, least) = (by_core.values().max().unwrap(), by_core.values().min().unwrap());
            prop_assert!(*most < 2 || *least > 0, "{}: {:?}", name, by_core);
        }
    }
}
