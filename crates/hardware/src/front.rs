//! What a core knows by virtual address of its first-level cache: of each set, the line that was used last.
//!
//! A load of that line changes nothing in the machine but the count of accesses, and neither does a store where the
//! line was written before (it is already in its place in the order of use, and nobody else has it). So such an access
//! need not be translated and looked up, which is most of what a hit costs the simulator.
//!
//! An entry is found by the lowest bits of the line's virtual address that are the same in the physical one, and is
//! replaced by every access that may go to the same set. So what it holds is the line used last for as long as virtual
//! addresses mean what they did ([`Front::forget`]), and no message has come.

use crate::cache::State;

/// Bytes of the smallest page: the address within it is the same in virtual and physical memory.
const PAGE_BYTES: u64 = 4096;

/// An entry that no line has: lines are numbers of less than 64 bits.
const NO_LINE: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Front {
    line_shift: u32,
    /// A line with, as lowest bit, whether it was written.
    lines: Box<[u64]>,
}

impl Front {
    /// For a first-level cache of so many sets; None where lines of a set cannot be told by their virtual addresses.
    pub(crate) fn new(sets: u64, line_bytes: u64) -> Option<Self> {
        let told = PAGE_BYTES / line_bytes;
        (sets.is_power_of_two() && told > 0).then(|| Self {
            line_shift: line_bytes.trailing_zeros(),
            lines: vec![NO_LINE; sets.min(told) as usize].into_boxed_slice(),
        })
    }

    /// Whether an access of `bytes` bytes needs nothing of the machine. Not so where it reaches into the next line.
    #[inline]
    pub(crate) fn holds(&self, address: u64, bytes: u64, store: bool) -> bool {
        let line = address >> self.line_shift;
        let entry = self.lines[line as usize & (self.lines.len() - 1)];
        let known = entry == line << 1 | 1 || !store && entry == line << 1;
        known && address.wrapping_add(bytes - 1) >> self.line_shift == line
    }

    /// Notes an access, after which the first-level cache has the line in this state, or not at all.
    #[inline]
    pub(crate) fn note(&mut self, address: u64, state: Option<State>) {
        let line = address >> self.line_shift;
        let entry = match state {
            Some(state) => line << 1 | u64::from(state == State::Modified),
            None => NO_LINE,
        };
        self.lines[line as usize & (self.lines.len() - 1)] = entry;
    }

    /// Virtual addresses may mean something else from here on, or lines have been taken away.
    pub(crate) fn forget(&mut self) {
        self.lines.fill(NO_LINE);
    }
}
