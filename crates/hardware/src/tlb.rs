//! One level of a TLB: sets of entries, each set in order of use, the least recent replaced (LRU).
//!
//! An entry has a number that never changes, from 0 to entries - 1: IPM's "unique static
//! identifier" of a TLB entry, which indexes its TLB Access Table (IPM §4.2). So entries stay in
//! place, and the order of use is a ring of links in each set, from the most recent entry to the
//! least recent and round again. Replacing the least recent is one step of the ring. An empty entry
//! is always less recent than a full one, so it is used before anything is evicted.

use crate::cache::SetIndex;
use crate::page::{Page, PageMap};

/// Sets wider than this are searched through a map, not entry by entry.
const SEARCHED_WAYS: usize = 8;

/// An entry that holds nothing.
const EMPTY: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Level {
    index: SetIndex,
    ways: usize,
    /// Page number of each entry. The entries of set s are s * ways to (s + 1) * ways - 1.
    pages: Vec<u64>,
    /// Next less recent entry of the same set; after the least recent comes the most recent.
    older: Vec<u32>,
    /// The other way round.
    newer: Vec<u32>,
    /// Most recent entry of each set.
    newest: Vec<u32>,
    /// Entry of each page, for wide sets.
    places: Option<PageMap<u32>>,
}

impl Level {
    /// Empty, with a valid shape of at most 2^31 entries.
    pub(crate) fn new(entries: usize, ways: usize) -> Self {
        let sets = entries / ways;
        let ring = |entry: usize, step: usize| {
            let set = entry / ways * ways;
            (set + (entry - set + step) % ways) as u32
        };
        Self {
            index: SetIndex::new(sets as u64),
            ways,
            pages: vec![EMPTY; entries],
            // The least recent of an empty set is its first entry, so that entries fill in order.
            older: (0..entries).map(|entry| ring(entry, ways - 1)).collect(),
            newer: (0..entries).map(|entry| ring(entry, 1)).collect(),
            newest: (0..sets)
                .map(|set| (set * ways + ways - 1) as u32)
                .collect(),
            places: (ways > SEARCHED_WAYS).then(PageMap::default),
        }
    }

    /// Looks a page up and makes it the most recent of its set.
    #[inline]
    pub(crate) fn find(&mut self, page: Page) -> Option<usize> {
        let set = self.index.of(page.number());
        let newest = self.newest[set] as usize;
        if self.pages[newest] == page.number() {
            return Some(newest);
        }
        let entry = self.place(set, page)?;
        self.unlink(entry);
        self.link_before(set, entry);
        self.newest[set] = entry as u32;
        Some(entry)
    }

    /// Puts in a page that is not here, as the most recent of its set. Returns its entry, and the
    /// page that was evicted for it.
    #[inline]
    pub(crate) fn insert(&mut self, page: Page) -> (usize, Option<Page>) {
        let set = self.index.of(page.number());
        let entry = self.newer[self.newest[set] as usize] as usize;
        let held = std::mem::replace(&mut self.pages[entry], page.number());
        let evicted = (held != EMPTY).then(|| Page::new(held));
        if let Some(places) = &mut self.places {
            if let Some(evicted) = evicted {
                places.remove(&evicted);
            }
            places.insert(page, entry as u32);
        }
        self.newest[set] = entry as u32;
        (entry, evicted)
    }

    /// Empties the entry of a page, if it is here, and returns it.
    pub(crate) fn remove(&mut self, page: Page) -> Option<usize> {
        let set = self.index.of(page.number());
        let entry = self.place(set, page)?;
        if let Some(places) = &mut self.places {
            places.remove(&page);
        }
        self.pages[entry] = EMPTY;
        if self.newest[set] as usize == entry {
            // Starts the ring one entry later: this one is now the least recent.
            self.newest[set] = self.older[entry];
        } else {
            self.unlink(entry);
            self.link_before(set, entry);
        }
        Some(entry)
    }

    /// Empties all entries.
    pub(crate) fn clear(&mut self) {
        self.pages.fill(EMPTY);
        if let Some(places) = &mut self.places {
            places.clear();
        }
    }

