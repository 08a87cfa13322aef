//! Finds threads by their mask, anywhere on the machine: threads started with a mask of ours may be in processes that
//! are not watched.
//!
//! A process that was looked at is skipped until the next thorough look, unless it has such threads and is not watched:
//! a thread that starts with a mask of ours is in a new process, or in one that has such threads.
//!
//! A thread may start another and end before it is looked at. So each list is read again until it has nothing new: if
//! no such thread is found then, there is none, nor any thread that could start one except the watched ones. If
//! processes start faster than they can be looked at, this would not end, so a list is read [`MOST_LISTS`] times at
//! most. The search is still complete if every new entry in the last list could be looked at: later ones are started by
//! these or by their descendants. It is not complete if the parent of a found thread could not be looked at, since only
//! an orphan shows whether it is an heir; nor if a thread that was given back may be in the middle of starting another
//! ([`mid_fork`](crate::mid_fork)).
//!
//! While the kernel sets masks anew, they do not show what it has left of ours. So masks are also compared with what
//! recent cpusets would leave of ours. If a cpuset has changed during a search, its threads that seemed to have other
//! masks are looked at until the mask and cpuset of each belong together. If they do not, or the mask is one of ours,
//! the search is not complete.

mod numbers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{Bound, Bounds, Effort, Kinship, ProcessId, Search, ThreadId, is_whole};

use crate::cpusets::{CpusetNumber, Cpusets};
use crate::files::Root;
use crate::kernel::{Errno, Kernel};
use crate::mid_fork::MidFork;
use crate::proc::{cgroup, stat, status};
use crate::threads::{BETWEEN_LOOKS, MOST_LOOKS, look};
use numbers::Numbers;

/// Time in ns between two thorough looks that nobody asked for.
const SELDOM_NS: u64 = 16_000_000_000;

/// How long a thorough look waits for threads in the middle of starting another, in ns (chosen here).
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

/// How often a list is read in one look (chosen here).
const MOST_LISTS: usize = 16;

/// Looks at all threads of the machine.
#[derive(Debug)]
pub(crate) struct Sweep {
    root: Root,
    cpusets: Cpusets,
    /// The processes that need not be looked at again soon, ascending.
    passed_over: Vec<u32>,
    /// When the next thorough look is due.
    thorough_at_ns: u64,
    /// The earliest birth in each session, once a look has needed it.
    sessions: Option<BTreeMap<u32, u64>>,
    /// Threads whose children may not be visible yet.
    mid_fork: MidFork,
    /// The threads with other masks than the wanted ones, in the present search.
    others: Vec<Other>,
    numbers: Numbers,
}

/// A thread whose mask seems to be none of the wanted ones.
#[derive(Clone, Copy, Debug)]
struct Other {
    pid: u32,
    tid: u32,
    cpuset: CpusetNumber,
}

/// A process and its family, as in [`Bound`].
struct Family {
    process: ProcessId,
    kin: Kinship,
    is_orphan: bool,
    session_born: u64,
}

/// What is looked for.
pub(crate) struct Wanted<'w> {
    /// Threads with one of these masks, or what the kernel has left of one,
    pub(crate) masks: &'w [Arc<CpuSet>],
    /// born no earlier than this, in clock ticks since boot.
    pub(crate) since: u64,
    pub(crate) effort: Effort,
    /// Whether the new threads of the process with this number are watched.
    pub(crate) is_watched: &'w dyn Fn(u32) -> bool,
}

impl Sweep {
    pub(crate) fn new(root: Root) -> Self {
        Self {
            cpusets: Cpusets::new(root.clone()),
            numbers: Numbers::default(),
            root,
            passed_over: Vec::new(),
            thorough_at_ns: 0,
            sessions: None,
            mid_fork: MidFork::default(),
            others: Vec::new(),
        }
    }

    /// A thread has been given its affinity back just now.
    pub(crate) fn given_back(&mut self, tid: u32) {
        self.mid_fork.given_back(&self.root, tid);
    }

