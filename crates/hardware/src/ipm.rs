//! The IPM unit: from the times that pages stay in TLBs, it finds the node that each page belongs
//! to and the threads that share data (Intense Pages Mapping, Cruz, Diener, Pilla and Navaux, §4).
//!
//! **Problem.** Find the node that uses a page most, and the threads that use the same pages,
//! without counting every access. **Approach.** A page in use stays in the TLB. So each eviction of
//! a TLB entry credits the time that it was there to the thread's node and to the threads that used
//! the page before.
//!
//! # Terms
//!
//! | term | is | where |
//! |---|---|---|
//! | TLB Access Table, TAT | page, time stamp and thread of each TLB entry of every core | `access_table` |
//! | Page History Table, PHT | Sharers Vector and NUMA Vector of each page | `page_history` |
//! | Sharers Vector, SV | the last threads that used a page | `page_history`, Eq. 4, 5 |
//! | NUMA Vector, NV | a page's affinity to each node, in saturating counters | `numa_vector`, Eq. 6 to 9 |
//! | Sharing Matrix, SM | affinity between threads | [`SharingMatrix`], Eq. 3 |
//! | `CR_shift`, `CR_aging`, `CR_mig` | control registers | [`IpmConfig`] |
//! | `CR_tid` | the thread that runs on a core | [`Ipm::run`] |
//!
//! # The rule
//!
//! On each TLB miss ([`Ipm::tlb_miss`]):
//! 1. The TAT entry of the TLB entry is overwritten with page, time stamp and `CR_tid` (§4.3.1).
//! 2. If a page P was evicted, and the unit is not busy with an earlier eviction of this core, it
//!    takes P's old TAT entry: *Residency* (Eq. 1) and *Tid* (Eq. 2).
//! 3. `SM[Tid][s] += Residency` for every s in `SV_P` (Eq. 3); Tid enters `SV_P` (Eq. 4, 5).
//! 4. `NV_P` ages (Eq. 6) and the counter of the thread's node n grows by Residency (Eq. 7).
//! 5. If `NV_P[n] > NV_P[m] << CR_mig`, m being P's node, the operating system is notified: P should
//!    move to n (Eq. 8).
//!
//! The operating system's part: numbers for threads (§4.4.3, `histories`), more threads than
//! configured (§4.4.2), the pass over infrequently evicted pages (§4.4.1,
//! [`Ipm::pass_over_infrequently_evicted`]), ageing of the matrix ([`SharingMatrix::age`]). The
//! unit neither maps threads nor moves pages.
//!
//! # Readings, where the paper leaves a choice
//!
//! * *Which TLB level.* The last one: an entry is filled by a page walk and leaves the TLBs with it.
//! * *Busy*. Each core's unit is busy by itself (§6.3: "one event per core"), until the
//!   `eviction_cycles` of the last eviction that it took are over. A dropped eviction still
//!   overwrites its TAT entry, which would else describe a page that is no longer there.
//! * *Node n* is the node of the thread that caused the TLB miss (§4.3.3). At an eviction, that thread
//!   runs on the core that evicts. The pass has no such miss and takes the entry's own thread: the node
//!   where it runs now, or ran last if it sleeps. An entry without a thread counts for its core's node.
//! * *SV is empty* at first: an element without a thread adds to nothing. Vectors follow the equations literally, so a
//!   thread may be in SV twice, or find itself there (the matrix's diagonal).
//! * *References to a reused number are deleted*, but not the entries that hold them: a TLB entry
//!   filled by the former thread still counts for its page's NUMA Vector, which needs no thread.
//! * *The pass* renews the time stamp, as at the end of §4.3.1, so that no time counts twice. It is
//!   software and neither waits for the unit nor keeps it busy.
//! * *Invalidated entries* are no evictions: their residency is not counted.
//! * *Several applications* (§4.5.1): a matrix each, TAT and PHT for all. A page's sharers are
//!   threads of the application that used it first; for others only its NUMA Vector is kept.
//! * *Memory accesses* per handled eviction: one read and one write each of TAT and PHT, and of SM
//!   for each sharer; for two sharers, these are the paper's 4 and 4 (§4.5.4). A miss without an
//!   eviction takes one write. They are counted, not sent through the caches.
//!
//! # Properties held
//!
//! Counters stay within their bits. The affinity of two threads is symmetric. After a number is
//! reused, nothing refers to its former thread. Threads, nodes and cores are not limited in number.
//!
//! The unit is plain data: to use it from several host threads, put it behind a lock. It is needed
//! at TLB misses only, never at hits.

