//! The driver: what every paging that judges accesses does before and after its rule.
//!
//! Problem: a rule of a paper states where a page belongs once it was accessed. In addition, a paging must
//! take accesses in batches, know which processes exist, turn wishes into orders, not repeat orders, and
//! stop pages from going back and forth.
//!
//! Rule: a paging is a [`PageRule`], and [`Driven`] makes a [`Paging`] of it:
//! 1. the rule sees each access (sample) whose CPU is in the machine, and may wish its page on a node. Notices are
//!    wishes themselves, if the rule accepts them;
//! 2. wishes become orders, with the rule's reason: for the very pages ([`single`](super::single)), or for
//!    windows of pages around them ([`windows`](super::windows)). If the paging has a
//!    [`guard`](super::guard), it holds back pages that go back and forth.
//! 3. once a rule knows enough of a process's accesses, it may order all memory of the process at large; wishes for
//!    that process are then dropped.
//!
//! Properties: every order that is not at large is for a page that was accessed or noticed in that batch, to a node
//! that the rule wished for it; no page is in two such orders of one batch to one node.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{
    Notice, PageOrder, PageOutcome, Pages, ProcessId, Sample, Sharing, Snapshot, ThreadId,
};

use super::single::SinglePages;
use crate::policy::{Paging, PagingNeeds, PlacedThread, Random};
use crate::reason::Reason;
use crate::settings::Settings;

/// The rule of a paging: where a page belongs, and why.
pub trait PageRule: Send {
    /// See [`Paging::needs`].
    fn needs(&self) -> PagingNeeds<'_>;

    /// Once an interval: the threads that have been given a core, and what was observed. What is known
    /// of processes that are not in the snapshot should be forgotten.
    fn see(&mut self, _placed: &[PlacedThread], _snapshot: &Snapshot) {}

    /// See [`Paging::rationed`].
    fn rationed(&mut self, _rations: &[(ProcessId, u64)]) {}

    /// See [`Paging::listens`].
    fn listens(&self) -> bool {
        true
    }

    /// The node that the accessed page belongs on; `None` where this access does not say. A wish for
    /// the node that the page is on takes back earlier ones of the same batch.
    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId>;

    /// Orders for all memory of processes, which follow from the accesses of the batch. Wishes of the batch for these
    /// processes are dropped: pages can be ordered to one node at a time.
    fn at_large(&mut self, _topology: &Topology) -> Vec<PageOrder> {
        Vec::new()
    }

    /// Whether notices are wishes.
    fn takes_notices(&self) -> bool {
        false
    }

    /// Why pages (`page 0x7`, `pages 0x7 to 0x9`) go where a wish says.
    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason;

    /// See [`Paging::shared`].
    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        Vec::new()
    }

    /// Called with the outcomes of orders, including the placement's.
    fn moved(&mut self, _outcomes: &[PageOutcome]) {}

    /// Called with the pages of an order of which some were not tried.
    fn not_tried(&mut self, _process: ProcessId, _pages: Range<u64>) {}
}

/// An access as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// The number of its page.
    pub page: u64,
    /// The node that the thread ran on, or, where that has no memory, the nearest that has.
    pub node: NodeId,
    /// Whether a snapshot has shown its process. Without that there is no order.
    pub is_known: bool,
    /// The machine.
    pub topology: &'a Topology,
}

impl Access<'_> {
    /// Whether the page is on another node than the thread, as far as is known.
    pub fn is_remote(&self) -> bool {
        let home = self.sample.node;
        home.map_or(self.sample.source.is_remote(), |home| home != self.node)
    }

    /// The page as a key.
    pub fn key(&self) -> (ProcessId, u64) {
        (self.sample.process, self.page)
    }

    /// The node that the page is on, as far as is known.
    pub(super) fn home(&self) -> Option<NodeId> {
        let local = || (!self.is_remote()).then_some(self.node);
        self.sample.node.or_else(local)
    }

    /// Whether the page is on that node already, as far as is known.
    pub(super) fn is_on(&self, node: NodeId) -> bool {
        self.home() == Some(node)
    }
}

/// A page that a rule wants on a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wish<'a> {
    /// Whose page.
    pub process: ProcessId,
    /// The thread that it is for.
    pub thread: ThreadId,
    /// The number of the page.
    pub page: u64,
    /// The node that it belongs on.
    pub to: NodeId,
    /// Whether it is there already: no order, but earlier wishes for the page no longer count.
    pub stays: bool,
    /// When it was accessed or noticed, in ns.
    pub time_ns: u64,
    /// The access; `None` for a notice.
    pub sample: Option<&'a Sample>,
}

