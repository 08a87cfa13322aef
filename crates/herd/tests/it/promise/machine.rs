//! A machine in memory with the kernel that runs on it: each call to it is a step, before which events may happen and
//! Numaherd may be killed.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Bound, Bounds, Effort, Kinship, Orders,
    Outcome, Pager, ProcessId, Progress, Search, SignalReport, Snapshot, ThreadId, World,
    WorldError, is_whole,
};

use super::Course;
use super::kernel::{ALL, Event, Kernel, Mask, Process, Set, Thread};
use crate::fake::{machine, measured, snapshot, thread};

/// How often a list is read in one search. `host` reads it more often; once must be enough.
const MOST_LISTS: usize = 2;

/// What may be wrong with Numaherd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A mask is set before its entry is in the journal.
    MaskBeforeEntry,
    /// Threads are listed once, although others start meanwhile.
    ListedOnce,
    /// Heirs are not looked for.
    NoHeirs,
    /// How old sessions are does not count.
    AnySession,
}

/// A state in which Numaherd may be killed, and at which step.
pub(super) type Killed = (Kernel, Option<Vec<u8>>, usize);

/// A course under way.
pub(super) struct Machine {
    topology: Arc<Topology>,
    signals: Vec<SignalReport>,
    assigned: BTreeMap<ThreadId, CpuId>,
    /// Intervals until the herd is stopped.
    left: u64,
    glances: bool,
    observed: u64,
    /// Processes that need not be looked at again: nothing in them was bound, or they are selected.
    passed_over: Vec<u32>,
    flaw: Option<Flaw>,
    // Steps are made in questions too.
    pub(super) now: RefCell<Now>,
}

pub(super) struct Now {
    pub(super) kernel: Kernel,
    path: PathBuf,
    /// The journal as it was at the last step.
    journal: Option<Vec<u8>>,
    step: usize,
    events: VecDeque<(usize, Event)>,
    pub(super) killed: Vec<Killed>,
    /// How many more events may happen, and which at which steps.
    left: usize,
    pub(super) choices: Vec<(usize, Vec<Event>)>,
}

impl Now {
    /// Notes the state as one in which Numaherd may be killed, unless it comes before an event: a course
    /// without that event has it.
    fn may_be_killed(&mut self, journal: Option<Vec<u8>>) {
        if self.events.is_empty() {
            self.killed.push((self.kernel.clone(), journal, self.step));
        }
    }

    /// All that may be between two steps. `reads` is whether the journal as it is now is on disk.
    pub(super) fn step(&mut self, reads: bool) {
        let before = self.journal.take();
        let now = if reads {
            fs::read(&self.path).ok()
        } else {
            before.clone()
        };
        for written in written_in_part(before.as_deref(), now.as_deref()) {
            self.may_be_killed(Some(written));
        }
        self.may_be_killed(now.clone());
        self.journal.clone_from(&now);
        let waiting = self.events.len();
        while self.events.front().is_some_and(|(at, _)| *at == self.step) {
            let (_, event) = self.events.pop_front().expect("looked at above");
            self.kernel.happens(event);
        }
        if self.events.len() < waiting {
            self.may_be_killed(now);
        }
        self.step += 1;
    }

    /// Makes the call that follows a step, and notes what else may happen before it.
    fn make<T: PartialEq>(&mut self, call: impl Fn(&mut Kernel) -> T) -> T {
        let before = self.kernel.clone();
        let answer = call(&mut self.kernel);
        if self.events.is_empty() && self.left > 0 {
            let mut events = before.events();
            events.retain(|&event| {
                let (mut first, mut last) = (before.clone(), self.kernel.clone());
                first.happens(event);
                last.happens(event);
                call(&mut first) != answer || first != last
            });
            if !events.is_empty() {
                self.choices.push((self.step - 1, events));
            }
        }
        answer
    }
}

/// What is in a file while lines are added to it: each line whole, and half of it.
fn written_in_part(before: Option<&[u8]>, now: Option<&[u8]>) -> Vec<Vec<u8>> {
    let (Some(before), Some(now)) = (before, now) else {
        return Vec::new();
    };
    let Some(added) = now.strip_prefix(before) else {
        return Vec::new();
    };
    let mut parts = Vec::new();
    let mut end = before.len();
    for line in added.split_inclusive(|&byte| byte == b'\n') {
        parts.push(now[..end + line.len() / 2].to_vec());
        end += line.len();
        parts.push(now[..end].to_vec());
    }
    parts
}

fn set_of(mask: Mask) -> CpuSet {
    CpuSet::of_words(vec![mask.into()])
}

fn mask_of(set: &CpuSet) -> Mask {
    let words = set.as_words();
    ALL & u8::try_from(words.first().copied().unwrap_or(0) & u64::from(ALL)).expect("few CPUs")
}

