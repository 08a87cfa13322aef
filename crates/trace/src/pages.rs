//! Pages numbered in the order in which they are first touched, fast enough to ask at each access.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Places of the table that is asked first; programs stay within few pages for a while.
const FRONT: usize = 1024;

/// Numbers from 0 for pages.
#[derive(Debug)]
pub(crate) struct PageNumbers {
    numbers: HashMap<u64, u32, BuildHasherDefault<Spread>>,
    /// By number.
    pages: Vec<u64>,
    /// The page last asked for at each place, with its number.
    front: Vec<(u64, u32)>,
}

/// Spreads page numbers over a table; they are no secret, and nobody gains by making them collide
/// but who made the trace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

impl PageNumbers {
    pub(crate) fn new() -> Self {
        Self {
            numbers: HashMap::default(),
            pages: Vec::new(),
            // At each place a page that belongs to another.
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
