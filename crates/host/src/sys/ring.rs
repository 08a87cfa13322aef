//! The ring buffer that perf fills with records: mapping it, and taking bytes out of it.
//!
//! Layout: one page of `struct perf_event_mmap_page`, whose words `data_head` (written by the
//! kernel) and `data_tail` (written here) count bytes without end; then the data, a power of two of
//! pages (include/uapi/linux/perf_event.h). [`crate::records`] gives the bytes their meaning.
#![expect(unsafe_code, reason = "the ring is memory shared with the kernel")]

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// A mapped ring with the event that feeds it.
#[derive(Debug)]
pub(crate) struct Ring {
    start: NonNull<u8>,
    bytes: usize,
    page_bytes: usize,
    _event: OwnedFd,
}

// SAFETY: the mapping is owned by this value alone, and nothing in it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `data_pages` (a power of two) pages of data.
    pub(crate) fn map(event: OwnedFd, data_pages: usize) -> Result<Self, (OwnedFd, Errno)> {
        assert!(data_pages.is_power_of_two(), "perf takes powers of two");
        let page_bytes = rustix::param::page_size();
        let bytes = (data_pages + 1) * page_bytes;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let mapped = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                event.as_fd(),
                0,
            )
        };
        match mapped {
            Ok(start) => match NonNull::new(start.cast()) {
                Some(start) => Ok(Self {
                    start,
                    bytes,
                    page_bytes,
                    _event: event,
                }),
                None => Err((event, Errno::NOMEM)),
            },
            Err(errno) => Err((event, errno)),
        }
    }

    /// Moves all waiting bytes from the ring to the end of `out`, in order.
    pub(crate) fn drain(&mut self, out: &mut Vec<u8>) {
        let capacity = self.bytes - self.page_bytes;
        let head = self.word(DATA_HEAD).load(Ordering::Acquire);
        let tail = self.word(DATA_TAIL).load(Ordering::Relaxed);
        // The kernel never runs ahead of the tail by more than the ring; a ring that says so
        // cannot be trusted for more than its last full turn.
        let waiting = usize::try_from(head.wrapping_sub(tail))
            .unwrap_or(usize::MAX)
            .min(capacity);
        let mut taken = 0;
        while taken < waiting {
            let at = usize::try_from(tail % capacity as u64).expect("below the ring's size");
            let at = (at + taken) % capacity;
            let run = (waiting - taken).min(capacity - at);
            // SAFETY: `at + run` is at most `capacity`, so the bytes lie inside the mapping; the
            // kernel does not write between tail and head before the tail moves on below.
            let bytes = unsafe {
                std::slice::from_raw_parts(self.start.as_ptr().add(self.page_bytes + at), run)
            };
            out.extend_from_slice(bytes);
            taken += run;
        }
        self.word(DATA_TAIL).store(head, Ordering::Release);
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page is mapped readable and writable, the offset is 8-byte aligned
        // within it, and kernel and program access the word only as a whole.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing borrows from it any more. A failure would only
        // leave it mapped.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// A file that looks like a ring to [`Ring`].
    fn ring(data_pages: usize, head: u64, tail: u64) -> (std::fs::File, Ring) {
        let page = rustix::param::page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(((data_pages + 1) * page) as u64).unwrap();
        file.write_all_at(&head.to_ne_bytes(), DATA_HEAD as u64)
            .unwrap();
        file.write_all_at(&tail.to_ne_bytes(), DATA_TAIL as u64)
            .unwrap();
        let capacity = data_pages * page;
        let data: Vec<u8> = (0..capacity).map(|i| (i % 251) as u8).collect();
        file.write_all_at(&data, page as u64).unwrap();
        let ring = Ring::map(file.try_clone().unwrap().into(), data_pages).unwrap();
        (file, ring)
    }

    fn tail_of(file: &std::fs::File) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, DATA_TAIL as u64).unwrap();
        u64::from_ne_bytes(word)
    }

    #[test]
    fn bytes_come_out_in_order_over_the_end_of_the_ring() {
        let capacity = rustix::param::page_size() as u64;
        let (file, mut ring) = ring(1, 3 * capacity + 5, 3 * capacity - 3);
        let mut out = Vec::new();
        ring.drain(&mut out);
        let last = capacity as usize;
        let want: Vec<u8> = [last - 3, last - 2, last - 1, 0, 1, 2, 3, 4]
            .iter()
            .map(|i| (i % 251) as u8)
            .collect();
        assert_eq!(out, want);
        assert_eq!(tail_of(&file), 3 * capacity + 5);
        out.clear();
        ring.drain(&mut out);
        assert!(out.is_empty(), "drained bytes do not come again");
    }

    #[test]
    fn a_head_that_lies_gives_no_more_than_the_ring_holds() {
        let (_file, mut ring) = ring(2, u64::MAX - 7, 0);
        let mut out = Vec::new();
        ring.drain(&mut out);
        assert_eq!(out.len(), 2 * rustix::param::page_size());
    }
}
