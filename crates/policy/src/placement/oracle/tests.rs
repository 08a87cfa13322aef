//! That the oracle finds what is there to be found, and says what it did.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::layouts::Space;
use super::*;
use crate::cost_model::Home;
use crate::policy::Place;
use crate::pools::Taken;
use crate::stage::Staged;
use numaherd_testing::{Scene, Shape};
use numaherd_topology::CpuSet;
use numaherd_world::{Placement, ThreadId};
use proptest::prelude::*;
use rand::{Rng, SeedableRng};

/// A world in which a thread (by number) has a cost on each domain, and two threads one for what
/// they share.
#[derive(Clone, Debug)]
struct Costs {
    topology: Topology,
    alone: Vec<Vec<f64>>,
    domain: Vec<Vec<f64>>,
    core: f64,
    cpu: f64,
}

impl CostModel for Costs {
    fn cost(&self, layout: &[(ThreadId, CpuId)], _: &[Home]) -> Option<f64> {
        let mut cost = 0.0;
        for (place, &(thread, on)) in layout.iter().enumerate() {
            let (thread, on) = (thread.tid as usize, self.topology.cpu(on)?);
            cost += self.alone[thread][on.domain.index()];
            for &(other, there) in &layout[..place] {
                let (other, there) = (other.tid as usize, self.topology.cpu(there)?);
                let pair = self.domain[thread.max(other)][thread.min(other)];
                if on.domain == there.domain {
                    cost += pair;
                }
                if on.core == there.core {
                    cost += pair * self.core;
                }
                if on.id == there.id {
                    cost += pair * self.cpu;
                }
            }
        }
        Some(cost)
    }
}

/// Costs from a function of the layout; counts how often it was asked.
struct By<F> {
    cost: F,
    least: Option<f64>,
    asked: Arc<AtomicUsize>,
}

impl<F: Fn(&[(ThreadId, CpuId)]) -> Option<f64> + Send + Sync> CostModel for By<F> {
    fn cost(&self, layout: &[(ThreadId, CpuId)], _: &[Home]) -> Option<f64> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (self.cost)(layout)
    }

    fn least(&self, _: &[ThreadId]) -> Option<f64> {
        self.least
    }
}

fn oracle(
    settings: &Settings,
    least: Option<f64>,
    cost: impl Fn(&[(ThreadId, CpuId)]) -> Option<f64> + Send + Sync + 'static,
) -> (Staged<Oracle>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let by = By {
        cost,
        least,
        asked: Arc::clone(&asked),
    };
    (on_stage(Oracle::new(settings, Arc::new(by))), asked)
}

fn on_stage(oracle: Oracle) -> Staged<Oracle> {
    Staged::new(&Settings::default(), oracle)
}

fn place(policy: &mut Staged<Oracle>, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    policy.place(&scene.snapshot, &scene.topology, &mut random)
}

/// How many threads are not in the domain planted for them; domains of two CPUs.
fn off_by(planted: &'static [u32]) -> impl Fn(&[(ThreadId, CpuId)]) -> Option<f64> {
    move |layout| {
        let off = |&&(thread, cpu): &&(ThreadId, CpuId)| cpu.0 / 2 != planted[thread.tid as usize];
        Some(layout.iter().filter(off).count() as f64)
    }
}

/// Threads on CPUs, all given theirs.
fn seated(domains: usize, cores: u32, cpus: &[u32]) -> Scene {
    let mut scene = Scene::uniform(domains, cores);
    for (process, &cpu) in (0..).zip(cpus) {
        scene.thread(process, 10.0, cpu).assigned = Some(CpuId(cpu));
        scene.home(process, "program", 0);
    }
    scene
}

