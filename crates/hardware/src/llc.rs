//! A memory domain's last-level cache, shared by its cores: sets in order of use (LRU), each line
//! with who may hold it and whether it must be written back.
//!
//! It is not inclusive: like those of recent server processors, it drops a line without forcing it
//! out of private caches. Its sets are spread over many locks, so contention between cores of a
//! domain is rare.

use std::sync::{Mutex, PoisonError};

use crate::cache::SetIndex;
use crate::config;
use crate::directory::Holder;
use crate::host::HOST_LINE_BYTES;

/// A word holds a line's number above these bits; holder and dirty bit below. An empty place is 0,
/// which no line is: it has a holder.
const LINE_SHIFT: u32 = 17;
const DIRTY: u64 = 1;
const LOW_BITS: u64 = (1 << LINE_SHIFT) - 1;

/// Most locks of a cache; a power of two.
const SHARDS: u64 = 1024;

pub(crate) struct Llc {
    index: SetIndex,
    ways: usize,
    /// A power of two in number; the lowest bits of a set's index select its shard.
    shards: Vec<Shard>,
    shard_bits: u32,
}

struct Shard {
    words: Mutex<Box<[u64]>>,
    /// Host address of the words.
    at: usize,
}

/// A line in the cache, seen under its set's lock.
pub(crate) struct Entry<'a> {
    set: &'a mut [u64],
}

impl Entry<'_> {
    pub(crate) fn holder(&self) -> Holder {
        Holder::decode((self.set[0] >> 1) as u16)
    }

    pub(crate) fn set_holder(&mut self, holder: Holder) {
        let keep = self.set[0] & (!LOW_BITS | DIRTY);
        self.set[0] = keep | u64::from(holder.encode()) << 1;
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.set[0] & DIRTY != 0
    }

    pub(crate) fn set_dirty(&mut self, dirty: bool) {
        self.set[0] = self.set[0] & !DIRTY | u64::from(dirty);
    }

    pub(crate) fn remove(self) {
        self.set[0] = 0;
    }
}

/// A set that does not contain the requested line.
pub(crate) struct Vacancy<'a> {
    set: &'a mut [u64],
    line: u64,
}

impl Vacancy<'_> {
    /// Puts the line in. Returns the line that fell out if it must be written back.
    pub(crate) fn insert(self, holder: Holder, dirty: bool) -> Option<u64> {
        let last = self.set.len() - 1;
        let victim = self.set[last];
        self.set.copy_within(..last, 1);
        self.set[0] = self.line << LINE_SHIFT | u64::from(holder.encode()) << 1 | u64::from(dirty);
        (victim & DIRTY != 0).then_some(victim >> LINE_SHIFT)
    }
}

impl Llc {
    pub(crate) fn new(shape: &config::Cache, line_bytes: u64) -> Self {
        let sets = shape.bytes / line_bytes / shape.ways as u64;
        let shard_bits = sets.min(SHARDS).ilog2();
        let shards = 1 << shard_bits;
        let words = usize::try_from(sets.div_ceil(shards)).expect("fits into memory") * shape.ways;
        Self {
            index: SetIndex::new(sets),
            ways: shape.ways,
            shards: (0..shards)
                .map(|_| {
                    let words = vec![0; words].into_boxed_slice();
                    Shard {
                        at: words.as_ptr() as usize,
                        words: Mutex::new(words),
                    }
                })
                .collect(),
            shard_bits,
        }
    }

    /// The host addresses of a line's set, one for each line of the host's caches.
    #[inline]
    pub(crate) fn host_addresses(&self, line: u64) -> impl Iterator<Item = usize> {
        let index = self.index.of(line);
        let shard = &self.shards[index & (self.shards.len() - 1)];
        let start = shard.at + (index >> self.shard_bits) * self.ways * size_of::<u64>();
        let end = start + self.ways * size_of::<u64>();
        (start / HOST_LINE_BYTES..end.div_ceil(HOST_LINE_BYTES)).map(|line| line * HOST_LINE_BYTES)
    }

    /// Looks a line up under its set's lock; a line found becomes the most recent of its set.
    #[inline]
    pub(crate) fn look<R>(
        &self,
        line: u64,
        then: impl FnOnce(Result<Entry<'_>, Vacancy<'_>>) -> R,
    ) -> R {
        self.look_with(line, || (), |found, ()| then(found))
    }

    /// Like [`Llc::look`], and reads something else at the same time, so that the host's cache
    /// misses for both overlap.
    #[inline(always)]
    pub(crate) fn look_with<T, R>(
        &self,
        line: u64,
        read: impl FnOnce() -> T,
        then: impl FnOnce(Result<Entry<'_>, Vacancy<'_>>, T) -> R,
    ) -> R {
        let index = self.index.of(line);
        let shard = &self.shards[index & (self.shards.len() - 1)];
        let start = (index >> self.shard_bits) * self.ways;
        let mut words = shard.words.lock().unwrap_or_else(PoisonError::into_inner);
        let set = &mut words[start..start + self.ways];
        let also = read();
        // The low bits of a word in use are not 0, so an empty place never matches line 0.
        let key = line << LINE_SHIFT;
        let way = set
            .iter()
            .position(|&word| (word ^ key).wrapping_sub(1) < LOW_BITS);
        match way {
            Some(way) => {
                let word = set[way];
                set.copy_within(..way, 1);
                set[0] = word;
                then(Ok(Entry { set }), also)
            }
            None => then(Err(Vacancy { set, line }), also),
        }
    }

    #[cfg(test)]
    pub(crate) fn lines(&self) -> usize {
        let shard = |s: &Shard| s.words.lock().unwrap().iter().filter(|&&w| w != 0).count();
        self.shards.iter().map(shard).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dirty_line_that_falls_out_is_returned() {
        let llc = Llc::new(
            &config::Cache {
                bytes: 3 * 2 * 64,
                ways: 2,
                hit_ns: 1.0,
            },
            64,
        );
        let insert = |line, dirty| {
            llc.look(line, |found| match found {
                Ok(_) => panic!("line {line} is not in yet"),
                Err(vacancy) => vacancy.insert(Holder::Core(0), dirty),
            })
        };
        assert_eq!(insert(0, true), None);
        assert_eq!(insert(3, false), None);
        assert_eq!(
            insert(6, false),
            Some(0),
            "three sets: lines 0, 3 and 6 meet"
        );
        assert_eq!(insert(9, false), None, "line 3 was clean");
        assert_eq!(llc.lines(), 2);
    }

    #[test]
    fn holder_and_dirty_bit_change_apart() {
        let llc = Llc::new(
            &config::Cache {
                bytes: 4096,
                ways: 4,
                hit_ns: 1.0,
            },
            64,
        );
        llc.look(5, |found| {
            assert!(found.is_err_and(|v| v.insert(Holder::Core(9), false).is_none()));
        });
        llc.look(5, |found| {
            let Ok(mut entry) = found else {
                panic!("inserted")
            };
            entry.set_dirty(true);
            entry.set_holder(Holder::Several);
            assert!(entry.is_dirty());
            assert_eq!(entry.holder(), Holder::Several);
            entry.set_dirty(false);
            assert_eq!(entry.holder(), Holder::Several);
            entry.remove();
        });
        assert_eq!(llc.lines(), 0);
    }
}
