//! is: ranking of integers by counting, and a sort by rank (RNR-94-007, section 2.2.1 "IS"; sizes
//! and values of NPB 3).
//!
//! Every iteration changes two keys and computes the ranks of all keys again: how many keys are no
//! larger. The keys are nearly normally distributed.
//!
//! Memory: buckets are ranges of values. A thread reads its part of the keys and writes each into
//! its own part of the key's bucket, in a second array. Then each bucket goes to one thread, in
//! turn, which counts its values. So a thread reads what all others have written.

use super::nas_random::{NasRandom, SEED};
use super::{Check, Kernel, Member, Problem, Stopped, Terms, WholeArray};
use crate::error::Error;
use std::ops::Range;

/// Iterations of every class.
const ITERATIONS: u64 = 10;

/// Keys whose ranks are published.
const PROBES: usize = 5;

/// A class's parameters.
#[derive(Clone, Copy)]
struct Size {
    log_keys: u32,
    log_largest: u32,
    log_buckets: u32,
}

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let size = Size {
        log_keys: terms.class.of([16, 20, 23, 25, 27]),
        log_largest: terms.class.of([11, 16, 19, 21, 23]),
        log_buckets: terms.class.of([9, 10, 10, 10, 10]),
    };
    let is = Is {
        size,
        probes: terms.published("probes"),
        ranks_of_probes: ["ranks", "signs", "offsets"].map(|name| terms.published(name)),
        keys: WholeArray::new(terms, 1 << size.log_keys)?,
        bucketed: WholeArray::new(terms, 1 << size.log_keys)?,
        ranks: WholeArray::new(terms, 1 << size.log_largest)?,
        counts: WholeArray::new(terms, terms.threads << size.log_buckets)?,
    };
    let sizes = format!("2^{} keys below 2^{}", size.log_keys, size.log_largest);
    Problem::new(sizes, ITERATIONS, is)
}

struct Is {
    size: Size,
    /// The keys whose ranks are published.
    probes: Vec<f64>,
    /// Their ranks, signs and offsets: in iteration i, a rank grows (sign 1) or shrinks (-1) by i
    /// less the offset, because of the keys that were made small until then.
    ranks_of_probes: [Vec<f64>; 3],
    keys: WholeArray,
    /// The keys, bucket by bucket.
    bucketed: WholeArray,
    /// For each value, the number of keys that are no larger.
    ranks: WholeArray,
    /// Number of each thread's keys in each bucket; a row for each thread.
    counts: WholeArray,
}

impl Is {
    /// Number of keys.
    fn count(&self) -> usize {
        1 << self.size.log_keys
    }

    fn buckets(&self) -> usize {
        1 << self.size.log_buckets
    }

    /// Draws a member's keys: each the mean of four random numbers.
    fn draw(&self, member: &Member<'_>) {
        let keys = self.keys.field();
        let share = member.share(self.count());
        let mut random = NasRandom::new(SEED).skipped(4 * share.start as u64);
        let quarter = f64::from(1u32 << (self.size.log_largest - 2));
        for at in share {
            let sum: f64 = (0..4).map(|_| random.next()).sum();
            keys.set(at, (quarter * sum) as u32);
        }
    }

    /// Ranks all keys in iteration `iteration`. Returns to the first member how many of the
    /// published ranks are right, and their number.
    fn rank(&self, member: &Member<'_>, iteration: u64) -> Result<[usize; 2], Stopped> {
        let probed = if member.index == 0 {
            self.change(iteration)
        } else {
            [0; PROBES]
        };
        member.wait()?;
        let ends = self.fill_buckets(member)?;
        let ranks = self.ranks.field();
        let bucketed = self.bucketed.field();
        let width = 1 << (self.size.log_largest - self.size.log_buckets);
        for bucket in (member.index..self.buckets()).step_by(member.threads) {
            let start = if bucket == 0 { 0 } else { ends[bucket - 1] };
            let ranks = ranks.row(bucket * width, width);
            for value in 0..width {
                ranks.set(value, 0);
            }
            let low = (bucket * width) as u32;
            for at in start..ends[bucket] {
                let value = (bucketed.get(at as usize) - low) as usize;
                ranks.set(value, ranks.get(value) + 1);
            }
            let mut below = start;
            for value in 0..width {
                below += ranks.get(value);
                ranks.set(value, below);
            }
        }
        member.wait()?;
        if member.index == 0 && iteration <= ITERATIONS {
            return Ok([self.found(probed, iteration), PROBES]);
        }
        Ok([0; 2])
    }

