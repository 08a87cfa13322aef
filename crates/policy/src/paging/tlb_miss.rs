//! TLB misses as evidence, with and without history: what IPM compares TLB residency with.
//!
//! Problem: a TLB miss shows that a thread uses a page, and where software handles misses, seeing it costs
//! nothing; but misses mostly show the pages that are used least, because pages in steady use do not miss.
//!
//! Rules (IPM §5.2):
//! * *without history* (strategy i, "similar to NUMA Balancing"): a page goes to the node that missed on it,
//!   unless it is already there. Misses that are looked at together are taken in order, so the last one
//!   decides.
//! * *with history* (strategy ii): "the same procedure of IPM", Eq. 3 to 9, with misses in place of residency
//!   ([`super::credits`]); threads are mapped by the resulting matrix.
//!
//! There is no guard against pages that go back and forth: that the first strategy moves too many pages is the
//! paper's finding (§6.1.2), and the second is guarded by its history.
//!
//! Terms: a *TLB miss* is an access whose translation the core's TLBs do not hold. Source: IPM §5.2, §6.1.2.
//!
//! Properties: every order is for a page that was missed on in that call, to a node that missed on it; without
//! history, every page whose last miss came from another node than its own is ordered, unless an earlier order
//! for it still stands.

use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Sharing, Signal, Snapshot};

use super::credits::Credits;
use super::driver::{Access, PageRule, Wish};
use crate::policy::{PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;

/// The rules that orders without history name.
pub const RULES: &[Rule] = &[MISSED];
const MISSED: Rule = Rule {
    name: "tlb-miss: to who missed",
    source: "IPM 5.2, strategy i",
    what: "A thread's TLB missed on a page of another node: the page is ordered to the thread's.",
};

/// The rules that orders with history name.
pub const HISTORY_RULES: &[Rule] = &[OFTEN_MISSED];
const OFTEN_MISSED: Rule = Rule {
    name: "tlb-miss-history: missed far more",
    source: "IPM 5.2, strategy ii; Eq. 6 to 9",
    what: "Another node missed on the page far more than the page's own, what is long ago counting \
           less: the page is ordered to that node.",
};

/// Without history. See the top of this file.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlbMiss;

impl PageRule for TlbMiss {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::of(&[Signal::TlbMisses])
    }

    /// The last miss on a page counts, also one from the page's own node.
    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        Some(access.node)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        MISSED.because(words!(
            "a TLB of node {to} missed on {pages} last",
            to = wish.to,
            pages
        ))
    }
}

/// With history. See the top of this file.
#[derive(Debug)]
pub struct TlbMissHistory(Credits);

impl TlbMissHistory {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self(Credits::new(settings.ipm.cr_aging, settings.ipm.cr_mig))
    }
}

impl PageRule for TlbMissHistory {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::finding_sharing(&[Signal::TlbMisses])
    }

    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        self.0.keep_only(snapshot);
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        self.0.credit(access)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        OFTEN_MISSED.because(words!(
            "TLBs of node {to} missed on {pages} far more",
            to = wish.to,
            pages
        ))
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.0.shared()
    }
}

#[cfg(test)]
mod tests;
