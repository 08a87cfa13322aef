//! What became of the orders of a placing: which threads had to leave their CPU, by whose decision, and
//! why. Drawn once here, for all who show moves.
//!
//! An order is one that the plan wanted, one that undoes a move, one that gives a thread to an idle
//! node, or one that gives a thread back to the kernel. It is a *move* when the CPU that the thread was
//! on is not among those that it may have now; a mask set around a thread where it is, is none.

use std::collections::BTreeMap;

use numaherd_herd::ledger::Placing;
use numaherd_topology::CpuId;
use numaherd_world::{AffinityResult, Outcome, Placement, ThreadId};
use serde::Serialize;

/// What was done to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Did {
    /// It had to leave its CPU.
    Moved,
    /// A move of it was undone.
    Undone,
    /// It was held where it had to wait, and was given to an idle node.
    Stolen,
    /// It was to move in a dry run.
    Planned,
    /// It was to move, and the kernel refused.
    Failed,
}

/// What one order came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'l> {
    pub(crate) thread: ThreadId,
    /// `None` where a person would say that nothing happened to the thread.
    pub(crate) did: Option<Did>,
    /// Whether the CPU that it was on is not among those that it may have now.
    pub(crate) leaves: bool,
    /// Whether it was carried out, as read back.
    pub(crate) took: bool,
    /// Whether it gives the thread back to the kernel.
    pub(crate) is_back: bool,
    pub(crate) is_undo: bool,
    pub(crate) is_stolen: bool,
    /// The CPU that it was on.
    pub(crate) from: CpuId,
    /// `None`: the kernel's choice.
    pub(crate) to: Option<CpuId>,
    /// What the plan wanted of this thread, if anything.
    pub(crate) placement: Option<&'l Placement>,
    /// The reason, or why it failed.
    pub(crate) why: &'l str,
}

impl<'l> Deed<'l> {
    /// The plan's entry, where the plan decided and not the governor by itself.
    pub(crate) fn by_plan(&self) -> Option<&'l Placement> {
        self.placement.filter(|_| !self.is_undo && !self.is_stolen)
    }

    /// Whether the thread is elsewhere now.
    pub(crate) fn is_move(&self) -> bool {
        self.leaves && matches!(self.did, Some(Did::Moved | Did::Undone | Did::Stolen))
    }
}

/// What the orders of a placing came to, in their order; those of threads that `cpu_of` does not know
/// are left out. Without an `outcome`, orders that were carried out are taken for not carried out.
pub(crate) fn deeds<'l>(
    placing: &'l Placing,
    outcome: Option<&'l Outcome>,
    cpu_of: impl Fn(ThreadId) -> Option<CpuId>,
) -> Vec<Deed<'l>> {
    // The first of a thread's: a second is refused as a duplicate.
    let mut asked: BTreeMap<ThreadId, &Placement> = BTreeMap::new();
    for placement in &placing.plan.placements {
        asked.entry(placement.thread).or_insert(placement);
    }
    let known = |(at, order): (usize, &'l numaherd_world::AffinityOrder)| {
        let from = cpu_of(order.thread)?;
        let result = outcome.and_then(|outcome| outcome.affinities.get(at));
        let result = result.filter(|result| result.thread == order.thread);
        let result = result.map(|result| &result.result);
        let placement = asked.get(&order.thread).copied();
        let undone = placing.undone.iter().find(|u| u.thread == order.thread);
        let stolen = placing.stolen.iter().find(|s| s.thread == order.thread);
        let leaves = !order.cpus.contains(from);
        let is_back = undone.is_none() && stolen.is_none() && placement.is_none();
        let took = matches!(
            result,
            Some(AffinityResult::Done | AffinityResult::Narrowed { .. })
        );
        let error = match result {
            Some(AffinityResult::Failed { error }) => Some(error.as_str()),
            _ => None,
        };
        let did = match (placing.carried_out, took, undone) {
            _ if is_back => None,
            (false, _, _) if leaves => Some(Did::Planned),
            (true, true, Some(_)) => Some(Did::Undone),
            (true, true, None) if stolen.is_some() => Some(Did::Stolen),
            (true, true, None) if leaves => Some(Did::Moved),
            (true, false, _) if error.is_some() => Some(Did::Failed),
            _ => None,
        };
        let why = error
            .or(undone.map(|undone| undone.why.as_str()))
            .or(stolen.map(|stolen| stolen.why.as_str()))
            .or(placement.map(|placement| placement.why.as_str()));
        Some(Deed {
            thread: order.thread,
            did,
            leaves,
            took,
            is_back,
            is_undo: undone.is_some(),
            is_stolen: stolen.is_some(),
            from,
            to: order.core,
            placement,
            why: why.unwrap_or_default(),
        })
    };
    placing
        .affinities
        .iter()
        .enumerate()
        .filter_map(known)
        .collect()
}