    /// Whether all children of the threads given back are visible; a thorough look waits for that.
    fn are_born(&mut self, kernel: &dyn Kernel, effort: Effort) -> bool {
        let begun_ns = kernel.now_ns();
        loop {
            if self.mid_fork.are_through(&self.root) {
                return true;
            }
            if effort == Effort::Quick {
                return false;
            }
            if kernel.now_ns() - begun_ns > LONGEST_WAIT_NS {
                self.mid_fork.leave_waiting(&self.root);
                return false;
            }
            kernel.pause(Duration::from_millis(1));
        }
    }

    /// The present cpusets, given these online CPUs.
    pub(crate) fn cpusets(&mut self, online: &CpuSet) -> &mut Cpusets {
        self.cpusets.begin(online);
        &mut self.cpusets
    }

    /// Finds them.
    pub(crate) fn find(
        &mut self,
        kernel: &dyn Kernel,
        online: &CpuSet,
        wanted: &Wanted<'_>,
    ) -> Search {
        let are_born = self.are_born(kernel, wanted.effort);
        self.cpusets.begin(online);
        self.others.clear();
        self.sessions = None;
        let now_ns = kernel.now_ns();
        let is_thorough = wanted.effort == Effort::Thorough || now_ns >= self.thorough_at_ns;
        if is_thorough {
            self.thorough_at_ns = now_ns + SELDOM_NS;
        }
        let mut search = Search::default();
        let before = std::mem::take(&mut self.passed_over);
        let (mut known, mut missed) = (Vec::new(), BTreeSet::new());
        for _ in 0..MOST_LISTS {
            search.is_complete = true;
            let mut pids = self.unknown("proc", &mut known);
            if pids.is_empty() {
                break;
            }
            pids.retain(|&pid| {
                let is_known = !is_thorough && before.binary_search(&pid).is_ok();
                is_known || {
                    let of_process = self.of_process(kernel, online, wanted, pid);
                    let has_none = of_process.found.is_empty();
                    search.found.extend(of_process.found);
                    if !of_process.is_complete {
                        search.is_complete = false;
                        missed.insert(pid);
                    }
                    has_none || (wanted.is_watched)(pid)
                }
            });
            self.passed_over.append(&mut pids);
        }
        self.passed_over.sort_unstable();
        let is_known = |pid| known.binary_search(&pid).is_ok() && !missed.contains(&pid);
        let is_clear = |bound: &Bound| bound.is_orphan || is_known(bound.kin.parent);
        search.is_complete &= are_born && search.found.iter().all(is_clear);
        search.is_complete &= self.are_others(kernel, wanted);
        if !search.is_complete {
            let found: BTreeSet<u32> = search.found.iter().map(|b| b.process.pid).collect();
            self.passed_over.retain(|pid| !found.contains(pid));
        }
        search
    }

    /// Threads that were started before now are none that [`Self::find_started`] finds.
    pub(crate) fn begin_started(&mut self) {
        self.numbers.begin(&self.root);
    }

    /// Finds those that were started since the last call; not all, where many were. Where none has such a mask, hardly
    /// anything is read.
    pub(crate) fn find_started(
        &mut self,
        kernel: &dyn Kernel,
        online: impl FnOnce() -> CpuSet,
        masks: &[Arc<CpuSet>],
        since: u64,
    ) -> Vec<Bound> {
        let (mut words, mut pids) = (Vec::new(), BTreeSet::new());
        let started = self.numbers.take(&self.root, |tid| {
            kernel.affinity(tid, &mut words)?;
            let mask = CpuSet::of_words(words.clone());
            if masks.iter().any(|wanted| mask.is_subset(wanted)) {
                let text = self.root.read(&format!("proc/{tid}/status"));
                pids.extend(text.ok().and_then(|text| status::parse(&text).process));
            }
            Ok(())
        });
        if pids.is_empty() {
            return Vec::new();
        }
        let online = online();
        let wanted = Wanted {
            masks,
            since,
            effort: Effort::Quick,
            is_watched: &|_| false,
        };
        self.cpusets.begin(&online);
        self.others.clear();
        self.sessions = None;
        let of_process = |pid| self.of_process(kernel, &online, &wanted, pid).found;
        let mut found: Vec<Bound> = pids.into_iter().flat_map(of_process).collect();
        found.retain(|bound| started.contains(&bound.thread.tid));
        found
    }

