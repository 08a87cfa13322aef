//! On which nodes each process's pages are, from `numa_maps`, within a budget.
//!
//! For one reading, the kernel walks the page tables of a process, which takes seconds for terabytes, and holds its
//! memory lock meanwhile. So a process is read again only when its last reading has been paid for: at a share of 1 %, a
//! reading of 10 ms allows the next after 1 s. All processes together keep to the same share of a tick, the longest
//! unread first. Processes that were never read go first: those that run, then the oldest, until these readings have
//! taken as long as the tick, so that looks go on among thousands. A process whose pages Numaherd has since moved is
//! read again ten times as soon, and at once if moving them took at least as long as reading does. One that has grown
//! to twice its pages within ten seconds of its first reading is read again at once: programs load their data when they
//! begin.
//!
//! A process that has just been forked shares its parent's pages until one of them writes. So what was read of the parent
//! holds for it, too, except that private pages now count as shared. While it has the same name and about as many pages,
//! it is not read itself until that has been paid for: a pool of workers over one large table is read once, and not once
//! for each worker.
//!
//! The same file shows a memory policy that the user gave the process (`numactl`, `mbind`). On machines with memory
//! apart from CPUs, it and `maps` show which mappings hold much private memory.
//!
//! A kernel without numa_maps (CONFIG_NUMA off) has one node, and all resident memory is on it.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use numaherd_topology::NodeId;
use numaherd_world::{BLOCK_PAGES, Extent, MemoryKind, ProcessId, Residency};

use crate::files::Root;
use crate::kernel::Kernel;
use crate::proc::numa_maps::NodePages;
use crate::proc::{decimal, maps, numa_maps, words};

/// How long after its first reading a process is watched for growth, in ns (chosen here).
const YOUNG: u64 = 10_000_000_000;
/// Processes with fewer pages are read even if they have just been forked: that takes less than a millisecond.
const MANY: u64 = 8 * BLOCK_PAGES;
/// By what part of its parent's pages the number of its own may differ (chosen here).
const ALIKE: u64 = 4;
/// How many times its share a process may cost if its pages have moved since it was read (chosen here).
const WHERE_MOVED: f64 = 10.0;

/// A process as of the last scan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: ProcessId,
    /// Whether it ran in the last interval; otherwise, its pages stay where they are.
    pub(crate) ran: bool,
    /// Its parent, if that is watched and runs a program of the same name.
    pub(crate) parent: Option<ProcessId>,
}

#[derive(Clone, Debug, Default)]
struct Read {
    residency: Option<Residency>,
    policy: Option<Arc<str>>,
    extents: Arc<[Extent]>,
    /// When it was first read, and last.
    since_ns: u64,
    at_ns: u64,
    took_ns: u64,
    /// How long moving pages has taken since; 0: none were moved.
    moving_ns: u64,
}

/// Reads where pages are.
#[derive(Debug)]
pub(crate) struct Residencies {
    root: Root,
    page_bytes: u64,
    share: f64,
    only_node: Option<NodeId>,
    /// Whether extents are told.
    with_extents: bool,
    known: HashMap<ProcessId, Read>,
    buffer: Vec<u8>,
}

