// SPDX-License-Identifier: GPL-2.0-or-later
//! Makes the host prefetch what the next access will probably need.
//!
//! A program that follows pointers waits for memory at each step, and so does the model: for the directory and the
//! last-level cache. The host could overlap these waits, but its processors look only a few hundred instructions ahead,
//! and the model takes that many. So when a load returns a possible address, the plugin prefetches the data there, and
//! the model's entries for that line, before it models the load itself.
//!
//! All of this is only a hint to the host: wrong or outdated addresses cost time and change nothing.

#![allow(
    unsafe_code,
    reason = "asks QEMU where the guest's memory is, prefetches"
)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::qemu::{Absent, function};

/// Bits of an address within a page of the guest's kernel.
const PAGE_BITS: u32 = 12;
const PAGE_BYTES: u64 = 1 << PAGE_BITS;

/// Bits of an address within a part of the guest's memory; each part is contiguous on the host.
const PART_BITS: u32 = 21;

/// Number of pages that a vCPU remembers: 32 MiB.
const PAGES: usize = 1 << 13;

/// Remembered bits of a frame's number: 16 TiB of memory.
const FRAME_BITS: u32 = 32;

/// The frames in which a vCPU last found its pages.
#[derive(Debug)]
pub struct Pages(Box<[u64]>);

impl Default for Pages {
    fn default() -> Self {
        Self(vec![0; PAGES].into())
    }
}

impl Pages {
    /// The place of an address in the table, and the tag of its page.
    #[inline]
    fn place(address: u64) -> (usize, u64) {
        let page = address >> PAGE_BITS;
        (page as usize & (PAGES - 1), page << FRAME_BITS)
    }

    /// Notes where an address was found.
    #[inline]
    pub fn note(&mut self, address: u64, physical_address: u64) {
        let (place, tag) = Self::place(address);
        let frame = physical_address >> PAGE_BITS & ((1 << FRAME_BITS) - 1);
        self.0[place] = tag | frame;
    }

    /// The physical address at which an address was last found. May be that of another page with the same tag.
    #[inline]
    pub fn find(&self, address: u64) -> Option<u64> {
        let (place, tag) = Self::place(address);
        let known = self.0[place];
        let frame = known & ((1 << FRAME_BITS) - 1);
        (known != 0 && known ^ tag == frame)
            .then_some(frame << PAGE_BITS | address & (PAGE_BYTES - 1))
    }
}

/// Prefetches the line at a host address. This is only a hint: any address is allowed, and nothing changes.
#[inline]
pub fn host_fetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address as *const i8);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The host addresses of the guest's memory.
pub struct GuestMemory {
    map: unsafe extern "C" fn(u64, *mut u64, bool) -> *mut c_void,
    /// Host address less physical address of each part; 0 while unknown.
    parts: Box<[AtomicUsize]>,
}

impl GuestMemory {
    /// For physical addresses below `end`.
    pub fn find(end: u64) -> Result<Self, Absent> {
        // SAFETY: the symbol has this signature in QEMU 10.
        let map = unsafe { function(c"cpu_physical_memory_map")? };
        let parts = (end >> PART_BITS) + 1;
        Ok(Self {
            map,
            parts: (0..parts).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Learns the host address of a physical address that the guest has just used as memory.
    #[inline]
    pub fn learn(&self, physical_address: u64) {
        let part = self.parts.get((physical_address >> PART_BITS) as usize);
        if let Some(part) = part
            && part.load(Relaxed) == 0
        {
            self.ask(part, physical_address);
        }
    }

    #[cold]
    fn ask(&self, part: &AtomicUsize, physical_address: u64) {
        let mut bytes = 1;
        // SAFETY: the address is memory, so QEMU gives its place and copies nothing.
        let host = unsafe { (self.map)(physical_address, &raw mut bytes, false) } as usize;
        if host != 0 {
            part.store(host.wrapping_sub(physical_address as usize), Relaxed);
        }
    }

    /// Prefetches the line at a physical address.
    #[inline]
    pub fn fetch(&self, physical_address: u64) {
        if let Some(part) = self.parts.get((physical_address >> PART_BITS) as usize) {
            let at = part.load(Relaxed);
            if at != 0 {
                host_fetch(at.wrapping_add(physical_address as usize));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_found_where_they_were_last() {
        let mut pages = Pages::default();
        assert_eq!(pages.find(0x7f00_1234_5678), None);
        assert_eq!(pages.find(0), None, "nothing is known of page 0");
        pages.note(0x7f00_1234_5678, 0x1_4000_0678);
        assert_eq!(pages.find(0x7f00_1234_5abc), Some(0x1_4000_0abc));
        assert_eq!(pages.find(0x7f00_1234_6abc), None, "the next page");
        let same_place = 0x7f00_1234_5678 + PAGES as u64 * PAGE_BYTES;
        assert_eq!(pages.find(same_place), None);
        pages.note(same_place, 0x2000);
        assert_eq!(pages.find(0x7f00_1234_5678), None, "replaced");
    }

    #[test]
    fn a_place_is_asked_for_once() {
        unsafe extern "C" fn map(address: u64, _: *mut u64, _: bool) -> *mut c_void {
            (address + 0x7f00_0000_0000) as *mut c_void
        }
        let memory = GuestMemory {
            map,
            parts: (0..2).map(|_| AtomicUsize::new(0)).collect(),
        };
        memory.learn(0x1234);
        memory.learn(0x20_0000);
        memory.learn(0x40_0000);
        let parts = memory.parts.iter().map(|part| part.load(Relaxed));
        assert_eq!(parts.collect::<Vec<_>>(), [0x7f00_0000_0000; 2]);
        memory.fetch(0x1234);
        memory.fetch(1 << 40);
    }
}
