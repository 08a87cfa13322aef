//! A scripted machine and a scripted pager. Their `run_for` returns at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Bound, Bounds, Effort, Enforcement, Kinship,
    NewPages, Notice, Orders, Outcome, PageOrder, PageOutcome, Pager, ProcessId, Progress, Sample,
    Search, Signal, SignalReport, SignalState, Snapshot, Thread, ThreadId, World, WorldError,
    is_whole,
};

use crate::orders::moved;
use crate::seen::{snapshot, tid};

/// Every signal, as measured.
pub fn measured() -> Vec<SignalReport> {
    let report = |signal| SignalReport {
        signal,
        state: SignalState::Measured {
            source: "made up".to_owned(),
            caveat: None,
        },
    };
    Signal::ALL.into_iter().map(report).collect()
}

/// Called before each interval with its number and the machine, which it may change.
pub type Script = Box<dyn FnMut(u64, &mut FakeWorld)>;

/// A call to a world before time passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To place new pages by this rule.
    NewPages(NewPages),
    /// To measure these signals.
    Attend(Vec<Signal>),
    /// For its pager.
    Pager,
}

/// A scripted machine, whose threads obey or fail as the test says.
pub struct FakeWorld {
    /// The machine.
    pub topology: Arc<Topology>,
    /// What can be measured.
    pub signals: Vec<SignalReport>,
    /// Its threads, as they are now.
    pub threads: Vec<Thread>,
    /// How it carries out placements.
    pub enforcement: Enforcement,
    /// The group of each process that is in one, by the process's number.
    pub groups: BTreeMap<u32, Arc<str>>,
    /// The CPUs that are online now.
    pub online: CpuSet,
    /// Threads whose affinity the kernel refuses to set, with its reason.
    pub refuses: BTreeMap<ThreadId, String>,
    /// Outdated masks that snapshots show in place of the threads' present ones.
    pub shown: BTreeMap<ThreadId, CpuSet>,
    /// Masks that threads get while they have time to settle.
    pub settles: BTreeMap<ThreadId, CpuSet>,
    /// Cpusets that are narrowed between the snapshot and the order.
    pub narrows: BTreeMap<ThreadId, CpuSet>,
    /// Threads that end between the snapshot and the order.
    pub dies: Vec<ThreadId>,
    /// Threads that end as soon as they have been observed.
    pub ends: Vec<ThreadId>,
    /// Threads that exist but are not observed.
    pub unseen: Vec<ThreadId>,
    /// The kinship of a process, by its number, and whether it is an orphan.
    pub kin: BTreeMap<u32, (Kinship, bool)>,
    /// Number of searches for bound threads in which all end before a look at them, and others take their places.
    pub misses: u64,
    /// Whether it is asked between intervals for threads that were started; each time until then counts as an interval.
    pub sees_starts: bool,
    /// How long each search for bound threads takes by [`World::now`], which otherwise stands still.
    pub search_takes: Duration,
    /// Threads that start one by one, each right after orders are carried out.
    pub starts: Vec<Thread>,
    /// Intervals until the world ends.
    pub ends_after: u64,
    /// The interval from which on observation fails.
    pub blind_from: u64,
    /// All orders it was given, in order.
    pub applied: Vec<Orders>,
    /// The pager that it provides.
    pub pager: Option<Box<dyn Pager>>,
    /// The rules by which it can place new pages.
    pub can_place_new_pages: Vec<NewPages>,
    /// The calls before time passed.
    pub asked: Vec<Asked>,
    /// Intervals in the middle of which it is woken.
    pub woken_in: Vec<u64>,
    script: Option<Script>,
    searched: Duration,
    intervals: u64,
    observed: u64,
    now_ns: u64,
    interval_ns: u64,
    is_observed: bool,
}

impl FakeWorld {
    /// A machine that measures everything, obeys and never ends, without a pager.
    pub fn new(topology: Arc<Topology>, threads: Vec<Thread>) -> Self {
        Self {
            online: topology.online_cpus(),
            topology,
            signals: measured(),
            threads,
            enforcement: Enforcement::Affinity,
            groups: BTreeMap::new(),
            refuses: BTreeMap::new(),
            shown: BTreeMap::new(),
            settles: BTreeMap::new(),
            narrows: BTreeMap::new(),
            dies: Vec::new(),
            ends: Vec::new(),
            unseen: Vec::new(),
            kin: BTreeMap::new(),
            misses: 0,
            sees_starts: false,
            search_takes: Duration::ZERO,
            searched: Duration::ZERO,
            starts: Vec::new(),
            ends_after: u64::MAX,
            blind_from: u64::MAX,
            applied: Vec::new(),
            pager: None,
            can_place_new_pages: vec![NewPages::FirstTouch],
            asked: Vec::new(),
            woken_in: Vec::new(),
            script: None,
            intervals: 0,
            observed: 0,
            now_ns: 0,
            interval_ns: 0,
            is_observed: false,
        }
    }

