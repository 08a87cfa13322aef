//! A machine's form for other programs (`numaherd topology --json`).
//!
//! [`Topology`] itself is serialised as its parts, to be read back; a [`View`] also has the derived
//! data, by name. New versions only add fields; a change of meaning raises `schema`. Sets are in
//! the kernel's list syntax. Rows and columns of matrices follow `nodes`. Unknown values are null.

use serde::Serialize;

use crate::id::{CoreId, DomainId};
use crate::topology::{Cache, Core, Cpu, Domain, Node, Timing, Topology};

/// A machine with all derived data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View<'t> {
    /// The version of this form: 1.
    pub schema: u32,
    /// The machine's name.
    pub name: &'t str,
    /// All nodes, ascending, offline ones included.
    pub nodes: Vec<NodeView<'t>>,
    /// All memory domains, ascending.
    pub domains: &'t [Domain],
    /// All cores, ascending.
    pub cores: Vec<CoreView<'t>>,
    /// All CPUs, ascending, offline ones included.
    pub cpus: &'t [Cpu],
    /// All caches, nearest first.
    pub caches: &'t [Cache],
    /// The SLIT: 10 is local, 255 unreachable.
    pub distances: &'t [Vec<u32>],
    /// Latencies in ns and bandwidths in GB/s.
    pub timing: &'t Timing,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView<'t> {
    /// The node.
    #[serde(flatten)]
    pub node: &'t Node,
    /// Its memory domains.
    pub domains: Vec<DomainId>,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreView<'t> {
    /// The core.
    #[serde(flatten)]
    pub core: &'t Core,
    /// Relative computing power, 1024 for the strongest.
    pub capacity: u32,
}

impl Topology {
    /// The machine's form for other programs.
    pub fn view(&self) -> View<'_> {
        let domains_of = |node: &Node| {
            let domains = self
                .domains()
                .iter()
                .filter(|domain| domain.node == node.id);
            domains.map(|domain| domain.id).collect()
        };
        let nodes = self.nodes().iter().map(|node| NodeView {
            node,
            domains: domains_of(node),
        });
        let cores = self.cores().iter().map(|core| CoreView {
            core,
            capacity: self.capacity_of(core.id),
        });
        View {
            schema: 1,
            name: self.name(),
            nodes: nodes.collect(),
            domains: self.domains(),
            cores: cores.collect(),
            cpus: self.cpus(),
            caches: self.caches(),
            distances: &self.distances().rows,
            timing: self.timing(),
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
