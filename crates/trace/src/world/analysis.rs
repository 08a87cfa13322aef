//! What a whole trace says about its pages and threads, without any machine: the oracle's knowledge.
//!
//! Every access counts, in one pass. As in the paper's oracle (IPM §5.2, after Barrow-Williams, Fensch and Moore,
//! 2009), the data that two threads share tells how much they communicate. Our measure: for each page, the smaller of
//! the two threads' numbers of accesses, summed over pages. So a page that one thread uses all the time and the other
//! once counts once.

use std::collections::HashMap;

use numaherd_topology::{NodeId, Topology};

use super::options::Start;
use super::threads::Release;
use crate::{Error, ThreadInfo, Trace};

/// Who uses a page.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PageUse {
    /// Its process.
    pub process: u32,
    /// Its number: virtual address / bytes of a page.
    pub page: u64,
    /// Threads by their numbers in the trace, ascending, each with its number of accesses.
    pub by_thread: Vec<(u32, u64)>,
}

/// How good a placement is ([`Analysis::judge`]).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Judgement {
    /// Pages that placed threads use.
    pub pages: u64,
    /// Of these, pages on a node that no other node exceeds in accesses to the page.
    pub right: u64,
    /// Accesses of placed threads.
    pub accesses: u64,
    /// Of these, accesses from the node that the page is on.
    pub local_accesses: u64,
}

/// The part of a trace that is played only once: the set-up, and the threads that did next to nothing. Empty if
/// everything is played again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetUp {
    pub(super) releases: Vec<Option<Release>>,
}

impl SetUp {
    /// Whether the trace shows where set-up ends.
    pub fn is_known(&self) -> bool {
        !self.releases.is_empty()
    }

    /// When the last thread was released, in modelled seconds; 0 if that is not known.
    pub fn seconds(&self) -> f64 {
        let times = self.releases.iter().flatten();
        let last = times.map(|release| release.time_ps).max();
        last.unwrap_or(0) as f64 * 1e-12
    }

    /// Whole frames of a thread that belong to the set-up, and events of the next frame.
    fn of(&self, thread: usize) -> (usize, usize) {
        match self.releases.get(thread) {
            Some(Some(release)) => release.place(),
            Some(None) => (usize::MAX, 0),
            None => (0, 0),
        }
    }
}

/// What a whole trace says about its pages and threads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Analysis {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// The threads.
    pub threads: Vec<ThreadInfo>,
    /// The pages, by process and number, ascending.
    pub pages: Vec<PageUse>,
    /// Accesses in all.
    pub accesses: u64,
}

impl Analysis {
    /// Reads a trace to its end. An access that lies across two pages counts for
    /// the first.
    ///
    /// # Errors
    /// When the trace cannot be read. Damage is no error: the trace is read up to it.
    ///
    /// # Panics
    /// When `page_bytes` is not a power of two.
    pub fn of(trace: &Trace, page_bytes: u64) -> Result<Self, Error> {
        Self::after(trace, page_bytes, &SetUp::default())
    }

    /// The same for the part that is played again in each loop: without the set-up, if the trace has one.
    ///
    /// # Errors
    /// As [`Analysis::of`].
    ///
    /// # Panics
    /// As [`Analysis::of`].
    pub fn after(trace: &Trace, page_bytes: u64, set_up: &SetUp) -> Result<Self, Error> {
        assert!(page_bytes.is_power_of_two(), "a page of {page_bytes} bytes");
        let shift = page_bytes.trailing_zeros();
        let threads = trace.threads().to_vec();
        let mut pages: HashMap<(u32, u64), Vec<(u32, u64)>> = HashMap::new();
        let mut accesses = 0;
        let mut events = Vec::new();
        let readers = threads.iter().zip(trace.all_threads());
        for (number, (info, mut reader)) in readers.enumerate() {
            let mut own: HashMap<u64, u64> = HashMap::new();
            // Most accesses are to a recently used page.
            let mut recent = [(u64::MAX, 0u64); 64];
            let (frames, mut before) = set_up.of(number);
            reader.skip(frames);
            loop {
                match reader.next_frame(&mut events) {
                    Ok(Some(_)) => {}
                    Ok(None) | Err(Error::Damaged(_)) => break,
                    Err(error) => return Err(error),
                }
                let played = &events[std::mem::take(&mut before).min(events.len())..];
                for event in played.iter().filter(|event| event.is_access()) {
                    let page = event.address >> shift;
                    let slot = &mut recent[page as usize % 64];
                    if slot.0 != page {
                        if slot.1 > 0 {
                            *own.entry(slot.0).or_default() += slot.1;
                        }
                        *slot = (page, 0);
                    }
                    slot.1 += 1;
                    accesses += 1;
                }
            }
            for (page, count) in recent.into_iter().filter(|slot| slot.1 > 0) {
                *own.entry(page).or_default() += count;
            }
            for (page, count) in own {
                let by_thread = pages.entry((info.process, page)).or_default();
                by_thread.push((number as u32, count));
            }
        }
        let used = |((process, page), by_thread)| PageUse {
            process,
            page,
            by_thread,
        };
        let mut pages: Vec<PageUse> = pages.into_iter().map(used).collect();
        pages.sort_unstable_by_key(|used| (used.process, used.page));
        Ok(Self {
            page_bytes,
            threads,
            pages,
            accesses,
        })
    }

