//! Residency: pages go to the node that the IPM unit finds to use them intensely.
//!
//! Problem: which node a page belongs to cannot be told from a few accesses to it; the unit at the TLBs
//! weighs how long each node holds the page's translation (IPM §4.3.3).
//!
//! Rule (IPM §4.3.3, §4.4): every notice of the unit (Eq. 8) is an order for that page, to the node that
//! it names ([`super::single`] makes orders of them). A page that goes to and fro is frozen by the
//! guard that the window paging has ([`super::guard`]), page by page; the paper has no such guard.
//!
//! In place of residency, when told so (`ipm.evidence = "samples"`): memory samples, each credited by
//! the unit's own equations ([`super::credits`]). That is weaker evidence, by as much as sampled
//! accesses are fewer than all (IPM §3.3). The sharing of threads is then found out here too.
//!
//! Terms: *residency* is how long a node's TLBs hold a page's translation; a *notice* is the unit's word
//! that a page should move; the *NUMA vector* holds a page's residency by node. Source: IPM §4.3.3, §4.4,
//! Eq. 3 to 9.
//!
//! Properties: every order is for a page that there was a notice or sample of in that call, to the node
//! that it names; a page is in one order of a call at most; with residency, samples lead to nothing, and
//! with samples, notices.

use numaherd_topology::Topology;
use numaherd_world::{
    Notice, PageOrder, PageOutcome, ProcessId, Sample, Sharing, Signal, Snapshot,
};

use super::credits::Credits;
use super::guard::Guard;
use super::single::{SinglePages, Wish, named};
use crate::policy::{Paging, Random, Settled};
use crate::rules::Rule;
use crate::settings::{Evidence, PagingSettings, Settings};

/// The rules that orders name.
pub const RULES: &[Rule] = &[NOTICED, SAMPLED];
const NOTICED: Rule = Rule {
    name: "ipm: intensely used page",
    source: "IPM 4.3.3, Eq. 8",
    what: "The unit at the TLBs finds that another node holds the page's translation far longer than \
           the page's own: the page is ordered to that node, unless it was just now or is frozen.",
};
const SAMPLED: Rule = Rule {
    name: "ipm: intensely sampled page",
    source: "IPM Eq. 3 to 9 with memory samples in place of residency; chosen here",
    what: "Another node has far more memory samples of the page than the page's own: the page is \
           ordered to that node, unless it was just now or is frozen.",
};

/// See the top of this file.
#[derive(Debug)]
pub struct IntensePages {
    evidence: Evidence,
    pages: SinglePages,
    guard: Guard,
    credits: Credits,
}

impl IntensePages {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        let each_page = PagingSettings {
            window_pages: 1,
            ..settings.paging
        };
        Self {
            evidence: settings.ipm.evidence,
            pages: SinglePages::default(),
            guard: Guard::new(&each_page),
            credits: Credits::new(settings.ipm.cr_aging, settings.ipm.cr_mig),
        }
    }

    fn unless_frozen(&mut self, wish: Wish, now_ns: u64) -> Option<Wish> {
        let page = wish.page..wish.page.saturating_add(1);
        self.guard
            .admit(wish.process, wish.to, wish.page, page, now_ns)
            .map(|_| wish)
    }
}

impl Paging for IntensePages {
    fn needs(&self) -> &[Signal] {
        match self.evidence {
            Evidence::Residency => &[Signal::TlbResidency],
            Evidence::Samples => &[Signal::MemorySamples],
        }
    }

    fn caveat(&self) -> Option<&'static str> {
        (self.evidence == Evidence::Samples).then_some(
            "ipm goes by memory samples in place of TLB residency (ipm.evidence), which is weaker \
             evidence: pages that are seldom sampled are judged late or not at all",
        )
    }

    fn settled(&mut self, _: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.pages.see(snapshot);
        self.credits.keep_only(snapshot);
        let processes: Vec<ProcessId> = snapshot.processes.iter().map(|p| p.id).collect();
        self.guard.keep_only(&processes);
        Vec::new()
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        _random: &mut Random,
    ) -> Vec<PageOrder> {
        if self.evidence != Evidence::Samples {
            return Vec::new();
        }
        let mut wishes = Vec::new();
        for sample in samples {
            let page = self.pages.page_of(sample);
            let wish = self.credits.credit(sample, page, topology);
            wishes.extend(wish.and_then(|wish| self.unless_frozen(wish, sample.time_ns)));
        }
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        self.pages
            .orders(wishes, topology, now_ns, &SAMPLED, |wishes| {
                let to = wishes[0].to;
                format!("most samples of {} are of node {to} by far", named(wishes))
            })
    }

    fn noticed(&mut self, notices: &[Notice], topology: &Topology) -> Vec<PageOrder> {
        if self.evidence != Evidence::Residency {
            return Vec::new();
        }
        let mut wishes = Vec::new();
        for notice in notices.iter().filter(|notice| notice.from != notice.to) {
            let wish = Wish {
                process: notice.process,
                thread: notice.thread,
                page: notice.page,
                to: notice.to,
            };
            wishes.extend(self.unless_frozen(wish, notice.time_ns));
        }
        let now_ns = notices.last().map_or(0, |notice| notice.time_ns);
        self.pages
            .orders(wishes, topology, now_ns, &NOTICED, |wishes| {
                let to = wishes[0].to;
                format!("node {to} holds {} in its TLBs far longer", named(wishes))
            })
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.credits.shared()
    }

    fn finds_sharing(&self) -> bool {
        self.evidence == Evidence::Samples
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.pages.moved(outcomes);
    }
}

#[cfg(test)]
mod tests;
