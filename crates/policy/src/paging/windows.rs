//! Windows of pages around those that are to move, made into orders ([`driver`](super::driver)).
//!
//! * Each wish becomes an order for the `K` pages around its page.
//! * Not twice: a page that was ordered to the same node within the last second, of the samples' time,
//!   is left out (samples come in late, and pages that would not move get their next chance then);
//!   what was not tried may be ordered again at once. So no page is in two orders of one call.
//! * No ping-pong ([`Guard`]): a page that has gone to and fro too often is frozen.
//! * Nothing is ordered to a node without memory.
//!
//! Properties: no order reaches below page 0, has more than `K` pages or a page that is frozen; orders of
//! one call to one node never overlap; the page of the wish is in its order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use numaherd_topology::{Node, NodeId, Topology};
use numaherd_world::{PageOrder, PageOutcome, Pages, ProcessId, Snapshot, USUAL_PAGE_BYTES};

use super::driver::{Orders, Wish};
use super::guard::{Guard, PagingSettings};
use super::single::STANDS_NS;
use crate::policy::PlacedThread;
use crate::reason::Reason;

/// See the top of this file.
#[derive(Clone, Debug)]
pub struct Windows {
    pages: u64,
    page_bytes: u64,
    /// Processes with threads that were given a core.
    processes: BTreeSet<ProcessId>,
    recent: Recent,
    guard: Guard,
}

impl Windows {
    /// Nothing seen yet.
    pub fn new(settings: &PagingSettings) -> Self {
        Self {
            pages: settings.window_pages,
            page_bytes: USUAL_PAGE_BYTES,
            processes: BTreeSet::new(),
            recent: Recent::default(),
            guard: Guard::new(settings),
        }
    }

    /// The pages that a wish calls for, if any; notes that they are ordered.
    fn window(&mut self, wish: &Wish<'_>) -> Option<Range<u64>> {
        let &Wish {
            process,
            to,
            page,
            time_ns,
            ..
        } = wish;
        let wide = page.saturating_sub(self.pages / 2)..page.saturating_add(self.pages.div_ceil(2));
        let fresh = self.recent.rest((process, to), page, wide, time_ns)?;
        let window = self.guard.admit(process, to, page, fresh, time_ns)?;
        self.recent.add((process, to), window.clone(), time_ns);
        Some(window)
    }
}

impl Orders for Windows {
    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        self.page_bytes = snapshot.page_bytes.max(1);
        self.processes = placed.iter().map(|thread| thread.process).collect();
        let lives = |process: ProcessId| self.processes.contains(&process);
        self.recent
            .windows
            .retain(|&(process, _), _| lives(process));
        self.guard.keep_only(lives);
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn knows(&self, process: ProcessId) -> bool {
        self.processes.contains(&process)
    }

    fn orders(
        &mut self,
        wishes: Vec<Wish<'_>>,
        topology: &Topology,
        _now_ns: u64,
        reason: &dyn Fn(&Wish<'_>, String) -> Reason,
    ) -> Vec<PageOrder> {
        let has_memory = |node| topology.node(node).is_some_and(Node::has_memory);
        let order = |wish: Wish<'_>| {
            let window = self.window(&wish)?;
            let count = window.end - window.start;
            let reason = reason(&wish, format!("{count} of {} pages", self.pages));
            Some(wish.order(window, &reason))
        };
        let wishes = wishes.into_iter().filter(|wish| has_memory(wish.to));
        wishes.filter_map(order).collect()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.not_tried > 0) {
            if let Pages::Window { first, .. } = outcome.pages {
                self.recent.forget((outcome.process, outcome.to), first);
            }
        }
    }
}

/// Windows that were ordered not long ago. For each process and node they never overlap.
#[derive(Clone, Debug, Default)]
struct Recent {
    windows: BTreeMap<(ProcessId, NodeId), BTreeMap<u64, Ordered>>,
    by_age: VecDeque<(u64, (ProcessId, NodeId), u64)>,
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
        of: (ProcessId, NodeId),
        page: u64,
        window: Range<u64>,
        now_ns: u64,
    ) -> Option<Range<u64>> {
        self.age(now_ns);
        let Some(ordered) = self.windows.get(&of) else {
            return Some(window);
        };
        let before = ordered.range(..=page).next_back().map_or(0, |(_, o)| o.end);
        let after = ordered
            .range(page..)
            .next()
            .map_or(u64::MAX, |(&first, _)| first);
        (before <= page && after > page).then(|| window.start.max(before)..window.end.min(after))
    }

    fn add(&mut self, of: (ProcessId, NodeId), window: Range<u64>, now_ns: u64) {
        let ordered = Ordered {
            end: window.end,
            time_ns: now_ns,
        };
        self.windows
            .entry(of)
            .or_default()
            .insert(window.start, ordered);
        self.by_age.push_back((now_ns, of, window.start));
    }

    fn age(&mut self, now_ns: u64) {
        while let Some(&(time_ns, of, first)) = self.by_age.front() {
            if now_ns.saturating_sub(time_ns) < STANDS_NS {
                break;
            }
            self.by_age.pop_front();
            // It may have been forgotten, and another ordered in its place since.
            let stands = self.windows.get(&of).and_then(|o| o.get(&first));
            if stands.is_some_and(|ordered| ordered.time_ns == time_ns) {
                self.forget(of, first);
            }
        }
    }

    fn forget(&mut self, of: (ProcessId, NodeId), first: u64) {
        if let Some(ordered) = self.windows.get_mut(&of) {
            ordered.remove(&first);
            if ordered.is_empty() {
                self.windows.remove(&of);
            }
        }
    }
}
