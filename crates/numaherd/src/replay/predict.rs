//! What the model says would have come of other placements.
//!
//! In an interval that is predicted, each busy thread is a job made of what was counted of it in the
//! intervals *before*; the model says how fast all of them go on where they were recorded, and where each
//! replayed policy has them. The former is held against how fast they really went: that is the error
//! beside every prediction ([`errors`](Errors)).
//!
//! A job of counts (terms as in the model's `solve`):
//! * its memory: the share of lines that came from its own node, where that is counted, and of the rest
//!   what its process's pages say; by the pages alone where it is not. Pages stay where they were
//!   recorded;
//! * its lines: what it fetched from memory per 1000 instructions, whatever cache it has: how that would
//!   change with more or less of a shared cache, counts of one placement do not tell. So what sharing a
//!   cache costs is not in the prediction;
//! * its time: `t = a + x y` for 1000 instructions, with `x` what it waits for lines, one by one, and `y`
//!   one over the lines in flight. Both are found by least squares over its intervals, `y` held near a
//!   usual one as long as the intervals say little ([`Fit`]);
//! * its share of a CPU: what it wanted, which is what it had and what it waited for; threads in a memory
//!   domain share its CPUs evenly.
//!
//! Not every interval is predicted: all of the first [`DENSE`], ever fewer after, and those in which a
//! thread has just moved to another memory domain, [`MOST_TELLING`] at most: so an hour costs little more
//! than ten minutes. Each stands for those since the one before.

use std::collections::BTreeMap;

use numaherd_herd::replay::{Decided, Interval};
use numaherd_model::program::{Curve, Phase};
use numaherd_model::{Factors, Hardware, Speed, Spread, steady_spread};
use numaherd_show::replay::{
    Effect, Errors, Predicted, Prediction, ProcessEffect, Replayed, ThreadEffect,
};
use numaherd_topology::{CpuId, DomainId, NodeId};
use numaherd_world::{ProcessId, Snapshot, Thread, ThreadId};

/// The first so many intervals are predicted one and all, the later ones at distances of a part in so
/// many of those before.
const DENSE: u64 = 60;

/// Intervals with a thread that has just moved, beyond those, that are predicted at most.
const MOST_TELLING: u64 = 240;

/// Threads that use less of a CPU are left out: what they ask for is little, and little is counted.
const BUSY: f64 = 0.05;

/// When busy threads that were not counted use more than this share of all use, there is no prediction.
const UNCOUNTED: f64 = 0.1;

/// Lines in flight of a thread of which nothing is known: the middle of the programs in data/programs.
const USUAL_IN_FLIGHT: f64 = 4.0;

/// Relative standard deviation of a thread's time for an instruction from one interval to the next, with
/// everything the same. Ours: what weight intervals have against the usual lines in flight.
const NOISE: f64 = 0.03;

/// Weight of what is known already when a further interval comes.
const MEMORY: f64 = 0.98;

/// No core executes more instructions in a cycle.
const WIDEST: f64 = 8.0;

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
struct Fit {
    /// Weights, and weighted sums of x, t, x² and x t.
    sums: [f64; 5],
    /// Time for 1000 instructions in the latest interval, in ns.
    ns: f64,
    /// Lines per 1000 instructions.
    lines: f64,
    /// Share of a CPU that it wants.
    wants: f64,
    /// Nodes and the share of its lines that each answers.
    memory: Vec<(NodeId, f64)>,
    /// Where it was.
    domain: Option<DomainId>,
    /// What its lines waited in queues when the model was last asked, each, in ns.
    queue_ns: f64,
}

/// What was counted of a thread in an interval.
struct Counted {
    ns: f64,
    lines: f64,
    memory: Vec<(NodeId, f64)>,
}

/// Predicts as the recording goes by.
pub struct Predictor {
    hardware: Hardware,
    fits: BTreeMap<ThreadId, Fit>,
    /// Where each policy has the threads from the interval before on.
    places: Vec<BTreeMap<ThreadId, CpuId>>,
    seen: u64,
    predicted_at: u64,
    telling: u64,
    since_ns: u64,
    predicted: u64,
    uncounted: u64,
    errors: [Vec<f64>; 2],
    moved: [Vec<f64>; 2],
    /// Instructions by thread as the model has them: as recorded, and by each policy.
    work: BTreeMap<(ProcessId, ThreadId), Vec<f64>>,
    names: BTreeMap<ThreadId, String>,
    processes: BTreeMap<ProcessId, String>,
}

impl Predictor {
    /// Nothing seen yet.
    pub fn new(hardware: Hardware, policies: usize) -> Self {
        Self {
            hardware,
            fits: BTreeMap::new(),
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
            names: BTreeMap::new(),
            processes: BTreeMap::new(),
        }
    }

