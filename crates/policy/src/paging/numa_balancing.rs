//! NUMA balancing: the Linux kernel's rule for pages on which it provokes hint faults.
//!
//! Problem: a fault shows that one thread touched a page once; a page that moved at every such fault would go
//! back and forth between all threads that use it. The kernel waits for two faults in a row.
//!
//! Rule, as the kernel's scheduler (since 3.13, with automatic balancing on) behaves at a fault of a
//! thread on node n on a page of node m, n ≠ m:
//! 1. *First fault* on the page, as far as is remembered: it moves.
//! 2. *Two-stage filter*: the previous fault came from another node than n: it stays.
//! 3. *Private*: the previous fault was the same thread's: it moves.
//! 4. *Shared*: it moves if the process's threads fault on node n more than three times as much as on m; or
//!    if they fault there so much more that it outweighs, by 4 to 3, the share of the faults that the pages of
//!    n already have: `on n * pages of m * 3 > on m * pages of n * 4`.
//!
//! The counts of rule 4 fade to half once an interval; the kernel's fade at each scan of a thread. The kernel
//! also treats threads that share pages across processes as one group; here a group is a process. The kernel
//! lets first faults pass only in the first scans of a thread's life, and applies rule 4 to later ones; this
//! paging sees faults but no scans. The kernel decides where threads run (placement `linux`); the world
//! decides how often which pages fault.
//!
//! Terms: a *hint fault* is one that the kernel provokes by unmapping a page, to see which thread touches it
//! next; a fault is *private* if the previous one on the page was the same thread's, otherwise *shared*.
//!
//! Source: behaviour of `mpol_misplaced` and `should_numa_migrate_memory`, Linux 6.x; Corbet,
//! "NUMA in a hurry" (2012), for the two-stage filter. IPM (§6.1.2) compares with it.
//!
//! Properties: every order is for a page that was faulted on in that call, to the node of a thread that
//! faulted on it; a page on which threads of two nodes fault in turn moves at its first fault and then stays.

use std::collections::{BTreeMap, HashMap};

use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Signal, Snapshot, ThreadId};

use super::driver::{Access, PageRule, Wish};
use crate::policy::{PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::words;

/// The rules that orders name.
pub const RULES: &[Rule] = &[TWICE];
const TWICE: Rule = Rule {
    name: "numa-balancing: two faults in a row",
    source: "Linux, should_numa_migrate_memory",
    what: "A page was faulted on from another node, for the first time, or twice in a row by one \
           thread, or twice in a row by several of a process that runs there far more than its pages \
           are: it is ordered there.",
};

/// How many times as many faults on a node as on the page's own outweigh where pages are.
const FAR_MORE: u64 = 3;

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct NumaBalancing {
    /// The thread that faulted on each page last, and its node.
    last: HashMap<(ProcessId, u64), (ThreadId, NodeId)>,
    groups: BTreeMap<ProcessId, Group>,
}

/// Faults of a process, by node.
#[derive(Clone, Debug, Default)]
struct Group {
    /// By the node that the thread ran on.
    on: BTreeMap<NodeId, u64>,
    /// By the node that the page was on.
    pages_of: BTreeMap<NodeId, u64>,
}

impl Group {
    fn should_move(&self, from: NodeId, to: NodeId) -> bool {
        let count = |of: &BTreeMap<NodeId, u64>, node| of.get(&node).copied().unwrap_or(0);
        let (on_to, on_from) = (count(&self.on, to), count(&self.on, from));
        let (of_to, of_from) = (count(&self.pages_of, to), count(&self.pages_of, from));
        let product = |a: u64, b: u64, c: u64| u128::from(a) * u128::from(b) * u128::from(c);
        on_to > on_from.saturating_mul(FAR_MORE)
            || product(on_to, of_from, 3) > product(on_from, of_to, 4)
    }

    fn fade(&mut self) {
        for faults in self.on.values_mut().chain(self.pages_of.values_mut()) {
            *faults /= 2;
        }
    }
}

impl PageRule for NumaBalancing {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::of(&[Signal::HintFaults])
    }

    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        let lives = |process| snapshot.process(process).is_some();
        self.last.retain(|&(process, _), _| lives(process));
        self.groups.retain(|&process, _| lives(process));
        self.groups.values_mut().for_each(Group::fade);
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let (node, home) = (access.node, access.sample.node);
        let thread = access.sample.thread;
        let before = self.last.insert(access.key(), (thread, node));
        let group = self.groups.entry(access.sample.process).or_default();
        *group.on.entry(node).or_default() += 1;
        if let Some(home) = home {
            *group.pages_of.entry(home).or_default() += 1;
        }
        let moves = match before {
            _ if !access.is_remote() => false,
            None => true,
            Some((_, last)) if last != node => false,
            Some((last, _)) if last == thread => true,
            Some(_) => home.is_some_and(|from| group.should_move(from, node)),
        };
        moves.then_some(node)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        TWICE.because(words!(
            "threads of node {to} faulted on {pages}",
            to = wish.to,
            pages
        ))
    }
}

#[cfg(test)]
mod tests;
