//! is: ranking of whole numbers by counting, and a sort by the ranks (RNR-94-007, section 2.2.1
//! "IS"; sizes and values of NPB 3).
//!
//! Every iteration changes two keys and ranks all of them anew: how many keys are no larger. The
//! keys are near a normal distribution.
//!
//! Memory: a thread reads its part of the keys and writes each into the place that its bucket, a
//! range of values, has for this thread in a second array. Then a bucket goes to one thread, dealt
//! in turn, which counts its values: what one thread has written anywhere, another reads.

use super::nas_random::{NasRandom, SEED};
use super::{Check, Kernel, Member, Stopped, Terms, WholeArray};
use crate::error::Error;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Which keys' ranks are published.
    probes: [usize; PROBES],
    /// Their ranks as published, before what iterations change.
    ranks: [i64; PROBES],
    /// How many of the two keys that iteration i has changed to small ones each rank gains, less
    /// an offset: rank + (i - offset) or rank - (i - offset).
    signs: [i64; PROBES],
    offsets: [i64; PROBES],
}

const SIZES: [Size; 5] = [
    Size {
        log_keys: 16,
        log_largest: 11,
        log_buckets: 9,
        probes: [48_427, 17_148, 23_627, 62_548, 4431],
        ranks: [0, 18, 346, 64_917, 65_463],
        signs: [1, 1, 1, -1, -1],
        offsets: [0; PROBES],
    },
    Size {
        log_keys: 20,
        log_largest: 16,
        log_buckets: 10,
        probes: [357_773, 934_767, 875_723, 898_999, 404_505],
        ranks: [1249, 11_698, 1_039_987, 1_043_896, 1_048_018],
        signs: [1, 1, -1, -1, -1],
        offsets: [2, 2, 0, 0, 0],
    },
    Size {
        log_keys: 23,
        log_largest: 19,
        log_buckets: 10,
        probes: [2_112_377, 662_041, 5_336_171, 3_642_833, 4_250_760],
        ranks: [104, 17_523, 123_928, 8_288_932, 8_388_264],
        signs: [1, 1, 1, -1, -1],
        offsets: [1; PROBES],
    },
    Size {
        log_keys: 25,
        log_largest: 21,
        log_buckets: 10,
        probes: [41_869, 812_306, 5_102_857, 18_232_239, 26_860_214],
        ranks: [33_422_937, 10_244, 59_149, 33_135_281, 99],
        signs: [-1, 1, 1, -1, 1],
        offsets: [0; PROBES],
    },
    Size {
        log_keys: 27,
        log_largest: 23,
        log_buckets: 10,
        probes: [44_172_927, 72_999_161, 74_326_391, 129_606_274, 21_736_814],
        ranks: [61_147, 882_988, 266_290, 133_997_595, 133_525_895],
        signs: [1, 1, 1, -1, -1],
        offsets: [0; PROBES],
    },
];

/// The problem and its memory.
pub struct Is {
    size: Size,
    keys: WholeArray,
    /// The keys, bucket by bucket.
    bucketed: WholeArray,
    /// Of each value, how many keys are no larger.
    ranks: WholeArray,
    /// How many keys of each bucket each thread has; a row for a thread.
    counts: WholeArray,
    right: AtomicU64,
    probed: AtomicU64,
    unordered: AtomicU64,
}

impl Is {
    /// The problem of a class.
    ///
    /// # Errors
    ///
    /// Where memory is short.
    pub fn make(terms: &Terms<'_>) -> Result<Box<dyn Kernel>, Error> {
        Ok(Box::new(Is::new(terms.class.of(SIZES), terms)?))
    }

    fn new(size: Size, terms: &Terms<'_>) -> Result<Is, Error> {
        Ok(Is {
            size,
            keys: WholeArray::new(terms, 1 << size.log_keys)?,
            bucketed: WholeArray::new(terms, 1 << size.log_keys)?,
            ranks: WholeArray::new(terms, 1 << size.log_largest)?,
            counts: WholeArray::new(terms, terms.threads << size.log_buckets)?,
            right: AtomicU64::new(0),
            probed: AtomicU64::new(0),
            unordered: AtomicU64::new(0),
        })
    }

