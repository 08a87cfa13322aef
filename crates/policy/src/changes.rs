//! Whether a change since threads were last placed requires placing them again.
//!
//! Problem: a placement that is computed again every interval follows every small change of the
//! miss rates, and each thread that it moves costs time. Rule (N-MASS §3.4): compute it again when a
//! miss rate changed by more than 20 %; here also when threads came or went, when a process's home
//! changed, and when the available CPUs changed.
//!
//! Readings: the paper compares with "the previous scheduler epoch"; here it is the epoch in which
//! the threads were last placed, so that a slow drift is noticed too. Rates below 1 line per
//! 1000 instructions count as 1: of such programs the paper says that they are not memory-bound
//! (§4.5), and a fifth of nearly nothing is noise.
//!
//! Properties: the same situation twice is no change; the first is one. Cost: linear in threads.

use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::ThreadId;

use crate::stage::{Seat, Stage};

/// Miss rates below this are held to be this, in lines per 1000 instructions.
const NOT_MEMORY_BOUND: f64 = 1.0;

/// What a placement depends on.
#[derive(Clone, Debug, Default, PartialEq)]
struct Situation {
    /// The CPUs of each pool that has busy threads, and how many of [`Self::marks`] are of it.
    pools: Vec<(CpuSet, usize)>,
    /// The threads to place, pool by pool, and those that hold CPUs and cannot be placed.
    marks: Vec<Mark>,
}

/// What counts of one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    thread: ThreadId,
    /// In lines per 1000 instructions.
    miss_rate: f64,
    home: Option<NodeId>,
    /// The CPU that it holds, if it cannot be placed.
    holds: Option<CpuId>,
}

impl Situation {
    fn new(stage: &Stage<'_>, miss_rate: impl Fn(usize) -> f64) -> Self {
        let mark = |thread: usize| Mark {
            thread: stage.thread(thread).id,
            miss_rate: miss_rate(thread),
            home: stage.home(thread),
            holds: None,
        };
        let held = |&thread: &usize| Mark {
            holds: Some(stage.thread(thread).place()),
            ..mark(thread)
        };
        let placed = stage.busy().map(|(_, thread)| mark(thread));
        let pools = stage.pools.iter().filter(|pool| !pool.busy.is_empty());
        Self {
            pools: pools
                .map(|pool| (pool.cpus.clone(), pool.busy.len()))
                .collect(),
            marks: placed.chain(stage.unmanaged.iter().map(held)).collect(),
        }
    }
}

/// The seats that were last worked out, and the situation in which they were.
#[derive(Clone, Debug)]
pub struct LastSeats {
    changed_by: f64,
    situation: Option<Situation>,
    wanted: Vec<Seat>,
}

impl LastSeats {
    /// Nothing seated yet. `changed_by` is the share of a miss rate that a change must exceed.
    pub fn new(changed_by: f64) -> Self {
        Self {
            changed_by,
            situation: None,
            wanted: Vec::new(),
        }
    }

    /// The seats of a stage: worked out anew where something changed, else those that are still wanted
    /// because the governor refused or put them off. Where `seat` gives nothing it is asked again in the
    /// next interval. Miss rates are in lines per 1000 instructions.
    pub fn seats(
        &mut self,
        stage: &Stage<'_>,
        miss_rate: impl Fn(usize) -> f64,
        seat: impl FnOnce() -> Option<Vec<Seat>>,
    ) -> Vec<Seat> {
        let now = Situation::new(stage, miss_rate);
        if self.is_outdated(&now) {
            let Some(seats) = seat() else {
                return Vec::new();
            };
            (self.situation, self.wanted) = (Some(now), seats);
        } else {
            let open = |seat: &Seat| {
                let thread = stage.snapshot.thread(seat.thread);
                thread.is_some_and(|thread| thread.assigned != Some(seat.cpu))
            };
            self.wanted.retain(open);
        }
        self.wanted.clone()
    }

    fn is_outdated(&self, now: &Situation) -> bool {
        let before = self.situation.as_ref();
        before.is_none_or(|before| changed(before, now, self.changed_by))
    }
}

fn changed(before: &Situation, now: &Situation, by: f64) -> bool {
    let of_thread = |a: &Mark, b: &Mark| {
        let (was, is) = (
            a.miss_rate.max(NOT_MEMORY_BOUND),
            b.miss_rate.max(NOT_MEMORY_BOUND),
        );
        (a.thread, a.home, a.holds) != (b.thread, b.home, b.holds) || (is - was).abs() > by * was
    };
    before.pools != now.pools
        || before.marks.len() != now.marks.len()
        || (before.marks.iter().zip(&now.marks)).any(|(a, b)| of_thread(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn situation(rates: &[f64]) -> Situation {
        let mark = |(tid, &miss_rate): (u32, &f64)| Mark {
            thread: numaherd_testing::tid(tid),
            miss_rate,
            home: Some(NodeId(0)),
            holds: None,
        };
        Situation {
            pools: vec![([CpuId(0)].into_iter().collect(), rates.len())],
            marks: (0..).zip(rates).map(mark).collect(),
        }
    }

    /// Seats that were worked out in a situation.
    fn seated(before: Situation) -> LastSeats {
        let mut last = LastSeats::new(0.2);
        assert!(last.is_outdated(&before), "nothing placed yet");
        last.situation = Some(before);
        last
    }

    fn outdated(before: &[f64], now: &[f64]) -> bool {
        seated(situation(before)).is_outdated(&situation(now))
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
        let last = seated(situation(&[10.0]));
        let noticed = (0..).find(|&step| last.is_outdated(&situation(&[10.0 + f64::from(step)])));
        assert_eq!(noticed, Some(3));
    }

    #[test]
    fn threads_homes_and_cpus_that_change_are_changes() {
        assert!(outdated(&[10.0], &[10.0, 10.0]));
        let before = situation(&[10.0]);
        let last = seated(before.clone());
        let mut moved = before.clone();
        moved.marks[0].home = Some(NodeId(1));
        assert!(last.is_outdated(&moved));
        let mut wider = before.clone();
        wider.pools[0].0.insert(CpuId(7));
        assert!(last.is_outdated(&wider));
        let mut held = before.clone();
        held.marks[0].holds = Some(CpuId(3));
        assert!(last.is_outdated(&held));
        assert!(!last.is_outdated(&before));
    }
}
