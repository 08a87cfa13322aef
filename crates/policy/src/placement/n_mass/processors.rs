//! The processors that N-MASS maps threads to: memory domains, their free cores and their pressure.
//!
//! The paper knows cores that are free or not, and never more processes than cores. Here a domain
//! has *slots*, numbered from the best: first one on each physical core, then one on each sibling
//! (SMT), then a second one on each CPU, and so on. How good a slot is (how many threads its CPU and
//! its core have before it) is its *level*. A level is in use only once all slots of lower levels
//! are taken, on the whole machine: so no two threads share a core while another has none, and CPUs
//! are loaded evenly. A *free core* of the paper is a slot of the level in use. With at most as many
//! threads as physical cores there is one level, and that is the paper's case.

use numaherd_topology::{NodeId, Topology};

use crate::placement::slots::Ground;

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
    /// Its slots, ascending: level and CPU (index in the ground's domain).
    slots: Vec<(Level, usize)>,
    /// How many of them are taken, from the first.
    threads: usize,
    /// Miss rates of what runs there, in lines per 1000 instructions, those of remote threads
    /// multiplied by their NUMA penalty.
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

/// All processors of a pool, in the order of the ground's domains.
#[derive(Clone, Debug, PartialEq)]
pub struct Processors {
    /// The processors.
    pub all: Vec<Processor>,
    /// The nodes that have any, ascending, and the distances from each node to them.
    distances: Vec<(NodeId, Vec<u32>)>,
}

impl Processors {
    /// The processors of a ground, empty but for what presses on them from outside the pool
    /// (`pressure`, by domain of the ground). There is room for `threads` more.
    pub fn new(ground: &Ground, topology: &Topology, threads: usize, pressure: &[f64]) -> Self {
        let cpus: usize = ground.domains.iter().map(|domain| domain.cpus.len()).sum();
        let held = ground.domains.iter().flat_map(|domain| &domain.cpus);
        let held: usize = held.map(|slots| slots.held).sum();
        // With so many on each CPU there is room for all, wherever the held ones are.
        let rounds = (threads + held).div_ceil(cpus.max(1));
        let processor = |(domain, &pressure): (&crate::placement::slots::DomainSlots, &f64)| {
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
        let all: Vec<Processor> = ground.domains.iter().zip(pressure).map(processor).collect();
        let mut nodes: Vec<NodeId> = topology.nodes().iter().map(|node| node.id).collect();
        nodes.sort_unstable();
        let from = |home: NodeId| {
            let to = |processor: &Processor| topology.distance(home, processor.node);
            all.iter().map(|p| to(p).unwrap_or(u32::MAX)).collect()
        };
        let distances = nodes.into_iter().map(|home| (home, from(home))).collect();
        Self { all, distances }
    }

    /// How far a processor is from a node; no node is further than one that is not known.
    fn distance(&self, home: NodeId, processor: usize) -> u32 {
        let row = self
            .distances
            .binary_search_by_key(&home, |&(node, _)| node);
        row.map_or(u32::MAX, |row| self.distances[row].1[processor])
    }

    /// `get_next_available_core` (Algorithm 2): a processor with a free core for a thread; of its
    /// home if there is one, else of the nearest other node. Of several the one of least pressure,
    /// then of fewest threads, then the first.
    pub fn available(&self, item: &Item) -> Option<usize> {
        let level = self.all.iter().filter_map(Processor::next).min()?;
        let free = |&at: &usize| self.all[at].next() == Some(level);
        (0..self.all.len()).filter(free).min_by(|&a, &b| {
            let key = |at: usize| {
                let processor = &self.all[at];
                let nearness = (!processor.is_home(item), self.distance(item.home, at));
                (nearness, processor.pressure, processor.threads)
            };
            let ((near_a, press_a, threads_a), (near_b, press_b, threads_b)) = (key(a), key(b));
            near_a
                .cmp(&near_b)
                .then(press_a.total_cmp(&press_b))
                .then(threads_a.cmp(&threads_b))
        })
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

    /// How many threads each CPU of each domain of the ground takes.
    pub fn loads(&self, ground: &Ground) -> Vec<Vec<usize>> {
        let mut loads = ground.empty_loads();
        for (processor, loads) in self.all.iter().zip(&mut loads) {
            for &(_, cpu) in &processor.slots[..processor.threads] {
                loads[cpu] += 1;
            }
        }
        loads
    }
}
