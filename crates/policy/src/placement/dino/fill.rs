//! From layout to threads (DINO §3.3.3): who keeps its core, and who fills the slots that remain.

use std::collections::BTreeMap;

use crate::placement::arrange::Hand;
use crate::placement::dino::layout::Tuple;
use crate::placement::slots::{At, Ground};

/// The threads that keep their core: old core = new core and old class = new class.
///
/// Where a core runs more threads of a class than the layout wants there, those that were given it
/// (`given`, by place in the pool) keep it before those that are there by chance, and lower thread
/// numbers before higher. What they take is taken out of `open`.
pub fn keep(
    ground: &Ground,
    tuples: &[Tuple],
    given: impl Fn(usize) -> bool,
    open: &mut [Vec<Hand>],
) -> Vec<Option<At>> {
    let mut solution = vec![None; tuples.len()];
    for pass in [true, false] {
        for tuple in tuples.iter().filter(|tuple| given(tuple.thread) == pass) {
            let Some(at) = ground.sits[tuple.thread] else {
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
    ground: &Ground,
    sorted: &[Tuple],
    open: &mut [Vec<Hand>],
    solution: &mut [Option<At>],
) {
    let mut cursors = Cursors::new(ground.domains.len());
    let home = |tuple: &Tuple| ground.sits_in[tuple.thread];
    let mut rest: Vec<&Tuple> = sorted
        .iter()
        .filter(|tuple| solution[tuple.thread].is_none())
        .collect();
    rest.retain(|tuple| {
        let slot = home(tuple).and_then(|domain| cursors.next_in(domain, tuple, open));
        solution[tuple.thread] = slot;
        slot.is_none()
    });
    if rest.is_empty() {
        return;
    }
    let mut of_node: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (index, domain) in ground.domains.iter().enumerate() {
        of_node.entry(domain.node).or_default().push(index);
    }
    let mut nodes: Vec<Walk> = of_node.into_values().map(Walk::new).collect();
    let mut walk_of = vec![0; ground.domains.len()];
    for (walk, node) in nodes.iter().enumerate() {
        node.domains
            .iter()
            .for_each(|&domain| walk_of[domain] = walk);
    }
    rest.retain(|tuple| {
        let node = home(tuple).map(|domain| &mut nodes[walk_of[domain]]);
        let slot = node.and_then(|node| node.next(&mut cursors, tuple, open));
        solution[tuple.thread] = slot;
        slot.is_none()
    });
    let mut machine = Walk::new((0..ground.domains.len()).collect());
    for tuple in rest {
        let slot = machine.next(&mut cursors, tuple, open);
        debug_assert!(
            slot.is_some(),
            "the layout has a slot for every class instance"
        );
        solution[tuple.thread] = slot;
    }
}

/// Where to look next for an open slot of each class, in each domain.
struct Cursors {
    next: Vec<[usize; 3]>,
}

impl Cursors {
    fn new(domains: usize) -> Self {
        Self {
            next: vec![[0; 3]; domains],
        }
    }

    /// Takes the next open slot of the tuple's class in a domain.
    fn next_in(&mut self, domain: usize, tuple: &Tuple, open: &mut [Vec<Hand>]) -> Option<At> {
        let class = tuple.class.index();
        let cpu = &mut self.next[domain][class];
        while let Some(hand) = open[domain].get_mut(*cpu) {
            if hand[class] > 0 {
                hand[class] -= 1;
                return Some(At { domain, cpu: *cpu });
            }
            *cpu += 1;
        }
        None
    }
}

/// A walk over domains, class by class, that never comes back to a domain without open slots.
struct Walk {
    domains: Vec<usize>,
    next: [usize; 3],
}

impl Walk {
    fn new(domains: Vec<usize>) -> Self {
        Self {
            domains,
            next: [0; 3],
        }
    }

    fn next(&mut self, cursors: &mut Cursors, tuple: &Tuple, open: &mut [Vec<Hand>]) -> Option<At> {
        let at = &mut self.next[tuple.class.index()];
        while let Some(&domain) = self.domains.get(*at) {
            let slot = cursors.next_in(domain, tuple, open);
            if slot.is_some() {
                return slot;
            }
            *at += 1;
        }
        None
    }
}