#[test]
fn all_layouts_of_eight_threads_are_tried_and_the_planted_one_is_found() {
    let mut scene = seated(4, 2, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let planted = &[3, 0, 1, 2, 2, 1, 0, 3];
    let (mut oracle, asked) = oracle(&Settings::default(), None, off_by(planted));
    let plan = place(&mut oracle, &scene);
    // 8! / 2!^4, and where the threads are beforehand.
    assert_eq!(asked.load(Ordering::Relaxed), 2520 + 1);
    scene.carry_out(&plan);
    let domains: Vec<u32> = scene.places().iter().map(|cpu| cpu / 2).collect();
    assert_eq!(domains, planted);
    assert!(plan.iter().all(|p| p.rule == "oracle: best of all"));
    assert_eq!(
        plan[0].why,
        "the layout costs 0.0000, the least of all 2520 layouts"
    );
    assert_eq!(plan[0].instead_of, "CPU 0: part of a layout of cost 4.0000");
    assert_eq!(place(&mut oracle, &scene), [], "nothing has changed");
}

#[test]
fn threads_that_are_well_placed_stay_on_their_cpus() {
    // Thread 2 is to leave domain 0 for domain 1; the others keep their CPUs, odd as they are.
    let mut scene = seated(3, 4, &[3, 9, 1, 6]);
    let cost = |layout: &[(ThreadId, CpuId)]| {
        let planted = [0, 2, 1, 1];
        let off = layout
            .iter()
            .filter(|(t, cpu)| cpu.0 / 4 != planted[t.tid as usize]);
        Some(off.count() as f64)
    };
    let plan = place(&mut oracle(&Settings::default(), None, cost).0, &scene);
    let moved: Vec<u32> = plan.iter().map(|p| p.thread.tid).collect();
    assert_eq!(moved, [2]);
    scene.carry_out(&plan);
    assert_eq!(scene.places(), [3, 9, 4, 6]);
}

#[test]
fn where_all_cost_the_same_nobody_moves() {
    let scene = seated(4, 2, &[0, 1, 6]);
    assert_eq!(
        place(
            &mut oracle(&Settings::default(), None, |_| Some(1.0)).0,
            &scene
        ),
        []
    );
}

#[test]
fn a_world_that_cannot_tell_moves_nobody_and_is_asked_again() {
    let scene = seated(2, 2, &[0, 1]);
    let (mut oracle, asked) = oracle(&Settings::default(), None, |_| None);
    assert_eq!(place(&mut oracle, &scene), []);
    let once = asked.load(Ordering::Relaxed);
    assert_eq!(place(&mut oracle, &scene), []);
    assert_eq!(asked.load(Ordering::Relaxed), 2 * once);
}

#[test]
fn it_asks_only_when_something_changed() {
    let mut scene = seated(2, 2, &[0, 1]);
    let (mut oracle, asked) = oracle(&Settings::default(), None, off_by(&[0, 1]));
    let plan = place(&mut oracle, &scene);
    scene.carry_out(&plan);
    let once = asked.load(Ordering::Relaxed);
    scene.set_miss_rate(0, 11.9);
    assert_eq!(place(&mut oracle, &scene), []);
    assert_eq!(asked.load(Ordering::Relaxed), once);
    scene.set_miss_rate(0, 12.1);
    assert_eq!(place(&mut oracle, &scene), [], "it is where it is to be");
    assert_eq!(asked.load(Ordering::Relaxed), 2 * once);
    scene.home(1, "program", 1);
    assert_eq!(place(&mut oracle, &scene), []);
    assert_eq!(asked.load(Ordering::Relaxed), 3 * once);
}

#[test]
fn beyond_what_may_be_tried_it_searches_from_good_starts_and_says_so() {
    // Everything on one domain costs most; 16 threads on 4 domains of 8.
    let scene = seated(4, 8, &[0; 16]);
    let crowd = |layout: &[(ThreadId, CpuId)]| {
        let on = |domain: u32| layout.iter().filter(|(_, cpu)| cpu.0 / 8 == domain).count();
        Some((0..4).map(|domain| on(domain).pow(2)).sum::<usize>() as f64)
    };
    let mut settings = Settings::default();
    settings.oracle.layouts = 5000;
    let (mut policy, asked) = oracle(&settings, Some(64.0), crowd);
    let plan = place(&mut policy, &scene);
    assert!(asked.load(Ordering::Relaxed) <= 5000);
    assert!(plan.iter().all(|p| p.rule == "oracle: best found"));
    let why = &plan[0].why;
    assert!(
        why.starts_with("the layout costs 64.0000, the least of "),
        "{why}"
    );
    let ended = " layouts tried by local search, which ended where no change lowers it; none can cost \
                 less than 64.0000";
    assert!(why.ends_with(ended), "{why}");
    settings.oracle.layouts = 10;
    let (mut policy, asked) = oracle(&settings, None, crowd);
    let why = place(&mut policy, &scene).remove(0).why;
    assert_eq!(asked.load(Ordering::Relaxed), 10);
    let ended = "which ended when no more may be tried; how much less another would cost is not \
                 known";
    assert!(why.ends_with(ended), "{why}");
}

#[test]
fn pools_are_laid_out_on_their_own_cpus() {
    let mut scene = seated(2, 2, &[0, 0, 1, 1]);
    let cpus = |cpus: [u32; 2]| -> Arc<CpuSet> { Arc::new(cpus.map(CpuId).into_iter().collect()) };
    for (thread, cpus) in [cpus([0, 2]), cpus([0, 2]), cpus([1, 3]), cpus([1, 3])]
        .into_iter()
        .enumerate()
    {
        scene.snapshot.threads[thread].cpuset = cpus;
    }
    let (mut oracle, _) = oracle(&Settings::default(), None, off_by(&[1, 0, 1, 0]));
    let plan = place(&mut oracle, &scene);
    scene.carry_out(&plan);
    assert_eq!(scene.places(), [2, 0, 3, 1]);
}

/// A machine, threads with CPUs, and costs.
#[derive(Clone)]
struct Case {
    scene: Scene,
    costs: Costs,
}

fn cases(most_cpus: u32, threads: std::ops::Range<usize>) -> impl Strategy<Value = Case> {
    let node = proptest::collection::vec(1u32..3, 1..3);
    let shape = (proptest::collection::vec(node, 1..4), 1u32..3);
    let shape = shape.prop_filter("few CPUs", move |(nodes, siblings)| {
        nodes.iter().flatten().sum::<u32>() * siblings <= most_cpus
    });
    let row = || proptest::collection::vec(0.0..10.0f64, 24);
    let rows = || proptest::collection::vec(row(), 24);
    let cpus = proptest::collection::vec(any::<prop::sample::Index>(), threads);
    (shape, cpus, rows(), rows(), 0.0..2.0f64, 0.0..5.0f64).prop_map(
        |((nodes, siblings), cpus, alone, domain, core, cpu)| {
            let mut scene = Scene::new(&Shape {
                nodes,
                siblings,
                offline: Vec::new(),
            });
            let all = scene.topology.cpus().len();
            for (process, on) in (0..).zip(&cpus) {
                let on = u32::try_from(on.index(all)).expect("few CPUs");
                scene.thread(process, 10.0, on).assigned = Some(CpuId(on));
            }
            let costs = Costs {
                topology: scene.topology.clone(),
                alone,
                domain,
                core,
                cpu,
            };
            Case { scene, costs }
        },
    )
}

fn slots(scene: &Scene) -> PoolSlots {
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    PoolSlots::new(&stage, &stage.pools[0], &Taken::default())
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cpus = self.scene.topology.cpus().iter();
        let cpus: Vec<_> = cpus.map(|cpu| (cpu.id, cpu.core, cpu.domain)).collect();
        write!(f, "CPUs {cpus:?}, threads on {:?}", self.scene.places())
    }
}

