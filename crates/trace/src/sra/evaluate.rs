//! Evaluates what one strategy with one K saves for one thread at one rate of sampling.

use rand::seq::index;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::Strategy;
use super::misses::{AddressSpace, OfThread, Run};

/// Which of a thread's accesses are sampled.
#[derive(Debug)]
pub(super) enum Samples {
    All,
    /// Numbers of accesses, ascending.
    These(Vec<u64>),
}

impl Samples {
    /// One of each `one_in` successive accesses, at a place drawn uniformly.
    pub(super) fn draw(accesses: u64, one_in: u64, seed: u64) -> Self {
        if one_in == 1 {
            return Self::All;
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ one_in);
        let places = (0..accesses.div_ceil(one_in))
            .map(|block| block * one_in + random.random_range(0..one_in))
            .filter(|&at| at < accesses);
        Self::These(places.collect())
    }
}

/// What was saved.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Saved {
    pub(super) saved: u64,
    pub(super) triggers: u64,
    pub(super) moved_pages: u64,
}

pub(super) fn evaluate(
    thread: &OfThread,
    space: &AddressSpace,
    samples: &Samples,
    strategy: Strategy,
    pages: u64,
    seed: u64,
) -> Saved {
    let mut moved = Moved::new(space);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(32) ^ pages);
    let mut saved = Saved::default();
    let mut start = 0;
    let mut next = 0;
    for run in &thread.runs {
        let count = u64::from(run.count);
        let end = start + count;
        let seen = match samples {
            Samples::All => Some(start),
            Samples::These(places) => {
                while places.get(next).is_some_and(|&place| place < start) {
                    next += 1;
                }
                places.get(next).copied().filter(|&place| place < end)
            }
        };
        if moved.has(run.page) {
            saved.saved += count;
        } else if let Some(seen) = seen {
            saved.saved += end - seen;
            saved.triggers += 1;
            moved.follow(run, strategy, pages, &mut random);
        }
        start = end;
        if moved.left == 0 {
            saved.saved += thread.count - start;
            break;
        }
    }
    saved.moved_pages = space.pages.len() as u64 - moved.left;
    saved
}

/// The pages of a process that have moved.
struct Moved<'a> {
    /// All pages, ascending.
    pages: &'a [u64],
    is_moved: Vec<bool>,
    left: u64,
}

impl<'a> Moved<'a> {
    fn new(space: &'a AddressSpace) -> Self {
        Self {
            pages: &space.pages,
            is_moved: vec![false; space.pages.len()],
            left: space.pages.len() as u64,
        }
    }

    fn has(&self, place: u32) -> bool {
        self.is_moved[place as usize]
    }

    /// Moves K pages for an access in this run.
    fn follow(&mut self, run: &Run, strategy: Strategy, pages: u64, random: &mut impl Rng) {
        let place = run.page as usize;
        let page = self.pages[place];
        match strategy {
            Strategy::SequentialForward => self.put_from(page, pages),
            Strategy::SequentialForwardBackward => {
                // Pages below address 0 are left out.
                let before = (pages / 2).min(page);
                self.put_from(page - before, pages - pages / 2 + before);
            }
            Strategy::Random => {
                self.put(place);
                let others = (pages - 1).min(self.pages.len() as u64 - 1);
                for other in index::sample(random, self.pages.len() - 1, others as usize) {
                    // Skips the page itself.
                    self.put(other + usize::from(other >= place));
                }
            }
            Strategy::PatternBased => self.put_steps(place, run.step, pages),
        }
    }

    fn put(&mut self, place: usize) {
        let was_moved = std::mem::replace(&mut self.is_moved[place], true);
        self.left -= u64::from(!was_moved);
    }

    /// Moves those of the `count` pages from `first` on that the process touches.
    fn put_from(&mut self, first: u64, count: u64) {
        let last = first.saturating_add(count - 1);
        let start = self.pages.partition_point(|&page| page < first);
        let end = self.pages.partition_point(|&page| page <= last);
        for place in start..end {
            self.put(place);
        }
    }