impl Wish<'_> {
    /// The order for these pages.
    pub(super) fn order(&self, pages: Range<u64>, reason: &Reason) -> PageOrder {
        PageOrder {
            process: self.process,
            thread: self.thread,
            pages: Pages::Window {
                first: pages.start,
                count: pages.end - pages.start,
            },
            to: self.to,
            rule: Cow::Borrowed(reason.rule.name),
            why: reason.why.to_string(),
        }
    }
}

/// Turns wishes into orders.
pub trait Orders: Send {
    /// Once an interval: the threads that have been given a core, and what was observed.
    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot);

    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Whether there are orders for a process.
    fn knows(&self, process: ProcessId) -> bool;

    /// The orders that wishes of one batch lead to. `reason` is given the wish and the pages of an order;
    /// `now_ns` is the time of the batch.
    fn orders(
        &mut self,
        wishes: Vec<Wish<'_>>,
        topology: &Topology,
        now_ns: u64,
        reason: &dyn Fn(&Wish<'_>, String) -> Reason,
    ) -> Vec<PageOrder>;

    /// Called with the outcomes of orders.
    fn moved(&mut self, outcomes: &[PageOutcome]);
}

/// A paging made of its rule. See the top of this file.
#[derive(Clone, Debug)]
pub struct Driven<R, O = SinglePages> {
    pub(super) rule: R,
    pub(super) orders: O,
}

impl<R: PageRule> Driven<R> {
    /// Nothing seen yet.
    pub fn new(rule: R) -> Self {
        Self {
            rule,
            orders: SinglePages::default(),
        }
    }

    /// As [`Self::new`], but pages that go to and fro are frozen.
    pub fn guarded(settings: &Settings, rule: R) -> Self {
        Self {
            rule,
            orders: SinglePages::guarded(&settings.paging),
        }
    }
}

impl<R: PageRule, O: Orders> Driven<R, O> {
    fn orders(
        &mut self,
        wishes: Vec<Wish<'_>>,
        topology: &Topology,
        now_ns: u64,
    ) -> Vec<PageOrder> {
        let rule = &self.rule;
        let reason = |wish: &Wish<'_>, pages| rule.reason(wish, pages);
        self.orders.orders(wishes, topology, now_ns, &reason)
    }
}

impl<R: PageRule, O: Orders> Paging for Driven<R, O> {
    fn needs(&self) -> PagingNeeds<'_> {
        self.rule.needs()
    }

    fn placed(&mut self, threads: &[PlacedThread], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.orders.see(threads, snapshot);
        self.rule.see(threads, snapshot);
        Vec::new()
    }

    fn rationed(&mut self, rations: &[(ProcessId, u64)]) {
        self.rule.rationed(rations);
    }

    fn listens(&self) -> bool {
        self.rule.listens()
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        let mut wishes = Vec::new();
        for sample in samples {
            let Some(node) = topology.node_of(sample.cpu) else {
                continue;
            };
            let access = Access {
                sample,
                page: sample.address / self.orders.page_bytes(),
                node: topology.memory_near(node),
                is_known: self.orders.knows(sample.process),
                topology,
            };
            wishes.extend(self.rule.wish(&access).map(|to| Wish {
                process: sample.process,
                thread: sample.thread,
                page: access.page,
                to,
                stays: access.is_on(to),
                time_ns: sample.time_ns,
                sample: Some(sample),
            }));
        }
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        let mut orders = self.rule.at_large(topology);
        let is_at_large: HashSet<ProcessId> = orders.iter().map(|order| order.process).collect();
        wishes.retain(|wish| !is_at_large.contains(&wish.process));
        orders.extend(self.orders(wishes, topology, now_ns));
        orders
    }

    fn noticed(&mut self, notices: &[Notice], topology: &Topology) -> Vec<PageOrder> {
        if !self.rule.takes_notices() {
            return Vec::new();
        }
        let wishes = notices.iter().filter_map(|notice| {
            let to = topology.memory_near(notice.to);
            (notice.from != to).then_some(Wish {
                process: notice.process,
                thread: notice.thread,
                page: notice.page,
                to,
                stays: false,
                time_ns: notice.time_ns,
                sample: None,
            })
        });
        let now_ns = notices.last().map_or(0, |notice| notice.time_ns);
        self.orders(wishes.collect(), topology, now_ns)
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.rule.shared()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.orders.moved(outcomes);
        self.rule.moved(outcomes);
        for outcome in outcomes.iter().filter(|outcome| outcome.not_tried > 0) {
            if let Pages::Window { first, count } = outcome.pages {
                let pages = first..first.saturating_add(count);
                self.rule.not_tried(outcome.process, pages);
            }
        }
    }
}