impl Case {
    fn layout_cost(&self, slots: &PoolSlots, layout: &[At]) -> f64 {
        let ids = self.scene.snapshot.threads.iter().map(|thread| thread.id);
        let layout: Vec<_> = ids.zip(layout.iter().map(|&at| slots.cpu(at))).collect();
        self.costs.cost(&layout, &[]).expect("it can be told")
    }

    /// Which threads share what: by domain the cores, by core the CPUs, by CPU the threads.
    fn signature(&self, layout: &[CpuId]) -> Vec<BTreeSet<Vec<Vec<usize>>>> {
        let topology = &self.scene.topology;
        let on = |cpu: CpuId| -> Vec<usize> {
            (0..layout.len()).filter(|&t| layout[t] == cpu).collect()
        };
        let cores = |cores: &[numaherd_topology::CoreId]| {
            let core = |id: &numaherd_topology::CoreId| {
                let mut cpus: Vec<Vec<usize>> =
                    topology.cores()[id.index()].cpus.iter().map(on).collect();
                cpus.sort();
                cpus
            };
            cores.iter().map(core).collect()
        };
        topology.domains().iter().map(|d| cores(&d.cores)).collect()
    }

    /// Whether no thread could have a better slot: fewer threads on its CPU, then on its core.
    fn is_even(&self, layout: &[CpuId]) -> bool {
        let (mut worst, mut best_free) = ((0, 0), (usize::MAX, 0));
        for core in self.scene.topology.cores() {
            let on = |cpu: CpuId| layout.iter().filter(|&&c| c == cpu).count();
            let mut loads: Vec<usize> = core.cpus.iter().map(on).collect();
            loads.sort_unstable_by_key(|&load| std::cmp::Reverse(load));
            for (tier, &load) in loads.iter().enumerate() {
                if load > 0 {
                    worst = worst.max((load - 1, tier));
                }
                best_free = best_free.min((load, tier));
            }
        }
        worst <= best_free
    }

