//! Adaptive: acts where it expects the machine to lose fewer cores, and is Linux everywhere else.
//!
//! Problem: each published policy is right on its own ground and loses on others'. A user who leaves one on needs a policy
//! that gains where it acts and does nothing elsewhere.
//!
//! Rule, at each look:
//! 1. *Estimate* what each thread demands, and how many cores the machine loses to caches and memory
//!    ([`crate::estimate`]). If that is less than `least_gain` of the busy cores, do nothing. Time in which threads of a
//!    process wait for lines from each other's caches counts as lost while they are in different domains.
//! 2. *Candidates.* The search begins with these layouts: the threads where they are, or where the kernel is about to
//!    spread them over free CPUs; the same with threads back beside memory that the kernel moved them away from; and the
//!    layouts of `dino`, `di` and `n-mass`. Each is tried with memory where it is, with memory beside its threads, and with
//!    common memory spread. From the best of these, a local search moves a thread that suffers to another domain, or lets
//!    it change places with the thread there that suffers least.
//! 3. *Least constraint.* Leave out of the best candidate every move of a thread or of memory that gains nothing.
//! 4. *Gates.* Act only if all of this holds:
//!    * On average over all draws, the gain is at least `least_gain` of the busy cores. No draw loses more than a
//!      quarter of that. A search uses two of the draws. If its result gains in those alone, another search uses the draws
//!      in which more cache does not help.
//!    * Over the looks of the last 10 s, or since memory last moved, the gain would have been as much, and more than its
//!      standard error: what suits threads in one phase may cost them more in the next. It is also more than speeds have
//!      been seen to differ by chance, or nothing would show whether there is one. The first portion of memory that
//!      follows its use must gain four times as much, because it cannot be put back.
//!    * The kernel is not about to move a thread from a domain that is short of cores to one that is not.
//!    * Over the time that the threads have been seen, the gain would have paid for the moves there and back, at the time
//!      per page that moves have taken on this machine.
//!    * Every process that is touched has credit for its cost. Credit begins with `first_credit_ms` and grows by
//!      `loss_budget` of the time that the process runs. If it is too little to move the memory of threads that stay where
//!      they are, the part that it pays for moves first (on several nodes, what is used most), and the next part once the
//!      first has gained. Other memory waits.
//! 5. *Act.*
//!    * Threads that move or suffer are held in their memory domain. A thread that only made room is the kernel's
//!      again at the next look.
//!    * The memory of a process whose threads are on one node moves there. If they are on several nodes, and all that run
//!      can be held, it moves as samples of its accesses show. Until then, it is unknown which thread uses which pages. If
//!      nearly all of the memory is on one node, all threads wait for that node meanwhile. So if a twentieth of the busy
//!      cores can be gained, the memory is first dealt to the nodes of the threads.
//!    * *Common* memory never follows a process. This is shared memory that is mapped more than once, and files mapped more
//!      than once if they are most of a process's pages. It is spread by blocks of 512 pages over the nodes of all
//!      processes that wait for it, in proportion to their threads. The process that has most of it mapped moves it. Each
//!      process is charged, because each is interrupted for every page.
//! 6. *Verify.* Once hardly any page moves any more, the speed of each thread over a quarter of a second is compared
//!    with its speed in the last look in which it did the same: it asked the last-level cache as often per
//!    instruction, within 15 %, and its process's memory has not grown by more than a quarter since. The estimates learn
//!    from the outcome:
//!    * On average the threads are faster: the cost is refunded.
//!    * They are not: nothing is tried for `wait_s`, and for twice as long each time after. After the second time in a
//!      row, nothing is tried until the loss has changed by what must be gained, or other threads are busy.
//!    * They are slower: threads and memory also go back. What counts is the mean of the expected and the measured gain,
//!      each weighted by the inverse of its variance. How much speeds vary when nothing is done gives the variance of the
//!      measured gain. A thread that would share a core there while another is idle is let go instead. A thread that the
//!      kernel has moved since stays, and so do threads whose memory has followed its use.
//!    * They do something else than before for most of a second, or for as long as they had been seen, so their speeds say
//!      nothing: threads go back if the estimates now favour that. Nothing is refunded.
//!
//! Room: no thread is put on a core beside another while a core that it may use is idle. The kernel spreads threads
//! over the cores of a domain, so a domain has room for as many threads as it has cores, and for as many as it has
//! CPUs once no domain has an idle core. Where only a program or a cgroup is watched, CPUs that other threads keep busy are
//! no room: no thread goes there, and a thread held there is let go if another domain has a CPU. Threads are also let go if
//! their domain holds more of them than it has CPUs. A thread needs as much room as it recently wanted at its busiest (half
//! of that counts 5 s later), because threads that wait for each other may want little now and a whole CPU a moment later.
//! One that sleeps after it has run for less than 0.1 s in all needs none, and memory does not go where it is: such a
//! thread loads data and starts the others. A process whose threads want less than a third of the room that they need is
//! left alone: what a few threads do while the others sleep is not typical of the process.
//!
//! Where nothing is counted, threads and memory are only brought together, and only if every look over 10 s wanted the
//! same. No action can be verified then, so each counts as one without a gain: its cost is never refunded, and its process
//! rests for 20 s, and for twice as long each time after. A thread whose domain is short of CPUs is let go if another
//! domain has some.
//!
//! When: 50 ms after the start, and after a look at which half of the busy threads are busy for the first time, or
//! have just been made by processes that run. At such a look, hardly anything has been counted of these threads, so nothing
//! is decided, unless the look comes so late that 75 ms of their CPU time were counted. Each further look comes after twice
//! as long, or after four times as long where counts show that nothing is to be gained, up to the loop's own cadence. After
//! an action, the next look comes as soon as that can be judged.
//!
//! Terms: a *layout* gives every busy thread a CPU; a thread *suffers* by the share of its time that memory and
//! caches cost; *lost cores* are CPU time that threads would not need alone on the machine. Source: designed here.
//! The parts: shared memory spread, private at home (Carrefour, ASPLOS 2013); rank layouts by a model (Pandia,
//! EuroSys 2017); the budget (conservative bandits, ICML 2016).
//!
//! Properties: what a process is charged and not refunded is at most `loss_budget` of the time that it ran, plus
//! `first_credit_ms`. Without an expected gain, no thread is placed and no page ordered, except to undo. No thread is moved
//! outside its pool.

