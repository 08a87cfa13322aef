//! Window: the pages around each sampled remote access follow the thread.
//!
//! Problem: after a thread has moved, its memory is remote. Moving all of it costs more than it
//! saves for large sets, and nobody knows which pages are the thread's (DINO §4).
//!
//! Rule (DINO §4.1, §4.2): whenever a sample shows a settled thread reading or writing memory of
//! another node, the `K` pages around the address are ordered to the thread's node. `K` is a total:
//! `page - K/2` up to `page + K/2 - 1`, as in the authors' own scheduler (the paper's §4.2 can be
//! read as twice that).
//!
//! What counts as remote: the page's node is known and is not the thread's; or it is not known, but
//! the hardware says that the access left the node, and the thread was on its own node then.
//! Answers from the core's own caches never count, nor do accesses of which nothing is known.
//!
//! Not twice: a page that was ordered to the same node within the last second, of the samples' time,
//! is left out (samples come in late, and pages that would not move get their next chance then);
//! what was not tried may be ordered again at once. So no page is in two orders of one call.
//!
//! No ping-pong ([`guard`]; DINO §3.3.2).
//!
//! Whom samples can tell nothing: while no thread is settled, or the last snapshot shows every page
//! of each settled thread's process on the thread's node, there is nothing to fetch, and it does not
//! listen. A page that comes to lie elsewhere meanwhile is in the next snapshot.
//!
//! Terms: a thread is *settled* when its placement has given it a core; an access is *remote* that is
//! answered from another node's memory; a page is *frozen* that has gone to and fro too often. Source:
//! DINO §3.3.2, §4.1, §4.2; the authors' scheduler.
//!
//! Properties: no order reaches below page 0, has more than `K` pages, names a thread that is not
//! settled or a page that is frozen; orders of one call to one node never overlap; the sampled page
//! is in its order; equal input gives equal output; while it does not listen, no access to a page that
//! the snapshot knows of leads to an order.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{
    MemorySource, PageOrder, PageOutcome, Pages, ProcessId, Sample, Signal, Snapshot,
    USUAL_PAGE_BYTES,
};

#[cfg(doc)]
use crate::paging::guard;
use crate::paging::guard::Guard;
use crate::paging::single::STANDS_NS;
use crate::policy::{Paging, Random, Settled};
use crate::rules::Rule;
use crate::settings::Settings;

/// The rules that orders name.
pub const RULES: &[Rule] = &[AROUND];
const AROUND: Rule = Rule {
    name: "window: around a remote access",
    source: "DINO 4.1 (sequential-forward-backward), 4.2; window as in the authors' scheduler",
    what: "A settled thread accessed a page of another node: the K pages around it are ordered to \
           the thread's node, unless they were just now or are frozen.",
};

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct Window {
    pages: u64,
    page_bytes: u64,
    /// Ascending by thread.
    settled: Vec<Settled>,
    /// Whether a settled thread may have memory on another node.
    listens: bool,
    recent: Recent,
    guard: Guard,
}

impl Window {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            pages: settings.paging.window_pages,
            page_bytes: USUAL_PAGE_BYTES,
            settled: Vec::new(),
            listens: false,
            recent: Recent::default(),
            guard: Guard::new(&settings.paging),
        }
    }

    /// The order that a sample calls for, if any.
    fn order(&mut self, sample: &Sample, topology: &Topology) -> Option<PageOrder> {
        if sample.source == MemorySource::Cache {
            return None;
        }
        let at = self
            .settled
            .binary_search_by_key(&sample.thread, |settled| settled.thread);
        let settled = self.settled[at.ok()?];
        let to = settled.node;
        let has_memory = || topology.node(to).is_some_and(|node| node.memory_bytes > 0);
        if !is_remote(sample, &settled, topology) || !has_memory() {
            return None;
        }
        let page = sample.address / self.page_bytes;
        let wide = page.saturating_sub(self.pages / 2)..page.saturating_add(self.pages.div_ceil(2));
        let fresh = self
            .recent
            .rest(settled.process, to, page, wide, sample.time_ns)?;
        let window = self
            .guard
            .admit(settled.process, to, page, fresh, sample.time_ns)?;
        self.recent
            .add(settled.process, to, window.clone(), sample.time_ns);
        let count = window.end - window.start;
        let latency = sample
            .latency
            .map_or_else(String::new, |latency| format!(", latency {latency}"));
        let from = sample
            .node
            .map_or_else(|| "another node".to_owned(), |node| format!("node {node}"));
        Some(PageOrder {
            process: settled.process,
            thread: sample.thread,
            pages: Pages::Window {
                first: window.start,
                count,
            },
            to,
            rule: Cow::Borrowed(AROUND.name),
            why: format!(
                "{} on node {to} {} address {:#x} on {from}{latency}; {count} of {} pages around it",
                sample.thread,
                if sample.store { "wrote" } else { "read" },
                sample.address,
                self.pages
            ),
        })
    }
}

