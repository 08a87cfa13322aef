//! A core as the engine runs it: its hardware, its clock, its queue of threads, and the pages that it used last, so
//! that an access seldom needs the page table.
//!
//! A remembered page also counts its accesses; the page table receives the count when the page is forgotten.

use std::collections::VecDeque;

use numaherd_hardware::{Core, Machine, Page as TlbPage};

use super::pages::PageTable;

/// Remembered pages of a core: a power of two, twice the usual entries of a first-level TLB.
const SLOTS: usize = 128;

/// No page has this number, since a page has at least two bytes.
const NO_PAGE: u64 = u64::MAX;

/// A remembered page.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    /// Its virtual page number, in the address space of the process that runs.
    pub(super) number: u64,
    /// Its identity in the TLBs.
    pub(super) tlb: TlbPage,
    /// Physical address of its first byte.
    pub(super) frame: u64,
    /// Accesses since it was remembered.
    pub(super) accesses: u64,
}

pub(super) struct CoreState {
    pub(super) core: Core,
    /// The index of its node.
    pub(super) node: usize,
    /// Instructions that it has executed, of all threads.
    pub(super) executed: u64,
    /// Its time when it was last asked for, in picoseconds.
    pub(super) time_ps: u64,
    /// The thread that runs on it.
    pub(super) running: Option<usize>,
    /// The threads that wait for it.
    pub(super) queue: VecDeque<usize>,
    /// When the running thread must give way if others wait, in picoseconds.
    pub(super) slice_end_ps: u64,
    /// Whether its TLBs were emptied since it went idle.
    pub(super) is_emptied: bool,
    /// The thread that ran last.
    pub(super) last: Option<usize>,
    /// The process whose pages are remembered.
    process: u32,
    slots: Box<[Slot; SLOTS]>,
}

impl CoreState {
    pub(super) fn new(machine: &Machine, core: usize) -> Self {
        let empty = Slot {
            number: NO_PAGE,
            tlb: TlbPage::new(0),
            frame: 0,
            accesses: 0,
        };
        Self {
            core: Core::new(machine, core),
            node: machine.config().node_of_core(core),
            executed: 0,
            time_ps: 0,
            running: None,
            queue: VecDeque::new(),
            slice_end_ps: 0,
            is_emptied: false,
            last: None,
            process: 0,
            slots: Box::new([empty; SLOTS]),
        }
    }

    /// Threads that run on it or wait for it.
    pub(super) fn busy_with(&self) -> usize {
        usize::from(self.running.is_some()) + self.queue.len()
    }

    /// Updates its time, and returns it.
    #[inline]
    pub(super) fn tell_time(&mut self) -> u64 {
        self.time_ps = self.core.now_ps(self.executed);
        self.time_ps
    }

    /// Idles until that time.
    pub(super) fn idle_until(&mut self, time_ps: u64) {
        self.core.idle_until(self.executed, time_ps);
        self.tell_time();
    }

    /// Spends that time on something other than the program.
    pub(super) fn hold(&mut self, ps: u64) {
        if ps > 0 {
            self.core.hold(self.executed, ps);
            self.tell_time();
        }
    }

    /// The slot in which a page is remembered, if it is.
    #[inline]
    pub(super) fn slot(&mut self, number: u64) -> &mut Slot {
        &mut self.slots[number as usize % SLOTS]
    }

    /// Remembers a page in place of the one that had its slot.
    pub(super) fn remember(&mut self, pages: &mut PageTable, slot: Slot) {
        self.forget_slot(pages, slot.number as usize % SLOTS);
        self.slots[slot.number as usize % SLOTS] = slot;
    }

    fn forget_slot(&mut self, pages: &mut PageTable, at: usize) {
        let slot = &mut self.slots[at];
        if slot.number != NO_PAGE {
            pages.count(PageTable::place_of(slot.tlb), self.node, slot.accesses);
            (slot.number, slot.accesses) = (NO_PAGE, 0);
        }
    }

    /// Forgets a page that is about to change.
    pub(super) fn forget(&mut self, pages: &mut PageTable, place: usize) {
        let at = pages.get(place).number as usize % SLOTS;
        let slot = &self.slots[at];
        if slot.number != NO_PAGE && PageTable::place_of(slot.tlb) == place {
            self.forget_slot(pages, at);
        }
    }

    /// Forgets all pages.
    pub(super) fn forget_all(&mut self, pages: &mut PageTable) {
        for at in 0..SLOTS {
            self.forget_slot(pages, at);
        }
    }

    /// Passes the accesses so far to the page table, without forgetting pages.
    pub(super) fn recount(&mut self, pages: &mut PageTable) {
        for slot in self.slots.iter_mut().filter(|slot| slot.number != NO_PAGE) {
            let accesses = std::mem::take(&mut slot.accesses);
            pages.count(PageTable::place_of(slot.tlb), self.node, accesses);
        }
    }

    /// Switches to the pages of a process.
    pub(super) fn enter(&mut self, pages: &mut PageTable, process: u32) {
        if self.process != process {
            self.forget_all(pages);
            self.process = process;
        }
    }
}
