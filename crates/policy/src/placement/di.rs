//! Distributed Intensity (DI): spread the miss rates evenly over the memory domains.
//!
//! Problem: threads with high miss rates slow each other down when they share a memory domain.
//!
//! Rule (DINO §3.1; Zhuravlev et al., ASPLOS 2010), once an interval: sort the threads by their miss rate in
//! the last interval and deal them, one to each domain, round after round from the first domain to the last.
//! DI has no memory: whenever two threads swap ranks, both may move. The paper names this as DI's weakness
//! (DINO §3.2, Table 1), so it is kept.
//!
//! Direction of the rounds ([`Deal`]): the paper alternates between the two ends of the sorted array, one
//! round from the highest miss rate down, the next from the lowest up; the authors' own scheduler deals
//! every round from the highest to the lowest. The default follows the scheduler, which produced the paper's
//! figures.
//!
//! DI decides on domains. Within its domain a thread keeps its CPU if possible ([`super::arrange`]), so no
//! migrations occur that DI does not ask for. Slots, cpusets and idle threads are treated as for DINO
//! ([`super::slots`], [`crate::pools`], [`crate::busy`]). A thread without counts in an interval keeps its
//! last miss rate; a thread that was never counted is left to the kernel. Rates are compared in steps of 0.1
//! per 1000 instructions, as in the authors' scheduler (a whole number per 10,000); threads with equal rates
//! are dealt in the order of their numbers.
//!
//! Terms: a *domain* is a memory domain, the cores that share a last-level cache; *dealing* gives each
//! domain one thread in turn; a *slot* is room for one thread on a CPU. Source: DINO §3.1, §3.2;
//! Zhuravlev, Blagodurov, Fedorova, ASPLOS 2010; the authors' scheduler.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more threads than
//! slots; each domain has as many threads as it was dealt; while the rates stay the same, nothing moves;
//! equal input gives equal output. Cost: the sort.

use numaherd_files::{choices, settings};
use numaherd_topology::CpuId;
use numaherd_world::Signal;

use crate::placement::arrange::seat;
use crate::placement::slots::{At, Direction, PoolSlots, ranks};
use crate::policy::{Needs, Random};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;

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
    what: "Threads are dealt to the domains in the order of their miss rates.",
};

/// Miss rates are compared in so many steps for each line per 1000 instructions (Clavis).
const STEPS: f64 = 10.0;

choices! {
    /// From which end of the sorted threads the rounds are dealt.
    pub enum Deal {
        /// Every round from the highest miss rate left, as in the authors' scheduler.
        #[default]
        OneWay = "one-way",
        /// A round from the highest miss rate left, then one from the lowest, as in the paper.
        Alternate = "alternate",
    }
}

settings! {
    /// How Distributed Intensity deals threads to memory domains.
    #[derive(Copy, Eq)]
    pub struct DiSettings {
        /// From which end of the threads, sorted by miss rate, each round is dealt.
        deal: Deal, source: "DINO 3.1; Clavis";
    }
}

/// See the top of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct DistributedIntensity {
    /// How it deals.
    pub settings: DiSettings,
}

impl PlacementRule for DistributedIntensity {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate])
    }

    fn seat(&mut self, stage: &Stage<'_>, _: &mut Random) -> Vec<Seat> {
        let seats = stage.pool_by_pool(|pool, slots| {
            let rate = move |at: usize| (stage.miss_rate(pool.busy[at]) * STEPS).round() / STEPS;
            let mut order: Vec<usize> = (0..pool.busy.len()).collect();
            order.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)));
            let solution = deal(&slots, &order, self.settings.deal);
            let ranks = ranks(&order);
            let here = |at: usize| stage.thread(pool.busy[at]).place();
            let cpus = slots.cpus(&solution);
            let why = move |at: usize| {
                because(
                    &slots,
                    here(at),
                    at,
                    solution[at],
                    rate(at),
                    (ranks[at], ranks.len()),
                )
            };
            Some((cpus, why))
        });
        seats.unwrap_or_default()
    }
}

