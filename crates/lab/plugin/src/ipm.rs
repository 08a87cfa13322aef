// SPDX-License-Identifier: GPL-2.0-or-later
//! The machine's IPM unit ([`numaherd_hardware::Ipm`]), with the guest's processes, threads and
//! pages, and its records for a program of the guest.
//!
//! * **Applications and threads** are the guest's processes and threads, known to the unit from their first access on.
//!   `CR_tid` is set before the first access after a switch, which is as good as at the switch: without accesses there
//!   are no TLB misses. A thread's number can be reused once it has ended, an application's when its last known thread
//!   has ended or it calls exec.
//! * **Pages** of different processes have different numbers: the bits above the virtual page number hold a number of
//!   the address space. TLB entries contain it, too, so a switch flushes nothing.
//! * **A page's node** is where its last TLB fill found it. A plugin cannot see the kernel's invalidations. So each
//!   vCPU remembers the frames of the pages that it used last. When it finds a page in another frame, the page leaves
//!   that vCPU's TLB, and its node is the new one from then on ([`Frames`]). Until a vCPU uses a moved page again, the
//!   unit assumes its old node.
//! * **Cost**: none, since the unit is hardware beside the TLB. The page walk itself takes the TLB's time.
//!
//! The unit is locked at TLB misses, at a thread's first access after a switch and its end, when a
//! page is found in another frame, and when a program reads.

pub mod protocol;

use std::collections::{BTreeMap, HashMap, VecDeque};

use numaherd_hardware::{
    Application, Config, Eviction, Fill, HardwareError, Ipm, IpmConfig, Notification, Page, Thread,
};

use protocol::{Notice, Pair};

/// Bits of a user's virtual address.
const ADDRESS_BITS: u32 = 48;

/// Bits of an address within a page of the guest's kernel.
const KERNEL_PAGE_BITS: u32 = 12;

/// A page number that no user page has.
const NO_PAGE: u64 = u64::MAX;

/// The numbering of the pages of many address spaces.
#[derive(Clone, Copy, Debug)]
pub struct Numbering {
    page_bits: u32,
}

impl Numbering {
    /// For pages of this size, a power of two.
    pub fn new(page_bytes: u64) -> Self {
        Self {
            page_bits: page_bytes.trailing_zeros(),
        }
    }

    /// The page of an address in an address space.
    #[inline]
    pub fn page(self, space: u32, address: u64) -> Page {
        let within = address >> self.page_bits;
        Page::new(u64::from(space) << (ADDRESS_BITS - self.page_bits) | within)
    }

    /// Address space and first byte of a page.
    fn place(self, page: Page) -> (u32, u64) {
        let bits = ADDRESS_BITS - self.page_bits;
        let within = page.number() & ((1 << bits) - 1);
        ((page.number() >> bits) as u32, within << self.page_bits)
    }

    fn page_bytes(self) -> u64 {
        1 << self.page_bits
    }
}

/// The frames in which a vCPU last found its pages: a direct-mapped table, indexed by page number.
/// It has several times as many places as the TLB has entries, so few pages in the TLB share a
/// place; of those that do, it remembers only the latest.
#[derive(Debug)]
pub struct Frames(Box<[(u64, u64)]>);

impl Frames {
    /// For a TLB of this many entries.
    pub fn new(entries: usize) -> Self {
        let places = (4 * entries).next_power_of_two();
        Self(vec![(NO_PAGE, 0); places].into())
    }

    /// Whether the page of this address was in another frame when it was last used.
    #[inline]
    pub fn moved(&mut self, space: u32, address: u64, physical_address: u64) -> bool {
        let within = address >> KERNEL_PAGE_BITS;
        let page = u64::from(space) << (ADDRESS_BITS - KERNEL_PAGE_BITS) | within;
        let frame = physical_address >> KERNEL_PAGE_BITS;
        // Adjacent pages get adjacent places; the hash separates address spaces.
        let place =
            (within ^ u64::from(space).wrapping_mul(0x9e37_79b1)) as usize & (self.0.len() - 1);
        let (before, last) = std::mem::replace(&mut self.0[place], (page, frame));
        before == page && last != frame
    }
}

