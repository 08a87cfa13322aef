//! The number of a virtual page, and a map from pages that is quick to look up.
//!
//! TLBs and the structures of the IPM unit know pages by number alone. A caller with several
//! address spaces must make numbers unique, for instance by an address-space id in the bits that a
//! virtual address does not need. Hardware tags its TLB entries likewise.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Number of a virtual page: its address divided by the page size, and the address space above.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Page(u64);

impl Page {
    /// The page of this number.
    ///
    /// # Panics
    /// For the number `u64::MAX`, which marks empty TLB entries. No page of two bytes or more has
    /// it.
    #[inline]
    pub fn new(number: u64) -> Self {
        assert!(number != u64::MAX, "no page has the number {number:#x}");
        Self(number)
    }

    /// Its number.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A map from pages. Page numbers come from the modelled program, which gains nothing by hash collisions.
pub(crate) type PageMap<V> = HashMap<Page, V, FixedState>;
