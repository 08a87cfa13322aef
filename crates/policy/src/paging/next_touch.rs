//! Next touch: once marked, each page goes to the node of the thread that touches it next.
//!
//! Problem: memory that one thread initialised is on its node, though others work on it later; and a
//! thread that was moved has left its memory behind. Rule (Löf and Holmgren, ICS 2005; IPM §2.1): pages
//! are marked, and the first thread to touch a marked page draws it to its node.
//!
//! When a process's pages are marked: when it is first seen, and when one of its threads was settled on
//! another node. Each page moves at most once for each marking: a touch from its own node leaves it
//! where it is, and takes its mark too. (The authors mark by hand, where the program says so.) There is
//! no guard against what IPM finds wrong with it, that it moves a page again and again where several
//! nodes use it: between two markings it cannot.
//!
//! Terms: a page is *marked* from when it may move until it is touched. Source: Löf and Holmgren, ICS
//! 2005; IPM §2.1.
//!
//! Properties: every order is for a page touched in that call, to the node of the first that touched it
//! since it was marked; no page is ordered twice for one marking.

use std::collections::{HashMap, HashSet};

use numaherd_topology::Topology;
use numaherd_world::{PageOrder, PageOutcome, ProcessId, Sample, Signal, Snapshot};

use super::single::{SinglePages, Wish, named, wants};
use crate::policy::{Paging, Random, Settled};
use crate::rules::Rule;

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
    pages: SinglePages,
    /// Of each process, the pages that are not marked any more.
    touched: HashMap<ProcessId, HashSet<u64>>,
}

impl Paging for NextTouch {
    fn needs(&self) -> &[Signal] {
        &[Signal::HintFaults]
    }

    fn settled(&mut self, threads: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        self.pages.see(snapshot);
        let pages = &self.pages;
        self.touched.retain(|&process, _| pages.knows(process));
        for thread in threads {
            if thread.moved_from.is_some_and(|from| from != thread.node) {
                self.touched.remove(&thread.process);
            }
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
            let page = self.pages.page_of(sample);
            // Before it is known nothing can be ordered, and no mark is to be lost.
            if !self.pages.knows(sample.process) {
                continue;
            }
            let touched = self.touched.entry(sample.process).or_default();
            if !touched.insert(page) {
                continue;
            }
            wishes.extend(wants(sample, topology).map(|to| Wish {
                process: sample.process,
                thread: sample.thread,
                page,
                to,
            }));
        }
        let now_ns = samples.last().map_or(0, |sample| sample.time_ns);
        self.pages
            .orders(wishes, topology, now_ns, &TOUCHED, |wishes| {
                let to = wishes[0].to;
                format!("a thread of node {to} was the first on {}", named(wishes))
            })
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.pages.moved(outcomes);
        // What did not go keeps its mark.
        for outcome in outcomes.iter().filter(|outcome| outcome.not_tried > 0) {
            let numaherd_world::Pages::Window { first, count } = outcome.pages else {
                continue;
            };
            if let Some(touched) = self.touched.get_mut(&outcome.process) {
                (first..first.saturating_add(count)).for_each(|page| {
                    touched.remove(&page);
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
