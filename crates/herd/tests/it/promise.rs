//! The promise: every thread gets its affinity back, whenever Numaherd is killed, and whatever threads do meanwhile.
//!
//! The real herd, governor, journal and `release` run on a [`Kernel`] in memory. Each system call that they make is a
//! *step*. All courses up to a bound are run through: between any two steps an [`Event`] may happen (a thread
//! starts another, a process ends, ...), and at any step Numaherd may be killed, in `release` too, as often as
//! it likes; a line that it was writing may have been written in part. Then `release` runs, or a new
//! herd starts. What was left by a kill before is looked at once: a state (kernel, journal, events that may still
//! happen) in which a course has been killed already leads nowhere new. Nor does an
//! event before a call that answers and does the same after it: then it may as well happen after the call, and is tried
//! before the next one to which it makes a difference (a *partial-order reduction*). A kill between the two is a kill
//! before both, followed by the event.
//!
//! Holds: where one of them comes to its end, each thread has the mask that it is due, and nothing is owed.
//! A [`Flaw`] shows that this can fail, and that it is found.

mod kernel;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use numaherd_herd::journal::{Affinities, Journal, restore};
use numaherd_herd::settings::{Steal, StealWhen, Worse};
use numaherd_herd::{AffinityScope, Herd, Limits, Settings};
use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Bound, Bounds, Kinship, Orders, Outcome, Pager,
    Placement, ProcessId, Progress, Search, SignalReport, Snapshot, ThreadId, World, WorldError,
};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{machine, measured, place, policy, snapshot, thread};
use kernel::{ALL, Event, Kernel, Mask, Process};

const BOOT: &str = "this boot";

/// How often a list is read in one search. `host` reads it more often; once must be enough.
const MOST_LISTS: usize = 2;

static GO: AtomicBool = AtomicBool::new(false);

/// What may be wrong with Numaherd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// A mask is set before its entry is in the journal.
    MaskBeforeEntry,
    /// Threads are listed once, although others start meanwhile.
    ListedOnce,
    /// Heirs are not looked for.
    NoHeirs,
    /// How old sessions are does not count.
    AnySession,
}

/// What of Numaherd runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// A herd, which gives back first what is owed.
    Run,
    Release,
}

/// A course: from which state, what happens at which steps, and how it came to that.
#[derive(Clone, Debug)]
struct Course {
    command: Command,
    kernel: Kernel,
    journal: Option<Vec<u8>>,
    events: Vec<(usize, Event)>,
    /// For how many intervals a herd runs: threads are placed in the first and moved in the second.
    intervals: u64,
    /// How many more events may happen.
    left: usize,
    /// Whether a herd may start anew after a kill.
    may_start: bool,
    /// What was before the last kill.
    before: Vec<String>,
}

/// A state in which Numaherd may be killed, and at which step.
type Killed = (Kernel, Option<Vec<u8>>, usize);

/// A course under way.
struct Machine {
    topology: Arc<Topology>,
    signals: Vec<SignalReport>,
    assigned: BTreeMap<ThreadId, CpuId>,
    /// Intervals until the herd is stopped.
    left: u64,
    observed: u64,
    /// Processes that need not be looked at again: nothing in them was bound, or they are selected.
    passed_over: Vec<u32>,
    flaw: Option<Flaw>,
    // Steps are made in questions too.
    now: RefCell<Now>,
}

struct Now {
    kernel: Kernel,
    path: PathBuf,
    /// The journal as it was at the last step.
    journal: Option<Vec<u8>>,
    step: usize,
    events: VecDeque<(usize, Event)>,
    killed: Vec<Killed>,
    /// How many more events may happen, and which at which steps.
    left: usize,
    choices: Vec<(usize, Vec<Event>)>,
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
    fn step(&mut self, reads: bool) {
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
    fn new(course: &Course, path: &Path, flaw: Option<Flaw>) -> Self {
        Self {
            topology: machine(2, 2),
            signals: measured(),
            assigned: BTreeMap::new(),
            left: course.intervals,
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
            (there.born == thread.born).then(|| Bounds {
                mask: set_of(there.mask),
                cpus: set_of(ALL),
            })
        })
    }

    fn set_affinity(&self, order: &AffinityOrder) -> AffinityResult {
        let mut now = self.now.borrow_mut();
        now.step(self.flaw != Some(Flaw::MaskBeforeEntry));
        let ThreadId { tid, born } = order.thread;
        if now.make(|kernel| kernel.set(tid, born, mask_of(&order.cpus))) {
            AffinityResult::Done
        } else {
            AffinityResult::Gone
        }
    }

