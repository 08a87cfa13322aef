//! The guest as its firmware describes it: nodes, CPUs, memory, distances.
//!
//! A [`Shape`] is the part of a machine that QEMU builds; caches, latencies and bandwidths are the
//! model's. QEMU numbers CPUs by socket, core and thread, in that order, and all sockets have one
//! size. A guest assumes that the CPUs of a socket share a last-level cache. So a socket of the
//! guest stands for a memory domain.

/// One node of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeShape {
    /// Number of its CPUs; may be 0 if other nodes have some. CPUs are numbered node by node.
    pub cpus: u32,
    /// Its memory in MiB; may be 0 if other nodes have some.
    pub memory_mib: u64,
}

/// The guest as firmware describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The nodes, in order of their numbers.
    pub nodes: Vec<NodeShape>,
    /// CPUs per core.
    pub threads_per_core: u32,
    /// Cores per socket, that is, per memory domain.
    pub cores_per_socket: u32,
    /// Distances as in the firmware's SLIT: a row per node, 10 for the node itself.
    pub distances: Vec<Vec<u8>>,
}

/// The SLIT's distance of a node to itself.
const LOCAL: u8 = 10;

impl Shape {
    /// `nodes` nodes of `cores` single-threaded cores and `memory_mib` MiB each, all at distance 20.
    #[must_use]
    pub fn uniform(nodes: usize, cores: u32, memory_mib: u64) -> Self {
        Self {
            nodes: vec![
                NodeShape {
                    cpus: cores,
                    memory_mib
                };
                nodes
            ],
            threads_per_core: 1,
            cores_per_socket: cores,
            distances: (0..nodes)
                .map(|from| {
                    (0..nodes)
                        .map(|to| if from == to { LOCAL } else { 20 })
                        .collect()
                })
                .collect(),
        }
    }

    /// Number of CPUs in all.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|node| node.cpus).sum()
    }

    /// Memory in all, in MiB.
    #[must_use]
    pub fn memory_mib(&self) -> u64 {
        self.nodes.iter().map(|node| node.memory_mib).sum()
    }

    /// Number of sockets.
    #[must_use]
    pub fn sockets(&self) -> u32 {
        self.cpus() / (self.cores_per_socket * self.threads_per_core).max(1)
    }

    /// Checks that QEMU and the firmware's tables can hold this machine.
    ///
    /// # Errors
    /// What QEMU or the firmware cannot hold.
    pub fn check(&self) -> Result<(), String> {
        let nodes = self.nodes.len();
        if self.cpus() == 0 {
            return Err("it has no CPU".to_owned());
        }
        // Linux takes its first memory from the node of the first CPU.
        if self.nodes[0].memory_mib < 128 {
            return Err(format!(
                "node 0 has {} MiB of memory, the kernel needs 128 there to start",
                self.nodes[0].memory_mib
            ));
        }
        let socket = self.cores_per_socket * self.threads_per_core;
        if socket == 0 || !self.cpus().is_multiple_of(socket) {
            return Err(format!(
                "{} CPUs do not divide into sockets of {} cores with {} CPUs each",
                self.cpus(),
                self.cores_per_socket,
                self.threads_per_core
            ));
        }
        if self.distances.len() != nodes {
            return Err(format!(
                "{nodes} nodes have {} rows of distances",
                self.distances.len()
            ));
        }
        for (from, row) in self.distances.iter().enumerate() {
            if row.len() != nodes {
                return Err(format!(
                    "node {from} has {} distances to {nodes} nodes",
                    row.len()
                ));
            }
            for (to, &distance) in row.iter().enumerate() {
                if (from == to) != (distance == LOCAL) || distance < LOCAL {
                    return Err(format!(
                        "the distance from node {from} to node {to} is {distance}: it must be 10 for the node itself and more for all others"
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uniform_shape_passes_its_own_check() {
        for nodes in [1, 2, 4, 16] {
            let shape = Shape::uniform(nodes, 2, 256);
            assert_eq!(shape.check(), Ok(()));
            assert_eq!(shape.sockets() as usize, nodes);
        }
    }

    #[test]
    fn what_qemu_cannot_build_is_refused_by_name() {
        let good = Shape::uniform(2, 2, 256);
        let refused = |change: fn(&mut Shape), part: &str| {
            let mut shape = good.clone();
            change(&mut shape);
            let reason = shape.check().expect_err(part);
            assert!(reason.contains(part), "{reason:?} does not say {part:?}");
        };
        refused(|s| s.nodes.iter_mut().for_each(|n| n.cpus = 0), "no CPU");
        refused(|s| s.nodes[0].memory_mib = 0, "128 there");
        refused(|s| s.cores_per_socket = 3, "do not divide");
        refused(|s| s.distances[1][0] = 10, "from node 1 to node 0");
        refused(|s| s.distances[1][1] = 11, "from node 1 to node 1");
        refused(|s| s.distances[0].truncate(1), "1 distances to 2");
        refused(|s| s.distances.truncate(1), "1 rows");
    }

    #[test]
    fn nodes_without_cpus_or_memory_are_taken() {
        let mut shape = Shape::uniform(3, 2, 256);
        shape.nodes[1].cpus = 0;
        shape.nodes[2].memory_mib = 0;
        assert_eq!(shape.check(), Ok(()));
        assert_eq!(
            (shape.cpus(), shape.memory_mib(), shape.sockets()),
            (4, 512, 2)
        );
    }
}
