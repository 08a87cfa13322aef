//! Finding processes and threads, and looking at them once a tick.
//!
//! A tick must be cheap with thousands of threads, most of which sleep:
//!
//! * One system call says how much CPU time all threads of a process have had so far. If that is what it was in the last
//!   tick, none of them has run: nothing of them is read but their masks, which others may change.
//! * Otherwise those that ran when they were last looked at are looked at; one that did not, after as many ticks as it
//!   had slept by then, at most [`ASLEEP`]. Where the time of the process has grown by more than theirs, and what is
//!   missing has come to [`UNSEEN`] of the interval, all its threads are looked at. So a thread that wakes is seen at once
//!   if it runs for longer than that, and within [`ASLEEP`] ticks if not: it counts as sleeping until then, and its time
//!   counts when it is seen.
//! * To look at a thread is to read its schedstat file, and the rest only if that has changed. The files of threads that
//!   run stay open and are read anew with one call each (a descriptor of a thread that has ended answers `ESRCH`,
//!   whoever has its number by then), up to [`MOST_OPEN`] threads: each holds some 10 kB of the kernel's memory.
//!
//! Folders of threads are listed only when a process says that it has another number of them, or when one of them has
//! ended. Cgroups and allowed nodes, which seldom change, are looked at every [`SELDOM`] ticks, cgroup and scheduling
//! class of a thread that sleeps every [`ASLEEP`]. Where the kernel does not tell the time of a process (a captured
//! tree), all threads are looked at in each tick.
//!
//! A process's number may be used again while its files are read by path. What was read of a process is
//! kept only if the number is still that process's afterwards: a process that has ended does not come
//! back, so the number was its own all the while.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, NodeSet};
use numaherd_world::{ProcessId, Tag, Thread, ThreadId, Unmanaged};

use crate::assignments::{Assignments, Owner};
use crate::cpusets::{CpusetNumber, Cpusets};
use crate::files::Root;
use crate::groups::{Belongs, GroupRule, GroupRules, group_of};
use crate::kernel::Kernel;
use crate::options::{HostOptions, Selection};
use crate::proc::{cgroup, decimal, stat, status, words};
use crate::users;

/// Ticks between two looks at what seldom changes.
const SELDOM: u64 = 16;
/// Ticks between two looks at a thread that sleeps, at most (chosen here: 16 of 1,000 threads a tick). A multiple of
/// [`SELDOM`].
const ASLEEP: u64 = 64;
/// The part of an interval that threads of a process may have run without being looked at (chosen here: a hundredth).
const UNSEEN: u64 = 100;
/// Threads whose files stay open, at most (chosen here: some 40 MB of the kernel's memory).
const MOST_OPEN: usize = 4096;
/// Longest stat file that can be: 52 numbers of 20 digits and a name.
const STAT_BYTES: usize = 2048;

/// A process that is watched.
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
    /// CPU time so far in ns that the kernel tells of all its threads, where it does.
    told_ns: Option<u64>,
    /// The part of it that is not in the times of its threads, as of the last look at all of them: that of threads that
    /// have ended.
    elsewhere_ns: u64,
}

/// A thread that is watched.
#[derive(Debug)]
struct WatchedThread {
    id: ThreadId,
    name: String,
    stat: Option<File>,
    schedstat: Option<File>,
    /// CPU time so far in ns.
    ran_ns: u64,
    /// Time so far in ns that it waited for a CPU.
    waited_ns: u64,
    affinity: Arc<CpuSet>,
    cpuset: CpusetNumber,
    cpu: CpuId,
    /// Why its scheduling says that nobody should place it, if so.
    unmanaged: Option<Unmanaged>,
    /// Whether it is a thread of the kernel's own.
    is_kernels: bool,
    /// Whether it is alive, and its mask can be read.
    is_shown: bool,
    /// The scans in which it was last looked at, and last found to have run.
    looked_in: u64,
    ran_in: u64,
}

impl WatchedThread {
    /// Whether it is to be looked at in a scan, by how long it had slept when it last was.
    fn is_due(&self, scan: u64) -> bool {
        let slept = self.looked_in - self.ran_in;
        scan - self.looked_in >= slept.clamp(1, ASLEEP)
    }
}

/// The number of a thread is nobody's now, or another's.
struct Gone;

