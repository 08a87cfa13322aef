//! Random: each thread gets a random core once, and keeps it.
//!
//! Problem: how much does placement matter for a program? The spread over several seeds shows it, if each
//! random mapping holds for the whole run. A thread that got another random core every interval would measure
//! the cost of moving instead.
//!
//! Rule: when a thread that may be placed is first seen, it gets a CPU drawn evenly from those that are online
//! and in its cpuset. It is drawn again only when that CPU is no longer available. Idle threads are placed
//! too: a random mapping ignores load.
//!
//! Terms: none of its own. Source: the baseline of that name in the papers (IPM 5.3: "random").
//!
//! Properties: the same seed and the same snapshots give the same plans; a thread is drawn once while its CPU
//! is available; never a CPU that is offline or outside the cpuset.

use numaherd_topology::CpuId;
use rand::Rng;

use crate::memory::PerThread;
use crate::policy::{Needs, Random as Generator};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;

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

impl PlacementRule for RandomCore {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn seat(&mut self, stage: &Stage<'_>, random: &mut Generator) -> Vec<Seat> {
        let drawn = self.drawn.line_up(&stage.snapshot.threads);
        let mut seats = Vec::new();
        for pool in &stage.pools {
            let cpus: Vec<CpuId> = pool.cpus.iter().collect();
            for &thread in &pool.threads {
                let cpu = match drawn[thread] {
                    Some(cpu) if pool.cpus.contains(cpu) => cpu,
                    _ => *drawn[thread].insert(cpus[random.random_range(0..cpus.len())]),
                };
                let why = words!("drawn from the {cpus} CPUs it may have", cpus = cpus.len());
                seats.push(stage.seat(thread, cpu, DRAW.because(why)));
            }
        }
        seats
    }

    /// Nobody: load has no part in it.
    fn give_back(&self, _: &Stage<'_>, _: usize) -> Option<Reason> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Place;
    use crate::settings::Settings;
    use crate::stage::Staged;
    use numaherd_testing::{Scene, Shape};
    use numaherd_world::Placement;
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

    fn random_core() -> Staged<RandomCore> {
        Staged::new(&Settings::default(), RandomCore::default())
    }

    fn plan(policy: &mut Staged<RandomCore>, scene: &Scene, seed: u64) -> Vec<Placement> {
        let mut random = Generator::seed_from_u64(seed);
        policy.place(&scene.snapshot, &scene.topology, &mut random)
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let plan = |seed| plan(&mut random_core(), &scene(), seed);
        assert_eq!(plan(7), plan(7));
        assert!((0..20).any(|seed| plan(seed) != plan(7)));
    }

    #[test]
    fn a_thread_keeps_what_was_drawn_until_it_cannot_be_had() {
        let mut scene = scene();
        let mut policy = random_core();
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
