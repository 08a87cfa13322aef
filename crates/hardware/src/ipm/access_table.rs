//! The TLB Access Table (TAT): for each TLB entry of every core, the page it holds, when it was
//! filled and by which thread (IPM §4.2, §4.3.1, Eq. 1 and 2).

use super::{Application, Thread};
use crate::page::Page;

/// An entry of the table.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    pub(super) page: Page,
    /// When the TLB entry was filled: time-stamp counter, shifted by CR_shift.
    pub(super) time_stamp: u64,
    pub(super) application: Application,
    /// The thread's number in its application; None once that number was given to another thread.
    pub(super) thread: Option<u32>,
}

#[derive(Debug)]
pub(super) struct AccessTable {
    /// By core, then by TLB entry. None for an entry that no watched thread filled.
    entries: Vec<Option<Entry>>,
    shift: u32,
    /// Highest time stamp.
    mask: u64,
}

impl AccessTable {
    pub(super) fn new(entries: usize, shift: u32, time_stamp_bits: u32) -> Self {
        Self {
            entries: vec![None; entries],
            shift,
            mask: u64::MAX >> (64 - time_stamp_bits),
        }
    }

    /// The time stamp for a value of the time-stamp counter.
    pub(super) fn time_stamp(&self, tsc: u64) -> u64 {
        (tsc >> self.shift) & self.mask
    }

    /// Eq. 1: how long an entry has resided in the TLB, in units of 2^CR_shift cycles.
    ///
    /// Right for up to half the range of time stamps, even if they wrapped round meanwhile. A
    /// longer difference means an entry from the future, since modelled cores are not quite at the
    /// same time; its residency is 0.
    pub(super) fn residency(&self, tsc: u64, entry: &Entry) -> u64 {
        let residency = (tsc >> self.shift).wrapping_sub(entry.time_stamp) & self.mask;
        if residency > self.mask / 2 {
            0
        } else {
            residency
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<&Entry> {
        self.entries[index].as_ref()
    }

    /// Overwrites an entry, and returns what it held.
    pub(super) fn replace(&mut self, index: usize, entry: Option<Entry>) -> Option<Entry> {
        std::mem::replace(&mut self.entries[index], entry)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Deletes all references to a thread's number. The entries keep their pages and time stamps.
    pub(super) fn delete_thread(&mut self, thread: Thread) {
        for entry in self.entries.iter_mut().flatten() {
            if entry.application == thread.application && entry.thread == Some(thread.number) {
                entry.thread = None;
            }
        }
    }

    /// Empties all entries of an application.
    pub(super) fn delete_application(&mut self, application: Application) {
        for slot in &mut self.entries {
            if slot.is_some_and(|entry| entry.application == application) {
                *slot = None;
            }
        }
    }
}