mod action;
mod cores;
mod credit;
mod gate;
mod home;
mod improve;
mod looks;
mod orders;
mod past;
mod rations;
mod rules;
pub(crate) mod search;
mod seeds;
mod settings;
mod uncounted;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuId;
use numaherd_world::{PageOrder, PageOutcome, ProcessId, Signal, ThreadId};

use crate::estimate::{Basis, Estimator, Load, Picture};
use crate::losses::{Losses, Meter, Withheld};
use crate::memory::PerThread;
use crate::policy::{Needs, Optional, Random};
use crate::reason::{Figure, Reason};
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
use action::{Action, Verdict, costs};
use credit::Credit;
use gate::Fruitless;
use looks::Looks;
use orders::of_memory;
use past::Past;
use rations::Rations;
pub use rules::RULES;
use rules::{DEAL, FOLLOW, GAIN, HOLD, LET_GO, MAKE_ROOM, SPREAD, UNDO};
use search::Candidate;
use seeds::Seeds;
pub use settings::{AdaptiveSettings, LEAST_GAIN};
use uncounted::Uncounted;

/// The time in ns, besides that for moving pages, in which threads move and caches fill; speeds are not measured in it.
const SETTLES_AFTER: u64 = 100_000_000;
/// For how many ns speeds are then measured before an action is judged.
const JUDGED_AFTER: u64 = 250_000_000;
/// A thread that loses less than this share of its time to memory and caches does not suffer.
const SUFFERS: f64 = 0.05;
/// After so many looks at which it could suffer nowhere, a held thread is let go.
const CALM_LOOKS: u32 = 3;

