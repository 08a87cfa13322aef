//! Whether anything has changed since threads were last placed that calls for placing them anew.
//!
//! Problem: a placement that is worked out anew every interval follows every small change of the
//! miss rates, and each thread it moves costs time. Rule (N-MASS §3.4): it is worked out anew when a
//! miss rate changed by more than 20 %; here too when threads came or went, when a process's home
//! changed, and when the CPUs that may be had did.
//!
//! Readings: the paper compares with "the previous scheduler epoch"; here it is the epoch in which
//! the threads were last placed, so that a rate that creeps is noticed too. Rates below 1 line per
//! 1000 instructions count as 1: of such programs the paper says that they are not memory-bound
//! (§4.5), and a fifth of nearly nothing is noise.
//!
//! Properties: the same situation twice is no change; the first is one. Cost: linear in threads.

use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::{Placement, Snapshot, ThreadId};

use crate::pools::Pool;

/// Miss rates below this are held to be this, in lines per 1000 instructions.
const NOT_MEMORY_BOUND: f64 = 1.0;

/// What a placement goes by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Situation {
    /// The threads to place, pool by pool: the CPUs of each, and how many of [`Self::marks`] are
    /// of it.
    pub pools: Vec<(CpuSet, usize)>,
    /// The threads.
    pub marks: Vec<Mark>,
    /// The threads that hold CPUs and cannot be placed.
    pub hands_off: Vec<(Mark, CpuId)>,
}

impl Situation {
    /// The situation of the threads in `pools` and of those that are `hands_off`, both by place in
    /// the snapshot.
    pub fn new(
        snapshot: &Snapshot,
        pools: &[Pool],
        hands_off: &[usize],
        mark: impl Fn(usize) -> Mark,
    ) -> Self {
        let held = |&index: &usize| (mark(index), snapshot.threads[index].place());
        let threads = pools.iter().flat_map(|pool| &pool.threads);
        Self {
            pools: pools
                .iter()
                .map(|pool| (pool.cpus.clone(), pool.threads.len()))
                .collect(),
            marks: threads.map(|&index| mark(index)).collect(),
            hands_off: hands_off.iter().map(held).collect(),
        }
    }
}

/// What counts of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    /// Which thread.
    pub thread: ThreadId,
    /// Its miss rate in lines per 1000 instructions.
    pub miss_rate: f64,
    /// The node that holds most of its process's pages, where that counts.
    pub home: Option<NodeId>,
}

/// What was last acted on, and what was wanted then.
#[derive(Clone, Debug)]
pub struct LastPlaced {
    changed_by: f64,
    situation: Option<Situation>,
    wanted: Vec<Placement>,
}

impl LastPlaced {
    /// Nothing placed yet. `changed_by` is the share of a miss rate that a change must exceed.
    pub fn new(changed_by: f64) -> Self {
        Self {
            changed_by,
            situation: None,
            wanted: Vec::new(),
        }
    }

    /// Whether threads are to be placed anew.
    pub fn is_outdated(&self, now: &Situation) -> bool {
        self.situation
            .as_ref()
            .is_none_or(|before| changed(before, now, self.changed_by))
    }

    /// Takes down what is placed now, and what is wanted of it.
    pub fn place(&mut self, now: Situation, wanted: Vec<Placement>) -> Vec<Placement> {
        self.situation = Some(now);
        self.wanted = wanted;
        self.wanted.clone()
    }

    /// What is still wanted of the last placement: threads that have not been given their CPU,
    /// because the governor refused or put it off.
    pub fn still_wanted(&mut self, snapshot: &Snapshot) -> Vec<Placement> {
        self.wanted.retain_mut(|placement| {
            let thread = snapshot.thread(placement.thread);
            let open = thread.filter(|thread| thread.assigned != Some(placement.to));
            placement.from = open.map_or(placement.from, |thread| thread.place());
            open.is_some()
        });
        self.wanted.clone()
    }
}

fn changed(before: &Situation, now: &Situation, by: f64) -> bool {
    let of_thread = |a: &Mark, b: &Mark| {
        let (was, is) = (
            a.miss_rate.max(NOT_MEMORY_BOUND),
            b.miss_rate.max(NOT_MEMORY_BOUND),
        );
        a.thread != b.thread || a.home != b.home || (is - was).abs() > by * was
    };
    before.pools != now.pools
        || before.marks.len() != now.marks.len()
        || before.hands_off.len() != now.hands_off.len()
        || (before.marks.iter().zip(&now.marks)).any(|(a, b)| of_thread(a, b))
        || (before.hands_off.iter().zip(&now.hands_off))
            .any(|(a, b)| a.1 != b.1 || of_thread(&a.0, &b.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(rates: &[f64]) -> Situation {
        let mark = |(tid, &miss_rate): (u32, &f64)| Mark {
            thread: numaherd_testing::tid(tid),
            miss_rate,
            home: Some(NodeId(0)),
        };
        Situation {
            pools: vec![([CpuId(0)].into_iter().collect(), rates.len())],
            marks: (0..).zip(rates).map(mark).collect(),
            hands_off: Vec::new(),
        }
    }

    fn outdated(before: &[f64], now: &[f64]) -> bool {
        let mut last = LastPlaced::new(0.2);
        assert!(last.is_outdated(&situation(before)), "nothing placed yet");
        last.place(situation(before), Vec::new());
        last.is_outdated(&situation(now))
    }

    #[test]
    fn more_than_a_fifth_is_a_change_and_a_fifth_is_none() {
        assert!(!outdated(&[10.0, 50.0], &[12.0, 40.0]));
        assert!(outdated(&[10.0, 50.0], &[12.1, 50.0]));
        assert!(outdated(&[10.0, 50.0], &[10.0, 39.9]));
    }

    #[test]
    fn what_hardly_goes_to_memory_changes_when_it_begins_to() {
        assert!(!outdated(&[0.1], &[0.9]));
        assert!(!outdated(&[0.1], &[1.2]));
        assert!(outdated(&[0.1], &[1.3]));
    }

    #[test]
    fn a_rate_that_creeps_is_noticed() {
        let mut last = LastPlaced::new(0.2);
        last.place(situation(&[10.0]), Vec::new());
        let noticed = (0..).find(|&step| last.is_outdated(&situation(&[10.0 + f64::from(step)])));
        assert_eq!(noticed, Some(3));
    }

    #[test]
    fn threads_homes_and_cpus_that_change_are_changes() {
        assert!(outdated(&[10.0], &[10.0, 10.0]));
        let mut last = LastPlaced::new(0.2);
        let before = situation(&[10.0]);
        last.place(before.clone(), Vec::new());
        let mut moved = before.clone();
        moved.marks[0].home = Some(NodeId(1));
        assert!(last.is_outdated(&moved));
        let mut wider = before.clone();
        wider.pools[0].0.insert(CpuId(7));
        assert!(last.is_outdated(&wider));
        let mut held = before.clone();
        held.hands_off.push((before.marks[0], CpuId(3)));
        assert!(last.is_outdated(&held));
        assert!(!last.is_outdated(&before));
    }
}
