//! What one interval of the loop costs, beside what the policy takes to decide and the machine to
//! obey: 8 and 1,000 threads on 64 CPUs of 8 nodes, with and without a ledger.
//!
//! Two cases: *steady*, where nothing is wanted, as it is most of the time; and *all move*, where
//! every thread is wanted on another node and goes there. The world takes snapshots from memory and
//! does as it is told, so that what is measured is the loop, the governor and the ledger.
//!
//! Then an interval at BRM's cadence, with BRM itself deciding: 16 and 256 candidates whose penalties
//! vary; each figure is also given as a share of the 10 ms, with what an hour of it puts in the ledger.
//!
//! Then what an hour of 8 threads costs beside the model, where the pager is in step with a modelled
//! time: with a paging that does not listen, and with one that looks at samples of every thread each
//! 10 ms, 360,000 times, and finds nothing to fetch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use numaherd_herd::ledger::Writer;
use numaherd_herd::{Herd, Limits, Settings};
use numaherd_policy::registry;
use numaherd_policy::settings::CandidatesBy;
use numaherd_policy::{Needs, Paging, Place, PlacedThread, Policy, Random};
use numaherd_testing::sample;
use numaherd_testing::seen::{empty, process_on, thread_on};
use numaherd_topology::{CpuId, NodeSet, Topology, hwloc};
use numaherd_world::{
    AffinityOutcome, AffinityResult, Counts, NewPages, Orders, Outcome, PageOrder, PageOutcome,
    Pager, Placement, Progress, Sample, Signal, SignalReport, SignalState, Snapshot, Thread, World,
    WorldError,
};

/// A modelled experiment, and a large machine.
const THREADS: [u32; 2] = [8, 1_000];
/// Candidates of BRM's.
const CANDIDATES: [u32; 2] = [16, 256];
const CPUS: u32 = 64;
const MACHINE: &str = "pack:8 [numa(memory=4GiB)] l3:1(size=16MiB) core:8 pu:1";

/// A machine in memory, which notes when its intervals began.
struct Scripted {
    topology: Arc<Topology>,
    signals: [SignalReport; 1],
    snapshot: Snapshot,
    began: Vec<Instant>,
    /// Its time in ns.
    now_ns: Arc<AtomicU64>,
    in_step: bool,
}

/// The half of it that samples one local access of each thread in each of its steps.
struct ScriptedPager {
    now_ns: Arc<AtomicU64>,
    accesses: Vec<Sample>,
}

impl Scripted {
    fn new(threads: u32) -> Self {
        let topology = Arc::new(hwloc::synthetic(MACHINE).expect("a machine"));
        let all = Arc::new(topology.online_cpus());
        let nodes: Arc<NodeSet> = Arc::new(topology.memory_nodes());
        let pid = |tid: u32| tid - tid % 8;
        let thread = |tid: u32| Thread {
            name: format!("worker-{tid}"),
            cpu_share: 0.064,
            counts: Some(Counts {
                instructions: 123_456_789 + u64::from(tid),
                cycles: Some(234_567_891),
                lines: 1_234_567,
                local: Some(734_567),
                remote: Some(500_000),
                counted_share: 0.953_217,
                ..Counts::default()
            }),
            ..thread_on(tid, pid(tid), tid % CPUS, &all)
        };
        let pages: Vec<(u32, u64)> = nodes.iter().map(|node| (node.0, 123_456)).collect();
        let process = |tid: u32| process_on(pid(tid), &format!("worker-{tid}"), &pages, &nodes);
        let snapshot = Snapshot {
            threads: (8..8 + threads).map(thread).collect(),
            processes: (8..8 + threads).step_by(8).map(process).collect(),
            ..empty(&topology)
        };
        let measured = SignalReport {
            signal: Signal::MemorySamples,
            state: SignalState::Measured {
                source: "the bench".to_owned(),
                caveat: None,
            },
        };
        Self {
            topology,
            signals: [measured],
            snapshot,
            began: Vec::new(),
            now_ns: Arc::default(),
            in_step: false,
        }
    }

    /// The same, in step, with every thread on a core that it was given.
    fn in_step(threads: u32) -> Self {
        let mut world = Self::new(threads);
        for thread in &mut world.snapshot.threads {
            thread.assigned = Some(thread.cpu);
        }
        Self {
            in_step: true,
            ..world
        }
    }
}

fn local_access(thread: &Thread, topology: &Topology) -> Sample {
    let home = topology.node_of(thread.cpu).expect("a CPU of the machine");
    sample(thread, 0x7f00_0000, home.0, topology)
}

