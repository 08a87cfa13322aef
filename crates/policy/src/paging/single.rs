//! Single pages that are to move, made into orders ([`driver`](super::driver)).
//!
//! * A *wish* is a page that a rule wants on a node, for a thread. Of several wishes for one page in
//!   one call the last counts.
//! * If there is a [`Guard`], wishes for pages that go back and forth are dropped, page by page.
//! * Neighbouring pages that go to the same node become one order.
//! * A page that was ordered to a node is not ordered there again within a second of the evidence's own
//!   time (what is seen lags behind what was done), unless it was not tried or did not go. An order to
//!   another node ends that at once.
//! * If a wish's thread has ended or must be left alone, the order names the process's lowest thread that may
//!   be placed, because the page belongs to it too. Without such a thread there is no order.
//! * Nothing is ordered to a node without memory or beyond those that the process is allowed, nor for
//!   a process that no snapshot has shown.
//!
//! Properties: no page is in two orders of one call; every order is for a wish.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use numaherd_topology::{Node, NodeId, NodeSet, Topology};
use numaherd_world::{
    PageOrder, PageOutcome, Pages, ProcessId, Snapshot, ThreadId, USUAL_PAGE_BYTES,
};

use super::driver::{Orders, Wish};
use super::guard::{Guard, PagingSettings};
use crate::policy::PlacedThread;
use crate::reason::Reason;

/// How long an order stands before the page may be ordered to the same node again, in ns.
pub(super) const STANDS_NS: u64 = 1_000_000_000;

/// What is known of processes, and of what was ordered. See the top of this file.
#[derive(Clone, Debug)]
pub struct SinglePages {
    page_bytes: u64,
    processes: BTreeMap<ProcessId, Known>,
    /// Threads that may be steered, ascending.
    steerable: Vec<ThreadId>,
    ordered: HashMap<(ProcessId, u64), Ordered>,
    by_age: VecDeque<(u64, ProcessId, u64)>,
    guard: Option<Guard>,
}

#[derive(Clone, Debug)]
struct Known {
    /// Its lowest thread that may be steered.
    thread: Option<ThreadId>,
    allowed_nodes: Arc<NodeSet>,
}

#[derive(Clone, Copy, Debug)]
struct Ordered {
    to: NodeId,
    time_ns: u64,
}

impl Default for SinglePages {
    fn default() -> Self {
        Self {
            page_bytes: USUAL_PAGE_BYTES,
            processes: BTreeMap::new(),
            steerable: Vec::new(),
            ordered: HashMap::new(),
            by_age: VecDeque::new(),
            guard: None,
        }
    }
}

impl Orders for SinglePages {
    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        self.page_bytes = snapshot.page_bytes.max(1);
        let known = |process: &numaherd_world::Process| {
            let known = Known {
                thread: None,
                allowed_nodes: process.allowed_nodes.clone(),
            };
            (process.id, known)
        };
        self.processes = snapshot.processes.iter().map(known).collect();
        self.steerable.clear();
        for thread in snapshot.threads.iter().filter(|t| t.unmanaged.is_none()) {
            self.steerable.push(thread.id);
            if let Some(process) = self.processes.get_mut(&thread.process) {
                process.thread.get_or_insert(thread.id);
            }
        }
        let processes = &self.processes;
        self.ordered
            .retain(|(process, _), _| processes.contains_key(process));
        if let Some(guard) = &mut self.guard {
            guard.keep_only(|process| processes.contains_key(&process));
        }
    }

    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn knows(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }

    /// Ascending by process and page.
    fn orders(
        &mut self,
        mut wishes: Vec<Wish<'_>>,
        topology: &Topology,
        now_ns: u64,
        reason: &dyn Fn(&Wish<'_>, String) -> Reason,
    ) -> Vec<PageOrder> {
        self.age(now_ns);
        wishes.retain(|wish| wish.stays || !self.is_frozen(wish));
        // The last of equals is the one that is kept.
        wishes.reverse();
        wishes.sort_by_key(|wish| (wish.process, wish.page));
        wishes.dedup_by_key(|wish| (wish.process, wish.page));
        wishes.retain_mut(|wish| !wish.stays && self.admit(wish, topology, now_ns));
        let together = |a: &Wish<'_>, b: &Wish<'_>| {
            (a.process, a.to) == (b.process, b.to) && a.page.checked_add(1) == Some(b.page)
        };
        let order = |wishes: &[Wish<'_>]| {
            let first = &wishes[0];
            let pages = first.page..first.page + wishes.len() as u64;
            first.order(pages, &reason(first, named(wishes)))
        };
        wishes.chunk_by(together).map(order).collect()
    }

    /// What was not tried, or did not go, may be ordered again at once.
    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let undone = |outcome: &&PageOutcome| outcome.not_tried > 0 || !outcome.failed.is_empty();
        for outcome in outcomes.iter().filter(undone) {
            if let Pages::Window { first, count } = outcome.pages {
                for page in first..first.saturating_add(count) {
                    self.ordered.remove(&(outcome.process, page));
                }
            }
        }
    }
}

impl SinglePages {
    /// Nothing seen yet; pages that go to and fro are frozen.
    pub(super) fn guarded(settings: &PagingSettings) -> Self {
        let each_page = PagingSettings {
            window_pages: 1,
            ..*settings
        };
        Self {
            guard: Some(Guard::new(&each_page)),
            ..Self::default()
        }
    }

    fn is_frozen(&mut self, wish: &Wish<'_>) -> bool {
        let page = wish.page..wish.page.saturating_add(1);
        let guard = self.guard.as_mut();
        guard.is_some_and(|guard| {
            let admitted = guard.admit(wish.process, wish.to, wish.page, page, wish.time_ns);
            admitted.is_none()
        })
    }

    /// Whether a wish becomes an order; notes it if so.
    fn admit(&mut self, wish: &mut Wish<'_>, topology: &Topology, now_ns: u64) -> bool {
        let Some(process) = self.processes.get(&wish.process) else {
            return false;
        };
        let has_memory = topology.node(wish.to).is_some_and(Node::has_memory);
        if !has_memory || !process.allowed_nodes.contains(wish.to) {
            return false;
        }
        if self.steerable.binary_search(&wish.thread).is_err() {
            let Some(stand_in) = process.thread else {
                return false;
            };
            wish.thread = stand_in;
        }
        let key = (wish.process, wish.page);
        if self.ordered.get(&key).is_some_and(|at| at.to == wish.to) {
            return false;
        }
        let ordered = Ordered {
            to: wish.to,
            time_ns: now_ns,
        };
        self.ordered.insert(key, ordered);
        self.by_age.push_back((now_ns, wish.process, wish.page));
        true
    }

    fn age(&mut self, now_ns: u64) {
        while let Some(&(time_ns, process, page)) = self.by_age.front() {
            if now_ns.saturating_sub(time_ns) < STANDS_NS {
                break;
            }
            self.by_age.pop_front();
            let key = (process, page);
            // Another order may have taken its place since.
            if self
                .ordered
                .get(&key)
                .is_some_and(|at| at.time_ns == time_ns)
            {
                self.ordered.remove(&key);
            }
        }
    }
}

/// `page 7` or `pages 7 to 9`, for the reasons of orders.
fn named(wishes: &[Wish<'_>]) -> String {
    match wishes {
        [one] => format!("page {:#x}", one.page),
        [first, .., last] => format!("pages {:#x} to {:#x}", first.page, last.page),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests;