    #[inline]
    fn place(&self, set: usize, page: Page) -> Option<usize> {
        if let Some(places) = &self.places {
            return places.get(&page).map(|&entry| entry as usize);
        }
        let first = set * self.ways;
        let pages = &self.pages[first..first + self.ways];
        let way = pages.iter().position(|&held| held == page.number())?;
        Some(first + way)
    }

    /// Takes an entry out of its ring.
    #[inline]
    fn unlink(&mut self, entry: usize) {
        let (newer, older) = (self.newer[entry], self.older[entry]);
        self.older[newer as usize] = older;
        self.newer[older as usize] = newer;
    }

    /// Puts an entry between the least and the most recent of its ring.
    #[inline]
    fn link_before(&mut self, set: usize, entry: usize) {
        let newest = self.newest[set];
        let oldest = self.newer[newest as usize];
        self.newer[entry] = oldest;
        self.older[entry] = newest;
        self.older[oldest as usize] = entry as u32;
        self.newer[newest as usize] = entry as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(number: u64) -> Page {
        Page::new(number)
    }

    #[test]
    fn a_known_sequence_hits_misses_and_evicts_as_it_must() {
        // Two sets of two: even pages in entries 0 and 1, odd ones in 2 and 3.
        let mut level = Level::new(4, 2);
        assert_eq!(level.find(page(0)), None);
        assert_eq!(level.insert(page(0)), (0, None));
        assert_eq!(level.insert(page(2)), (1, None));
        assert_eq!(level.insert(page(1)), (2, None));
        assert_eq!(level.find(page(0)), Some(0), "2 is now the least recent");
        assert_eq!(level.insert(page(4)), (1, Some(page(2))));
        assert_eq!(level.find(page(2)), None);
        assert_eq!(level.insert(page(6)), (0, Some(page(0))));
        assert_eq!(level.find(page(1)), Some(2), "the other set is untouched");
        assert_eq!(level.insert(page(3)), (3, None));
    }

    #[test]
    fn an_emptied_entry_is_used_before_anything_is_evicted() {
        for ways in [4, 16] {
            let mut level = Level::new(ways, ways);
            for number in 0..ways as u64 {
                level.insert(page(number));
            }
            // The most recent, one in the middle, the least recent.
            for gone in [ways as u64 - 1, 1, 0] {
                let entry = level.remove(page(gone)).unwrap();
                assert_eq!(level.find(page(gone)), None);
                assert_eq!(level.insert(page(100 + gone)), (entry, None));
            }
            assert_eq!(level.remove(page(0)), None);
        }
    }

    proptest! {
        /// Hits and evictions are those of a textbook LRU list, and an entry keeps its page until
        /// that page is evicted or removed.
        #[test]
        fn behaves_as_a_list_in_order_of_use(
            steps in prop::collection::vec((0u64..60, 0u8..20), 1..400),
            (sets, ways) in prop::sample::select(vec![(1usize, 1usize), (1, 4), (4, 2), (3, 5), (1, 24), (2, 12)]),
        ) {
            let mut level = Level::new(sets * ways, ways);
            let mut lists = vec![Vec::<(Page, usize)>::new(); sets];
            for (number, action) in steps {
                let page = page(number);
                let list = &mut lists[usize::try_from(number).unwrap() % sets];
                let at = list.iter().position(|&(held, _)| held == page);
                if action == 0 {
                    let expected = at.map(|at| list.remove(at).1);
                    prop_assert_eq!(level.remove(page), expected);
                } else if action == 1 && number == 0 {
                    level.clear();
                    lists.iter_mut().for_each(Vec::clear);
                } else {
                    let found = level.find(page);
                    prop_assert_eq!(found, at.map(|at| list[at].1));
                    let entry = if let Some(at) = at {
                        list.remove(at).1
                    } else {
                        let (entry, evicted) = level.insert(page);
                        let expected = (list.len() == ways).then(|| list.pop().unwrap());
                        prop_assert_eq!(evicted, expected.map(|(page, _)| page));
                        if let Some((_, freed)) = expected {
                            prop_assert_eq!(entry, freed);
                        }
                        prop_assert!(list.iter().all(|&(_, taken)| taken != entry));
                        entry
                    };
                    list.insert(0, (page, entry));
                }
            }
        }
    }
}
