//! What other placements would have achieved, according to the model.
//!
//! In a predicted interval, each busy thread is a job made from its counts in the intervals *before*. The model says
//! how fast all of them run where they were recorded, and where each replayed policy places them. The former is
//! compared with their measured speed: that is the error beside every prediction ([`Errors`]). How counts become a
//! job, and what is left out: [`job`](super::job).
//!
//! A thread wants the share of a CPU that it had plus that for which it waited; threads in a memory domain share its
//! CPUs evenly.
//!
//! Not every interval is predicted: all of the first [`DENSE`], ever fewer after, and at most [`MOST_TELLING`] in
//! which a thread has just moved to another memory domain. An hour thus costs little more than ten minutes. Each
//! stands for the intervals since the one before.

use std::collections::BTreeMap;

use numaherd_herd::replay::{Decided, Interval};
use numaherd_model::program::Phase;
use numaherd_model::{Factors, Hardware, Library, Speed, Spread, steady_spread};
use numaherd_show::replay::{
    Effect, Errors, Predicted, Prediction, ProcessEffect, Replayed, ThreadEffect,
};
use numaherd_topology::{CpuId, DomainId, NodeId};
use numaherd_world::{ProcessId, Snapshot, Thread, ThreadId};

use super::job::{Job, counted};

/// The first `DENSE` intervals are all predicted; the distance of later ones is the number of those before over
/// `DENSE`.
const DENSE: u64 = 60;

/// The most intervals with a thread that has just moved that are predicted beyond those.
const MOST_TELLING: u64 = 240;

/// Threads that use less of a CPU are left out: they ask for little, and little is counted.
const BUSY: f64 = 0.05;

/// There is no prediction when busy threads without counts use more than this share of all use.
const UNCOUNTED: f64 = 0.1;

/// Predicts interval by interval.
pub struct Predictor {
    hardware: Hardware,
    programs: Library,
    jobs: BTreeMap<ThreadId, Job>,
    /// Where each policy places the threads from the latest interval on.
    places: Vec<BTreeMap<ThreadId, CpuId>>,
    seen: u64,
    predicted_at: u64,
    telling: u64,
    since_ns: u64,
    predicted: u64,
    uncounted: u64,
    errors: [Vec<f64>; 2],
    moved: [Vec<f64>; 2],
    work: BTreeMap<(ProcessId, ThreadId), Work>,
    processes: BTreeMap<ProcessId, String>,
}

/// What a thread does.
struct Work {
    name: String,
    /// Its instructions as the model has them: as recorded, and under each policy.
    instructions: Vec<f64>,
}

