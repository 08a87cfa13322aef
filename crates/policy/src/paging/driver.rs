//! The driver: what every paging that judges single pages does before and after its rule.
//!
//! Problem: a rule of a paper says where a page belongs once it was accessed. Around it a paging must
//! take accesses in batches, know which processes there are, make orders of wishes, not repeat itself
//! and stop what goes to and fro.
//!
//! Rule: a paging is a [`PageRule`], and [`Driven`] makes a [`Paging`] of it:
//! 1. each access (sample) whose CPU is in the machine is put to the rule, which wishes its page on a
//!    node or says nothing. Notices are wishes themselves, where the rule takes them;
//! 2. a guarded driver drops wishes for pages that go to and fro ([`guard`](super::guard)), page by page;
//! 3. of several wishes for a page in one batch the last counts, also where it leaves the page in place;
//! 4. wishes become orders ([`single`](super::single)), with the rule's reason.
//!
//! Properties: every order is for a page that was accessed or noticed in that batch, to the node that
//! the rule wished last; no page is in two orders of one batch; an unguarded page is held back only by
//! an order that still stands.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{
    Notice, PageOrder, PageOutcome, Pages, ProcessId, Sample, Sharing, Signal, Snapshot,
};

use super::guard::Guard;
use super::single::{SinglePages, Wish};
use crate::policy::{Paging, Random, Settled};
use crate::reason::Reason;
use crate::settings::{PagingSettings, Settings};

/// The rule of a paging: where a page belongs, and why.
pub trait PageRule: Send {
    /// See [`Paging::needs`].
    fn needs(&self) -> &[Signal];

    /// See [`Paging::caveat`].
    fn caveat(&self) -> Option<&'static str> {
        None
    }

    /// Once an interval: the threads that have been given a core, and what was observed. What is known
    /// of processes that are not in the snapshot should be forgotten.
    fn see(&mut self, _placed: &[Settled], _snapshot: &Snapshot) {}

    /// The node that the accessed page belongs on; `None` where this access does not say. A wish for
    /// the node that the page is on takes back earlier ones of the same batch.
    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId>;

    /// Whether notices are wishes.
    fn takes_notices(&self) -> bool {
        false
    }

    /// Why pages (`page 0x7`, `pages 0x7 to 0x9`) go to a node.
    fn reason(&self, to: NodeId, pages: String) -> Reason;

    /// See [`Paging::finds_sharing`].
    fn finds_sharing(&self) -> bool {
        false
    }

    /// See [`Paging::shared`].
    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        Vec::new()
    }

    /// Pages of an order that nobody tried to move.
    fn not_tried(&mut self, _process: ProcessId, _pages: std::ops::Range<u64>) {}
}

/// An access as a rule sees it.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// The sample.
    pub sample: &'a Sample,
    /// The number of its page.
    pub page: u64,
    /// The node that the thread ran on.
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

    /// Whether the page is on that node already, as far as is known.
    fn is_on(&self, node: NodeId) -> bool {
        match self.sample.node {
            Some(home) => home == node,
            None => node == self.node && !self.is_remote(),
        }
    }
}

/// A paging made of its rule. See the top of this file.
#[derive(Clone, Debug)]
pub struct Driven<R> {
    pub(super) rule: R,
    pages: SinglePages,
    guard: Option<Guard>,
}

impl<R: PageRule> Driven<R> {
    /// Nothing seen yet.
    pub fn new(rule: R) -> Self {
        Self {
            rule,
            pages: SinglePages::default(),
            guard: None,
        }
    }

    /// The same; pages that go to and fro are frozen.
    pub fn guarded(settings: &Settings, rule: R) -> Self {
        let each_page = PagingSettings {
            window_pages: 1,
            ..settings.paging
        };
        Self {
            guard: Some(Guard::new(&each_page)),
            ..Self::new(rule)
        }
    }

    fn is_frozen(&mut self, wish: &Wish, now_ns: u64) -> bool {
        let Some(guard) = &mut self.guard else {
            return false;
        };
        let page = wish.page..wish.page.saturating_add(1);
        let admitted = guard.admit(wish.process, wish.to, wish.page, page, now_ns);
        admitted.is_none()
    }

    fn orders(&mut self, wishes: Vec<Wish>, topology: &Topology, now_ns: u64) -> Vec<PageOrder> {
        let rule = &self.rule;
        let reason = |to, pages| rule.reason(to, pages);
        self.pages.orders(wishes, topology, now_ns, reason)
    }
}

impl<R: PageRule> Paging for Driven<R> {
    fn needs(&self) -> &[Signal] {
        self.rule.needs()
    }

    fn caveat(&self) -> Option<&'static str> {
        self.rule.caveat()
    }

    fn settled(&mut self, threads: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.pages.see(snapshot);
        self.rule.see(threads, snapshot);
        if let Some(guard) = &mut self.guard {
            let processes: Vec<ProcessId> = snapshot.processes.iter().map(|p| p.id).collect();
            guard.keep_only(&processes);
        }
        Vec::new()
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
                page: self.pages.page_of(sample),
                node,
                is_known: self.pages.knows(sample.process),
                topology,
            };
            let Some(to) = self.rule.wish(&access) else {
                continue;
            };
            let wish = Wish {
                process: sample.process,
                thread: sample.thread,
                page: access.page,
                to,
                stays: access.is_on(to),
            };
            if wish.stays || !self.is_frozen(&wish, sample.time_ns) {
                wishes.push(wish);
            }
        }
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        self.orders(wishes, topology, now_ns)
    }

    fn noticed(&mut self, notices: &[Notice], topology: &Topology) -> Vec<PageOrder> {
        if !self.rule.takes_notices() {
            return Vec::new();
        }
        let mut wishes = Vec::new();
        for notice in notices.iter().filter(|notice| notice.from != notice.to) {
            let wish = Wish {
                process: notice.process,
                thread: notice.thread,
                page: notice.page,
                to: notice.to,
                stays: false,
            };
            if !self.is_frozen(&wish, notice.time_ns) {
                wishes.push(wish);
            }
        }
        let now_ns = notices.last().map_or(0, |notice| notice.time_ns);
        self.orders(wishes, topology, now_ns)
    }

    fn finds_sharing(&self) -> bool {
        self.rule.finds_sharing()
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.rule.shared()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.pages.moved(outcomes);
        for outcome in outcomes.iter().filter(|outcome| outcome.not_tried > 0) {
            if let Pages::Window { first, count } = outcome.pages {
                let pages = first..first.saturating_add(count);
                self.rule.not_tried(outcome.process, pages);
            }
        }
    }
}
