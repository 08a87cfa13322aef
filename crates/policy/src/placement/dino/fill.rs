//! From layout to threads (DINO §3.3.3): which keep their core, and which fill the slots that remain.

use std::collections::BTreeMap;

use crate::placement::arrange::Hand;
use crate::placement::dino::layout::Tuple;
use crate::placement::slots::{At, PoolSlots};

/// The threads that keep their core: old core = new core and old class = new class.
///
/// Where a core runs more threads of a class than the layout wants there, those that were given it
/// (`given`, by place in the pool) keep it before those that are there by chance, and lower thread
/// numbers before higher. What they take is taken out of `open`.
pub fn keep(
    slots: &PoolSlots,
    tuples: &[Tuple],
    given: impl Fn(usize) -> bool,
    open: &mut [Vec<Hand>],
) -> Vec<Option<At>> {
    let mut solution = vec![None; tuples.len()];
    for pass in [true, false] {
        for tuple in tuples.iter().filter(|tuple| given(tuple.thread) == pass) {
            let Some(at) = slots.sits[tuple.thread] else {
                continue;
            };
            let wanted = &mut open[at.domain][at.cpu][tuple.class.index()];
            if *wanted > 0 {
                *wanted -= 1;
                solution[tuple.thread] = Some(at);
            }
        }
    }
    solution
}

/// Fills the open slots with the threads that have none yet, each with one of its class.
///
/// The paper leaves open which thread takes which slot of its class. Here: one in its own memory
/// domain if there is one, else one on its own node, else the first in the order of dealing;
/// threads in the order of the sorted tuples, so that threads of one process come together.
/// Each open slot is looked at a bounded number of times: linear.
pub fn fill(
    slots: &PoolSlots,
    sorted: &[Tuple],
    open: &mut [Vec<Hand>],
    solution: &mut [Option<At>],
) {
    let unfilled = |tuple: &&Tuple| solution[tuple.thread].is_none();
    let mut rest: Vec<&Tuple> = sorted.iter().filter(unfilled).collect();
    let all = 0..slots.domains.len();
    let mut of_node: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for domain in all.clone() {
        of_node
            .entry(slots.domains[domain].node)
            .or_default()
            .push(domain);
    }
    let domains: Vec<Vec<usize>> = all.clone().map(|domain| vec![domain]).collect();
    let nodes = of_node.into_values().collect();
    let mut open_slots = OpenSlots {
        open,
        next: vec![[0; 3]; all.len()],
    };
    for (areas, is_last) in [
        (domains, false),
        (nodes, false),
        (vec![all.collect()], true),
    ] {
        let mut area_of = vec![0; slots.domains.len()];
        for (area, domains) in areas.iter().enumerate() {
            domains.iter().for_each(|&domain| area_of[domain] = area);
        }
        // For each area and class, the first domain that may have an open slot.
        let mut first = vec![[0; 3]; areas.len()];
        rest.retain(|tuple| {
            let home = slots.sits_in[tuple.thread].map(|domain| area_of[domain]);
            let slot = home.or(is_last.then_some(0)).and_then(|area| {
                open_slots.take(&areas[area], tuple.class.index(), &mut first[area])
            });
            solution[tuple.thread] = slot;
            slot.is_none()
        });
    }
    debug_assert!(
        rest.is_empty(),
        "the layout has a slot for every class instance"
    );
}

/// The open slots, and where to look next for one of each class in each domain.
struct OpenSlots<'a> {
    open: &'a mut [Vec<Hand>],
    next: Vec<[usize; 3]>,
}

impl OpenSlots<'_> {
    /// Takes the first open slot of a class in these domains; domains before `first` have none.
    fn take(&mut self, domains: &[usize], class: usize, first: &mut [usize; 3]) -> Option<At> {
        while let Some(&domain) = domains.get(first[class]) {
            let cpu = &mut self.next[domain][class];
            while let Some(hand) = self.open[domain].get_mut(*cpu) {
                if hand[class] > 0 {
                    hand[class] -= 1;
                    return Some(At { domain, cpu: *cpu });
                }
                *cpu += 1;
            }
            first[class] += 1;
        }
        None
    }
}