    /// The bound threads of a process.
    fn bound_in(&self, pid: u32, masks: &[Arc<CpuSet>], since: u64) -> Search {
        let mut search = Search::default();
        let mut known: Vec<u32> = Vec::new();
        for _ in 0..MOST_LISTS {
            let mut tids = self.call(|kernel| kernel.threads_of(pid));
            tids.retain(|tid| !known.contains(tid));
            search.is_complete &= !(tids.is_empty() && known.is_empty());
            for &tid in &tids {
                let bound = self.call(|kernel| {
                    let bound = bound(kernel, tid)?;
                    let is_wanted = masks.iter().any(|mask| bound.bounds.is(mask));
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
    fn find(&mut self, masks: &[Arc<CpuSet>], since: u64, thoroughly: bool) -> Search {
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
                if !thoroughly && before.contains(&pid) {
                    self.passed_over.push(pid);
                    continue;
                }
                let of_process = self.bound_in(pid, masks, since);
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
        bounds: Bounds {
            mask: set_of(thread.mask),
            cpus: set_of(ALL),
        },
        kin: kinship(process),
        is_orphan: kernel.is_orphan(process),
        session_born: kernel.oldest_in(process.session),
    })
}

impl Affinities for Machine {
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        Ok(self.bounds(thread))
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search {
        self.find(masks, since, true)
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        self.set_affinity(order)
    }
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
            selected.map(|(&pid, _)| pid).collect::<Vec<_>>()
        };
        let mut threads = Vec::new();
        for pid in self.call(selected) {
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

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64, thoroughly: bool) -> Search {
        self.find(masks, since, thoroughly)
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let mut outcome = Outcome::default();
        for order in &orders.affinities {
            let result = self.set_affinity(order);
            if let (AffinityResult::Done, Some(core)) = (&result, order.core) {
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

/// Gives each thread a node, and the other one in the next interval.
fn to_and_fro(snapshot: &Snapshot) -> Vec<Placement> {
    let threads = snapshot.threads.iter();
    let placed = threads.map(|thread| {
        let node = (u64::from(thread.id.tid) + snapshot.sequence) % 2;
        place(thread, if node == 0 { 0 } else { 2 })
    });
    placed.collect()
}

fn settings() -> Settings {
    Settings {
        limits: Limits {
            scope: Some(AffinityScope::Node),
            worse: Worse {
                undo: false,
                ..Worse::default()
            },
            steal: Steal {
                when: StealWhen::Never,
                ..Steal::default()
            },
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    courses: usize,
    kills: usize,
}

/// What may follow a course: kills in it, and events that happen in it too.
struct Sequel {
    killed: Vec<Killed>,
    choices: Vec<(usize, Vec<Event>)>,
}

/// A disk, and what is wrong with the Numaherd that uses it.
struct Stage {
    directory: TempDir,
    flaw: Option<Flaw>,
}

impl Stage {
    fn new(flaw: Option<Flaw>) -> Self {
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        Self {
            directory: directory.unwrap(),
            flaw,
        }
    }

    /// Runs a course to its end.
    fn run(&self, course: &Course) -> Result<Sequel, String> {
        let path = self.directory.path().join("journal");
        for file in ["journal", "journal.damaged"] {
            let _ = fs::remove_file(self.directory.path().join(file));
        }
        if let Some(journal) = &course.journal {
            fs::write(&path, journal).unwrap();
        }
        let mut machine = Machine::new(course, &path, self.flaw);
        match course.command {
            Command::Run => {
                let mut journal = Journal::open(&path, BOOT, "a herd").unwrap();
                journal.restore(&mut machine);
                let policy = policy(to_and_fro);
                let herd = Herd::new(&mut machine, policy)
                    .settings(settings())
                    .journal(journal);
                herd.run(&GO).unwrap();
            }
            Command::Release => {
                restore(&path, BOOT, "release", &mut machine).unwrap();
            }
        }
        let mut now = machine.now.into_inner();
        let choices = std::mem::take(&mut now.choices);
        now.step(true);
        let (bound, is_owed) = (now.kernel.bound(), path.exists());
        if bound.is_empty() && !is_owed {
            let killed = now.killed;
            return Ok(Sequel { killed, choices });
        }
        Err(format!(
            "threads {bound:?} are left bound, a journal is left: {is_owed}\n{}\n{}\n{:#?}",
            course.before.join("\n"),
            shown(course, None),
            now.kernel
        ))
    }
}

impl Course {
    /// What a herd on this kernel begins with.
    fn start(kernel: Kernel, intervals: u64, events: usize) -> Self {
        Self {
            command: Command::Run,
            kernel,
            journal: None,
            events: Vec::new(),
            intervals,
            left: events,
            may_start: true,
            before: Vec::new(),
        }
    }

    /// The same with one more event.
    fn with(&self, step: usize, event: Event) -> Self {
        let mut longer = self.clone();
        longer.events.push((step, event));
        longer.left -= 1;
        longer
    }

    /// What follows if it is killed.
    fn after(&self, killed: Killed, command: Command) -> Self {
        let (kernel, journal, step) = killed;
        let mut before = self.before.clone();
        before.push(shown(self, Some(step)));
        Self {
            command,
            kernel,
            journal,
            events: Vec::new(),
            intervals: self.intervals,
            left: self.left,
            may_start: self.may_start && command == Command::Release,
            before,
        }
    }
}

fn shown(course: &Course, killed: Option<usize>) -> String {
    let Course {
        command, events, ..
    } = course;
    let killed = killed.map_or_else(String::new, |step| format!(", killed at step {step}"));
    format!("{command:?}: {events:?}{killed}")
}

/// Runs a course and all that follow from it; a herd starts anew at most once, and nothing happens then but before
/// its first step.
fn explore(flaw: Option<Flaw>, course: Course) -> Result<Extent, String> {
    let stage = Stage::new(flaw);
    let mut extent = Extent::default();
    let (mut known, mut begun, mut runs) = (HashSet::new(), HashSet::new(), HashSet::new());
    let mut waiting = vec![course];
    while let Some(course) = waiting.pop() {
        let sequel = stage.run(&course)?;
        extent.courses += 1;
        for killed in sequel.killed {
            let (kernel, journal, step) = killed.clone();
            let state = (kernel, journal, course.left, course.may_start);
            if !known.insert(state.clone()) {
                continue;
            }
            extent.kills += 1;
            let (kernel, journal, ..) = state;
            let mut starts = vec![(kernel, course.left)];
            while let Some((kernel, left)) = starts.pop().filter(|_| course.may_start) {
                if !begun.insert((kernel.clone(), journal.clone(), left)) {
                    continue;
                }
                for event in kernel.events().into_iter().filter(|_| left > 0) {
                    let mut changed = kernel.clone();
                    changed.happens(event);
                    starts.push((changed, left - 1));
                }
                if runs.insert((kernel.clone(), journal.clone())) {
                    let run = course.after((kernel, journal.clone(), step), Command::Run);
                    waiting.push(Course { left: 0, ..run });
                }
            }
            waiting.push(course.after(killed, Command::Release));
        }
        for (step, events) in sequel.choices {
            waiting.extend(events.into_iter().map(|event| course.with(step, event)));
        }
    }
    Ok(extent)
}

/// Nobody is left bound by a course, nor by any that follows from it.
fn holds(course: Course) {
    let found = explore(None, course);
    println!("{:?}", found.unwrap_or_else(|found| panic!("{found}")));
}

#[test]
fn every_thread_gets_its_affinity_back_wherever_numaherd_is_killed() {
    for selects_children in [true, false] {
        holds(Course::start(Kernel::new(1, selects_children), 1, 1));
        holds(Course::start(Kernel::new(2, selects_children), 2, 1));
    }
}

#[test]
#[ignore = "90,427 courses take 22 s of processor time in a dev build"]
fn so_it_does_whichever_two_events_happen() {
    for selects_children in [true, false] {
        holds(Course::start(Kernel::new(1, selects_children), 1, 2));
    }
}

/// A child of a placed thread, and the child's.
#[test]
fn so_does_each_of_three_generations() {
    let start = Course::start(Kernel::new(2, false), 2, 2);
    holds(start.with(30, Event::Fork(10)).with(30, Event::Fork(30)));
}

/// Nor do orphans of a program of the same user and cgroup that its user has pinned, all of whose threads are to keep
/// its mask.
#[test]
fn orphans_of_a_pinned_program_keep_their_mask() {
    holds(beside_pinned());
}

/// A herd beside a pinned program that has just started another.
fn beside_pinned() -> Course {
    Course::start(Kernel::new(1, false).with_pinned(), 2, 2).with(30, Event::Fork(25))
}

#[test]
fn what_would_break_the_promise_is_found() {
    let start = |events| Course::start(Kernel::new(2, false), 2, events);
    let with_heir = start(2).with(30, Event::Fork(10));
    for (flaw, course) in [
        (Flaw::MaskBeforeEntry, start(0)),
        (Flaw::NoHeirs, start(1)),
        (Flaw::ListedOnce, with_heir),
        (Flaw::AnySession, beside_pinned()),
    ] {
        let found = explore(Some(flaw), course).expect_err("a flaw");
        assert!(found.contains("are left bound"), "{flaw:?}: {found}");
    }
}

proptest! {
    /// Some of the courses that are too many to run all: at each turn something happens, or Numaherd is killed.
    #[test]
    fn many_events_and_kills_change_nothing_in_that(
        selects_children in any::<bool>(),
        turns in prop::collection::vec((0u8..3, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..10),
    ) {
        let stage = Stage::new(None);
        let mut course = Course::start(Kernel::new(2, selects_children), 2, turns.len());
        for (turn, at, which) in turns {
            let sequel = stage.run(&course).map_err(TestCaseError::fail)?;
            if turn == 0 {
                let command = [Command::Run, Command::Release][which.index(2)];
                course = course.after(at.get(&sequel.killed).clone(), command);
            } else if !sequel.choices.is_empty() {
                let (step, events) = at.get(&sequel.choices);
                course = course.with(*step, *which.get(events));
            }
        }
        stage.run(&course).map_err(TestCaseError::fail)?;
    }
}
