//! Residency: pages go to the node that the IPM unit finds to use them intensely.
//!
//! Problem: which node a page belongs to cannot be told from a few accesses to it; the unit at the TLBs
//! weighs how long each node holds the page's translation (IPM §4.3.3).
//!
//! Rule (IPM §4.3.3, §4.4): every notice of the unit (Eq. 8) is an order for that page, to the node that
//! it names ([`super::driver`] makes orders of them). A page that goes to and fro is frozen by the
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

use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Sharing, Signal, Snapshot};

use super::credits::Credits;
use super::driver::{Access, PageRule, Wish};
use crate::policy::{Basis, PlacedThread};
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
    fn basis(&self) -> Basis<'_> {
        match self.evidence {
            Evidence::Residency => Basis::of(&[Signal::TlbResidency]),
            Evidence::Samples => Basis {
                caveat: Some(
                    "ipm uses memory samples instead of TLB residency (ipm.evidence), which is weaker \
                     evidence: rarely sampled pages are judged late or not at all",
                ),
                ..Basis::finding_sharing(&[Signal::MemorySamples])
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