    /// All even layouts, CPU by CPU.
    fn all_even(&self) -> Vec<Vec<CpuId>> {
        let cpus = self.scene.topology.cpus();
        let threads = self.scene.snapshot.threads.len();
        let mut all: Vec<Vec<CpuId>> = vec![Vec::new()];
        for _ in 0..threads {
            let longer = |layout: &Vec<CpuId>| -> Vec<Vec<CpuId>> {
                let with = |cpu: CpuId| [layout.clone(), vec![cpu]].concat();
                cpus.iter().map(|cpu| with(cpu.id)).collect()
            };
            all = all.iter().flat_map(longer).collect();
        }
        all.retain(|layout| self.is_even(layout));
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn all_layouts_up_to_symmetry_are_all_and_each_once(case in cases(6, 1..6)) {
        let slots = slots(&case.scene);
        let threads = case.scene.snapshot.threads.len();
        let space = Space::new(&slots, &case.scene.topology, threads);
        let mut walked = Vec::new();
        let _ = space.walk(|board| {
            let layout = space.layout(board);
            let cpus: Vec<CpuId> = layout.iter().map(|&at| slots.cpu(at)).collect();
            walked.push(cpus);
            std::ops::ControlFlow::Continue(())
        });
        prop_assert!(walked.iter().all(|layout| case.is_even(layout)));
        let once: BTreeSet<_> = walked.iter().map(|l| case.signature(l)).collect();
        prop_assert_eq!(once.len(), walked.len(), "one was walked through twice");
        let all: BTreeSet<_> = case.all_even().iter().map(|l| case.signature(l)).collect();
        prop_assert_eq!(once, all);
        prop_assert_eq!(space.count_up_to(walked.len()), Some(walked.len()));
        prop_assert_eq!(space.count_up_to(walked.len() - 1), None);
    }

    #[test]
    fn an_even_layout_is_kept_but_for_names(case in cases(8, 1..12), seed in any::<u64>()) {
        let slots = slots(&case.scene);
        let threads = case.scene.snapshot.threads.len();
        let space = Space::new(&slots, &case.scene.topology, threads);
        // One of all, as far as a walk in another order of CPUs gets.
        let mut board = space.empty();
        let mut random = Random::seed_from_u64(seed);
        for _ in 0..threads {
            let options = space.options(&board);
            space.push(&mut board, options[random.random_range(0..options.len())]);
        }
        let cpus = |board: &layouts::Board| -> Vec<CpuId> {
            space.layout(board).iter().map(|&at| slots.cpu(at)).collect()
        };
        let even = cpus(&board);
        let wishes: Vec<_> = space.layout(&board).into_iter().map(Some).collect();
        prop_assert_eq!(case.signature(&cpus(&space.board(&wishes))), case.signature(&even));
        let renamed = space.renamed(&board, &slots.sits);
        prop_assert_eq!(case.signature(&cpus(&renamed)), case.signature(&even));
        // Threads that are where they are to be keep their names.
        prop_assert_eq!(cpus(&space.renamed(&board, &wishes)), even);
    }

    #[test]
    fn what_is_found_costs_as_little_as_the_best_of_all_assignments(case in cases(6, 1..6)) {
        let mut oracle = on_stage(Oracle::new(&Settings::default(), Arc::new(case.costs.clone())));
        let mut scene = case.scene.clone();
        let plan = place(&mut oracle, &scene);
        scene.carry_out(&plan);
        let threads = scene.snapshot.threads.iter();
        let layout: Vec<_> = threads.map(|thread| (thread.id, thread.place())).collect();
        let found = case.costs.cost(&layout, &[]).expect("it can be told");
        let ids: Vec<ThreadId> = layout.iter().map(|&(id, _)| id).collect();
        let costs = case.all_even().into_iter().map(|layout| {
            let layout: Vec<_> = ids.iter().copied().zip(layout).collect();
            case.costs.cost(&layout, &[]).expect("it can be told")
        });
        let best = costs.fold(f64::INFINITY, f64::min);
        prop_assert!((found - best).abs() < 1e-9 * best.max(1.0), "{found}, best {best}");
        // And it rests there.
        prop_assert_eq!(place(&mut on_stage(Oracle::new(&Settings::default(), Arc::new(case.costs))), &scene), []);
    }

    #[test]
    fn local_search_is_never_worse_than_its_starts_and_never_tries_too_many(
        case in cases(24, 6..24), most in 6usize..300, seed in any::<u64>(),
    ) {
        let slots = slots(&case.scene);
        let threads = case.scene.snapshot.threads.len();
        let items: Vec<Item> = (0..threads)
            .map(|n| Item { home: NodeId(0), miss_rate: n as f64, penalty: 1.2 })
            .collect();
        let topology = &case.scene.topology;
        let starts = starts(&slots, topology, &items, &NMassSettings::default());
        let space = Space::new(&slots, topology, threads);
        let asked = std::cell::Cell::new(0);
        let cost = |layout: &[At]| {
            asked.set(asked.get() + 1);
            Some(case.layout_cost(&slots, layout))
        };
        let mut random = Random::seed_from_u64(seed);
        let found = search::search(&space, &slots, &starts, most, cost, &mut random);
        let found = found.expect("costs can be told");
        // One more where all are tried: where the threads are comes first.
        prop_assert!(asked.get() <= most + 1);
        prop_assert!((case.layout_cost(&slots, &found.layout) - found.cost).abs() < 1e-9 * found.cost);
        for start in starts {
            // A start that does not load cores evenly is made to.
            let wishes: Vec<_> = start.into_iter().map(Some).collect();
            let start = space.layout(&space.board(&wishes));
            let cost = case.layout_cost(&slots, &start);
            prop_assert!(found.cost <= cost * (1.0 + 2e-9), "{} {cost}", found.cost);
        }
        let cpus: Vec<CpuId> = found.layout.iter().map(|&at| slots.cpu(at)).collect();
        prop_assert!(case.is_even(&cpus));
    }
}
