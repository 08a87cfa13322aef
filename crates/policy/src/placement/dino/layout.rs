//! DINO's placement layout (§3.3.3): which classes each core is to run, before any thread is named.
//!
//! Class instances, the most aggressive first, are dealt to the domains in a snake: domain 0 to the
//! last, then the last to 0, and so on. The paper's prose takes turns at the two ends of the array
//! instead; its worked example (`D t | D t | d t | d d`) and the authors' code are a snake over the
//! sorted array, and so is this.

use crate::classes::Class;
use crate::placement::arrange::Hand;
use crate::placement::slots::{Direction, DomainSlots, PoolSlots};

/// One thread as DINO sees it: the paper's `<new_class, new_processID, new_threadID>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// Its class for the next interval.
    pub class: Class,
    /// Its process: dense numbers, in the order of each process's first thread.
    pub process: usize,
    /// Its place in the pool, whose threads are in ascending order.
    pub thread: usize,
}

/// Sorts tuples by class, the most aggressive first, then by process, then by thread.
/// The tuples must be ascending by thread. Two counting sorts: linear.
pub fn sorted(tuples: &[Tuple]) -> Vec<Tuple> {
    let processes = tuples.iter().map(|t| t.process + 1).max().unwrap_or(0);
    let by_process = counting_sort(tuples, processes, |tuple| tuple.process);
    counting_sort(&by_process, Class::DEALT.len(), |tuple| tuple.class.index())
}

fn counting_sort(tuples: &[Tuple], keys: usize, key: impl Fn(&Tuple) -> usize) -> Vec<Tuple> {
    let mut next = vec![0; keys + 1];
    for tuple in tuples {
        next[key(tuple) + 1] += 1;
    }
    for at in 1..=keys {
        next[at] += next[at - 1];
    }
    let mut sorted = tuples.to_vec();
    for tuple in tuples {
        let at = &mut next[key(tuple)];
        sorted[*at] = *tuple;
        *at += 1;
    }
    sorted
}

/// Deals the class instances: for every domain and CPU of the pool, how many of each class (in
/// the order of [`Class::DEALT`]) it is to run. `T` instances at a time, see
/// [`PoolSlots::shares`].
pub fn layout(slots: &PoolSlots, sorted: &[Tuple]) -> Vec<Vec<Hand>> {
    let turns = slots.turns(Direction::Snake);
    let shares = slots.shares(&turns, sorted.len());
    let empty = |domain: &DomainSlots| vec![[0; 3]; domain.cpus.len()];
    let mut hands: Vec<Vec<Hand>> = slots.domains.iter().map(empty).collect();
    let mut dealt = sorted.iter();
    for (at, share) in turns.into_iter().zip(shares) {
        for tuple in dealt.by_ref().take(share) {
            hands[at.domain][at.cpu][tuple.class.index()] += 1;
        }
    }
    hands
}
