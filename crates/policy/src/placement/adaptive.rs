//! Adaptive: acts where it expects the machine to lose fewer cores, and is Linux everywhere else.
//!
//! Problem: each published policy is right on its own ground and loses on others'. A person who is to leave one
//! on needs one that gains where it acts, and does nothing elsewhere.
//!
//! Rule, at each look:
//! 1. *Estimate* what the threads demand, and how many cores the machine loses to caches and memory
//!    ([`crate::estimate`]). Where that is less than `least_gain` of the busy cores, nothing is done.
//! 2. *Candidates*: the threads where they are, or where they will be once the kernel has spread them over free
//!    CPUs; the same with those back beside their memory that the kernel moved away from it; the layouts of `dino`, `di`
//!    and `n-mass`; each with the memory where it is and with its threads, and
//!    with what processes have in common spread over the nodes of their threads; and from the best of these a local
//!    search, in which a thread that suffers moves to another domain, or changes places with the one there that
//!    suffers least.
//! 3. *Least constraint*: threads and memory stay that the best candidate would move without losing fewer cores by it.
//! 4. *Gates*. The gain is at least `least_gain` of the busy cores on average over all draws, and no draw loses
//!    more than a quarter of that; it would have been as much on average over the last looks, back to 10 s, since its memory
//!    last moved, and more than the standard error of that: what suits threads in one phase may cost them more in the next; the
//!    kernel is not about to move a thread from a domain that is short of cores to one that is not; over the time that its
//!    threads have been seen, it would have paid for moves there and back, at what moving pages has taken on this machine; and every process that it touches has credit for its cost. Where it has too little,
//!    and its threads stay where they are, a part of its memory that the credit pays for follows first, and once that has
//!    gained, the next; otherwise its
//!    memory stays for now. `loss_budget` of the time that a process runs accrues as credit, beginning with
//!    `first_credit_ms`.
//! 5. *Act*. Threads that move, and those that suffer, are held in their memory domain. A thread that only made
//!    room is the kernel's again at the next look. The memory of a process whose threads are on one node goes
//!    there; that of one on several follows the samples of its accesses, where all of its threads can be held. Before,
//!    it is dealt to their nodes, if nearly all of it is on one and a twentieth of the busy cores can be gained: who uses
//!    what is not known yet, and all wait for that one.
//!    Shared memory that is mapped more than once (and files that are, where they are most of a process's pages) is
//!    in common: it never follows a process, and is spread by blocks of 512 pages over the nodes of all processes
//!    that wait for such memory, each as often as they have threads there, in the process that has most of it; of
//!    these processes, the private memory alone follows. Each of them is charged for the pages as often as there
//!    are such processes: each is interrupted for every page.
//! 6. *Verify*. When hardly any page moves any more, the speeds of all threads in the next quarter of a second are
//!    compared with those in the last look in which they did the same, as far as is counted: asked the last-level cache as often
//!    per instruction, within 15 %. If they are no better on average, nothing is tried for `wait_s`, and for twice as long each
//!    time after; after the second time in a row nothing is tried before as much more or less is lost as must be gained, or
//!    other threads are busy. If they are worse, by the mean of what was expected and what was seen, each weighted by its
//!    variance (that of what is seen is known from looks between which nothing was done), threads and memory go back, too: a
//!    thread that would share a core there while another is idle is let go instead; one that the kernel has moved since stays
//!    there, and so do threads whose memory has followed their use. Where a gain shows, its cost is refunded. Either way the
//!    estimates learn from it. Where threads do something else than before for most of a second, their speeds say nothing:
//!    threads go back if the equations want them back by what they do now, and nothing is refunded.
//!
//! No thread is put on a core beside another while a core that it may use is idle: within a domain the kernel spreads
//! threads over cores, so that a domain has room for as many as it has cores, and for as many as it has CPUs where no
//! core is idle in any other. The equations know what siblings cost. Where only a program or a cgroup is
//! watched, CPUs that other threads keep busy do not count as a domain's: no thread goes there, and one that is held there is
//! let go if another domain has a CPU.
//!
//! A thread needs as much room as it wanted at its busiest of late (of which half counts 5 s later): threads that wait for
//! each other want little now and all in a moment. A process is left alone while its threads want less than a third of
//! what they wanted then: what some do while the others sleep is not what the process does.
//!
//! Where nothing is counted, threads and memory are only brought together: when each look of 10 s wanted the same. No
//! action can be verified then, so each is taken not to have gained: what it costs is never refunded, and its process
//! rests for 20 s, and for twice as long each time after. A thread whose domain is short of CPUs is let go there, if
//! another domain has some.
//!
//! When: 50 ms after the start, and after a look at which half of the busy threads have never been busy before; then
//! after twice as long each time, or four times where what is counted shows that nothing is to be gained, up to the
//! loop's own cadence; and after it acted, as soon as that can be judged.
//!
//! Terms: a *layout* gives every busy thread a CPU; a thread *suffers* by the share of its time that memory and
//! caches cost; *lost cores* are CPU time that threads would not need alone on the machine. Source: designed here.
//! The parts: shared memory spread, private at home (Carrefour, ASPLOS 2013); rank layouts by a model (Pandia,
//! EuroSys 2017); the budget (conservative bandits, ICML 2016).
//!
//! Properties: what it is charged for a process and not refunded is at most `loss_budget` of the time that this
//! ran, and `first_credit_ms`; without an expected gain no thread is placed and no page ordered, but to undo; no
//! thread is moved outside its pool.

