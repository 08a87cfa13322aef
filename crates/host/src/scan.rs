//! Finding processes and threads, and looking at them once a tick.
//!
//! A tick must be cheap with thousands of threads, most of which sleep:
//!
//! * One system call reads the CPU time so far of all threads of a process. If it has not changed since the last tick,
//!   no thread has run, ended or started another, and nothing more is read.
//! * Otherwise, the masks are read, and the threads that ran at their last look are looked at; a thread that did not,
//!   after as many ticks as it had then slept, at most [`ASLEEP`]. If the process's time has grown by more than theirs,
//!   and the difference has reached [`UNSEEN`] of the interval, all its threads are looked at. So a thread that wakes
//!   is seen at once if it runs for longer than that, else within [`ASLEEP`] ticks; until then it counts as sleeping,
//!   and its time counts when it is seen. The only thread of a process is seen at once.
//! * A look at a thread reads its schedstat file, and the rest only if that has changed. The files of running threads
//!   stay open and are read again with one call each (the descriptor of a thread that has ended returns `ESRCH`, even
//!   if its number was reused), up to [`MOST_OPEN`] threads: each takes some 10 kB of the kernel's memory.
//!
//! Folders of threads are listed only when a process reports another number of them, or one of them has ended. What
//! others seldom change is checked every [`SELDOM`] ticks: cgroups, allowed nodes, masks of sleeping processes, and
//! whether the number of an unselected process belongs to another now. The cgroup and scheduling class of a sleeping
//! thread are checked every [`ASLEEP`] ticks, or [`RESTING`] if its whole process sleeps; unselected threads of the
//! kernel's own, every [`RESTING`]. If the kernel does not give a process's time (a captured tree), all threads are
//! looked at in each tick.
//!
//! A process's number may be reused while its files are read by path. What was read is kept only if the number is still
//! that process's afterwards: a process that has ended does not come back, so the number was its own all the while.

mod find;
mod look;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use numaherd_topology::{CpuSet, NodeSet};
use numaherd_world::{ProcessId, Thread, ThreadId};

use crate::assignments::Assignments;
use crate::cpusets::Cpusets;
use crate::files::Root;
use crate::groups::{Belongs, GroupRule, GroupRules};
use crate::kernel::Kernel;
use crate::options::{HostOptions, Selection};
use crate::residency::Seen;
use find::identity;
use look::WatchedThread;

/// Ticks between two looks at what seldom changes.
const SELDOM: u64 = 16;
/// The most ticks between two looks at a sleeping thread (chosen here: 16 of 1,000 threads a tick). A multiple of
/// [`SELDOM`].
const ASLEEP: u64 = 64;
/// The same if its whole process sleeps, and ticks until the number of one of the kernel's own threads is checked again
/// (chosen here: 4 of 1,000 threads a tick). A multiple of [`ASLEEP`].
const RESTING: u64 = 256;
/// The part of an interval that a process's threads may run without a look (chosen here: a hundredth).
const UNSEEN: u64 = 100;
/// The most threads whose files stay open (chosen here: some 40 MB of the kernel's memory).
const MOST_OPEN: usize = 4096;

/// A watched process.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) id: ProcessId,
    pub(crate) name: String,
    pub(crate) parent: u32,
    pub(crate) allowed_nodes: Arc<NodeSet>,
    /// The group that it belongs to.
    pub(crate) group: Option<Belongs>,
    /// The name by which that was found.
    grouped_as: String,
    /// CPU time of all its threads in the last interval, in ns.
    pub(crate) ran_ns: u64,
    threads: BTreeMap<u32, WatchedThread>,
    /// CPU time so far in ns of all its threads, if the kernel gives it.
    told_ns: Option<u64>,
    /// Whether none of them has run in the last interval.
    has_slept: bool,
    /// The part of `told_ns` outside the times of its threads, as of the last look at all of them: that of threads that
    /// have ended.
    elsewhere_ns: u64,
}

/// Looks at threads.
#[derive(Debug)]
pub(crate) struct Scanner {
    root: Root,
    selection: Selection,
    /// The processes that the selection names by number. A later one of the same number is not meant.
    named: Vec<ProcessId>,
    only_user: Option<u32>,
    groups: GroupRules,
    /// The rules of this scan.
    rules: Arc<Vec<GroupRule>>,
    include_pinned: bool,
    own_pid: Option<u32>,
    all_nodes: Arc<NodeSet>,
    cpusets: Cpusets,
    watched: BTreeMap<u32, Watched>,
    /// Unselected processes, and the scan in which to check each again.
    passed_over: HashMap<u32, u64>,
    scan: u64,
    tick_ns: u64,
    last_boot_ns: u64,
    buffer: Vec<u8>,
    mask: Vec<u64>,
    unreadable: usize,
    /// Threads whose files are open, counted every [`SELDOM`] scans, plus those opened since.
    open: usize,
}

/// One scan: what it needs, and the threads it has seen.
pub(crate) struct Tick<'t> {
    pub(crate) kernel: &'t dyn Kernel,
    pub(crate) assignments: &'t mut Assignments,
    /// When it began, on the kernel's monotonic clock.
    pub(crate) began_ns: u64,
    /// Time since the scan before began.
    pub(crate) interval_ns: u64,
    /// After the scan ascending by id; without counts.
    pub(crate) threads: Vec<Thread>,
}

