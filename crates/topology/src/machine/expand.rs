//! From a machine file's shape to a [`Topology`].
//!
//! CPUs are numbered as Linux numbers them on most x86 machines: first one CPU of every core, node
//! after node and domain after domain; then, in the same order, each further SMT sibling. With `C`
//! cores, core `c` has the CPUs `c`, `c + C`, `c + 2C` and so on. Nodes without cores take no CPU
//! numbers. Packages are the nodes that have cores, in order, `nodes_per_package` at a time.

use super::{CacheSpec, Machine, SharedBy};
use crate::id::{CpuId, NodeId, PackageId};
use crate::parts::{CpuPart, Parts, square};
use crate::set::CpuSet;
use crate::topology::{Cache, Invalid, Node, Timing, Topology};

impl Machine {
    /// The machine as a [`Topology`].
    ///
    /// # Errors
    /// [`Invalid`] names the figure that cannot be; never for a machine from [`Machine::parse`].
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
                memory_bytes: self.shape.memory_per_node_mib << 20,
            })
            .collect();
        let cpus = (0..numbering.cores * numbering.threads)
            .map(|cpu| CpuPart {
                id: CpuId(cpu),
                online: true,
                package: Some(PackageId(
                    cpu % numbering.cores / numbering.cores_per_package,
                )),
                siblings: numbering.cpus_of(cpu % numbering.cores, 1),
                capacity: None,
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
        // The diagonal is no link; it repeats a figure that is there, so that every entry is one.
        let uniform = memory.link_gb_per_s.map(|link| {
            let local = memory.node_gb_per_s.unwrap_or(link);
            square(nodes, |from, to| if from == to { local } else { link })
        });
        Timing {
            latency_ns: memory.latency_ns.clone(),
            node_gb_per_s: memory.node_gb_per_s.map(|gb| vec![gb; nodes]),
            link_gb_per_s: memory.link_matrix_gb_per_s.clone().or(uniform),
        }
    }
}

/// Which CPU numbers which part has. Cores are counted through the machine, node after node.
struct Numbering {
    cores: u32,
    threads: u32,
    cores_per_domain: u32,
    cores_per_node: u32,
    cores_per_package: u32,
    /// The place of each node among those with cores.
    place: Vec<Option<u32>>,
}

impl Numbering {
    fn of(machine: &Machine) -> Self {
        let shape = &machine.shape;
        let cores_per_node = shape.domains_per_node * shape.cores_per_domain;
        let mut places = 0..;
        let place = (0..shape.nodes).map(|node| {
            let has_cores = !shape.memory_only_nodes.contains(&node);
            has_cores.then(|| places.next()).flatten()
        });
        let place: Vec<Option<u32>> = place.collect();
        Self {
            cores: cores_per_node * places.start,
            threads: shape.threads_per_core,
            cores_per_domain: shape.cores_per_domain,
            cores_per_node,
            cores_per_package: cores_per_node * shape.nodes_per_package,
            place,
        }
    }

    /// The CPUs of `count` cores from core `first` on.
    fn cpus_of(&self, first: u32, count: u32) -> CpuSet {
        (0..self.threads)
            .flat_map(|thread| {
                let base = thread * self.cores + first;
                base..base + count
            })
            .map(CpuId)
            .collect()
    }

    fn cpus_of_node(&self, node: u32) -> CpuSet {
        match self.place[node as usize] {
            Some(place) => self.cpus_of(place * self.cores_per_node, self.cores_per_node),
            None => CpuSet::new(),
        }
    }

    fn caches(&self, spec: &CacheSpec) -> impl Iterator<Item = Cache> {
        let cores = match spec.shared_by {
            SharedBy::Core => 1,
            SharedBy::Domain => self.cores_per_domain,
            SharedBy::Package => self.cores_per_package,
        };
        (0..self.cores / cores).map(move |index| Cache {
            level: spec.level,
            kind: spec.kind,
            size_bytes: Some(spec.size_kib << 10),
            line_bytes: Some(spec.line_bytes),
            ways: (spec.ways > 0).then_some(spec.ways),
            cpus: self.cpus_of(index * cores, cores),
        })
    }
}
