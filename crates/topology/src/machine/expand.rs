//! Builds a [`Topology`] from a machine file.
//!
//! CPUs are numbered as Linux numbers them on most x86 machines: first one CPU of every core, node after node and
//! domain after domain; then, in the same order, each further SMT sibling. With `C` cores, core `c` has the CPUs `c`,
//! `c + C`, `c + 2C` and so on. If the file says that siblings are adjacent, core `c` of `T` threads has `c T`,
//! `c T + 1` and so on. Nodes without cores take no CPU numbers. Nodes with cores form packages in order,
//! `nodes_per_package` at a time.

use std::ops::Range;

use super::{CacheSpec, Machine, SharedBy, SiblingNumbers};
use crate::id::{CpuId, NodeId, PackageId};
use crate::parts::{CpuPart, Parts, square};
use crate::set::CpuSet;
use crate::topology::{Cache, Invalid, Node, Timing, Topology};

impl Machine {
    /// The machine as a [`Topology`].
    ///
    /// # Errors
    /// [`Invalid`] names the impossible figure; never for a machine from [`Machine::parse`].
    pub fn topology(&self) -> Result<Topology, Invalid> {
        self.check().map_err(|wrong| Invalid::Figure {
            what: wrong.key,
            why: wrong.why,
        })?;
        let numbering = Numbering::of(self);
        let nodes = (0..self.shape.nodes)
            .map(|node| Node {
                id: NodeId(node),
                online: true,
                cpus: numbering.cpus_of_node(node),
                memory_bytes: self.shape.memory_per_node_mib.of(node as usize) << 20,
            })
            .collect();
        let cpus = (0..numbering.cores * numbering.threads)
            .map(|cpu| {
                let core = numbering.core_of(cpu);
                CpuPart {
                    id: CpuId(cpu),
                    online: true,
                    package: Some(numbering.package_of(core)),
                    siblings: numbering.cpus_of(&(core..core + 1)),
                    capacity: None,
                }
            })
            .collect();
        Topology::new(Parts {
            name: self.name.clone(),
            nodes,
            cpus,
            caches: self
                .caches
                .iter()
                .flat_map(|spec| numbering.caches(spec))
                .collect(),
            distances: self.memory.distance.clone().unwrap_or_default(),
            timing: self.timing(),
        })
    }

    fn timing(&self) -> Timing {
        let nodes = self.shape.nodes as usize;
        let memory = &self.memory;
        // The diagonal is no link; it repeats another figure, so that every entry is a figure.
        let bandwidths = memory.node_gb_per_s.as_ref();
        let uniform = memory.link_gb_per_s.map(|link| {
            let local = |node| bandwidths.map_or(link, |gb| gb.of(node));
            square(
                nodes,
                |from, to| if from == to { local(from) } else { link },
            )
        });
        Timing {
            latency_ns: memory.latency_ns.clone(),
            node_gb_per_s: bandwidths.map(|gb| gb.list(nodes)),
            link_gb_per_s: memory.link_matrix_gb_per_s.clone().or(uniform),
        }
    }
}

/// The CPU numbers of each part. Cores are counted through the machine, node after node.
struct Numbering {
    cores: u32,
    threads: u32,
    sibling_numbers: SiblingNumbers,
    cores_per_domain: u32,
    /// The cores of each node; an empty range for a node without cores.
    of_nodes: Vec<Range<u32>>,
    /// The cores of each package.
    of_packages: Vec<Range<u32>>,
}

impl Numbering {
    fn of(machine: &Machine) -> Self {
        let shape = &machine.shape;
        let mut cores = 0;
        let domains = shape.domains_per_node.list(shape.nodes as usize);
        let of_nodes = domains.into_iter().map(|domains| {
            let first = cores;
            cores += domains * shape.cores_per_domain;
            first..cores
        });
        let of_nodes: Vec<Range<u32>> = of_nodes.collect();
        let with_cores: Vec<_> = of_nodes.iter().filter(|node| !node.is_empty()).collect();
        let packages = with_cores.chunks(shape.nodes_per_package as usize);
        let package = |nodes: &[&Range<u32>]| nodes[0].start..nodes[nodes.len() - 1].end;
        Self {
            cores,
            threads: shape.threads_per_core,
            sibling_numbers: shape.sibling_numbers,
            cores_per_domain: shape.cores_per_domain,
            of_packages: packages.map(package).collect(),
            of_nodes,
        }
    }

    fn package_of(&self, core: u32) -> PackageId {
        let before = self
            .of_packages
            .partition_point(|package| package.end <= core);
        PackageId(before as u32)
    }

    fn core_of(&self, cpu: u32) -> u32 {
        match self.sibling_numbers {
            SiblingNumbers::Apart => cpu % self.cores,
            SiblingNumbers::Adjacent => cpu / self.threads,
        }
    }

    /// The CPUs of cores.
    fn cpus_of(&self, cores: &Range<u32>) -> CpuSet {
        let number = |core: u32, thread: u32| match self.sibling_numbers {
            SiblingNumbers::Apart => thread * self.cores + core,
            SiblingNumbers::Adjacent => core * self.threads + thread,
        };
        let of_core = |core| (0..self.threads).map(move |thread| number(core, thread));
        cores.clone().flat_map(of_core).map(CpuId).collect()
    }

    fn cpus_of_node(&self, node: u32) -> CpuSet {
        self.cpus_of(&self.of_nodes[node as usize])
    }

    fn caches(&self, spec: &CacheSpec) -> impl Iterator<Item = Cache> {
        let each = |cores: u32| {
            let firsts = (0..self.cores).step_by(cores as usize);
            firsts.map(move |first| first..first + cores).collect()
        };
        let sharing: Vec<Range<u32>> = match spec.shared_by {
            SharedBy::Core => each(1),
            SharedBy::Domain => each(self.cores_per_domain),
            SharedBy::Package => self.of_packages.clone(),
        };
        sharing.into_iter().map(move |cores| Cache {
            level: spec.level,
            kind: spec.kind,
            size_bytes: Some(spec.size_kib << 10),
            line_bytes: Some(spec.line_bytes),
            ways: (spec.ways > 0).then_some(spec.ways),
            cpus: self.cpus_of(&cores),
        })
    }
}
