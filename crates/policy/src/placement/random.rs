//! Random: each thread gets a random core once, and keeps it.
//!
//! Problem: how much placement matters at all for a program. It shows in the spread over several seeds
//! of mappings drawn by chance, each of which holds for the whole run. This is not a thread that is
//! thrown around every interval; that would measure the cost of moving.
//!
//! Rule: the first time a steerable thread is seen, it is given a CPU drawn evenly from those that
//! are online and in its cpuset. It is drawn again only when that CPU cannot be had any more.
//! Threads that sleep are placed too: a random mapping knows nothing of load.
//!
//! Terms: none of its own. Source: the baseline of that name in the papers (IPM 5.3: "random").
//!
//! Properties: same seed and same snapshots, same plans; a thread is drawn for once while its CPU
//! can be had; never a CPU that is offline or outside the cpuset.

use std::borrow::Cow;

use numaherd_topology::{CpuId, Topology};
use numaherd_world::{Placement, Signal, Snapshot};
use rand::Rng;

use crate::memory::PerThread;
use crate::policy::{Place, Random as Generator};
use crate::pools::pools;
use crate::rules::Rule;

/// The rules that plans name.
pub const RULES: &[Rule] = &[DRAW];
const DRAW: Rule = Rule {
    name: "random: draw once",
    source: "baseline of the papers",
    what: "The thread gets a CPU drawn evenly from those it may have, and keeps it.",
};

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct RandomCore {
    drawn: PerThread<Option<CpuId>>,
}

impl Place for RandomCore {
    fn needs(&self) -> &[Signal] {
        &[]
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Generator,
    ) -> Vec<Placement> {
        let drawn = self.drawn.line_up(&snapshot.threads);
        let mut placements = Vec::new();
        for pool in pools(snapshot, topology) {
            let cpus: Vec<CpuId> = pool.cpus.iter().collect();
            for index in pool.threads {
                let thread = &snapshot.threads[index];
                let core = match drawn[index] {
                    Some(core) if pool.cpus.contains(core) => core,
                    _ => *drawn[index].insert(cpus[random.random_range(0..cpus.len())]),
                };
                if thread.assigned == Some(core) {
                    continue;
                }
                placements.push(Placement {
                    thread: thread.id,
                    from: thread.place(),
                    to: core,
                    rule: Cow::Borrowed(DRAW.name),
                    why: format!("drawn from the {} CPUs it may have", cpus.len()),
                    instead_of: String::new(),
                });
            }
        }
        placements.sort_unstable_by_key(|placement| placement.thread);
        placements
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::{Scene, Shape};
    use rand::SeedableRng;
    use std::sync::Arc;

    fn scene() -> Scene {
        let mut scene = Scene::new(&Shape {
            offline: vec![3],
            ..Shape::uniform(4, 2)
        });
        for cpu in 0..6 {
            scene.thread(cpu, 1.0, cpu);
        }
        scene
    }

    fn plan(policy: &mut RandomCore, scene: &Scene, seed: u64) -> Vec<Placement> {
        let mut random = Generator::seed_from_u64(seed);
        policy.place(&scene.snapshot, &scene.topology, &mut random)
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let plan = |seed| plan(&mut RandomCore::default(), &scene(), seed);
        assert_eq!(plan(7), plan(7));
        assert!((0..20).any(|seed| plan(seed) != plan(7)));
    }

    #[test]
    fn a_thread_keeps_what_was_drawn_until_it_cannot_be_had() {
        let mut scene = scene();
        let mut policy = RandomCore::default();
        let first = plan(&mut policy, &scene, 1);
        assert_eq!(first.len(), 6);
        assert!(first.iter().all(|placement| placement.to != CpuId(3)));
        scene.carry_out(&first);
        assert_eq!(plan(&mut policy, &scene, 2), []);
        let only = CpuId((first[0].to.0 + 1) % 3);
        scene.snapshot.threads[0].cpuset = Arc::new([only].into_iter().collect());
        let again = plan(&mut policy, &scene, 3);
        assert_eq!(again.iter().map(|p| p.to).collect::<Vec<_>>(), [only]);
    }
}
