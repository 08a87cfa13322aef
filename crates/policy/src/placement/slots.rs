//! The slots that threads are dealt to: CPUs of a pool, in the order in which they are dealt.
//!
//! Problem: the papers deal threads to "domains of cores", all alike. Real machines have SMT
//! siblings, domains of different sizes, several domains on one memory controller, stronger and
//! weaker cores, and cores that something else holds.
//!
//! Terms: a *CPU* takes the part of the paper's core, since it is what a thread is given. A CPU's
//! *tier* is its rank among the siblings of its physical core. A *turn* is one CPU being dealt to.
//!
//! Rules:
//! * Tier by tier: each physical core gets a thread before any gets a second (SMT).
//! * Within a tier in rounds over the domains, one CPU of each that has one left; either in the
//!   same direction every round, or in a snake ([`Direction`]).
//! * First one domain of every node, then the second of every node: domains of one node share its
//!   memory controller, so neighbours in the deal should not. Else by domain number.
//! * Within a domain and a tier, the strongest cores first; between domains capacity does not
//!   count (DINO does not know it). CPUs where an unmanaged devil runs come first and those where an
//!   unmanaged turtle runs last, so that its domain misses a devil's turn or a turtle's.
//! * Among siblings, a CPU that is held or has threads of this pool comes first: then no thread
//!   has to move to a free sibling.
//! * `T = ceil(threads / CPUs)` threads at each turn (DINO §3.3.3), taken anew over what is left:
//!   so `T` shrinks by one where the rest fits, and no CPU stays empty while another has two. With
//!   `n` threads (held ones counted) on `c` CPUs no CPU has more than `ceil(n / c)` unless it is
//!   held by more already.
//!
//! Cost: linear in CPUs (sorted within each domain) and in threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaherd_topology::{CpuId, CpuSet, DomainId, NodeId, Topology};

use crate::pools::{Pool, Taken};
use crate::reason::Words;
use crate::stage::Stage;
use crate::words;

/// Which way round the domains each round of dealing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first domain to the last, every round.
    Same,
    /// There and back: first to last, then last to first, and so on.
    Snake,
}

/// A CPU that threads can be dealt to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSlots {
    /// Which CPU.
    pub cpu: CpuId,
    /// Rank among the siblings of its core, from 0.
    pub tier: usize,
    /// The kernel's `cpu_capacity`, 1024 for the strongest.
    pub capacity: u32,
    /// Slots that threads outside this deal hold.
    pub held: usize,
}

impl CpuSlots {
    /// CPUs of one quality are worth the same to a thread.
    pub fn quality(&self) -> (usize, u32) {
        (self.tier, self.capacity)
    }
}

/// The CPUs of a pool in one memory domain, in the order in which they are dealt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSlots {
    /// Which domain.
    pub domain: DomainId,
    /// Its node.
    pub node: NodeId,
    /// Its CPUs.
    pub cpus: Vec<CpuSlots>,
}

/// Place of a CPU in [`PoolSlots::domains`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// Index of its domain there.
    pub domain: usize,
    /// Index in that domain's CPUs.
    pub cpu: usize,
}

/// What a pool's busy threads can be dealt to, and where they are now.
#[derive(Clone, Debug)]
pub struct PoolSlots {
    /// Domains in the order in which they are dealt.
    pub domains: Vec<DomainSlots>,
    /// Where each busy thread is, in the pool's order: `None` outside the pool's CPUs.
    pub sits: Vec<Option<At>>,
    /// The domain (index in `domains`) of the CPU that each busy thread is on, even if that
    /// CPU is not allowed any more.
    pub sits_in: Vec<Option<usize>>,
}

impl PoolSlots {
    /// The slots for a pool's busy threads.
    pub fn new(stage: &Stage<'_>, pool: &Pool, taken: &Taken) -> Self {
        let places: Vec<CpuId> = (pool.busy.iter())
            .map(|&thread| stage.thread(thread).place())
            .collect();
        let base = pool.cpus.first().map_or(0, CpuId::index);
        let width = pool.cpus.last().map_or(0, |cpu| cpu.index() + 1 - base);
        let offset = |cpu: CpuId| cpu.index().checked_sub(base).filter(|&o| o < width);
        let mut sitting = vec![0usize; width];
        for offset in places.iter().filter_map(|&cpu| offset(cpu)) {
            sitting[offset] += 1;
        }
        let sitting_on = |cpu: CpuId| offset(cpu).map_or(0, |offset| sitting[offset]);

        let domains = domains(stage.topology, &pool.cpus, taken, sitting_on);
        let mut at: Vec<Option<At>> = vec![None; width];
        let mut index_of: Vec<Option<usize>> = vec![None; stage.topology.domains().len()];
        for (domain, slots) in domains.iter().enumerate() {
            index_of[slots.domain.index()] = Some(domain);
            for (cpu, slots) in slots.cpus.iter().enumerate() {
                at[slots.cpu.index() - base] = Some(At { domain, cpu });
            }
        }
        let sits = |&cpu: &CpuId| offset(cpu).and_then(|offset| at[offset]);
        let sits_in = |&cpu: &CpuId| index_of[stage.topology.domain_of(cpu)?.id.index()];
        Self {
            sits: places.iter().map(sits).collect(),
            sits_in: places.iter().map(sits_in).collect(),
            domains,
        }
    }

