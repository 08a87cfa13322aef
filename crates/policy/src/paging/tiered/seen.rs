//! What a snapshot shows of memory that may move, and of controllers that may be loaded.

use std::collections::{BTreeMap, HashMap};

use numaherd_contention::LINE_BYTES;
use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Process, ProcessId, Snapshot, ThreadId, Unmanaged};

/// The share of its bandwidth from which a node may be loaded (chosen here; waits are short below).
const MAY_BE_LOADED: f64 = 0.5;

/// The processes whose memory may move, each with the thread for which it moves.
pub(super) fn movable(snapshot: &Snapshot) -> Vec<(&Process, ThreadId)> {
    let mut thread_of: HashMap<ProcessId, ThreadId> = HashMap::new();
    for thread in &snapshot.threads {
        if matches!(
            thread.unmanaged,
            None | Some(Unmanaged::UserAffinity { .. })
        ) {
            thread_of.entry(thread.process).or_insert(thread.id);
        }
    }
    let is_fixed = |process: &Process| {
        let machine = process.machine.as_ref();
        machine.is_some_and(|machine| machine.fixed_memory.is_some())
    };
    let processes = snapshot.processes.iter();
    let free = processes.filter(|process| process.memory_policy.is_none() && !is_fixed(process));
    free.filter_map(|process| Some((process, *thread_of.get(&process.id)?)))
        .collect()
}

/// The nodes whose own threads read more than half of their bandwidth, where that is known.
pub(super) fn loaded(snapshot: &Snapshot, topology: &Topology) -> Vec<NodeId> {
    let Some(capacities) = &topology.timing().node_gb_per_s else {
        return Vec::new();
    };
    let mut lines: BTreeMap<NodeId, u64> = BTreeMap::new();
    for thread in &snapshot.threads {
        let local = thread.counts.and_then(|counts| counts.local);
        if let (Some(local), Some(node)) = (local, topology.node_of(thread.cpu)) {
            *lines.entry(node).or_default() += local;
        }
    }
    let is_loaded = |&(&node, &lines): &(&NodeId, &u64)| {
        let capacity = topology.node_index(node).and_then(|at| capacities.get(at));
        // Bytes per ns are GB/s.
        let used = lines as f64 * LINE_BYTES / snapshot.interval_ns.max(1) as f64;
        capacity.is_some_and(|&capacity| used > MAY_BE_LOADED * capacity)
    };
    lines
        .iter()
        .filter(is_loaded)
        .map(|(&node, _)| node)
        .collect()
}