mod access_table;
mod config;
mod histories;
mod numa_vector;
mod page_history;
mod sharing_matrix;
mod storage;

pub use self::config::{IpmConfig, PeriodicPass};
pub use self::histories::{Credited, Histories, StartedThread};
pub use self::sharing_matrix::SharingMatrix;
pub use self::storage::{Storage, Structure};
use serde::Serialize;
use std::collections::HashMap;

use crate::HardwareError;
use crate::config::Config;
use crate::mmu::Fill;
use crate::page::Page;
use access_table::{AccessTable, Entry};

/// An application that the unit watches.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Application(u32);

/// A thread as the unit knows it: what `CR_tid` holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Thread {
    /// Its application.
    pub application: Application,
    /// Its number there: its row and column in the Sharing Matrix.
    pub number: u32,
}

/// A page that should be moved (Eq. 8).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Notification {
    /// The page.
    pub page: Page,
    /// Node that it is on.
    pub from: usize,
    /// Node that uses it intensely.
    pub to: usize,
}

/// What became of a TLB miss.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Eviction {
    /// Nothing was evicted, or only a page that no watched thread had brought in.
    None,
    /// The unit was busy with an earlier eviction.
    Dropped,
    /// The unit handled it. The core runs on meanwhile (§4.5.3). If software does the unit's work
    /// (§5.2), the caller must hold the core for the time ([`crate::Core::hold`],
    /// [`Config::picoseconds_of`] [`IpmConfig::eviction_cycles`]).
    Handled(Option<Notification>),
}

/// What the unit has done. All counts only grow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
pub struct IpmCounts {
    /// TLB misses reported to it.
    pub misses: u64,
    /// Evictions of pages that watched threads had brought in.
    pub evictions: u64,
    /// Of these, dropped because it was busy. It handled the others.
    pub dropped: u64,
    /// Entries handled in passes over infrequently evicted pages.
    pub infrequent: u64,
    /// Pages that should be moved, counted at each notification.
    pub notifications: u64,
    /// Memory reads it made in addition to the program's.
    pub memory_reads: u64,
    /// Memory writes, likewise.
    pub memory_writes: u64,
}

/// The IPM units of all cores, with the structures that they share in main memory.
#[derive(Debug)]
pub struct Ipm {
    config: IpmConfig,
    node_of_core: Vec<usize>,
    entries_per_core: usize,
    /// `CR_tid` of each core.
    running: Vec<Option<Thread>>,
    /// Core that each thread runs on, or ran on last.
    core_of: HashMap<Thread, usize>,
    /// Cycle from which each core's unit can take an eviction again.
    free_at: Vec<u64>,
    table: AccessTable,
    histories: Histories,
    next_pass: u64,
    counts: IpmCounts,
}

impl Ipm {
    /// The units of a valid machine with TLBs. Their structures are empty, and no core runs a
    /// watched thread.
    ///
    /// # Errors
    /// When the configuration is wrong, or the machine has no TLBs.
    pub fn new(config: IpmConfig, machine: &Config) -> Result<Self, HardwareError> {
        let tlb = machine.tlb.ok_or(HardwareError::NoTlb)?;
        let cores = machine.cores();
        let entries = cores * tlb.entries();
        Ok(Self {
            config,
            node_of_core: (0..cores).map(|core| machine.node_of_core(core)).collect(),
            entries_per_core: tlb.entries(),
            running: vec![None; cores],
            core_of: HashMap::new(),
            free_at: vec![0; cores],
            table: AccessTable::new(entries, config.cr_shift, config.time_stamp_bits),
            histories: Histories::new(config, machine.nodes())?,
            next_pass: config.pass.map_or(0, |pass| pass.every_cycles),
            counts: IpmCounts::default(),
        })
    }