impl Residencies {
    /// `only_node` is the node of a machine that has one.
    pub(crate) fn new(root: Root, page_bytes: u64, share: f64, only_node: Option<NodeId>) -> Self {
        Self {
            root,
            page_bytes,
            share: share.clamp(0.0, 1.0),
            only_node,
            with_extents: false,
            known: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// The same; reports extents if `needed`.
    pub(crate) fn with_extents(self, needed: bool) -> Self {
        Self {
            with_extents: needed,
            ..self
        }
    }

    /// Notes that pages of a process were moved, so that its last reading is outdated.
    pub(crate) fn moved(&mut self, process: ProcessId, took_ns: u64) {
        if let Some(read) = self.known.get_mut(&process) {
            read.moving_ns = read.moving_ns.saturating_add(took_ns.max(1));
        }
    }

    /// Reads again what is due among these processes; forgets all others.
    pub(crate) fn refresh(&mut self, kernel: &dyn Kernel, processes: &[Seen], interval_ns: u64) {
        let alive: HashSet<ProcessId> = processes.iter().map(|process| process.id).collect();
        self.known.retain(|process, _| alive.contains(process));
        let now = kernel.now_ns();
        let new = (processes.iter()).filter(|process| !self.known.contains_key(&process.id));
        let parents: HashSet<ProcessId> = new.filter_map(|process| process.parent).collect();
        // Last reading, idleness and process of each. Those never read come first, and with them their parents.
        let mut due: Vec<(Option<u64>, bool, Seen)> = Vec::new();
        for &seen in processes {
            let is_parent = parents.contains(&seen.id);
            let Some(read) = self.known.get(&seen.id) else {
                due.push((None, !seen.ran && !is_parent, seen));
                continue;
            };
            let last = (!is_parent).then_some(read.at_ns);
            if seen.ran && (self.is_paid(read, now) || self.has_doubled(seen.id, now)) {
                due.push((last, false, seen));
            }
        }
        due.sort_unstable_by_key(|&(last, idle, seen)| (last, idle, seen.id.born, seen.id.pid));
        let again_ns = (interval_ns as f64 * self.share) as u64;
        let mut spent = 0;
        for (last, _, seen) in due {
            let process = seen.id;
            if !self.known.contains_key(&process)
                && let Some(read) = self.of_parent(seen, now)
            {
                self.known.insert(process, read);
                continue;
            }
            let budget = if last.is_none() {
                interval_ns
            } else {
                again_ns
            };
            if spent >= budget {
                continue;
            }
            let began = kernel.now_ns();
            let first_ns = self.known.get(&process).map(|read| read.since_ns);
            let mut read = self.read(process);
            read.at_ns = kernel.now_ns();
            read.since_ns = first_ns.unwrap_or(read.at_ns);
            read.took_ns = read.at_ns.saturating_sub(began);
            spent += read.took_ns;
            self.known.insert(process, read);
        }
    }

    /// What was read of the parent of a process, as it holds for a fork, if the process still has about as many pages.
    fn of_parent(&mut self, seen: Seen, now_ns: u64) -> Option<Read> {
        let parent = seen.parent?;
        let pages = self.of(parent).map(Residency::total);
        let pages = pages.filter(|&pages| pages >= MANY)?;
        if self.resident(seen.id)?.abs_diff(pages) > pages / ALIKE {
            return None;
        }
        let read = self.known.get(&parent)?.clone();
        Some(Read {
            residency: read.residency.as_ref().map(numa_maps::of_fork),
            extents: Arc::default(),
            since_ns: now_ns,
            at_ns: now_ns,
            ..read
        })
    }

    /// Whether a reading has been paid for.
    fn is_paid(&self, read: &Read, now_ns: u64) -> bool {
        let share = match read.moving_ns {
            0 => self.share,
            _ => (self.share * WHERE_MOVED).min(1.0),
        };
        let paid_after = read.took_ns as f64 / share.max(1e-6);
        let is_moved = read.moving_ns > 0 && read.moving_ns >= read.took_ns;
        is_moved || now_ns.saturating_sub(read.at_ns) as f64 >= paid_after
    }

    /// Whether a process now has twice the pages of its last reading, soon after its first.
    fn has_doubled(&mut self, process: ProcessId, now_ns: u64) -> bool {
        let Some(read) =
            (self.known.get(&process)).filter(|read| now_ns.saturating_sub(read.since_ns) < YOUNG)
        else {
            return false;
        };
        let before = read.residency.as_ref().map(Residency::total);
        let doubled = before.map(|before| before.saturating_mul(2));
        doubled.is_some_and(|doubled| self.resident(process).is_some_and(|now| now >= doubled))
    }

    /// Where the pages of a process were when last read; `None` if that is unknown.
    pub(crate) fn of(&self, process: ProcessId) -> Option<&Residency> {
        self.known.get(&process)?.residency.as_ref()
    }

    /// The memory policy that a user set for all or part of a process's memory, as of the same time.
    pub(crate) fn policy_of(&self, process: ProcessId) -> Option<&Arc<str>> {
        self.known.get(&process)?.policy.as_ref()
    }

    /// Where a process has much private memory, as of the same time.
    pub(crate) fn extents_of(&self, process: ProcessId) -> Arc<[Extent]> {
        let read = self.known.get(&process);
        read.map_or_else(Arc::default, |read| read.extents.clone())
    }

    /// All but the times.
    fn read(&mut self, process: ProcessId) -> Read {
        let file = format!("proc/{}/numa_maps", process.pid);
        match self.root.read_into(&file, &mut self.buffer) {
            Ok(()) => {
                let program = self.root.path(&format!("proc/{}/exe", process.pid));
                let program = std::fs::read_link(program).ok();
                let program = program.as_ref().map(|path| path.as_os_str().as_bytes());
                let mappings = numa_maps::parse(&self.buffer, self.page_bytes, program);
                let policy = mappings
                    .iter()
                    .find_map(|mapping| mapping.policy.as_deref());
                Read {
                    residency: Some(numa_maps::residency(&mappings)),
                    policy: policy.map(Arc::from),
                    extents: self.extents(process, mappings),
                    ..Read::default()
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Read {
                residency: self.all_on_the_only_node(process),
                ..Read::default()
            },
            Err(_) => Read::default(),
        }
    }

    /// The mappings of private memory with at least a block, and their ends, which only `maps` has.
    fn extents(&mut self, process: ProcessId, mappings: Vec<NodePages>) -> Arc<[Extent]> {
        let file = format!("proc/{}/maps", process.pid);
        if !self.with_extents || self.root.read_into(&file, &mut self.buffer).is_err() {
            return Arc::default();
        }
        let is_large = |mapping: &NodePages| {
            let pages = mapping.pages.iter().map(|&(_, pages)| pages);
            pages.fold(0, u64::saturating_add) >= BLOCK_PAGES
        };
        let mut large: HashMap<u64, NodePages> = (mappings.into_iter())
            .filter(|mapping| mapping.kind() == Some(MemoryKind::Private) && is_large(mapping))
            .map(|mapping| (mapping.start, mapping))
            .collect();
        let extent = |mapping: maps::Mapping| {
            let mut on = large.remove(&mapping.start)?.pages;
            on.sort_unstable();
            Some(Extent {
                pages: mapping.start / self.page_bytes..mapping.end / self.page_bytes,
                on,
            })
        };
        let movable = maps::parse(&self.buffer).into_iter().filter(|m| m.movable);
        movable.filter_map(extent).collect()
    }

    fn all_on_the_only_node(&mut self, process: ProcessId) -> Option<Residency> {
        let node = self.only_node?;
        let resident = self.resident(process)?;
        Some(Residency {
            pages: vec![(node, resident)],
            kinds: None,
        })
    }

    /// Resident pages of a process.
    fn resident(&mut self, process: ProcessId) -> Option<u64> {
        let file = format!("proc/{}/statm", process.pid);
        self.root.read_into(&file, &mut self.buffer).ok()?;
        words(&self.buffer).nth(1).and_then(decimal)
    }
}

#[cfg(test)]
mod tests;
