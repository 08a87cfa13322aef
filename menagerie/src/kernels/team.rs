//! The threads of a kernel, which persist for the whole run like an OpenMP team. They divide loops
//! by a fixed rule, wait for each other at barriers and add up their results.
//!
//! Threads wait on a futex, never by spinning: a waiting thread yields its CPU, in the trace as on
//! the machine.
//!
//! Ending early: the last thread that arrives at a barrier checks whether the run must end, and all
//! threads there get the same answer. So a thread never waits for one that has left.

use crate::stop::Stop;
use crate::sync::{lock, wait_while};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};

/// The run must end: a signal has come, or a thread has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// Most numbers in one reduction.
const WIDTH: usize = 8;

/// A member's part of reductions, in cache lines of its own. Two sets alternate: a member writes a
/// set again only after a barrier that follows all reads of it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Parts([[AtomicU64; WIDTH]; 2]);

/// What the members of a team share.
#[derive(Debug)]
pub struct Team<'s> {
    threads: usize,
    stop: &'s Stop,
    barrier: Mutex<Barrier>,
    opened: Condvar,
    parts: Vec<Parts>,
}

#[derive(Debug, Default)]
struct Barrier {
    waiting: usize,
    /// How often the barrier has opened.
    opened: u64,
    ended: bool,
}

impl<'s> Team<'s> {
    /// A team of `threads`, which ends early by `stop`.
    pub fn new(threads: usize, stop: &'s Stop) -> Team<'s> {
        Team {
            threads,
            stop,
            barrier: Mutex::default(),
            opened: Condvar::new(),
            parts: (0..threads).map(|_| Parts::default()).collect(),
        }
    }

    /// Member `index`, for `iterations`. To be called once for each index.
    pub fn member(&self, index: usize, iterations: u64) -> Member<'_> {
        Member {
            index,
            threads: self.threads,
            iterations,
            team: self,
            reductions: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// Ends the run without waiting for all members, because one will never arrive.
    pub fn abandon(&self) {
        lock(&self.barrier).ended = true;
        self.opened.notify_all();
    }

    fn wait(&self) -> Result<(), Stopped> {
        let mut barrier = lock(&self.barrier);
        barrier.waiting += 1;
        if barrier.waiting == self.threads {
            barrier.waiting = 0;
            barrier.opened += 1;
            barrier.ended |= self.stop.wanted();
            self.opened.notify_all();
        } else {
            let before = barrier.opened;
            barrier = wait_while(&self.opened, barrier, |barrier| {
                barrier.opened == before && !barrier.ended
            });
        }
        if barrier.ended { Err(Stopped) } else { Ok(()) }
    }
}

/// One thread of a team.
#[derive(Debug)]
pub struct Member<'t> {
    /// Its number, from 0.
    pub index: usize,
    /// Number of members.
    pub threads: usize,
    iterations: u64,
    team: &'t Team<'t>,
    reductions: Cell<usize>,
    done: Cell<u64>,
}

impl Member<'_> {
    /// This member's part of a loop of `n`: OpenMP's static schedule without a chunk size, as in
    /// GCC's library. The members' parts are contiguous, in order and of nearly equal length.
    pub fn share(&self, n: usize) -> Range<usize> {
        share(n, self.index, self.threads)
    }

    /// This member's part of a loop over `range`.
    pub fn share_of(&self, range: Range<usize>) -> Range<usize> {
        let part = self.share(range.len());
        range.start + part.start..range.start + part.end
    }

    /// Waits until all members have arrived.
    ///
    /// # Errors
    ///
    /// If the run must end. All members get the same answer.
    pub fn wait(&self) -> Result<(), Stopped> {
        self.team.wait()
    }

    /// The sum of all members' `value`, returned to all members. The order of additions is that of
    /// the members, so a team gets the same digits every time. Contains one barrier.
    ///
    /// # Errors
    ///
    /// As [`Member::wait`].
    pub fn sum(&self, value: f64) -> Result<f64, Stopped> {
        self.sums([value]).map(|[sum]| sum)
    }

    /// Like [`Member::sum`], for several numbers at once (at most 8).
    ///
    /// # Errors
    ///
    /// As [`Member::wait`].
    pub fn sums<const N: usize>(&self, values: [f64; N]) -> Result<[f64; N], Stopped> {
        self.reduce(values, |sum, part| sum + part)
    }

    /// The largest of all members' `value`.
    ///
    /// # Errors
    ///
    /// As [`Member::wait`].
    pub fn max(&self, value: f64) -> Result<f64, Stopped> {
        self.reduce([value], f64::max).map(|[max]| max)
    }

    fn reduce<const N: usize>(
        &self,
        values: [f64; N],
        join: impl Fn(f64, f64) -> f64,
    ) -> Result<[f64; N], Stopped> {
        const { assert!(N <= WIDTH) };
        let set = self.reductions.get() % 2;
        self.reductions.set(self.reductions.get() + 1);
        for (word, value) in self.team.parts[self.index].0[set].iter().zip(values) {
            word.store(value.to_bits(), Ordering::Relaxed);
        }
        self.wait()?;
        let part = |member: usize, at: usize| {
            f64::from_bits(self.team.parts[member].0[set][at].load(Ordering::Relaxed))
        };
        Ok(std::array::from_fn(|at| {
            (1..self.threads).fold(part(0, at), |joined, member| join(joined, part(member, at)))
        }))
    }