    /// Begins to watch an application, with room for the configured number of threads.
    pub fn start_application(&mut self) -> Application {
        self.histories.start_application()
    }

    /// Stops watching an application: its matrix, its pages' histories and all references to its
    /// threads are deleted. Its name may be given to another.
    pub fn end_application(&mut self, application: Application) {
        self.histories.end_application(application);
        self.table.delete_application(application);
        for running in &mut self.running {
            *running = running.filter(|thread| thread.application != application);
        }
        self.core_of
            .retain(|thread, _| thread.application != application);
    }

    /// Gives a new thread its number (§4.4.3). If an ended thread had the number, its row and
    /// column are reset and all references to it deleted; if there is no room, structures grow
    /// (§4.4.2).
    ///
    /// # Panics
    /// When the application has ended.
    pub fn start_thread(&mut self, application: Application) -> Thread {
        let started = self.histories.start_thread(application);
        if started.reused {
            self.table.delete_thread(started.thread);
        }
        started.thread
    }

    /// Notes that a thread ended: its number may be given to another. Has no effect on a thread
    /// that has ended already.
    pub fn end_thread(&mut self, thread: Thread) {
        if self.histories.end_thread(thread) {
            for running in &mut self.running {
                *running = running.filter(|&other| other != thread);
            }
            self.core_of.remove(&thread);
        }
    }

    /// Sets `CR_tid` of a core: the thread that runs there from now on; None for one that is not
    /// watched.
    ///
    /// # Panics
    /// When there is no such core, or the thread has ended.
    pub fn run(&mut self, core: usize, thread: Option<Thread>) {
        let runs = thread.is_none_or(|thread| self.histories.is_running(thread));
        assert!(runs, "{thread:?} has ended and cannot run on core {core}");
        self.running[core] = thread;
        if let Some(thread) = thread {
            self.core_of.insert(thread, core);
        }
    }

    /// Handles a TLB miss of a core at a value `tsc` of the time-stamp counter, in cycles
    /// ([`Config::cycles`]). `node_of_page` returns the node that a page is on now, if any; it is
    /// called for the evicted page only.
    ///
    /// # Panics
    /// When there is no such core, entry or node.
    pub fn tlb_miss(
        &mut self,
        core: usize,
        fill: &Fill,
        tsc: u64,
        node_of_page: impl FnOnce(Page) -> Option<usize>,
    ) -> Eviction {
        self.counts.misses += 1;
        self.counts.memory_writes += 1;
        let filled = self.running[core].map(|thread| Entry {
            page: fill.page,
            time_stamp: self.table.time_stamp(tsc),
            application: thread.application,
            thread: Some(thread.number),
        });
        let index = self.index(core, fill.entry);
        let held = self.table.replace(index, filled);
        // An entry that was invalidated without a report to the unit holds another page than the
        // evicted one.
        let Some(entry) = held.filter(|entry| Some(entry.page) == fill.evicted) else {
            return Eviction::None;
        };
        self.counts.evictions += 1;
        if tsc < self.free_at[core] {
            self.counts.dropped += 1;
            return Eviction::Dropped;
        }
        self.free_at[core] = tsc.saturating_add(self.config.eviction_cycles);
        self.counts.memory_reads += 1;
        let node = self.node_of_core[core];
        Eviction::Handled(self.credit(node, tsc, &entry, node_of_page))
    }

