//! Distributed Intensity (DI): spread the miss rates evenly over the memory domains.
//!
//! Problem: threads with high miss rates that share a memory domain slow each other down.
//!
//! Rule (DINO §3.1; Zhuravlev et al., ASPLOS 2010), once an interval: sort the threads by their
//! miss rate in the last interval, and deal them from the highest to the lowest, one to a domain,
//! round and round. DI has no memory: whenever two threads change their order, both may move. That
//! is its published weakness (DINO §3.2, Table 1), kept here as it is.
//!
//! Choice: the paper's prose alternates between the two ends of the sorted array; the authors' own
//! scheduler deals from the highest to the lowest in the same direction every round. Here it is as
//! in the scheduler that gave the figures ([`Direction::Same`]).
//!
//! DI decides on domains. Within its domain a thread keeps its CPU where it can ([`super::arrange`]): no
//! migrations are made up that DI does not have. Slots, cpusets and threads that sleep are dealt
//! with as for DINO ([`super::slots`], [`crate::pools`], [`crate::busy`]). A thread without counts
//! in an interval keeps its last miss rate; one that was never counted is left to the kernel. Rates are
//! told apart in steps of 0.1 per 1000 instructions, as the authors' scheduler keeps them (a whole
//! number per 10,000); equal ones are dealt in the order of thread numbers.
//!
//! Terms: a *domain* is a memory domain, the cores that share a last-level cache; *dealing* gives each
//! domain one thread in turn; a *slot* is room for one thread on a CPU. Source: DINO §3.1, §3.2;
//! Zhuravlev, Blagodurov, Fedorova, ASPLOS 2010; the authors' scheduler.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more than its
//! slots; the domains' thread counts are those of the deal; with unchanged rates nothing moves;
//! equal input gives equal output. Cost: the sort.

use std::borrow::Cow;

use numaherd_topology::{CpuId, Topology};
use numaherd_world::{Placement, Signal, Snapshot};

use crate::busy::Busy;
use crate::classes::{Classes, Tenths};
use crate::placement::arrange::seat;
use crate::placement::slots::{At, Direction, Ground};
use crate::policy::{Place, Random};
use crate::pools::{Taken, pools};
use crate::rules::Rule;
use crate::settings::Settings;

/// The rules that plans name.
pub const RULES: &[Rule] = &[KEEP_CORE, DEAL];
const KEEP_CORE: Rule = Rule {
    name: "di: keep core",
    source: "DINO 3.1 leaves the core within a domain open",
    what: "The thread was dealt to the domain it is in: it is held on its core.",
};
const DEAL: Rule = Rule {
    name: "di: deal by miss rate",
    source: "DINO 3.1; direction of rounds as in the authors' scheduler",
    what: "Threads are dealt to the domains from the highest miss rate to the lowest.",
};

/// Steps in which miss rates are told apart, in one line per 1000 instructions (Clavis).
const STEPS: f64 = 10.0;

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct DistributedIntensity {
    // DI has no classes, but remembers miss rates as they do.
    classes: Classes,
    busy: Busy,
}

impl DistributedIntensity {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            classes: Classes::new(settings.classes.rule()),
            busy: Busy::new(settings.placement.least_cpu_share),
        }
    }
}

impl Place for DistributedIntensity {
    fn needs(&self) -> &[Signal] {
        &[Signal::CpuUse, Signal::MissRate]
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<Placement> {
        let classed = self.classes.observe(&snapshot.threads);
        let class = |index: usize| classed[index].class();
        let mut pools = pools(snapshot, topology);
        let mut taken = Taken::default();
        for index in self.busy.keep_busy(snapshot, &mut pools) {
            taken.hold(snapshot.threads[index].place(), class(index));
        }
        let mut placements = Vec::new();
        for pool in &mut pools {
            pool.threads.retain(|&index| class(index).is_some());
            if pool.threads.is_empty() {
                continue;
            }
            let ground = Ground::new(snapshot, topology, pool, &taken);
            let rate = |at: usize| {
                let rate = classed[pool.threads[at]].miss_rate().unwrap_or_default();
                (rate * STEPS).round() / STEPS
            };
            let mut order: Vec<usize> = (0..pool.threads.len()).collect();
            order.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)));
            let solution = deal(&ground, &order);
            for (rank, &at) in order.iter().enumerate() {
                let index = pool.threads[at];
                let thread = &snapshot.threads[index];
                let (to, from) = (ground.cpu(solution[at]), thread.place());
                taken.hold(to, class(index));
                if thread.assigned == Some(to) {
                    continue;
                }
                let words = Words {
                    ground: &ground,
                    sits: ground.sits[at],
                    to: solution[at],
                    rank: rank + 1,
                };
                placements.push(Placement {
                    thread: thread.id,
                    from,
                    to,
                    rule: Cow::Borrowed(if to == from {
                        KEEP_CORE.name
                    } else {
                        DEAL.name
                    }),
                    why: words.why(rate(at), order.len()),
                    instead_of: words.instead_of(from),
                });
            }
        }
        placements.sort_unstable_by_key(|placement| placement.thread);
        placements
    }
}

/// Puts one thread's deal into words.
struct Words<'a> {
    ground: &'a Ground,
    sits: Option<At>,
    to: At,
    /// From 1 for the highest miss rate.
    rank: usize,
}

