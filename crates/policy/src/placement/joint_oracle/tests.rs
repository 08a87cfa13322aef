//! That the joint oracle finds what is there to be found, threads and pages together.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::placement::oracle::Oracle;
use crate::policy::Place;
use crate::settings::Settings;
use crate::stage::Staged;
use numaherd_testing::{Scene, tid};
use numaherd_topology::NodeId;
use numaherd_world::Placement;
use proptest::prelude::*;
use rand::SeedableRng;

/// A world with a memory part per thread, in which lines cost by distance, and threads and pages by how many
/// share a node.
#[derive(Clone, Debug)]
struct Costs {
    topology: Topology,
    /// What a thread pays for remote memory.
    remote: Vec<f64>,
    /// What it pays for each other thread of its node.
    crowd: Vec<f64>,
    /// What it pays for the square of the traffic of each node it reads from.
    traffic: Vec<f64>,
    /// Where its memory is now.
    at: Vec<u32>,
}

impl CostModel for Costs {
    fn parts(&self) -> Vec<MemoryPart> {
        let part = |number: u32| MemoryPart {
            process: Scene::process(number),
            thread: tid(number),
            is_shared: false,
            runs: std::iter::once(u64::from(number) * 1000..u64::from(number) * 1000 + 100)
                .collect(),
        };
        (0..self.at.len() as u32).map(part).collect()
    }

    fn cost(&self, layout: &[(ThreadId, CpuId)], homes: &[Home]) -> Option<f64> {
        let shares = |thread: usize| -> Vec<(NodeId, f64)> {
            let here = vec![(NodeId(self.at[thread]), 1)];
            let home = homes[thread].as_ref().unwrap_or(&here);
            let all: u32 = home.iter().map(|&(_, weight)| weight).sum();
            let share =
                |&(node, weight): &(NodeId, u32)| (node, f64::from(weight) / f64::from(all));
            home.iter().map(share).collect()
        };
        let mut traffic = vec![0.0; self.topology.nodes().len()];
        for &(thread, _) in layout {
            for (node, share) in shares(thread.tid as usize) {
                traffic[node.0 as usize] += share;
            }
        }
        let mut cost = 0.0;
        for &(thread, cpu) in layout {
            let node = self.topology.node_of(cpu)?;
            let at = thread.tid as usize;
            for (home, share) in shares(at) {
                cost += share * traffic[home.0 as usize] * self.traffic[at];
                cost += if home == node {
                    0.0
                } else {
                    share * self.remote[at]
                };
            }
            let others = layout.iter().filter(|&&(other, there)| {
                other != thread && self.topology.node_of(there) == Some(node)
            });
            cost += others.count() as f64 * self.crowd[at];
        }
        Some(cost)
    }
}

fn scene(nodes: usize, cpus: &[u32], at: &[u32]) -> Scene {
    let mut scene = Scene::uniform(nodes, 2);
    for ((process, &cpu), &home) in (0..).zip(cpus).zip(at) {
        scene.thread(process, 10.0, cpu).assigned = Some(CpuId(cpu));
        scene.home(process, "program", home);
    }
    scene
}

fn decide(scene: &Scene, costs: &Costs, most: usize) -> (Vec<Placement>, Vec<PageOrder>) {
    let mut settings = Settings::default();
    settings.oracle.layouts = most;
    let oracle = Oracle::joint(&settings, Arc::new(costs.clone()));
    let mut policy = Staged::new(&Settings::default(), oracle);
    let mut random = Random::seed_from_u64(0);
    let placements = policy.place(&scene.snapshot, &scene.topology, &mut random);
    let pages = policy.pages(&scene.snapshot);
    assert_eq!(policy.pages(&scene.snapshot), [], "told once");
    (placements, pages)
}

/// What the decision would cost, as the world has it: pages by the orders.
fn decided_cost(scene: &Scene, costs: &Costs, decided: &(Vec<Placement>, Vec<PageOrder>)) -> f64 {
    let layout: Vec<(ThreadId, CpuId)> = scene
        .snapshot
        .threads
        .iter()
        .map(|thread| {
            let to = decided
                .0
                .iter()
                .find(|placement| placement.thread == thread.id);
            (
                thread.id,
                to.map_or(thread.place(), |placement| placement.to),
            )
        })
        .collect();
    let mut homes: Vec<Home> = vec![None; costs.at.len()];
    for order in &decided.1 {
        let Pages::Window { count, .. } = order.pages else {
            panic!("orders name pages");
        };
        let home = homes[order.process.pid as usize].get_or_insert_default();
        home.push((order.to, count as u32));
    }
    costs.cost(&layout, &homes).unwrap()
}

/// The least cost of any threads on any free CPUs with memory spread by quarters in any way.
fn least(scene: &Scene, costs: &Costs) -> f64 {
    let threads = costs.at.len();
    let cpus: Vec<CpuId> = scene.topology.cpus().iter().map(|cpu| cpu.id).collect();
    let nodes: Vec<NodeId> = scene.topology.nodes().iter().map(|node| node.id).collect();
    assert_eq!(nodes.len(), 2);
    let mut least = f64::INFINITY;
    for code in 0..cpus.len().pow(threads as u32) {
        let on: Vec<CpuId> = (0..threads)
            .map(|thread| cpus[code / cpus.len().pow(thread as u32) % cpus.len()])
            .collect();
        if on.iter().collect::<BTreeSet<_>>().len() < threads {
            continue;
        }
        let layout: Vec<_> = (0..threads as u32).map(tid).zip(on).collect();
        for code in 0..5_usize.pow(threads as u32) {
            let quarters = |thread: usize| code / 5_usize.pow(thread as u32) % 5;
            let home = |thread| {
                let first = quarters(thread) as u32;
                Some(vec![(nodes[0], first), (nodes[1], 4 - first)])
            };
            let homes: Vec<Home> = (0..threads).map(home).collect();
            least = least.min(costs.cost(&layout, &homes).unwrap());
        }
    }
    least
}

