//! The ledger of an hour: 200 threads of 25 processes, an interval a second, a handful of moves a minute.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use numaherd_herd::ledger::{Placing, Writer};
use numaherd_herd::{Line, Record};
use numaherd_testing::ledger::start;
use numaherd_topology::{CpuId, CpuSet, Machine, NodeId, Topology};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Counts, NodeState, Outcome, Placement, Plan,
    Process, ProcessId, Residency, Snapshot, Thread, ThreadId,
};

/// Its length.
pub const SECONDS: u64 = 3600;
/// Its threads.
pub const THREADS: u32 = 200;
const OF_A_PROCESS: u32 = 8;
const SECOND_NS: u64 = 1_000_000_000;
const TIMES: usize = 5;

/// Milliseconds.
pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The least time of several, which is the one that was disturbed least.
pub fn least<T>(mut work: impl FnMut() -> T) -> Duration {
    let times = (0..TIMES).map(|_| {
        let began = Instant::now();
        std::hint::black_box(work());
        began.elapsed()
    });
    times.min().expect("it was done at least once")
}

/// Where a thread is in a second: it changes node once every five minutes or so.
fn cpu_of(number: u32, second: u64, cpus: u32) -> CpuId {
    let moved = (second + u64::from(number) * 7) / 300;
    CpuId((number + moved as u32 * cpus / 2) % cpus)
}

fn thread_id(number: u32) -> ThreadId {
    ThreadId {
        tid: 4000 + number,
        born: 123_456,
    }
}

fn process_id(number: u32) -> ProcessId {
    ProcessId {
        pid: 4000 + number / OF_A_PROCESS * OF_A_PROCESS,
        born: 123_456,
    }
}

/// Writes the ledger of the hour.
pub fn write(path: &Path) {
    let machine = Machine::preset("xeon-e5620-2s").expect("a preset");
    let topology = machine.topology().expect("a machine");
    let begun = Some(1_700_000_000_000);
    let mut writer = Writer::create(path, "numaherd", begun, 1 << 40).expect("a ledger");
    let mut sequence = 0;
    let mut put = |time_ns, record| {
        let line = Line {
            sequence,
            time_ns,
            record,
        };
        writer.write(line).expect("room on the disk");
        sequence += 1;
    };
    put(0, Record::Start(start(&topology, "dino")));
    for second in 0..SECONDS {
        let time_ns = (second + 1) * SECOND_NS;
        put(time_ns, Record::Snapshot(snapshot(&topology, second)));
        let (placing, outcome) = moves(&topology, second);
        put(time_ns, Record::Placing(placing));
        if !outcome.affinities.is_empty() {
            put(time_ns, Record::Outcome(outcome));
        }
    }
    writer.flush().expect("room on the disk");
}

fn snapshot(topology: &Topology, second: u64) -> Snapshot {
    let online = topology.online_cpus();
    let cpus = Arc::new(online.clone());
    let nodes = Arc::new(topology.memory_nodes());
    let thread = |number: u32| {
        let wave = second * 7919 + u64::from(number) * 104_729;
        let lines = 1_000_000 + wave % 400_000;
        Thread {
            id: thread_id(number),
            process: process_id(number),
            name: format!("worker-{number}"),
            cpu: cpu_of(number, second, cpus.len() as u32),
            assigned: Some(cpu_of(number, second, cpus.len() as u32)),
            affinity: cpus.clone(),
            cpuset: cpus.clone(),
            cpu_share: 0.079_432_1,
            wait_share: 0.0,
            tag: None,
            counts: Some(Counts {
                instructions: 120_000_000 + wave % 9_000_000,
                cycles: Some(220_000_000 + wave % 7_000_000),
                lines,
                local: Some(lines / 100 * (60 + wave % 40)),
                remote: Some(lines - lines / 100 * (60 + wave % 40)),
                uncore_busy_cycles: None,
                uncore_requests: None,
                counted_share: 0.953_217,
            }),
            unmanaged: None,
        }
    };
    let process = |number: u32| Process {
        id: process_id(number * OF_A_PROCESS),
        name: format!("worker-{number}"),
        allowed_nodes: nodes.clone(),
        residency: Some(Residency {
            pages: vec![(NodeId(0), 10_000 + second), (NodeId(1), 20_000)],
            kinds: None,
        }),
        sharing: None,
        machine: None,
        group: None,
        memory_policy: None,
        extents: Arc::default(),
    };
    let node = |id| NodeState {
        id,
        total_bytes: 1 << 34,
        free_bytes: 1 << 33,
        old_file_bytes: 0,
        busy_cpus: None,
    };
    Snapshot {
        sequence: second,
        time_ns: (second + 1) * SECOND_NS,
        interval_ns: SECOND_NS,
        page_bytes: 4096,
        online,
        threads: (0..THREADS).map(thread).collect(),
        processes: (0..THREADS / OF_A_PROCESS).map(process).collect(),
        nodes: nodes.iter().map(node).collect(),
        gaps: Vec::new(),
    }
}

/// The threads that are elsewhere in the next second have to go there now.
fn moves(topology: &Topology, second: u64) -> (Placing, Outcome) {
    let cpus = topology.online_cpus().len() as u32;
    let moving = (0..THREADS).filter_map(|number| {
        let (from, to) = (
            cpu_of(number, second, cpus),
            cpu_of(number, second + 1, cpus),
        );
        (from != to).then_some((thread_id(number), from, to))
    });
    let moving: Vec<_> = moving.collect();
    let placements = moving.iter().map(|&(thread, from, to)| Placement {
        thread,
        from,
        to,
        rule: "dino: fill slots".into(),
        why: "devil (41.0 lines per 1000 instructions)".to_owned(),
        instead_of: String::new(),
    });
    let orders = moving.iter().map(|&(thread, _, to)| AffinityOrder {
        thread,
        core: Some(to),
        cpus: Arc::new(std::iter::once(to).collect::<CpuSet>()),
    });
    let placing = Placing {
        snapshot: second,
        plan: Plan {
            placements: placements.collect(),
            ..Plan::default()
        },
        affinities: orders.collect(),
        carried_out: true,
        ..Placing::default()
    };
    let affinities = moving.iter().map(|&(thread, ..)| AffinityOutcome {
        thread,
        result: AffinityResult::Done,
    });
    let outcome = Outcome {
        affinities: affinities.collect(),
        pages: Vec::new(),
    };
    (placing, outcome)
}
