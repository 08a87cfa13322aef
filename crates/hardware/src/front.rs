//! The part of a first-level cache that a core knows by virtual address: the line of each set that was used last.
//!
//! A load of that line changes nothing in the machine but the count of accesses. The same holds for a store to a line
//! that was written before: it is already first in the order of use, and no other core has it. So such an access needs
//! no translation and no lookup, which are most of a hit's cost to the simulator.
//!
//! An entry is found by those low bits of the line's address that are the same in the virtual and the physical address.
//! Every access that may go to the same set replaces it. So it holds the line used last as long as virtual addresses
//! keep their meaning ([`Front::forget`]) and no message has come.

use crate::cache::State;

/// Bytes of the smallest page: the address within it is the same in virtual and physical memory.
const PAGE_BYTES: u64 = 4096;

/// An entry without a line: the numbers of lines have fewer than 64 bits.
const NO_LINE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Front {
    line_shift: u32,
    /// The line's number, shifted left by one, and in the lowest bit whether it was written.
    lines: Box<[u64]>,
}

impl Front {
    /// For a first-level cache of this many sets; None if virtual addresses do not determine a line's set.
    pub(crate) fn new(sets: u64, line_bytes: u64) -> Option<Self> {
        let told = PAGE_BYTES / line_bytes;
        (sets.is_power_of_two() && told > 0).then(|| Self {
            line_shift: line_bytes.trailing_zeros(),
            lines: vec![NO_LINE; sets.min(told) as usize].into_boxed_slice(),
        })
    }

    /// Whether an access of `bytes` bytes can skip the machine. An access that reaches into the next line cannot.
    #[inline]
    pub(crate) fn holds(&self, address: u64, bytes: u64, store: bool) -> bool {
        let line = address >> self.line_shift;
        let entry = self.lines[line as usize & (self.lines.len() - 1)];
        let known = entry == line << 1 | 1 || !store && entry == line << 1;
        known && address.wrapping_add(bytes - 1) >> self.line_shift == line
    }

    /// Notes an access and the line's state in the first-level cache after it; None if the line is not there.
    #[inline]
    pub(crate) fn note(&mut self, address: u64, state: Option<State>) {
        let line = address >> self.line_shift;
        let entry = match state {
            Some(state) => line << 1 | u64::from(state == State::Modified),
            None => NO_LINE,
        };
        self.lines[line as usize & (self.lines.len() - 1)] = entry;
    }

    /// Empties all entries, because virtual addresses may have changed their meaning or lines were taken away.
    pub(crate) fn forget(&mut self) {
        self.lines.fill(NO_LINE);
    }
}