    /// Whether the threads that seemed to have other masks do, where their cpusets have recently changed.
    fn are_others(&mut self, kernel: &dyn Kernel, wanted: &Wanted<'_>) -> bool {
        let mut others = std::mem::take(&mut self.others);
        self.cpusets.begin_again(kernel.now_ns());
        others.retain(|other| {
            self.cpusets.cpus(other.cpuset);
            !self.cpusets.earlier(other.cpuset).is_empty()
        });
        let (mut words, mut are_others) = (Vec::new(), true);
        for _ in 0..MOST_LOOKS {
            if others.is_empty() || !are_others {
                break;
            }
            kernel.pause(BETWEEN_LOOKS);
            others.retain(|&Other { pid, tid, .. }| {
                self.cpusets.refresh(kernel.now_ns());
                let mask = || {
                    let answer = kernel.affinity(tid, &mut words);
                    answer.map(|()| Some(CpuSet::of_words(words.clone())))
                };
                let folder = format!("proc/{pid}/task/{tid}");
                let Ok(Some(now)) = look(kernel, &mut self.cpusets, &folder, mask) else {
                    return false;
                };
                are_others &= !wanted.masks.iter().any(|mask| now.bounds.is(mask));
                !now.is_settled
            });
        }
        are_others && others.is_empty()
    }

    /// The numbers in a folder that are not `known` yet; now they are.
    fn unknown(&self, folder: &str, known: &mut Vec<u32>) -> Vec<u32> {
        let mut numbers = self.root.numbers(folder, "").unwrap_or_default();
        numbers.retain(|number| known.binary_search(number).is_err());
        known.extend(&numbers);
        known.sort_unstable();
        numbers
    }

    /// The wanted threads of a process. The search is complete if each listed thread could be looked at.
    fn of_process(
        &mut self,
        kernel: &dyn Kernel,
        online: &CpuSet,
        wanted: &Wanted<'_>,
        pid: u32,
    ) -> Search {
        let list = format!("proc/{pid}/task");
        let (mut listed, mut lists) = (Vec::new(), 0);
        let mut tids = Vec::new();
        let mut words = Vec::new();
        let mut mask_of = |tid| {
            let answer = kernel.affinity(tid, &mut words);
            answer.map(|()| CpuSet::of_words(words.clone()))
        };
        let mut search = Search::default();
        let mut process = None;
        loop {
            if tids.is_empty() && lists < MOST_LISTS {
                tids = self.unknown(&list, &mut listed);
                lists += 1;
            }
            let Some(tid) = tids.pop() else {
                // Without a thread, it has ended or may not be listed.
                let has_ended = listed.is_empty() && mask_of(pid) == Err(Errno::SRCH);
                search.is_complete &= !has_ended;
                return search;
            };
            let mask = match mask_of(tid) {
                Ok(mask) if !is_whole(&mask, online) => mask,
                answer => {
                    search.is_complete &= answer != Err(Errno::SRCH);
                    continue;
                }
            };
            let folder = format!("{list}/{tid}");
            self.cpusets.refresh(kernel.now_ns());
            let cpuset = self.cpusets.number_of(&folder);
            let bounds = Bounds {
                mask,
                cpus: (*self.cpusets.cpus(cpuset)).clone(),
                earlier: self.cpusets.earlier(cpuset),
            };
            // If a mask has all CPUs of a smaller cpuset, or none of its CPUs, the kernel leaves the whole cpuset, and
            // sets the mask again when that is widened. Threads without a mask look the same, so this is checked only
            // when all threads are looked at.
            let may_be_ours =
                wanted.effort == Effort::Thorough || !is_whole(&bounds.mask, &bounds.cpus);
            let is_wanted = |given: &Arc<CpuSet>| bounds.is(given);
            if !may_be_ours || !wanted.masks.iter().any(is_wanted) {
                self.others.push(Other { pid, tid, cpuset });
                continue;
            }
            // A number may be reused at any time: the mask must be this thread's before and after.
            let process = process.get_or_insert_with(|| self.process(pid));
            if let Some(bound) = self.known(&folder, process.as_ref(), tid, bounds)
                && mask_of(tid).as_ref() == Ok(&bound.bounds.mask)
                && kernel.born(tid) == Some(bound.thread.born)
            {
                search
                    .found
                    .extend(Some(bound).filter(|bound| bound.thread.born >= wanted.since));
            } else {
                search.is_complete &= self.is_kernels(&folder);
            }
        }
    }

