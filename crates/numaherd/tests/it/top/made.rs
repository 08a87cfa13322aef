//! A short run, made by hand: a thread that goes to another node in the third second.

use std::path::Path;
use std::sync::Arc;

use numaherd_herd::ledger::{Placing, Writer};
use numaherd_herd::{Ending, Line, Record, Summary};
use numaherd_testing::MadeLedger;
use numaherd_testing::ledger::start;
use numaherd_testing::seen::{self, SECOND_NS, tid};
use numaherd_topology::{CpuId, Machine, Topology};
use numaherd_world::{AffinityOrder, Counts, Placement, Plan, Snapshot, Thread};

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
        let pages = [(0, 10_000), (2, 2_000)];
        let thread = Thread {
            name: "chase".to_owned(),
            assigned: (second > 3).then_some(CpuId(4)),
            cpu_share: 0.97,
            counts: Some(Counts {
                instructions: 1_000_000_000,
                lines: 41_000_000,
                local: Some(40_000_000),
                remote: Some(1_000_000),
                counted_share: 1.0,
                ..Counts::default()
            }),
            ..seen::thread(101, 100, if second > 3 { 4 } else { 0 }, &self.topology)
        };
        Snapshot {
            sequence: second - 1,
            time_ns: second * SECOND_NS,
            threads: vec![thread],
            processes: vec![seen::process(100, "chase", &pages, &self.topology)],
            ..seen::empty(&self.topology)
        }
    }
}

fn placing() -> Placing {
    Placing {
        snapshot: 2,
        plan: Plan {
            placements: vec![Placement {
                thread: tid(101),
                from: CpuId(0),
                to: CpuId(4),
                rule: "dino: fill slots".into(),
                why: "devil (41.0 lines per 1000 instructions)".to_owned(),
                instead_of: "CPU 0: the layout wants a turtle there".to_owned(),
            }],
            ..Plan::default()
        },
        affinities: vec![AffinityOrder {
            thread: tid(101),
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
        "duration_ns": seconds * SECOND_NS,
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