fn worlds(threads: usize) -> impl Strategy<Value = (Scene, Costs)> {
    let figures = move || proptest::collection::vec(0.0..4.0_f64, threads);
    let homes = proptest::collection::vec(0..2_u32, threads);
    let cpus = Just((0..4_u32).collect::<Vec<_>>()).prop_shuffle();
    (figures(), figures(), figures(), homes, cpus).prop_map(
        move |(remote, crowd, traffic, at, cpus)| {
            let scene = scene(2, &cpus[..threads], &at);
            let costs = Costs {
                topology: scene.topology.clone(),
                remote,
                crowd,
                traffic,
                at,
            };
            (scene, costs)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn where_all_are_tried_nothing_costs_less((scene, costs) in worlds(3)) {
        let decided = decide(&scene, &costs, 20_000);
        let found = decided_cost(&scene, &costs, &decided);
        let least = least(&scene, &costs);
        prop_assert!((found - least).abs() < 1e-9 * least.max(1.0), "{found}, not {least}");
        let named = decided.0.iter().map(|placement| &placement.rule);
        prop_assert!(named.chain(decided.1.iter().map(|order| &order.rule)).all(|rule| rule == BEST.name));
    }

    #[test]
    fn a_local_search_is_no_worse_than_memory_that_stays_or_follows((scene, costs) in worlds(4)) {
        let decided = decide(&scene, &costs, 400);
        let found = decided_cost(&scene, &costs, &decided);
        let now: Vec<_> = scene.snapshot.threads.iter().map(|t| (t.id, t.place())).collect();
        let with = |node_of: &dyn Fn(usize) -> NodeId| -> f64 {
            let homes: Vec<Home> = (0..4).map(|t| Some(vec![(node_of(t), 1)])).collect();
            costs.cost(&now, &homes).unwrap()
        };
        let follows = with(&|thread| scene.topology.node_of(now[thread].1).unwrap());
        let limit = costs.cost(&now, &[None, None, None, None]).unwrap().min(follows);
        prop_assert!(found <= limit + 1e-9, "{found} above {limit}");
        let least = least(&scene, &costs);
        prop_assert!(found >= least - 1e-9);
    }
}

#[test]
fn what_stays_is_in_no_order_and_what_is_spread_is_dealt_in_order() {
    // Alone on the machine: memory that is remote comes home, or the thread goes to it.
    let costs = |traffic| Costs {
        topology: Scene::uniform(2, 2).topology,
        remote: vec![1.0],
        crowd: vec![0.0],
        traffic: vec![traffic],
        at: vec![0],
    };
    let there = scene(2, &[0], &[0]);
    assert_eq!(decide(&there, &costs(0.0), 1000), (Vec::new(), Vec::new()));
    // Where traffic costs more than distance, memory is spread: x^2 + (1 - x)^2 times 4, and 1 - x for distance.
    let (placements, pages) = decide(&there, &costs(4.0), 1000);
    assert_eq!(placements, []);
    let told: Vec<_> = pages
        .iter()
        .map(|order| (order.pages, order.to.0))
        .collect();
    let window = |first, count| Pages::Window { first, count };
    // The half and three quarters cost 2.5 and 2.75.
    assert_eq!(told, [(window(0, 50), 0), (window(50, 50), 1)]);
    assert_eq!(
        pages[1].why,
        "with 2 of 4 parts on node 1, layout and memory cost 2.5000"
    );
}

#[test]
fn a_plan_says_what_was_tried_and_the_bound() {
    struct Bounded(Costs);
    impl CostModel for Bounded {
        fn parts(&self) -> Vec<MemoryPart> {
            self.0.parts()
        }
        fn cost(&self, layout: &[(ThreadId, CpuId)], homes: &[Home]) -> Option<f64> {
            self.0.cost(layout, homes)
        }
        fn joint_least(&self, _: &[ThreadId]) -> Option<f64> {
            Some(0.5)
        }
    }
    // Two threads that crowd each other on node 0.
    let scene = scene(2, &[0, 1], &[0, 0]);
    let costs = Costs {
        topology: scene.topology.clone(),
        remote: vec![1.0, 1.0],
        crowd: vec![3.0, 3.0],
        traffic: vec![1.0, 1.0],
        at: vec![0, 0],
    };
    let told = |most: usize| {
        let mut settings = Settings::default();
        settings.oracle.layouts = most;
        let oracle = Oracle::joint(&settings, Arc::new(Bounded(costs.clone())));
        let mut policy = Staged::new(&Settings::default(), oracle);
        let mut random = Random::seed_from_u64(0);
        let plan = policy.place(&scene.snapshot, &scene.topology, &mut random);
        plan[0].why.clone()
    };
    // Three layouts (both nodes, or one of two), with five homes and staying for each of two.
    let all = told(1000);
    assert!(
        all.starts_with("layout and memory cost 2.0000, the least of all ")
            && all.ends_with(" pairs of a layout and homes of memory"),
        "{all}"
    );
    let few = told(60);
    assert!(few.ends_with("; none can cost less than 0.5000"), "{few}");
}
