//! scratch
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use numaherd_herd::ledger::{Reader, Start, Writer};
use numaherd_herd::{Line, Record, Settings};
use numaherd_topology::{CpuId, Machine, NodeId};
use numaherd_world::*;

fn hour(path: &Path) {
    let mut w = Writer::create(path, "numaherd 0.1.0", Some(1_700_000_000_000), 1 << 40).unwrap();
    let topology = Machine::preset("xeon-e5620-2s")
        .unwrap()
        .topology()
        .unwrap();
    let cpus = Arc::new(topology.online_cpus());
    let nodes = Arc::new(topology.memory_nodes());
    let mut seq = 0;
    let mut put = |time_ns, record, w: &mut Writer| {
        w.write(&Line {
            sequence: seq,
            time_ns,
            record,
        })
        .unwrap();
        seq += 1;
    };
    put(
        0,
        Record::Start(Start {
            topology,
            signals: vec![],
            settings: Settings::default(),
            policy: "dino".into(),
            seed: 0,
            pager: true,
        }),
        &mut w,
    );
    for s in 0..3600u64 {
        let t = (s + 1) * 1_000_000_000;
        let threads = (0..200u32)
            .map(|n| Thread {
                id: ThreadId {
                    tid: 4000 + n,
                    born: 123456,
                },
                process: ProcessId {
                    pid: 4000 + n / 8 * 8,
                    born: 123456,
                },
                name: format!("worker-{n}"),
                cpu: CpuId((n + s as u32 / 60) % 16),
                assigned: Some(CpuId(n % 16)),
                affinity: cpus.clone(),
                cpuset: cpus.clone(),
                cpu_share: 0.08 + f64::from(n) * 1e-5,
                wait_share: 0.0,
                tag: None,
                counts: Some(Counts {
                    instructions: 123_456_789 + s * 1000 + u64::from(n),
                    cycles: Some(223_456_789 + s),
                    lines: 1_234_567 + s,
                    local: Some(1_000_000),
                    remote: Some(234_567 + s),
                    uncore_busy_cycles: None,
                    uncore_requests: None,
                    counted_share: 0.953217,
                }),
                hands_off: None,
            })
            .collect();
        let processes = (0..25u32)
            .map(|n| Process {
                id: ProcessId {
                    pid: 4000 + n * 8,
                    born: 123456,
                },
                name: format!("worker-{n}"),
                allowed_nodes: nodes.clone(),
                residency: Some(Residency {
                    pages: vec![(NodeId(0), 10000 + s), (NodeId(1), 20000)],
                }),
                sharing: None,
                machine: None,
            })
            .collect();
        put(
            t,
            Record::Snapshot(Snapshot {
                sequence: s,
                time_ns: t,
                interval_ns: 1_000_000_000,
                page_bytes: 4096,
                online: (*cpus).clone(),
                threads,
                processes,
                nodes: vec![NodeState {
                    id: NodeId(0),
                    total_bytes: 1 << 34,
                    free_bytes: 1 << 33,
                }],
                gaps: vec![],
            }),
            &mut w,
        );
    }
    w.flush().unwrap();
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    hour(&path);
    println!("{} MB", std::fs::metadata(&path).unwrap().len() / 1_000_000);
    for _ in 0..3 {
        let began = Instant::now();
        let n = Reader::open(&path).unwrap().filter(|l| l.is_ok()).count();
        println!("{n} lines in {:?}", began.elapsed());
    }
}