fn pass(now_ns: &AtomicU64, interval: Duration) -> Progress {
    let ns = u64::try_from(interval.as_nanos()).expect("a short interval");
    now_ns.fetch_add(ns, Ordering::Relaxed);
    Progress::Ran
}

impl Pager for ScriptedPager {
    fn in_step(&self) -> bool {
        true
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        pass(&self.now_ns, interval)
    }

    fn samples(&mut self) -> Result<Vec<Sample>, WorldError> {
        Ok(self.accesses.clone())
    }

    fn apply(&mut self, _: &[PageOrder]) -> Vec<PageOutcome> {
        unreachable!("nothing is remote")
    }
}

impl World for Scripted {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        self.began.push(Instant::now());
        pass(&self.now_ns, interval)
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        self.snapshot.sequence += 1;
        self.snapshot.time_ns = self.now_ns.load(Ordering::Relaxed);
        Ok(self.snapshot.clone())
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let threads = &mut self.snapshot.threads;
        let affinities = orders.affinities.iter().map(|order| {
            let at = threads.binary_search_by_key(&order.thread, |thread| thread.id);
            let thread = &mut threads[at.expect("orders are for threads that are there")];
            thread.affinity = order.cpus.clone();
            thread.assigned = order.core;
            thread.cpu = order.core.unwrap_or(thread.cpu);
            AffinityOutcome {
                thread: order.thread,
                result: AffinityResult::Done,
            }
        });
        Outcome {
            affinities: affinities.collect(),
            pages: Vec::new(),
        }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        let threads = self.snapshot.threads.iter();
        self.in_step.then(|| -> Box<dyn Pager> {
            Box::new(ScriptedPager {
                now_ns: self.now_ns.clone(),
                accesses: threads
                    .map(|thread| local_access(thread, &self.topology))
                    .collect(),
            })
        })
    }
}

/// Wants every thread on the other half of the machine, or nothing.
struct Scattered {
    all: bool,
}

impl Place for Scattered {
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    fn place(&mut self, snapshot: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        let threads = snapshot.threads.iter().filter(|_| self.all);
        let placement = |thread: &Thread| Placement {
            thread: thread.id,
            from: thread.place(),
            to: CpuId((thread.place().0 + CPUS / 2) % CPUS),
            rule: "bench: the other half".into(),
            why: "miss rate 12.4, a devil since 3 intervals; domain 4 has 2 devils on 8 CPUs, \
                  domain 0 has 5"
                .to_owned(),
            instead_of: "domain 2, whose node is full".to_owned(),
        };
        threads.map(placement).collect()
    }
}

/// Wants no page anywhere.
struct Nowhere;

impl Paging for Nowhere {
    fn placed(&mut self, _: &[PlacedThread], _: &Snapshot) -> Vec<PageOrder> {
        Vec::new()
    }

    fn sampled(&mut self, _: &[Sample], _: &Topology, _: &mut Random) -> Vec<PageOrder> {
        Vec::new()
    }

    fn moved(&mut self, _: &[PageOutcome]) {}
}