fn because(
    slots: &PoolSlots,
    from: CpuId,
    thread: usize,
    to: At,
    rate: f64,
    (rank, threads): (usize, usize),
) -> Reason {
    let domain = &slots.domains[to.domain];
    let rule = if slots.cpu(to) == from {
        KEEP_CORE
    } else {
        DEAL
    };
    let why = words!(
        "{rate} lines per 1000 instructions is rank {rank} of {threads}, dealt to domain {domain} on \
         node {node}",
        rate,
        rank,
        threads,
        domain = domain.domain,
        node = domain.node,
    );
    let instead_of = slots.sits[thread].map(|sits| match sits.domain == to.domain {
        true => slots.no_slot_left(sits),
        false => words!(
            "CPU {from}: rank {rank} is not dealt to domain {domain}",
            from,
            rank,
            domain = slots.domains[sits.domain].domain,
        ),
    });
    rule.because(why).instead_of(instead_of)
}

/// Deals threads in the given order (places in the pool) to the domains of the pool. Returns each thread's
/// CPU, by place in the pool.
pub(super) fn deal(slots: &PoolSlots, order: &[usize], from: Deal) -> Vec<At> {
    let turns = slots.turns(Direction::Same);
    let shares = slots.shares(&turns, order.len());
    let mut loads = slots.empty_loads();
    for (at, &share) in turns.iter().zip(&shares) {
        loads[at.domain][at.cpu] = share;
    }
    let mut domain_of = vec![0; order.len()];
    let mut left = order.iter();
    let mut last = None;
    let mut from_highest = false;
    for domain in domains_by_turn(&turns, shares) {
        // A round ends where the domains begin again.
        if last.is_none_or(|last| domain <= last) {
            from_highest = from == Deal::OneWay || !from_highest;
        }
        last = Some(domain);
        let next = if from_highest {
            left.next()
        } else {
            left.next_back()
        };
        if let Some(&thread) = next {
            domain_of[thread] = domain;
        }
    }
    seat(slots, &domain_of, loads, order)
}

/// The domains in the order of dealing: one thread a turn, round after round; a CPU that has its share is
/// skipped.
fn domains_by_turn(turns: &[At], shares: Vec<usize>) -> Vec<usize> {
    let mut domains = Vec::with_capacity(shares.iter().sum());
    let mut left: Vec<(usize, usize)> = turns.iter().map(|at| at.domain).zip(shares).collect();
    while !left.is_empty() {
        left.retain(|&(_, share)| share > 0);
        for (domain, share) in &mut left {
            *share -= 1;
            domains.push(*domain);
        }
    }
    domains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Place;
    use crate::settings::Settings;
    use crate::stage::Staged;
    use numaherd_testing::Scene;
    use numaherd_world::Placement;
    use rand::SeedableRng;

    fn di() -> Staged<DistributedIntensity> {
        Staged::new(&Settings::default(), DistributedIntensity::default())
    }

    fn place(di: &mut impl Place, scene: &Scene) -> Vec<Placement> {
        let mut random = Random::seed_from_u64(0);
        di.place(&scene.snapshot, &scene.topology, &mut random)
    }

    #[test]
    fn the_highest_rates_are_dealt_to_different_domains() {
        let mut scene = Scene::uniform(2, 2);
        for (cpu, rate) in (0..).zip([40.0, 30.0, 2.0, 1.0]) {
            scene.thread(cpu, rate, cpu);
        }
        let plan = place(&mut di(), &scene);
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
    fn the_papers_deal_alternates_between_the_ends() {
        let mut scene = Scene::uniform(2, 3);
        for (cpu, rate) in (0..).zip([60.0, 50.0, 40.0, 30.0, 20.0, 10.0]) {
            scene.thread(cpu, rate, cpu);
        }
        let domains = |deal: &str| {
            let settings = Settings::parse(&format!("[di]\ndeal = \"{deal}\"")).unwrap();
            let rule = DistributedIntensity {
                settings: settings.di,
            };
            let plan = place(&mut Staged::new(&Settings::default(), rule), &scene);
            let domain = |placement: &Placement| placement.to.0 / 3;
            plan.iter().map(domain).collect::<Vec<_>>()
        };
        assert_eq!(domains("one-way"), [0, 1, 0, 1, 0, 1]);
        // 60 and 50, then 10 and 20 from the other end, then what is left.
        assert_eq!(domains("alternate"), [0, 1, 0, 1, 1, 0]);
    }

    #[test]
    fn a_change_of_order_moves_threads_and_no_change_moves_none() {
        let mut scene = Scene::uniform(2, 2);
        for (cpu, rate) in (0..).zip([40.0, 30.0, 2.0, 1.0]) {
            scene.thread(cpu, rate, cpu);
        }
        let mut di = di();
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
        let mut di = di();
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
        let plan = place(&mut di(), &scene);
        scene.carry_out(&plan);
        assert_eq!(scene.places(), [0, 1, 0, 1]);
    }
}
