//! A kernel for tests: threads, masks, pages and nodes in memory, and every refusal on order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{ProcessId, Thread, ThreadId};

use crate::files::Root;
use crate::kernel::{Attribute, Errno, HintMap, Kernel, Mapped};
use crate::proc::cpuinfo::Processor;

/// An empty tree.
pub(crate) fn root() -> (tempfile::TempDir, Root) {
    let folder = tempfile::tempdir().unwrap();
    let root = Root::new(folder.path());
    (folder, root)
}

/// A sleeping thread without a name.
pub(crate) fn thread(process: ProcessId, tid: u32) -> Thread {
    Thread {
        id: ThreadId { tid, born: 1 },
        process,
        name: String::new(),
        cpu: CpuId(0),
        assigned: None,
        affinity: Arc::default(),
        cpuset: Arc::default(),
        cpu_share: 0.0,
        wait_share: 0.0,
        tag: None,
        counts: None,
        unmanaged: None,
    }
}

/// Some descriptor.
pub(crate) fn anything() -> OwnedFd {
    tempfile::tempfile().unwrap().into()
}

/// A processor with known events.
pub(crate) fn skylake() -> Processor {
    Processor {
        vendor: "GenuineIntel".into(),
        family: 6,
        model: 0x55,
        ..Processor::default()
    }
}

#[derive(Debug, Default)]
struct State {
    threads: BTreeMap<u32, (u64, CpuSet)>,
    refuse_affinity: Option<Errno>,
    refuse_next_affinities: (Option<Errno>, u32),
    /// Extra time that passes on the clock in each pause.
    slowness_ns: u64,
    pauses: u32,
    narrow_to: Option<CpuSet>,
    hints: BTreeMap<u32, u64>,
    refuse_hints: Option<Errno>,
    reuse_after_set: Option<(u32, u64)>,
    /// A folder of processes, and a chain of them: by the time the first is looked at, it has started the second and
    /// ended.
    succeed: (PathBuf, VecDeque<u32>),
    /// Page address to node, or to a negative errno.
    pages: BTreeMap<u64, i32>,
    /// Pages that never move: a status that they keep.
    stuck: BTreeMap<u64, i32>,
    /// Pages that other processes map, too.
    mapped_again: BTreeSet<u64>,
    /// First page address of each larger folio to its pages.
    folios: BTreeMap<u64, u64>,
    free: BTreeMap<i32, u64>,
    refuse_moves: VecDeque<Errno>,
    dies_after_batches: Option<u32>,
    batches: Vec<usize>,
    questions: usize,
    ns_per_page: u64,
    now_ns: u64,
    ns_per_clock_reading: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FakeKernel {
    state: Mutex<State>,
}

impl FakeKernel {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn thread(&self, tid: u32, born: u64, mask: CpuSet) {
        self.with(|state| state.threads.insert(tid, (born, mask)));
    }

    pub(crate) fn mask(&self, tid: u32) -> Option<CpuSet> {
        self.with(|state| state.threads.get(&tid).map(|(_, mask)| mask.clone()))
    }

    pub(crate) fn refuse_affinity(&self, errno: Errno) {
        self.with(|state| state.refuse_affinity = Some(errno));
    }

    /// The next calls that set a mask, so many of them.
    pub(crate) fn refuse_next_affinities(&self, errno: Errno, calls: u32) {
        self.with(|state| state.refuse_next_affinities = (Some(errno), calls));
    }

    /// Makes every pause last this much longer.
    pub(crate) fn slow(&self, ns: u64) {
        self.with(|state| state.slowness_ns = ns);
    }

    /// Makes this much time pass at each reading of the clock.
    pub(crate) fn ns_per_clock_reading(&self, ns: u64) {
        self.with(|state| state.ns_per_clock_reading = ns);
    }

    /// How often somebody paused.
    pub(crate) fn pauses(&self) -> u32 {
        self.with(|state| state.pauses)
    }

    pub(crate) fn narrow_to(&self, cpuset: CpuSet) {
        self.with(|state| state.narrow_to = Some(cpuset));
    }

    pub(crate) fn reuse_after_set(&self, tid: u32, born: u64) {
        self.with(|state| state.reuse_after_set = Some((tid, born)));
    }

    /// Each of these single-threaded processes, of which the first exists, starts the next one and ends before its mask
    /// can be read.
    pub(crate) fn succeed(&self, proc: &Path, chain: impl IntoIterator<Item = u32>) {
        let chain = chain.into_iter().collect();
        self.with(|state| state.succeed = (proc.to_owned(), chain));
    }

