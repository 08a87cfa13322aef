//! The number of a virtual page, and a map from pages that costs one multiplication to look up.
//!
//! TLBs and the structures of the IPM unit know pages by number alone. Who has several address
//! spaces keeps their pages apart in the number, for instance by an address-space id in the bits
//! above those that a virtual address needs, as hardware tags its TLB entries.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Number of a virtual page: its address divided by the page size, and the address space above.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Page(u64);

impl Page {
    /// The page of this number.
    ///
    /// # Panics
    /// For the number `u64::MAX`, which no page of two bytes or more can have: TLBs keep it for
    /// entries that hold nothing.
    #[inline]
    #[must_use]
    pub fn new(number: u64) -> Self {
        assert!(number != u64::MAX, "no page has the number {number:#x}");
        Self(number)
    }

    /// Its number.
    #[inline]
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A map from pages.
pub(crate) type PageMap<V> = HashMap<Page, V, BuildHasherDefault<PageHasher>>;

/// Multiplies by the golden ratio and folds, so that neither pages in a row nor pages a power of
/// two apart collide. Page numbers come from the modelled program, so nobody gains by collisions.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ ((product >> 64) as u64) ^ ((product as u64) >> 32);
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }
}
