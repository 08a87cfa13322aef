//! micro: the micro-benchmark of BRM (Rao, Wang, Zhou, Xu, HPCA 2013, Fig 3). Each thread walks a
//! private list in random order, then adds 1 to every word of memory shared by all threads, and
//! begins again. The list makes it sensitive to cache capacity and memory placement, the words to
//! the distance between threads; its two sizes determine which counts most.
//!
//! As in the paper, an entry of the list is one cache line: a pointer and seven words, of which a
//! step reads one. The figure advances inside its inner loop, so seven steps are one turn of the
//! outer loop; its text says that a loop passes the data once, as it does here.
//!
//! The results are known beforehand. The sum of the words read in one pass of a list is the same
//! for every order that visits each entry once. The shared words, with atomic additions, hold in
//! the end as many ones as all threads have added.

use crate::error::Error;
use crate::shuffle;
use crate::sys::{LINE, Region, Ring};
use crate::workload::{Detail, Workload};
use serde::Serialize;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words in a line.
const WORDS: usize = LINE / size_of::<u64>();

/// A private list and its thread's position.
#[derive(Debug)]
struct List {
    ring: Ring,
    /// Entries, each of them a line.
    entries: u64,
    /// Sum of the words read since the walk last left the first entry.
    sum: u64,
}

impl List {
    /// Links the first `entries` lines of `region` in an order chosen by `seed`.
    fn new(mut region: Region, entries: usize, seed: u64) -> List {
        let (lines, _) = region.words().as_chunks_mut::<WORDS>();
        for (line, payload) in lines[..entries].iter_mut().zip(1..) {
            line[1..].fill(payload);
        }
        List {
            ring: Ring::link(region, shuffle::shuffled(entries, seed)),
            entries: entries as u64,
            sum: 0,
        }
    }

    /// The sum of all entries' payloads: entry `n`, counted from 1, holds `n`.
    fn expected(&self) -> u64 {
        self.entries * (self.entries + 1) / 2
    }
}

/// One of the threads.
#[derive(Debug)]
pub struct Micro {
    list: Option<List>,
    shared: Arc<Region>,
    /// Number of shared words: the first of `shared`.
    words: u64,
    /// Operations done since the loop began.
    at: u64,
    added: u64,
    wrong_passes: u64,
}

impl Micro {
    /// A thread with a list of `entries` entries in `memory`, if any, which adds to the first
    /// `words` words of `shared`.
    pub fn new(
        memory: Option<Region>,
        entries: usize,
        shared: Arc<Region>,
        words: usize,
        seed: u64,
    ) -> Micro {
        Micro {
            list: memory.map(|region| List::new(region, entries, seed)),
            shared,
            words: words as u64,
            at: 0,
            added: 0,
            wrong_passes: 0,
        }
    }

    fn entries(&self) -> u64 {
        self.list.as_ref().map_or(0, |list| list.entries)
    }
}

/// Adds 1 to each of `words`, one after the other.
#[inline(never)]
fn add_to_each(words: &[AtomicU64]) {
    for word in words {
        black_box(word.fetch_add(1, Ordering::SeqCst));
    }
}

impl Workload for Micro {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        let (entries, words) = (self.entries(), self.words);
        let mut left = operations;
        while left > 0 {
            let done = match &mut self.list {
                Some(list) if self.at < entries => {
                    let steps = left.min(entries - self.at);
                    list.sum = list.sum.wrapping_add(list.ring.walk_reading(steps));
                    if self.at + steps == entries {
                        self.wrong_passes += u64::from(list.sum != list.expected());
                        list.sum = 0;
                    }
                    steps
                }
                _ => {
                    let first = self.at - entries;
                    let adds = left.min(words - first);
                    let range = first as usize..(first + adds) as usize;
                    add_to_each(&self.shared.shared_words()[range]);
                    self.added += adds;
                    adds
                }
            };
            self.at = (self.at + done) % (entries + words);
            left -= done;
        }
        Ok(())
    }

    fn round(&self) -> u64 {
        self.entries() + self.words
    }

    fn detail(&self) -> Detail {
        Detail::Micro {
            added: self.added,
            wrong_passes: self.wrong_passes,
        }
    }
}

/// The results of a run of all threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MicroReport {
    /// Mean of the threads' run times, the paper's measure.
    pub mean_seconds: f64,
    /// Entries of each thread's list.
    pub entries: u64,
    /// Words that all threads add to.
    pub shared_words: u64,
    /// Shared words that do not equal the threads' additions.
    pub wrong_words: u64,
    /// Passes of a list that did not read each of its entries once, over all threads.
    pub wrong_passes: u64,
}

