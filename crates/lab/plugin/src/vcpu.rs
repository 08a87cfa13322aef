// SPDX-License-Identifier: GPL-2.0-or-later
//! One vCPU: its core of the model, its instruction count, and the work of its threads.
//!
//! Belongs to the vCPU's own host thread.
//!
//! Translated code counts instructions inline, in a word of *units* of one instruction. The word
//! also triggers checks of the clock: when it reaches the quantum, QEMU calls the plugin. The
//! plugin adds a wait for memory to the same word, as the number of units that it lasts. So the
//! executed instructions are the word less the units of waiting, plus those folded before.

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;

use numaherd_hardware::{Access, Core, Detail, Fetch, Machine, Miss, Page, Translation};

use crate::foresight::Pages;
use crate::ipm::Frames;
use crate::layout::{Counter, Record, RecordFlag};
use crate::recording::Recorder;
use crate::shared::Shared;
use crate::sync::lock;

/// The work of a thread while the gate was open: the figures of [`Work::NAMES`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Work(pub [u64; 6]);

impl Work {
    /// Instructions, user and kernel; those at user addresses; lines fetched from memory on demand,
    /// and by the prefetcher; lines fetched from the own node, and from others.
    pub const NAMES: [&str; 6] = [
        "instructions",
        "user_instructions",
        "llc_miss",
        "prefetch",
        "dram_local",
        "dram_remote",
    ];

    /// Adds the work from `before` to `after`.
    pub fn add(&mut self, before: Self, after: Self) {
        for (sum, (before, after)) in self.0.iter_mut().zip(before.0.into_iter().zip(after.0)) {
            *sum = sum.wrapping_add(after.wrapping_sub(before));
        }
    }
}

/// Work of each thread on a vCPU, by thread id and process id. Locked at thread switches only.
pub type Threads = Mutex<HashMap<(u32, u32), Work>>;

/// The words that translated code counts in.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Words {
    /// Units since the last fold.
    pub units: u64,
    /// Kernel instructions since the start.
    pub kernel: u64,
    /// User instructions since the start; counted only while recording.
    pub user: u64,
}

/// When to flush QEMU's cache of a vCPU's page translations, so that it grows ([`crate::qemu::Translations`]).
///
/// Each flush may double it, but QEMU must then translate the program's pages again. So a program's first flushes come
/// soon after each other; then each interval is twice the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flushes {
    process: u32,
    /// Quanta of this process so far, and their number at the next flush.
    quanta: u64,
    next: u64,
}

impl Flushes {
    /// Quanta between the first flushes: 3.2 ms of modelled time. In that time, a program that misses constantly uses
    /// several times as many pages as the cache holds at first.
    const SOON: u64 = 64;
    /// Number of first flushes: they take the cache from 256 pages to 16,384 (64 MiB).
    const EARLY: u64 = 6;
    /// Most quanta between two flushes: 0.8 s of modelled time.
    const MOST: u64 = 1 << 14;

    /// Counts a finished quantum of this process; returns whether to flush now.
    pub fn is_due(&mut self, process: u32) -> bool {
        if process != self.process {
            *self = Self {
                process,
                quanta: 0,
                next: Self::SOON,
            };
        }
        self.quanta += 1;
        let due = self.quanta >= self.next;
        if due {
            let early = self.quanta < Self::SOON * Self::EARLY;
            let wait = if early { Self::SOON } else { self.quanta };
            self.next += wait.min(Self::MOST);
        }
        due
    }
}