    /// Keys there are.
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

    /// Ranks all keys, in the `iteration`-th way.
    fn rank(&self, member: &Member<'_>, iteration: u64) -> Result<(), Stopped> {
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
            self.probe(probed, iteration);
        }
        Ok(())
    }

    /// What an iteration changes: one small key, one large. The keys that will be probed.
    fn change(&self, iteration: u64) -> [u32; PROBES] {
        let keys = self.keys.field();
        let turn = ((iteration - 1) % ITERATIONS + 1) as u32;
        keys.set(turn as usize, turn);
        let large = (1 << self.size.log_largest) - turn;
        keys.set(turn as usize + ITERATIONS as usize, large);
        self.size.probes.map(|at| keys.get(at))
    }

    /// Writes a member's keys into the buckets. Where each bucket ends.
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

    /// Compares the ranks of the keys `probed` with those published.
    fn probe(&self, probed: [u32; PROBES], iteration: u64) {
        let iteration = iteration.cast_signed();
        let Size {
            ranks,
            signs,
            offsets,
            ..
        } = self.size;
        for (at, key) in probed.into_iter().enumerate() {
            let smaller = self.smaller(key);
            let published = ranks[at] + signs[at] * (iteration - offsets[at]);
            let is_right = i64::from(smaller) == published;
            self.right.fetch_add(u64::from(is_right), Ordering::Relaxed);
            self.probed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many keys are smaller than `key`.
    fn smaller(&self, key: u32) -> u32 {
        match key {
            0 => 0,
            key => self.ranks.field().get(key as usize - 1),
        }
    }

    /// Puts a member's part of the sorted keys into their places and looks whether they are in
    /// order. Reads ranks, and destroys them.
    fn sort(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let (keys, bucketed, ranks) =
            (self.keys.field(), self.bucketed.field(), self.ranks.field());
        let width = 1usize << (self.size.log_largest - self.size.log_buckets);
        let end_of = |bucket: usize| ranks.get((bucket + 1) * width - 1) as usize;
        let dealt = || (member.index..self.buckets()).step_by(member.threads);
        let parts: Vec<Range<usize>> = dealt()
            .map(|bucket| if bucket == 0 { 0 } else { end_of(bucket - 1) }..end_of(bucket))
            .collect();
        // Placing keys lowers the ranks that others take their bounds from.
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
        self.unordered
            .fetch_add(unordered as u64, Ordering::Relaxed);
        Ok(())
    }
}

impl Kernel for Is {
    fn problem(&self) -> String {
        format!(
            "2^{} keys below 2^{}",
            self.size.log_keys, self.size.log_largest
        )
    }

    fn iterations(&self) -> u64 {
        ITERATIONS
    }

    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.draw(member);
        let bucketed = self.bucketed.field();
        member
            .share(self.count())
            .for_each(|at| bucketed.set(at, 0));
        member.wait()?;
        // As the benchmark does before it starts its clock: everything is touched.
        self.rank(member, 1)?;
        if member.index == 0 {
            self.right.store(0, Ordering::Relaxed);
            self.probed.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
        for iteration in member.iterations() {
            self.rank(member, iteration)?;
        }
        // Untimed in the benchmark; a pass over keys beside ten.
        self.sort(member)?;
        member.wait()
    }

    fn results(&self, _iterations: u64) -> Vec<Check> {
        let probed = self.probed.load(Ordering::Relaxed) as f64;
        let right = self.right.load(Ordering::Relaxed) as f64;
        let unordered = self.unordered.load(Ordering::Relaxed) as f64;
        vec![
            Check::always("published ranks found", right, probed, 0.0),
            Check::always("keys out of order", unordered, 0.0, 0.0),
        ]
    }
}
