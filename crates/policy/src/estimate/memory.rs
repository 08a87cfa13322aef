//! What becomes of processes' memory in a layout: what is a process's own may follow its threads, and what processes have
//! in common may be spread over the nodes of their threads.

use std::collections::BTreeMap;

use numaherd_topology::CpuId;
use numaherd_world::BLOCK_PAGES;

use super::Picture;
use super::threads::Load;

/// What becomes of a process's memory in a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its own follows its threads.
    pub follows: bool,
    /// What it has in common with others is spread over the nodes of all whose common memory is.
    pub spreads: bool,
}

impl Memory {
    /// Whether any of it moves.
    pub fn moves(self) -> bool {
        self.follows || self.spreads
    }
}

/// Where the memory of a process is that moves in a layout. Shares of a part that is without pages are of nothing.
pub(super) struct Moved {
    /// The part of its own that each thread has beside it.
    private: f64,
    /// Where the rest of its own is, and which part of its own.
    own: Vec<(usize, f64)>,
    /// Where what it has in common with others is.
    common: Vec<(usize, f64)>,
}

impl Moved {
    /// Where the lines of one of its threads, which is on this node, come from.
    pub(super) fn memory(&self, load: &Load, node: usize) -> Vec<(usize, f64)> {
        let scaled = |parts: &[(usize, f64)], by: f64| -> Vec<(usize, f64)> {
            let parts = parts.iter().map(|&(node, share)| (node, share * by));
            parts.collect()
        };
        let own = 1.0 - load.common;
        let mut memory = scaled(&self.own, own);
        memory.push((node, self.private * own));
        if load.common > 0.0 {
            memory.extend(scaled(&self.common, load.common));
        }
        memory
    }
}

/// The share of pages that are in one block with those of another thread, if each thread has its own in one piece: such
/// a block has no one user. Where all threads are on one node, blocks do not matter.
fn mixed(pages: &[u64], nodes: &[usize]) -> f64 {
    if nodes.windows(2).all(|two| two[0] == two[1]) {
        return 0.0;
    }
    let blocks = pages.iter().sum::<u64>() as f64 / BLOCK_PAGES as f64;
    (nodes.len() as f64 / blocks.max(1.0)).min(1.0)
}

impl Picture {
    /// Own pages of a process that move where its memory follows its threads: to the node of all; where they are on
    /// several, all but what is by chance where it is used.
    pub fn to_move(&self, process: usize, cpus: &[CpuId]) -> f64 {
        let pages = &self.processes[process].pages;
        let mut nodes = self.nodes_of(process, cpus);
        nodes.dedup();
        let all: u64 = pages.iter().sum();
        let there: u64 = nodes.iter().map(|&node| pages[node]).sum();
        all as f64 - there as f64 / nodes.len().max(1) as f64
    }

    /// Over which nodes (places) memory is spread that processes have in common, each as often as they have threads
    /// there.
    pub fn spread_over(&self, memory: &[Memory], cpus: &[CpuId]) -> Vec<(usize, u64)> {
        let mut threads = BTreeMap::new();
        for process in (0..memory.len()).filter(|&process| memory[process].spreads) {
            for node in self.nodes_of(process, cpus) {
                *threads.entry(node).or_default() += 1;
            }
        }
        threads.into_iter().collect()
    }

    /// Pages of a process that move where what it has in common with others is spread so.
    pub fn to_spread(&self, process: usize, over: &[(usize, u64)]) -> f64 {
        let pages = &self.processes[process].common;
        let all: u64 = pages.iter().sum();
        let weights: u64 = over.iter().map(|&(_, weight)| weight).sum();
        let stay = over.iter().map(|&(node, weight)| {
            let share = all as f64 * weight as f64 / weights.max(1) as f64;
            share.min(pages[node] as f64)
        });
        all as f64 - stay.sum::<f64>()
    }

    /// What it takes to spread these, in moves of pages that one process has: each process that has a page mapped is
    /// interrupted for it.
    pub fn spreading(&self, process: usize, memory: &[Memory], over: &[(usize, u64)]) -> f64 {
        let sharers = memory.iter().filter(|memory| memory.spreads).count();
        self.to_spread(process, over) * sharers as f64
    }

    /// Where the memory of a process comes to be.
    pub(super) fn moved(
        &self,
        draw: usize,
        process: usize,
        cpus: &[CpuId],
        memory: Memory,
        over: &[(usize, u64)],
    ) -> Moved {
        let owner = &self.processes[process];
        let shares = |pages: &mut dyn Iterator<Item = (usize, u64)>| -> Vec<(usize, f64)> {
            let pages: Vec<(usize, u64)> = pages.filter(|&(_, pages)| pages > 0).collect();
            let all: u64 = pages.iter().map(|&(_, pages)| pages).sum();
            let share = |(node, pages)| (node, pages as f64 / all as f64);
            pages.into_iter().map(share).collect()
        };
        let as_is = |pages: &[u64]| shares(&mut pages.iter().copied().enumerate());
        let (private, own) = match memory.follows {
            false => (0.0, as_is(&owner.pages)),
            true => {
                let nodes = self.nodes_of(process, cpus);
                let unknown = match owner.is_told {
                    true => 0.0,
                    false => 1.0 - owner.private,
                };
                let private = owner.private + unknown * self.private[draw];
                let private = private * (1.0 - mixed(&owner.pages, &nodes));
                let part = (1.0 - private) / nodes.len() as f64;
                (
                    private,
                    nodes.into_iter().map(|node| (node, part)).collect(),
                )
            }
        };
        let common = match memory.spreads {
            false => as_is(&owner.common),
            true => shares(&mut over.iter().copied()),
        };
        Moved {
            private,
            own,
            common,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_for_each_thread_is_mixed_and_many_are_not() {
        let mixed = |blocks: u64, nodes: &[usize]| mixed(&[blocks * BLOCK_PAGES, 0], nodes);
        assert_eq!(mixed(1, &[1, 1, 1]), 0.0, "one node");
        assert_eq!(mixed(0, &[0, 1]), 1.0);
        assert_eq!(mixed(2, &[0, 1]), 1.0);
        assert_eq!(mixed(8, &[0, 1]), 0.25);
        assert!(mixed(10_000, &[0, 1]) < 0.001);
    }
}
