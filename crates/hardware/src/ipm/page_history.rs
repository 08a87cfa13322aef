//! The Page History Table (PHT): for each page its Sharers Vector and its NUMA Vector (IPM §4.2).
//!
//! The paper has an entry per physical page and lets the operating system keep it with a page that
//! is moved or swapped out (§4.5.1, the first of its two strategies). Here entries belong to
//! virtual pages, with the same effect: a page keeps its history until its application ends.
//! Entries are made when first needed, with the counters that the operating system would have set
//! up (Eq. 9).

use super::{Application, Thread, numa_vector};
use crate::page::{Page, PageMap};

/// No thread: a Sharers Vector element that no thread has taken yet, or whose thread's number was
/// reused.
pub(super) const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct PageHistoryTable {
    sharers_per_page: usize,
    nodes: usize,
    cr_aging: u32,
    /// Number of a page's entry.
    places: PageMap<u32>,
    /// Entry by entry: application, Sharers Vector, NUMA Vector. In one list, an entry is
    /// contiguous.
    words: Vec<u32>,
    /// Entries of pages of ended applications.
    free: Vec<u32>,
}

/// A page's entry.
pub(super) struct History<'a> {
    /// Application of the thread that used the page first; the sharers are its threads.
    pub(super) application: Application,
    /// Sharers Vector, the latest first.
    pub(super) sharers: &'a mut [u32],
    /// NUMA Vector.
    pub(super) numa: &'a mut [u32],
}

impl PageHistoryTable {
    pub(super) fn new(sharers_per_page: usize, nodes: usize, cr_aging: u32) -> Self {
        Self {
            sharers_per_page,
            nodes,
            cr_aging,
            places: PageMap::default(),
            words: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Words of an entry.
    fn stride(&self) -> usize {
        1 + self.sharers_per_page + self.nodes
    }

    /// A page's entry; if it is missing, makes one for a page of this application.
    pub(super) fn entry(&mut self, page: Page, application: Application) -> History<'_> {
        let place = match self.places.get(&page) {
            Some(&place) => place,
            None => self.make(page, application),
        };
        let stride = self.stride();
        let words = &mut self.words[place as usize * stride..][..stride];
        let (head, vectors) = words.split_at_mut(1);
        let (sharers, numa) = vectors.split_at_mut(self.sharers_per_page);
        History {
            application: Application(head[0]),
            sharers,
            numa,
        }
    }

    fn make(&mut self, page: Page, application: Application) -> u32 {
        let stride = self.stride();
        let place = self.free.pop().unwrap_or_else(|| {
            let place = self.words.len() / stride;
            self.words.resize((place + 1) * stride, 0);
            u32::try_from(place).expect("fewer than 2^32 pages are in use")
        });
        let words = &mut self.words[place as usize * stride..][..stride];
        words[0] = application.0;
        words[1..=self.sharers_per_page].fill(NOBODY);
        words[1 + self.sharers_per_page..].fill(numa_vector::initial(self.cr_aging));
        self.places.insert(page, place);
        place
    }

    /// Whether a page has an entry.
    pub(super) fn has(&self, page: Page) -> bool {
        self.places.contains_key(&page)
    }

    /// Deletes all references to a thread's number.
    pub(super) fn delete_thread(&mut self, thread: Thread) {
        let (stride, sharers) = (self.stride(), 1..=self.sharers_per_page);
        for words in self.words.chunks_exact_mut(stride) {
            if words[0] == thread.application.0 {
                for sharer in &mut words[sharers.clone()] {
                    if *sharer == thread.number {
                        *sharer = NOBODY;
                    }
                }
            }
        }
    }

    /// Forgets all pages of an application.
    pub(super) fn delete_application(&mut self, application: Application) {
        let (stride, words, free) = (self.stride(), &self.words, &mut self.free);
        self.places.retain(|_, &mut place| {
            let stays = words[place as usize * stride] != application.0;
            if !stays {
                free.push(place);
            }
            stays
        });
    }
}

/// Eq. 4 and 5: inserts a thread as the latest sharer; the oldest falls out.
pub(super) fn insert_sharer(sharers: &mut [u32], thread: u32) {
    if let Some(last) = sharers.len().checked_sub(1) {
        sharers.copy_within(..last, 1);
        sharers[0] = thread;
    }
}

#[cfg(test)]
impl PageHistoryTable {
    /// Sharers Vector and NUMA Vector of a page that has an entry.
    pub(super) fn get(&self, page: Page) -> Option<(&[u32], &[u32])> {
        let place = *self.places.get(&page)? as usize;
        let words = &self.words[place * self.stride()..][..self.stride()];
        Some(words[1..].split_at(self.sharers_per_page))
    }

    /// Pages that have an entry.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_sharer_falls_out() {
        let mut sharers = [NOBODY; 3];
        for (thread, expected) in [
            (4, [4, NOBODY, NOBODY]),
            (5, [5, 4, NOBODY]),
            (5, [5, 5, 4]),
            (6, [6, 5, 5]),
        ] {
            insert_sharer(&mut sharers, thread);
            assert_eq!(sharers, expected);
        }
        insert_sharer(&mut [], 1);
    }

    #[test]
    fn pages_of_an_ended_application_begin_anew_and_disturb_no_other() {
        let mut table = PageHistoryTable::new(2, 3, 7);
        let application = Application(0);
        let pages: Vec<_> = (0..4).map(Page::new).collect();
        for (at, &page) in pages.iter().enumerate() {
            let of = if at == 1 { Application(1) } else { application };
            let history = table.entry(page, of);
            assert_eq!(history.numa, [127; 3]);
            history.numa[0] = at as u32;
            insert_sharer(history.sharers, at as u32);
        }
        table.delete_application(Application(1));
        table.delete_application(Application(1));
        assert_eq!((table.len(), table.get(pages[1])), (3, None));
        assert_eq!(table.entry(Page::new(9), application).numa, [127; 3]);
        assert_eq!(table.entry(pages[1], application).sharers, [NOBODY; 2]);
        for at in [0, 2, 3] {
            let (sharers, numa) = table.get(pages[at]).unwrap();
            assert_eq!((sharers[0], numa[0]), (at as u32, at as u32));
        }
    }
}
