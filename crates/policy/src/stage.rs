//! The stage: what every placement computes before its rule, and what every plan needs after it.
//!
//! Problem: a rule of a paper is a few lines about threads and cores. On a real machine it needs to know
//! which threads it may place where, which of them are busy, what else holds CPUs, and what the last
//! intervals showed. Its plan must be sorted, worded, and free of seats that threads already have.
//!
//! Rule: a placement is a [`PlacementRule`]: it looks at a [`Stage`] and seats threads ([`Seat`]).
//! [`Staged`] makes a [`Place`] of it:
//! 1. *Before*: the pools ([`crate::pools`]) with their busy threads ([`crate::busy`]), and the busy threads that
//!    may not be placed; the classes and miss rates of all threads where the rule needs [`Signal::MissRate`]
//!    ([`crate::classes`]; a thread that was never counted is left to the kernel), and the homes of their
//!    processes where it needs [`Signal::Residency`].
//! 2. *The rule* seats threads, each with its reason ([`crate::reason`]).
//! 3. *After*: seats that threads already have are dropped; the others are sorted by thread, and their
//!    reasons are worded. Threads that have a CPU and have become idle are given back to the kernel.
//!
//! Terms: a *seat* is the CPU that a thread is given; a process's *home* is the node that holds most of
//! its pages, or the last one known.
//!
//! Properties: a plan names threads in ascending order, each at most once if its rule seats it once, and only
//! threads that do not have their seat yet; a rule sees the same stage for the same snapshots.

use std::borrow::Cow;
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, NodeId, Topology};
use numaherd_world::{
    PageOrder, PageOutcome, Placement, ProcessId, Release, Residency, Signal, Snapshot, Thread,
    ThreadId,
};

use crate::busy::Busy;
use crate::classes::{Class, Classed, Classes};
use crate::losses::Losses;
use crate::memory::PerThread;
use crate::placement::slots::PoolSlots;
use crate::policy::{Needs, Place, Random};
use crate::pools::{Pool, Taken, pools};
use crate::reason::Reason;
use crate::rules::Rule;
use crate::settings::Settings;
use crate::words;

/// The rule of a placement: which thread gets which CPU, and why.
pub trait PlacementRule: Send {
    /// See [`Place::needs`].
    fn needs(&self) -> Needs<'_>;

    /// The seats of threads, in any order. A thread without a seat stays as it is; one that is seated
    /// where it is will be held there.
    fn seat(&mut self, stage: &Stage<'_>, random: &mut Random) -> Vec<Seat>;

    /// See [`Place::pages`]. Asked after [`Self::seat`].
    fn pages(&mut self) -> Vec<PageOrder> {
        Vec::new()
    }

    /// See [`Place::rations`]. Asked after [`Self::seat`].
    fn rations(&self) -> Vec<(ProcessId, u64)> {
        Vec::new()
    }

    /// See [`Place::next_look`].
    fn next_look(&self) -> Option<Duration> {
        None
    }

    /// See [`Place::losses`]. Asked after [`Self::seat`].
    fn losses(&mut self) -> Option<Losses> {
        None
    }

    /// See [`Place::moved`].
    fn moved(&mut self, _outcomes: &[PageOutcome]) {}

    /// Why a thread that has a CPU and gets no seat is given back to the kernel; `None` for one that
    /// keeps its CPU. Asked after [`Self::seat`]. By default, a thread that has become idle is given back.
    fn give_back(&self, stage: &Stage<'_>, thread: usize) -> Option<Reason> {
        stage.why_idle(thread)
    }
}

/// The rules of the stage itself, which any placement's plan may name.
pub const RULES: &[Rule] = &[IDLE];
const IDLE: Rule = Rule {
    name: "stage: give back",
    source: "the authors' scheduler; votes as in DINO 3.3.3",
    what: "The thread has been idle in most of the last intervals: it needs no CPU of its own, and gets \
           its own affinity back.",
};

/// The rule of seats on a silent stage; no plan names it ([`Stage::silent`]).
const UNSAID: Rule = Rule {
    name: "stage: unsaid",
    source: "",
    what: "",
};

/// The CPU that a thread is to have.
#[derive(Clone, Debug, PartialEq)]
pub struct Seat {
    /// Which thread.
    pub thread: ThreadId,
    /// Which CPU: one of the thread's pool.
    pub cpu: CpuId,
    /// Why.
    pub reason: Reason,
}

/// What a rule decides from. Threads are named by their places in [`Snapshot::threads`].
#[derive(Clone, Debug)]
pub struct Stage<'a> {
    /// What was observed.
    pub snapshot: &'a Snapshot,
    /// The machine.
    pub topology: &'a Topology,
    /// The threads that may be placed, the pool with the fewest CPUs first.
    pub pools: Vec<Pool>,
    /// Busy threads that may not be placed, ascending: they hold slots where they are.
    pub unmanaged: Vec<usize>,
    /// Threads that may be placed and have become idle, ascending.
    pub idle: Vec<usize>,
    classed: &'a [Classed],
    homes: &'a [Option<NodeId>],
    /// Whether reasons are left out, because they are not read.
    is_silent: bool,
}

