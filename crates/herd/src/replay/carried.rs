//! Recorded snapshots as if another policy had given the threads their cores.
//!
//! Only the placement is carried on: cores and masks are those that the replayed policy's orders have set,
//! no longer those of the recorded run. Where threads ran, how fast, on whose pages, and which woke when,
//! stays as recorded. Rules for a thread, in this order:
//!
//! * the replayed policy gave it just the core and mask that it had in the recording: as recorded;
//! * the replayed policy gave it a core: that core and mask, and the CPU it was recorded on if the mask
//!   allows that, else the core itself;
//! * the recorded run had given it a core or a mask, or it was started with one: neither, and the mask it
//!   was found with. The CPU stays as recorded: where the kernel would have put it is unknown;
//! * otherwise: as recorded. A mask that someone else set always stays.
//!
//! Orders take effect; but an order that the recorded run gave in the same interval and words ends as it
//! did then.
//!
//! Property: a run's own policy, with its settings and seed, sees what it saw.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Outcome, Snapshot, Thread, ThreadId,
};

use super::interval::Interval;

/// What a thread was given.
#[derive(Clone, Debug)]
struct Given {
    core: Option<CpuId>,
    mask: Arc<CpuSet>,
}

/// The placement that is carried on, and what is needed to remove the recorded one.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// By the replayed policy's orders, or inherited from threads that it placed.
    own: BTreeMap<ThreadId, Given>,
    /// Every mask it has set so far.
    own_masks: Vec<Arc<CpuSet>>,
    /// Masks that threads have by the recorded run's orders, or inherited from threads it placed.
    recorded: BTreeMap<ThreadId, Arc<CpuSet>>,
    /// Every mask that the recorded run has set so far.
    recorded_masks: Vec<Arc<CpuSet>>,
    /// Masks that threads had before the recorded run placed them.
    found: BTreeMap<ThreadId, Arc<CpuSet>>,
}

impl Carried {
    /// What the replayed policy sees of an interval.
    pub(super) fn seen(&mut self, recorded: &Arc<Snapshot>) -> Arc<Snapshot> {
        self.meet(recorded);
        if recorded
            .threads
            .iter()
            .all(|thread| self.is_as_recorded(thread))
        {
            return recorded.clone();
        }
        let threads = recorded.threads.iter().map(|thread| {
            if self.is_as_recorded(thread) {
                thread.clone()
            } else {
                self.rewritten(thread, &recorded.online)
            }
        });
        Arc::new(Snapshot {
            threads: threads.collect(),
            sequence: recorded.sequence,
            time_ns: recorded.time_ns,
            interval_ns: recorded.interval_ns,
            page_bytes: recorded.page_bytes,
            online: recorded.online.clone(),
            processes: recorded.processes.clone(),
            nodes: recorded.nodes.clone(),
            gaps: recorded.gaps.clone(),
        })
    }

    /// The outcomes of the replayed policy's orders.
    pub(super) fn outcomes(&self, interval: &Interval, orders: &[AffinityOrder]) -> Outcome {
        let recorded: BTreeMap<ThreadId, (&AffinityOrder, &AffinityResult)> = interval
            .results()
            .map(|(order, result)| (order.thread, (order, result)))
            .collect();
        let result = |order: &AffinityOrder| match recorded.get(&order.thread) {
            Some(&(same, result)) if same == order => result.clone(),
            _ => AffinityResult::Done,
        };
        let affinities = orders.iter().map(|order| AffinityOutcome {
            thread: order.thread,
            result: result(order),
        });
        Outcome {
            affinities: affinities.collect(),
            pages: Vec::new(),
        }
    }

    /// Takes in what the replayed policy's orders did.
    pub(super) fn carry(&mut self, orders: &[AffinityOrder], outcome: &Outcome) {
        for (order, outcome) in orders.iter().zip(&outcome.affinities) {
            let mask = match &outcome.result {
                AffinityResult::Done => order.cpus.clone(),
                AffinityResult::Narrowed { now } => Arc::new(now.clone()),
                AffinityResult::Gone => {
                    self.own.remove(&order.thread);
                    continue;
                }
                AffinityResult::Failed { .. } => continue,
            };
            if order.core.is_some() {
                remember(&mut self.own_masks, &mask);
                let core = order.core;
                self.own.insert(order.thread, Given { core, mask });
            } else {
                self.own.remove(&order.thread);
            }
        }
    }

