//! share: the threads of one process read, and sometimes write, random lines of one working set.
//! While the threads are spread, no node is the right home for its pages; the solution is to bring
//! the threads together. Writes also move lines from cache to cache.

use crate::error::Error;
use crate::random::{self, mix};
use crate::sys::{LINE, Region};
use crate::workload::{Cost, Workload};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words in a line.
const WORDS: usize = LINE / size_of::<u64>();

/// The cost of one operation: a write has four instructions more than a read. A line that another
/// thread has written comes from its cache if the machine supports that, and is then not fetched
/// from memory.
pub fn cost(write_percent: u8) -> Cost {
    let writes = f64::from(write_percent) / 100.0;
    Cost::new(16.0 + 4.0 * writes, 1.0)
}

/// One of the threads.
#[derive(Debug)]
pub struct Share {
    region: Arc<Region>,
    random: u64,
    /// Writes in 2^32 operations.
    writes: u64,
}

impl Share {
    /// One of the threads that share `region`.
    pub fn new(region: Arc<Region>, write_percent: u8, seed: u64) -> Share {
        let writes = (u64::from(write_percent) << 32).div_ceil(100);
        Share {
            region,
            random: mix(seed),
            writes,
        }
    }
}

/// Does `operations` operations; returns the sum of the values read.
#[inline(never)]
fn visit(words: &[AtomicU64], random: &mut u64, writes: u64, operations: u64) -> u64 {
    let (lines, _) = words.as_chunks::<WORDS>();
    let mut state = *random;
    let mut sum = 0u64;
    for _ in 0..operations {
        state = random::next(state);
        let line = &lines[random::index(state, lines.len())];
        let value = line[0].load(Ordering::Relaxed);
        sum = sum.wrapping_add(value);
        // Bits that hardly affect the index decide between reading and writing.
        if (state >> 8) & 0xffff_ffff < writes {
            line[0].store(value.wrapping_add(1), Ordering::Relaxed);
        }
    }
    *random = state;
    sum
}

impl Workload for Share {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        let words = self.region.shared_words();
        black_box(visit(words, &mut self.random, self.writes, operations));
        Ok(())
    }

    fn round(&self) -> u64 {
        (self.region.bytes() / LINE) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of writes in 10,000 operations of a single thread.
    fn writes(write_percent: u8) -> u64 {
        let region = Arc::new(Region::map(4 * 4096).unwrap());
        let mut share = Share::new(Arc::clone(&region), write_percent, 5);
        share.run(10_000).unwrap();
        region
            .shared_words()
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .sum()
    }

    #[test]
    fn the_share_of_writes_is_the_one_asked_for() {
        assert_eq!(writes(0), 0);
        assert_eq!(writes(100), 10_000);
        assert!((2200..2800).contains(&writes(25)), "{}", writes(25));
    }

    #[test]
    fn threads_share_one_memory() {
        let region = Arc::new(Region::map(4096).unwrap());
        let mut writer = Share::new(Arc::clone(&region), 100, 1);
        let mut reader = Share::new(Arc::clone(&region), 0, 2);
        assert_eq!(visit(region.shared_words(), &mut reader.random, 0, 1000), 0);
        writer.run(2000).unwrap();
        assert!(visit(region.shared_words(), &mut reader.random, 0, 1000) > 1000);
    }
}