impl<'a> Stage<'a> {
    /// The stage for a rule that is asked for its seats alone: [`Self::pool_by_pool`] gives no reasons, which cost
    /// more than most decisions.
    #[must_use]
    pub(crate) fn silent(self) -> Self {
        Self {
            is_silent: true,
            ..self
        }
    }

    /// A thread.
    pub fn thread(&self, thread: usize) -> &'a Thread {
        &self.snapshot.threads[thread]
    }

    /// The busy threads that may be placed, each with its pool.
    pub fn busy(&self) -> impl Iterator<Item = (&Pool, usize)> {
        let of_pool = |pool: &'_ Pool| pool.busy.clone();
        let pools = self.pools.iter();
        pools.flat_map(move |pool| of_pool(pool).into_iter().map(move |thread| (pool, thread)))
    }

    /// The CPUs that no busy thread is on.
    pub fn free_cpus(&self) -> CpuSet {
        let busy = self.busy().map(|(_, thread)| thread);
        let busy = busy.chain(self.unmanaged.iter().copied());
        let taken = busy.map(|thread| self.thread(thread).place()).collect();
        self.snapshot.online.difference(&taken)
    }

    /// The class of a thread; `None` before its first interval with counts, and for a rule that does
    /// not need miss rates.
    pub fn class(&self, thread: usize) -> Option<Class> {
        self.classed.get(thread)?.class()
    }

    /// The miss rate of a thread in its last interval with counts, in lines per 1000 instructions.
    pub fn miss_rate(&self, thread: usize) -> f64 {
        let classed = self.classed.get(thread);
        classed.and_then(Classed::miss_rate).unwrap_or_default()
    }

    /// The home of a thread's process; `None` where no pages of it were ever found, and for a rule that
    /// does not need residency.
    pub fn home(&self, thread: usize) -> Option<NodeId> {
        *self.homes.get(thread)?
    }

    /// Where the pages of a thread's process are now.
    pub fn residency(&self, thread: usize) -> Option<&'a Residency> {
        let process = self.snapshot.process(self.thread(thread).process)?;
        process.residency.as_ref()
    }

    /// The name of a thread's process, or its own where the process is not known.
    pub fn process_name(&self, thread: usize) -> &'a str {
        let thread = self.thread(thread);
        let process = self.snapshot.process(thread.process);
        process.map_or(&thread.name, |process| &process.name)
    }

    /// Why a thread that has become idle is given back to the kernel; `None` for one that has not.
    pub fn why_idle(&self, thread: usize) -> Option<Reason> {
        let idle = self.idle.binary_search(&thread).is_ok();
        idle.then(|| {
            IDLE.because(words!(
                "it wanted little of a CPU in most of the last intervals"
            ))
        })
    }

    /// A seat for a thread.
    pub fn seat(&self, thread: usize, cpu: CpuId, reason: Reason) -> Seat {
        let thread = self.thread(thread).id;
        Seat {
            thread,
            cpu,
            reason,
        }
    }

    /// The stage with only those busy threads that a rule can place.
    #[must_use]
    pub fn narrowed(&self, can_place: impl Fn(usize) -> bool) -> Self {
        let mut narrowed = self.clone();
        for pool in &mut narrowed.pools {
            pool.busy.retain(|&thread| can_place(thread));
        }
        narrowed
    }

    /// The slots held by threads that may not be placed.
    pub fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        for &thread in &self.unmanaged {
            taken.hold(self.thread(thread).place(), self.class(thread));
        }
        taken
    }

    /// Seats the busy threads of each pool on the slots that are left of its CPUs, pool by pool. Slots that one
    /// pool gets are taken for later pools.
    ///
    /// `decide` is given a pool and its slots. It returns the CPU of each busy thread, in their order, and a
    /// function from a thread's place in that order to its reason, called only for threads that do not have their
    /// CPU yet. If it returns `None` for one pool, the result is `None`.
    pub fn pool_by_pool<'s, Why: Fn(usize) -> Reason>(
        &'s self,
        mut decide: impl FnMut(&'s Pool, PoolSlots) -> Option<(Vec<CpuId>, Why)>,
    ) -> Option<Vec<Seat>> {
        let mut taken = self.taken();
        let mut seats = Vec::new();
        for pool in self.pools.iter().filter(|pool| !pool.busy.is_empty()) {
            let slots = PoolSlots::new(self, pool, &taken);
            let (cpus, why) = decide(pool, slots)?;
            for (at, (&thread, cpu)) in pool.busy.iter().zip(cpus).enumerate() {
                taken.hold(cpu, self.class(thread));
                if self.thread(thread).assigned != Some(cpu) {
                    let reason = match self.is_silent {
                        true => UNSAID.because(words!("")),
                        false => why(at),
                    };
                    seats.push(self.seat(thread, cpu, reason));
                }
            }
        }
        Some(seats)
    }

    /// The threads that a rule gives back, out of those that have a CPU and are not in `seated` (ascending).
    fn releases(&self, rule: &impl PlacementRule, seated: &[ThreadId]) -> Vec<Release> {
        let threads = self.pools.iter().flat_map(|pool| &pool.threads);
        let given = threads.filter(|&&thread| {
            let thread = self.thread(thread);
            thread.assigned.is_some() && seated.binary_search(&thread.id).is_err()
        });
        let release = |&thread: &usize| {
            let reason = rule.give_back(self, thread)?;
            Some(Release {
                thread: self.thread(thread).id,
                rule: Cow::Borrowed(reason.rule.name),
                why: reason.why.to_string(),
            })
        };
        given.filter_map(release).collect()
    }

    /// A seat in a plan; `None` where the thread has it already.
    fn placement(&self, seat: Seat) -> Option<Placement> {
        let thread = self.snapshot.thread(seat.thread)?;
        let (from, to) = (thread.place(), seat.cpu);
        let may_stay = || thread.cpuset.contains(from) && self.snapshot.online.contains(from);
        (thread.assigned != Some(to)).then(|| Placement {
            thread: thread.id,
            from,
            to,
            rule: Cow::Borrowed(seat.reason.rule.name),
            why: seat.reason.why.to_string(),
            instead_of: match seat.reason.instead_of {
                _ if from == to => String::new(),
                _ if !may_stay() => {
                    words!("CPU {from}: offline, or not allowed to the thread", from).to_string()
                }
                Some(words) => words.to_string(),
                None => String::new(),
            },
        })
    }
}

