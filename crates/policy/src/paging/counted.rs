//! Pages by counted accesses: kMAF, and the node with the most samples.
//!
//! Problem: find the node that uses a page from single accesses: memory samples, or page faults that the
//! kernel provokes. Rule: both policies count them by page and node, for the lifetime of the process.
//!
//! * *sampled* (IPM §3.1, §3.3, Fig. 1): a page belongs to the node with the most samples of it so far.
//!   A tie changes nothing.
//! * *kmaf* (Diener, Cruz, Navaux, Busse, Heiß: kMAF, PACT 2014). Its later journal text (TPDS 2016, §4.3,
//!   §4.5), its source and IPM §2.3 say: it counts faults in a NUMA vector per page; at each fault it computes
//!   the page's *exclusivity*, the highest count divided by the sum, and sends a page that is exclusive enough
//!   to the node with the highest count; it remembers the last two threads that faulted on a block, and a
//!   fault adds 1 in the sharing matrix for each of them other than the faulting thread. Our reading: *enough*
//!   is `kmaf.exclusivity` (we do not know its figure); the first fault on a page moves nothing (first touch
//!   holds); a block is a page; a page that is not exclusive stays (the journal's second rule balances such
//!   pages over the nodes, with figures that we do not know).
//!
//! Terms: a *NUMA vector* counts accesses to a page by node; *exclusivity* is its highest entry divided by
//! their sum. Source: IPM §3.1, §3.3 for `sampled`; kMAF, PACT 2014, for `kmaf`, as said above.
//!
//! Properties: every order is for a page that was seen in that call, to the node with the highest count;
//! kMAF's matrix is symmetric, and no thread shares with itself.

use std::collections::{BTreeMap, HashMap};

use numaherd_files::settings;
use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Sample, Sharing, Signal, Snapshot, ThreadId};

use super::driver::{Access, PageRule, Wish};
use crate::policy::{PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;

/// The rules that orders of `sampled` name.
pub const SAMPLED_RULES: &[Rule] = &[MOST];
const MOST: Rule = Rule {
    name: "sampled: most samples",
    source: "IPM 3.1, 3.3",
    what: "Another node than the page's own has the most samples of the page: it is ordered there.",
};

/// The rules that orders of `kmaf` name.
pub const KMAF_RULES: &[Rule] = &[EXCLUSIVE];
const EXCLUSIVE: Rule = Rule {
    name: "kmaf: exclusive page",
    source: "kMAF, PACT 2014; threshold chosen here",
    what: "One node, not the page's own, has nearly all faults on the page: it is ordered there.",
};

settings! {
    /// Which pages `kmaf` moves.
    #[derive(Copy)]
    pub struct KmafSettings {
        /// The share of a page's faults that a node must have to get the page. No source is known to us.
        exclusivity: f64 = 0.9, unit: "share", range: 0.0..=1.0, source: "chosen here";
    }
}

/// How many last threads a page remembers (kMAF's block vector).
const SHARERS: usize = 2;

/// Accesses to one page.
#[derive(Clone, Debug, Default)]
struct Page {
    /// By node; few, so that a list is as good as a map.
    by_node: Vec<(NodeId, u32)>,
    /// The threads that accessed it last, the latest first.
    sharers: [Option<ThreadId>; SHARERS],
}

impl Page {
    fn count(&mut self, node: NodeId) {
        match self.by_node.iter_mut().find(|(known, _)| *known == node) {
            Some((_, count)) => *count = count.saturating_add(1),
            None => self.by_node.push((node, 1)),
        }
    }

    fn of(&self, node: NodeId) -> u32 {
        let known = self.by_node.iter().find(|&&(known, _)| known == node);
        known.map_or(0, |&(_, count)| count)
    }

    fn total(&self) -> u64 {
        let counts = self.by_node.iter().map(|&(_, count)| u64::from(count));
        counts.sum()
    }

    /// The node with the highest count; of several the lowest.
    fn most(&self) -> Option<(NodeId, u32)> {
        let by_count = |&&(node, count): &&(NodeId, u32)| (count, std::cmp::Reverse(node));
        self.by_node.iter().max_by_key(by_count).copied()
    }
}

/// Counts of all pages.
#[derive(Clone, Debug, Default)]
struct Counted(HashMap<(ProcessId, u64), Page>);

impl Counted {
    fn keep_only(&mut self, snapshot: &Snapshot) {
        self.0
            .retain(|&(process, _), _| snapshot.process(process).is_some());
    }

    /// Counts an access; returns its page.
    fn count(&mut self, access: &Access<'_>) -> &mut Page {
        let page = self.0.entry(access.key()).or_default();
        page.count(access.node);
        page
    }
}

/// To the node with the most samples. See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct Sampled(Counted);

impl PageRule for Sampled {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::of(&[Signal::MemorySamples])
    }

    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        self.0.keep_only(snapshot);
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let page = self.0.count(access);
        let home = access.sample.node?;
        let (to, count) = page.most()?;
        (to != home && count > page.of(home)).then_some(to)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        MOST.because(words!(
            "node {to} has the most samples of {pages}",
            to = wish.to,
            pages
        ))
    }
}

/// kMAF. See the top of this file.
#[derive(Clone, Debug)]
pub struct Kmaf {
    counted: Counted,
    exclusivity: f64,
    shared: BTreeMap<ProcessId, HashMap<(ThreadId, ThreadId), u64>>,
}

impl Kmaf {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            counted: Counted::default(),
            exclusivity: settings.kmaf.exclusivity,
            shared: BTreeMap::new(),
        }
    }
}

impl PageRule for Kmaf {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::finding_sharing(&[Signal::HintFaults])
    }

    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        self.counted.keep_only(snapshot);
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        let page = self.counted.count(access);
        let Sample {
            process, thread, ..
        } = *access.sample;
        let others = page.sharers.into_iter().flatten();
        for other in others.filter(|&other| other != thread) {
            let pair = (other.min(thread), other.max(thread));
            let shared = self.shared.entry(process).or_default();
            *shared.entry(pair).or_default() += 1;
        }
        page.sharers.rotate_right(1);
        page.sharers[0] = Some(thread);
        let total = page.total();
        let (to, count) = page.most()?;
        let is_exclusive = total > 1
            && access.sample.node.is_some_and(|home| home != to)
            && f64::from(count) >= self.exclusivity * total as f64;
        is_exclusive.then_some(to)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        EXCLUSIVE.because(words!(
            "node {to} has nearly all faults on {pages}",
            to = wish.to,
            pages
        ))
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let taken = std::mem::take(&mut self.shared);
        let sharing = |pairs: HashMap<(ThreadId, ThreadId), u64>| {
            Sharing::of(pairs.into_iter().map(|((one, other), n)| (one, other, n)))
        };
        taken
            .into_iter()
            .map(|(process, pairs)| (process, sharing(pairs)))
            .collect()
    }
}

#[cfg(test)]
mod tests;
