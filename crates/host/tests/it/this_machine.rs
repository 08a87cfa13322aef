//! The machine that runs these tests, as a topology: what the tests need of it is its CPUs.

use std::sync::Arc;

use numaherd_topology::{CpuId, CpuPart, CpuSet, Node, NodeId, Parts, Topology};

/// This machine as one node.
pub fn topology() -> Arc<Topology> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let online: CpuSet = online.parse().unwrap();
    let cpu = |id: CpuId| CpuPart {
        id,
        online: true,
        package: None,
        siblings: CpuSet::new(),
        capacity: None,
    };
    let node = Node {
        id: NodeId(0),
        online: true,
        cpus: online.clone(),
        memory_bytes: 1 << 30,
    };
    let parts = Parts {
        name: "this machine".into(),
        nodes: vec![node],
        cpus: online.iter().map(cpu).collect(),
        ..Parts::default()
    };
    Arc::new(Topology::new(parts).unwrap())
}
