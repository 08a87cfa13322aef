//! Looks at the threads of a process, and shows them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{Tag, Thread, ThreadId, Unmanaged};

use super::{ASLEEP, MOST_OPEN, RESTING, Scanner, Tick, UNSEEN, Watched};
use crate::assignments::Owner;
use crate::cpusets::CpusetNumber;
use crate::files::Root;
use crate::groups::Belongs;
use crate::proc::{cgroup, decimal, stat, words};

/// Longest stat file that can be: 52 numbers of 20 digits and a name.
const STAT_BYTES: usize = 2048;

#[derive(Debug)]
pub(super) struct WatchedThread {
    pub(super) id: ThreadId,
    name: String,
    pub(super) stat: Option<File>,
    schedstat: Option<File>,
    /// CPU time so far in ns.
    ran_ns: u64,
    /// Time so far in ns spent waiting for a CPU.
    waited_ns: u64,
    /// How long after the scan began these were last read, in ns: later run time belongs to the next interval.
    late_ns: u64,
    affinity: Arc<CpuSet>,
    /// Whether the mask may have changed since, though only by an order of ours.
    has_new_mask: bool,
    cpuset: CpusetNumber,
    cpu: CpuId,
    /// Why its scheduling says that it must not be placed, if so.
    unmanaged: Option<Unmanaged>,
    /// Whether it is a thread of the kernel's own.
    is_kernels: bool,
    /// Whether it is alive, and its mask can be read.
    is_shown: bool,
    /// Whether it has not been shown yet.
    is_new: bool,
    /// The scans in which it was last looked at, and last found to have run.
    looked_in: u64,
    ran_in: u64,
}

impl WatchedThread {
    pub(super) fn mask_was_set(&mut self) {
        self.has_new_mask = true;
    }

    /// Whether it has its turn, once in `once_in` scans, however long it sleeps.
    fn has_turn(&self, scan: u64, once_in: u64) -> bool {
        (scan + u64::from(self.id.tid)).is_multiple_of(once_in)
    }

    /// Whether to look at it in a scan, by how long it had slept at its last look.
    fn is_due(&self, scan: u64) -> bool {
        let slept = self.looked_in - self.ran_in;
        scan - self.looked_in >= slept.clamp(1, ASLEEP)
    }
}

/// The thread's number is unused now, or another's.
struct Gone;