/// One vCPU.
#[derive(Debug)]
pub struct Vcpu {
    /// Its number.
    pub number: usize,
    /// Its core.
    pub core: Core,
    ps_per_instruction: u64,
    core_mhz: u64,
    /// Instructions folded so far.
    instructions: u64,
    /// Units of waiting that the word contains now.
    waiting: u64,
    /// Remainder of waits below one unit, in picoseconds.
    rest_ps: u64,
    /// Line of the last access by virtual address, and whether it was written.
    last_line: u64,
    last_written: bool,
    line_shift: u32,
    /// The words in which translated code counts, once their address is known.
    pub words: Option<NonNull<Words>>,
    /// Where it last found its pages, for prefetches.
    pub pages: Pages,
    /// Count of kernel instructions when the core last forgot addresses.
    kernel: u64,
    /// Accesses to the same line as the one before: loads, stores.
    repeated: [u64; 2],
    unmodelled: u64,
    thread: (u32, u32),
    at_switch: Work,
    /// When QEMU's translations for it are flushed.
    pub flushes: Flushes,
    /// Address space of the running thread, once it has made an access.
    pub space: Option<u32>,
    /// Where it last found its pages; empty on a machine without TLBs.
    pub frames: Frames,
    /// Its part of the recording, if there is one.
    pub recorder: Option<Recorder>,
}

const NO_LINE: u64 = u64::MAX;

impl Vcpu {
    /// vCPU `number` with a new core.
    pub fn new(machine: &Machine, number: usize) -> Self {
        let config = machine.config();
        let mut core = Core::new(machine, number);
        core.know_hits();
        Self {
            number,
            core,
            ps_per_instruction: config.picoseconds_per_instruction,
            core_mhz: config.core_mhz,
            instructions: 0,
            waiting: 0,
            rest_ps: 0,
            last_line: NO_LINE,
            last_written: false,
            line_shift: config.line_bytes.trailing_zeros(),
            words: None,
            pages: Pages::default(),
            kernel: 0,
            repeated: [0; 2],
            unmodelled: 0,
            thread: (0, 0),
            at_switch: Work::default(),
            flushes: Flushes::default(),
            space: None,
            frames: Frames::new(config.tlb.map_or(0, |tlb| tlb.entries())),
            recorder: None,
        }
    }

    /// Instructions executed, from the units that the word shows.
    fn instructions(&self, units: u64) -> u64 {
        self.instructions + units - self.waiting
    }

    /// Folds the units that the word shows; the caller must then set it to 0. Returns the core's
    /// time in picoseconds.
    pub fn fold(&mut self, units: u64) -> u64 {
        self.instructions += units - self.waiting;
        self.waiting = 0;
        self.core.now_ps(self.instructions)
    }

    /// Lets idle time pass. To be called right after [`Vcpu::fold`].
    pub fn idle_until(&mut self, time_ps: u64) {
        self.core.idle_until(self.instructions, time_ps);
    }

    /// Whether the kernel's idle thread runs.
    #[inline]
    pub fn runs_idle_thread(&self) -> bool {
        self.thread.0 == 0
    }

    /// Whether this access can skip the model: it goes to the line of the access just before, which
    /// the first-level cache therefore holds.
    ///
    /// The line is known by its virtual address. If the page was moved between the two accesses, the second counts as a
    /// hit on the old page. Likewise if an SMT sibling has evicted the line, or was told to drop it, in between.
    #[inline]
    pub fn repeats(&mut self, address: u64, store: bool) -> bool {
        let line = address >> self.line_shift;
        if line == self.last_line && (!store || self.last_written) && !self.core.has_messages() {
            self.repeated[usize::from(store)] += 1;
            return true;
        }
        self.last_line = line;
        self.last_written = store;
        false
    }

    /// Whether the model recognises this access as a hit by its virtual address; if so, counts it.
    ///
    /// The core forgets addresses whenever the kernel has run: only the kernel changes mappings.
    #[inline]
    pub fn hits(&mut self, address: u64, bytes: u64, store: bool, kernel: u64) -> bool {
        if kernel != self.kernel {
            self.kernel = kernel;
            self.core.forget_addresses();
            return false;
        }
        self.core.hits(address, bytes, store)
    }

    /// Counts an access that cannot be modelled.
    pub fn count_unmodelled(&mut self) {
        self.unmodelled += 1;
        self.last_line = NO_LINE;
    }