    pub(crate) fn hint(&self, tid: u32) -> Option<u64> {
        self.with(|state| state.hints.get(&tid).copied())
    }

    pub(crate) fn refuse_hints(&self, errno: Errno) {
        self.with(|state| state.refuse_hints = Some(errno));
    }

    /// Base pages from `first` (a page number) on, on a node.
    pub(crate) fn pages(&self, first: u64, count: u64, node: i32) {
        self.with(|state| {
            state
                .pages
                .extend((first..first + count).map(|page| (page * 4096, node)));
        });
    }

    /// A page that answers every move with this negative errno.
    pub(crate) fn stuck(&self, page: u64, status: i32) {
        self.with(|state| state.stuck.insert(page * 4096, status));
    }

    /// Pages from `first` (a page number) on that other processes map, too.
    pub(crate) fn mapped_again(&self, first: u64, count: u64) {
        let pages = (first..first + count).map(|page| page * 4096);
        self.with(|state| state.mapped_again.extend(pages));
    }

    /// Huge pages from `first` (a page number) on.
    pub(crate) fn huge(&self, first: u64, count: u64) {
        self.folios(first, count * 512, 512);
    }

    /// Folios of `size` pages each that make up `pages` pages from `first` on; the remainder are single pages.
    pub(crate) fn folios(&self, first: u64, pages: u64, size: u64) {
        self.with(|state| {
            let firsts = (0..pages / size).map(|i| ((first + i * size) * 4096, size));
            state.folios.extend(firsts);
        });
    }

    /// Free pages of a node; unlimited if not set.
    pub(crate) fn free(&self, node: i32, pages: u64) {
        self.with(|state| state.free.insert(node, pages));
    }

    pub(crate) fn refuse_next_move(&self, errno: Errno) {
        self.with(|state| state.refuse_moves.push_back(errno));
    }

    pub(crate) fn dies_after_batches(&self, batches: u32) {
        self.with(|state| state.dies_after_batches = Some(batches));
    }

    pub(crate) fn ns_per_page(&self, ns: u64) {
        self.with(|state| state.ns_per_page = ns);
    }

    pub(crate) fn batches(&self) -> Vec<usize> {
        self.with(|state| state.batches.clone())
    }

    /// How often it was asked where pages are.
    pub(crate) fn questions(&self) -> usize {
        self.with(|state| state.questions)
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.with(|state| state.now_ns += u64::try_from(time.as_nanos()).unwrap());
    }

    pub(crate) fn pages_on(&self, node: i32) -> usize {
        self.page_numbers_on(node).len()
    }

    pub(crate) fn page_numbers_on(&self, node: i32) -> Vec<u64> {
        self.with(|state| {
            let there = state.pages.iter().filter(|&(_, on)| *on == node);
            there.map(|(address, _)| address / 4096).collect()
        })
    }
}

impl Kernel for FakeKernel {
    fn affinity(&self, tid: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
        self.with(|state| {
            let (proc, chain) = &mut state.succeed;
            if chain.front() == Some(&tid) && chain.len() > 1 {
                chain.pop_front();
                let by = chain[0];
                let thread = state.threads.remove(&tid).expect("it is there");
                state.threads.insert(by, thread);
                let of = |pid: u32| proc.join(pid.to_string());
                fs::rename(of(tid), of(by)).unwrap();
                let task = |tid: u32| of(by).join("task").join(tid.to_string());
                fs::rename(task(tid), task(by)).unwrap();
            }
        });
        let mask = self.mask(tid).ok_or(Errno::SRCH)?;
        words.clear();
        words.extend_from_slice(mask.as_words());
        Ok(())
    }

    fn set_affinity(&self, tid: u32, cpus: &CpuSet) -> Result<(), Errno> {
        self.with(|state| {
            if let Some(errno) = state.refuse_affinity {
                return Err(errno);
            }
            if let (Some(errno), left @ 1..) = &mut state.refuse_next_affinities {
                *left -= 1;
                return Err(*errno);
            }
            let cpus = match &state.narrow_to {
                Some(cpuset) => cpus.intersection(cpuset),
                None => cpus.clone(),
            };
            let thread = state.threads.get_mut(&tid).ok_or(Errno::SRCH)?;
            thread.1 = cpus;
            if let Some((tid, born)) = state.reuse_after_set
                && let Some(thread) = state.threads.get_mut(&tid)
            {
                thread.0 = born;
            }
            Ok(())
        })
    }