    /// Adds a script.
    #[must_use]
    pub fn scripted(mut self, script: impl FnMut(u64, &mut Self) + 'static) -> Self {
        self.script = Some(Box::new(script));
        self
    }

    /// The thread with this number.
    pub fn thread(&mut self, number: u32) -> &mut Thread {
        let found = self.threads.iter_mut().find(|t| t.id == tid(number));
        found.expect("a thread of that number")
    }

    /// The affinity of every thread.
    pub fn masks(&self) -> BTreeMap<ThreadId, CpuSet> {
        let mask = |t: &Thread| (t.id, (*t.affinity).clone());
        self.threads.iter().map(mask).collect()
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        self.threads.retain(|t| !self.dies.contains(&t.id));
        let narrowed = self.narrows.remove(&order.thread);
        if let Some(thread) = self.threads.iter_mut().find(|t| t.id == order.thread)
            && let Some(cpuset) = narrowed
        {
            thread.affinity = Arc::new(thread.affinity.intersection(&cpuset));
            thread.cpuset = Arc::new(cpuset);
        }
        if let Some(error) = self.refuses.get(&order.thread) {
            return AffinityResult::Failed {
                error: error.clone(),
            };
        }
        let Some(thread) = self.threads.iter_mut().find(|t| t.id == order.thread) else {
            return AffinityResult::Gone;
        };
        if self.enforcement == Enforcement::Scx {
            thread.assigned = order.core;
            return AffinityResult::Done;
        }
        let now = order.cpus.intersection(&thread.cpuset);
        let Some(first) = now.intersection(&self.online).first() else {
            return AffinityResult::Failed {
                error: "sched_setaffinity: EINVAL: no CPU is left".to_owned(),
            };
        };
        thread.affinity = Arc::new(now.clone());
        thread.assigned = order.core;
        if let Some(core) = order.core {
            thread.cpu = core;
        } else if !now.contains(thread.cpu) {
            thread.cpu = first;
        }
        if now == *order.cpus {
            AffinityResult::Done
        } else {
            AffinityResult::Narrowed { now }
        }
    }
}

impl World for FakeWorld {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn enforcement(&self) -> Enforcement {
        self.enforcement
    }

    fn attend(&mut self, needs: &[Signal]) {
        self.asked.push(Asked::Attend(needs.to_vec()));
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        self.asked.push(Asked::NewPages(rule));
        if self.can_place_new_pages.contains(&rule) {
            return Ok(());
        }
        Err(WorldError {
            world: "the made-up machine".to_owned(),
            reason: format!("it cannot place new pages by the rule {rule}; have it learn that"),
        })
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        assert!(self.asked.contains(&Asked::Pager), "told first, then run");
        if self.intervals == self.ends_after {
            return Progress::Ended;
        }
        if self.is_observed {
            self.interval_ns = 0;
            self.is_observed = false;
        }
        let woken = self.woken_in.iter().position(|&at| at == self.intervals);
        let passes = woken.map_or(interval, |_| interval / 2);
        let ns = u64::try_from(passes.as_nanos()).expect("a short interval");
        self.interval_ns += ns;
        self.now_ns += ns;
        if let Some(mut script) = self.script.take() {
            script(self.intervals, self);
            self.script = Some(script);
        }
        if let Some(woken) = woken {
            self.woken_in.remove(woken);
            return Progress::Woken {
                left: interval - passes,
            };
        }
        self.intervals += 1;
        Progress::Ran
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        if self.intervals > self.blind_from {
            return Err(WorldError {
                world: "the made-up machine".to_owned(),
                reason: "reading /proc: EIO".to_owned(),
            });
        }
        let seconds = self.now_ns as f64 / 1e9;
        self.observed += 1;
        self.is_observed = true;
        let mut seen = self.threads.clone();
        seen.retain(|thread| !self.unseen.contains(&thread.id));
        for thread in &mut seen {
            if let Some(mask) = self.shown.get(&thread.id) {
                thread.affinity = Arc::new(mask.clone());
            }
        }
        let mut snapshot = Snapshot {
            sequence: self.observed - 1,
            interval_ns: self.interval_ns,
            online: self.online.clone(),
            ..snapshot(&self.topology, seconds, &seen)
        };
        for process in &mut snapshot.processes {
            process.group = self.groups.get(&process.id.pid).cloned();
        }
        self.threads
            .retain(|thread| !self.ends.contains(&thread.id));
        Ok(snapshot)
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        let there = self.threads.iter().find(|there| there.id == thread);
        there.map(|there| (*there.affinity).clone())
    }

