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
//! A process that has just been forked shares its parent's pages until one of them writes, so what was read of the parent
//! holds for it, too, but that private pages are now shared. If it runs the same program and has about as many pages, it is not read before that has been
//! paid for: a pool of workers over one large table is read once, and not once for each worker.
//!
//! The same file shows a memory policy that the user gave the process (`numactl`, `mbind`). On machines with memory
//! apart from CPUs, it and `maps` show which mappings hold much private memory.
//!
//! A kernel without numa_maps (CONFIG_NUMA off) has one node, and all resident memory is on it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use numaherd_topology::NodeId;
use numaherd_world::{BLOCK_PAGES, Extent, Mapped, MemoryKind, ProcessId, Residency};

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

    /// What was read of the parent of a process, if the process still has about as many pages.
    fn of_parent(&mut self, seen: Seen, now_ns: u64) -> Option<Read> {
        let read = self.known.get(&seen.parent?)?;
        let pages = (read.residency.as_ref()).map_or(0, Residency::total);
        if pages < MANY {
            return None;
        }
        let mut read = Read {
            since_ns: now_ns,
            at_ns: now_ns,
            extents: Arc::default(),
            ..read.clone()
        };
        read.residency.iter_mut().for_each(share);
        let own = self.resident(seen.id)?;
        (own.abs_diff(pages) <= pages / ALIKE).then_some(read)
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
                let mappings = numa_maps::parse(&self.buffer, self.page_bytes);
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

/// What `numa_maps` would say after a fork: private pages are mapped again, and so count as shared.
fn share(residency: &mut Residency) {
    let Some(kinds) = &mut residency.kinds else {
        return;
    };
    let of_files: HashMap<NodeId, u64> = kinds.file.pages.iter().copied().collect();
    let pages = residency.pages.iter().map(|&(node, pages)| {
        let others = of_files.get(&node).copied().unwrap_or(0);
        (node, pages.saturating_sub(others))
    });
    kinds.shared = Mapped {
        pages: pages.filter(|&(_, pages)| pages > 0).collect(),
        again: true,
        alone: Vec::new(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeKernel;
    use std::time::Duration;

    const A: ProcessId = ProcessId { pid: 1, born: 1 };
    const B: ProcessId = ProcessId { pid: 2, born: 1 };

    fn write(root: &std::path::Path, pid: u32, file: &str, text: &str) {
        let folder = root.join(format!("proc/{pid}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(file), text).unwrap();
    }

    fn seen(id: ProcessId, ran: bool) -> Seen {
        let parent = None;
        Seen { id, ran, parent }
    }

    /// Pages by node.
    type Pages = Vec<(u32, u64)>;

    fn pages(residencies: &Residencies, process: ProcessId) -> Pages {
        let of = residencies.of(process);
        of.map(|r| r.pages.iter().map(|&(n, p)| (n.0, p)).collect())
            .unwrap_or_default()
    }

    #[test]
    fn read_at_first_sight_and_again_when_the_process_has_run() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        for pid in [1, 2] {
            write(root.path(), pid, "numa_maps", "1000 default N0=5 N3=7\n");
        }
        residencies.refresh(&kernel, &[seen(A, false), seen(B, false)], 1_000_000);
        assert_eq!(pages(&residencies, A), [(0, 5), (3, 7)]);
        for pid in [1, 2] {
            write(root.path(), pid, "numa_maps", "1000 default N1=12\n");
        }
        kernel.pass(Duration::from_secs(1));
        residencies.refresh(&kernel, &[seen(A, true), seen(B, false)], 1_000_000);
        assert_eq!(pages(&residencies, A), [(1, 12)]);
        assert_eq!(pages(&residencies, B), [(0, 5), (3, 7)]);
        residencies.refresh(&kernel, &[seen(B, false)], 1_000_000);
        assert_eq!(pages(&residencies, A), []);
    }

    #[test]
    fn first_readings_of_many_end_once_they_have_taken_as_long_as_a_tick() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        // The younger a process, the lower its number.
        let many = [1, 2, 3, 4].map(|pid| ProcessId {
            pid,
            born: 10 - u64::from(pid),
        });
        for process in many {
            write(root.path(), process.pid, "numa_maps", "1000 default N0=5\n");
        }
        kernel.ns_per_clock_reading(400_000);
        let mut look = || {
            let all = many.map(|process| seen(process, process.pid == 1));
            residencies.refresh(&kernel, &all, 1_000_000);
            many.map(|process| residencies.of(process).is_some())
        };
        assert_eq!(look(), [true, false, true, true], "the first runs");
        assert_eq!(look(), [true; 4]);
    }

    #[test]
    fn a_policy_of_any_mapping_with_pages_is_the_process_s() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        let mine = "1000 default N0=5\n2000 interleave:0-3 N1=1\n";
        write(root.path(), 1, "numa_maps", mine);
        write(
            root.path(),
            2,
            "numa_maps",
            "1000 local N0=5\n2000 bind:1\n",
        );
        residencies.refresh(&kernel, &[seen(A, true), seen(B, true)], 1_000_000);
        assert_eq!(
            residencies.policy_of(A).map(|policy| &**policy),
            Some("interleave:0-3")
        );
        assert_eq!(
            residencies.policy_of(B),
            None,
            "a mapping without pages does not count"
        );
    }

    #[test]
    fn large_mappings_of_private_memory_are_told_where_they_are_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        let numa_maps = "200000 default anon=900 N2=400 N0=500\n600000 default anon=511 N0=511\n\
                         800000 default file=/memfd:x N0=600\n";
        let maps = "200000-600000 rw-p 00000000 00:00 0\n600000-7ff000 rw-p 00000000 00:00 0\n\
                    800000-a58000 rw-s 00000000 00:01 7 /memfd:x\n";
        write(root.path(), 1, "numa_maps", numa_maps);
        write(root.path(), 1, "maps", maps);
        let asked = |needed| {
            let residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
            let mut residencies = residencies.with_extents(needed);
            residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
            residencies.extents_of(A).to_vec()
        };
        let heap = Extent {
            pages: 0x200..0x600,
            on: vec![(NodeId(0), 500), (NodeId(2), 400)],
        };
        assert_eq!(asked(true), [heap]);
        assert_eq!(asked(false), []);
    }

    /// A reading has taken 10 ms where readings may take a hundredth of the time, and then the pages go to another
    /// node; with `moving_ns`, by an order that took so long. Returns where they are seen after each of these waits.
    fn seen_after<const WAITS: usize>(
        moving_ns: Option<u64>,
        waits_ms: [u64; WAITS],
    ) -> [u32; WAITS] {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        residencies.known.get_mut(&A).unwrap().took_ns = 10_000_000;
        write(root.path(), 1, "numa_maps", "1000 default N1=5\n");
        if let Some(took_ns) = moving_ns {
            residencies.moved(A, took_ns);
        }
        let seen = waits_ms.map(|wait_ms| {
            kernel.pass(Duration::from_millis(wait_ms));
            residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
            pages(&residencies, A)[0].0
        });
        assert_eq!(residencies.known[&A].moving_ns, 0, "it has been read since");
        seen
    }

    #[test]
    fn a_costly_reading_is_paid_for_before_the_next() {
        assert_eq!(seen_after(None, [999, 2]), [0, 1]);
    }

    #[test]
    fn pages_that_were_moved_are_looked_for_ten_times_as_soon() {
        assert_eq!(seen_after(Some(9_999_999), [99, 2]), [0, 1]);
    }

    #[test]
    fn pages_that_took_as_long_to_move_as_to_find_are_looked_for_at_once() {
        assert_eq!(seen_after(Some(10_000_000), [1]), [1]);
    }

    #[test]
    fn a_process_that_has_doubled_is_read_at_once_while_it_is_young() {
        let seen_when = |young: bool, resident: u64| {
            let root = tempfile::tempdir().unwrap();
            let kernel = FakeKernel::default();
            write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
            let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
            residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
            kernel.pass(Duration::from_millis(if young { 9_999 } else { 10_000 }));
            let read = residencies.known.get_mut(&A).unwrap();
            read.took_ns = 1_000_000_000;
            write(root.path(), 1, "numa_maps", "1000 default N1=10\n");
            write(
                root.path(),
                1,
                "statm",
                &format!("20 {resident} 1 1 0 9 0\n"),
            );
            residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
            pages(&residencies, A)[0].0
        };
        assert_eq!([seen_when(true, 9), seen_when(true, 10)], [0, 1]);
        assert_eq!(seen_when(false, 10), 0);
    }

    /// A process with so many pages on node 0 has forked another, which has this many and `N1=1` in its file. Returns where
    /// the pages of the second are seen at once and, with another 10 ms that a reading took, after each of these waits.
    fn of_a_fork<const WAITS: usize>(
        pages_before: u64,
        resident: u64,
        waits_ms: [u64; WAITS],
    ) -> (Pages, [Pages; WAITS]) {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        write(
            root.path(),
            1,
            "numa_maps",
            &format!("1000 default N0={pages_before}\n"),
        );
        write(root.path(), 2, "numa_maps", "1000 default N1=1\n");
        write(
            root.path(),
            2,
            "statm",
            &format!("9999 {resident} 1 1 0 9 0\n"),
        );
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        let forked = Seen {
            parent: Some(A),
            ..seen(B, true)
        };
        // Both are new, and the first is older and sleeps.
        let all = [forked, seen(A, false)];
        residencies.refresh(&kernel, &all, 1_000_000);
        let at_once = pages(&residencies, B);
        residencies.known.get_mut(&B).unwrap().took_ns = 10_000_000;
        let later = waits_ms.map(|wait_ms| {
            kernel.pass(Duration::from_millis(wait_ms));
            residencies.refresh(&kernel, &[forked], 1_000_000);
            pages(&residencies, B)
        });
        (at_once, later)
    }

    #[test]
    fn the_pages_of_a_fork_are_its_parents_until_its_own_reading_has_been_paid_for() {
        let of_parent = vec![(0, MANY)];
        let (at_once, later) = of_a_fork(MANY, MANY, [999, 2]);
        assert_eq!(at_once, of_parent);
        assert_eq!(later, [of_parent, vec![(1, 1)]]);
    }

    #[test]
    fn what_was_private_is_shared_with_a_fork() {
        let parse = |text: &str| numa_maps::residency(&numa_maps::parse(text.as_bytes(), 4096));
        let mut of_parent = parse(
            "1000 default anon=70 N0=60 N1=10\n2000 default file=/lib mapped=9 mapmax=2 N0=5 N2=4\n",
        );
        let of_fork = parse(
            "1000 default anon=70 mapmax=2 N0=60 N1=10\n2000 default file=/lib mapped=9 mapmax=2 N0=5 N2=4\n",
        );
        share(&mut of_parent);
        assert_eq!(of_parent, of_fork);
    }

    #[test]
    fn a_parent_that_has_grown_is_read_before_its_fork() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        let mut residencies = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        write(root.path(), 1, "numa_maps", "1000 default N0=5\n");
        residencies.refresh(&kernel, &[seen(A, true)], 1_000_000);
        write(
            root.path(),
            1,
            "numa_maps",
            &format!("1000 default N2={MANY}\n"),
        );
        for pid in [1, 2] {
            write(
                root.path(),
                pid,
                "statm",
                &format!("9999 {MANY} 1 1 0 9 0\n"),
            );
        }
        let forked = Seen {
            parent: Some(A),
            ..seen(B, true)
        };
        residencies.refresh(&kernel, &[seen(A, true), forked], 1_000_000);
        assert_eq!(pages(&residencies, B), [(2, MANY)]);
    }

    #[test]
    fn a_fork_that_is_small_or_has_other_pages_is_read() {
        let seen_of = |pages_before, resident| of_a_fork(pages_before, resident, []).0;
        let (own, of_parent) = (vec![(1, 1)], vec![(0, MANY)]);
        assert_eq!(seen_of(MANY - 1, MANY - 1), own);
        assert_eq!(seen_of(MANY, MANY - MANY / ALIKE), of_parent);
        assert_eq!(
            seen_of(MANY, MANY - MANY / ALIKE - 1),
            own,
            "another program"
        );
        assert_eq!(seen_of(MANY, MANY + MANY / ALIKE), of_parent);
        assert_eq!(seen_of(MANY, MANY + MANY / ALIKE + 1), own, "it has grown");
    }

    #[test]
    fn a_kernel_without_numa_has_everything_on_its_node() {
        let root = tempfile::tempdir().unwrap();
        let kernel = FakeKernel::default();
        write(root.path(), 1, "statm", "9000 321 100 1 0 200 0\n");
        let mut one = Residencies::new(Root::new(root.path()), 4096, 0.01, Some(NodeId(0)));
        one.refresh(&kernel, &[seen(A, true)], 1_000_000);
        assert_eq!(pages(&one, A), [(0, 321)]);
        let mut several = Residencies::new(Root::new(root.path()), 4096, 0.01, None);
        several.refresh(&kernel, &[seen(A, true)], 1_000_000);
        assert_eq!(several.of(A), None, "no figure is invented");
    }
}