    fn set_hint(&self, _: &HintMap, thread: ThreadId, hint: u64) -> Result<bool, Errno> {
        self.with(|state| {
            if let Some(errno) = state.refuse_hints {
                return Err(errno);
            }
            let is_there =
                state.threads.get(&thread.tid).map(|(born, _)| *born) == Some(thread.born);
            if is_there {
                state.hints.insert(thread.tid, hint);
            }
            Ok(is_there)
        })
    }

    fn hint_of(&self, _: &HintMap, tid: u32) -> Result<Option<u64>, Errno> {
        Ok(self.hint(tid))
    }

    fn born(&self, tid: u32) -> Option<u64> {
        self.with(|state| state.threads.get(&tid).map(|(born, _)| *born))
    }

    fn where_are(&self, pid: u32, addresses: &[u64], status: &mut [i32]) -> Result<(), Errno> {
        self.with(|state| {
            if !state.threads.contains_key(&pid) {
                return Err(Errno::SRCH);
            }
            state.questions += 1;
            for (address, status) in addresses.iter().zip(status) {
                *status = state.pages.get(address).copied().unwrap_or(-2);
            }
            Ok(())
        })
    }

    fn move_pages(
        &self,
        pid: u32,
        addresses: &[u64],
        node: i32,
        status: &mut [i32],
        which: Mapped,
    ) -> Result<u64, Errno> {
        self.with(|state| {
            if !state.threads.contains_key(&pid) {
                return Err(Errno::SRCH);
            }
            state.batches.push(addresses.len());
            state.now_ns += state.ns_per_page * addresses.len() as u64;
            if let Some(errno) = state.refuse_moves.pop_front() {
                return Err(errno);
            }
            let mut unmoved = 0;
            let mut full = false;
            // First pages of the folios that this call has collected.
            let mut taken = BTreeMap::new();
            for (address, status) in addresses.iter().zip(status.iter_mut()) {
                match state.stuck.get(address) {
                    // EBUSY is only counted by the kernel; other errors are the page's status.
                    Some(-16) => unmoved += 1,
                    Some(errno) => *status = *errno,
                    None if which == Mapped::Alone && state.mapped_again.contains(address) => {
                        *status = -libc::EACCES;
                    }
                    None => {
                        let folio = state.folios.range(..=*address).next_back();
                        let (first, size) = folio
                            .filter(|(first, size)| *address < **first + **size * 4096)
                            // A folio moves as a whole: one with a stuck page is none.
                            .filter(|(first, size)| {
                                let pages = **first..**first + **size * 4096;
                                state.stuck.range(pages).next().is_none()
                            })
                            .map_or((*address, 1), |(first, size)| (*first, *size));
                        match taken.get_mut(&first) {
                            // Its second page finds it taken, the others find it moved.
                            Some(seen @ false) => {
                                *seen = true;
                                *status = -16;
                            }
                            Some(true) => *status = node,
                            None if state.pages.get(address) == Some(&node) => *status = node,
                            None => {
                                if let Some(free) = state.free.get_mut(&node) {
                                    if *free < size {
                                        full = true;
                                        continue;
                                    }
                                    *free -= size;
                                }
                                let pages = (0..size).map(|i| (first + i * 4096, node));
                                state.pages.extend(pages);
                                taken.insert(first, false);
                                *status = node;
                            }
                        }
                    }
                }
            }
            if let Some(left) = &mut state.dies_after_batches {
                *left -= 1;
                if *left == 0 {
                    state.threads.remove(&pid);
                }
            }
            if full { Err(Errno::NOMEM) } else { Ok(unmoved) }
        })
    }

    fn now_ns(&self) -> u64 {
        self.with(|state| {
            state.now_ns += state.ns_per_clock_reading;
            state.now_ns
        })
    }

    fn pause(&self, time: Duration) {
        self.with(|state| {
            state.now_ns += u64::try_from(time.as_nanos()).unwrap() + state.slowness_ns;
            state.pauses += 1;
        });
    }
}

/// Counters that answer by rule.
pub(crate) struct Counters<F>(pub(crate) F);

impl<F> std::fmt::Debug for Counters<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counters")
    }
}

impl<F> Kernel for Counters<F>
where
    F: Fn(&Attribute, Option<u32>, Option<u32>) -> Result<OwnedFd, Errno> + Send + Sync,
{
    fn open(
        &self,
        attribute: &Attribute,
        tid: Option<u32>,
        cpu: Option<u32>,
        _: Option<BorrowedFd<'_>>,
    ) -> Result<OwnedFd, Errno> {
        (self.0)(attribute, tid, cpu)
    }
}
