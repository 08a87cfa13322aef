//! All of the program's unsafe code: memory directly from the kernel, its node, the ring of
//! pointers that a chase follows, and the loop with a known number of instructions.
//!
//! Why it is needed: an allocator would hide which pages are fresh, a bounds check would double the
//! instructions of a hop, a compiler may unroll a loop, and rustix offers neither `mbind` nor a CPU
//! mask without a fixed size. The interface of this file is safe.

#![expect(
    unsafe_code,
    reason = "mappings, mbind, CPU masks of any size, pointer chasing and counted instructions have no safe form"
)]

use numaherd_topology::{CpuSet, NodeSet};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes in a cache line, on every machine this program is meant for.
pub const LINE: usize = 64;

/// Bytes in a huge page of x86-64; memory is aligned to it, so that huge pages fit.
const HUGE_PAGE: usize = 2 << 20;

/// Memory of a whole number of pages, unmapped when dropped: fresh, zeroed and private, or shared with other processes.
#[derive(Debug)]
pub struct Region {
    map: NonNull<c_void>,
    map_bytes: usize,
    base: NonNull<u64>,
    bytes: usize,
}

// SAFETY: a region owns its mapping alone, and hands out memory only under the borrow rules.
unsafe impl Send for Region {}
// SAFETY: through a shared reference a region shows its memory as atomics only.
unsafe impl Sync for Region {}

/// Transparent huge pages in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HugePages {
    /// Asked for.
    On,
    /// Forbidden.
    Off,
    /// As the machine is set.
    Default,
}

/// The result of a system call that returns 0 or sets `errno`.
fn succeeded(returned: impl Into<i64>) -> io::Result<()> {
    match returned.into() {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Region {
    /// Maps `bytes` (a multiple of the page size, not 0); no page is present yet.
    pub fn map(bytes: usize) -> io::Result<Region> {
        let map_bytes = bytes
            .checked_add(HUGE_PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no other memory.
        let map = unsafe { mmap_anonymous(ptr::null_mut(), map_bytes, protection, flags)? };
        let map = NonNull::new(map).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = map.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: `skip` is below HUGE_PAGE, by which the mapping is longer than `bytes`.
        let base = unsafe { map.byte_add(skip) }.cast();
        Ok(Region {
            map,
            map_bytes,
            base,
            bytes,
        })
    }

    /// Maps `bytes` (a multiple of the page size, not 0) of a file in memory of at least this length. Other processes'
    /// writes to it are visible here.
    pub fn map_shared(file: &File, bytes: usize) -> io::Result<Region> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice touches no other memory.
        let map = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let map = NonNull::new(map).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region {
            map,
            map_bytes: bytes,
            base: map.cast(),
            bytes,
        })
    }

    /// Requests or forbids huge pages, for pages touched from now on.
    pub fn set_huge_pages(&self, huge_pages: HugePages) -> io::Result<()> {
        match huge_pages {
            HugePages::Default => Ok(()),
            HugePages::On => self.advise(Advice::LinuxHugepage),
            HugePages::Off => self.advise(Advice::LinuxNoHugepage),
        }
    }

    /// Binds pages that are touched from now on to `nodes`.
    pub fn bind(&self, nodes: &NodeSet) -> io::Result<()> {
        self.mbind(libc::MPOL_BIND, nodes)
    }

    /// Interleaves pages that are touched from now on over `nodes`.
    pub fn interleave(&self, nodes: &NodeSet) -> io::Result<()> {
        self.mbind(libc::MPOL_INTERLEAVE, nodes)
    }

    /// Resets the memory policy. Pages stay where they are, but may be moved, and new pages may be
    /// on any node.
    pub fn unbind(&self) -> io::Result<()> {
        self.mbind(libc::MPOL_DEFAULT, &NodeSet::new())
    }

    fn mbind(&self, mode: c_int, nodes: &NodeSet) -> io::Result<()> {
        // The kernel reads one bit less than the count.
        let (words, bits) = match nodes.as_words() {
            [] => (ptr::null(), 0),
            mask => (mask.as_ptr(), mask.len() * 64 + 1),
        };
        // SAFETY: the range is this region's own; the mask is as long as `bits` says.
        let returned = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.bytes,
                mode,
                words,
                bits,
                0,
            )
        };
        succeeded(returned)
    }

    /// Touches every page with one call, or, on kernels before 5.14, with one write each.
    pub fn populate(&mut self) -> io::Result<()> {
        match self.advise(Advice::LinuxPopulateWrite) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                for word in self
                    .words()
                    .iter_mut()
                    .step_by(page_size() / size_of::<u64>())
                {
                    // SAFETY: `word` is a valid, exclusive reference; volatile so that it is done.
                    unsafe { ptr::write_volatile(word, 0) };
                }
                Ok(())
            }
            other => other,
        }
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: the range is this region's own, and none of the advice used discards contents.
        let advised = unsafe { madvise(self.base.as_ptr().cast(), self.bytes, advice) };
        advised.map_err(io::Error::from)
    }

    /// Usable bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The memory as words of 8 bytes.
    pub fn words(&mut self) -> &mut [u64] {
        // SAFETY: the mapping is readable, writable, aligned, at least `bytes` long, zeroed by the
        // kernel, and borrowed exclusively for as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes / size_of::<u64>()) }
    }

    /// The memory as words that several threads may use at the same time.
    pub fn shared_words(&self) -> &[AtomicU64] {
        // SAFETY: as for `words`; atomics may be shared, and `words` needs the region exclusively.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / size_of::<u64>())
        }
    }

    /// Like [`Region::shared_words`], but as words of 4 bytes.
    pub fn shared_half_words(&self) -> &[AtomicU32] {
        // SAFETY: as for `shared_words`. A region is one or the other for its whole life where
        // types matter; to the processor both are plain memory.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast(), self.bytes / size_of::<u32>())
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is this region's own, and no borrow of it can outlive the region.
        // Unmapping a whole mapping cannot fail.
        let _ = unsafe { munmap(self.map.as_ptr(), self.map_bytes) };
    }
}