/// Looks at threads.
#[derive(Debug)]
pub(crate) struct Scanner {
    root: Root,
    selection: Selection,
    /// The processes that the selection names by number. A later one of the same number is not meant.
    named: Vec<ProcessId>,
    only_user: Option<u32>,
    groups: GroupRules,
    /// The rules as they are in this scan.
    rules: Arc<Vec<GroupRule>>,
    include_pinned: bool,
    own_pid: Option<u32>,
    all_nodes: Arc<NodeSet>,
    cpusets: Cpusets,
    watched: BTreeMap<u32, Watched>,
    /// Processes that were not selected, and the scan in which to look again.
    passed_over: HashMap<u32, u64>,
    scan: u64,
    tick_ns: u64,
    last_boot_ns: u64,
    buffer: Vec<u8>,
    mask: Vec<u64>,
    unreadable: usize,
    /// Threads whose files are open.
    open: usize,
}

/// One scan: what it goes by, and the threads that it has seen.
pub(crate) struct Tick<'t> {
    pub(crate) kernel: &'t dyn Kernel,
    pub(crate) assignments: &'t mut Assignments,
    /// Time since the scan before.
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

    /// The process that a thread belonged to in the last scan.
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
        let threads = self.watched.values().flat_map(|p| p.threads.values());
        self.open = threads.filter(|thread| thread.stat.is_some()).count();
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

    fn is_due(&self, pid: u32) -> bool {
        Some(pid) != self.own_pid
            && self
                .passed_over
                .get(&pid)
                .is_none_or(|again| self.scan >= *again)
    }

    /// Takes a process up if it is selected.
    fn consider(&mut self, pid: u32) {
        let Ok(text) = self.root.read(&format!("proc/{pid}/stat")) else {
            return;
        };
        let Some(stat) = stat::parse(&text) else {
            return;
        };
        let id = ProcessId {
            pid,
            born: stat.born,
        };
        let of_other = |&user: &u32| users::of_process(&self.root, pid) != Some(user);
        if !self.is_selected(id, &stat) || self.only_user.as_ref().is_some_and(of_other) {
            // Spread the second looks over the scans.
            let again = self.scan + SELDOM - u64::from(pid) % (SELDOM / 2);
            self.passed_over.insert(pid, again);
            return;
        }
        self.passed_over.remove(&pid);
        let mut watched = Watched {
            id,
            name: String::from_utf8_lossy(stat.name).into_owned(),
            parent: stat.parent,
            allowed_nodes: self.allowed_nodes(pid),
            group: None,
            grouped_as: String::new(),
            ran_ns: 0,
            threads: BTreeMap::new(),
            told_ns: None,
            elsewhere_ns: 0,
        };
        self.group(&mut watched);
        if self.is_there(id) {
            self.watched.insert(pid, watched);
        }
    }

    /// Whether the number of a process is still its own.
    fn is_there(&self, process: ProcessId) -> bool {
        identity(&self.root, process.pid) == Some(process)
    }

    fn is_selected(&self, process: ProcessId, stat: &stat::Stat<'_>) -> bool {
        let pid = process.pid;
        let parent = || self.watched.get(&stat.parent);
        let is_descendant = || parent().is_some_and(|parent| self.is_there(parent.id));
        match &self.selection {
            Selection::Machine => true,
            Selection::Processes { descendants, .. } => {
                self.named.contains(&process) || (*descendants && is_descendant())
            }
            Selection::Child { .. } => self.named.contains(&process) || is_descendant(),
            Selection::Command { name } => {
                let kept = &name.as_bytes()[..name.len().min(15)];
                stat.name == kept
            }
            Selection::Cgroup { path } => self
                .root
                .read(&format!("proc/{pid}/cgroup"))
                .is_ok_and(|text| cgroup::parse(&text).within(path)),
            Selection::User { uid } => users::of_process(&self.root, pid) == Some(*uid),
        }
    }

    fn allowed_nodes(&mut self, pid: u32) -> Arc<NodeSet> {
        self.root
            .read_into(&format!("proc/{pid}/status"), &mut self.buffer)
            .ok()
            .and_then(|()| status::parse(&self.buffer).nodes)
            .map(|nodes| nodes.intersection(&self.all_nodes))
            .filter(|nodes| !nodes.is_empty() && *nodes != *self.all_nodes)
            .map_or_else(|| self.all_nodes.clone(), Arc::new)
    }

    /// Finds the group of a process by the rules as they are.
    fn group(&self, process: &mut Watched) {
        process.group = group_of(&self.rules, &self.root, process.id.pid, &process.name);
        process.grouped_as.clone_from(&process.name);
    }

    /// Looks at all threads of a process; false when it no longer has any.
    fn look_at_process(&mut self, tick: &mut Tick<'_>, process: &mut Watched) -> bool {
        let pid = process.id.pid;
        if self.is_seldom(pid) {
            process.allowed_nodes = self.allowed_nodes(pid);
        }
        // It may run another program since the last scan, which its name showed then.
        if !self.rules.is_empty() && (self.is_seldom(pid) || process.grouped_as != process.name) {
            self.group(process);
        }
        process.ran_ns = 0;
        let from = tick.threads.len();
        let before = process.threads.len();
        let siblings = self.look_at_threads(tick, process);
        // Of threads that have slept, none has ended or started another.
        let is_complete = process.threads.len() == before
            && match siblings {
                Some(siblings) => siblings == before as u64,
                None => before > 0,
            };
        if !is_complete && !self.list_threads(tick, process) {
            // Nothing of a process that ended under our eyes is reported.
            tick.threads.truncate(from);
            return false;
        }
        if before == 0 {
            // What its threads ran until now is known from the next scan on.
            process.told_ns = None;
        }
        !process.threads.is_empty()
    }

    /// Looks at the threads that are known, as far as is needed. Gives the number that the process has, where it may be
    /// another one than before.
    fn look_at_threads(&mut self, tick: &mut Tick<'_>, process: &mut Watched) -> Option<u64> {
        let scan = self.scan;
        let before = process.told_ns;
        process.told_ns = tick.kernel.process_ran_ns(process.id.pid);
        let has_slept = before.is_some() && before == process.told_ns;
        let mut threads = std::mem::take(&mut process.threads);
        let mut siblings = None;
        let is_turn =
            |thread: &WatchedThread| (scan + u64::from(thread.id.tid)).is_multiple_of(ASLEEP);
        let is_due = |thread: &WatchedThread| {
            is_turn(thread) || !has_slept && (before.is_none() || thread.is_due(scan))
        };
        self.look_at_some(tick, process, &mut threads, &mut siblings, is_due);
        if let Some(told_ns) = process.told_ns.filter(|_| !has_slept) {
            let seen_ns: u64 = threads.values().map(|thread| thread.ran_ns).sum();
            let unseen_ns = told_ns.saturating_sub(process.elsewhere_ns + seen_ns);
            if before.is_none() || unseen_ns > tick.interval_ns / UNSEEN {
                self.look_at_some(tick, process, &mut threads, &mut siblings, |_| true);
                let seen_ns: u64 = threads.values().map(|thread| thread.ran_ns).sum();
                process.elsewhere_ns = told_ns.saturating_sub(seen_ns);
            }
        }
        threads.retain(|_, thread| {
            thread.looked_in == scan || self.pass_over(tick, process, thread, &mut siblings)
        });
        process.threads = threads;
        if has_slept {
            return siblings;
        }
        siblings.or_else(|| {
            let text = self.root.read(&format!("proc/{}/stat", process.id.pid));
            // None at all: it has ended.
            let stat = text.ok();
            let stat = stat.as_deref().and_then(stat::parse);
            Some(stat.map_or(0, |stat| stat.threads))
        })
    }

    /// Looks at those threads that are wanted and have not been looked at in this scan, and forgets those that are gone.
    fn look_at_some(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
        threads: &mut BTreeMap<u32, WatchedThread>,
        siblings: &mut Option<u64>,
        is_wanted: impl Fn(&WatchedThread) -> bool,
    ) {
        let scan = self.scan;
        threads.retain(|_, thread| {
            if thread.looked_in == scan || !is_wanted(thread) {
                return true;
            }
            match self.look(tick, process, thread) {
                Ok(said) => {
                    *siblings = said.or(*siblings);
                    true
                }
                Err(Gone) => {
                    process.elsewhere_ns += thread.ran_ns;
                    false
                }
            }
        });
    }

    /// Shows a thread that has slept, as far as is known, with the mask that it has now; false when it is gone.
    fn pass_over(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
        known: &mut WatchedThread,
        siblings: &mut Option<u64>,
    ) -> bool {
        if !known.is_shown {
            return true;
        }
        if tick.kernel.affinity(known.id.tid, &mut self.mask).is_err() {
            let said = self.look(tick, process, known);
            *siblings = said.as_ref().map_or(*siblings, |said| said.or(*siblings));
            return said.is_ok();
        }
        self.take_mask(known);
        self.show(tick, process, known, 0, 0);
        true
    }

    /// Takes up the threads that are new; false when the process is gone, whoever has its number now.
    fn list_threads(&mut self, tick: &mut Tick<'_>, process: &mut Watched) -> bool {
        let tids = match self
            .root
            .numbers(&format!("proc/{}/task", process.id.pid), "")
        {
            Ok(tids) => tids,
            Err(error) => {
                self.unreadable += usize::from(error.kind() == ErrorKind::PermissionDenied);
                return false;
            }
        };
        for tid in tids {
            if !process.threads.contains_key(&tid)
                && let Some(mut thread) = self.take_up(process, tid)
                && self.look(tick, process, &mut thread).is_ok()
            {
                process.threads.insert(tid, thread);
            }
        }
        self.is_there(process.id)
    }

    fn take_up(&mut self, process: &Watched, tid: u32) -> Option<WatchedThread> {
        let folder = format!("proc/{}/task/{tid}", process.id.pid);
        let mut buffer = [0; STAT_BYTES];
        let text = read_again(&self.root, None, &folder, "stat", &mut buffer)?;
        let stat = stat::parse(text)?;
        let born = stat.born;
        let mut thread = WatchedThread {
            id: ThreadId { tid, born },
            name: String::new(),
            stat: None,
            schedstat: None,
            ran_ns: 0,
            waited_ns: 0,
            affinity: Arc::default(),
            cpuset: self.cpuset_of(&folder),
            cpu: CpuId(stat.cpu),
            unmanaged: None,
            is_kernels: false,
            is_shown: false,
            looked_in: self.scan,
            ran_in: self.scan,
        };
        // What it ran before this interval began is not this interval's.
        let in_this_interval = born.saturating_mul(self.tick_ns) >= self.last_boot_ns;
        if self.last_boot_ns == 0 || !in_this_interval {
            let kept = self.kept_times(&thread, &folder);
            (thread.ran_ns, thread.waited_ns) = kept.unwrap_or_else(|| self.times_of(&stat));
        }
        Some(thread)
    }

    fn cpuset_of(&mut self, folder: &str) -> CpusetNumber {
        let found = self
            .root
            .read_into(&format!("{folder}/cgroup"), &mut self.buffer);
        let cgroups = found.map(|()| cgroup::parse(&self.buffer));
        self.cpusets.number(&cgroups.unwrap_or_default())
    }

    /// CPU time and time of waiting for a CPU so far in ns, to the nanosecond where the kernel keeps
    /// them (`sched_info`: the wait is added up when it ends, so one that lasts over several
    /// intervals is counted in its last).
    fn kept_times(&self, thread: &WatchedThread, folder: &str) -> Option<(u64, u64)> {
        let mut buffer = [0; 128];
        let file = thread.schedstat.as_ref();
        let text = read_again(&self.root, file, folder, "schedstat", &mut buffer)?;
        let mut numbers = words(text);
        Some((decimal(numbers.next()?)?, decimal(numbers.next()?)?))
    }

    /// The same where it does not keep them.
    fn times_of(&self, stat: &stat::Stat<'_>) -> (u64, u64) {
        (stat.ran_ticks * self.tick_ns, 0)
    }

    fn is_seldom(&self, number: u32) -> bool {
        (self.scan + u64::from(number)).is_multiple_of(SELDOM)
    }

    /// Looks at one thread, and adds it to the tick if it is alive. Gives the number of threads that its
    /// process has, if it was read.
    fn look(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
        known: &mut WatchedThread,
    ) -> Result<Option<u64>, Gone> {
        let tid = known.id.tid;
        let folder = if known.stat.is_none() || self.is_seldom(tid) {
            format!("proc/{}/task/{tid}", process.id.pid)
        } else {
            String::new()
        };
        known.looked_in = self.scan;
        // The mask first: if the stat file then still answers, the number was this thread's.
        let mask = tick.kernel.affinity(tid, &mut self.mask);
        let kept = self.kept_times(known, &folder);
        let has_slept = kept == Some((known.ran_ns, known.waited_ns));
        let may_rest = process.told_ns.is_some() && known.is_shown && !self.is_seldom(tid);
        if has_slept && may_rest && mask.is_ok() {
            self.take_mask(known);
            self.show(tick, process, known, 0, 0);
            return Ok(None);
        }
        let mut buffer = [0; STAT_BYTES];
        let file = known.stat.as_ref();
        let text = read_again(&self.root, file, &folder, "stat", &mut buffer).ok_or(Gone)?;
        let stat = stat::parse(text).filter(|stat| stat.born == known.id.born);
        let stat = stat.ok_or(Gone)?;
        known.is_shown = !stat.has_ended() && mask.is_ok();
        if !known.is_shown {
            return Ok(Some(stat.threads));
        }
        self.take_mask(known);
        if known.name.as_bytes() != stat.name {
            known.name = String::from_utf8_lossy(stat.name).into_owned();
            if tid == process.id.pid {
                process.name.clone_from(&known.name);
            }
        }
        if tid == process.id.pid {
            process.parent = stat.parent;
        }
        known.cpu = CpuId(stat.cpu);
        known.unmanaged = stat.unmanaged();
        known.is_kernels = stat.is_kernels();
        let (ran_ns, waited_ns) = kept.unwrap_or_else(|| self.times_of(&stat));
        let ran_in_interval = ran_ns.saturating_sub(known.ran_ns);
        let waited_in_interval = waited_ns.saturating_sub(known.waited_ns);
        (known.ran_ns, known.waited_ns) = (ran_ns, waited_ns);
        let siblings = stat.threads;
        if ran_in_interval > 0 {
            known.ran_in = self.scan;
            self.keep_open(known, &folder);
        } else if self.scan - known.ran_in >= ASLEEP {
            (known.stat, known.schedstat) = (None, None);
        }
        if self.is_seldom(tid) {
            known.cpuset = self.cpuset_of(&folder);
        }
        self.show(tick, process, known, ran_in_interval, waited_in_interval);
        Ok(Some(siblings))
    }

    /// Keeps the files of a thread open, if there is room; otherwise they are opened each time.
    fn keep_open(&mut self, known: &mut WatchedThread, folder: &str) {
        if known.stat.is_none() && self.open < MOST_OPEN {
            let open = |name: &str| self.root.open(&format!("{folder}/{name}")).ok();
            (known.stat, known.schedstat) = (open("stat"), open("schedstat"));
            self.open += 1;
        }
    }

    /// Notes the mask that was just read as that of a thread.
    fn take_mask(&mut self, known: &mut WatchedThread) {
        while self.mask.last() == Some(&0) {
            self.mask.pop();
        }
        if known.affinity.as_words() != self.mask {
            known.affinity = Arc::new(CpuSet::of_words(self.mask.clone()));
        }
    }

    /// Adds a thread to the tick, by what is known of it.
    fn show(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
        known: &WatchedThread,
        ran_in_interval: u64,
        waited_in_interval: u64,
    ) {
        process.ran_ns += ran_in_interval;
        let cpuset = self.cpusets.cpus(known.cpuset);
        let (id, parent) = (process.id, process.parent);
        let assignments = &mut *tick.assignments;
        let owner = assignments.owner(known.id, id, parent, &known.affinity, &cpuset);
        let assigned = match owner {
            Owner::Ours(core) => core,
            Owner::Nobody | Owner::Foreign => None,
        };
        let of_group = || process.group.as_ref().and_then(Belongs::unmanaged);
        let unmanaged = known.unmanaged.clone().or_else(of_group).or_else(|| {
            let cpus = Some((*known.affinity).clone());
            (owner == Owner::Foreign && !self.include_pinned)
                .then_some(Unmanaged::UserAffinity { cpus })
        });
        // The kernel's own threads are bound for reasons of its own.
        let is_pinned = !known.is_kernels && assignments.is_pinned(known.id);
        tick.threads.push(Thread {
            id: known.id,
            process: id,
            name: known.name.clone(),
            cpu: known.cpu,
            assigned,
            affinity: known.affinity.clone(),
            cpuset,
            cpu_share: share(ran_in_interval, tick.interval_ns),
            wait_share: share(waited_in_interval, tick.interval_ns),
            tag: is_pinned.then_some(Tag::Mask),
            counts: None,
            unmanaged,
        });
    }
}

/// The process that has this number now.
fn identity(root: &Root, pid: u32) -> Option<ProcessId> {
    let text = root.read(&format!("proc/{pid}/stat")).ok()?;
    let born = stat::parse(&text)?.born;
    Some(ProcessId { pid, born })
}

/// The part of the interval that a time is, 0 to 1, in millionths: the clocks are no better, and it is written short.
fn share(ns: u64, interval_ns: u64) -> f64 {
    if interval_ns == 0 {
        return 0.0;
    }
    (ns as f64 / interval_ns as f64 * 1e6).round().min(1e6) / 1e6
}

/// Reads a small file from its start: by its open descriptor, or else by its path.
fn read_again<'b>(
    root: &Root,
    file: Option<&File>,
    folder: &str,
    name: &str,
    buffer: &'b mut [u8],
) -> Option<&'b [u8]> {
    let opened;
    let file = match file {
        Some(file) => file,
        None => {
            opened = root.open(&format!("{folder}/{name}")).ok()?;
            &opened
        }
    };
    let length = file.read_at(buffer, 0).ok()?;
    Some(&buffer[..length])
}

#[cfg(test)]
mod tests;