/// A process as the unit knows it.
#[derive(Debug)]
struct Process {
    application: Application,
    space: u32,
    /// Its threads, by thread id in the guest.
    threads: BTreeMap<u32, Thread>,
}

/// The unit and its state in the plugin.
#[derive(Debug)]
pub struct Unit {
    ipm: Ipm,
    numbering: Numbering,
    processes: HashMap<u32, Process>,
    /// Process of each address space.
    owners: HashMap<u32, u32>,
    next_space: u32,
    /// Node on which each page was last found.
    homes: HashMap<Page, usize>,
    /// Thread and process of each core's last call of [`Unit::run`].
    running: Vec<(u32, u32)>,
    /// Unread notifications, at most one for each page.
    notices: HashMap<Page, Notice>,
    /// Their order; pages without a notice are skipped.
    order: VecDeque<Page>,
    /// Requested records that are not read yet.
    answer: VecDeque<Vec<u8>>,
    /// A record for which the last reader had no room.
    held: Option<Vec<u8>>,
}

impl Unit {
    /// The unit of a machine with TLBs.
    ///
    /// # Errors
    /// When its configuration is wrong.
    pub fn new(config: IpmConfig, machine: &Config) -> Result<Self, HardwareError> {
        let tlb = machine.tlb.ok_or(HardwareError::NoTlb)?;
        Ok(Self {
            ipm: Ipm::new(config, machine)?,
            numbering: Numbering::new(tlb.page_bytes),
            processes: HashMap::new(),
            owners: HashMap::new(),
            next_space: 0,
            homes: HashMap::new(),
            running: vec![(0, 0); machine.cores()],
            notices: HashMap::new(),
            order: VecDeque::new(),
            answer: VecDeque::new(),
            held: None,
        })
    }

    /// The numbering of its pages.
    pub fn numbering(&self) -> Numbering {
        self.numbering
    }

    /// Notes that a thread is about to access memory on a core. Returns its address space.
    pub fn run(&mut self, core: usize, (tid, tgid): (u32, u32)) -> u32 {
        let ipm = &mut self.ipm;
        let process = self.processes.entry(tgid).or_insert_with(|| {
            let space = self.next_space;
            self.next_space += 1;
            self.owners.insert(space, tgid);
            Process {
                application: ipm.start_application(),
                space,
                threads: BTreeMap::new(),
            }
        });
        let application = process.application;
        let thread = process.threads.entry(tid);
        let thread = *thread.or_insert_with(|| ipm.start_thread(application));
        ipm.run(core, Some(thread));
        self.running[core] = (tid, tgid);
        process.space
    }

    /// Notes that a thread has ended.
    pub fn end_thread(&mut self, (tid, tgid): (u32, u32)) {
        let Some(process) = self.processes.get_mut(&tgid) else {
            return;
        };
        if let Some(thread) = process.threads.remove(&tid) {
            self.ipm.end_thread(thread);
        }
        if process.threads.is_empty() {
            self.end_process(tgid);
        }
    }

    /// Notes that a process has ended, or has replaced its memory by exec.
    pub fn end_process(&mut self, tgid: u32) {
        let Some(process) = self.processes.remove(&tgid) else {
            return;
        };
        self.ipm.end_application(process.application);
        self.owners.remove(&process.space);
        let gone = |page: Page| self.numbering.place(page).0 == process.space;
        self.homes.retain(|&page, _| !gone(page));
        self.notices.retain(|&page, _| !gone(page));
        self.order.retain(|&page| !gone(page));
    }

    /// Handles a TLB miss of a core for a page on `home`, at a time in ns and in cycles.
    pub fn miss(
        &mut self,
        core: usize,
        fill: &Fill,
        home: Option<usize>,
        cycles: u64,
        time_ns: u64,
    ) {
        self.found_on(fill.page, home);
        let homes = &self.homes;
        let eviction = self
            .ipm
            .tlb_miss(core, fill, cycles, |page| homes.get(&page).copied());
        if let Eviction::Handled(Some(notification)) = eviction {
            let running = self.running[core];
            self.notify(notification, running, time_ns);
        }
    }