/// See the top of this file.
pub struct Adaptive {
    settings: AdaptiveSettings,
    estimator: Estimator,
    seeds: Seeds,
    credit: Credit,
    action: Option<Action>,
    /// Threads that are let go at the next look.
    let_go: Vec<ThreadId>,
    /// Threads that are let go at this look.
    letting_go: BTreeSet<ThreadId>,
    /// For how many looks in a row each thread could have suffered nowhere.
    calm: PerThread<u32>,
    pages: Vec<PageOrder>,
    wait_until_ns: u64,
    failed: i32,
    fruitless: Option<Fruitless>,
    looks: Looks,
    /// Processes whose memory has followed its threads to several nodes: private pages have been beside them since.
    told: BTreeSet<ProcessId>,
    /// For each process whose memory has followed in part: the node (place), and how many portions.
    followed: BTreeMap<ProcessId, (usize, u64)>,
    rations: Rations,
    uncounted: Uncounted,
    past: Past,
    meter: Meter,
    losses: Option<Losses>,
    /// What kept it from acting at this look.
    withheld: Option<Withheld>,
}

impl Adaptive {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.adaptive,
            estimator: Estimator::new(settings.by_use),
            seeds: Seeds::new(settings),
            credit: Credit::new(&settings.adaptive),
            action: None,
            let_go: Vec::new(),
            letting_go: BTreeSet::new(),
            calm: PerThread::default(),
            pages: Vec::new(),
            wait_until_ns: 0,
            failed: 0,
            fruitless: None,
            looks: Looks::default(),
            told: BTreeSet::new(),
            followed: BTreeMap::new(),
            rations: Rations::default(),
            uncounted: Uncounted::default(),
            past: Past::default(),
            meter: Meter::default(),
            losses: None,
            withheld: None,
        }
    }

    /// Leaves all as it is, and looks less often.
    fn leave(&mut self, picture: &Picture) -> Vec<Seat> {
        self.looks.spare(picture);
        Vec::new()
    }

    /// Lets go of threads that can no longer suffer anywhere. Also lets go of threads that wait for CPUs while another
    /// domain has one, if nothing shows whether they gain by being held, if threads that are not watched use the CPUs, or
    /// if more threads are held than there are CPUs.
    fn release(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let wanted = picture.wanted_in(&picture.now());
        let cores = &picture.cores;
        let mut held = vec![0.0; cores.cpus().len()];
        for load in &picture.threads {
            let is_held = stage.thread(load.at).assigned.is_some();
            if let Some(seat) = picture.seat(load.cpu).filter(|_| is_held) {
                held[seat.domain] += load.wanted;
            }
        }
        let is_short = |load: &Load| {
            picture.seat(load.cpu).is_some_and(|seat| {
                let domain = seat.domain;
                let gains_nothing = picture.from == Basis::Residency
                    || cores.has_others(domain)
                    || held[domain] > cores.cpus()[domain] + search::ROOM;
                gains_nothing && uncounted::is_short(picture, &wanted, domain)
            })
        };
        let calm = self.calm.line_up(&stage.snapshot.threads);
        for (at, load) in picture.threads.iter().enumerate() {
            let looks = &mut calm[load.at];
            let is_calm = load.speed > 0.0 && picture.could_suffer(at) < SUFFERS;
            *looks = if is_calm { looks.saturating_add(1) } else { 0 };
            if (*looks >= CALM_LOOKS || is_short(load)) && stage.thread(load.at).assigned.is_some()
            {
                self.letting_go.insert(load.id);
            }
        }
    }

    /// The action with its verdict, if it is over; otherwise it goes on.
    fn judge(&mut self, stage: &Stage<'_>, picture: &Picture) -> Option<(Action, Verdict)> {
        if !self.action.as_mut()?.watch(stage, picture) {
            return None;
        }
        let action = self.action.take()?;
        let by_use = (action.followed.iter())
            .filter(|follow| follow.is_by_use() && !self.rations.limits(follow.process));
        self.told.extend(by_use.map(|follow| follow.process));
        let measured = action.measured();
        let layout = (&*action.layout.cpus, &*action.layout.memory);
        (self.estimator).learn(stage.topology, &action.before, layout, &measured);
        let verdict = action.verdict();
        Some((action, verdict))
    }

    /// Seats threads and orders pages.
    fn act(
        &mut self,
        stage: &Stage<'_>,
        picture: &Arc<Picture>,
        mut candidate: Candidate,
        (lost, lost_then): (f64, f64),
        charged: Vec<(ProcessId, f64)>,
    ) -> Vec<Seat> {
        let figure = |cores: f64| Figure::Measured(cores, 2);
        let why = words!(
            "{lost} of {busy} busy cores are lost to caches and memory; {then} are expected to be; by {from}",
            lost = figure(lost),
            busy = figure(picture.busy_cores()),
            then = figure(lost_then),
            from = Figure::Text(picture.from.to_string().into())
        );
        // The same for all threads, so figures are put into words once.
        let why: Arc<str> = why.to_string().into();
        let memory = &candidate.memory;
        let is_seated = |at: usize, cpu: CpuId| {
            let load = &picture.threads[at];
            let waits = picture.suffers(at) >= SUFFERS || memory[load.process].follows > 0;
            load.is_free && (waits || picture.is_move(load, cpu))
        };
        cores::part(stage, picture, &mut candidate.cpus, is_seated);
        let gain = (lost - lost_then) / picture.busy_cores();
        let past = self.past.clone();
        let mut action = Action::new(Arc::clone(picture), candidate, charged, gain, past);
        let candidate = &action.layout;
        let mut seats = Vec::new();
        for (at, (load, &cpu)) in picture.threads.iter().zip(&candidate.cpus).enumerate() {
            if !load.is_free {
                continue;
            }
            let moves = picture.is_move(load, cpu);
            let suffers = picture.suffers(at) >= SUFFERS;
            let rule = match (moves, suffers) {
                (true, true) => GAIN,
                (true, false) => MAKE_ROOM,
                (false, _) if suffers || candidate.memory[load.process].follows > 0 => HOLD,
                (false, _) => continue,
            };
            if moves {
                action.moved.push((load.id, load.cpu));
                if !suffers {
                    self.let_go.push(load.id);
                }
            } else if stage.thread(load.at).assigned.is_none() {
                action.held.push(load.id);
            }
            let from = load.cpu;
            let instead_of = moves.then(|| words!("CPU {from}: more would be lost", from));
            let why = words!("{why}", why = Arc::clone(&why));
            let reason = rule.because(why).instead_of(instead_of);
            seats.push(stage.seat(load.at, cpu, reason));
        }
        let portions = &mut self.followed;
        let (pages, followed) = of_memory(stage, picture, candidate, portions, (gain, &why));
        if !followed.is_empty() {
            self.past.forget();
        }
        self.rations.give(&followed);
        self.pages.extend(pages);
        action.followed = followed;
        self.past.touch();
        self.looks.next = Duration::from_nanos(action.begin(stage.snapshot.time_ns));
        self.action = Some(action);
        seats
    }

    /// Draws the conclusion from the outcome of an action. Returns the seats that undo it, if it is undone.
    fn conclude(
        &mut self,
        stage: &Stage<'_>,
        picture: &Picture,
        action: Action,
        verdict: Verdict,
    ) -> Option<Vec<Seat>> {
        match verdict {
            Verdict::Counted(gained) if gained > 1.0 => {
                self.failed = 0;
                self.credit.refund(&action.charged);
                None
            }
            Verdict::Counted(gained) if action.has_gained(gained) => {
                self.rest(stage, &action);
                None
            }
            Verdict::Counted(gained) => {
                let why = words!(
                    "all threads together ran at {gained} of their speed before",
                    gained = Figure::Measured(gained, 3)
                );
                Some(self.undo(stage, picture, action, &why.to_string()))
            }
            Verdict::Unclear => {
                let regret = action.regret(picture).filter(|&regret| regret > 0.0)?;
                let why = words!(
                    "threads do something else than before; {regret} fewer cores are expected to be lost as it was",
                    regret = Figure::Measured(regret, 2)
                );
                Some(self.undo(stage, picture, action, &why.to_string()))
            }
            Verdict::Unknown => None,
        }
    }

    /// What is done at a look.
    fn decide(
        &mut self,
        stage: &Stage<'_>,
        picture: &Arc<Picture>,
        random: &mut Random,
    ) -> Vec<Seat> {
        self.withheld = None;
        self.letting_go = self.let_go.drain(..).collect();
        self.looks.take(stage, picture);
        self.credit.accrue(stage, picture);
        let is_there = |process: &ProcessId| stage.snapshot.process(*process).is_some();
        self.told.retain(is_there);
        self.followed.retain(|process, _| is_there(process));
        self.rations.retain(is_there);
        self.release(stage, picture);
        let judged = self.judge(stage, picture);
        if self.action.is_none() {
            (self.past).see(picture, stage.snapshot.time_ns, stage.snapshot.interval_ns);
        }
        if let Some((action, verdict)) = judged
            && let Some(seats) = self.conclude(stage, picture, action, verdict)
        {
            return seats;
        }
        if self.action.is_some() {
            self.withheld = Some(Withheld::Judging);
            self.looks.next = Duration::from_nanos(JUDGED_AFTER);
            return Vec::new();
        }
        if self.looks.are_new() && picture.from != Basis::Residency {
            self.withheld = Some(Withheld::New);
        } else if stage.snapshot.time_ns < self.wait_until_ns {
            self.withheld = Some(Withheld::Resting);
        }
        if self.withheld.is_some() || picture.threads.is_empty() {
            return Vec::new();
        }
        self.improve(stage, picture, random)
    }
}

