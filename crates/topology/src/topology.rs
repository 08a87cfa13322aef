//! The machine as a value, which answers all other crates' questions about nodes, domains, cores and CPUs.
//!
//! A reader builds a [`Topology`] once through [`Topology::new`], which checks it ([`Invalid`]) and
//! gives cores and domains dense numbers. Look-ups are by index, so they cost no more on a machine
//! with 4096 CPUs than on one with 4.

use serde::{Deserialize, Serialize};

use crate::id::{CoreId, CpuId, DomainId, NodeId, PackageId};
use crate::parts::Parts;
use crate::set::{CpuSet, NodeSet};

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One cache, shared by `cpus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in bytes, where known.
    pub size_bytes: Option<u64>,
    /// Line size in bytes, where known.
    pub line_bytes: Option<u32>,
    /// Associativity, where known; 0 stands for fully associative.
    pub ways: Option<u32>,
    /// The CPUs that share it.
    pub cpus: CpuSet,
}

/// A logical CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// The kernel's number.
    pub id: CpuId,
    /// Whether the kernel can run threads on it now.
    pub online: bool,
    /// Its core (SMT siblings share one).
    pub core: CoreId,
    /// Its memory domain.
    pub domain: DomainId,
    /// Its node.
    pub node: NodeId,
    /// Its package, where known.
    pub package: Option<PackageId>,
    /// Relative computing power, 1024 for the strongest kind of core of the machine
    /// (the kernel's `cpu_capacity`).
    pub capacity: u32,
}

/// A physical core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Dense number, ascending with the lowest CPU.
    pub id: CoreId,
    /// Its memory domain.
    pub domain: DomainId,
    /// Its SMT siblings.
    pub cpus: CpuSet,
}

/// A memory domain: the CPUs that share a last-level cache, and their node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Dense number, ascending with the lowest CPU.
    pub id: DomainId,
    /// The node that is local to it.
    pub node: NodeId,
    /// Its CPUs, offline ones included.
    pub cpus: CpuSet,
    /// Its cores, ascending.
    pub cores: Vec<CoreId>,
}

/// A memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// Whether it is online.
    pub online: bool,
    /// Its CPUs; empty for memory without cores (CXL, HBM).
    pub cpus: CpuSet,
    /// Its memory in bytes; 0 for a node without memory.
    pub memory_bytes: u64,
}

impl Node {
    /// Whether pages can be on it.
    pub fn has_memory(&self) -> bool {
        self.online && self.memory_bytes > 0
    }

    /// Whether it has memory and no CPUs.
    pub fn is_apart(&self) -> bool {
        self.has_memory() && self.cpus.is_empty()
    }
}

/// Distances between nodes: the firmware's SLIT as the kernel shows it, 10 for local.
///
/// Rows and columns follow [`Topology::nodes`], not the node numbers. SLIT values order nodes but
/// are not ratios of latency (FACTS: 10/21 stands for anything from 1.5 to 3.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distances {
    /// One row per node.
    pub rows: Vec<Vec<u32>>,
}

/// Latencies and bandwidths, where a machine file or a measurement gives them.
///
/// Rows and columns follow [`Topology::nodes`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Idle latency in ns from the cores of the row's node to the memory of the column's.
    pub latency_ns: Option<Vec<Vec<f64>>>,
    /// Read bandwidth of each node's memory in GB/s (10^9 bytes per second).
    pub node_gb_per_s: Option<Vec<f64>>,
    /// Bandwidth in GB/s of the link from the row's node to the column's, per direction.
    pub link_gb_per_s: Option<Vec<Vec<f64>>>,
}

/// A machine. It is serialised as its [`Parts`], so deserialising checks it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Topology {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) cores: Vec<Core>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) distances: Distances,
    pub(crate) timing: Timing,
    // Place of each CPU and node number in the lists above; None for numbers that do not exist.
    pub(crate) cpu_at: Vec<Option<u32>>,
    pub(crate) node_at: Vec<Option<u32>>,
}

/// Why a description is not a valid machine. Readers add the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// There is no online CPU.
    #[error("the machine has no online CPU")]
    NoCpu,
    /// There is no node with memory.
    #[error("the machine has no node with memory")]
    NoMemory,
    /// A CPU is listed twice.
    #[error("CPU {0} is described twice")]
    CpuTwice(CpuId),
    /// A node is listed twice.
    #[error("node {0} is described twice")]
    NodeTwice(NodeId),
    /// A CPU is in two nodes.
    #[error(
        "CPU {cpu} is in node {first} and in node {second} (numa=fake on the kernel's command line does this)"
    )]
    CpuInTwoNodes {
        /// The CPU.
        cpu: CpuId,
        /// One of its nodes.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
    /// A CPU shares two caches of one level and kind.
    #[error(
        "CPU {cpu} has two level {level} caches of one kind: that of CPUs {first} and that of CPUs {second}"
    )]
    CacheTwice {
        /// The CPU.
        cpu: CpuId,
        /// The level of the caches.
        level: u8,
        /// The CPUs that share one of them.
        first: String,
        /// The CPUs that share the other.
        second: String,
    },
    /// Two CPUs cannot be one core, but the description says so.
    #[error("CPUs {first} and {second} cannot be one core: {reason}")]
    TornCore {
        /// The one.
        first: CpuId,
        /// The other.
        second: CpuId,
        /// Why not.
        reason: &'static str,
    },
    /// A node, core or cache names a CPU that is not described.
    #[error("{what} names CPU {cpu}, which does not exist")]
    UnknownCpu {
        /// What names it.
        what: String,
        /// The CPU.
        cpu: CpuId,
    },
    /// A CPU belongs to no node.
    #[error("CPU {0} belongs to no node")]
    CpuWithoutNode(CpuId),
    /// Figures of a machine are impossible or do not fit the nodes.
    #[error("{what}: {why}")]
    Figure {
        /// Which figures: in words, or by the dotted key of a machine file.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// A figure is impossible.
    #[error("{what} is {value}, which cannot be: {reason}")]
    Impossible {
        /// Which figure.
        what: String,
        /// Its value.
        value: String,
        /// Why not.
        reason: &'static str,
    },
}

impl Topology {
    /// The machine's name (a preset's, or the reader's).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All nodes, ascending by number, offline ones included.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All CPUs, ascending by number, offline ones included.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// All cores, ascending.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// All memory domains, ascending.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// All caches, by level, then by lowest CPU.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The SLIT.
    pub fn distances(&self) -> &Distances {
        &self.distances
    }

    /// Latencies and bandwidths where known.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The CPU of that number.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        Some(&self.cpus[self.cpu_index(id)?])
    }

    /// The place of a CPU in [`Topology::cpus`].
    pub fn cpu_index(&self, id: CpuId) -> Option<usize> {
        let at = self.cpu_at.get(id.index()).copied().flatten()?;
        Some(at as usize)
    }

    /// The node of that number.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        Some(&self.nodes[self.node_index(id)?])
    }

    /// The row of a node in [`Distances`] and [`Timing`], and its place in [`Topology::nodes`].
    pub fn node_index(&self, id: NodeId) -> Option<usize> {
        let at = self.node_at.get(id.index()).copied().flatten()?;
        Some(at as usize)
    }

    /// The memory domain of a CPU.
    pub fn domain_of(&self, cpu: CpuId) -> Option<&Domain> {
        Some(&self.domains[self.cpu(cpu)?.domain.index()])
    }

    /// The node of a CPU.
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        Some(self.cpu(cpu)?.node)
    }

    /// The SLIT distance between two nodes, 10 for local.
    pub fn distance(&self, from: NodeId, to: NodeId) -> Option<u32> {
        Some(self.distances.rows[self.node_index(from)?][self.node_index(to)?])
    }

    /// The node whose memory is nearest to a node: itself if it has memory, else by the SLIT, the first of equals. For
    /// a node that does not exist, returns that node.
    pub fn memory_near(&self, node: NodeId) -> NodeId {
        self.nearest(node, Node::has_memory)
    }

    /// The node whose CPUs are nearest to a node's memory: itself if it has CPUs, else by the SLIT, the first of
    /// equals. For a node that does not exist, returns that node.
    pub fn cpus_near(&self, node: NodeId) -> NodeId {
        self.nearest(node, |node| !node.cpus.is_empty())
    }

    fn nearest(&self, to: NodeId, is_one: impl Fn(&Node) -> bool) -> NodeId {
        if self.node(to).is_none_or(&is_one) {
            return to;
        }
        let candidates = self.nodes.iter().filter(|node| is_one(node));
        let nearest = candidates.min_by_key(|node| self.distance(to, node.id));
        nearest.map_or(to, |node| node.id)
    }

    /// The online CPUs.
    pub fn online_cpus(&self) -> CpuSet {
        let online = self.cpus.iter().filter(|cpu| cpu.online);
        online.map(|cpu| cpu.id).collect()
    }

    /// The online nodes that have memory.
    pub fn memory_nodes(&self) -> NodeSet {
        let nodes = self.nodes.iter().filter(|node| node.has_memory());
        nodes.map(|node| node.id).collect()
    }
}
