//! Random: each thread gets a random core once, and keeps it.
//!
//! Problem: how much does placement matter for a program? The spread over several seeds shows it, if each
//! random mapping holds for the whole run. A thread that got another random core every interval would measure
//! the cost of moving instead.
//!
//! Rule: when a thread that may be placed is first seen, it is dealt one of the CPUs that are online and in
//! its cpuset, as cards are: drawn evenly from those that the fewest threads have. So a program with as many
//! threads as there are CPUs has one on each, as the papers' random mappings do. It is dealt another only when
//! that CPU is no longer available, or when it shares that CPU with another running thread while another CPU
//! has none. Idle threads are placed too: whether they will run is not known at the start.
//!
//! Terms: none of its own. Source: the baseline of that name in the papers (IPM 5.3: "random").
//!
//! Properties: the same seed and the same snapshots give the same plans; a thread keeps its CPU while that is
//! available and no CPU is idle while two threads share one; never a CPU that is offline or outside the
//! cpuset.

use std::collections::HashMap;

use numaherd_topology::{CpuId, CpuSet};
use rand::Rng;

use crate::busy::{LEAST_CPU_SHARE, wanted};
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
    what: "The thread gets a CPU drawn evenly from those that the fewest threads have, and keeps it.",
};

/// Which CPUs have been dealt.
#[derive(Default)]
struct Held(HashMap<CpuId, Threads>);

/// How many threads have a CPU; CPUs with the least are dealt next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Threads {
    running: u32,
    all: u32,
}

impl Held {
    fn on(&self, cpu: CpuId) -> Threads {
        self.0.get(&cpu).copied().unwrap_or_default()
    }

    fn add(&mut self, cpu: CpuId, runs: bool) {
        let threads = self.0.entry(cpu).or_default();
        threads.running += u32::from(runs);
        threads.all += 1;
    }

    fn remove(&mut self, cpu: CpuId, runs: bool) {
        let threads = self.0.entry(cpu).or_default();
        threads.running -= u32::from(runs);
        threads.all -= 1;
    }

    /// The threads on the CPU that has the fewest.
    fn fewest(&self, cpus: &CpuSet) -> Threads {
        let each = cpus.iter().map(|cpu| self.on(cpu));
        each.min().unwrap_or_default()
    }

    /// Deals one of the CPUs that have the fewest.
    fn draw(&mut self, cpus: &CpuSet, runs: bool, random: &mut Generator) -> CpuId {
        let fewest = self.fewest(cpus);
        let of: Vec<CpuId> = cpus.iter().filter(|&cpu| self.on(cpu) == fewest).collect();
        let cpu = of[random.random_range(0..of.len())];
        self.add(cpu, runs);
        cpu
    }
}

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
        let threads = &stage.snapshot.threads;
        let drawn = self.drawn.line_up(threads);
        let runs = |thread: usize| wanted(&threads[thread]) >= LEAST_CPU_SHARE;
        let mut held = Held::default();
        for pool in &stage.pools {
            for &thread in &pool.threads {
                drawn[thread] = drawn[thread].filter(|&cpu| pool.cpus.contains(cpu));
                if let Some(cpu) = drawn[thread] {
                    held.add(cpu, runs(thread));
                }
            }
        }
        for pool in &stage.pools {
            for &thread in &pool.threads {
                if drawn[thread].is_none() {
                    drawn[thread] = Some(held.draw(&pool.cpus, runs(thread), random));
                }
            }
        }
        let mut seats = Vec::new();
        for pool in &stage.pools {
            for &thread in &pool.threads {
                if let Some(cpu) = drawn[thread]
                    && runs(thread)
                    && held.on(cpu).running > 1
                    && held.fewest(&pool.cpus).running == 0
                {
                    held.remove(cpu, true);
                    drawn[thread] = Some(held.draw(&pool.cpus, true, random));
                }
                let why = words!("drawn from those of its CPUs that the fewest threads had");
                seats.extend(drawn[thread].map(|cpu| stage.seat(thread, cpu, DRAW.because(why))));
            }
        }
        seats
    }

    /// Never: load plays no part.
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
    use std::collections::HashSet;
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
        assert_eq!(again[0].to, only);
    }

    #[test]
    fn threads_that_run_get_a_cpu_each_while_there_are_enough() {
        for seed in 0..20 {
            let mut scene = scene();
            let mut policy = random_core();
            let on = |scene: &Scene| -> HashSet<CpuId> {
                scene.snapshot.threads[3..]
                    .iter()
                    .map(|thread| thread.cpu)
                    .collect()
            };
            // Three threads wait for the others; all were dealt a CPU before any ran.
            for _ in 0..4 {
                scene.thread(0, 1.0, 0);
            }
            for thread in &mut scene.snapshot.threads {
                thread.cpu_share = 0.0;
            }
            let plan_of = plan(&mut policy, &scene, seed);
            scene.carry_out(&plan_of);
            for thread in &mut scene.snapshot.threads[3..] {
                thread.cpu_share = 1.0;
            }
            let plan_of = plan(&mut policy, &scene, seed);
            scene.carry_out(&plan_of);
            assert_eq!(on(&scene).len(), 7, "seed {seed}");
            assert_eq!(plan(&mut policy, &scene, seed), []);
        }
    }
}