    fn bounds_of(&mut self, thread: ThreadId) -> Option<Bounds> {
        let there = self.threads.iter().find(|there| there.id == thread)?;
        Some(self.bounds(there))
    }

    fn let_masks_settle(&mut self) {
        for (thread, mask) in std::mem::take(&mut self.settles) {
            self.thread(thread.tid).affinity = Arc::new(mask);
        }
    }

    fn kinship(&self, process: ProcessId) -> Kinship {
        let known = self.kin.get(&process.pid);
        known.map(|(kin, _)| kin.clone()).unwrap_or_default()
    }

    fn now(&self) -> Duration {
        self.searched
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64, effort: Effort) -> Search {
        self.searched += self.search_takes;
        if self.misses > 0 {
            self.misses -= 1;
            return Search {
                found: Vec::new(),
                is_complete: false,
            };
        }
        let there = self.threads.iter().map(|thread| Bound {
            thread: thread.id,
            process: thread.process,
            name: thread.name.clone(),
            bounds: self.bounds(thread),
            kin: self.kinship(thread.process),
            is_orphan: self.kin.get(&thread.process.pid).is_some_and(|kin| kin.1),
            session_born: thread.process.born,
        });
        let found = there
            .filter(|bound| bound.thread.born >= since)
            .filter(|bound| masks.iter().any(|mask| bound.bounds.is(mask)))
            .filter(|Bound { bounds, .. }| {
                effort == Effort::Thorough || !is_whole(&bounds.mask, &bounds.cpus)
            });
        Search {
            found: found.collect(),
            is_complete: true,
        }
    }

    fn sees_starts(&self) -> bool {
        self.sees_starts
    }

    fn started_with(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Vec<Bound> {
        self.bound_to(masks, since, Effort::Quick).found
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        self.applied.push(orders.clone());
        let outcomes = self.carry_out(orders);
        if !self.starts.is_empty() {
            self.threads.push(self.starts.remove(0));
        }
        outcomes
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        self.asked.push(Asked::Pager);
        self.pager.take()
    }
}

impl FakeWorld {
    fn bounds(&self, thread: &Thread) -> Bounds {
        let cpus = thread.cpuset.intersection(&self.online);
        Bounds::new((*thread.affinity).clone(), cpus)
    }

    fn carry_out(&mut self, orders: &Orders) -> Outcome {
        let outcome = |order: &AffinityOrder| AffinityOutcome {
            thread: order.thread,
            result: self.set(order),
        };
        Outcome {
            affinities: orders.affinities.iter().map(outcome).collect(),
            pages: orders.pages.iter().map(|order| moved(order, 1)).collect(),
        }
    }
}

/// The result of a round of a [`FakePager`].
pub enum Round {
    /// Samples and notices.
    Sees(Vec<Sample>, Vec<Notice>),
    /// The end.
    Ends,
    /// Samples are no longer available, for this reason.
    Fails(String),
}

/// A pager that runs by itself and returns its script's results, round by round.
pub struct FakePager {
    script: Box<dyn FnMut() -> Round + Send>,
    seen: Result<Vec<Sample>, String>,
    notices: Vec<Notice>,
    applied: Arc<Mutex<Vec<PageOrder>>>,
    answer: fn(&PageOrder) -> PageOutcome,
}

impl FakePager {
    /// A pager that notes its orders in `applied` and moves one page for each.
    pub fn new(
        script: impl FnMut() -> Round + Send + 'static,
        applied: &Arc<Mutex<Vec<PageOrder>>>,
    ) -> Self {
        Self {
            script: Box::new(script),
            seen: Ok(Vec::new()),
            notices: Vec::new(),
            applied: applied.clone(),
            answer: |order| moved(order, 1),
        }
    }

    /// Replaces the outcome of each order.
    #[must_use]
    pub fn answering(mut self, answer: fn(&PageOrder) -> PageOutcome) -> Self {
        self.answer = answer;
        self
    }
}

impl Pager for FakePager {
    fn run_for(&mut self, _: Duration) -> Progress {
        match (self.script)() {
            Round::Sees(samples, notices) => {
                self.seen = Ok(samples);
                self.notices = notices;
            }
            Round::Ends => return Progress::Ended,
            Round::Fails(why) => self.seen = Err(why),
        }
        Progress::Ran
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        let seen = std::mem::replace(&mut self.seen, Ok(Vec::new()));
        seen.map_err(|reason| WorldError {
            world: "the made-up machine".to_owned(),
            reason,
        })
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome> {
        let mut applied = self.applied.lock().expect("no test panics with it");
        applied.extend_from_slice(orders);
        orders.iter().map(self.answer).collect()
    }
}