    /// Whether a thread is the kernel's own, which starts nobody with its mask.
    fn is_kernels(&self, folder: &str) -> bool {
        let text = self.root.read(&format!("{folder}/stat"));
        text.is_ok_and(|text| stat::parse(&text).is_some_and(|stat| stat.is_kernels()))
    }

    /// What files say about a thread; `None` if it is the kernel's own or has ended.
    fn known(
        &self,
        folder: &str,
        process: Option<&Family>,
        tid: u32,
        bounds: Bounds,
    ) -> Option<Bound> {
        let text = self.root.read(&format!("{folder}/stat")).ok()?;
        let stat = stat::parse(&text).filter(|stat| !stat.has_ended() && !stat.is_kernels())?;
        let family = process?;
        Some(Bound {
            thread: ThreadId {
                tid,
                born: stat.born,
            },
            process: family.process,
            name: String::from_utf8_lossy(stat.name).into_owned(),
            is_orphan: family.is_orphan,
            session_born: family.session_born,
            bounds,
            kin: family.kin.clone(),
        })
    }

    fn process(&mut self, pid: u32) -> Option<Family> {
        let (born, kin) = kinship(&self.root, pid)?;
        let is_orphan = self.is_orphan(&kin);
        // Used for orphans only.
        let session_born = match is_orphan {
            true => born.min(self.oldest_in(kin.session)),
            false => born,
        };
        Some(Family {
            process: ProcessId { pid, born },
            kin,
            is_orphan,
            session_born,
        })
    }

    /// When the oldest known process of a session was born: the one that began it or, if that has ended, the oldest
    /// that is left.
    fn oldest_in(&mut self, session: u32) -> u64 {
        if let Some((_, born)) = self.session_and_birth(session) {
            return born;
        }
        let mut sessions = self.sessions.take().unwrap_or_else(|| {
            let pids = self.root.numbers("proc", "").unwrap_or_default();
            let mut sessions = BTreeMap::new();
            for (session, born) in pids
                .into_iter()
                .filter_map(|pid| self.session_and_birth(pid))
            {
                let oldest = sessions.entry(session).or_insert(born);
                *oldest = born.min(*oldest);
            }
            sessions
        });
        let oldest = *sessions.entry(session).or_insert(u64::MAX);
        self.sessions = Some(sessions);
        oldest
    }

    fn session_and_birth(&self, pid: u32) -> Option<(u32, u64)> {
        let text = self.root.read(&format!("proc/{pid}/stat")).ok()?;
        stat::parse(&text).map(|stat| (stat.session, stat.born))
    }

    /// Whether the parent may have adopted the process when its starter ended: a process that takes orphans in is in
    /// another session than they, or is the first process.
    fn is_orphan(&self, kin: &Kinship) -> bool {
        let session = || {
            self.session_and_birth(kin.parent)
                .map(|(session, _)| session)
        };
        kin.parent <= 1 || session() != Some(kin.session)
    }
}

/// When a process was born, and its kinship.
pub(crate) fn kinship(root: &Root, pid: u32) -> Option<(u64, Kinship)> {
    let read = |name: &str| root.read(&format!("proc/{pid}/{name}"));
    let text = read("stat").ok()?;
    let stat = stat::parse(&text)?;
    let cgroups = read("cgroup").map(|text| cgroup::parse(&text));
    let cgroups = cgroups.unwrap_or_default();
    let paths: Vec<&str> = cgroups.paths().map(String::as_str).collect();
    let is_root = paths.iter().all(|path| *path == "/");
    let kin = Kinship {
        parent: stat.parent,
        group: stat.group,
        session: stat.session,
        cgroup: (!is_root).then(|| paths.join(" ")),
        user: read("status")
            .ok()
            .and_then(|text| status::parse(&text).user),
    };
    Some((stat.born, kin))
}

#[cfg(test)]
mod tests;
