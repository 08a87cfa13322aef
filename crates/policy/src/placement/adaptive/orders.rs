//! The page orders that carry out what a layout wants of memory.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use numaherd_world::{BLOCK_PAGES, MemoryKind, PageOrder, Pages, Part, ProcessId, ThreadId};

use super::action::{Follow, Ordered};
use super::search::Candidate;
use super::{DEAL, FOLLOW, SPREAD};
use crate::estimate::{Owner, PORTIONS, Picture};
use crate::rules::Rule;
use crate::stage::Stage;

/// If this share of a process's memory is on one node, nearly all of it is (chosen here).
const ON_ONE: f64 = 0.75;
/// The share of the busy cores that must be gained for memory to be dealt before it is known which thread uses what:
/// wrongly dealt memory costs less (chosen here).
const WORTH_DEALING: f64 = 0.05;

/// The orders for what a layout wants of memory, and the memory that they move. `gain` is the share of the busy cores that
/// the layout is expected to gain, and `why` says so. `portions` holds, for each process whose memory follows in portions,
/// the node (place) and how many have followed; it is updated.
pub(super) fn of_memory(
    stage: &Stage<'_>,
    picture: &Picture,
    layout: &Candidate,
    portions: &mut BTreeMap<ProcessId, (usize, u64)>,
    (gain, why): (f64, &str),
) -> (Vec<PageOrder>, Vec<Follow>) {
    let (mut orders, mut moves) = (Vec::new(), Vec::new());
    let over = picture.spread_over(&layout.memory, &layout.cpus);
    let spread_of = most_in_common(picture, layout);
    for (process, owner) in picture.processes.iter().enumerate() {
        let memory = layout.memory[process];
        if !memory.moves() {
            continue;
        }
        let nodes = picture.nodes_of(process, &layout.cpus);
        let on_each = nodes.chunk_by(|a, b| a == b);
        let on_each: Vec<(usize, u64)> = on_each.map(|on| (on[0], on.len() as u64)).collect();
        let whose = (owner.id, picture.threads[owner.threads[0]].id);
        let (home, ordered) = match *on_each {
            [(home, _)] if memory.follows > 0 => {
                let left = picture.portions_left(process, &layout.cpus);
                let (pages, followed) = following(owner, memory.follows, left);
                match followed {
                    Some(followed) => portions.insert(owner.id, (home, followed)),
                    None => portions.remove(&owner.id),
                };
                orders.push(order(stage, whose, pages, home, FOLLOW, why.to_owned()));
                (Some(home), Ordered::ToOne(pages))
            }
            _ if memory.follows == PORTIONS
                && gain >= WORTH_DEALING
                && is_to_deal(owner, &on_each) =>
            {
                orders.extend(spread(stage, whose, own, &on_each, (DEAL, why)));
                (None, Ordered::Dealt)
            }
            _ => {
                let pages = picture.following(process, memory, &layout.cpus);
                let most = (memory.follows < PORTIONS).then_some(pages as u64);
                (None, Ordered::AsUsed(most))
            }
        };
        if spread_of == Some(process) {
            for &kind in &owner.common_kinds {
                let pages = |part| Pages::OfKind { kind, part };
                orders.extend(spread(stage, whose, pages, &over, (SPREAD, why)));
            }
        }
        moves.push(Follow::new(owner, memory, home, ordered));
    }
    (orders, moves)
}

/// The pages of a part of a process's own memory.
pub(super) fn own(part: Part) -> Pages {
    let kind = MemoryKind::Private;
    Pages::OfKind { kind, part }
}

/// Whether the memory of a process is dealt to the nodes (places) of its threads, before samples show who uses what: if
/// nearly all of it is on one node, at least as much would be local by chance as before, and there is a block for each
/// thread.
fn is_to_deal(owner: &Owner, over: &[(usize, u64)]) -> bool {
    let all: u64 = owner.pages.iter().sum();
    let threads: u64 = over.iter().map(|&(_, threads)| threads).sum();
    let Some(most) = (0..owner.pages.len()).max_by_key(|&node| owner.pages[node]) else {
        return false;
    };
    // What would be local by chance, before and afterwards.
    let there = over.iter().find(|on| on.0 == most);
    let before = there.map_or(0, |on| on.1 * threads);
    let then: u64 = over.iter().map(|on| on.1 * on.1).sum();
    owner.pages[most] as f64 >= ON_ONE * all as f64
        && before <= then
        && all >= BLOCK_PAGES * threads
}

/// The process whose orders move common memory: the pages are the same for all, and this process has most of them mapped.
fn most_in_common(picture: &Picture, candidate: &Candidate) -> Option<usize> {
    let spreads = (0..candidate.memory.len()).filter(|&process| candidate.memory[process].spreads);
    let pages = |process: &usize| picture.processes[*process].common.iter().sum::<u64>();
    spreads.max_by_key(|process| (pages(process), Reverse(*process)))
}

/// Orders that spread pages, in parts, over nodes (places), by weights.
fn spread(
    stage: &Stage<'_>,
    whose: (ProcessId, ThreadId),
    pages: impl Fn(Part) -> Pages,
    over: &[(usize, u64)],
    (rule, why): (Rule, &str),
) -> Vec<PageOrder> {
    let weights: Vec<u64> = over.iter().map(|&(_, weight)| weight).collect();
    let parts = Part::dealt(&weights);
    let parts = parts.iter().zip(over);
    parts
        .map(|(&part, &(node, _))| order(stage, whose, pages(part), node, rule, why.to_owned()))
        .collect()
}

/// The pages of the next `portions` of a process's memory that follow its threads, of the `left` that have not yet, and
/// how many have followed then, if not all. Common memory does not follow.
fn following(owner: &Owner, portions: u64, left: u64) -> (Pages, Option<u64>) {
    let first = PORTIONS - left;
    let pages = match portions == PORTIONS {
        true if owner.common_kinds.is_empty() => Pages::All,
        true => own(Part::WHOLE),
        false => own(Part {
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
