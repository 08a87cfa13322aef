//! Residency: pages go to the node that uses them intensely, as the IPM unit finds.
//!
//! Problem: a few accesses to a page do not show which node it belongs to; the unit at the TLBs measures how
//! long each node holds the page's translation (IPM §4.3.3).
//!
//! Rule (IPM §4.3.3, §4.4): every notice of the unit (Eq. 8) becomes an order for that page, to the node that
//! the notice names ([`super::driver`] makes the orders). A page that goes back and forth is frozen by the
//! guard of the window paging ([`super::guard`]), page by page; the paper has no such guard.
//!
//! With `ipm.evidence = "samples"`, memory samples replace residency; the unit's own equations credit each of
//! them ([`super::credits`]). This evidence is weaker: the fewer of all accesses are sampled, the weaker it
//! is (IPM §3.3). The samples then also show which threads share pages.
//!
//! Terms: *residency* is how long a node's TLBs hold a page's translation; a *notice* is the unit's finding
//! that a page should move; the *NUMA vector* holds a page's residency by node. Source: IPM §4.3.3, §4.4,
//! Eq. 3 to 9.
//!
//! Properties: every order is for a page with a notice or sample in that call, to the node that it names; a
//! page is in at most one order of a call; with residency, samples cause no orders; with samples, notices
//! cause none.

use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Sharing, Signal, Snapshot};

use super::credits::Credits;
use super::driver::{Access, PageRule, Wish};
use crate::policy::{PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::{Evidence, Settings};
use crate::words;

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
    credits: Credits,
}

impl IntensePages {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            evidence: settings.ipm.evidence,
            credits: Credits::new(settings.ipm.cr_aging, settings.ipm.cr_mig),
        }
    }
}

impl PageRule for IntensePages {
    fn needs(&self) -> PagingNeeds<'_> {
        match self.evidence {
            Evidence::Residency => PagingNeeds::of(&[Signal::TlbResidency]),
            Evidence::Samples => PagingNeeds {
                caveat: Some(
                    "ipm uses memory samples instead of TLB residency (ipm.evidence), which is weaker \
                     evidence: rarely sampled pages are judged late or not at all",
                ),
                ..PagingNeeds::finding_sharing(&[Signal::MemorySamples])
            },
        }
    }

    fn see(&mut self, _: &[PlacedThread], snapshot: &Snapshot) {
        self.credits.keep_only(snapshot);
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        match self.evidence {
            Evidence::Residency => None,
            Evidence::Samples => self.credits.credit(access),
        }
    }

    fn takes_notices(&self) -> bool {
        self.evidence == Evidence::Residency
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        match self.evidence {
            Evidence::Residency => NOTICED.because(words!(
                "node {to} holds {pages} in its TLBs far longer",
                to = wish.to,
                pages
            )),
            Evidence::Samples => SAMPLED.because(words!(
                "most samples of {pages} are of node {to} by far",
                pages,
                to = wish.to
            )),
        }
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        self.credits.shared()
    }
}

#[cfg(test)]
mod tests;
