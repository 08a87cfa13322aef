//! By use: memory that one node uses goes there, and what several use is spread over them.
//!
//! Problem: the threads of a process run on several nodes and its memory was loaded by one of them, so all wait for
//! one controller. What each thread has for itself belongs beside it; what all use has no right node, and is read
//! fastest from all of them at once.
//!
//! Rule: the accesses that are sampled of a process with placed threads on several nodes are counted by block of
//! 512 pages (2 MiB of 4 KiB pages: a huge page is never split) and by the node that they came from. After the
//! eighth of a block, it is ordered to the node that at least three quarters of them came from; where there is none,
//! to the process's nodes in turn, block by block, each as often as it has threads. A block is ordered once, and
//! again only when its node has no thread of the process any more, or after `thaw_after_s`.
//!
//! Terms: a *block* is 512 pages that begin at a multiple of it. Source: shared memory spread, private memory at
//! home: Carrefour (ASPLOS 2013); weights by threads and the counts are chosen here.
//!
//! Properties: no block is ordered twice within `thaw_after_s` while the process's threads stay on their nodes;
//! orders never overlap; every order is to a node on which the process has a placed thread.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{PageOrder, PageOutcome, Pages, ProcessId, Signal, Snapshot};

use super::driver::{Access, Driven, Orders, PageRule, Wish};
use crate::policy::{Optional, PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;

/// The rules that orders name.
pub const RULES: &[Rule] = &[HOME, SPREAD];
const HOME: Rule = Rule {
    name: "by-use: private",
    source: "Carrefour; counts chosen here",
    what: "At least three quarters of the sampled accesses to these pages came from one node: they go there.",
};
const SPREAD: Rule = Rule {
    name: "by-use: shared",
    source: "Carrefour; counts chosen here",
    what: "Threads on several nodes use these pages: blocks of them go to the process's nodes in turn.",
};

/// Pages of a block.
const BLOCK: u64 = 512;
/// Sampled accesses by which a block is judged.
const ENOUGH: u32 = 8;

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct ByUse {
    thaw_after_ns: u64,
    /// Processes with placed threads on several nodes: the node of each, ascending.
    nodes: BTreeMap<ProcessId, Vec<NodeId>>,
    blocks: HashMap<(ProcessId, u64), Block>,
}

#[derive(Clone, Debug, Default)]
struct Block {
    accesses: BTreeMap<NodeId, u32>,
    /// Where it was ordered, and when.
    ordered: Option<(NodeId, u64)>,
}

impl ByUse {
    /// The paging; nothing seen yet.
    pub fn paging(settings: &Settings) -> Driven<Self, Blocks> {
        Driven {
            rule: Self {
                thaw_after_ns: settings.paging.thaw_after_s.saturating_mul(1_000_000_000),
                ..Self::default()
            },
            orders: Blocks::default(),
        }
    }
}

/// The node of each placed thread of the processes that have them on several nodes.
fn spread_out(placed: &[PlacedThread]) -> BTreeMap<ProcessId, Vec<NodeId>> {
    let mut nodes: BTreeMap<ProcessId, Vec<NodeId>> = BTreeMap::new();
    for thread in placed {
        nodes.entry(thread.process).or_default().push(thread.node);
    }
    nodes.retain(|_, nodes| {
        nodes.sort_unstable();
        nodes.first() != nodes.last()
    });
    nodes
}

impl PageRule for ByUse {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds {
            also: &[Optional {
                signal: Signal::MemorySamples,
                without: "Memory that threads on several nodes use stays where it is.",
            }],
            ..PagingNeeds::default()
        }
    }

    fn see(&mut self, placed: &[PlacedThread], _: &Snapshot) {
        self.nodes = spread_out(placed);
        self.blocks
            .retain(|(process, _), _| self.nodes.contains_key(process));
    }

    fn listens(&self) -> bool {
        !self.nodes.is_empty()
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let nodes = self.nodes.get(&access.sample.process)?;
        let number = access.page / BLOCK;
        let block = self
            .blocks
            .entry((access.sample.process, number))
            .or_default();
        let now_ns = access.sample.time_ns;
        if let Some((to, since_ns)) = block.ordered {
            if nodes.contains(&to) && now_ns.saturating_sub(since_ns) < self.thaw_after_ns {
                return None;
            }
            *block = Block::default();
        }
        *block.accesses.entry(access.node).or_default() += 1;
        let all: u32 = block.accesses.values().sum();
        if all < ENOUGH {
            return None;
        }
        let to = match block.main_user().filter(|node| nodes.contains(node)) {
            Some(node) => node,
            None => nodes[(number % nodes.len() as u64) as usize],
        };
        block.ordered = Some((to, now_ns));
        Some(to)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        let block = self.blocks.get(&(wish.process, wish.page / BLOCK));
        let user = block.and_then(Block::main_user);
        let to = wish.to;
        match user.filter(|user| *user == to) {
            Some(_) => HOME.because(words!("{pages} are used from node {to}", pages, to)),
            None => SPREAD.because(words!(
                "{pages} are used from several nodes; it is the turn of node {to}",
                pages,
                to
            )),
        }
    }
}

impl Block {
    /// The node that at least three quarters of the accesses came from.
    fn main_user(&self) -> Option<NodeId> {
        let all: u32 = self.accesses.values().sum();
        let (&node, &most) = self.accesses.iter().max_by_key(|&(_, &count)| count)?;
        (most * 4 >= all * 3).then_some(node)
    }
}

/// Orders whole blocks.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    page_bytes: u64,
    processes: Vec<ProcessId>,
}

impl Orders for Blocks {
    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        self.page_bytes = snapshot.page_bytes;
        self.processes = spread_out(placed).into_keys().collect();
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes.max(1)
    }

    fn knows(&self, process: ProcessId) -> bool {
        self.processes.binary_search(&process).is_ok()
    }

    fn orders(
        &mut self,
        wishes: Vec<Wish<'_>>,
        topology: &Topology,
        _now_ns: u64,
        reason: &dyn Fn(&Wish<'_>, String) -> Reason,
    ) -> Vec<PageOrder> {
        let is_to_move = |wish: &Wish<'_>| {
            let node = topology.node(wish.to);
            !wish.stays && node.is_some_and(|node| node.memory_bytes > 0)
        };
        let order = |wish: Wish<'_>| {
            let first = wish.page / BLOCK * BLOCK;
            let pages = format!("{BLOCK} pages from {first:#x} on");
            let Reason { rule, why, .. } = reason(&wish, pages);
            PageOrder {
                process: wish.process,
                thread: wish.thread,
                pages: Pages::Window {
                    first,
                    count: BLOCK,
                },
                to: wish.to,
                rule: Cow::Borrowed(rule.name),
                why: why.to_string(),
            }
        };
        wishes.into_iter().filter(is_to_move).map(order).collect()
    }

    fn moved(&mut self, _: &[PageOutcome]) {}
}

#[cfg(test)]
mod tests;
