//! The ledger of an hour: 200 threads of 25 processes, an interval a second, a handful of moves a minute.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use numaherd_herd::ledger::{Placing, Writer};
use numaherd_herd::{Line, Record};
use numaherd_testing::ledger::start;
use numaherd_testing::seen::{SECOND_NS, empty, process_on, thread_on, tid};
use numaherd_topology::{CpuId, CpuSet, Machine, Topology};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Counts, Outcome, Placement, Plan, Snapshot,
    Thread,
};

/// Its length.
pub const SECONDS: u64 = 3600;
/// Its threads.
pub const THREADS: u32 = 200;
const OF_A_PROCESS: u32 = 8;
/// The lowest number of a thread.
const FIRST: u32 = 4000;
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
    let cpus = Arc::new(topology.online_cpus());
    let nodes = Arc::new(topology.memory_nodes());
    let thread = |number: u32| {
        let wave = second * 7919 + u64::from(number) * 104_729;
        let lines = 1_000_000 + wave % 400_000;
        let near = lines / 100 * (60 + wave % 40);
        let cpu = cpu_of(number, second, cpus.len() as u32);
        let process = FIRST + number / OF_A_PROCESS * OF_A_PROCESS;
        Thread {
            name: format!("worker-{number}"),
            assigned: Some(cpu),
            cpu_share: 0.079_432_1,
            counts: Some(Counts {
                instructions: 120_000_000 + wave % 9_000_000,
                cycles: Some(220_000_000 + wave % 7_000_000),
                lines,
                local: Some(near),
                remote: Some(lines - near),
                counted_share: 0.953_217,
                ..Counts::default()
            }),
            ..thread_on(FIRST + number, process, cpu.0, &cpus)
        }
    };
    let process = |number: u32| {
        let pages = [(0, 10_000 + second), (1, 20_000)];
        let id = FIRST + number * OF_A_PROCESS;
        process_on(id, &format!("worker-{number}"), &pages, &nodes)
    };
    Snapshot {
        sequence: second,
        time_ns: (second + 1) * SECOND_NS,
        threads: (0..THREADS).map(thread).collect(),
        processes: (0..THREADS / OF_A_PROCESS).map(process).collect(),
        ..empty(topology)
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
        (from != to).then_some((tid(FIRST + number), from, to))
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