    /// One more interval, with what each policy decided on it.
    pub fn interval(&mut self, interval: &Interval, decided: &[Decided]) {
        let snapshot = &*interval.snapshot;
        self.since_ns += snapshot.interval_ns;
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

    /// Whether a thread has just moved to another memory domain: there the model can be held against what
    /// a move does.
    fn is_telling(&mut self, snapshot: &Snapshot) -> bool {
        let topology = self.hardware.topology();
        let domain = |thread: &Thread| topology.cpu(thread.place()).map(|cpu| cpu.domain);
        let has_moved = |thread: &Thread| {
            let fit = self.fits.get(&thread.id);
            thread.cpu_share >= BUSY && fit.is_some_and(|fit| fit.domain != domain(thread))
        };
        let telling = self.telling < MOST_TELLING && snapshot.threads.iter().any(has_moved);
        self.telling += u64::from(telling);
        telling
    }

    /// Predicts an interval by what is known from those before. Gives the time in ns that a line of each
    /// thread waits in queues, where it was recorded.
    fn predict(&mut self, snapshot: &Snapshot) -> BTreeMap<ThreadId, f64> {
        let used = |known: bool| -> f64 {
            let busy = snapshot.threads.iter().filter(|t| t.cpu_share >= BUSY);
            let those = busy.filter(|thread| self.fits.contains_key(&thread.id) == known);
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
            .filter(|t| t.cpu_share >= BUSY && self.fits.contains_key(&t.id))
            .collect();
        let recorded: Vec<CpuId> = threads.iter().map(|thread| thread.place()).collect();
        let Some(as_recorded) = self.solve(&threads, &recorded) else {
            self.uncounted += 1;
            return BTreeMap::new();
        };
        self.check(snapshot, &threads, &as_recorded);
        let policies: Vec<Vec<(f64, f64)>> = self
            .places
            .iter()
            .map(|places| {
                let place = |thread: &&Thread| places.get(&thread.id).copied();
                let there: Vec<CpuId> = threads
                    .iter()
                    .map(|thread| place(thread).unwrap_or(thread.place()))
                    .collect();
                let rates = (there != recorded)
                    .then(|| self.solve(&threads, &there))
                    .flatten();
                self.rates(&threads, rates.as_ref().unwrap_or(&as_recorded))
            })
            .collect();
        let base = self.rates(&threads, &as_recorded);
        let span = self.since_ns as f64;
        for (at, thread) in threads.iter().enumerate() {
            let key = (thread.process, thread.id);
            let work = self
                .work
                .entry(key)
                .or_insert_with(|| vec![0.0; policies.len() + 1]);
            work[0] += base[at].0 * base[at].1 * span;
            for (work, rates) in work[1..].iter_mut().zip(&policies) {
                *work += rates[at].0 * rates[at].1 * span;
            }
            self.names
                .entry(thread.id)
                .or_insert_with(|| thread.name.clone());
        }
        for process in &snapshot.processes {
            let name = || process.name.clone();
            self.processes.entry(process.id).or_insert_with(name);
        }
        self.predicted += 1;
        let speeds = threads.iter().zip(&as_recorded.speeds);
        speeds
            .map(|(thread, speed)| {
                let memory = &self.fits[&thread.id].memory;
                let idle_ns = self.idle_ns(thread.place(), memory);
                (thread.id, (speed.latency_ns - idle_ns).max(0.0))
            })
            .collect()
    }

    /// Mean latency of a line with these shares of the nodes, without any wait.
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
            .map(|(home, share)| share * self.hardware.latency_ns(here, home))
            .sum()
    }

    /// CPU share and instructions per ns of each thread.
    fn rates(&self, threads: &[&Thread], solved: &Solved) -> Vec<(f64, f64)> {
        let each = solved.shares.iter().zip(&solved.speeds);
        each.take(threads.len())
            .map(|(&share, speed)| (share, 1000.0 / speed.ns))
            .collect()
    }

    /// How the threads go on at these places; `None` where the machine lacks one of them.
    fn solve(&self, threads: &[&Thread], places: &[CpuId]) -> Option<Solved> {
        let topology = self.hardware.topology();
        let domains: Option<Vec<DomainId>> = places
            .iter()
            .map(|&place| Some(topology.cpu(place)?.domain))
            .collect();
        let domains = domains?;
        let mut wanted: BTreeMap<DomainId, f64> = BTreeMap::new();
        for (thread, &domain) in threads.iter().zip(&domains) {
            *wanted.entry(domain).or_default() += self.fits[&thread.id].wants;
        }
        let fits = || threads.iter().map(|thread| &self.fits[&thread.id]);
        let phases: Option<Vec<Phase>> = fits().map(|fit| fit.phase(&self.hardware)).collect();
        let phases = phases?;
        let shares: Vec<f64> = fits()
            .zip(&domains)
            .map(|(fit, &domain)| {
                let cpus = topology.domains()[domain.index()].cpus.len() as f64;
                fit.wants * (cpus / wanted[&domain]).min(1.0)
            })
            .collect();
        let spread: Vec<Spread<'_>> = fits()
            .zip(&phases)
            .zip(places.iter().zip(&shares))
            .map(|((fit, phase), (&cpu, &cpu_share))| Spread {
                phase,
                cpu,
                cpu_share,
                memory: &fit.memory,
            })
            .collect();
        let factors = Factors {
            cache: false,
            ..Factors::ALL
        };
        let speeds = steady_spread(&self.hardware, &spread, factors);
        Some(Solved { shares, speeds })
    }

    /// Holds the model against what was measured.
    fn check(&mut self, snapshot: &Snapshot, threads: &[&Thread], solved: &Solved) {
        let topology = self.hardware.topology();
        for (thread, speed) in threads.iter().zip(&solved.speeds) {
            let Some(counted) = counted(snapshot, thread, &self.hardware) else {
                continue;
            };
            let fit = &self.fits[&thread.id];
            let (model, before) = (speed.ns / counted.ns - 1.0, fit.ns / counted.ns - 1.0);
            let domain = topology.cpu(thread.place()).map(|cpu| cpu.domain);
            if fit.domain != domain {
                self.moved[0].push(model);
                self.moved[1].push(before);
            }
            self.errors[0].push(model);
            self.errors[1].push(before);
        }
    }

    /// Takes in what was counted, with the time that the model finds lines to wait in queues.
    fn learn(&mut self, snapshot: &Snapshot, queues: &BTreeMap<ThreadId, f64>) {
        self.fits
            .retain(|&thread, _| snapshot.thread(thread).is_some());
        let topology = self.hardware.topology().clone();
        for thread in snapshot.threads.iter().filter(|t| t.cpu_share >= BUSY) {
            let Some(counted) = counted(snapshot, thread, &self.hardware) else {
                continue;
            };
            let domain = topology.cpu(thread.place()).map(|cpu| cpu.domain);
            let idle_ns = self.idle_ns(thread.place(), &counted.memory);
            let fit = self.fits.entry(thread.id).or_default();
            if let Some(&queue_ns) = queues.get(&thread.id) {
                fit.queue_ns = queue_ns;
            }
            let beyond = (idle_ns + fit.queue_ns - self.hardware.llc_ns()).max(0.0);
            fit.take(counted.lines * beyond, counted.ns);
            fit.lines = counted.lines;
            fit.memory = counted.memory;
            fit.wants = (thread.cpu_share + thread.wait_share).min(1.0);
            fit.domain = domain;
        }
    }

    /// What came of it.
    pub fn finish(self, replayed: &Replayed) -> Prediction {
        let [model, before] = self.errors;
        let Some(errors) = Errors::of(model, before) else {
            let why = if self.uncounted > 0 {
                "busy threads were not counted: their instructions, lines from memory or the nodes of their \
                 pages are missing"
            } else {
                "no thread was busy in two intervals that follow each other"
            };
            return Prediction::None(why.to_owned());
        };
        let [model, before] = self.moved;
        let effects = replayed.policies.iter().enumerate().map(|(at, policy)| {
            policy
                .missing
                .is_none()
                .then(|| effect(&self.work, &self.names, &self.processes, at + 1))
        });
        Prediction::Predicted(Predicted {
            machine: self.hardware.topology().name().to_owned(),
            intervals: self.predicted,
            uncounted: self.uncounted,
            errors,
            moved: Errors::of(model, before),
            effects: effects.collect(),
        })
    }
}

/// How threads go on.
struct Solved {
    /// Share of a CPU of each.
    shares: Vec<f64>,
    speeds: Vec<Speed>,
}

impl Fit {
    /// One more interval.
    fn take(&mut self, x: f64, t: f64) {
        for (sum, more) in self.sums.iter_mut().zip([1.0, x, t, x * x, x * t]) {
            *sum = *sum * MEMORY + more;
        }
        self.ns = t;
    }

