//! What becomes of processes' memory in a layout: a process's own may follow its threads, and common memory may be spread
//! over the nodes of its processes' threads.

use std::collections::BTreeMap;

use numaherd_topology::CpuId;

use super::Picture;
use super::demands::Draw;
use super::threads::Load;

/// In how many portions a process's memory can follow its threads, one after the other. Of so many blocks in a row, each
/// portion has one.
pub const PORTIONS: u64 = 64;

/// What becomes of a process's memory in a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How many portions of its own follow its threads now.
    pub follows: u64,
    /// Whether its common memory is spread: over the nodes of all processes whose common memory is.
    pub spreads: bool,
}

impl Memory {
    /// Whether any of it moves.
    pub fn moves(self) -> bool {
        self.follows > 0 || self.spreads
    }
}

/// Where a process's moving memory comes to be in a layout. Shares of a part without pages mean nothing.
pub(super) struct Moved {
    /// The part of the process's own memory that a thread has beside it if it went to another node, or was away from its
    /// memory.
    private: f64,
    /// The same for a thread that stays beside what is known to be private to it: blocks with local users stay.
    kept: f64,
    /// Where the rest of its own memory is, with the share on each node.
    own: Vec<(usize, f64)>,
    /// Where its common memory is, with the share on each node.
    common: Vec<(usize, f64)>,
    /// The share of all this that moves now; the rest is where it was.
    share: f64,
}

impl Moved {
    /// Where the lines of one of its threads come from, by a draw. The thread is on `node`, and was before if it `stays`.
    /// If it reads other memory than the others, its own part may be mistaken for shared: by the worst draw it is spread.
    pub(super) fn memory(
        &self,
        load: &Load,
        draw: &Draw,
        node: usize,
        stays: bool,
    ) -> Vec<(usize, f64)> {
        let own = 1.0 - load.common;
        let private = match load.is_at_home && stays {
            _ if draw.evenly && load.evenly.is_some() => 0.0,
            true => self.kept,
            false => self.private,
        };
        let scaled = |parts: &[(usize, f64)], by: f64| -> Vec<(usize, f64)> {
            let parts = parts.iter().map(|&(node, share)| (node, share * by));
            parts.collect()
        };
        let mut memory = scaled(&self.own, own * (1.0 - private));
        memory.push((node, private * own));
        if load.common > 0.0 {
            memory.extend(scaled(&self.common, load.common));
        }
        if self.share < 1.0 {
            memory = scaled(&memory, self.share);
            memory.extend(scaled(load.memory_by(draw), 1.0 - self.share));
        }
        memory
    }
}

/// The share of pages that are in one block with those of another thread, if each thread has its own in so many pieces (a
/// part of each array): such a block has no single user. Where all threads are on one node, blocks do not matter.
fn mixed(pages: &[u64], nodes: &[usize], block_pages: u64, pieces: f64) -> f64 {
    if nodes.windows(2).all(|two| two[0] == two[1]) {
        return 0.0;
    }
    let blocks = pages.iter().sum::<u64>() as f64 / block_pages as f64;
    (nodes.len() as f64 * pieces / blocks.max(1.0)).min(1.0)
}

impl Picture {
    /// What moving a page costs its process at worst, in ns: it goes there and back, and a thread waits for it each time.
    pub fn page_cost_ns(&self) -> f64 {
        2.0 * self.page_move_ns
    }

    /// Own pages of a process that move if its memory follows its threads: those elsewhere, if all threads are on one node;
    /// if they are on several, all but what is known to be private beside them and what is by chance where it is used.
    pub fn to_move(&self, process: usize, cpus: &[CpuId]) -> f64 {
        let pages = &self.processes[process].pages;
        let mut nodes = self.nodes_of(process, cpus);
        nodes.dedup();
        let all: u64 = pages.iter().sum();
        let there: u64 = nodes.iter().map(|&node| pages[node]).sum();
        let owner = &self.processes[process];
        let at_home = owner.threads.iter();
        let at_home = at_home.filter(|&&thread| self.threads[thread].is_at_home);
        let kept = match nodes.len() > 1 {
            true => owner.private * at_home.count() as f64 / owner.threads.len() as f64,
            false => 0.0,
        };
        (all as f64 - there as f64 / nodes.len().max(1) as f64) * (1.0 - kept)
    }

    /// Portions of a process's memory that are still to follow its threads, where these are in a layout.
    pub fn portions_left(&self, process: usize, cpus: &[CpuId]) -> u64 {
        match self.processes[process].followed {
            Some((home, portions))
                if self
                    .nodes_of(process, cpus)
                    .iter()
                    .all(|&node| node == home) =>
            {
                PORTIONS - portions
            }
            _ => PORTIONS,
        }
    }

    /// The share that follows, as a part of what would move if all of a process's own memory followed: in portions that
    /// have followed, nothing is left to move.
    fn share_that_follows(&self, process: usize, memory: Memory, cpus: &[CpuId]) -> f64 {
        memory.follows as f64 / self.portions_left(process, cpus) as f64
    }