/// Words of a line in addition to the pointer: BRM's NPAD.
const PAD: usize = LINE / size_of::<u64>() - 1;

/// One cache line of a ring: a pointer to the next one, and a payload.
#[repr(C, align(64))]
struct Line {
    next: *const Line,
    pad: [u64; PAD],
}

const _: () = assert!(size_of::<Line>() == LINE);

/// Cache lines linked into one ring by real pointers: each access loads the address of the next, so
/// no processor can have two in flight.
#[derive(Debug)]
pub struct Ring {
    region: Region,
    at: *const Line,
}

// SAFETY: the pointers of a ring lead into its own region, which moves along with it.
unsafe impl Send for Ring {}

impl Ring {
    /// Links the lines of `region` in the given order and the last to the first. Writes each line
    /// in `order` once; other lines are not part of the ring.
    ///
    /// # Panics
    /// If `order` is empty or names a line beyond the region.
    pub fn link(region: Region, order: impl Iterator<Item = usize>) -> Ring {
        let lines = region.base.cast::<Line>();
        let count = region.bytes / LINE;
        let line = |index: usize| {
            assert!(index < count, "line {index} of {count}");
            // SAFETY: just checked to be inside the mapping, which is aligned to a huge page.
            unsafe { lines.add(index) }
        };
        let mut order = order;
        let first = line(order.next().expect("a ring has at least one line"));
        let mut last = first;
        for index in order {
            let next = line(index);
            // SAFETY: `last` is inside the mapping, which this function owns.
            unsafe { (*last.as_ptr()).next = next.as_ptr() };
            last = next;
        }
        // SAFETY: as above.
        unsafe { (*last.as_ptr()).next = first.as_ptr() };
        Ring {
            region,
            at: first.as_ptr(),
        }
    }

    /// Follows `hops` pointers, with 32 loads for each turn of the loop.
    #[inline(never)]
    pub fn walk(&mut self, hops: u64) {
        let mut at = self.at;
        for _ in 0..hops / 32 {
            macro_rules! eight {
                () => {
                    // SAFETY: `at` is a line of the ring, whose `next` is one too: `link` wrote it
                    // before, and the region is still mapped because `self` owns it.
                    unsafe {
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                        at = (*at).next;
                    }
                };
            }
            eight!();
            eight!();
            eight!();
            eight!();
        }
        for _ in 0..hops % 32 {
            // SAFETY: as above.
            at = unsafe { (*at).next };
        }
        self.at = std::hint::black_box(at);
    }

    /// Follows `hops` pointers and calls `between` after each.
    #[inline(always)]
    pub fn walk_with(&mut self, hops: u64, mut between: impl FnMut()) {
        let mut at = self.at;
        for _ in 0..hops {
            // SAFETY: as in `walk`.
            at = unsafe { (*at).next };
            between();
        }
        self.at = std::hint::black_box(at);
    }

    /// Follows `hops` pointers and reads a word of each line's payload, the words in turn. Returns
    /// the sum of the words read.
    #[inline(never)]
    pub fn walk_reading(&mut self, hops: u64) -> u64 {
        let mut at = self.at;
        let mut sum = 0u64;
        let turns = hops / PAD as u64;
        for turn in 0..=turns {
            let words = if turn < turns {
                PAD
            } else {
                (hops % PAD as u64) as usize
            };
            for word in 0..words {
                // SAFETY: as in `walk`; the payload was zeroed by the kernel before anybody wrote
                // it, so every word of it is a number. The pointer comes first, so that a simulator
                // that finds dependences by loaded values sees, while the line is in flight, which
                // load the next address depends on.
                unsafe {
                    let next = ptr::read_volatile(&raw const (*at).next);
                    sum = sum.wrapping_add((*at).pad[word]);
                    at = next;
                }
            }
        }
        self.at = std::hint::black_box(at);
        sum
    }

    /// The current line of the walk.
    #[cfg(test)]
    pub fn position(&self) -> usize {
        (self.at.addr() - self.region.base.addr().get()) / LINE
    }

    /// Lines in the region.
    pub fn lines(&self) -> usize {
        self.region.bytes() / LINE
    }
}

