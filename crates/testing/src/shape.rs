//! Machines by their shape.

use std::sync::Arc;

use numaherd_topology::{
    Cache, CacheKind, CpuId, CpuPart, CpuSet, Node, NodeId, Parts, Timing, Topology,
};

/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;

/// A machine's shape. CPUs are numbered domain by domain, siblings next to each other; each node has
/// 1 GiB of memory, each domain a last-level cache of 2 MiB.
#[derive(Clone, Debug)]
pub struct Shape {
    /// For every node, the cores of each of its domains.
    pub nodes: Vec<Vec<u32>>,
    /// CPUs of each core.
    pub siblings: u32,
    /// CPUs that are offline.
    pub offline: Vec<u32>,
}

/// A machine of `nodes` nodes, each with `cpus` CPUs that share a last-level cache.
pub fn machine(nodes: u32, cpus: u32) -> Arc<Topology> {
    Arc::new(Shape::uniform(nodes as usize, cpus).topology())
}

impl Shape {
    /// Nodes of one domain each, with the same number of cores.
    pub fn uniform(domains: usize, cores: u32) -> Self {
        Self {
            nodes: vec![vec![cores]; domains],
            siblings: 1,
            offline: Vec::new(),
        }
    }

    /// The machine.
    pub fn topology(&self) -> Topology {
        let mut parts = Parts {
            name: "made up".into(),
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
                    parts.cpus.extend(siblings.iter().map(|cpu| CpuPart {
                        id: cpu,
                        online: !self.offline.contains(&cpu.0),
                        package: None,
                        siblings: siblings.clone(),
                        capacity: None,
                    }));
                    of_domain.extend_from(&siblings);
                }
                of_node.extend_from(&of_domain);
                parts.caches.push(Cache {
                    level: 3,
                    kind: CacheKind::Unified,
                    size_bytes: Some(2 * MIB),
                    line_bytes: Some(64),
                    ways: Some(32),
                    cpus: of_domain,
                });
            }
            parts.nodes.push(Node {
                id: NodeId(node),
                online: true,
                cpus: of_node,
                memory_bytes: 1024 * MIB,
            });
        }
        Topology::new(parts).expect("a shape is a machine")
    }
}