impl Predictor {
    /// One that has seen nothing yet.
    ///
    /// Programs are profiles, by the names of threads that run them.
    pub fn new(hardware: Hardware, programs: Library, policies: usize) -> Self {
        Self {
            hardware,
            programs,
            jobs: BTreeMap::new(),
            places: vec![BTreeMap::new(); policies],
            seen: 0,
            predicted_at: 0,
            telling: 0,
            since_ns: 0,
            predicted: 0,
            uncounted: 0,
            errors: Default::default(),
            moved: Default::default(),
            work: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// One more interval, with what each policy decided on it.
    pub fn interval(&mut self, interval: &Interval, decided: &[Decided]) {
        let snapshot = &*interval.snapshot;
        self.since_ns = self.since_ns.saturating_add(snapshot.interval_ns);
        let due = self.seen - self.predicted_at >= (self.seen / DENSE).max(1);
        let mut queues = BTreeMap::new();
        if self.seen > 0 && (due || self.is_telling(snapshot)) {
            self.predicted_at = self.seen;
            queues = self.predict(snapshot);
            self.since_ns = 0;
        }
        self.seen += 1;
        self.learn(snapshot, &queues);
        for (places, decided) in self.places.iter_mut().zip(decided) {
            let threads = decided.seen.threads.iter().map(|thread| thread.id);
            *places = threads.zip(decided.places.iter().copied()).collect();
        }
    }

    /// Whether a thread has just moved to another memory domain: the interval then tests what the model says about
    /// moves.
    fn is_telling(&mut self, snapshot: &Snapshot) -> bool {
        let topology = self.hardware.topology();
        let domain = |thread: &Thread| topology.cpu(thread.place()).map(|cpu| cpu.domain);
        let has_moved = |thread: &Thread| {
            let job = self.jobs.get(&thread.id);
            thread.cpu_share >= BUSY && job.is_some_and(|job| job.domain != domain(thread))
        };
        let telling = self.telling < MOST_TELLING && snapshot.threads.iter().any(has_moved);
        self.telling += u64::from(telling);
        telling
    }

    /// Predicts an interval from earlier ones. Returns, for each thread where it was recorded, how long a line waits
    /// in queues, in ns, and the bytes of cache that it holds.
    fn predict(&mut self, snapshot: &Snapshot) -> BTreeMap<ThreadId, (f64, f64)> {
        let used = |known: bool| -> f64 {
            let busy = snapshot.threads.iter().filter(|t| t.cpu_share >= BUSY);
            let those = busy.filter(|thread| self.jobs.contains_key(&thread.id) == known);
            those.map(|thread| thread.cpu_share).sum()
        };
        let (known, unknown) = (used(true), used(false));
        if known == 0.0 || unknown > UNCOUNTED * (known + unknown) {
            self.uncounted += 1;
            return BTreeMap::new();
        }
        let threads: Vec<&Thread> = snapshot
            .threads
            .iter()
            .filter(|t| t.cpu_share >= BUSY && self.jobs.contains_key(&t.id))
            .collect();
        let recorded: Vec<CpuId> = threads.iter().map(|thread| thread.place()).collect();
        let Some(as_recorded) = self.solve(&threads, &recorded) else {
            self.uncounted += 1;
            return BTreeMap::new();
        };
        self.check(snapshot, &threads, &as_recorded);
        let base = self.rates(&threads, &as_recorded);
        let policies = self.places.iter().map(|places| {
            let place = |thread: &&Thread| places.get(&thread.id).copied();
            let places = threads.iter();
            let there = places.map(|thread| place(thread).unwrap_or(thread.place()));
            let there: Vec<CpuId> = there.collect();
            let solved = match there == recorded {
                true => None,
                false => self.solve(&threads, &there),
            };
            solved.map_or_else(|| base.clone(), |solved| self.rates(&threads, &solved))
        });
        let policies: Vec<Vec<(f64, f64)>> = policies.collect();
        self.add_work(&threads, &base, &policies);
        for process in &snapshot.processes {
            let name = || process.name.clone();
            self.processes.entry(process.id).or_insert_with(name);
        }
        self.predicted += 1;
        let speeds = threads.iter().zip(&as_recorded.speeds);
        speeds
            .map(|(thread, speed)| {
                let memory = &self.jobs[&thread.id].memory;
                let idle_ns = self.idle_ns(thread.place(), memory);
                let queue_ns = (speed.latency_ns - idle_ns).max(0.0);
                (thread.id, (queue_ns, speed.held_bytes))
            })
            .collect()
    }

    /// Adds the instructions of an interval at the rates of the recording and of each policy.
    fn add_work(&mut self, threads: &[&Thread], base: &[(f64, f64)], policies: &[Vec<(f64, f64)>]) {
        let span = self.since_ns as f64;
        for (at, thread) in threads.iter().enumerate() {
            let work = self.work.entry((thread.process, thread.id));
            let work = work.or_insert_with(|| Work {
                name: thread.name.clone(),
                instructions: vec![0.0; policies.len() + 1],
            });
            let rates = std::iter::once(base).chain(policies.iter().map(Vec::as_slice));
            for (instructions, rates) in work.instructions.iter_mut().zip(rates) {
                *instructions += rates[at].0 * rates[at].1 * span;
            }
        }
    }

    /// Mean latency, in ns, of a line with these shares of the nodes, without any wait.
    fn idle_ns(&self, from: CpuId, memory: &[(NodeId, f64)]) -> f64 {
        let topology = self.hardware.topology();
        let here = topology
            .node_of(from)
            .and_then(|node| topology.node_index(node));
        let Some(here) = here else {
            return 0.0;
        };
        let shares = memory.iter();
        shares
            .filter_map(|&(home, share)| Some((topology.node_index(home)?, share)))
            .map(|(home, share)| share * self.hardware.figures.latency_ns(here, home))
            .sum()
    }

    /// CPU share and instructions per ns of each thread.
    fn rates(&self, threads: &[&Thread], solved: &Solved) -> Vec<(f64, f64)> {
        let each = solved.shares.iter().zip(&solved.speeds);
        each.take(threads.len())
            .map(|(&share, speed)| (share, 1000.0 / speed.ns))
            .collect()
    }

    /// How fast the threads run at these places; `None` where the machine lacks one of them.
    fn solve(&self, threads: &[&Thread], places: &[CpuId]) -> Option<Solved> {
        let topology = self.hardware.topology();
        let domains: Option<Vec<DomainId>> = places
            .iter()
            .map(|&place| Some(topology.cpu(place)?.domain))
            .collect();
        let domains = domains?;
        let mut wanted: BTreeMap<DomainId, f64> = BTreeMap::new();
        for (thread, &domain) in threads.iter().zip(&domains) {
            *wanted.entry(domain).or_default() += self.jobs[&thread.id].wants;
        }
        let jobs = || threads.iter().map(|thread| &self.jobs[&thread.id]);
        let phases: Option<Vec<Phase>> = jobs().map(|job| job.phase(&self.hardware)).collect();
        let phases = phases?;
        let shares: Vec<f64> = jobs()
            .zip(&domains)
            .map(|(job, &domain)| {
                let cpus = topology.domains()[domain.index()].cpus.len() as f64;
                job.wants * (cpus / wanted[&domain]).min(1.0)
            })
            .collect();
        let spread: Vec<Spread<'_>> = jobs()
            .zip(&phases)
            .zip(places.iter().zip(&shares))
            .map(|((job, phase), (&cpu, &cpu_share))| Spread {
                phase,
                cpu,
                cpu_share,
                memory: &job.memory,
            })
            .collect();
        let speeds = steady_spread(&self.hardware, &spread, Factors::ALL);
        Some(Solved { shares, speeds })
    }

    /// Compares the model with what was measured.
    fn check(&mut self, snapshot: &Snapshot, threads: &[&Thread], solved: &Solved) {
        let topology = self.hardware.topology();
        for (thread, speed) in threads.iter().zip(&solved.speeds) {
            let Some(counted) = counted(snapshot, thread, &self.hardware) else {
                continue;
            };
            let job = &self.jobs[&thread.id];
            let (model, before) = (speed.ns / counted.ns - 1.0, job.ns / counted.ns - 1.0);
            let domain = topology.cpu(thread.place()).map(|cpu| cpu.domain);
            if job.domain != domain {
                self.moved[0].push(model);
                self.moved[1].push(before);
            }
            self.errors[0].push(model);
            self.errors[1].push(before);
        }
    }

    /// Takes in what was counted, with what [`Self::predict`] found for each thread.
    fn learn(&mut self, snapshot: &Snapshot, found: &BTreeMap<ThreadId, (f64, f64)>) {
        self.jobs
            .retain(|&thread, _| snapshot.thread(thread).is_some());
        let topology = self.hardware.topology().clone();
        for thread in snapshot.threads.iter().filter(|t| t.cpu_share >= BUSY) {
            let Some(counted) = counted(snapshot, thread, &self.hardware) else {
                continue;
            };
            let domain = topology.cpu(thread.place()).map(|cpu| cpu.domain);
            let idle_ns = self.idle_ns(thread.place(), &counted.memory);
            let profile = || self.programs.get(&thread.name).ok().cloned();
            let job = self
                .jobs
                .entry(thread.id)
                .or_insert_with(|| Job::of(profile()));
            if let Some(&(queue_ns, held_bytes)) = found.get(&thread.id) {
                job.queue_ns = queue_ns;
                job.held_bytes = Some(held_bytes);
            }
            let waited_ns = idle_ns + job.queue_ns;
            job.wants = (thread.cpu_share + thread.wait_share).min(1.0);
            job.take(counted, waited_ns, &self.hardware);
            job.domain = domain;
        }
    }

    /// The prediction.
    pub fn finish(mut self, replayed: &Replayed) -> Prediction {
        let [model, before] = std::mem::take(&mut self.errors);
        let Some(errors) = Errors::of(model, before) else {
            let why = if self.uncounted > 0 {
                "busy threads were not counted: their instructions, lines from memory or the nodes of their \
                 pages are missing"
            } else {
                "no thread was busy in two intervals that follow each other"
            };
            return Prediction::None(why.to_owned());
        };
        let [model, before] = std::mem::take(&mut self.moved);
        let policies = (1..).zip(&replayed.policies);
        let effects =
            policies.map(|(at, policy)| policy.missing.is_none().then(|| self.effect(at)));
        Prediction::Predicted(Predicted {
            machine: self.hardware.topology().name().to_owned(),
            intervals: self.predicted,
            uncounted: self.uncounted,
            errors,
            moved: Errors::of(model, before),
            effects: effects.collect(),
        })
    }

    /// What the placement of a policy, counted from 1, would change.
    fn effect(&self, policy: usize) -> Effect {
        let change = |(recorded, other): (f64, f64)| other / recorded - 1.0;
        let mut by_process: BTreeMap<ProcessId, (f64, f64)> = BTreeMap::new();
        let mut all = (0.0, 0.0);
        let mut worst: Option<ThreadEffect> = None;
        for (&(process, thread), work) in &self.work {
            let both = (work.instructions[0], work.instructions[policy]);
            for sum in [by_process.entry(process).or_default(), &mut all] {
                *sum = (sum.0 + both.0, sum.1 + both.1);
            }
            let change = change(both);
            if worst.as_ref().is_none_or(|worst| change < worst.change) {
                worst = Some(ThreadEffect {
                    tid: thread.tid,
                    pid: process.pid,
                    name: work.name.clone(),
                    change,
                });
            }
        }
        let of_process = |(id, both): (ProcessId, (f64, f64))| ProcessEffect {
            pid: id.pid,
            name: self.processes.get(&id).cloned().unwrap_or_default(),
            change: change(both),
        };
        Effect {
            total: change(all),
            processes: by_process.into_iter().map(of_process).collect(),
            worst,
        }
    }
}

/// How fast threads run.
struct Solved {
    /// Share of a CPU of each.
    shares: Vec<f64>,
    speeds: Vec<Speed>,
}
