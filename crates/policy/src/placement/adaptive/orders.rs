//! The page orders that carry out what a layout wants of memory.

use std::borrow::Cow;
use std::cmp::Reverse;

use numaherd_world::{MemoryKind, PageOrder, Pages, Part, ProcessId, ThreadId};

use super::SPREAD;
use super::search::Candidate;
use crate::estimate::{Owner, PORTIONS, Picture};
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

/// The pages in which so many portions of a process's memory follow its threads, of those that are left, and how many
/// portions have followed then, if not all. What it has in common with others does not follow.
pub(super) fn following(owner: &Owner, portions: u64, left: u64) -> (Pages, Option<u64>) {
    let private = |part| Pages::OfKind {
        kind: MemoryKind::Private,
        part,
    };
    let first = PORTIONS - left;
    let pages = match portions == PORTIONS {
        true if owner.common_kinds.is_empty() => Pages::All,
        true => private(Part::WHOLE),
        false => private(Part {
            first,
            count: portions,
            of: PORTIONS,
        }),
    };
    (pages, Some(first + portions).filter(|_| portions < left))
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
