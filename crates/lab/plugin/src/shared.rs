// SPDX-License-Identifier: GPL-2.0-or-later
//! The shared memory of `layout.rs`, mapped, behind atomic words.
//!
//! The guest may write any of it at any time. So all accesses are atomic, with the width that the
//! layout gives a field, and no value read from it determines where the plugin reads or writes:
//! offsets and counts are the plugin's own.

#![allow(unsafe_code, reason = "memory shared with the guest")]

use std::fs::OpenOptions;
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::file_error::{FileError, Problem};
use crate::layout::{Counter, Header, Node, OUTBOX_NO_ROOM, Record, Vcpu};

/// The mapped memory.
#[derive(Debug)]
pub struct Shared {
    start: *mut u8,
    layout: Header,
}

// SAFETY: the mapping lives until the process ends and is only used through atomics.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps the file, clears it and writes the header.
    ///
    /// # Errors
    /// When the file cannot be mapped or is too small.
    pub fn map(path: &Path, header: Header) -> Result<Self, FileError> {
        Self::map_file(path, header).map_err(FileError::of("shared memory", path))
    }

    fn map_file(path: &Path, header: Header) -> Result<Self, Problem> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        let needed = header.total_bytes;
        if bytes < needed {
            return Err(Problem::Small {
                bytes,
                vcpus: header.vcpus,
                nodes: header.nodes,
                needed,
            });
        }
        let length = usize::try_from(needed).expect("an x86-64 host");
        // SAFETY: a fresh mapping of a file that is at least as long; the result is checked.
        let start = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let null = std::ptr::null_mut();
            libc::mmap(
                null,
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let start = start.cast::<u8>();
        // SAFETY: the mapping is `length` bytes long, page aligned, and no guest runs yet.
        unsafe {
            start.write_bytes(0, length);
            start.cast::<Header>().write(header);
        }
        Ok(Self {
            start,
            layout: header,
        })
    }

    /// The layout as it was written.
    pub fn layout(&self) -> &Header {
        &self.layout
    }

    fn u64_at(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.layout.total_bytes);
        // SAFETY: within the mapping, aligned, and only ever used as an atomic.
        unsafe { AtomicU64::from_ptr(self.start.add(offset as usize).cast()) }
    }

    fn u32_at(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.layout.total_bytes);
        // SAFETY: as in `u64_at`.
        unsafe { AtomicU32::from_ptr(self.start.add(offset as usize).cast()) }
    }

    fn block(&self, vcpu: usize) -> u64 {
        self.layout.vcpu_offset + vcpu as u64 * self.layout.vcpu_stride
    }

    /// A word of the header.
    fn header(&self, offset: usize) -> &AtomicU64 {
        self.u64_at(offset as u64)
    }

    /// Whether the module has filled the node table.
    pub fn module_ready(&self) -> bool {
        self.header(offset_of!(Header, module_ready)).load(Acquire) == 1
    }

    /// First page frame of a node and one past its last.
    pub fn node(&self, node: usize) -> (u64, u64) {
        let at = self.layout.node_offset + node as u64 * self.layout.node_stride;
        let word = |offset: usize| self.u64_at(at + offset as u64).load(Relaxed);
        (
            word(offset_of!(Node, start_pfn)),
            word(offset_of!(Node, end_pfn)),
        )
    }

    /// Shows whether the gate is open.
    pub fn set_gate(&self, open: bool) {
        self.header(offset_of!(Header, gate))
            .store(u64::from(open), Release);
    }

    /// Counts an opening of the gate that was refused.
    pub fn count_refusal(&self) {
        self.header(offset_of!(Header, gate_refusals))
            .fetch_add(1, Release);
    }

    /// A counter of a vCPU.
    pub fn counter(&self, vcpu: usize, counter: Counter) -> &AtomicU64 {
        self.u64_at(self.block(vcpu) + self.layout.counters_offset + counter as u64 * 8)
    }

    /// Lines that a vCPU fetched from a node.
    pub fn node_fetches(&self, vcpu: usize, node: usize) -> &AtomicU64 {
        self.u64_at(self.block(vcpu) + self.layout.node_fetches_offset + node as u64 * 8)
    }

    /// Thread and process that run on a vCPU, according to the module.
    pub fn running(&self, vcpu: usize) -> (u32, u32) {
        self.pair(vcpu, offset_of!(Vcpu, tid), offset_of!(Vcpu, tgid))
    }

    /// Name of the thread that runs on a vCPU, according to the module, NUL-padded.
    pub fn running_name(&self, vcpu: usize) -> [u8; 16] {
        let word = |offset: usize| self.vcpu_word(vcpu, offset).load(Relaxed).to_le_bytes();
        let mut name = [0; 16];
        name[..8].copy_from_slice(&word(offset_of!(Vcpu, name_start)));
        name[8..].copy_from_slice(&word(offset_of!(Vcpu, name_end)));
        name
    }

    /// Thread and process, besides the running one, that the module's event on a vCPU is about.
    pub fn other(&self, vcpu: usize) -> (u32, u32) {
        self.pair(
            vcpu,
            offset_of!(Vcpu, other_tid),
            offset_of!(Vcpu, other_tgid),
        )
    }

    fn pair(&self, vcpu: usize, first: usize, second: usize) -> (u32, u32) {
        let word = |offset: usize| self.u32_at(self.block(vcpu) + offset as u64).load(Relaxed);
        (word(first), word(second))
    }

    /// Room of the outbox's reader, in bytes.
    pub fn outbox_room(&self) -> usize {
        let room = self.header(offset_of!(Header, outbox_room));
        room.load(Relaxed).min(self.layout.outbox_bytes) as usize
    }

    /// Puts records, which are whole words, into the outbox; None says that the reader has no room for the next record.
    pub fn fill_outbox(&self, bytes: Option<&[u8]>) {
        for (at, word) in (0..)
            .step_by(8)
            .zip(bytes.unwrap_or_default().chunks_exact(8))
        {
            let word = u64::from_le_bytes(word.try_into().expect("8 bytes"));
            self.u64_at(self.layout.outbox_offset + at)
                .store(word, Relaxed);
        }
        let used = bytes.map_or(OUTBOX_NO_ROOM, |bytes| bytes.len() as u64);
        self.header(offset_of!(Header, outbox_used))
            .store(used, Release);
    }

    fn vcpu_word(&self, vcpu: usize, offset: usize) -> &AtomicU64 {
        self.u64_at(self.block(vcpu) + offset as u64)
    }

    /// Counts a synchronisation.
    pub fn count_sync(&self, vcpu: usize) {
        self.vcpu_word(vcpu, offset_of!(Vcpu, syncs))
            .fetch_add(1, Release);
    }

    /// Counts a fetch of this latency towards the vCPU's next sample; returns whether it is the sample.
    pub fn is_sample(&self, vcpu: usize, latency_ns: u64) -> bool {
        let word = |offset| self.vcpu_word(vcpu, offset).load(Relaxed);
        let period = word(offset_of!(Vcpu, sample_period));
        if period == 0 || latency_ns < word(offset_of!(Vcpu, sample_latency_ns)) {
            return false;
        }
        let left = self.vcpu_word(vcpu, offset_of!(Vcpu, sample_left));
        let after = left.load(Relaxed).saturating_sub(1);
        left.store(if after == 0 { period } else { after }, Relaxed);
        after == 0
    }

    /// Pushes a record into a vCPU's ring. Thread and process are filled in here.
    pub fn push(&self, vcpu: usize, record: &Record) {
        let head = self.vcpu_word(vcpu, offset_of!(Vcpu, ring_head));
        let number = head.load(Relaxed);
        let place = number & (self.layout.ring_records - 1);
        let at = self.block(vcpu) + self.layout.records_offset + place * self.layout.record_bytes;
        let (tid, tgid) = self.running(vcpu);
        let record = Record {
            tid,
            tgid,
            ..*record
        };
        for (word, value) in (at..).step_by(8).zip(record.words()) {
            self.u64_at(word).store(value, Relaxed);
        }
        head.store(number + 1, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(bytes: usize) -> std::path::PathBuf {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "lab-shared-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(&vec![0xff; bytes])
            .unwrap();
        path
    }

    fn shared(vcpus: u64, nodes: u64) -> Shared {
        let header = Header::for_machine(vcpus, nodes);
        let path = file(usize::try_from(header.total_bytes).unwrap());
        let shared = Shared::map(&path, header).unwrap();
        std::fs::remove_file(path).unwrap();
        shared
    }

    #[test]
    fn memory_that_is_too_small_is_refused() {
        let path = file(4096);
        let error = Shared::map(&path, Header::for_machine(2, 1)).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(
            *error.problem,
            Problem::Small {
                bytes: 4096,
                vcpus: 2,
                ..
            }
        ));
        let gone = Shared::map(&path, Header::for_machine(2, 1)).unwrap_err();
        assert!(matches!(*gone.problem, Problem::Io(_)));
    }

    #[test]
    fn every_nth_fetch_is_a_sample() {
        let shared = shared(2, 2);
        assert!(!shared.is_sample(1, 100), "sampling is off");
        shared
            .vcpu_word(1, offset_of!(Vcpu, sample_period))
            .store(3, Relaxed);
        shared
            .vcpu_word(1, offset_of!(Vcpu, sample_left))
            .store(2, Relaxed);
        let samples: Vec<bool> = (0..8).map(|_| shared.is_sample(1, 100)).collect();
        assert_eq!(
            samples,
            [false, true, false, false, true, false, false, true]
        );
        shared
            .vcpu_word(1, offset_of!(Vcpu, sample_latency_ns))
            .store(101, Relaxed);
        assert!(
            (0..10).all(|_| !shared.is_sample(1, 100)),
            "too fast to count"
        );
    }

    #[test]
    fn rings_wrap_around_and_carry_the_running_thread() {
        let shared = shared(2, 1);
        shared
            .u32_at(shared.block(1) + offset_of!(Vcpu, tid) as u64)
            .store(77, Relaxed);
        let ring = shared.layout().ring_records;
        for va in 0..ring + 2 {
            shared.push(
                1,
                &Record {
                    va,
                    ..Record::default()
                },
            );
        }
        let records = shared.block(1) + shared.layout().records_offset;
        assert_eq!(shared.u64_at(records).load(Relaxed), ring);
        assert_eq!(
            shared
                .u64_at(records + shared.layout().record_bytes)
                .load(Relaxed),
            ring + 1
        );
        assert_eq!(
            shared
                .u32_at(records + offset_of!(Record, tid) as u64)
                .load(Relaxed),
            77
        );
        assert_eq!(
            shared
                .vcpu_word(1, offset_of!(Vcpu, ring_head))
                .load(Relaxed),
            ring + 2
        );
        assert_eq!(
            shared
                .vcpu_word(0, offset_of!(Vcpu, ring_head))
                .load(Relaxed),
            0
        );
    }
}