    /// The CPU at a place.
    pub fn cpu(&self, at: At) -> CpuId {
        self.domains[at.domain].cpus[at.cpu].cpu
    }

    /// The CPUs at places.
    pub fn cpus(&self, at: &[At]) -> Vec<CpuId> {
        at.iter().map(|&at| self.cpu(at)).collect()
    }

    /// Why a thread leaves its CPU for another of its domain.
    pub fn no_slot_left(&self, sits: At) -> Words {
        words!(
            "CPU {from}: it has no slot left, another of the domain has",
            from = self.cpu(sits)
        )
    }

    /// No thread on any CPU, domain by domain.
    pub fn empty_loads(&self) -> Vec<Vec<usize>> {
        let cpus = self.domains.iter().map(|domain| domain.cpus.len());
        cpus.map(|cpus| vec![0; cpus]).collect()
    }

    /// All turns, in the order of dealing: each CPU once.
    pub fn turns(&self, direction: Direction) -> Vec<At> {
        let mut turns = Vec::new();
        let mut next = vec![0; self.domains.len()];
        let total: usize = self.domains.iter().map(|domain| domain.cpus.len()).sum();
        let (mut tier, mut backward) = (0, false);
        let mut left: Vec<usize> = (0..self.domains.len()).collect();
        while turns.len() < total {
            // `left` are the domains that have CPUs of this tier left, so that a round costs no
            // more than the turns that it yields.
            left.retain(|&domain| {
                let slots = self.domains[domain].cpus.get(next[domain]);
                slots.is_some_and(|slots| slots.tier == tier)
            });
            if left.is_empty() {
                tier += 1;
                left = (0..self.domains.len()).collect();
                continue;
            }
            let mut deal = |&domain: &usize| {
                let cpu = next[domain];
                next[domain] += 1;
                turns.push(At { domain, cpu });
            };
            if backward {
                left.iter().rev().for_each(&mut deal);
            } else {
                left.iter().for_each(&mut deal);
            }
            backward = direction == Direction::Snake && !backward;
        }
        turns
    }

    /// How many of `threads` each turn gets; they add up to `threads`.
    pub fn shares(&self, turns: &[At], threads: usize) -> Vec<usize> {
        let held = |at: &At| self.domains[at.domain].cpus[at.cpu].held;
        let mut held_left: usize = turns.iter().map(held).sum();
        let mut threads_left = threads;
        let mut shares = Vec::with_capacity(turns.len());
        for (turn, at) in turns.iter().enumerate() {
            let slots = (threads_left + held_left).div_ceil(turns.len() - turn);
            let share = slots.saturating_sub(held(at)).min(threads_left);
            threads_left -= share;
            held_left -= held(at);
            shares.push(share);
        }
        shares
    }
}

/// The rank of each thread in an order of all of them, from 1.
pub fn ranks(order: &[usize]) -> Vec<usize> {
    let mut ranks = vec![0; order.len()];
    for (rank, &thread) in order.iter().enumerate() {
        ranks[thread] = rank + 1;
    }
    ranks
}

