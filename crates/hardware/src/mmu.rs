//! A core's memory management unit: its TLBs, in one level or two.
//!
//! The second level includes the first: a page evicted from it leaves the first as well. So a
//! translation *resides in the TLB*, which is what IPM measures, from the page walk until it is
//! evicted from the last level, and IPM knows it by its entry there. A hit in the first level does
//! not change the second level's order of use. So even a page in constant use falls out of the
//! second level in time and needs another page walk, as in inclusive hardware.

use serde::Serialize;

use crate::config;
use crate::page::Page;
use crate::tlb::Level;

/// Where a translation was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookup {
    /// In the first level.
    First,
    /// In the second level.
    Second,
    /// Nowhere: the page table was walked.
    Miss(Fill),
}

/// The filling of a TLB entry of the last level with a translation from the page table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fill {
    /// The page.
    pub page: Page,
    /// Number of the entry in its core's last level, from 0; it never changes (`TLBEntryID`, IPM
    /// §4.2).
    pub entry: usize,
    /// The page that was evicted from the entry; None if it was empty.
    pub evicted: Option<Page>,
}

/// What a core's TLBs have done. All counts only grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct TlbCounts {
    /// Translations asked for.
    pub lookups: u64,
    /// Of these, found in the second level.
    pub second_level_hits: u64,
    /// Of these, found in no level.
    pub misses: u64,
    /// Of these, with a page evicted from the last level.
    pub evictions: u64,
}

/// The TLBs of one core.
#[derive(Debug)]
pub struct Mmu {
    first: Level,
    second: Option<Level>,
    counts: TlbCounts,
}

impl Mmu {
    /// Empty TLBs of this shape, which must be valid (see [`crate::Config::validate`]).
    pub fn new(tlb: &config::Tlb) -> Self {
        let level = |shape: config::TlbLevel| Level::new(shape.entries, shape.ways);
        Self {
            first: level(tlb.l1),
            second: tlb.l2.map(level),
            counts: TlbCounts::default(),
        }
    }

    /// Looks a page up and fills the levels that do not have it.
    #[inline]
    pub fn look_up(&mut self, page: Page) -> Lookup {
        self.counts.lookups += 1;
        if self.first.find(page).is_some() {
            Lookup::First
        } else {
            self.look_beyond(page)
        }
    }

    fn look_beyond(&mut self, page: Page) -> Lookup {
        let Some(second) = &mut self.second else {
            let (entry, evicted) = self.first.insert(page);
            return self.miss(page, entry, evicted);
        };
        if second.find(page).is_some() {
            self.first.insert(page);
            self.counts.second_level_hits += 1;
            return Lookup::Second;
        }
        let (entry, evicted) = second.insert(page);
        if let Some(evicted) = evicted {
            self.first.remove(evicted);
        }
        self.first.insert(page);
        self.miss(page, entry, evicted)
    }

    fn miss(&mut self, page: Page, entry: usize, evicted: Option<Page>) -> Lookup {
        self.counts.misses += 1;
        self.counts.evictions += u64::from(evicted.is_some());
        Lookup::Miss(Fill {
            page,
            entry,
            evicted,
        })
    }

    /// Invalidates the translation of a page that was moved or unmapped (a TLB shootdown). Returns
    /// the number of its last-level entry, if any; the caller must report it to an IPM unit
    /// ([`crate::Ipm::invalidated`]).
    pub fn invalidate(&mut self, page: Page) -> Option<usize> {
        let in_first = self.first.remove(page);
        match &mut self.second {
            Some(second) => second.remove(page),
            None => in_first,
        }
    }

    /// Invalidates all translations, as a change of the address space does if page numbers do not
    /// include it. The caller must report it to an IPM unit ([`crate::Ipm::flushed`]).
    pub fn flush(&mut self) {
        self.first.clear();
        if let Some(second) = &mut self.second {
            second.clear();
        }
    }

    /// What the TLBs have done so far.
    pub fn counts(&self) -> TlbCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlbManagement;
    use crate::config::{Tlb, TlbLevel};
    use proptest::prelude::*;