mod action;
mod cores;
mod home;
mod orders;
mod past;
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
use crate::losses::{Losses, Meter};
use crate::memory::PerThread;
use crate::policy::{Needs, Optional, Random};
use crate::reason::{Figure, Reason};
use crate::settings::Settings;
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
use action::{Action, Verdict, costs};
use orders::of_memory;
use past::Past;
pub use rules::RULES;
use rules::{DEAL, FOLLOW, GAIN, HOLD, LET_GO, MAKE_ROOM, SPREAD, UNDO};
use search::{Balanced, Candidate};
use seeds::Seeds;
pub use settings::AdaptiveSettings;
use uncounted::Uncounted;

/// The very first look: nothing is counted of a thread before it has been seen once.
const TO_ATTACH: Duration = Duration::from_millis(1);
/// The next look, and one after many threads became busy.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// How often the time between looks doubles; the loop's own cadence ends it long before.
const MOST_DOUBLED: u32 = 16;
/// The time in ns in which threads move and caches fill, besides that for moving pages: it is passed over.
const SETTLES_AFTER: u64 = 100_000_000;
/// For how many ns speeds are then measured before an action is judged.
const JUDGED_AFTER: u64 = 250_000_000;
/// A thread that loses less than this share of its time to memory and caches does not suffer.
const SUFFERS: f64 = 0.05;
/// Looks after which a held thread is let go that could suffer nowhere.
const CALM_LOOKS: u32 = 3;
/// After so many ns it is searched again although as much is lost as when nothing was found: by then there is more
/// credit.
const SEARCHED_AGAIN: u64 = 10_000_000_000;
/// What a search may cost: layouts times threads.
const MOST_THREADS_TRIED: usize = 16_384;

/// The time from a look to the next: after so many looks since many threads became busy.
fn after(looks: u32) -> Duration {
    FIRST_LOOK * 2u32.pow(looks.min(MOST_DOUBLED))
}

/// See the top of this file.
pub struct Adaptive {
    settings: AdaptiveSettings,
    estimator: Estimator,
    seeds: Seeds,
    credit: BTreeMap<ProcessId, f64>,
    action: Option<Action>,
    /// Threads that are let go at the next look.
    let_go: Vec<ThreadId>,
    /// Those of this look.
    letting_go: BTreeSet<ThreadId>,
    /// For how many looks each thread has been one that could suffer nowhere.
    calm: PerThread<u32>,
    pages: Vec<PageOrder>,
    wait_until_ns: u64,
    failed: i32,
    next: Duration,
    /// What was lost when a search found nothing to gain, and when, in ns.
    fruitless: Option<(f64, u64)>,
    /// Looks since many threads became busy.
    looks: u32,
    /// Threads that have been busy.
    busy: PerThread<bool>,
    /// Processes whose memory followed its threads to several nodes: what is private is there since.
    told: BTreeSet<ProcessId>,
    /// Of processes of whose memory a part has followed: to which node (place), and how many portions.
    followed: BTreeMap<ProcessId, (usize, u64)>,
    uncounted: Uncounted,
    past: Past,
    meter: Meter,
    losses: Option<Losses>,
}