    /// Judges a placement of threads and pages by the whole trace: counts the pages that are on the node whose threads
    /// access them most, with the threads where they are placed. Accesses of threads without a place do not count, nor
    /// do pages that only they use.
    pub fn judge(&self, placement: &Start, topology: &Topology) -> Judgement {
        let mut judgement = Judgement::default();
        for used in &self.pages {
            let mut by_node: Vec<(NodeId, u64)> = Vec::new();
            for &(thread, accesses) in &used.by_thread {
                let cpu = placement.cpus.get(thread as usize).copied().flatten();
                let Some(node) = cpu.and_then(|cpu| topology.node_of(cpu)) else {
                    continue;
                };
                match by_node.iter_mut().find(|(known, _)| *known == node) {
                    Some((_, sum)) => *sum += accesses,
                    None => by_node.push((node, accesses)),
                }
            }
            let all: u64 = by_node.iter().map(|&(_, accesses)| accesses).sum();
            if all == 0 {
                continue;
            }
            let here = placement.nodes.get(&(used.process, used.page)).copied();
            let accesses_from = |node| {
                let found = by_node.iter().find(|(known, _)| Some(*known) == node);
                found.map_or(0, |&(_, accesses)| accesses)
            };
            let most = by_node.iter().map(|&(_, accesses)| accesses).max();
            judgement.pages += 1;
            judgement.accesses += all;
            judgement.local_accesses += accesses_from(here);
            judgement.right += u64::from(Some(accesses_from(here)) == most);
        }
        judgement
    }

    /// How much each pair of threads communicates: a symmetric square matrix by thread number, with 0 on the diagonal.
    pub fn communication(&self) -> Vec<Vec<u64>> {
        let threads = self.threads.len();
        let mut all = vec![vec![0u64; threads]; threads];
        for used in &self.pages {
            for (at, &(one, ones)) in used.by_thread.iter().enumerate() {
                for &(other, others) in &used.by_thread[..at] {
                    let shared = ones.min(others);
                    all[one as usize][other as usize] += shared;
                    all[other as usize][one as usize] += shared;
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use numaherd_topology::{CpuId, Machine};

    use super::*;

    #[test]
    fn a_placement_is_judged_by_who_uses_which_page() {
        let machine = Machine::preset("lab-4x2").expect("a preset");
        let topology = machine.topology().expect("a machine");
        let page = |page, by_thread: &[(u32, u64)]| PageUse {
            process: 1,
            page,
            by_thread: by_thread.to_vec(),
        };
        let analysis = Analysis {
            page_bytes: 4096,
            threads: vec![ThreadInfo::default(); 3],
            pages: vec![
                page(1, &[(0, 10), (1, 4)]),
                page(2, &[(0, 3), (1, 7)]),
                page(3, &[(0, 5), (1, 5)]),
                page(4, &[(2, 100)]),
            ],
            accesses: 134,
        };
        // Threads 0 and 1 on nodes 0 and 1; thread 2 is placed nowhere.
        let placement = Start {
            cpus: vec![Some(CpuId(0)), Some(CpuId(2)), None],
            nodes: [(1, 0), (2, 0), (3, 1), (4, 3)]
                .map(|(page, node)| ((1, page), NodeId(node)))
                .into(),
        };
        let expected = Judgement {
            pages: 3,
            right: 2,
            accesses: 34,
            local_accesses: 10 + 3 + 5,
        };
        assert_eq!(analysis.judge(&placement, &topology), expected);
    }
}