    /// Takes in what the recorded run's orders did in an interval.
    pub(super) fn recorded(&mut self, interval: &Interval) {
        for (order, result) in interval.taken() {
            let mask = match result {
                AffinityResult::Narrowed { now } => Arc::new(now.clone()),
                _ => order.cpus.clone(),
            };
            if order.core.is_some() {
                remember(&mut self.recorded_masks, &mask);
                self.recorded.insert(order.thread, mask);
            } else {
                self.recorded.remove(&order.thread);
            }
        }
    }

    /// Where each thread of a snapshot is from here on: on the core that the replayed policy gave it, or
    /// else on its CPU.
    pub(super) fn given(&self, snapshot: &Snapshot) -> Vec<(ThreadId, CpuId)> {
        let now = |thread: &Thread| {
            let core = self.own.get(&thread.id).and_then(|own| own.core);
            (thread.id, core.unwrap_or(thread.cpu))
        };
        snapshot.threads.iter().map(now).collect()
    }

    /// Forgets threads that have ended, and adds new ones.
    fn meet(&mut self, snapshot: &Snapshot) {
        let there = |thread: ThreadId| snapshot.thread(thread).is_some();
        self.own.retain(|&thread, _| there(thread));
        self.recorded.retain(|&thread, _| there(thread));
        let before = std::mem::take(&mut self.found);
        for thread in &snapshot.threads {
            let mask = &thread.affinity;
            match before.get(&thread.id) {
                Some(found) if self.recorded.contains_key(&thread.id) => {
                    self.found.insert(thread.id, found.clone());
                }
                Some(_) => {
                    self.found.insert(thread.id, mask.clone());
                }
                None => self.meet_new(thread),
            }
        }
    }

    /// Adds a new thread, which may have been started with a mask of either policy.
    fn meet_new(&mut self, thread: &Thread) {
        let mask = &thread.affinity;
        let whole = thread.cpuset.is_subset(mask);
        if !whole && self.own_masks.contains(mask) {
            let (core, mask) = (thread.assigned, mask.clone());
            self.own.insert(thread.id, Given { core, mask });
        }
        let inherited = !whole && self.recorded_masks.contains(mask);
        if inherited || thread.assigned.is_some() {
            self.recorded.insert(thread.id, mask.clone());
            self.found.insert(thread.id, thread.cpuset.clone());
        } else {
            self.found.insert(thread.id, mask.clone());
        }
    }

    /// Whether the recorded thread has just what the replayed policy gave it.
    fn is_as_recorded(&self, thread: &Thread) -> bool {
        match self.own.get(&thread.id) {
            Some(own) => own.core == thread.assigned && thread.affinity.is_subset(&own.mask),
            None => thread.assigned.is_none() && !self.recorded.contains_key(&thread.id),
        }
    }

    fn rewritten(&self, thread: &Thread, online: &CpuSet) -> Thread {
        let by_recorded = self.recorded.get(&thread.id);
        let foreign = by_recorded.is_none_or(|mask| !thread.affinity.is_subset(mask))
            && !thread
                .cpuset
                .intersection(online)
                .is_subset(&thread.affinity);
        let own = self.own.get(&thread.id);
        let affinity = match own {
            _ if foreign => &thread.affinity,
            Some(own) => &own.mask,
            None => self.found.get(&thread.id).unwrap_or(&thread.cpuset),
        };
        let cpu = match own.and_then(|own| own.core) {
            Some(core) if !affinity.contains(thread.cpu) => core,
            _ => thread.cpu,
        };
        Thread {
            cpu,
            assigned: own.and_then(|own| own.core),
            affinity: affinity.clone(),
            ..thread.clone()
        }
    }
}

/// Adds a mask if it is new: there are about as many as memory domains.
fn remember(masks: &mut Vec<Arc<CpuSet>>, mask: &Arc<CpuSet>) {
    if !masks.contains(mask) {
        masks.push(mask.clone());
    }
}
