//! One interval of a recorded run: what was seen, what was decided, what came of that.

use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::{AffinityOrder, AffinityResult, Outcome, Snapshot, Thread, ThreadId};

use crate::ledger::Placing;

/// One interval of a recorded run.
#[derive(Clone, Debug)]
pub struct Interval {
    /// What was seen.
    pub snapshot: Arc<Snapshot>,
    /// What was decided on it; `None` if none of that is recorded.
    pub placing: Option<Placing>,
    /// What became of the affinity orders; empty in a dry run.
    pub outcome: Outcome,
}

impl Interval {
    /// Where the recorded policy wanted each thread once it had seen the interval: the core it named,
    /// else where the thread was. In the order of the snapshot's threads.
    pub fn wanted(&self) -> Vec<CpuId> {
        let mut named: Vec<(ThreadId, CpuId)> = match &self.placing {
            Some(placing) => placing
                .plan
                .placements
                .iter()
                .map(|p| (p.thread, p.to))
                .collect(),
            None => Vec::new(),
        };
        places(&self.snapshot, &mut named)
    }

    /// Where the recorded run had each thread once its orders were carried out. In the order of the
    /// snapshot's threads.
    pub fn had(&self) -> Vec<CpuId> {
        let mut given: Vec<(ThreadId, CpuId)> = self
            .taken()
            .map(|(order, _)| {
                let left = self.snapshot.thread(order.thread).map(|thread| thread.cpu);
                (order.thread, order.core.or(left))
            })
            .filter_map(|(thread, core)| Some((thread, core?)))
            .collect();
        places(&self.snapshot, &mut given)
    }

    /// The orders that took effect, with the result of each.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&AffinityOrder, &AffinityResult)> {
        self.results().filter(|(_, result)| {
            matches!(
                result,
                AffinityResult::Done | AffinityResult::Narrowed { .. }
            )
        })
    }

    /// The orders with the result of each.
    pub(super) fn results(&self) -> impl Iterator<Item = (&AffinityOrder, &AffinityResult)> {
        let orders = self.placing.iter().flat_map(|placing| &placing.affinities);
        let outcomes = &self.outcome.affinities;
        orders
            .zip(outcomes)
            .filter(|(order, outcome)| order.thread == outcome.thread)
            .map(|(order, outcome)| (order, &outcome.result))
    }
}

/// Where each thread of a snapshot is, with some of them elsewhere.
pub(super) fn places(snapshot: &Snapshot, elsewhere: &mut [(ThreadId, CpuId)]) -> Vec<CpuId> {
    elsewhere.sort_by_key(|&(thread, _)| thread);
    let place = |thread: &Thread| {
        let at = elsewhere.binary_search_by_key(&thread.id, |&(id, _)| id);
        at.map_or_else(|_| thread.place(), |at| elsewhere[at].1)
    };
    snapshot.threads.iter().map(place).collect()
}