impl Paging for Window {
    fn needs(&self) -> &[Signal] {
        &[Signal::MemorySamples]
    }

    fn settled(&mut self, threads: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.page_bytes = snapshot.page_bytes.max(1);
        self.listens = threads
            .iter()
            .any(|thread| may_have_memory_elsewhere(thread, snapshot));
        debug_assert!(threads.is_sorted_by_key(|thread| thread.thread));
        self.settled.clear();
        self.settled.extend_from_slice(threads);
        let mut processes: Vec<ProcessId> = threads.iter().map(|thread| thread.process).collect();
        processes.sort_unstable();
        processes.dedup();
        self.recent.keep_only(&processes);
        self.guard.keep_only(&processes);
        Vec::new()
    }

    fn listens(&self) -> bool {
        self.listens
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        let order = |sample| self.order(sample, topology);
        samples.iter().filter_map(order).collect()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.not_tried > 0) {
            if let Pages::Window { first, .. } = outcome.pages {
                self.recent.forget(outcome.process, outcome.to, first);
            }
        }
    }
}

/// Whether any page of the thread's process is on another node than the thread, as far as is known.
fn may_have_memory_elsewhere(thread: &Settled, snapshot: &Snapshot) -> bool {
    let process = snapshot.process(thread.process);
    let residency = process.and_then(|process| process.residency.as_ref());
    residency.is_none_or(|residency| {
        let pages = &mut residency.pages.iter();
        pages.any(|&(node, pages)| node != thread.node && pages > 0)
    })
}

/// Whether an access that left the core's caches left the thread's node too.
fn is_remote(sample: &Sample, settled: &Settled, topology: &Topology) -> bool {
    sample.node.map_or_else(
        || sample.source.is_remote() && topology.node_of(sample.cpu) == Some(settled.node),
        |node| node != settled.node,
    )
}

/// Windows that were ordered not long ago. For each process and node they never overlap.
#[derive(Clone, Debug, Default)]
struct Recent {
    windows: BTreeMap<(ProcessId, NodeId), BTreeMap<u64, Ordered>>,
    by_age: VecDeque<(u64, ProcessId, NodeId, u64)>,
}

/// One window, keyed by its first page.
#[derive(Clone, Copy, Debug)]
struct Ordered {
    end: u64,
    time_ns: u64,
}

impl Recent {
    /// The part of a window around `page` that has not been ordered to that node of late; `None`
    /// if the page itself has.
    fn rest(
        &mut self,
        process: ProcessId,
        to: NodeId,
        page: u64,
        window: std::ops::Range<u64>,
        now_ns: u64,
    ) -> Option<std::ops::Range<u64>> {
        self.age(now_ns);
        let Some(ordered) = self.windows.get(&(process, to)) else {
            return Some(window);
        };
        let before = ordered.range(..=page).next_back().map_or(0, |(_, o)| o.end);
        let after = ordered
            .range(page..)
            .next()
            .map_or(u64::MAX, |(&first, _)| first);
        (before <= page && after > page).then(|| window.start.max(before)..window.end.min(after))
    }

    fn add(&mut self, process: ProcessId, to: NodeId, window: std::ops::Range<u64>, now_ns: u64) {
        let ordered = Ordered {
            end: window.end,
            time_ns: now_ns,
        };
        self.windows
            .entry((process, to))
            .or_default()
            .insert(window.start, ordered);
        self.by_age.push_back((now_ns, process, to, window.start));
    }

    fn age(&mut self, now_ns: u64) {
        while let Some(&(time_ns, process, to, first)) = self.by_age.front() {
            if now_ns.saturating_sub(time_ns) < STANDS_NS {
                break;
            }
            self.by_age.pop_front();
            // It may have been forgotten, and another ordered in its place since.
            let stands = self.windows.get(&(process, to)).and_then(|o| o.get(&first));
            if stands.is_some_and(|ordered| ordered.time_ns == time_ns) {
                self.forget(process, to, first);
            }
        }
    }

    fn forget(&mut self, process: ProcessId, to: NodeId, first: u64) {
        if let Some(ordered) = self.windows.get_mut(&(process, to)) {
            ordered.remove(&first);
            if ordered.is_empty() {
                self.windows.remove(&(process, to));
            }
        }
    }

    fn keep_only(&mut self, processes: &[ProcessId]) {
        self.windows
            .retain(|(process, _), _| processes.binary_search(process).is_ok());
    }
}

#[cfg(test)]
mod tests;