    /// Notes that a page is on this node. If its notice asked to move it there, removes the notice.
    fn found_on(&mut self, page: Page, home: Option<usize>) {
        match home {
            Some(node) => self.homes.insert(page, node),
            None => self.homes.remove(&page),
        };
        if !self.notices.is_empty()
            && let Some(notice) = self.notices.get(&page)
            && home == Some(notice.to as usize)
        {
            self.notices.remove(&page);
        }
    }

    /// Notes that a page was found in another frame than before; `entry` was its TLB entry on this core.
    pub fn moved(&mut self, core: usize, page: Page, entry: Option<usize>, home: Option<usize>) {
        if let Some(entry) = entry {
            self.ipm.invalidated(core, entry);
        }
        self.found_on(page, home);
    }

    /// Makes the pass over infrequently evicted pages, if it is due.
    pub fn pass(&mut self, cycles: u64, time_ns: u64) {
        let homes = &self.homes;
        let mut found = Vec::new();
        self.ipm.pass_over_infrequently_evicted(
            cycles,
            |page| homes.get(&page).copied(),
            |notification| found.push(notification),
        );
        for notification in found {
            self.notify(notification, (0, 0), time_ns);
        }
    }

    fn notify(&mut self, notification: Notification, (tid, runs): (u32, u32), time_ns: u64) {
        let page = notification.page;
        let (space, address) = self.numbering.place(page);
        // Its process may have ended with the page still in a TLB.
        let Some(&tgid) = self.owners.get(&space) else {
            return;
        };
        let notice = Notice {
            tgid,
            tid: if runs == tgid { tid } else { 0 },
            from: notification.from as u32,
            to: notification.to as u32,
            address,
            page_bytes: self.numbering.page_bytes(),
            time_ns,
        };
        if self.notices.insert(page, notice).is_none() {
            self.order.push_back(page);
        }
    }

    /// Makes the next reads return the counts and the sharing of pages as they are now.
    pub fn ask_for_sharing(&mut self, time_ns: u64) {
        let counts = self.ipm.counts();
        self.answer = VecDeque::from([protocol::counts(&[
            counts.misses,
            counts.evictions,
            counts.dropped,
            counts.infrequent,
            counts.notifications,
            counts.memory_reads,
            counts.memory_writes,
            u64::from(self.ipm.histories().config().cr_shift),
        ])]);
        let mut processes: Vec<_> = self.processes.iter().collect();
        processes.sort_unstable_by_key(|&(&tgid, _)| tgid);
        for (&tgid, process) in processes {
            let threads = process.threads.len() as u32;
            let pairs = self.pairs(process);
            self.answer
                .extend(protocol::sharing(tgid, threads, time_ns, &pairs));
        }
    }

    /// The pairs of a process's threads that share pages.
    fn pairs(&self, process: &Process) -> Vec<Pair> {
        let Some(matrix) = self.ipm.histories().matrix(process.application) else {
            return Vec::new();
        };
        let threads: Vec<(u32, u32)> = process
            .threads
            .iter()
            .map(|(&tid, thread)| (tid, thread.number))
            .collect();
        let mut pairs = Vec::new();
        for (at, &(one, row)) in threads.iter().enumerate() {
            for &(other, column) in &threads[at + 1..] {
                let affinity = matrix.between(row, column);
                if affinity > 0 {
                    pairs.push(Pair {
                        one,
                        other,
                        affinity,
                    });
                }
            }
        }
        pairs
    }

    /// Whole records of at most `room` bytes in all: requested ones, then notifications. None if
    /// there is a record, but no room for it.
    pub fn read(&mut self, room: usize) -> Option<Vec<u8>> {
        let mut read = Vec::new();
        while let Some(record) = self.next_record() {
            if read.len() + record.len() > room {
                self.held = Some(record);
                return (!read.is_empty()).then_some(read);
            }
            read.extend(record);
        }
        Some(read)
    }

    fn next_record(&mut self) -> Option<Vec<u8>> {
        if let Some(record) = self.held.take().or_else(|| self.answer.pop_front()) {
            return Some(record);
        }
        while let Some(page) = self.order.pop_front() {
            if let Some(notice) = self.notices.remove(&page) {
                return Some(protocol::notification(&notice));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