    /// Time for 1000 instructions without waiting for memory, in ns, and lines in flight.
    fn parts(&self, hardware: &Hardware) -> (f64, f64) {
        let [weight, x, t, xx, xt] = self.sums;
        let (x, t) = (x / weight, t / weight);
        let (varies, together) = ((xx / weight - x * x).max(0.0), xt / weight - x * t);
        let usual = 1.0 / USUAL_IN_FLIGHT.min(hardware.in_flight());
        // The usual one weighs as if it were off by half of itself, an interval as its noise says.
        let trust = (NOISE * t).powi(2) / (usual / 2.0).powi(2) / weight;
        let y = (together + trust * usual) / (varies + trust);
        let cycle_ns = 1.0 / hardware.clock_ghz();
        let least = 1000.0 * cycle_ns / WIDEST;
        let most = if x > 0.0 { (t - least) / x } else { 1.0 };
        let y = y
            .clamp(1.0 / hardware.in_flight().max(1.0), 1.0)
            .min(most.max(1e-3));
        ((t - x * y).max(least), 1.0 / y)
    }

    /// Its job; `None` where it cannot be one.
    fn phase(&self, hardware: &Hardware) -> Option<Phase> {
        let (base_ns, misses_in_flight) = self.parts(hardware);
        let per_cycle = hardware.ns_per_reference_cycle();
        let flat = [(f64::from(1 << 20), self.lines)];
        Some(Phase {
            instructions: 1e9,
            cycles_per_instruction: base_ns / 1000.0 / per_cycle,
            lines: Curve::new(self.lines, &flat, f64::from(1 << 30)).ok()?,
            demand: None,
            misses_in_flight,
            written_per_line: 0.0,
            busy: 1.0,
            sleep_ns: 0.0,
            shared_writes: None,
        })
    }
}

/// What was counted of a thread, where enough was: instructions, lines, and where the lines are.
fn counted(snapshot: &Snapshot, thread: &Thread, hardware: &Hardware) -> Option<Counted> {
    let counts = thread.counts.as_ref()?;
    let lines = counts.miss_rate()?;
    let ns = thread.cpu_share * snapshot.interval_ns as f64 * 1000.0 / counts.instructions as f64;
    if !(ns.is_finite() && ns > 0.0) {
        return None;
    }
    let memory = memory(snapshot, thread, hardware)?;
    Some(Counted { ns, lines, memory })
}

/// Nodes and the share of a thread's lines that each answers.
fn memory(snapshot: &Snapshot, thread: &Thread, hardware: &Hardware) -> Option<Vec<(NodeId, f64)>> {
    let topology = hardware.topology();
    let here = topology.cpu(thread.cpu)?.node;
    let residency = snapshot.process(thread.process)?.residency.as_ref();
    let known = |node: NodeId| topology.node_index(node).is_some();
    let pages: Vec<(NodeId, f64)> = residency
        .iter()
        .flat_map(|residency| &residency.pages)
        .filter(|&&(node, _)| known(node))
        .map(|&(node, pages)| (node, pages as f64))
        .collect();
    let local = thread.counts.as_ref()?.local_access_ratio();
    let Some(local) = local else {
        return shares(pages);
    };
    let mut elsewhere: Vec<_> = pages
        .into_iter()
        .filter(|&(node, _)| node != here)
        .collect();
    if elsewhere.is_empty() && local < 1.0 {
        let others = topology.memory_nodes();
        let others = others.iter().filter(|&node| node != here);
        elsewhere = others.map(|node| (node, 1.0)).collect();
    }
    let mut memory = shares(elsewhere).unwrap_or_default();
    for (_, share) in &mut memory {
        *share *= 1.0 - local;
    }
    memory.push((here, if memory.is_empty() { 1.0 } else { local }));
    memory.sort_by_key(|&(node, _)| node);
    Some(memory)
}

/// Amounts as shares of all of them; `None` for nothing.
fn shares(mut amounts: Vec<(NodeId, f64)>) -> Option<Vec<(NodeId, f64)>> {
    let all: f64 = amounts.iter().map(|&(_, amount)| amount).sum();
    for (_, amount) in &mut amounts {
        *amount /= all;
    }
    (all > 0.0).then_some(amounts)
}

/// What a policy's placement would change.
fn effect(
    work: &BTreeMap<(ProcessId, ThreadId), Vec<f64>>,
    names: &BTreeMap<ThreadId, String>,
    processes: &BTreeMap<ProcessId, String>,
    policy: usize,
) -> Effect {
    let change = |(recorded, other): (f64, f64)| other / recorded - 1.0;
    let mut by_process: BTreeMap<ProcessId, (f64, f64)> = BTreeMap::new();
    let mut all = (0.0, 0.0);
    let mut worst: Option<ThreadEffect> = None;
    for (&(process, thread), done) in work {
        let both = (done[0], done[policy]);
        for sum in [by_process.entry(process).or_default(), &mut all] {
            *sum = (sum.0 + both.0, sum.1 + both.1);
        }
        let change = change(both);
        if worst.as_ref().is_none_or(|worst| change < worst.change) {
            worst = Some(ThreadEffect {
                tid: thread.tid,
                pid: process.pid,
                name: names.get(&thread).cloned().unwrap_or_default(),
                change,
            });
        }
    }
    let of_process = |(id, both): (ProcessId, (f64, f64))| ProcessEffect {
        pid: id.pid,
        name: processes.get(&id).cloned().unwrap_or_default(),
        change: change(both),
    };
    Effect {
        total: change(all),
        processes: by_process.into_iter().map(of_process).collect(),
        worst,
    }
}
