//! The page orders that carry out what a layout wants of memory.

use std::borrow::Cow;
use std::cmp::Reverse;

use numaherd_world::{MemoryKind, PageOrder, Pages, Part, ProcessId, ThreadId};

use super::SPREAD;
use super::search::Candidate;
use crate::estimate::{Owner, Picture};
use crate::rules::Rule;
use crate::stage::Stage;

/// The process for which memory in common is ordered: all that have it mean the same pages, and the one with most of it
/// has most of these mapped.
pub(super) fn most_in_common(picture: &Picture, candidate: &Candidate) -> Option<usize> {
    let spreads = (0..candidate.memory.len()).filter(|&process| candidate.memory[process].spreads);
    let pages = |process: &usize| picture.processes[*process].common.iter().sum::<u64>();
    spreads.max_by_key(|process| (pages(process), Reverse(*process)))
}

/// Orders that spread kinds of memory over nodes (places), by weights.
pub(super) fn spread(
    stage: &Stage<'_>,
    whose: (ProcessId, ThreadId),
    kinds: &[MemoryKind],
    over: &[(usize, u64)],
    why: &str,
) -> Vec<PageOrder> {
    let weights: Vec<u64> = over.iter().map(|&(_, weight)| weight).collect();
    let parts = Part::dealt(&weights);
    let parts = parts.iter().zip(over);
    let spread = |&kind| {
        parts.clone().map(move |(&part, &(node, _))| {
            let pages = Pages::OfKind { kind, part };
            order(stage, whose, pages, node, SPREAD, why.to_owned())
        })
    };
    kinds.iter().flat_map(spread).collect()
}

/// The pages that follow a process's threads: what it has in common with others does not.
pub(super) fn own_pages(owner: &Owner) -> Pages {
    match owner.common_kinds.is_empty() {
        true => Pages::All,
        false => Pages::OfKind {
            kind: MemoryKind::Private,
            part: Part::WHOLE,
        },
    }
}

pub(super) fn order(
    stage: &Stage<'_>,
    (process, thread): (ProcessId, ThreadId),
    pages: Pages,
    node: usize,
    rule: Rule,
    why: String,
) -> PageOrder {
    PageOrder {
        process,
        thread,
        pages,
        to: stage.topology.nodes()[node].id,
        rule: Cow::Borrowed(rule.name),
        why,
    }
}