    /// Moves a page and those of the following pages, `step` pages apart, that the process touches.
    fn put_steps(&mut self, place: usize, step: i32, count: u64) {
        self.put(place);
        if step == 0 {
            return;
        }
        let distance = u64::from(step.unsigned_abs());
        let (mut place, mut page) = (place, self.pages[place]);
        for _ in 1..count {
            // Places and pages both ascend: a page is at most as many places away as pages.
            let within = usize::try_from(distance).unwrap_or(usize::MAX);
            if step > 0 {
                let Some(next) = page.checked_add(distance) else {
                    return;
                };
                page = next;
                let end = place.saturating_add(within).min(self.pages.len() - 1);
                place += self.pages[place..=end].partition_point(|&other| other < page);
                if place == self.pages.len() {
                    return;
                }
            } else {
                let Some(next) = page.checked_sub(distance) else {
                    return;
                };
                page = next;
                let start = place.saturating_sub(within);
                let after = self.pages[start..=place].partition_point(|&other| other <= page);
                if start + after == 0 {
                    return;
                }
                place = start + after - 1;
            }
            if self.pages[place] == page {
                self.put(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    // Named, since proptest has a trait of that name.
    use super::Strategy;
    use super::*;

    /// The rules word for word: every access by itself, every page by its address.
    fn word_for_word(
        thread: &OfThread,
        pages: &[u64],
        samples: &BTreeSet<u64>,
        strategy: Strategy,
        k: u64,
    ) -> Saved {
        let mut moved = BTreeSet::new();
        let mut saved = Saved::default();
        let accesses = thread
            .runs
            .iter()
            .flat_map(|run| (0..run.count).map(move |_| run));
        for (at, run) in (0..).zip(accesses) {
            let page = pages[run.page as usize];
            if !moved.contains(&page) && samples.contains(&at) {
                saved.triggers += 1;
                moved.extend((0..k).filter_map(|nth| match strategy {
                    Strategy::SequentialForward => page.checked_add(nth),
                    Strategy::SequentialForwardBackward => (page + nth).checked_sub(k / 2),
                    Strategy::PatternBased if nth == 0 || run.step == 0 => Some(page),
                    Strategy::PatternBased => {
                        page.checked_add_signed(i64::from(run.step) * nth.cast_signed())
                    }
                    Strategy::Random => None,
                }));
            }
            saved.saved += u64::from(moved.contains(&page));
        }
        let is_touched = |page: &&u64| pages.contains(page);
        saved.moved_pages = moved.iter().filter(is_touched).count() as u64;
        saved
    }

    prop_compose! {
        fn threads()(
            pages in prop::collection::btree_set(prop_oneof![3 => 0..40_u64, 1 => 1000..1200_u64], 1..40),
            runs in prop::collection::vec((any::<prop::sample::Index>(), 1..5_u32, -6..7_i32), 0..60),
        ) -> (OfThread, AddressSpace) {
            let pages: Vec<_> = pages.into_iter().collect();
            let run = |(page, count, step): (prop::sample::Index, u32, i32)| Run {
                page: page.index(pages.len()) as u32,
                count,
                step,
            };
            let runs: Vec<_> = runs.into_iter().map(run).collect();
            let thread = OfThread {
                process: 0,
                count: runs.iter().map(|run| u64::from(run.count)).sum(),
                pages: pages.len() as u64,
                runs,
            };
            (thread, AddressSpace { pages })
        }
    }

    proptest! {
        #[test]
        fn figures_are_those_of_the_rules_word_for_word(
            (thread, space) in threads(),
            k in 1..30_u64,
            one_in in 1..9_u64,
            seed in any::<u64>(),
        ) {
            let samples = Samples::draw(thread.count, one_in, seed);
            let places: BTreeSet<_> = match &samples {
                Samples::All => (0..thread.count).collect(),
                Samples::These(places) => places.iter().copied().collect(),
            };
            for block in 0..thread.count / one_in {
                let in_block = places.range(block * one_in..(block + 1) * one_in).count();
                prop_assert_eq!(in_block, 1);
            }
            for strategy in Strategy::ALL.into_iter().filter(|&it| it != Strategy::Random) {
                let expected = word_for_word(&thread, &space.pages, &places, strategy, k);
                let found = evaluate(&thread, &space, &samples, strategy, k, seed);
                prop_assert_eq!(found, expected, "{:?}", strategy);
            }
        }
    }
}