#[cfg(test)]
impl<'a> Stage<'a> {
    /// A stage on which every thread that may be placed is busy, and nothing else is known.
    pub(crate) fn of_all(snapshot: &'a Snapshot, topology: &'a Topology) -> Self {
        let mut pools = pools(snapshot, topology);
        pools
            .iter_mut()
            .for_each(|pool| pool.busy.clone_from(&pool.threads));
        Self {
            snapshot,
            topology,
            pools,
            unmanaged: Vec::new(),
            idle: Vec::new(),
            classed: &[],
            homes: &[],
            is_silent: false,
        }
    }

    /// The same with the classes of one more interval.
    pub(crate) fn with_classes(self, classes: &'a mut Classes) -> Self {
        Self {
            classed: classes.observe(&self.snapshot.threads),
            ..self
        }
    }
}

/// A rule on its stage: a placement that the loop can ask.
#[derive(Clone, Debug)]
pub struct Staged<P> {
    /// The rule.
    pub rule: P,
    classes: Classes,
    busy: Busy,
    homes: PerThread<Option<NodeId>>,
    releases: Vec<Release>,
}

impl<P: PlacementRule> Staged<P> {
    /// Nothing seen yet.
    pub fn new(settings: &Settings, rule: P) -> Self {
        Self {
            rule,
            classes: Classes::new(settings.classes.rule()),
            busy: Busy::new(settings.placement.least_cpu_share),
            homes: PerThread::default(),
            releases: Vec::new(),
        }
    }

