//! Machines and snapshots made up for tests and benchmarks.

use std::sync::Arc;

use numaherd_topology::{
    Cache, CacheKind, CpuId, CpuPart, CpuSet, Node, NodeId, Parts, Timing, Topology,
};
use numaherd_world::{
    Counts, MemorySource, Placement, Process, ProcessId, Residency, Sample, Snapshot, Thread,
    ThreadId,
};

/// A machine's shape. CPUs are numbered domain by domain, siblings next to each other.
#[derive(Clone, Debug)]
pub struct Shape {
    /// For every node, the cores of each of its domains.
    pub nodes: Vec<Vec<u32>>,
    /// CPUs of each core.
    pub siblings: u32,
    /// CPUs that are offline.
    pub offline: Vec<u32>,
}

impl Shape {
    /// As many nodes of one domain each, with as many cores each.
    pub fn uniform(domains: usize, cores: u32) -> Self {
        Self {
            nodes: vec![vec![cores]; domains],
            siblings: 1,
            offline: Vec::new(),
        }
    }

    fn topology(&self) -> Topology {
        let mut parts = Parts {
            name: "test".into(),
            nodes: Vec::new(),
            cpus: Vec::new(),
            caches: Vec::new(),
            distances: Vec::new(),
            timing: Timing::default(),
        };
        let mut next = 0u32;
        for (node, domains) in (0..).zip(&self.nodes) {
            let mut of_node = CpuSet::new();
            for &cores in domains {
                let mut of_domain = CpuSet::new();
                for _ in 0..cores {
                    let siblings: CpuSet = (next..next + self.siblings).map(CpuId).collect();
                    next += self.siblings;
                    for cpu in siblings.iter() {
                        parts.cpus.push(CpuPart {
                            id: cpu,
                            online: !self.offline.contains(&cpu.0),
                            package: None,
                            siblings: siblings.clone(),
                            capacity: None,
                        });
                    }
                    of_domain.extend_from(&siblings);
                }
                of_node.extend_from(&of_domain);
                parts.caches.push(Cache {
                    level: 3,
                    kind: CacheKind::Unified,
                    size_bytes: Some(2 << 20),
                    line_bytes: Some(64),
                    ways: Some(32),
                    cpus: of_domain,
                });
            }
            parts.nodes.push(Node {
                id: NodeId(node),
                online: true,
                cpus: of_node,
                memory_bytes: 1 << 30,
            });
        }
        Topology::new(parts).expect("a shape is a machine")
    }
}

/// A machine and what was seen of it.
#[derive(Clone, Debug)]
pub struct Scene {
    pub topology: Topology,
    pub snapshot: Snapshot,
    all: Arc<CpuSet>,
}

#[allow(dead_code)] // The benchmark uses a part of it.
impl Scene {
    pub fn uniform(domains: usize, cores: u32) -> Self {
        Self::new(&Shape::uniform(domains, cores))
    }

    pub fn new(shape: &Shape) -> Self {
        let topology = shape.topology();
        Self {
            snapshot: Snapshot {
                sequence: 0,
                time_ns: 0,
                interval_ns: 1_000_000_000,
                page_bytes: 4096,
                online: topology.online_cpus(),
                threads: Vec::new(),
                processes: Vec::new(),
                nodes: Vec::new(),
                gaps: Vec::new(),
            },
            all: Arc::new(topology.cpus().iter().map(|cpu| cpu.id).collect()),
            topology,
        }
    }

    /// Adds a thread, numbered on from 0, of a process and of a miss rate, on a CPU. It is busy
    /// all the time, allowed everywhere, and has not been given a core.
    pub fn thread(&mut self, process: u32, miss_rate: f64, cpu: u32) -> &mut Thread {
        let tid = u32::try_from(self.snapshot.threads.len()).expect("few threads");
        self.snapshot.threads.push(Thread {
            id: ThreadId { tid, born: 1 },
            process: Self::process(process),
            name: format!("t{tid}"),
            cpu: CpuId(cpu),
            assigned: None,
            affinity: Arc::clone(&self.all),
            cpuset: Arc::clone(&self.all),
            cpu_share: 1.0,
            wait_share: 0.0,
            tag: None,
            counts: None,
            hands_off: None,
        });
        self.set_miss_rate(tid as usize, miss_rate);
        self.snapshot.threads.last_mut().expect("pushed above")
    }

    /// The process of a number.
    pub fn process(number: u32) -> ProcessId {
        ProcessId {
            pid: number,
            born: 1,
        }
    }

    /// Says that a process has that name and all its pages on a node.
    pub fn home(&mut self, process: u32, name: &str, node: u32) {
        let process = Process {
            id: Self::process(process),
            name: name.into(),
            allowed_nodes: Arc::new(self.topology.memory_nodes()),
            sharing: None,
            machine: None,
            group: None,
            residency: Some(Residency {
                pages: vec![(NodeId(node), 1000)],
            }),
        };
        let processes = &mut self.snapshot.processes;
        match processes.binary_search_by_key(&process.id, |process| process.id) {
            Ok(at) => processes[at] = process,
            Err(at) => processes.insert(at, process),
        }
    }

    /// An access of a thread to a page that is on a node, by a CPU.
    pub fn access(&self, tid: u32, cpu: u32, page: u64, home: u32, time_ns: u64) -> Sample {
        let thread = self.snapshot.thread(ThreadId { tid, born: 1 });
        let local = self.topology.node_of(CpuId(cpu)) == Some(NodeId(home));
        Sample {
            time_ns,
            thread: ThreadId { tid, born: 1 },
            process: thread.map_or(Self::process(1), |thread| thread.process),
            address: page * self.snapshot.page_bytes + 8,
            cpu: CpuId(cpu),
            latency: None,
            source: if local {
                MemorySource::LocalMemory
            } else {
                MemorySource::RemoteMemory
            },
            node: Some(NodeId(home)),
            store: false,
        }
    }

    /// Sets a thread's miss rate, in lines per 1000 instructions.
    pub fn set_miss_rate(&mut self, thread: usize, miss_rate: f64) {
        self.snapshot.threads[thread].counts = Some(Counts {
            instructions: 1_000_000_000,
            lines: (miss_rate * 1e6) as u64,
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share: 1.0,
            ..Counts::default()
        });
    }

    /// Does what a plan asks for.
    pub fn carry_out(&mut self, plan: &[Placement]) {
        for placement in plan {
            let at = self
                .snapshot
                .threads
                .binary_search_by_key(&placement.thread, |thread| thread.id)
                .expect("a plan names threads of the snapshot");
            self.snapshot.threads[at].assigned = Some(placement.to);
            self.snapshot.threads[at].cpu = placement.to;
        }
    }

    /// The threads on each CPU, for CPUs that have any: `0: 1 2` for threads 1 and 2 on CPU 0.
    pub fn places(&self) -> Vec<u32> {
        self.snapshot.threads.iter().map(|t| t.place().0).collect()
    }
}