impl Scanner {
    /// Looks at the known threads, as far as needed. Returns the process's number of threads, if that may have changed.
    pub(super) fn look_at_threads(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
    ) -> Option<u64> {
        let scan = self.scan;
        let before = process.told_ns;
        process.told_ns = tick.kernel.process_ran_ns(process.id.pid);
        process.has_slept = before.is_some() && before == process.told_ns;
        let mut threads = std::mem::take(&mut process.threads);
        let mut siblings = None;
        if !process.has_slept {
            let all = before.is_none() || threads.len() == 1;
            let is_due = |thread: &WatchedThread| {
                all || thread.is_due(scan) || thread.has_turn(scan, ASLEEP)
            };
            self.look_at_some(tick, process, &mut threads, &mut siblings, is_due);
            if let Some(told_ns) = process.told_ns {
                let seen_ns: u64 = threads.values().map(|thread| thread.ran_ns).sum();
                let unseen_ns = told_ns.saturating_sub(process.elsewhere_ns + seen_ns);
                if before.is_none() || unseen_ns > tick.interval_ns / UNSEEN {
                    self.look_at_some(tick, process, &mut threads, &mut siblings, |_| true);
                    let seen_ns: u64 = threads.values().map(|thread| thread.ran_ns).sum();
                    process.elsewhere_ns = told_ns.saturating_sub(seen_ns);
                }
            }
        }
        threads.retain(|_, thread| {
            if thread.looked_in == scan {
                true
            } else if process.has_slept && thread.has_turn(scan, RESTING) {
                self.look_or_forget(tick, process, thread, &mut siblings)
            } else {
                self.pass_over(tick, process, thread, &mut siblings)
            }
        });
        process.threads = threads;
        if process.has_slept {
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

    /// Looks at wanted threads that this scan has not looked at yet, and forgets those that have ended.
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
            thread.looked_in == scan
                || !is_wanted(thread)
                || self.look_or_forget(tick, process, thread, siblings)
        });
    }

    /// Looks at a thread; false when it is gone.
    fn look_or_forget(
        &mut self,
        tick: &mut Tick<'_>,
        process: &mut Watched,
        thread: &mut WatchedThread,
        siblings: &mut Option<u64>,
    ) -> bool {
        let looked = self.look(tick, process, thread);
        match looked {
            Ok(said) => *siblings = said.or(*siblings),
            Err(Gone) => process.elsewhere_ns += thread.ran_ns,
        }
        looked.is_ok()
    }

    /// Adds a thread that has slept, as last known, with its mask; false when it has ended.
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
        let tid = known.id.tid;
        // The kernel changes masks with their cpusets, of threads that sleep too.
        let is_stale = known.has_new_mask || self.cpusets.has_changed(known.cpuset);
        if !process.has_slept || is_stale || self.is_seldom(tid) {
            if tick.kernel.affinity(tid, &mut self.mask).is_err() {
                return self.look_or_forget(tick, process, known, siblings);
            }
            self.take_mask(process.id.pid, known);
        }
        known.late_ns = 0;
        self.show(tick, process, known, Shares::default());
        true
    }

    /// Adds new threads; returns false when the process has ended, even if its number was reused.
    pub(super) fn list_threads(&mut self, tick: &mut Tick<'_>, process: &mut Watched) -> bool {
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
            late_ns: 0,
            affinity: Arc::default(),
            has_new_mask: false,
            cpuset: self.cpuset_of(&folder),
            cpu: CpuId(stat.cpu),
            unmanaged: None,
            is_kernels: false,
            is_shown: false,
            is_new: true,
            looked_in: self.scan,
            ran_in: self.scan,
        };
        // What it ran before this interval does not count.
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

    /// CPU time and time spent waiting for a CPU so far in ns, to the nanosecond if the kernel keeps them
    /// (`sched_info`: a wait is added when it ends, so one over several intervals counts in its last).
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

    /// Looks at one thread, and adds it to the tick if it is alive. Returns its process's number of threads, if that
    /// was read.
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
        let late_ns = tick.kernel.now_ns().saturating_sub(tick.began_ns);
        let before_ns = std::mem::replace(&mut known.late_ns, late_ns);
        let interval_ns = (tick.interval_ns + late_ns).saturating_sub(before_ns);
        let has_slept = kept == Some((known.ran_ns, known.waited_ns));
        let may_rest = process.told_ns.is_some() && known.is_shown && !self.is_seldom(tid);
        if has_slept && may_rest && mask.is_ok() {
            self.take_mask(process.id.pid, known);
            self.show(tick, process, known, Shares::default());
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
        self.take_mask(process.id.pid, known);
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
        let shares = Shares {
            ran: share(ran_in_interval, interval_ns),
            waited: share(waited_ns.saturating_sub(known.waited_ns), interval_ns),
        };
        process.ran_ns += ran_in_interval;
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
        self.show(tick, process, known, shares);
        Ok(Some(siblings))
    }

    /// Keeps a thread's files open if there is room; otherwise, they are opened each time.
    fn keep_open(&mut self, known: &mut WatchedThread, folder: &str) {
        if known.stat.is_none() && self.open < MOST_OPEN {
            let open = |name: &str| self.root.open(&format!("{folder}/{name}")).ok();
            (known.stat, known.schedstat) = (open("stat"), open("schedstat"));
            self.open += 1;
        }
    }

    /// Stores the mask that was just read as a thread's.
    fn take_mask(&mut self, pid: u32, known: &mut WatchedThread) {
        let was_set = std::mem::take(&mut known.has_new_mask) || known.is_new;
        while self.mask.last() == Some(&0) {
            self.mask.pop();
        }
        if known.affinity.as_words() == self.mask {
            return;
        }
        known.affinity = Arc::new(CpuSet::of_words(self.mask.clone()));
        if !was_set {
            // It may have been put into another cgroup.
            known.cpuset = self.cpuset_of(&format!("proc/{pid}/task/{}", known.id.tid));
        }
    }

    /// Adds a thread to the tick, as it is known.
    fn show(
        &mut self,
        tick: &mut Tick<'_>,
        process: &Watched,
        known: &mut WatchedThread,
        shares: Shares,
    ) {
        let cpuset = self.cpusets.cpus(known.cpuset);
        let (id, parent) = (process.id, process.parent);
        let assignments = &mut *tick.assignments;
        let is_new = std::mem::take(&mut known.is_new);
        let owner = assignments.owner(known.id, id, parent, &known.affinity, &cpuset, is_new);
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
        // The kernel binds its own threads for its own reasons.
        let is_pinned = !known.is_kernels && assignments.is_pinned(known.id);
        tick.threads.push(Thread {
            id: known.id,
            process: id,
            name: known.name.clone(),
            cpu: known.cpu,
            assigned,
            affinity: known.affinity.clone(),
            cpuset,
            cpu_share: shares.ran,
            wait_share: shares.waited,
            tag: is_pinned.then_some(Tag::Mask),
            counts: None,
            unmanaged,
        });
    }
}

/// The shares of the time since a thread's last look in which it ran, and waited for a CPU.
#[derive(Clone, Copy, Default)]
struct Shares {
    ran: f64,
    waited: f64,
}

/// A time as a share of the interval, 0 to 1, in millionths: the clocks are no better, and it prints short.
fn share(ns: u64, interval_ns: u64) -> f64 {
    if interval_ns == 0 {
        return 0.0;
    }
    (ns as f64 / interval_ns as f64 * 1e6).round().min(1e6) / 1e6
}

/// Reads a small file from its start: by its open descriptor, else by its path.
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
