//! Runs on machines of any size: threads of processes of eight, moving now and then.

use std::sync::Arc;

use numaherd_herd::ledger::{PagingTick, Placing};
use numaherd_herd::{Guard, Line, Record};
use numaherd_testing::MadeLedger;
use numaherd_testing::ledger::start;
use numaherd_topology::{CpuId, NodeId, Topology, hwloc};
use numaherd_world::{
    AffinityOrder, NodeState, Plan, Process, Residency, Snapshot, Thread, Unmanaged,
};

use crate::made::{self, SECOND};

/// Threads of a process.
const CREW: u32 = 8;

/// The lines of a run of so many seconds.
pub fn crowd(nodes: u32, cpus_per_node: u32, threads: u32, seconds: u64) -> Vec<Line> {
    let machine =
        format!("pack:{nodes} [numa(memory=4GiB)] l3:1(size=16MiB) core:{cpus_per_node} pu:1");
    let topology = hwloc::synthetic(&machine).expect("a machine");
    let mut ledger = MadeLedger::begun(start(&topology, "dino"));
    let cpus = nodes * cpus_per_node;
    for second in 0..seconds {
        ledger.saw(snapshot(&topology, cpus, threads, second));
        let moving = (second as u32 * 13) % threads.max(1);
        if threads > 0 && second % 3 == 2 {
            ledger.obeyed(moved(moving, cpus, second));
            let order = made::window(tid(moving), pid(moving), 0x1000, 256, moving % nodes);
            ledger.time_ns += 10_000_000;
            ledger.add(Record::Paging(PagingTick {
                outcomes: vec![made::page_outcome(&order, 250)],
                plan: vec![order],
                carried_out: true,
                ..PagingTick::default()
            }));
        }
    }
    ledger.lines
}

fn tid(number: u32) -> u32 {
    1_000 + number
}

fn pid(number: u32) -> u32 {
    tid(number / CREW * CREW)
}

fn snapshot(topology: &Topology, cpus: u32, threads: u32, second: u64) -> Snapshot {
    let online = Arc::new(topology.online_cpus());
    let one = |number: u32| {
        let cpu = (number * 7 + second as u32 / 9) % cpus;
        let name = format!("worker-{number}");
        let rate = f64::from(number % 40) * 4.0;
        Thread {
            cpu_share: f64::from(number % 11) / 10.0,
            cpuset: online.clone(),
            affinity: online.clone(),
            unmanaged: (number % 17 == 16).then_some(Unmanaged::KernelThread),
            counts: made::thread(1, 1, "", 0, 500, rate, 0.7)
                .counts
                .filter(|_| number % 5 != 4),
            ..made::thread(tid(number), pid(number), &name, cpu, 500, rate, 0.7)
        }
    };
    let nodes = topology.nodes();
    let crew = |number: u32| {
        let home = number / CREW % nodes.len() as u32;
        let pages = [(NodeId(home), 30_000 + second), (NodeId(0), 10_000)];
        let mut pages = pages.to_vec();
        pages.sort_unstable();
        pages.dedup_by_key(|&mut (node, _)| node);
        Process {
            residency: (number % 3 != 2).then_some(Residency { pages, kinds: None }),
            ..made::process(pid(number), &format!("crew-{}", number / CREW), &[])
        }
    };
    let node = |node: &numaherd_topology::Node| NodeState {
        id: node.id,
        total_bytes: node.memory_bytes,
        free_bytes: node.memory_bytes / (u64::from(node.id.0) + 2),
        old_file_bytes: 0,
        busy_cpus: None,
    };
    Snapshot {
        sequence: second,
        time_ns: (second + 1) * SECOND,
        interval_ns: SECOND,
        page_bytes: 4096,
        online: topology.online_cpus(),
        threads: (0..threads).map(one).collect(),
        processes: (0..threads).step_by(CREW as usize).map(crew).collect(),
        nodes: nodes.iter().map(node).collect(),
        gaps: Vec::new(),
    }
}

fn moved(number: u32, cpus: u32, second: u64) -> Placing {
    let from = (number * 7 + second as u32 / 9) % cpus;
    let to = (from + cpus / 2 + 1) % cpus;
    let why = "devil (41.0 lines per 1000 instructions)";
    let wish = made::placement(
        tid(number),
        from,
        to,
        "dino: fill slots",
        why,
        "the CPU beside",
    );
    let refused = made::placement(tid(0), 0, 1, "dino: fill slots", why, "");
    Placing {
        snapshot: second,
        plan: Plan {
            placements: vec![wish, refused],
            ..Plan::default()
        },
        affinities: vec![AffinityOrder {
            thread: made::thread_id(tid(number)),
            core: Some(CpuId(to)),
            cpus: Arc::new(std::iter::once(CpuId(to)).collect()),
        }],
        refusals: vec![made::refusal(Some(1), tid(0), Guard::Rate, "too many")],
        ..Placing::default()
    }
}