fn kinship(process: &Process) -> Kinship {
    Kinship {
        parent: process.parent,
        group: process.session,
        session: process.session,
        cgroup: Some(process.cgroup.to_owned()),
        user: Some(process.user),
    }
}

impl Machine {
    pub(super) fn new(course: &Course, path: &Path, flaw: Option<Flaw>) -> Self {
        Self {
            topology: machine(2, 2),
            signals: measured(),
            assigned: BTreeMap::new(),
            left: course.intervals,
            glances: course.glances,
            observed: 0,
            passed_over: Vec::new(),
            flaw,
            now: RefCell::new(Now {
                kernel: course.kernel.clone(),
                path: path.to_owned(),
                journal: course.journal.clone(),
                step: 0,
                events: course.events.iter().copied().collect(),
                killed: Vec::new(),
                left: course.left,
                choices: Vec::new(),
            }),
        }
    }

    /// Makes a step, then asks or changes the kernel.
    fn call<T: PartialEq>(&self, call: impl Fn(&mut Kernel) -> T) -> T {
        let mut now = self.now.borrow_mut();
        now.step(true);
        now.make(call)
    }

    fn bounds(&self, thread: ThreadId) -> Option<Bounds> {
        self.call(|kernel| {
            kernel.is_known(thread.tid);
            let there = kernel.threads.get(&thread.tid)?;
            (there.born == thread.born).then(|| bounds(kernel, there))
        })
    }

    fn set_affinity(&self, order: &AffinityOrder) -> AffinityResult {
        let mut now = self.now.borrow_mut();
        now.step(self.flaw != Some(Flaw::MaskBeforeEntry));
        let ThreadId { tid, born } = order.thread;
        let set = now.make(|kernel| kernel.set(tid, born, mask_of(&order.cpus)));
        let reads_back = set == Set::Done && now.kernel.is_in_cpuset();
        drop(now);
        match set {
            Set::Gone => AffinityResult::Gone,
            Set::Refused => AffinityResult::Failed {
                error: "EINVAL".to_owned(),
            },
            Set::Done if !reads_back => AffinityResult::Done,
            Set::Done => match self.bounds(order.thread) {
                None => AffinityResult::Gone,
                Some(now) if mask_of(&now.mask) == mask_of(&order.cpus) => AffinityResult::Done,
                Some(now) => AffinityResult::Narrowed { now: now.mask },
            },
        }
    }

    /// The bound threads of a process.
    fn bound_in(&self, pid: u32, masks: &[Arc<CpuSet>], since: u64, effort: Effort) -> Search {
        let mut search = Search::default();
        let mut known: Vec<u32> = Vec::new();
        for _ in 0..MOST_LISTS {
            let mut tids = self.call(|kernel| kernel.threads_of(pid));
            tids.retain(|tid| !known.contains(tid));
            search.is_complete &= !(tids.is_empty() && known.is_empty());
            for &tid in &tids {
                let bound = self.call(|kernel| {
                    let bound = bound(kernel, tid)?;
                    let Bounds { mask, cpus, .. } = &bound.bounds;
                    let is_thorough = effort == Effort::Thorough;
                    let may_be_bound = is_thorough && *cpus != set_of(ALL) || !is_whole(mask, cpus);
                    let is_wanted = masks.iter().any(|mask| bound.bounds.is(mask)) && may_be_bound;
                    let is_wanted = is_wanted && bound.thread.born >= since;
                    if is_wanted {
                        kernel.is_known(tid);
                    }
                    Some(Some(bound).filter(|_| is_wanted))
                });
                search.is_complete &= bound.is_some();
                search.found.extend(bound.flatten());
            }
            if tids.is_empty() || self.flaw == Some(Flaw::ListedOnce) {
                break;
            }
            known.extend(tids);
        }
        search
    }

