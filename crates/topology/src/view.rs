//! A machine as it is shown to other programs (`numaherd topology --json`).
//!
//! [`Topology`] itself is written as its parts, to be read back; a [`View`] has what was derived as
//! well, by name. Fields are only added; what changes its meaning gets a new `schema`. Sets are in
//! the kernel's list syntax. Rows and columns of matrices follow `nodes`. What is not known is null.

use serde::Serialize;

use crate::id::{CoreId, CpuId, DomainId, NodeId, PackageId};
use crate::set::CpuSet;
use crate::topology::{Cache, Timing, Topology};

/// A machine with all that was derived.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// The form of this text: 1.
    pub schema: u32,
    /// The machine's name.
    pub name: String,
    /// All nodes, ascending, offline ones included.
    pub nodes: Vec<NodeView>,
    /// All memory domains, ascending.
    pub domains: Vec<DomainView>,
    /// All cores, ascending.
    pub cores: Vec<CoreView>,
    /// All CPUs, ascending, offline ones included.
    pub cpus: Vec<CpuView>,
    /// All caches, nearest first.
    pub caches: Vec<Cache>,
    /// The SLIT: 10 is local, 255 unreachable.
    pub distances: Vec<Vec<u32>>,
    /// Latencies in ns and bandwidths in GB/s.
    pub timing: Timing,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// The kernel's number.
    pub id: NodeId,
    /// Whether it is online.
    pub online: bool,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Its memory domains.
    pub domains: Vec<DomainId>,
}

/// A memory domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DomainView {
    /// Dense number.
    pub id: DomainId,
    /// Its node.
    pub node: NodeId,
    /// Its CPUs, offline ones included.
    pub cpus: CpuSet,
    /// Its cores.
    pub cores: Vec<CoreId>,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreView {
    /// Dense number.
    pub id: CoreId,
    /// Its memory domain.
    pub domain: DomainId,
    /// Its SMT siblings.
    pub cpus: CpuSet,
    /// Relative computing power, 1024 for the strongest.
    pub capacity: u32,
}

/// A logical CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuView {
    /// The kernel's number.
    pub id: CpuId,
    /// Whether it is online.
    pub online: bool,
    /// Its core.
    pub core: CoreId,
    /// Its memory domain.
    pub domain: DomainId,
    /// Its node.
    pub node: NodeId,
    /// Its package.
    pub package: Option<PackageId>,
}

impl Topology {
    /// The machine as it is shown to other programs.
    pub fn view(&self) -> View {
        let mut nodes: Vec<NodeView> = self
            .nodes()
            .iter()
            .map(|node| NodeView {
                id: node.id,
                online: node.online,
                cpus: node.cpus.clone(),
                memory_bytes: node.memory_bytes,
                domains: Vec::new(),
            })
            .collect();
        for domain in self.domains() {
            if let Some(at) = self.node_index(domain.node) {
                nodes[at].domains.push(domain.id);
            }
        }
        View {
            schema: 1,
            name: self.name().to_owned(),
            nodes,
            domains: self
                .domains()
                .iter()
                .map(|domain| DomainView {
                    id: domain.id,
                    node: domain.node,
                    cpus: domain.cpus.clone(),
                    cores: domain.cores.clone(),
                })
                .collect(),
            cores: self
                .cores()
                .iter()
                .map(|core| CoreView {
                    id: core.id,
                    domain: core.domain,
                    cpus: core.cpus.clone(),
                    capacity: self.capacity_of(core.id),
                })
                .collect(),
            cpus: self
                .cpus()
                .iter()
                .map(|cpu| CpuView {
                    id: cpu.id,
                    online: cpu.online,
                    core: cpu.core,
                    domain: cpu.domain,
                    node: cpu.node,
                    package: cpu.package,
                })
                .collect(),
            caches: self.caches().to_vec(),
            distances: self.distances().rows.clone(),
            timing: self.timing().clone(),
        }
    }

    /// The relative computing power of a core: that of its first CPU.
    pub(crate) fn capacity_of(&self, core: CoreId) -> u32 {
        let first = self.cores()[core.index()].cpus.first();
        first
            .and_then(|cpu| self.cpu(cpu))
            .map_or(1024, |cpu| cpu.capacity)
    }
}