    /// The iterations to do, from 1. Taking the next iteration counts the ones before it as done.
    pub fn iterations(&self) -> impl Iterator<Item = u64> {
        (1..=self.iterations + 1).map_while(|iteration| {
            self.done.set(iteration - 1);
            (iteration <= self.iterations).then_some(iteration)
        })
    }

    /// How many iterations the whole team is to do.
    pub fn iterations_wanted(&self) -> u64 {
        self.iterations
    }

    /// Counts `iterations` as done, for kernels that divide them among the members and so do not
    /// use [`Member::iterations`].
    pub fn count(&self, iterations: u64) {
        self.done.set(self.done.get() + iterations);
    }

    /// Iterations done.
    pub fn done(&self) -> u64 {
        self.done.get()
    }

    /// Whether the run must end. Unlike at a barrier, other members may not know it yet. For long
    /// work without barriers that may be cut short because a barrier follows.
    pub fn is_stopping(&self) -> bool {
        self.team.stop.wanted()
    }
}

impl Drop for Member<'_> {
    /// A member that panics will never reach the barrier.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.team.abandon();
        }
    }
}

/// The part of member `index` of `threads` in a loop of `n`.
pub fn share(n: usize, index: usize, threads: usize) -> Range<usize> {
    let (each, more) = (n / threads, n % threads);
    let start = index * each + index.min(more);
    start..start + each + usize::from(index < more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What each member of a team of `threads` returns.
    fn all<T: Send>(threads: usize, stop: &Stop, work: impl Fn(&Member<'_>) -> T + Sync) -> Vec<T> {
        let team = Team::new(threads, stop);
        std::thread::scope(|scope| {
            let start = |index| {
                let (team, work) = (&team, &work);
                scope.spawn(move || work(&team.member(index, 3)))
            };
            let members: Vec<_> = (0..threads).map(start).collect();
            members
                .into_iter()
                .map(|member| member.join().unwrap())
                .collect()
        })
    }

    proptest! {
        #[test]
        fn shares_are_runs_in_order_that_differ_by_one_at_most(n in 0usize..1000, threads in 1usize..70) {
            let shares: Vec<_> = (0..threads).map(|index| share(n, index, threads)).collect();
            prop_assert_eq!(shares[0].start, 0);
            prop_assert_eq!(shares[threads - 1].end, n);
            prop_assert!(shares.is_sorted_by(|left, right| left.end == right.start));
            // The longer shares come first.
            prop_assert!(shares.is_sorted_by(|left, right| left.len() >= right.len()));
            prop_assert!(shares[0].len() - shares[threads - 1].len() <= 1);
        }

        #[test]
        fn a_share_of_a_range_is_the_share_moved(start in 0usize..100, n in 0usize..100) {
            let stop = Stop::new();
            let shares = all(3, &stop, |member| (member.share(n), member.share_of(start..start + n)));
            for (share, moved) in shares {
                prop_assert_eq!(share.start + start..share.end + start, moved);
            }
        }
    }

    #[test]
    fn every_member_gets_the_sum_of_all_every_time() {
        let sums = all(5, &Stop::new(), |member| {
            let turns = 0..200u32;
            let sum = |turn| member.sums([member.index as f64, f64::from(turn)]);
            turns.map(|turn| sum(turn).unwrap()).collect::<Vec<_>>()
        });
        let expected: Vec<_> = (0..200).map(|turn| [10.0, 5.0 * f64::from(turn)]).collect();
        assert!(sums.iter().all(|sums| *sums == expected));
        assert_eq!(
            all(4, &Stop::new(), |member| member.max(-(member.index as f64))),
            [Ok(0.0); 4]
        );
    }

    #[test]
    fn all_learn_at_the_same_barrier_that_the_run_ends() {
        let stop = Stop::new();
        let passed = all(4, &stop, |member| {
            let mut passed = 0;
            while member.wait().is_ok() {
                passed += 1;
                if passed == 10 && member.index == 2 {
                    stop.end();
                }
            }
            passed
        });
        // All stop at the next barrier at the latest.
        assert!(passed.iter().all(|times| *times == passed[0]), "{passed:?}");
        assert!((10..=11).contains(&passed[0]), "{passed:?}");
    }

    #[test]
    fn nobody_waits_for_one_that_panics() {
        let stop = Stop::new();
        let team = Team::new(3, &stop);
        std::thread::scope(|scope| {
            let waiting = [0, 1].map(|index| {
                let member = team.member(index, 1);
                (0, member.index)
            });
            let threads = waiting.map(|(_, index)| {
                let team = &team;
                scope.spawn(move || team.member(index, 1).wait())
            });
            let failed = scope.spawn(|| {
                let _member = team.member(2, 1);
                panic!("expected by this test");
            });
            assert!(failed.join().is_err());
            for thread in threads {
                assert_eq!(thread.join().unwrap(), Err(Stopped));
            }
        });
    }

    #[test]
    fn only_iterations_gone_through_count() {
        let done = all(2, &Stop::new(), |member| {
            for iteration in member.iterations() {
                if iteration == 3 && member.index == 1 {
                    break;
                }
            }
            member.done()
        });
        assert_eq!(done, [3, 2]);
    }
}
