//! The processors that N-MASS maps threads to: memory domains, their free cores and their pressure.
//!
//! The paper knows cores that are free or not, and never more processes than cores. Here a domain
//! has *slots*, numbered from the best: first one on each physical core, then one on each sibling
//! (SMT), then a second one on each CPU, and so on. How good a slot is (how many threads its CPU and
//! its core have before it) is its *level*. A level is in use only once all slots of lower levels
//! are taken, on the whole machine: so no two threads share a core while another has none, and CPUs
//! are loaded evenly. A *free core* of the paper is a slot of the level in use. With at most as many
//! threads as physical cores there is one level, and that is the paper's case.

use std::collections::BTreeMap;

use numaherd_topology::{NodeId, Topology};

use crate::placement::slots::{DomainSlots, PoolSlots};

/// How many threads a slot's CPU has before it, then its rank among its core's siblings.
pub type Level = (usize, usize);

/// One thread as N-MASS sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Item {
    /// The node of its process's pages.
    pub home: NodeId,
    /// Lines per 1000 instructions: the paper's `mpki`.
    pub miss_rate: f64,
    /// The paper's `np`, at least 1.
    pub penalty: f64,
}

/// One memory domain.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// Its node.
    pub node: NodeId,
    /// Its slots, ascending: level and CPU (index in the domain of the pool's slots).
    slots: Vec<(Level, usize)>,
    /// How many of them are taken, from the first.
    threads: usize,
    /// The sum of the miss rates of the threads there, in lines per 1000 instructions; those of
    /// remote threads are multiplied by their NUMA penalty.
    pub pressure: f64,
}

impl Processor {
    /// Whether a thread is at home there.
    pub fn is_home(&self, item: &Item) -> bool {
        self.node == item.home
    }

    /// What a thread adds to the pressure there (Algorithm 3, lines 8, 9 and 12).
    pub fn weight(&self, item: &Item) -> f64 {
        if self.is_home(item) {
            item.miss_rate
        } else {
            item.miss_rate * item.penalty
        }
    }

    /// The level of its best free slot.
    fn next(&self) -> Option<Level> {
        self.slots.get(self.threads).map(|&(level, _)| level)
    }

    /// The level of its worst slot that is taken.
    fn last(&self) -> Option<Level> {
        let last = self.threads.checked_sub(1)?;
        Some(self.slots[last].0)
    }
}

/// All processors of a pool, in the order of the slots' domains.
#[derive(Clone, Debug, PartialEq)]
pub struct Processors {
    /// The processors.
    pub all: Vec<Processor>,
    /// For every node the processors by distance: its own, the nearest, and so on.
    from: BTreeMap<NodeId, Vec<Vec<usize>>>,
}

impl Processors {
    /// The processors of a pool, empty but for what presses on them from outside the pool
    /// (`pressure`, by domain of the slots). There is room for `threads` more.
    pub fn new(slots: &PoolSlots, topology: &Topology, threads: usize, pressure: &[f64]) -> Self {
        let cpus: usize = slots.domains.iter().map(|domain| domain.cpus.len()).sum();
        let held = slots.domains.iter().flat_map(|domain| &domain.cpus);
        let held: usize = held.map(|slots| slots.held).sum();
        // With so many on each CPU there is room for all, wherever the held ones are.
        let rounds = (threads + held).div_ceil(cpus.max(1));
        let processor = |(domain, &pressure): (&DomainSlots, &f64)| {
            let mut slots: Vec<(Level, usize)> = Vec::new();
            for (cpu, of_cpu) in domain.cpus.iter().enumerate() {
                slots.extend((of_cpu.held..rounds).map(|round| ((round, of_cpu.tier), cpu)));
            }
            slots.sort_unstable();
            Processor {
                node: domain.node,
                slots,
                threads: 0,
                pressure,
            }
        };
        let all: Vec<Processor> = slots.domains.iter().zip(pressure).map(processor).collect();
        let by_distance = |home: NodeId| {
            let mut near: BTreeMap<(bool, u32), Vec<usize>> = BTreeMap::new();
            for (at, processor) in all.iter().enumerate() {
                let distance = topology.distance(home, processor.node).unwrap_or(u32::MAX);
                let remote = processor.node != home;
                near.entry((remote, distance)).or_default().push(at);
            }
            near.into_values().collect()
        };
        let nodes = topology.nodes().iter().map(|node| node.id);
        let from = nodes.map(|node| (node, by_distance(node))).collect();
        Self { all, from }
    }

    /// `get_next_available_core` (Algorithm 2): a processor with a free core for a thread; of its
    /// home if there is one, else of the nearest other node. Of several the one of least pressure,
    /// then of fewest threads, then the first.
    pub fn available(&self, item: &Item) -> Option<usize> {
        let level = self.all.iter().filter_map(Processor::next).min()?;
        let best = |candidates: &mut dyn Iterator<Item = usize>| {
            let free = |&at: &usize| self.all[at].next() == Some(level);
            candidates.filter(free).min_by(|&a, &b| {
                let (a, b) = (&self.all[a], &self.all[b]);
                let by_pressure = a.pressure.total_cmp(&b.pressure);
                by_pressure.then(a.threads.cmp(&b.threads))
            })
        };
        match self.from.get(&item.home) {
            None => best(&mut (0..self.all.len())),
            Some(by_distance) => by_distance
                .iter()
                .find_map(|near| best(&mut near.iter().copied())),
        }
    }

    /// Whether a thread of processor `from` finds a core on `to` that is no worse than the one
    /// that becomes free.
    pub fn has_core(&self, from: usize, to: usize) -> bool {
        match (self.all[to].next(), self.all[from].last()) {
            (Some(free), Some(left)) => free <= left,
            _ => false,
        }
    }

    /// Puts a thread on a processor.
    pub fn put(&mut self, item: &Item, on: usize) {
        let processor = &mut self.all[on];
        processor.threads += 1;
        processor.pressure += processor.weight(item);
    }

    /// Takes a thread off a processor.
    pub fn take(&mut self, item: &Item, off: usize) {
        let processor = &mut self.all[off];
        processor.threads -= 1;
        processor.pressure -= processor.weight(item);
    }

    /// How many threads each CPU of each domain of the pool takes.
    pub fn loads(&self, slots: &PoolSlots) -> Vec<Vec<usize>> {
        let mut loads = slots.empty_loads();
        for (processor, loads) in self.all.iter().zip(&mut loads) {
            for &(_, cpu) in &processor.slots[..processor.threads] {
                loads[cpu] += 1;
            }
        }
        loads
    }
}