impl Scanner {
    pub(crate) fn new(root: Root, options: &HostOptions, all_nodes: NodeSet) -> Self {
        let own_pid = root.is_live().then(std::process::id);
        let groups = GroupRules::new(&options.groups);
        let named = match &options.selection {
            Selection::Processes { pids, .. } => pids.as_slice(),
            Selection::Child { pid } => std::slice::from_ref(pid),
            _ => &[],
        };
        let named = named.iter().filter_map(|&pid| identity(&root, pid));
        Self {
            named: named.collect(),
            only_user: options.only_user,
            rules: groups.now(),
            groups,
            cpusets: Cpusets::new(root.clone()),
            root,
            selection: options.selection.clone(),
            include_pinned: options.include_pinned,
            own_pid,
            all_nodes: Arc::new(all_nodes),
            watched: BTreeMap::new(),
            passed_over: HashMap::new(),
            scan: 0,
            tick_ns: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
            last_boot_ns: 0,
            buffer: Vec::new(),
            mask: Vec::new(),
            unreadable: 0,
            open: 0,
        }
    }

    /// The rules by which processes are grouped.
    pub(crate) fn groups(&self) -> GroupRules {
        self.groups.clone()
    }

    /// The processes seen in the last scan.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Watched> {
        self.watched.values()
    }

    /// The same, with what their pages depend on.
    pub(crate) fn seen(&self) -> impl Iterator<Item = Seen> {
        self.processes().map(|process| {
            let parent = self.watched.get(&process.parent);
            let parent = parent.filter(|parent| parent.name == process.name);
            Seen {
                id: process.id,
                ran: process.ran_ns > 0,
                parent: parent.map(|parent| parent.id),
            }
        })
    }

    /// The process of a thread in the last scan.
    pub(crate) fn process_of(&self, thread: ThreadId) -> Option<ProcessId> {
        self.watched
            .values()
            .find(|process| {
                process
                    .threads
                    .get(&thread.tid)
                    .is_some_and(|t| t.id == thread)
            })
            .map(|process| process.id)
    }

    /// Has the next scan read a thread's mask, however long it has slept: the mask has just been set.
    pub(crate) fn mask_was_set(&mut self, thread: ThreadId) {
        let threads = self.watched.values_mut();
        let known = threads.filter_map(|process| process.threads.get_mut(&thread.tid));
        known.for_each(WatchedThread::mask_was_set);
    }

    /// Whether a process of that number is watched.
    pub(crate) fn has_process(&self, pid: u32) -> bool {
        self.watched.contains_key(&pid)
    }

    /// Looks at everything, and gives what could not be seen. `boot_ns` is now in time since boot.
    pub(crate) fn scan(
        &mut self,
        tick: &mut Tick<'_>,
        online: &CpuSet,
        boot_ns: u64,
    ) -> std::io::Result<Vec<String>> {
        self.scan += 1;
        self.unreadable = 0;
        if self.scan.is_multiple_of(SELDOM) {
            let threads = self.watched.values().flat_map(|p| p.threads.values());
            self.open = threads.filter(|thread| thread.stat.is_some()).count();
        }
        self.cpusets.begin(online);
        let rules = self.groups.now();
        let regroup = !Arc::ptr_eq(&self.rules, &rules);
        self.rules = rules;
        let pids = self.root.numbers("proc", "")?;
        for &pid in &pids {
            if !self.watched.contains_key(&pid) && self.is_due(pid) {
                self.consider(pid);
            }
        }
        if self.scan.is_multiple_of(SELDOM) {
            self.passed_over
                .retain(|pid, _| pids.binary_search(pid).is_ok());
        }
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|_, process| {
            if regroup {
                self.group(process);
            }
            self.look_at_process(tick, process)
        });
        self.watched = watched;
        tick.threads.sort_unstable_by_key(|thread| thread.id);
        self.last_boot_ns = boot_ns;
        let gap = (self.unreadable > 0).then(|| {
            format!(
                "{} processes cannot be read (/proc may be mounted with hidepid, or they belong to \
                 others); run as root to see them",
                self.unreadable
            )
        });
        Ok(gap.into_iter().collect())
    }

    /// Looks at all threads of a process; false when it no longer has any.
    fn look_at_process(&mut self, tick: &mut Tick<'_>, process: &mut Watched) -> bool {
        let pid = process.id.pid;
        if self.is_seldom(pid) {
            process.allowed_nodes = self.allowed_nodes(pid);
        }
        // Its name in the last scan may have shown that it runs another program.
        if !self.rules.is_empty() && (self.is_seldom(pid) || process.grouped_as != process.name) {
            self.group(process);
        }
        process.ran_ns = 0;
        let from = tick.threads.len();
        let before = process.threads.len();
        let siblings = self.look_at_threads(tick, process);
        // If its threads have slept, none has ended or started another.
        let is_complete = process.threads.len() == before
            && match siblings {
                Some(siblings) => siblings == before as u64,
                None => before > 0,
            };
        if !is_complete && !self.list_threads(tick, process) {
            // Nothing is reported of a process that has just ended.
            tick.threads.truncate(from);
            return false;
        }
        if before == 0 {
            // What its threads ran until now is known from the next scan on.
            process.told_ns = None;
        }
        !process.threads.is_empty()
    }

    fn is_seldom(&self, number: u32) -> bool {
        (self.scan + u64::from(number)).is_multiple_of(SELDOM)
    }
}

#[cfg(test)]
mod tests;