    fn shape(l1: (usize, usize), l2: Option<(usize, usize)>) -> Tlb {
        let level = |(entries, ways)| TlbLevel {
            entries,
            ways,
            hit_ns: 0.0,
        };
        Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: level(l1),
            l2: l2.map(level),
        }
    }

    fn miss(page: u64, entry: usize, evicted: Option<u64>) -> Lookup {
        Lookup::Miss(Fill {
            page: Page::new(page),
            entry,
            evicted: evicted.map(Page::new),
        })
    }

    #[test]
    fn two_levels_answer_a_known_sequence_exactly() {
        // Two entries, backed by four, both fully associative.
        let mut mmu = Mmu::new(&shape((2, 2), Some((4, 4))));
        let steps = [
            (0, miss(0, 0, None)),
            (0, Lookup::First),
            (1, miss(1, 1, None)),
            (2, miss(2, 2, None)),
            (0, Lookup::Second),
            (3, miss(3, 3, None)),
            // The second level's order of use is 3 0 2 1: the hit on 0 reached it.
            (4, miss(4, 1, Some(1))),
            (3, Lookup::First),
            // First-level hits do not reach it: 4 3 0 2.
            (5, miss(5, 2, Some(2))),
            (6, miss(6, 0, Some(0))),
            // Page 3 falls out of the second level, and so out of the first.
            (5, Lookup::First),
            (7, miss(7, 3, Some(3))),
            (3, miss(3, 1, Some(4))),
        ];
        for (step, (page, expected)) in steps.into_iter().enumerate() {
            assert_eq!(mmu.look_up(Page::new(page)), expected, "step {step}");
        }
        let counts = TlbCounts {
            lookups: 13,
            second_level_hits: 1,
            misses: 9,
            evictions: 5,
        };
        assert_eq!(mmu.counts(), counts);
    }

    #[test]
    fn what_falls_out_of_the_second_level_is_in_neither() {
        // A second level of one set: page 0, hit in the first level again and again, ages there.
        let mut mmu = Mmu::new(&shape((2, 1), Some((2, 2))));
        mmu.look_up(Page::new(0));
        mmu.look_up(Page::new(1));
        assert_eq!(mmu.look_up(Page::new(0)), Lookup::First);
        assert_eq!(mmu.look_up(Page::new(3)), miss(3, 0, Some(0)));
        assert_eq!(mmu.look_up(Page::new(0)), miss(0, 1, Some(1)));
    }

    #[test]
    fn an_invalidated_translation_is_walked_for_anew_and_evicts_nothing() {
        for l2 in [None, Some((4, 4))] {
            let mut mmu = Mmu::new(&shape((4, 4), l2));
            for page in 0..4 {
                mmu.look_up(Page::new(page));
            }
            assert_eq!(mmu.invalidate(Page::new(2)), Some(2));
            assert_eq!(mmu.invalidate(Page::new(2)), None);
            assert_eq!(mmu.look_up(Page::new(2)), miss(2, 2, None));
            mmu.flush();
            assert_eq!(mmu.counts().evictions, 0);
            assert!(matches!(
                mmu.look_up(Page::new(3)),
                Lookup::Miss(Fill { evicted: None, .. })
            ));
        }
    }

    proptest! {
        /// For any lookups: an entry of the last level evicts the page that it was last filled
        /// with, an evicted page misses, and a page just looked up hits.
        #[test]
        fn an_entry_evicts_what_it_was_filled_with(
            pages in prop::collection::vec(0u64..40, 1..400),
            (l1, l2) in prop::sample::select(vec![
                ((4, 2), None),
                ((4, 2), Some((8, 4))),
                ((2, 1), Some((12, 12))),
                ((6, 2), Some((12, 4))),
            ]),
        ) {
            let shape = shape(l1, l2);
            let mut mmu = Mmu::new(&shape);
            let mut held = vec![None; shape.entries()];
            for number in pages {
                let page = Page::new(number);
                let resident = held.contains(&Some(page));
                match mmu.look_up(page) {
                    Lookup::Miss(fill) => {
                        prop_assert!(!resident);
                        prop_assert_eq!(fill.page, page);
                        prop_assert_eq!(fill.evicted, held[fill.entry]);
                        held[fill.entry] = Some(page);
                    }
                    Lookup::First | Lookup::Second => prop_assert!(resident),
                }
                prop_assert_eq!(mmu.look_up(page), Lookup::First);
            }
        }
    }
}