impl Adaptive {
    /// Nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.adaptive,
            estimator: Estimator::new(settings.by_use),
            seeds: Seeds::new(settings),
            credit: BTreeMap::new(),
            action: None,
            let_go: Vec::new(),
            letting_go: BTreeSet::new(),
            calm: PerThread::default(),
            pages: Vec::new(),
            wait_until_ns: 0,
            failed: 0,
            next: TO_ATTACH,
            fruitless: None,
            looks: 0,
            busy: PerThread::default(),
            told: BTreeSet::new(),
            followed: BTreeMap::new(),
            uncounted: Uncounted::default(),
            past: Past::default(),
            meter: Meter::default(),
            losses: None,
        }
    }

    /// When to look again: soon after many threads became busy for the first time, then less and less often.
    fn schedule(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let busy = self.busy.line_up(&stage.snapshot.threads);
        let is_new = |load: &&Load| !std::mem::replace(&mut busy[load.at], true);
        let new = picture.threads.iter().filter(is_new).count();
        self.looks = match new > 0 && new * 2 >= picture.threads.len() {
            true => 0,
            false => self.looks.saturating_add(1),
        };
        self.next = after(self.looks);
    }

    /// Looks again after twice as long as else: what is counted shows that nothing is to be gained, and a look takes CPU
    /// time that the threads may want.
    fn look_less(&mut self, picture: &Picture) -> Vec<Seat> {
        if picture.from != Basis::Residency {
            self.looks = self.looks.saturating_add(1);
            self.next = after(self.looks);
        }
        Vec::new()
    }

    /// Lets threads go that could suffer nowhere any more, and those that wait for CPUs where nothing shows whether they
    /// gain by being held, or where threads that are not watched have them.
    fn release(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let wanted = picture.wanted_in(&picture.now());
        let is_short = |load: &Load| {
            picture.seat(load.cpu).is_some_and(|seat| {
                let domain = seat.domain;
                (picture.from == Basis::Residency || picture.cores.has_others(domain))
                    && uncounted::is_short(picture, &wanted, domain)
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

    /// What each process may be charged.
    fn accrue(&mut self, stage: &Stage<'_>, picture: &Picture) {
        let first = self.settings.first_credit_ms * 1e6;
        let mut credit = BTreeMap::new();
        for owner in &picture.processes {
            let ran: f64 = (owner.threads.iter())
                .map(|&at| stage.thread(picture.threads[at].at).cpu_share)
                .sum();
            let ran_ns = ran * stage.snapshot.interval_ns as f64;
            let before = self.credit.get(&owner.id).copied().unwrap_or(first);
            credit.insert(owner.id, before + ran_ns * self.settings.loss_budget);
        }
        self.credit = credit;
        let is_there = |process: &ProcessId| stage.snapshot.process(*process).is_some();
        self.told.retain(is_there);
        self.followed.retain(|process, _| is_there(process));
    }

    /// Whether an action is over and how it ended; what is not over goes on.
    fn judge(&mut self, stage: &Stage<'_>, picture: &Picture) -> Option<(Action, Verdict)> {
        if !self.action.as_mut()?.watch(stage, picture) {
            return None;
        }
        let action = self.action.take()?;
        let by_use = action.followed.iter().filter(|follow| follow.is_by_use());
        self.told.extend(by_use.map(|follow| follow.process));
        let speeds = action.speeds();
        let layout = (&*action.layout.cpus, &*action.layout.memory);
        (self.estimator).learn(stage.topology, &action.before, layout, &speeds);
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
        // Of all threads the same: figures are put into words once.
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
        self.pages.extend(pages);
        action.followed = followed;
        self.past.touch();
        self.next = Duration::from_nanos(action.begin(stage.snapshot.time_ns));
        self.action = Some(action);
        seats
    }

    /// Draws the conclusion from what came of an action: the seats that undo it, if it is undone.
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
                for (process, cost) in action.charged {
                    if let Some(credit) = self.credit.get_mut(&process) {
                        *credit += cost;
                    }
                }
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
        self.letting_go = self.let_go.drain(..).collect();
        self.schedule(stage, picture);
        self.accrue(stage, picture);
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
            self.next = Duration::from_nanos(JUDGED_AFTER);
            return Vec::new();
        }
        if stage.snapshot.time_ns < self.wait_until_ns || picture.threads.is_empty() {
            return Vec::new();
        }
        self.improve(stage, picture, random)
    }

    /// Looks for a layout that loses fewer cores, and carries it out where the gates are open.
    fn improve(
        &mut self,
        stage: &Stage<'_>,
        picture: &Arc<Picture>,
        random: &mut Random,
    ) -> Vec<Seat> {
        let wanted_before = self.uncounted.begin(picture);
        let now_ns = stage.snapshot.time_ns;
        let least = self.settings.least_gain * picture.busy_cores();
        let balanced = Balanced::of(stage, picture);
        let lost_now = balanced.roughly();
        let as_before = |(before, since_ns): (f64, u64)| {
            let is_recent = stage.snapshot.time_ns.saturating_sub(since_ns) < SEARCHED_AGAIN;
            (before - lost_now).abs() < least && is_recent && self.looks > 0
        };
        if lost_now < least {
            self.meter
                .searched(&picture.lost_now(), &picture.lost_now());
        }
        if lost_now < least || self.fruitless.is_some_and(as_before) {
            return self.look_less(picture);
        }
        let by_residency = picture.from == Basis::Residency;
        let layouts = match by_residency {
            // The published policies go by miss rates.
            true => Vec::new(),
            false => Vec::from(self.seeds.layouts(stage, picture, random)),
        };
        let most = MOST_THREADS_TRIED.div_ceil(picture.threads.len());
        let most = most.min(self.settings.layouts);
        let credit: Vec<f64> = (picture.processes.iter())
            .map(
                |owner| match by_residency && self.uncounted.rests(owner.id, now_ns) {
                    true => 0.0,
                    false => self.credit.get(&owner.id).copied().unwrap_or(0.0),
                },
            )
            .collect();
        let lost = balanced.lost;
        let stays = balanced.cpus.clone();
        let candidate = search::best(stage, picture, layouts, &credit, balanced, most);
        let then = candidate.lost(picture);
        self.meter.searched(&lost, &then);
        let draws = lost.len() as f64;
        let mean = |lost: &[f64]| lost.iter().sum::<f64>() / draws;
        let gain = mean(&lost) - mean(&then);
        let loses = lost
            .iter()
            .zip(&then)
            .any(|(lost, then)| then - lost > least / 4.0);
        if gain < least || loses {
            self.fruitless = Some((lost_now, stage.snapshot.time_ns));
            return self.look_less(picture);
        }
        self.fruitless = None;
        let of_late = self.past.gain(picture, &stays, &candidate);
        let (gain, by_chance) = of_late.unwrap_or((gain, 0.0));
        if gain < least.max(by_chance) || cores::are_short(stage, picture, &candidate.cpus) {
            return Vec::new();
        }
        let costs = costs(picture, &candidate);
        let affordable = |(process, cost): &(ProcessId, f64)| {
            self.credit
                .get(process)
                .is_some_and(|credit| credit >= cost)
        };
        let all: f64 = costs.iter().map(|(_, cost)| cost).sum();
        let touched = picture.threads.iter().zip(&candidate.cpus);
        let touched = touched.filter(|&(load, &cpu)| {
            (picture.is_move(load, cpu) || candidate.memory[load.process].moves())
                && load.lines > 0.0
        });
        let age_ns = touched.map(|(load, _)| load.age_ns).min().unwrap_or(0);
        let has_lasted = !by_residency
            || (self.uncounted).has_lasted(&wanted_before, picture, &candidate, now_ns);
        let is_new = by_residency && u128::from(age_ns) < uncounted::SEEN.as_nanos();
        if !has_lasted || is_new || gain * age_ns as f64 <= all || !costs.iter().all(affordable) {
            return Vec::new();
        }
        if by_residency {
            self.uncounted.act(picture, &candidate, now_ns);
        }
        for (process, cost) in &costs {
            if let Some(credit) = self.credit.get_mut(process) {
                *credit -= cost;
            }
        }
        self.act(stage, picture, candidate, (mean(&lost), mean(&then)), costs)
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
        self.losses = self.meter.read(stage, &picture);
        seats
    }

    fn losses(&mut self) -> Option<Losses> {
        self.losses.take()
    }

    fn pages(&mut self) -> Vec<PageOrder> {
        std::mem::take(&mut self.pages)
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
        Some(self.next)
    }
}

#[cfg(test)]
pub(crate) mod tests;
