//! Where each thread is once the placement of an interval has been carried out, for the paging.

use std::collections::BTreeMap;

use numaherd_policy::PlacedThread;
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{AffinityResult, Outcome, Snapshot, Thread, ThreadId};

use crate::governor::ThreadChange;

/// The threads that have a core once the plan is carried out, ascending. A change of unknown outcome, as
/// in a dry run, counts as done, so that the page orders that would follow are seen too.
pub(super) fn placed(
    snapshot: &Snapshot,
    topology: &Topology,
    changes: &[ThreadChange],
    outcome: &Outcome,
) -> Vec<PlacedThread> {
    let changed: BTreeMap<ThreadId, usize> = (0..)
        .zip(changes)
        .map(|(at, change)| (change.order.thread, at))
        .collect();
    let settle = |thread: &Thread| {
        let core = match changed.get(&thread.id) {
            None => thread.assigned,
            Some(&at) => {
                let result = outcome.affinities.get(at).map(|outcome| &outcome.result);
                core_after(thread, &changes[at], result)
            }
        }?;
        PlacedThread::on(thread, core, topology)
    };
    snapshot.threads.iter().filter_map(settle).collect()
}

/// The core that a thread has once a change to it has been tried; `None` if it has none, or is gone.
fn core_after(
    thread: &Thread,
    change: &ThreadChange,
    result: Option<&AffinityResult>,
) -> Option<CpuId> {
    let core = change.order.core;
    let took = match result {
        None | Some(AffinityResult::Done) => true,
        Some(AffinityResult::Narrowed { now }) => core.is_none_or(|core| now.contains(core)),
        Some(AffinityResult::Gone) => return None,
        Some(AffinityResult::Failed { .. }) => false,
    };
    if took { core } else { thread.assigned }
}
