//! Numbers pages in the order in which they are first touched, fast enough to look up at each access.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Places of the table that is looked up first; for a while, programs stay within few pages.
const FRONT: usize = 1024;

/// Numbers from 0 for pages.
#[derive(Debug)]
pub(crate) struct PageNumbers {
    numbers: HashMap<u64, u32, FixedState>,
    /// By number.
    pages: Vec<u64>,
    /// The page last asked for at each place, with its number.
    front: Vec<(u64, u32)>,
}

impl PageNumbers {
    pub(crate) fn new() -> Self {
        Self {
            numbers: HashMap::default(),
            pages: Vec::new(),
            // Each place starts with a page that belongs to another place, so that none matches.
            front: (1..=FRONT as u64).map(|page| (page, 0)).collect(),
        }
    }

    /// The page's number; a page that was never asked for gets the next one.
    #[inline]
    pub(crate) fn number(&mut self, page: u64) -> usize {
        let place = page as usize % FRONT;
        let (known, number) = self.front[place];
        if known == page {
            return number as usize;
        }
        let next = self.pages.len() as u32;
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            self.pages.push(page);
        }
        self.front[place] = (page, number);
        number as usize
    }

    /// All pages, by number.
    pub(crate) fn pages(&self) -> &[u64] {
        &self.pages
    }
}