/// The domains of a set of CPUs in the order of dealing, with their CPUs in theirs.
fn domains(
    topology: &Topology,
    cpus: &CpuSet,
    taken: &Taken,
    sitting_on: impl Fn(CpuId) -> usize,
) -> Vec<DomainSlots> {
    let mut known: Vec<_> = cpus.iter().filter_map(|cpu| topology.cpu(cpu)).collect();
    // Siblings next to each other, those in use first: then a CPU's rank is its tier.
    known.sort_by_cached_key(|cpu| {
        let held = taken.of(cpu.id).threads;
        // A held CPU's place in the deal matters, so it must not depend on what sits there.
        let sitting = if held > 0 { 0 } else { sitting_on(cpu.id) };
        let in_use = Reverse((held, sitting));
        (cpu.domain, cpu.core, in_use, cpu.id)
    });
    let mut domains: Vec<DomainSlots> = Vec::new();
    let mut core_before = None;
    let mut tier = 0;
    for cpu in known {
        tier = if core_before == Some(cpu.core) {
            tier + 1
        } else {
            0
        };
        core_before = Some(cpu.core);
        if domains.last().map(|last| last.domain) != Some(cpu.domain) {
            domains.push(DomainSlots {
                domain: cpu.domain,
                node: cpu.node,
                cpus: Vec::new(),
            });
        }
        domains
            .last_mut()
            .expect("pushed above")
            .cpus
            .push(CpuSlots {
                cpu: cpu.id,
                tier,
                capacity: cpu.capacity,
                held: taken.of(cpu.id).threads,
            });
    }
    for domain in &mut domains {
        domain.cpus.sort_by_cached_key(|slots| {
            let held = taken.of(slots.cpu);
            let turn = match held.threads {
                0 => 1,
                _ if held.devils > 0 => 0,
                _ => 2,
            };
            (slots.tier, turn, Reverse(slots.capacity), slots.cpu)
        });
    }
    // The rank of a domain among those of its node comes first in the order of dealing.
    let mut of_node: BTreeMap<NodeId, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, DomainSlots)> = Vec::with_capacity(domains.len());
    for domain in domains {
        let rank = of_node.entry(domain.node).or_default();
        ranked.push((*rank, domain));
        *rank += 1;
    }
    ranked.sort_by_key(|&(rank, ref domain)| (rank, domain.domain));
    ranked.into_iter().map(|(_, domain)| domain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_testing::{Scene, Shape};

    fn slots(scene: &Scene) -> PoolSlots {
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        PoolSlots::new(&stage, &stage.pools[0], &Taken::default())
    }

    fn turns(scene: &Scene, direction: Direction) -> Vec<u32> {
        let slots = slots(scene);
        let turns = slots.turns(direction);
        turns.into_iter().map(|at| slots.cpu(at).0).collect()
    }

    fn with_a_thread(mut scene: Scene) -> Scene {
        scene.thread(1, 1.0, 0);
        scene
    }

    #[test]
    fn a_snake_turns_at_the_last_domain() {
        let scene = with_a_thread(Scene::uniform(4, 2));
        assert_eq!(turns(&scene, Direction::Snake), [0, 2, 4, 6, 7, 5, 3, 1]);
        assert_eq!(turns(&scene, Direction::Same), [0, 2, 4, 6, 1, 3, 5, 7]);
    }

    #[test]
    fn physical_cores_come_before_siblings() {
        let mut shape = Shape::uniform(2, 2);
        shape.siblings = 2;
        let scene = with_a_thread(Scene::new(&shape));
        // CPUs 0, 1 are the first core's.
        assert_eq!(turns(&scene, Direction::Same), [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    #[test]
    fn a_sibling_in_use_stands_for_its_core() {
        let mut shape = Shape::uniform(1, 2);
        shape.siblings = 2;
        let mut scene = Scene::new(&shape);
        scene.thread(1, 1.0, 3);
        assert_eq!(turns(&scene, Direction::Same), [0, 3, 1, 2]);
    }

    #[test]
    fn domains_of_one_node_are_dealt_apart() {
        let mut shape = Shape::uniform(2, 1);
        shape.nodes = vec![vec![1, 1], vec![1, 1]];
        let scene = with_a_thread(Scene::new(&shape));
        assert_eq!(turns(&scene, Direction::Same), [0, 2, 1, 3]);
    }

    #[test]
    fn larger_domains_get_the_rest() {
        let mut shape = Shape::uniform(2, 1);
        shape.nodes = vec![vec![1], vec![3]];
        let scene = with_a_thread(Scene::new(&shape));
        assert_eq!(turns(&scene, Direction::Snake), [0, 1, 2, 3]);
    }

    #[test]
    fn slots_per_cpu_are_the_papers_where_it_divides_and_even_where_not() {
        let scene = with_a_thread(Scene::uniform(4, 2));
        let slots = slots(&scene);
        let turns = slots.turns(Direction::Snake);
        assert_eq!(slots.shares(&turns, 16), [2; 8]);
        assert_eq!(slots.shares(&turns, 9), [2, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(slots.shares(&turns, 3), [1, 1, 1, 0, 0, 0, 0, 0]);
    }
}