    /// The bound threads of all processes but those that are passed over, as `host` finds them.
    fn find(&mut self, masks: &[Arc<CpuSet>], since: u64, effort: Effort) -> Search {
        let before = std::mem::take(&mut self.passed_over);
        let mut search = Search::default();
        let (mut known, mut missed): (Vec<u32>, Vec<u32>) = Default::default();
        for _ in 0..MOST_LISTS {
            search.is_complete = true;
            let mut pids: Vec<u32> = self.call(|kernel| kernel.processes.keys().copied().collect());
            pids.retain(|pid| !known.contains(pid));
            if pids.is_empty() {
                break;
            }
            for &pid in &pids {
                if effort == Effort::Quick && before.contains(&pid) {
                    self.passed_over.push(pid);
                    continue;
                }
                let of_process = self.bound_in(pid, masks, since, effort);
                let is_watched = |kernel: &mut Kernel| {
                    let process = kernel.processes.get(&pid);
                    process.is_some_and(|process| process.is_selected)
                };
                if of_process.found.is_empty() || is_watched(&mut self.now.borrow_mut().kernel) {
                    self.passed_over.push(pid);
                }
                search.found.extend(of_process.found);
                if !of_process.is_complete {
                    search.is_complete = false;
                    missed.push(pid);
                }
            }
            known.extend(pids);
            if self.flaw == Some(Flaw::ListedOnce) {
                break;
            }
        }
        let is_known = |pid| known.contains(&pid) && !missed.contains(&pid);
        let is_clear = |bound: &Bound| bound.is_orphan || is_known(bound.kin.parent);
        search.is_complete &= search.found.iter().all(is_clear);
        if !search.is_complete {
            let found: Vec<u32> = search.found.iter().map(|b| b.process.pid).collect();
            self.passed_over.retain(|pid| !found.contains(pid));
        }
        search.is_complete |= self.flaw == Some(Flaw::ListedOnce);
        if self.flaw == Some(Flaw::NoHeirs) {
            search.found.clear();
        }
        if self.flaw == Some(Flaw::AnySession) {
            let of_all = search.found.iter_mut().map(|bound| &mut bound.session_born);
            of_all.for_each(|born| *born = u64::MAX);
        }
        search
    }
}

fn bounds(kernel: &Kernel, thread: &Thread) -> Bounds {
    let cpus = set_of(kernel.cpus_of(thread.process));
    Bounds::new(set_of(kernel.left_of(thread)), cpus)
}

fn bound(kernel: &mut Kernel, tid: u32) -> Option<Bound> {
    let thread = kernel.threads.get(&tid)?;
    let process = &kernel.processes[&thread.process];
    Some(Bound {
        thread: ThreadId {
            tid,
            born: thread.born,
        },
        process: ProcessId {
            pid: thread.process,
            born: process.born,
        },
        name: format!("t{tid}"),
        bounds: bounds(kernel, thread),
        kin: kinship(process),
        is_orphan: kernel.is_orphan(process),
        session_born: kernel.oldest_in(process.session),
    })
}

impl World for Machine {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn run_for(&mut self, _: Duration) -> Progress {
        self.call(|kernel| kernel.now += 1);
        if self.left == 0 {
            return Progress::Ended;
        }
        self.left -= 1;
        Progress::Ran
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let selected = |kernel: &mut Kernel| {
            let processes = kernel.processes.iter();
            let selected = processes.filter(|(_, process)| process.is_selected);
            let with_cpus = selected.map(|(&pid, _)| (pid, kernel.cpus_of(pid)));
            with_cpus.collect::<Vec<_>>()
        };
        let mut threads = Vec::new();
        // As `host` does, which reads a cpuset once, before the masks of its threads.
        for (pid, cpus) in self.call(selected) {
            for tid in self.call(|kernel| kernel.threads_of(pid)) {
                let seen = |kernel: &mut Kernel| {
                    kernel.is_known(tid);
                    bound(kernel, tid)
                };
                let Some(seen) = self.call(seen) else {
                    continue;
                };
                let cpu = seen.bounds.mask.first().expect("no mask is empty");
                threads.push(numaherd_world::Thread {
                    id: seen.thread,
                    process: seen.process,
                    cpu,
                    assigned: self.assigned.get(&seen.thread).copied(),
                    affinity: Arc::new(seen.bounds.mask),
                    cpuset: Arc::new(set_of(cpus)),
                    ..thread(tid, pid, cpu.0, &self.topology)
                });
            }
        }
        self.observed += 1;
        Ok(Snapshot {
            sequence: self.observed - 1,
            ..snapshot(&self.topology, self.observed as f64, &threads)
        })
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        self.bounds(thread).map(|bounds| bounds.mask)
    }

    fn bounds_of(&mut self, thread: ThreadId) -> Option<Bounds> {
        self.bounds(thread)
    }

    fn births_now(&self) -> u64 {
        self.call(|kernel| kernel.now)
    }

    fn kinship(&self, process: ProcessId) -> Kinship {
        self.call(|kernel| {
            let there = kernel.processes.get(&process.pid);
            let there = there.filter(|there| there.born == process.born);
            there.map(kinship).unwrap_or_default()
        })
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64, effort: Effort) -> Search {
        self.find(masks, since, effort)
    }

    fn sees_starts(&self) -> bool {
        self.glances
    }

    fn started_with(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Vec<Bound> {
        self.find(masks, since, Effort::Quick).found
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let mut outcome = Outcome::default();
        for order in &orders.affinities {
            let result = self.set_affinity(order);
            let is_set = matches!(
                result,
                AffinityResult::Done | AffinityResult::Narrowed { .. }
            );
            if let Some(core) = order.core.filter(|_| is_set) {
                self.assigned.insert(order.thread, core);
            } else {
                self.assigned.remove(&order.thread);
            }
            outcome.affinities.push(AffinityOutcome {
                thread: order.thread,
                result,
            });
        }
        outcome
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        None
    }
}