/// The factor of [`spin`]: Knuth's for 64-bit generators. It is odd, so no step loses a bit.
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// Multiplies and rotates `state` `iterations` times, with four instructions each.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn spin(mut state: u64, iterations: u64) -> u64 {
    if iterations > 0 {
        // SAFETY: works on the three registers given, of which `left` counts down from above 0;
        // touches no memory and no stack.
        unsafe {
            std::arch::asm!(
                "2:",
                "imul {state}, {factor}",
                "rol {state}, 32",
                "dec {left}",
                "jnz 2b",
                state = inout(reg) state,
                factor = in(reg) FACTOR,
                left = inout(reg) iterations => _,
                options(pure, nomem, nostack)
            );
        }
    }
    state
}

/// Multiplies and rotates `state` `iterations` times.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub fn spin(mut state: u64, iterations: u64) -> u64 {
    for _ in 0..iterations {
        state = state.wrapping_mul(FACTOR).rotate_left(32);
    }
    state
}

/// The CPUs that the calling thread may run on.
pub fn affinity() -> io::Result<CpuSet> {
    let mut mask = vec![0u64; 16];
    loop {
        // SAFETY: the kernel writes at most the length given, which is the vector's own.
        let written = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                0,
                size_of_val(&mask[..]),
                mask.as_mut_ptr(),
            )
        };
        if written > 0 {
            return Ok(CpuSet::of_words(mask));
        }
        let error = io::Error::last_os_error();
        // EINVAL: the machine has more CPUs than the mask.
        if error.raw_os_error() != Some(libc::EINVAL) || mask.len() > 1 << 20 {
            return Err(error);
        }
        mask = vec![0; mask.len() * 2];
    }
}

/// Lets the calling thread run on `cpus` only.
pub fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let mask = cpus.as_words();
    // SAFETY: the kernel reads as many bytes as the length says, which is the slice's own length.
    succeeded(unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(mask),
            mask.as_ptr(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_topology::NodeId;

    #[test]
    fn fresh_memory_is_zero_aligned_and_of_the_size_asked() {
        let mut region = Region::map(3 << 12).unwrap();
        region.populate().unwrap();
        assert_eq!(region.words().len(), 3 * 512);
        assert!(region.words().iter().all(|word| *word == 0));
        assert_eq!(region.words().as_ptr().align_offset(HUGE_PAGE), 0);
    }

    #[test]
    fn binding_to_a_node_that_cannot_be_is_refused() {
        let region = Region::map(1 << 12).unwrap();
        assert!(region.bind(&NodeSet::from_iter([NodeId(1 << 20)])).is_err());
    }

    #[test]
    fn a_ring_is_walked_in_its_order() {
        let region = Region::map(1 << 12).unwrap();
        let mut ring = Ring::link(region, [5, 2, 63].into_iter());
        let mut seen = vec![ring.position()];
        for _ in 0..3 {
            ring.walk(1);
            seen.push(ring.position());
        }
        assert_eq!(seen, [5, 2, 63, 5]);
        let mut calls = 0;
        ring.walk_with(4, || calls += 1);
        assert_eq!((ring.position(), calls), (2, 4));
        ring.walk(32 * 3 + 2);
        assert_eq!(
            ring.position(),
            5,
            "98 hops through a ring of 3 lines are 2 hops"
        );
    }

    #[test]
    fn a_walk_that_reads_adds_up_each_lines_payload_once() {
        let mut region = Region::map(1 << 12).unwrap();
        let (lines, _) = region.words().as_chunks_mut::<{ LINE / 8 }>();
        for (index, line) in lines.iter_mut().enumerate() {
            line[1..].fill(1 << index);
        }
        let mut ring = Ring::link(region, 0..40);
        assert_eq!(ring.walk_reading(40), (1 << 40) - 1);
        assert_eq!((ring.walk_reading(3), ring.position()), (0b111, 3));
    }

    #[test]
    fn each_word_of_a_payload_is_read_in_its_turn() {
        let mut region = Region::map(1 << 12).unwrap();
        region.words()[1..8].copy_from_slice(&[1, 10, 100, 1000, 10_000, 100_000, 1_000_000]);
        let mut ring = Ring::link(region, std::iter::once(0));
        assert_eq!(ring.walk_reading(9), 1_111_122);
    }

    #[test]
    fn spinning_multiplies_and_rotates() {
        let step = |state: u64| state.wrapping_mul(FACTOR).rotate_left(32);
        assert_eq!(spin(12345, 0), 12345);
        assert_eq!(spin(12345, 1), step(12345));
        assert_eq!(spin(12345, 3), step(step(step(12345))));
    }

    #[test]
    fn affinity_is_read_back_as_it_was_set() {
        std::thread::spawn(|| {
            let all = affinity().unwrap();
            let first: CpuSet = all.first().into_iter().collect();
            set_affinity(&first).unwrap();
            assert_eq!(affinity().unwrap(), first);
            set_affinity(&all).unwrap();
            assert_eq!(affinity().unwrap(), all);
        })
        .join()
        .unwrap();
    }
}
