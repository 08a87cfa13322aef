//! Next touch: once marked, each page goes to the node of the thread that touches it next.
//!
//! Problem: memory that one thread initialised is on that thread's node even if other threads use it later;
//! and a thread that was moved has left its memory behind. Rule (Löf and Holmgren, ICS 2005; IPM §2.1): pages
//! are marked, and the first thread that touches a marked page draws it to its node.
//!
//! A process's pages are marked when the process is first seen, and when one of its threads was placed on
//! another node. Each page moves at most once per marking: a touch from its own node leaves it where it is,
//! and removes its mark too. (The authors mark pages where the program asks for it.) IPM's objection, that a
//! page moves again and again if several nodes use it, needs no guard: between two markings it cannot.
//!
//! Terms: a page is *marked* from the moment it may move until it is touched. Source: Löf and Holmgren, ICS
//! 2005; IPM §2.1.
//!
//! Properties: every order is for a page touched in that call, to the node of the first thread that touched it
//! since it was marked; no page is ordered twice for one marking.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, Signal, Snapshot};

use super::driver::{Access, PageRule, Wish};
use crate::policy::{PagingNeeds, PlacedThread};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::words;

/// The rules that orders name.
pub const RULES: &[Rule] = &[TOUCHED];
const TOUCHED: Rule = Rule {
    name: "next-touch: to who touches it next",
    source: "Löf and Holmgren, ICS 2005; IPM 2.1",
    what: "A thread of another node is the first to touch the page since the process's pages were \
           marked: the page is ordered to its node.",
};

/// See the top of this file.
#[derive(Clone, Debug, Default)]
pub struct NextTouch {
    /// For each process, the pages that are no longer marked.
    touched: HashMap<ProcessId, HashSet<u64>>,
}

impl PageRule for NextTouch {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds::of(&[Signal::HintFaults])
    }

    fn see(&mut self, placed: &[PlacedThread], snapshot: &Snapshot) {
        self.touched
            .retain(|&process, _| snapshot.process(process).is_some());
        for thread in placed {
            if thread.moved_from.is_some_and(|from| from != thread.node) {
                self.touched.remove(&thread.process);
            }
        }
    }

    fn wish(&mut self, access: &Access<'_>) -> Option<NodeId> {
        // Nothing can be ordered for an unknown process, so its pages keep their marks.
        if !access.is_known {
            return None;
        }
        let touched = self.touched.entry(access.sample.process).or_default();
        let is_first = touched.insert(access.page);
        (is_first && access.is_remote()).then_some(access.node)
    }

    fn reason(&self, wish: &Wish<'_>, pages: String) -> Reason {
        TOUCHED.because(words!(
            "a thread of node {to} was the first on {pages}",
            to = wish.to,
            pages
        ))
    }

    /// Pages that were not tried are marked again.
    fn not_tried(&mut self, process: ProcessId, pages: Range<u64>) {
        if let Some(touched) = self.touched.get_mut(&process) {
            pages.for_each(|page| {
                touched.remove(&page);
            });
        }
    }
}

#[cfg(test)]
mod tests;