    /// Whether memory of a process follows its use in a layout, as it does if its threads are on several nodes.
    pub fn follows_use(&self, process: usize, cpus: &[CpuId], memory: Memory) -> bool {
        let nodes = self.nodes_of(process, cpus);
        memory.follows > 0 && nodes.first() != nodes.last()
    }

    /// Own pages of a process that move in a layout.
    pub fn following(&self, process: usize, memory: Memory, cpus: &[CpuId]) -> f64 {
        match memory.follows {
            0 => 0.0,
            _ => self.share_that_follows(process, memory, cpus) * self.to_move(process, cpus),
        }
    }

    /// The nodes (places) over which common memory is spread, each with how many threads its processes have there.
    pub fn spread_over(&self, memory: &[Memory], cpus: &[CpuId]) -> Vec<(usize, u64)> {
        let mut threads = BTreeMap::new();
        for process in (0..memory.len()).filter(|&process| memory[process].spreads) {
            for node in self.nodes_of(process, cpus) {
                *threads.entry(node).or_default() += 1;
            }
        }
        threads.into_iter().collect()
    }

    /// Pages of a process that move if its common memory is spread over these nodes.
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

    /// What it takes to spread these pages, in moves of pages that one process has mapped: each process that has a page
    /// mapped is interrupted for it.
    pub fn spreading(&self, process: usize, memory: &[Memory], over: &[(usize, u64)]) -> f64 {
        let sharers = memory.iter().filter(|memory| memory.spreads).count();
        self.to_spread(process, over) * sharers as f64
    }

    /// Where the memory of a process comes to be in a layout.
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
        let (private, kept, own) = match memory.follows {
            0 => (0.0, 0.0, as_is(&owner.pages)),
            _ => {
                let nodes = self.nodes_of(process, cpus);
                let unknown = match owner.is_told {
                    true => 0.0,
                    false => 1.0 - owner.private,
                };
                let pieces = self.draws[draw].pieces;
                let apart = 1.0 - mixed(&owner.pages, &nodes, self.block_pages, pieces);
                let found = unknown * self.draws[draw].private * apart;
                let part = 1.0 / nodes.len() as f64;
                (
                    owner.private * apart + found,
                    owner.private + found,
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
            kept,
            own,
            common,
            share: match memory.follows {
                0 => 1.0,
                _ => self.share_that_follows(process, memory, cpus),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::placement::adaptive::tests::{program, scene};
    use crate::stage::Stage;
    use numaherd_testing::Scene;
    use numaherd_topology::NodeId;
    use numaherd_world::Residency;

    #[test]
    fn a_block_for_each_thread_is_mixed_and_many_are_not() {
        let mixed = |blocks: u64, nodes: &[usize]| mixed(&[blocks * 64, 0], nodes, 64, 1.0);
        assert_eq!(mixed(1, &[1, 1, 1]), 0.0, "one node");
        assert_eq!(mixed(0, &[0, 1]), 1.0);
        assert_eq!(mixed(2, &[0, 1]), 1.0);
        assert_eq!(mixed(8, &[0, 1]), 0.25);
        assert!(mixed(10_000, &[0, 1]) < 0.001);
    }
    /// Eight threads of one process, each with its pages beside it, but so many that the kernel has moved away from them.
    fn away(threads: usize) -> Picture {
        let mut scene = scene();
        for number in 0..8 {
            program(&mut scene, number + 1, number, 10.0, 0);
        }
        for (at, thread) in scene.snapshot.threads.iter_mut().enumerate() {
            thread.process = Scene::process(1);
            let counts = thread.counts.as_mut().unwrap();
            if at < threads {
                (counts.local, counts.remote) = (Some(0), Some(counts.lines));
            }
        }
        scene.snapshot.processes.truncate(1);
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: (0..4).map(|node| (NodeId(node), 2000)).collect(),
            kinds: None,
        });
        Estimator::default().observe(&Stage::of_all(&scene.snapshot, &scene.topology))
    }

    #[test]
    fn a_thread_that_was_moved_away_from_its_pages_is_told_from_those_that_have_theirs_beside_them()
    {
        let picture = away(1);
        assert_eq!(picture.processes[0].private, 1.0);
        let here = |at: usize| {
            let seat = picture.seat(picture.threads[at].cpu).unwrap();
            let memory = picture.threads[at].memory.iter();
            let here = memory.filter(|part| part.0 == seat.node);
            here.map(|part| part.1).sum::<f64>()
        };
        assert_eq!(here(0), 0.0);
        assert!((1..8).all(|at| here(at) > 0.99));
        // Its memory goes to it, and the others keep theirs.
        let follows = Memory {
            follows: PORTIONS,
            spreads: false,
        };
        let now = picture.now();
        let then = picture.lost(&now, &[follows]);
        for (then, before) in then.iter().zip(picture.lost_now()) {
            assert!(*then < before, "{then} of {before}");
        }
        // An eighth of those that are not there by chance.
        assert_eq!(picture.to_move(0, &now), 750.0);
    }

    #[test]
    fn many_threads_far_from_their_memory_may_as_well_share_it() {
        assert!(away(4).processes[0].private < 0.5);
    }
}
