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
mod machine;

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use numaherd_herd::journal::{Journal, restore};
use numaherd_herd::settings::{Steal, StealWhen, Worse};
use numaherd_herd::{AffinityScope, Herd, Limits, Settings};
use numaherd_world::{Placement, Snapshot};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::fake::{Released, place, policy};
use kernel::{Event, Kernel};
use machine::{Flaw, Killed, Machine};

const BOOT: &str = "this boot";

/// Before which steps a child is started that may have its parent's second mask (chosen here: from the first move to the end of
/// a run of two intervals without a child).
const STEPS_AFTER_A_MOVE: std::ops::Range<usize> = 18..50;

static GO: AtomicBool = AtomicBool::new(false);

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
    /// Whether a herd asks what was started, too: once, in its second interval.
    glances: bool,
    /// How many more events may happen.
    left: usize,
    /// Whether it may be killed.
    may_be_killed: bool,
    /// Whether a herd may start anew after a kill.
    may_start: bool,
    /// What was before the last kill.
    before: Vec<String>,
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
                journal.restore(&mut Released(&mut machine));
                let policy = policy(to_and_fro);
                let herd = Herd::new(&mut machine, policy)
                    .settings(settings())
                    .journal(journal);
                herd.run(&GO).unwrap();
            }
            Command::Release => {
                restore(&path, BOOT, "release", &mut Released(&mut machine)).unwrap();
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
            glances: false,
            left: events,
            may_be_killed: true,
            may_start: true,
            before: Vec::new(),
        }
    }

    /// The same where it is not killed, and nothing happens but to cpusets.
    fn ends_while_cpusets_change(self) -> Self {
        Self {
            may_be_killed: false,
            ..self
        }
    }

    /// The same where what was started is asked for, too.
    fn with_glances(self) -> Self {
        Self {
            glances: true,
            ..self
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
            glances: self.glances,
            left: self.left,
            may_be_killed: true,
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
        for killed in sequel.killed.into_iter().filter(|_| course.may_be_killed) {
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
        for (step, mut events) in sequel.choices {
            events.retain(|event| course.may_be_killed || matches!(event, Event::Cpuset(_)));
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
        holds(Course::start(Kernel::new(1, selects_children), 2, 1).with_glances());
    }
}

#[test]
#[ignore = "90,427 courses take 22 s of processor time in a dev build"]
fn so_it_does_whichever_two_events_happen() {
    for selects_children in [true, false] {
        holds(Course::start(Kernel::new(1, selects_children), 1, 2));
    }
}

/// Whatever becomes of the cpuset meanwhile: once it has all CPUs again, each thread has the mask that it is due.
#[test]
fn so_it_does_while_a_cpuset_changes() {
    for selects_children in [true, false] {
        let kernel = Kernel::new(1, selects_children).in_cpuset();
        holds(Course::start(kernel.clone(), 1, 1));
        // With a child that is started as soon as its parent has been placed.
        holds(Course::start(kernel, 2, 2).with(10, Event::Fork(10)));
    }
}

/// A child that is started in the second interval has another mask than its siblings of the first: which one, shows only when
/// its cpuset has some of its CPUs.
#[test]
fn so_does_a_child_whose_mask_does_not_show_whatever_changes_a_cpuset_has_meanwhile() {
    let kernel = Kernel::new(1, true).in_cpuset();
    for step in STEPS_AFTER_A_MOVE {
        let start = Course::start(kernel.clone(), 2, 3).ends_while_cpusets_change();
        holds(start.clone().with(step, Event::Clone(10)));
        holds(start.with(step, Event::Fork(10)));
    }
}

#[test]
#[ignore = "takes minutes of processor time in a dev build"]
fn so_it_does_whichever_two_changes_a_cpuset_has() {
    for selects_children in [true, false] {
        let kernel = Kernel::new(1, selects_children).in_cpuset();
        holds(Course::start(kernel, 1, 2));
    }
}

/// A child of a placed thread, and the child's.
#[test]
fn so_does_each_of_three_generations() {
    let start = Course::start(Kernel::new(2, false), 2, 2);
    holds(start.with(34, Event::Fork(10)).with(34, Event::Fork(30)));
}

/// Nor do orphans of a program of the same user and cgroup that its user has pinned, all of whose threads are to keep
/// its mask.
#[test]
fn orphans_of_a_pinned_program_keep_their_mask() {
    holds(beside_pinned());
}

/// A herd beside a pinned program that has just started another.
fn beside_pinned() -> Course {
    Course::start(Kernel::new(1, false).with_pinned(), 2, 2).with(32, Event::Fork(25))
}

#[test]
fn what_would_break_the_promise_is_found() {
    let start = |events| Course::start(Kernel::new(2, false), 2, events);
    let with_heir = start(2).with(34, Event::Fork(10));
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