    /// Credits an entry's residency to its page and thread (Eq. 1 to 8), for evictions and for the
    /// periodic pass.
    fn credit(
        &mut self,
        node: usize,
        tsc: u64,
        entry: &Entry,
        node_of_page: impl FnOnce(Page) -> Option<usize>,
    ) -> Option<Notification> {
        let residency = self.table.residency(tsc, entry);
        let credited = self.histories.credit(
            entry.page,
            entry.application,
            entry.thread,
            node,
            residency,
            node_of_page,
        );
        // One of the page's history, and one of each element of the matrix.
        self.counts.memory_reads += 1 + credited.sharers;
        self.counts.memory_writes += 1 + credited.sharers;
        self.counts.notifications += u64::from(credited.notification.is_some());
        credited.notification
    }

    /// The operating system's pass over pages that are evicted infrequently (§4.4.1): every entry
    /// of the TLB Access Table that has been there for [`PeriodicPass::resident_cycles`] is handled
    /// as if it were evicted, and begins a new residency.
    ///
    /// To be called regularly with the current time-stamp counter. Does nothing until
    /// [`PeriodicPass::every_cycles`] have passed since the last pass, or since 0, and nothing at
    /// all if no pass is configured. `notify` gets the pages to move.
    pub fn pass_over_infrequently_evicted(
        &mut self,
        tsc: u64,
        node_of_page: impl Fn(Page) -> Option<usize>,
        mut notify: impl FnMut(Notification),
    ) {
        let Some(pass) = self.config.pass else {
            return;
        };
        if tsc < self.next_pass {
            return;
        }
        self.next_pass = tsc.saturating_add(pass.every_cycles);
        let long = pass.resident_cycles >> self.config.cr_shift;
        for index in 0..self.table.len() {
            let Some(&entry) = self.table.get(index) else {
                continue;
            };
            if self.table.residency(tsc, &entry) < long {
                continue;
            }
            self.counts.infrequent += 1;
            self.counts.memory_reads += 1;
            self.counts.memory_writes += 1;
            let renewed = Entry {
                time_stamp: self.table.time_stamp(tsc),
                ..entry
            };
            self.table.replace(index, Some(renewed));
            let node = self.node_of_entry(index, &entry);
            if let Some(notification) = self.credit(node, tsc, &entry, &node_of_page) {
                notify(notification);
            }
        }
    }

    /// The node where an entry's thread runs or last ran; if the entry has no thread, its core's node.
    fn node_of_entry(&self, index: usize, entry: &Entry) -> usize {
        let thread = entry.thread.map(|number| Thread {
            application: entry.application,
            number,
        });
        let runs_on = thread.and_then(|thread| self.core_of.get(&thread).copied());
        self.node_of_core[runs_on.unwrap_or(index / self.entries_per_core)]
    }

    /// Notes that the TLB entry of a core was invalidated ([`crate::Mmu::invalidate`]).
    ///
    /// # Panics
    /// When there is no such core or entry.
    pub fn invalidated(&mut self, core: usize, entry: usize) {
        let index = self.index(core, entry);
        self.table.replace(index, None);
    }

    /// Notes that all TLB entries of a core were invalidated ([`crate::Mmu::flush`]).
    ///
    /// # Panics
    /// When there is no such core.
    pub fn flushed(&mut self, core: usize) {
        for entry in 0..self.entries_per_core {
            self.invalidated(core, entry);
        }
    }

    /// The histories of pages and threads. Affinities are in units of 2^`CR_shift` cycles.
    pub fn histories(&self) -> &Histories {
        &self.histories
    }

    /// What the units have done so far.
    pub fn counts(&self) -> &IpmCounts {
        &self.counts
    }

    fn index(&self, core: usize, entry: usize) -> usize {
        let entries = self.entries_per_core;
        assert!(
            entry < entries,
            "a core's TLB has {entries} entries, not {entry}"
        );
        core * entries + entry
    }
}

#[cfg(test)]
mod any_program;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod worked_example;
