//! Observations of a world: threads, processes, snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, NodeId, NodeSet, Topology};
use numaherd_world::{
    Agent, Counts, NodeState, Process, ProcessId, Residency, Snapshot, Thread, ThreadId,
    VirtualCpu, VirtualMachine,
};

/// Nanoseconds of a second.
pub const SECOND_NS: u64 = 1_000_000_000;
/// Bytes of a base page.
pub const PAGE_BYTES: u64 = 4096;
/// Start time of every thread and process, in clock ticks.
const BORN: u64 = 7;

/// The thread with this number.
pub fn tid(number: u32) -> ThreadId {
    ThreadId {
        tid: number,
        born: BORN,
    }
}

/// The process with this number.
pub fn pid(number: u32) -> ProcessId {
    ProcessId {
        pid: number,
        born: BORN,
    }
}

/// CPUs from a list as the kernel writes it: `0-3,8`.
pub fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list of CPUs")
}

/// Nodes from a list as the kernel writes it.
pub fn nodes(list: &str) -> NodeSet {
    list.parse().expect("a list of nodes")
}

/// A busy thread of process `process` on `cpu`, free to run anywhere on the machine; 1 line fetched
/// per 1000 instructions, three quarters of them from its own node.
pub fn thread(number: u32, process: u32, cpu: u32, topology: &Topology) -> Thread {
    let all: CpuSet = topology.cpus().iter().map(|cpu| cpu.id).collect();
    thread_on(number, process, cpu, &Arc::new(all))
}

/// Like [`thread`], but free to run only on `cpus`.
pub fn thread_on(number: u32, process: u32, cpu: u32, cpus: &Arc<CpuSet>) -> Thread {
    Thread {
        id: tid(number),
        process: pid(process),
        name: format!("t{number}"),
        cpu: CpuId(cpu),
        assigned: None,
        affinity: cpus.clone(),
        cpuset: cpus.clone(),
        cpu_share: 1.0,
        wait_share: 0.0,
        tag: None,
        counts: Some(counts(1_000_000_000, 1.0, 0.75)),
        unmanaged: None,
    }
}

/// Counts of `instructions` instructions at a miss rate (lines per 1000 instructions). The share
/// `local` of the lines comes from the thread's own node.
pub fn counts(instructions: u64, miss_rate: f64, local: f64) -> Counts {
    let lines = (instructions as f64 / 1e3 * miss_rate) as u64;
    let near = (lines as f64 * local) as u64;
    Counts {
        instructions,
        lines,
        local: Some(near),
        remote: Some(lines - near),
        counted_share: 1.0,
        ..Counts::default()
    }
}

/// A process with pages on nodes: pairs of a node and a number of pages. It may have memory on every node.
pub fn process(number: u32, name: &str, pages: &[(u32, u64)], topology: &Topology) -> Process {
    process_on(number, name, pages, &Arc::new(topology.memory_nodes()))
}

/// Like [`process`], but with memory allowed only on `nodes`.
pub fn process_on(number: u32, name: &str, pages: &[(u32, u64)], nodes: &Arc<NodeSet>) -> Process {
    Process {
        id: pid(number),
        name: name.to_owned(),
        allowed_nodes: nodes.clone(),
        sharing: None,
        machine: None,
        group: None,
        residency: Some(Residency {
            pages: pages.iter().map(|&(node, n)| (NodeId(node), n)).collect(),
            kinds: None,
        }),
        memory_policy: None,
        extents: Arc::default(),
    }
}

/// A snapshot of these threads at `seconds`, over one second. A process has its first thread's
/// name, and 4096 pages on node 0.
pub fn snapshot(topology: &Topology, seconds: f64, threads: &[Thread]) -> Snapshot {
    let mut threads = threads.to_vec();
    threads.sort_by_key(|thread| thread.id);
    let nodes = Arc::new(topology.memory_nodes());
    let mut processes: BTreeMap<ProcessId, Process> = BTreeMap::new();
    for thread in &threads {
        processes.entry(thread.process).or_insert_with(|| Process {
            id: thread.process,
            ..process_on(0, &thread.name, &[(0, 4096)], &nodes)
        });
    }
    Snapshot {
        time_ns: (seconds * 1e9) as u64,
        threads,
        processes: processes.into_values().collect(),
        ..empty(topology)
    }
}

/// A snapshot of an idle machine, over the second that ends at time 0.
pub fn empty(topology: &Topology) -> Snapshot {
    let node = |node: &numaherd_topology::Node| NodeState {
        id: node.id,
        total_bytes: node.memory_bytes,
        free_bytes: node.memory_bytes / 2,
        old_file_bytes: 0,
        busy_cpus: None,
    };
    Snapshot {
        sequence: 0,
        time_ns: 0,
        interval_ns: SECOND_NS,
        page_bytes: PAGE_BYTES,
        online: topology.online_cpus(),
        threads: Vec::new(),
        processes: Vec::new(),
        nodes: topology.nodes().iter().map(node).collect(),
        gaps: Vec::new(),
    }
}

/// A virtual machine whose vCPUs are these threads, in their order.
pub fn virtual_machine(name: &str, threads: &[Thread]) -> Arc<VirtualMachine> {
    let vcpus = (0..).zip(threads).map(|(index, thread)| VirtualCpu {
        index,
        thread: thread.id,
    });
    Arc::new(VirtualMachine {
        name: name.to_owned(),
        vcpus: vcpus.collect(),
        memory_bytes: None,
        source: "made up".to_owned(),
        agent: Agent::Silent,
        fixed_memory: None,
    })
}
