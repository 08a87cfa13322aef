//! Memory that is dealt to the nodes of its process's threads: whose turn a page is, and whether it is even already.

use numaherd_topology::NodeId;
use numaherd_world::{MemoryKind, PageFailure, PageOutcome, Part, ProcessId, Snapshot};

/// Memory is even if dealing it would move at most one page in so many (chosen here).
const UNEVEN: u64 = 8;

/// Whether a dealt part has arrived, except for as many pages as may be uneven. Mappings of which all was there are not counted.
pub(super) fn is_done(outcome: &PageOutcome) -> bool {
    let there = outcome.moved.saturating_add(outcome.already_there);
    // Other failures are of pages that nothing moves, or that are not there.
    let failures = [PageFailure::Busy, PageFailure::NodeFull, PageFailure::Other];
    let failed = failures.iter().filter_map(|why| outcome.failed.get(why));
    let elsewhere = failed.sum::<u64>().saturating_add(outcome.not_tried);
    outcome.error.is_none() && elsewhere <= there / (UNEVEN - 1)
}

/// The part of shared memory for each node; `nodes` are those of the threads, ascending.
pub(super) fn dealt(nodes: &[NodeId]) -> impl Iterator<Item = (NodeId, Part)> {
    let (of_node, weights): (Vec<NodeId>, Vec<u64>) = (nodes.chunk_by(|a, b| a == b))
        .map(|on| (on[0], on.len() as u64))
        .unzip();
    of_node.into_iter().zip(Part::dealt(&weights))
}

/// The node whose turn a shared page is.
pub(super) fn whose_turn(nodes: &[NodeId], page: u64) -> NodeId {
    turn_in(dealt(nodes), page).unwrap_or(nodes[0])
}

/// The node whose part takes a page.
pub(super) fn turn_in(
    mut dealt: impl Iterator<Item = (NodeId, Part)>,
    page: u64,
) -> Option<NodeId> {
    let turn = dealt.find(|(_, part)| part.takes(page));
    turn.map(|(node, _)| node)
}

/// Whether no more than an eighth of a process's private memory would move if it were dealt to the nodes of its threads, as
/// far as is known.
pub(super) fn is_even(snapshot: &Snapshot, process: ProcessId, nodes: &[NodeId]) -> bool {
    let process = snapshot.process(process);
    let residency = process.and_then(|process| process.residency.as_ref());
    let private = residency.and_then(|residency| residency.of_kind(MemoryKind::Private));
    private.is_some_and(|private| {
        let all = private.total();
        let too_many = |&(node, pages): &(NodeId, u64)| {
            let threads = nodes.iter().filter(|&&of| of == node).count() as u64;
            pages.saturating_sub(all.saturating_mul(threads).div_ceil(nodes.len() as u64))
        };
        private.pages.iter().map(too_many).sum::<u64>() <= all / UNEVEN
    })
}