    /// Makes an access. Calls `units` and `value` only on a miss. Returns the fetched line, if any,
    /// and the units to add to the word.
    #[inline]
    pub fn access(
        &mut self,
        machine: &Machine,
        access: Access,
        units: impl FnOnce() -> u64,
        value: impl FnOnce() -> Option<u64>,
    ) -> Option<(Option<Fetch>, u64)> {
        let (folded, waiting) = (self.instructions, self.waiting);
        let detail = || Detail {
            instructions: folded + units() - waiting,
            value: value(),
        };
        let Miss { stalled_ps, fetch } = self.core.access(machine, access, detail)?;
        Some((fetch, self.wait(stalled_ps)))
    }

    /// Translates the page of an access that is about to be made. `units` is as for [`Vcpu::access`].
    #[inline]
    pub fn translate(
        &mut self,
        machine: &Machine,
        page: Page,
        virtual_address: u64,
        units: impl FnOnce() -> u64,
    ) -> Option<(Translation, u64)> {
        let (folded, waiting) = (self.instructions, self.waiting);
        let instructions = || folded + units() - waiting;
        let translation = self
            .core
            .translate(machine, page, virtual_address, instructions)?;
        Some((translation, self.wait(translation.stalled_ps)))
    }

    /// Notes a wait of `ps` picoseconds; returns the units to add to the word.
    fn wait(&mut self, ps: u64) -> u64 {
        self.rest_ps += ps;
        let raise = self.rest_ps / self.ps_per_instruction;
        self.rest_ps %= self.ps_per_instruction;
        self.waiting += raise;
        raise
    }

    /// The work of this vCPU so far, given its words.
    fn work(&self, words: Words) -> Work {
        let instructions = self.instructions(words.units);
        let counts = self.core.counts();
        Work([
            instructions,
            instructions.saturating_sub(words.kernel),
            counts.llc_miss,
            counts.prefetch,
            counts.dram_local,
            counts.dram_remote,
        ])
    }

    /// Another thread runs from here on.
    pub fn switch(&mut self, words: Words, thread: (u32, u32), threads: &Threads) {
        let now = self.work(words);
        let mut table = lock(threads);
        let work = table.entry(self.thread).or_default();
        work.add(self.at_switch, now);
        self.at_switch = now;
        self.thread = thread;
    }

    /// Brings the counters in the shared memory up to date. To be called right after
    /// [`Vcpu::fold`], with words whose units are 0.
    pub fn publish(&self, words: Words, shared: &Shared) {
        let counts = self.core.counts();
        let stalled_ps = self.core.stalled_ps();
        let [instructions, user_instructions, ..] = self.work(words).0;
        let executed_ps = instructions * self.ps_per_instruction + self.core.yielded_ps();
        let busy_ps = executed_ps + stalled_ps;
        let [loads, stores] = self.repeated;
        let cycles = |ps: u64| (u128::from(ps) * u128::from(self.core_mhz) / 1_000_000) as u64;
        let set = |counter, value| shared.counter(self.number, counter).store(value, Relaxed);
        set(Counter::Instructions, instructions);
        set(Counter::UserInstructions, user_instructions);
        set(Counter::Cycles, cycles(busy_ps));
        set(Counter::Accesses, counts.accesses + loads + stores);
        set(Counter::Stores, counts.stores + stores);
        set(Counter::LlcAccess, counts.llc_access);
        set(Counter::LlcMiss, counts.llc_miss);
        set(Counter::Prefetch, counts.prefetch);
        set(Counter::DramLocal, counts.dram_local);
        set(Counter::DramRemote, counts.dram_remote);
        set(Counter::Writeback, counts.writeback);
        set(Counter::StallNs, stalled_ps / 1000);
        set(Counter::OffcoreRequests, counts.uncore_requests());
        set(
            Counter::OffcoreBusyCycles,
            cycles(self.core.outstanding_ps()),
        );
        set(Counter::DirtyTransfer, counts.dirty_transfer);
        set(Counter::Invalidation, counts.invalidation);
        set(Counter::BusyNs, busy_ps / 1000);
        set(Counter::Unmodelled, self.unmodelled + counts.outside_memory);
        for (node, &lines) in counts.fetches_from.iter().enumerate() {
            shared.node_fetches(self.number, node).store(lines, Relaxed);
        }
    }
}