    /// The stage of a snapshot, and the rule that is to play on it.
    pub(crate) fn set<'a>(
        &'a mut self,
        snapshot: &'a Snapshot,
        topology: &'a Topology,
    ) -> (Stage<'a>, &'a mut P) {
        let needs = |signal| self.rule.needs().signals.contains(&signal);
        let (counted, homed) = (needs(Signal::MissRate), needs(Signal::Residency));
        let mut stage = Stage {
            snapshot,
            topology,
            pools: pools(snapshot, topology),
            unmanaged: Vec::new(),
            idle: Vec::new(),
            classed: &[],
            homes: &[],
            is_silent: false,
        };
        let others = self.busy.find(snapshot, &mut stage.pools);
        (stage.unmanaged, stage.idle) = (others.unmanaged, others.idle);
        if counted {
            stage.classed = self.classes.observe(&snapshot.threads);
            let classed = stage.classed;
            for pool in &mut stage.pools {
                pool.busy
                    .retain(|&thread| classed[thread].class().is_some());
            }
        }
        if homed {
            let homes = self.homes.line_up(&snapshot.threads);
            for (home, thread) in homes.iter_mut().zip(&snapshot.threads) {
                let process = snapshot.process(thread.process);
                let now = process.and_then(|process| process.residency.as_ref()?.home());
                *home = now.or(*home);
            }
            stage.homes = homes;
        }
        (stage, &mut self.rule)
    }
}

impl<P: PlacementRule> Place for Staged<P> {
    fn needs(&self) -> Needs<'_> {
        self.rule.needs()
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Placement> {
        let (stage, rule) = self.set(snapshot, topology);
        let seats = rule.seat(&stage, random);
        let mut seated: Vec<ThreadId> = seats.iter().map(|seat| seat.thread).collect();
        seated.sort_unstable();
        let placements = seats.into_iter().filter_map(|seat| stage.placement(seat));
        let mut placements: Vec<Placement> = placements.collect();
        placements.sort_unstable_by_key(|placement| placement.thread);
        let releases = stage.releases(rule, &seated);
        self.releases = releases;
        placements
    }

    fn pages(&mut self, _: &Snapshot) -> Vec<PageOrder> {
        self.rule.pages()
    }

    fn rations(&self) -> Vec<(ProcessId, u64)> {
        self.rule.rations()
    }

    fn next_look(&self) -> Option<Duration> {
        self.rule.next_look()
    }

    fn losses(&mut self) -> Option<Losses> {
        self.rule.losses()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.rule.moved(outcomes);
    }

    fn release(&mut self, _: &Snapshot) -> Vec<Release> {
        std::mem::take(&mut self.releases)
    }
}