impl MicroReport {
    /// Whether all results are right.
    pub fn is_right(&self) -> bool {
        self.wrong_words == 0 && self.wrong_passes == 0
    }

    /// A line for people.
    pub fn text(&self) -> String {
        let verdict = if self.is_right() {
            "verified: every list passed once a loop, no addition lost".to_owned()
        } else {
            format!(
                "FAILED: {} of {} shared words hold a wrong sum, {} ways through a list read wrong words",
                self.wrong_words, self.shared_words, self.wrong_passes
            )
        };
        format!(
            "{} entries a thread, {} shared words; mean run time {:.3} s\n{verdict}",
            self.entries, self.shared_words, self.mean_seconds
        )
    }
}

/// The number of `words` that do not equal the threads' additions: each thread added `added` ones,
/// to word after word in rotation.
pub fn wrong_words(words: &[AtomicU64], added: impl Iterator<Item = u64> + Clone) -> u64 {
    let count = words.len() as u64;
    let is_wrong = |(index, word): (u64, &AtomicU64)| {
        let ones = |added: u64| added / count + u64::from(index < added % count);
        word.load(Ordering::SeqCst) != added.clone().map(ones).sum::<u64>()
    };
    let wrong = (0..).zip(words).filter(|at| is_wrong(*at)).count();
    wrong as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(lines: usize) -> Region {
        let mut region = Region::map((lines * LINE).next_multiple_of(4096)).unwrap();
        region.populate().unwrap();
        region
    }

    /// A thread alone with words to itself.
    fn alone(entries: usize, words: usize, seed: u64) -> Micro {
        let memory = (entries > 0).then(|| region(entries));
        let shared = Arc::new(region(words.div_ceil(WORDS).max(1)));
        Micro::new(memory, entries, shared, words, seed)
    }

    /// A thread's additions, and its wrong passes.
    fn ended(micro: &Micro) -> (u64, u64) {
        match micro.detail() {
            Detail::Micro {
                added,
                wrong_passes,
            } => (added, wrong_passes),
            other => panic!("{other:?}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// From the first entry, the walk first returns to it after as many steps as there are entries.
        #[test]
        fn the_list_is_one_cycle_of_all_entries(entries in 1usize..1500, seed: u64) {
            let mut list = List::new(region(entries), entries, seed);
            let first = list.ring.position();
            let mut sum = 0;
            for step in 1..=entries {
                sum += list.ring.walk_reading(1);
                prop_assert!(list.ring.position() < entries);
                prop_assert_eq!(list.ring.position() == first, step == entries);
            }
            prop_assert_eq!(sum, list.expected());
        }

        /// For any division into batches, a loop passes the list once and each word once.
        #[test]
        fn batches_do_not_change_what_is_done(
            entries in 0usize..100, words in 0usize..50, batches in prop::collection::vec(0u64..300, 1..9)
        ) {
            prop_assume!(entries + words > 0);
            let mut micro = alone(entries, words, 3);
            for batch in &batches {
                micro.run(*batch).unwrap();
            }
            let operations: u64 = batches.iter().sum();
            let (round, entries) = (micro.round(), entries as u64);
            let added = operations / round * words as u64 + (operations % round).saturating_sub(entries);
            prop_assert_eq!(ended(&micro), (added, 0));
            let held = &micro.shared.shared_words()[..words];
            prop_assert_eq!(wrong_words(held, std::iter::once(added)), 0);
        }
    }

    #[test]
    fn threads_that_add_at_once_lose_nothing() {
        let shared = Arc::new(region(2));
        let adding = |count: u64| {
            let mut micro = Micro::new(None, 0, Arc::clone(&shared), 11, 0);
            move || micro.run(count).map(|()| ended(&micro).0).unwrap()
        };
        let counts = [20_000, 31_111, 5];
        let added: Vec<u64> = std::thread::scope(|scope| {
            let threads = counts.map(|count| scope.spawn(adding(count)));
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert_eq!(added, counts);
        let words = &shared.shared_words()[..11];
        assert_eq!(wrong_words(words, added.iter().copied()), 0);
        // A lost addition is noticed.
        words[4].fetch_sub(1, Ordering::SeqCst);
        assert_eq!(wrong_words(words, added.iter().copied()), 1);
    }

    #[test]
    fn an_entry_that_is_not_read_once_is_noticed() {
        let mut micro = alone(10, 3, 1);
        micro.run(13).unwrap();
        assert_eq!(ended(&micro).1, 0);
        // As if the list had skipped one.
        micro.list.as_mut().unwrap().ring.walk_reading(1);
        micro.list.as_mut().unwrap().sum = 100;
        micro.run(13).unwrap();
        assert_eq!(ended(&micro).1, 1);
    }
}