/// The time that so many intervals take, from the beginning of the first to that of the one after
/// the last.
fn intervals(threads: u32, number: u64, all_move: bool, ledger: Option<&Path>) -> Duration {
    let mut world = Scripted::new(threads);
    let settings = Settings {
        intervals: Some(number + 1),
        limits: Limits {
            moves_per_interval: u32::MAX,
            moves_per_second: 1e9,
            bounce_limit: u32::MAX,
            bounce_window_s: 0.0,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let policy = Policy {
        name: "bench".to_owned(),
        placement: Box::new(Scattered { all: all_move }),
        paging: Box::new(Nowhere),
        new_pages: NewPages::FirstTouch,
    };
    let writer = ledger.map(|path| {
        Writer::create(path, "bench", None, 256 << 20).expect("a directory that can be written")
    });
    let herd = Herd::new(&mut world, policy)
        .settings(settings)
        .ledger(writer);
    let summary = herd.run(&AtomicBool::new(false)).expect("it can run");
    let moves = (number + 1) * u64::from(threads);
    assert_eq!(
        summary.totals.thread_moves,
        if all_move { moves } else { 0 }
    );
    let last = usize::try_from(number).expect("few intervals");
    world.began[last] - world.began[0]
}

/// BRM's interval.
const TICK: Duration = Duration::from_millis(10);

/// Candidates whose penalties vary by the node and by chance, seen every 10 ms.
struct Candidates {
    scripted: Scripted,
    signals: [SignalReport; 2],
    chance: u64,
}

impl Candidates {
    fn new(threads: u32) -> Self {
        let mut scripted = Scripted::new(threads);
        scripted.snapshot.interval_ns = u64::try_from(TICK.as_nanos()).expect("a short interval");
        let signals = [Signal::CpuUse, Signal::UncorePenalty].map(|signal| SignalReport {
            signal,
            state: SignalState::Measured {
                source: "the bench".to_owned(),
                caveat: None,
            },
        });
        Self {
            scripted,
            signals,
            chance: 1,
        }
    }
}

impl World for Candidates {
    fn topology(&self) -> &Arc<Topology> {
        &self.scripted.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        let threads = &mut self.scripted.snapshot.threads;
        for counts in threads.iter_mut().filter_map(|t| t.counts.as_mut()) {
            // Knuth's generator (TAOCP 3.3.4): what matters is that no two intervals are the same.
            self.chance = self
                .chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            counts.uncore_requests = Some(10_000);
            counts.uncore_busy_cycles = Some(300_000 + (self.chance >> 48));
        }
        self.scripted.run_for(interval)
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        self.scripted.observe()
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        self.scripted.apply(orders)
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        None
    }
}

/// The time that so many of BRM's intervals take, as [`intervals`].
fn ticks(threads: u32, number: u64, ledger: Option<&Path>) -> Duration {
    let mut world = Candidates::new(threads);
    let mut of_policy = numaherd_policy::Settings::default();
    of_policy.brm.candidates = CandidatesBy::All;
    let settings = Settings {
        intervals: Some(number + 1),
        ..Settings::default()
    };
    let writer = ledger.map(|path| {
        Writer::create(path, "bench", None, 1 << 40).expect("a directory that can be written")
    });
    let policy = registry::build("brm", &of_policy).expect("a policy");
    let herd = Herd::new(&mut world, policy)
        .settings(settings)
        .ledger(writer);
    let summary = herd.run(&AtomicBool::new(false)).expect("it can run");
    assert_eq!(summary.totals.intervals, number + 1);
    let last = usize::try_from(number).expect("few intervals");
    world.scripted.began[last] - world.scripted.began[0]
}

/// Says what a minute of BRM's intervals takes of it, and what an hour puts in the ledger.
fn shares(threads: u32, ledger: &Path) {
    const MINUTE: u64 = 6_000;
    let took = ticks(threads, MINUTE, Some(ledger));
    let share = took.as_secs_f64() / (TICK.as_secs_f64() * MINUTE as f64);
    let bytes = std::fs::metadata(ledger).expect("it was written").len();
    println!(
        "brm, {threads} threads: {:.2} % of each 10 ms; {:.0} MB of ledger an hour",
        share * 100.0,
        bytes as f64 * 60.0 / 1e6
    );
}

/// Runs an hour of 8 threads, placed as they are, in step.
fn hour(paging: &str) {
    let mut world = Scripted::in_step(8);
    let settings = Settings {
        intervals: Some(3_600),
        ..Settings::default()
    };
    let defaults = numaherd_policy::Settings::default();
    let policy = registry::build(&format!("linux+{paging}"), &defaults).expect("a policy");
    let herd = Herd::new(&mut world, policy).settings(settings);
    let summary = herd.run(&AtomicBool::new(false)).expect("it can run");
    assert_eq!(
        (summary.totals.intervals, summary.totals.planned_pages),
        (3_600, 0)
    );
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger");
    let cases = [("steady", false), ("all move", true)];
    for (threads, (case, all_move)) in THREADS.into_iter().flat_map(|n| cases.map(|c| (n, c))) {
        let mut group =
            criterion.benchmark_group(format!("an interval of {threads} threads, {case}"));
        for (name, ledger) in [
            ("without a ledger", None),
            ("with a ledger", Some(path.as_path())),
        ] {
            group.bench_function(name, |bench| {
                bench.iter_custom(|number| intervals(threads, number, all_move, ledger));
            });
        }
        group.finish();
    }
    for threads in CANDIDATES {
        let name = format!("an interval of brm with {threads} threads");
        let mut group = criterion.benchmark_group(name);
        for (name, ledger) in [
            ("without a ledger", None),
            ("with a ledger", Some(path.as_path())),
        ] {
            group.bench_function(name, |bench| {
                bench.iter_custom(|number| ticks(threads, number, ledger));
            });
        }
        group.finish();
        shares(threads, &path);
    }
    let mut group = criterion.benchmark_group("an hour of 8 threads in step");
    group.sample_size(20);
    for (case, paging) in [("not listening", "stay"), ("listening", "window")] {
        group.bench_function(case, |bench| bench.iter(|| hour(paging)));
    }
    group.finish();
    criterion.final_summary();
}