impl PlacementRule for Adaptive {
    fn needs(&self) -> Needs<'_> {
        Needs {
            also: &[
                Optional {
                    signal: Signal::MissRate,
                    without: "Caches and controllers are not looked after: threads and memory are only brought together, \
                              slowly, and what comes of it is not verified.",
                },
                Optional {
                    signal: Signal::LocalRemote,
                    without: "Each thread is taken to read all pages of its process alike.",
                },
                Optional {
                    signal: Signal::UncorePenalty,
                    without: "How much of a thread's waiting is hidden is assumed, not counted.",
                },
                Optional {
                    signal: Signal::Residency,
                    without: "Memory that is not where its threads are stays there.",
                },
            ],
            ..Needs::of(&[Signal::CpuUse])
        }
    }

    fn seat(&mut self, stage: &Stage<'_>, random: &mut Random) -> Vec<Seat> {
        let mut picture = self.estimator.observe(stage);
        for owner in &mut picture.processes {
            owner.is_told = self.told.contains(&owner.id);
            owner.followed = self.followed.get(&owner.id).copied();
        }
        if picture.from == Basis::Residency {
            let now_ns = stage.snapshot.time_ns;
            for load in &mut picture.threads {
                let process = picture.processes[load.process].id;
                load.is_free &= !self.uncounted.rests(process, now_ns);
            }
        }
        let picture = Arc::new(picture);
        let seats = self.decide(stage, &picture, random);
        let losses = self.meter.read(stage, &picture);
        self.losses = losses.map(|losses| losses.withheld(self.withheld));
        seats
    }

    fn losses(&mut self) -> Option<Losses> {
        self.losses.take()
    }

    fn pages(&mut self) -> Vec<PageOrder> {
        std::mem::take(&mut self.pages)
    }

    fn rations(&self) -> Vec<(ProcessId, u64)> {
        self.rations.all()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.estimator.moved(outcomes);
    }

    fn give_back(&self, stage: &Stage<'_>, thread: usize) -> Option<Reason> {
        let id = stage.thread(thread).id;
        let let_go = self.letting_go.contains(&id);
        let let_go = let_go.then(|| {
            LET_GO.because(words!(
                "it only made room, was put back, or no longer waits for memory"
            ))
        });
        let_go.or_else(|| stage.why_idle(thread))
    }

    fn next_look(&self) -> Option<Duration> {
        Some(self.looks.next)
    }
}

#[cfg(test)]
pub(crate) mod tests;
