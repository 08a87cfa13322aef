//! hwloc's two forms of a machine: synthetic strings ([`synthetic`]) and XML ([`xml`],
//! [`read_xml`]).
//!
//! Sources: the pages "Synthetic topologies", "Object attributes" and "Topology attributes" of
//! hwloc's documentation, `hwloc2.dtd` of its repository (which version 3 keeps), and the output of
//! `lstopo` 2.9 for such strings. Tests compare with `lstopo`'s own XML of the same strings, and
//! read files of version 3's form.

mod bitmap;
mod expand;
mod objects;
mod synthetic;
mod xml;

pub use synthetic::synthetic;
pub use xml::{read_xml, xml};

use crate::id::{CpuId, NodeId};
use crate::set::CpuSet;
use crate::topology::Node;

/// Memory with its CPUs according to hwloc, which several nodes may share.
struct Memory {
    id: NodeId,
    bytes: u64,
    near: CpuSet,
}

/// Assigns each CPU to one node, as the kernel would: the node that is near to the fewest CPUs, of
/// equals the one with the lowest number. Other nodes (HBM beside DRAM, a CXL expander near to a
/// whole machine) are memory without CPUs.
fn dealt(mut memories: Vec<Memory>, cpus: &CpuSet) -> Vec<Node> {
    memories.sort_by_key(|memory| (memory.near.len(), memory.id));
    let mut left = cpus.clone();
    memories
        .into_iter()
        .map(|memory| {
            let own: CpuSet = memory.near.intersection(&left);
            left = left.difference(&own);
            Node {
                id: memory.id,
                online: true,
                cpus: own,
                memory_bytes: memory.bytes,
            }
        })
        .collect()
}

/// A set of the CPUs of these numbers.
fn cpu_set(numbers: impl IntoIterator<Item = u32>) -> CpuSet {
    numbers.into_iter().map(CpuId).collect()
}