impl Words<'_> {
    fn why(&self, miss_rate: f64, threads: usize) -> String {
        let domain = &self.ground.domains[self.to.domain];
        format!(
            "{} lines per 1000 instructions is rank {} of {threads}, dealt to domain {} on node {}",
            Tenths(miss_rate),
            self.rank,
            domain.domain,
            domain.node
        )
    }

    /// Why the thread does not stay on the CPU it is on.
    fn instead_of(&self, from: CpuId) -> String {
        match self.sits {
            None => format!("CPU {from}: offline, or not allowed to the thread"),
            Some(sits) if sits == self.to => String::new(),
            Some(sits) if sits.domain == self.to.domain => {
                format!("CPU {from}: it has no slot left, another of the domain has")
            }
            Some(sits) => format!(
                "CPU {from}: rank {} is not dealt to domain {}",
                self.rank, self.ground.domains[sits.domain].domain
            ),
        }
    }
}

/// Deals threads in the given order (places in the pool) to the domains of the ground. Gives each
/// thread's place, by place in the pool.
pub(super) fn deal(ground: &Ground, order: &[usize]) -> Vec<At> {
    let turns = ground.turns(Direction::Same);
    let shares = ground.shares(&turns, order.len());
    let mut loads = ground.empty_loads();
    for (at, &share) in turns.iter().zip(&shares) {
        loads[at.domain][at.cpu] = share;
    }
    let domain_of = domains_by_turn(&turns, shares, order);
    seat(ground, &domain_of, loads, order)
}

/// The domain of each thread, by place in the pool: one thread a turn, round after round, where a
/// CPU that has its share is passed over.
fn domains_by_turn(turns: &[At], shares: Vec<usize>, order: &[usize]) -> Vec<usize> {
    let mut domain_of = vec![0; order.len()];
    let mut dealt = order.iter();
    let mut left: Vec<(usize, usize)> = turns.iter().map(|at| at.domain).zip(shares).collect();
    while !left.is_empty() {
        left.retain(|&(_, share)| share > 0);
        for (domain, share) in &mut left {
            *share -= 1;
            if let Some(&thread) = dealt.next() {
                domain_of[thread] = *domain;
            }
        }
    }
    domain_of
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::Scene;
    use rand::SeedableRng;

    fn place(di: &mut DistributedIntensity, scene: &Scene) -> Vec<Placement> {
        let mut random = Random::seed_from_u64(0);
        di.place(&scene.snapshot, &scene.topology, &mut random)
    }

    #[test]
    fn the_highest_rates_are_dealt_to_different_domains() {
        let mut scene = Scene::uniform(2, 2);
        for (cpu, rate) in (0..).zip([40.0, 30.0, 2.0, 1.0]) {
            scene.thread(cpu, rate, cpu);
        }
        let plan = place(&mut DistributedIntensity::new(&Settings::default()), &scene);
        scene.carry_out(&plan);
        assert_eq!(
            plan[1].why,
            "30.0 lines per 1000 instructions is rank 2 of 4, dealt to domain 1 on node 1"
        );
        assert_eq!(plan[1].instead_of, "CPU 1: rank 2 is not dealt to domain 0");
        // 40 and 2 in the first domain, 30 and 1 in the second; 40 and 1 kept their CPUs.
        assert_eq!(scene.places(), [0, 2, 1, 3]);
        let moved: Vec<u32> = plan
            .iter()
            .filter(|p| p.from != p.to)
            .map(|p| p.thread.tid)
            .collect();
        assert_eq!(moved, [1, 2]);
    }

    #[test]
    fn a_change_of_order_moves_threads_and_no_change_moves_none() {
        let mut scene = Scene::uniform(2, 2);
        for (cpu, rate) in (0..).zip([40.0, 30.0, 2.0, 1.0]) {
            scene.thread(cpu, rate, cpu);
        }
        let mut di = DistributedIntensity::new(&Settings::default());
        let plan = place(&mut di, &scene);
        scene.carry_out(&plan);
        assert_eq!(place(&mut di, &scene), []);
        scene.set_miss_rate(1, 40.1);
        let plan = place(&mut di, &scene);
        let moved: Vec<u32> = plan.iter().map(|p| p.thread.tid).collect();
        assert_eq!(moved, [0, 1]);
    }

    #[test]
    fn rates_that_differ_by_less_than_a_step_are_equal_and_change_no_order() {
        let mut scene = Scene::uniform(2, 2);
        for (cpu, rate) in (0..).zip([40.0, 30.0, 2.0, 1.0]) {
            scene.thread(cpu, rate, cpu);
        }
        scene.set_miss_rate(1, 39.96);
        let mut di = DistributedIntensity::new(&Settings::default());
        let plan = place(&mut di, &scene);
        scene.carry_out(&plan);
        scene.set_miss_rate(1, 40.04);
        assert_eq!(place(&mut di, &scene), []);
    }

    #[test]
    fn with_more_threads_than_cores_rounds_go_on() {
        let mut scene = Scene::uniform(2, 1);
        for rate in [50.0, 40.0, 30.0, 20.0] {
            scene.thread(1, rate, 0);
        }
        let plan = place(&mut DistributedIntensity::new(&Settings::default()), &scene);
        scene.carry_out(&plan);
        assert_eq!(scene.places(), [0, 1, 0, 1]);
    }
}