    /// Makes the changes of an iteration: one small key, one large. Returns the keys to probe.
    fn change(&self, iteration: u64) -> [u32; PROBES] {
        let keys = self.keys.field();
        let turn = ((iteration - 1) % ITERATIONS + 1) as u32;
        keys.set(turn as usize, turn);
        let large = (1 << self.size.log_largest) - turn;
        keys.set(turn as usize + ITERATIONS as usize, large);
        std::array::from_fn(|at| keys.get(self.probes[at] as usize))
    }

    /// Writes a member's keys into the buckets. Returns the end of each bucket.
    fn fill_buckets(&self, member: &Member<'_>) -> Result<Vec<u32>, Stopped> {
        let (buckets, threads) = (self.buckets(), member.threads);
        let shift = self.size.log_largest - self.size.log_buckets;
        let (keys, bucketed) = (self.keys.field(), self.bucketed.field());
        let of = |thread: usize| self.counts.field().row(thread * buckets, buckets);
        let share = member.share(self.count());
        let own = of(member.index);
        for bucket in 0..buckets {
            own.set(bucket, 0);
        }
        for at in share.clone() {
            let bucket = (keys.get(at) >> shift) as usize;
            own.set(bucket, own.get(bucket) + 1);
        }
        member.wait()?;
        // In every bucket, the keys of earlier threads come first.
        let mut next = vec![0; buckets];
        let mut ends = vec![0; buckets];
        let mut end = 0;
        for bucket in 0..buckets {
            for thread in 0..threads {
                if thread == member.index {
                    next[bucket] = end;
                }
                end += of(thread).get(bucket);
            }
            ends[bucket] = end;
        }
        for at in share {
            let key = keys.get(at);
            let place = &mut next[(key >> shift) as usize];
            bucketed.set(*place as usize, key);
            *place += 1;
        }
        member.wait()?;
        Ok(ends)
    }

    /// How many of the keys `probed` have their published rank.
    fn found(&self, probed: [u32; PROBES], iteration: u64) -> usize {
        let [ranks, signs, offsets] = &self.ranks_of_probes;
        let is_right = |at: &usize| {
            let published = ranks[*at] + signs[*at] * (iteration as f64 - offsets[*at]);
            f64::from(self.smaller(probed[*at])) == published
        };
        (0..PROBES).filter(is_right).count()
    }

    /// How many keys are smaller than `key`.
    fn smaller(&self, key: u32) -> u32 {
        match key {
            0 => 0,
            key => self.ranks.field().get(key as usize - 1),
        }
    }

    /// Puts a member's part of the sorted keys into their places, which destroys the ranks. Returns
    /// how many keys of all members are out of order.
    fn sort(&self, member: &Member<'_>) -> Result<f64, Stopped> {
        let (keys, bucketed, ranks) =
            (self.keys.field(), self.bucketed.field(), self.ranks.field());
        let width = 1usize << (self.size.log_largest - self.size.log_buckets);
        let end_of = |bucket: usize| ranks.get((bucket + 1) * width - 1) as usize;
        let dealt = || (member.index..self.buckets()).step_by(member.threads);
        let parts: Vec<Range<usize>> = dealt()
            .map(|bucket| if bucket == 0 { 0 } else { end_of(bucket - 1) }..end_of(bucket))
            .collect();
        // Placing keys lowers ranks from which other members take their bounds.
        member.wait()?;
        for at in parts.into_iter().flatten() {
            let key = bucketed.get(at);
            let place = ranks.get(key as usize) - 1;
            ranks.set(key as usize, place);
            keys.set(place as usize, key);
        }
        member.wait()?;
        let unordered = member
            .share_of(1..self.count())
            .filter(|at| keys.get(at - 1) > keys.get(*at))
            .count();
        member.sum(unordered as f64)
    }
}

impl Kernel for Is {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.draw(member);
        let bucketed = self.bucketed.field();
        member
            .share(self.count())
            .for_each(|at| bucketed.set(at, 0));
        member.wait()?;
        // The benchmark does this before it starts its clock; it touches everything.
        self.rank(member, 1)?;
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let (mut right, mut probed) = (0, 0);
        for iteration in member.iterations() {
            let found = self.rank(member, iteration)?;
            right += found[0];
            probed += found[1];
        }
        // Not timed in the benchmark; one pass over the keys in addition to ten.
        let unordered = self.sort(member)?;
        let (right, probed) = (right as f64, probed as f64);
        Ok(vec![
            Check::always("published ranks found", right, probed, 0.0),
            Check::always("keys out of order", unordered, 0.0, 0.0),
        ])
    }
}