/// The record of a fetch.
pub fn record(access: Access, instruction: u64, fetch: &Fetch) -> Record {
    let mut flags = 0;
    for (flag, set) in [
        (RecordFlag::Store, access.store),
        (RecordFlag::Remote, fetch.remote),
        (RecordFlag::DirtyTransfer, fetch.dirty_transfer),
    ] {
        if set {
            flags |= flag as u16;
        }
    }
    Record {
        va: access.virtual_address,
        pa: access.physical_address,
        ip: instruction,
        time_ns: fetch.issued_ps / 1000,
        latency_ns: u32::try_from(fetch.latency_ps / 1000).unwrap_or(u32::MAX),
        node: u16::try_from(fetch.node).unwrap_or(u16::MAX),
        flags,
        ..Record::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_hardware::{Config, Memory, Span};

    fn machine() -> Machine {
        let mut config = Config::of_equal_nodes(1, vec![vec![90.0]], 64.0);
        config.picoseconds_per_instruction = 1000;
        config.reorder_window_instructions = 10;
        let memory = Memory::new([Span {
            start: 0,
            end: 1 << 30,
            node: 0,
        }])
        .unwrap();
        Machine::new(config, memory).unwrap()
    }

    fn load(address: u64) -> Access {
        Access {
            virtual_address: address,
            physical_address: address,
            store: false,
        }
    }

    #[test]
    fn waiting_does_not_count_as_instructions() {
        let machine = machine();
        let mut vcpu = Vcpu::new(&machine, 0);
        let mut units = 5;
        vcpu.access(&machine, load(0), || units, || None).unwrap();
        units = 100;
        let (_, raise) = vcpu
            .access(&machine, load(1 << 20), || units, || None)
            .unwrap();
        assert_eq!(raise, 80, "90 ns, of which 10 instructions hide 10");
        assert_eq!(vcpu.instructions(units + raise), 100);
        let time = vcpu.fold(units + raise);
        assert_eq!(time, 180_000);
        assert_eq!(vcpu.instructions(0), 100);
    }

    #[test]
    fn threads_get_what_they_did_and_no_more() {
        let machine = machine();
        let mut vcpu = Vcpu::new(&machine, 0);
        let threads = Threads::default();
        let words = |units, kernel| Words {
            units,
            kernel,
            user: 0,
        };
        vcpu.switch(words(10, 10), (7, 7), &threads);
        vcpu.access(&machine, load(0), || 50, || None).unwrap();
        vcpu.switch(words(110, 30), (8, 7), &threads);
        vcpu.switch(words(115, 35), (7, 7), &threads);
        vcpu.switch(words(120, 35), (0, 0), &threads);
        let threads = threads.lock().unwrap();
        let seven = threads[&(7, 7)];
        assert_eq!(seven.0[..3], [105, 85, 1]);
        let eight = threads[&(8, 7)];
        assert_eq!(eight.0[..3], [5, 0, 0]);
    }

    #[test]
    fn flushes_are_frequent_while_a_program_is_new() {
        let mut flushes = Flushes::default();
        let mut at = |process, quanta: std::ops::Range<u64>| {
            quanta
                .filter(|_| flushes.is_due(process))
                .collect::<Vec<_>>()
        };
        let early = [64, 128, 192, 256, 320, 384];
        assert_eq!(at(7, 1..385), early);
        assert_eq!(at(7, 385..4000), [768, 1536, 3072]);
        assert_eq!(at(8, 1..385), early, "another program");
    }

    #[test]
    fn repeated_accesses_are_counted_without_the_model() {
        let mut vcpu = Vcpu::new(&machine(), 0);
        assert!(!vcpu.repeats(0x1000, false));
        assert!(vcpu.repeats(0x1008, false));
        assert!(
            !vcpu.repeats(0x1008, true),
            "the first store must be modelled"
        );
        assert!(vcpu.repeats(0x1010, true));
        assert!(vcpu.repeats(0x1010, false));
        assert!(!vcpu.repeats(0x1040, false));
        assert_eq!(vcpu.repeated, [2, 1]);
    }
}
