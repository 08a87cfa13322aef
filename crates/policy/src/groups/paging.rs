//! The pagings of groups: what happens to a process is told to its group's paging and to no other.

use std::collections::BTreeMap;

use numaherd_topology::Topology;
use numaherd_world::{
    Notice, PageOrder, PageOutcome, ProcessId, Sample, Sharing, Signal, Snapshot,
};

use super::placement::of_part;
use super::{Name, all_needs, is_of};
use crate::policy::{Paging, Random, Settled};

/// The pagings of several groups and of the rest.
pub(super) struct GroupsPaging {
    parts: Vec<(Name, Box<dyn Paging>)>,
    needs: Vec<Signal>,
    /// Which part each process is of, as of the latest snapshot; one without a paging is in none.
    part_of: BTreeMap<ProcessId, usize>,
}

impl GroupsPaging {
    /// Nothing seen yet.
    pub(super) fn new(parts: Vec<(Name, Box<dyn Paging>)>) -> Self {
        Self {
            needs: all_needs(parts.iter().map(|(_, paging)| paging.needs())),
            parts,
            part_of: BTreeMap::new(),
        }
    }

    /// What is of a part's processes, part by part, in its order; what is of nobody's is left out.
    fn dealt<T: Clone>(&self, all: &[T], process: impl Fn(&T) -> ProcessId) -> Vec<Vec<T>> {
        let mut dealt = vec![Vec::new(); self.parts.len()];
        for one in all {
            if let Some(&part) = self.part_of.get(&process(one)) {
                dealt[part].push(one.clone());
            }
        }
        dealt
    }
}

impl Paging for GroupsPaging {
    fn needs(&self) -> &[Signal] {
        &self.needs
    }

    fn caveat(&self) -> Option<&'static str> {
        self.caveats().into_iter().next()
    }

    fn caveats(&self) -> Vec<&'static str> {
        let mut caveats = Vec::new();
        for (_, paging) in &self.parts {
            for caveat in paging.caveats() {
                if !caveats.contains(&caveat) {
                    caveats.push(caveat);
                }
            }
        }
        caveats
    }

    fn settled(&mut self, threads: &[Settled], snapshot: &Snapshot) -> Vec<PageOrder> {
        let part_of = |process: &numaherd_world::Process| {
            let part = self.parts.iter().position(|(name, _)| is_of(process, name));
            Some((process.id, part?))
        };
        self.part_of = snapshot.processes.iter().filter_map(part_of).collect();
        let dealt = self.dealt(threads, |settled| settled.process);
        let mut orders = Vec::new();
        for ((name, paging), threads) in self.parts.iter_mut().zip(dealt) {
            let seen = of_part(snapshot, name);
            orders.extend(paging.settled(&threads, &seen));
        }
        orders
    }

    fn listens(&self) -> bool {
        self.parts.iter().any(|(_, paging)| paging.listens())
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<PageOrder> {
        let dealt = self.dealt(samples, |sample| sample.process);
        let mut orders = Vec::new();
        for ((_, paging), samples) in self.parts.iter_mut().zip(dealt) {
            if !samples.is_empty() {
                orders.extend(paging.sampled(&samples, topology, random));
            }
        }
        orders
    }

    fn noticed(&mut self, notices: &[Notice], topology: &Topology) -> Vec<PageOrder> {
        let dealt = self.dealt(notices, |notice| notice.process);
        let mut orders = Vec::new();
        for ((_, paging), notices) in self.parts.iter_mut().zip(dealt) {
            if !notices.is_empty() {
                orders.extend(paging.noticed(&notices, topology));
            }
        }
        orders
    }

    fn finds_sharing(&self) -> bool {
        self.parts.iter().any(|(_, paging)| paging.finds_sharing())
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|(_, paging)| paging.shared()).collect()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let dealt = self.dealt(outcomes, |outcome| outcome.process);
        for ((_, paging), outcomes) in self.parts.iter_mut().zip(dealt) {
            if !outcomes.is_empty() {
                paging.moved(&outcomes);
            }
        }
    }
}
