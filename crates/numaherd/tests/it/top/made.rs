//! A short run, made by hand: a thread that goes to another node in the third second.

use std::path::Path;
use std::sync::Arc;

use numaherd_herd::ledger::{Placing, Writer};
use numaherd_herd::{Ending, Line, Record, Summary};
use numaherd_testing::MadeLedger;
use numaherd_testing::ledger::start;
use numaherd_topology::{CpuId, Machine, NodeId, Topology};
use numaherd_world::{
    AffinityOrder, Counts, NodeState, Placement, Plan, Process, ProcessId, Residency, Snapshot,
    Thread, ThreadId,
};

const SECOND: u64 = 1_000_000_000;
const ID: ThreadId = ThreadId { tid: 101, born: 7 };
const PROCESS: ProcessId = ProcessId { pid: 100, born: 7 };

/// The run.
pub struct Run {
    topology: Topology,
}

impl Run {
    pub fn new() -> Self {
        let machine = Machine::preset("lab-4x2").unwrap();
        Self {
            topology: machine.topology().unwrap(),
        }
    }

    /// Its lines when it ends after so many seconds.
    pub fn lines(&self, seconds: u64) -> Vec<Line> {
        let mut ledger = MadeLedger::begun(start(&self.topology, "dino"));
        for second in 1..=seconds {
            ledger.saw(self.snapshot(second));
            if second == 3 {
                ledger.obeyed(placing());
            }
        }
        ledger.add(Record::End(summary(seconds)));
        ledger.lines
    }

    fn snapshot(&self, second: u64) -> Snapshot {
        let cpus = Arc::new(self.topology.online_cpus());
        let nodes = self.topology.memory_nodes();
        let thread = Thread {
            id: ID,
            process: PROCESS,
            name: "chase".to_owned(),
            cpu: CpuId(if second > 3 { 4 } else { 0 }),
            assigned: (second > 3).then_some(CpuId(4)),
            affinity: cpus.clone(),
            cpuset: cpus.clone(),
            cpu_share: 0.97,
            wait_share: 0.0,
            tag: None,
            counts: Some(Counts {
                instructions: 1_000_000_000,
                lines: 41_000_000,
                local: Some(40_000_000),
                remote: Some(1_000_000),
                counted_share: 1.0,
                ..Counts::default()
            }),
            unmanaged: None,
        };
        let process = Process {
            id: PROCESS,
            name: "chase".to_owned(),
            group: None,
            allowed_nodes: Arc::new(nodes.clone()),
            residency: Some(Residency {
                pages: vec![(NodeId(0), 10_000), (NodeId(2), 2_000)],
                kinds: None,
            }),
            sharing: None,
            machine: None,
            memory_policy: None,
            extents: Arc::default(),
        };
        let node = |id| NodeState {
            id,
            total_bytes: 1 << 30,
            free_bytes: 1 << 29,
            old_file_bytes: 0,
            busy_cpus: None,
        };
        Snapshot {
            sequence: second - 1,
            time_ns: second * SECOND,
            interval_ns: SECOND,
            page_bytes: 4096,
            online: (*cpus).clone(),
            threads: vec![thread],
            processes: vec![process],
            nodes: nodes.iter().map(node).collect(),
            gaps: Vec::new(),
        }
    }
}

fn placing() -> Placing {
    Placing {
        snapshot: 2,
        plan: Plan {
            placements: vec![Placement {
                thread: ID,
                from: CpuId(0),
                to: CpuId(4),
                rule: "dino: fill slots".into(),
                why: "devil (41.0 lines per 1000 instructions)".to_owned(),
                instead_of: "CPU 0: the layout wants a turtle there".to_owned(),
            }],
            ..Plan::default()
        },
        affinities: vec![AffinityOrder {
            thread: ID,
            core: Some(CpuId(4)),
            cpus: Arc::new("4-5".parse().unwrap()),
        }],
        ..Placing::default()
    }
}

fn summary(seconds: u64) -> Summary {
    let fields = serde_json::json!({
        "policy": "dino",
        "dry_run": false,
        "ending": Ending::World,
        "intervals": seconds,
        "duration_ns": seconds * SECOND,
        "thread_moves": u64::from(seconds >= 3),
        "undone": 0,
        "planned_thread_moves": u64::from(seconds >= 3),
        "planned_pages": 0,
        "pages_moved": 0,
        "pages_failed": {},
        "instructions": 0,
        "lines": 0,
        "local": 0,
        "remote": 0,
        "refusals": {},
        "restored": 0,
        "notices": [],
    });
    serde_json::from_value::<Summary>(fields).unwrap()
}

/// A ledger that is begun.
pub fn writer(path: &Path) -> Writer {
    Writer::create(path, "numaherd", None, 1 << 30).unwrap()
}

/// A whole ledger.
pub fn write(path: &Path, lines: &[Line]) {
    let mut writer = writer(path);
    for line in lines {
        writer.write(line.clone()).unwrap();
    }
    writer.flush().unwrap();
}
