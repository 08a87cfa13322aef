//! What every world guarantees and an intact line need not: a ledger can come from anywhere.
//!
//! A snapshot's threads, processes and nodes ascend, each occurring once: they are found by binary
//! search, and policies walk along them to keep their memory of threads. Numbers of CPUs and nodes
//! stay within what a list may name: the memory that sets take depends on the largest.

use numaherd_topology::{CpuId, NodeId};
use numaherd_world::Snapshot;

use super::{PagingTick, Placing, Record};

/// The largest number accepted for a CPU or node: the most that a set's list may name.
const LARGEST_ID: u32 = 1 << 16;

/// What is wrong with a record, as the end of "the line is intact but ..."; `None` if nothing is.
pub(super) fn flaw(record: &Record) -> Option<String> {
    let (cpus, nodes) = match record {
        Record::Snapshot(snapshot) => {
            if let Some(what) = disorder(snapshot) {
                return Some(format!("its snapshot lists {what} out of order or twice"));
            }
            named_by_snapshot(snapshot)
        }
        Record::Placing(placing) => named_by_placing(placing),
        Record::Outcome(outcome) => (None, outcome.pages.iter().map(|o| o.to).max()),
        Record::Paging(tick) => (None, named_by_paging(tick)),
        _ => (None, None),
    };
    let absurd = |what: &str, id: u32| {
        format!("it contains {what} {id}; numbers above {LARGEST_ID} are considered errors")
    };
    let cpu = cpus.filter(|cpu| cpu.0 > LARGEST_ID);
    let node = nodes.filter(|node| node.0 > LARGEST_ID);
    cpu.map(|cpu| absurd("CPU", cpu.0))
        .or_else(|| node.map(|node| absurd("node", node.0)))
}

fn disorder(snapshot: &Snapshot) -> Option<&'static str> {
    if !snapshot.threads.is_sorted_by(|a, b| a.id < b.id) {
        Some("threads")
    } else if !snapshot.processes.is_sorted_by(|a, b| a.id < b.id) {
        Some("processes")
    } else if !snapshot.nodes.is_sorted_by(|a, b| a.id < b.id) {
        Some("nodes")
    } else {
        None
    }
}

/// The largest numbers of a CPU and of a node.
type Largest = (Option<CpuId>, Option<NodeId>);

fn named_by_snapshot(snapshot: &Snapshot) -> Largest {
    let threads = snapshot.threads.iter();
    let cpus = threads.flat_map(|thread| [Some(thread.cpu), thread.assigned]);
    let residencies = snapshot
        .processes
        .iter()
        .filter_map(|p| p.residency.as_ref());
    let resident = residencies.flat_map(|residency| residency.pages.iter().map(|&(node, _)| node));
    let nodes = snapshot.nodes.iter().map(|node| node.id).chain(resident);
    (cpus.flatten().max(), nodes.max())
}

fn named_by_placing(placing: &Placing) -> Largest {
    let planned = placing.plan.placements.iter();
    let undone = placing.undone.iter();
    let stolen = placing.stolen.iter();
    let cpus = planned
        .flat_map(|placement| [placement.from, placement.to])
        .chain(placing.affinities.iter().filter_map(|order| order.core))
        .chain(undone.flat_map(|undone| [Some(undone.from), undone.to].into_iter().flatten()))
        .chain(stolen.flat_map(|stolen| [stolen.from, stolen.to]));
    (cpus.max(), placing.plan.pages.iter().map(|o| o.to).max())
}

fn named_by_paging(tick: &PagingTick) -> Option<NodeId> {
    let planned = tick.plan.iter().map(|order| order.to);
    planned.chain(tick.outcomes.iter().map(|o| o.to)).max()
}

#[cfg(test)]
mod tests {
    use super::LARGEST_ID;
    use numaherd_topology::CpuSet;

    #[test]
    fn the_largest_number_is_that_of_lists() {
        assert!(LARGEST_ID.to_string().parse::<CpuSet>().is_ok());
        assert!((LARGEST_ID + 1).to_string().parse::<CpuSet>().is_err());
    }
}
