//! TLB misses as evidence, with and without history: what IPM compares TLB residency with.
//!
//! Problem: a TLB miss tells that a thread uses a page, and costs nothing to see where software handles
//! it; but it tells most of pages that are used least, since those in steady use do not miss.
//!
//! Rules (IPM §5.2):
//! * *without history* (strategy i, "similar to NUMA Balancing"): a page goes to the node that missed on
//!   it, whenever that is not its own. Misses that come to be looked at together are taken in their
//!   order, so that the last of them counts.
//! * *with history* (strategy ii): "the same procedure of IPM", Eq. 3 to 9, with misses in place of
//!   residency ([`super::credits`]); threads are mapped by the matrix that comes of it.
//!
//! No guard against pages that go to and fro: that the first strategy moves too many is the paper's
//! finding (§6.1.2), and the second's guard is its history.
//!
//! Terms: a *TLB miss* is an access whose translation the core's TLBs do not hold. Source: IPM §5.2, §6.1.2.
//!
//! Properties: every order is for a page that was missed on in that call, to a node that missed on it;
//! without history, every such page whose last miss was from another node than its own is ordered, but
//! for orders that still stand.

use numaherd_topology::Topology;
use numaherd_world::{PageOrder, PageOutcome, ProcessId, Sample, Sharing, Signal, Snapshot};

use super::credits::Credits;
use super::single::{SinglePages, Wish, named, wants};
use crate::policy::{Paging, Random, Settled};
use crate::rules::Rule;
use crate::settings::Settings;

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
#[derive(Clone, Debug, Default)]
pub struct TlbMiss {
    pages: SinglePages,
}

impl Paging for TlbMiss {
    fn needs(&self) -> &[Signal] {
        &[Signal::TlbMisses]
    }

    fn settled(&mut self, _: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.pages.see(snapshot);
        Vec::new()
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        // The last miss on a page says where it goes, and whether: latest first, each page once.
        let mut last: Vec<(Sample, u64)> = samples
            .iter()
            .rev()
            .map(|sample| (*sample, self.pages.page_of(sample)))
            .collect();
        last.sort_by_key(|&(sample, page)| (sample.process, page));
        last.dedup_by_key(|&mut (sample, page)| (sample.process, page));
        let wish = |&(sample, page): &(Sample, u64)| {
            let to = wants(&sample, topology)?;
            Some(Wish {
                process: sample.process,
                thread: sample.thread,
                page,
                to,
            })
        };
        let wishes = last.iter().filter_map(wish).collect();
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        self.pages
            .orders(wishes, topology, now_ns, &MISSED, |wishes| {
                let to = wishes[0].to;
                format!("a TLB of node {to} missed on {} last", named(wishes))
            })
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.pages.moved(outcomes);
    }
}

/// With history. See the top of this file.
#[derive(Debug)]
pub struct TlbMissHistory {
    pages: SinglePages,
    credits: Credits,
}

impl TlbMissHistory {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            pages: SinglePages::default(),
            credits: Credits::new(settings.ipm.cr_aging, settings.ipm.cr_mig),
        }
    }
}

impl Paging for TlbMissHistory {
    fn needs(&self) -> &[Signal] {
        &[Signal::TlbMisses]
    }

    fn settled(&mut self, _: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.pages.see(snapshot);
        self.credits.keep_only(snapshot);
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
            let page = self.pages.page_of(sample);
            wishes.extend(self.credits.credit(sample, page, topology));
        }
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        self.pages
            .orders(wishes, topology, now_ns, &OFTEN_MISSED, |wishes| {
                let to = wishes[0].to;
                format!("TLBs of node {to} missed on {} far more", named(wishes))
            })
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.credits.shared()
    }

    fn finds_sharing(&self) -> bool {
        true
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.pages.moved(outcomes);
    }
}

#[cfg(test)]
mod tests;
