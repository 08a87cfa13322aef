//! What one interval of the loop costs, beside what the policy takes to decide and the machine to
//! obey: 8 and 1,000 threads on 64 CPUs of 8 nodes, with and without a ledger.
//!
//! Two cases: *steady*, where nothing is wanted, as it is most of the time; and *all move*, where
//! every thread is wanted on another node and goes there. The world takes snapshots from memory and
//! does as it is told, so that what is measured is the loop, the governor and the ledger.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use criterion::Criterion;
use numaherd_herd::ledger::Writer;
use numaherd_herd::{Herd, Limits, Settings};
use numaherd_policy::{Paging, Place, Policy, Random, Settled};
use numaherd_topology::{CpuId, NodeSet, Topology, hwloc};
use numaherd_world::{
    AffinityOutcome, AffinityResult, Counts, NodeState, Orders, Outcome, PageOrder, PageOutcome,
    Pager, Placement, Process, ProcessId, Progress, Residency, Sample, Signal, SignalReport,
    Snapshot, Thread, ThreadId, World, WorldError,
};

/// A modelled experiment, and a large machine.
const THREADS: [u32; 2] = [8, 1_000];
const CPUS: u32 = 64;
const MACHINE: &str = "pack:8 [numa(memory=4GiB)] l3:1(size=16MiB) core:8 pu:1";

/// A machine in memory, which notes when its intervals began.
struct Scripted {
    topology: Arc<Topology>,
    snapshot: Snapshot,
    began: Vec<Instant>,
}

impl Scripted {
    fn new(threads: u32) -> Self {
        let topology = Arc::new(hwloc::synthetic(MACHINE).expect("a machine"));
        let all = Arc::new(topology.online_cpus());
        let nodes: Arc<NodeSet> = Arc::new(topology.memory_nodes());
        let pid = |tid: u32| tid - tid % 8;
        let thread = |tid: u32| Thread {
            id: ThreadId { tid, born: 7 },
            process: ProcessId {
                pid: pid(tid),
                born: 7,
            },
            name: format!("worker-{tid}"),
            cpu: CpuId(tid % CPUS),
            assigned: None,
            affinity: all.clone(),
            cpuset: all.clone(),
            cpu_share: 0.064,
            counts: Some(Counts {
                instructions: 123_456_789 + u64::from(tid),
                cycles: Some(234_567_891),
                lines: 1_234_567,
                local: Some(734_567),
                remote: Some(500_000),
                counted_share: 0.953_217,
            }),
            hands_off: None,
        };
        let process = |tid: u32| Process {
            id: ProcessId {
                pid: pid(tid),
                born: 7,
            },
            name: format!("worker-{tid}"),
            allowed_nodes: nodes.clone(),
            residency: Some(Residency {
                pages: nodes.iter().map(|node| (node, 123_456)).collect(),
            }),
        };
        let node = |node: &numaherd_topology::Node| NodeState {
            id: node.id,
            total_bytes: node.memory_bytes,
            free_bytes: node.memory_bytes / 2,
        };
        let snapshot = Snapshot {
            sequence: 0,
            time_ns: 0,
            interval_ns: 1_000_000_000,
            page_bytes: 4096,
            online: topology.online_cpus(),
            threads: (8..8 + threads).map(thread).collect(),
            processes: (8..8 + threads).step_by(8).map(process).collect(),
            nodes: topology.nodes().iter().map(node).collect(),
            gaps: Vec::new(),
        };
        Self {
            topology,
            snapshot,
            began: Vec::new(),
        }
    }
}

impl World for Scripted {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &[]
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        self.began.push(Instant::now());
        self.snapshot.sequence += 1;
        self.snapshot.time_ns += u64::try_from(interval.as_nanos()).expect("a short interval");
        Progress::Ran
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
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
        None
    }
}

/// Wants every thread on the other half of the machine, or nothing.
struct Scattered {
    all: bool,
}

impl Place for Scattered {
    fn needs(&self) -> &[Signal] {
        &[]
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
    fn needs(&self) -> &[Signal] {
        &[]
    }

    fn settled(&mut self, _: &[Settled], _: &Snapshot) -> Vec<PageOrder> {
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
    };
    let writer = ledger.map(|path| {
        Writer::create(path, "bench", None, 256 << 20).expect("a directory that can be written")
    });
    let herd = Herd::new(&mut world, policy, settings, writer, None);
    let summary = herd.run(&AtomicBool::new(false)).expect("it can run");
    let moves = (number + 1) * u64::from(threads);
    assert_eq!(summary.thread_moves, if all_move { moves } else { 0 });
    let last = usize::try_from(number).expect("few intervals");
    world.began[last] - world.began[0]
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
    criterion.final_summary();
}
