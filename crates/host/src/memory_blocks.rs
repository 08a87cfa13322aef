//! Which node a physical address is on: the memory blocks that sysfs lists for each node.
//!
//! A block (`/sys/devices/system/memory/block_size_bytes`, 128 MiB and up) belongs to one node, or
//! in rare layouts to two; such a block is left out. Kernels without memory hotplug have no list.

use std::collections::BTreeMap;

use numaherd_topology::NodeId;

use crate::files::Root;

/// The memory blocks of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemoryBlocks {
    block_bytes: u64,
    /// `None` for a block of several nodes.
    node_of: BTreeMap<u32, Option<NodeId>>,
}

impl MemoryBlocks {
    pub(crate) fn read(root: &Root) -> Self {
        let block_bytes = root
            .text("sys/devices/system/memory/block_size_bytes")
            .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
            .unwrap_or(0);
        let mut node_of = BTreeMap::new();
        const NODES: &str = "sys/devices/system/node";
        for node in root.numbers(NODES, "node").unwrap_or_default() {
            let blocks = root.numbers(&format!("{NODES}/node{node}"), "memory");
            for block in blocks.unwrap_or_default() {
                node_of
                    .entry(block)
                    .and_modify(|of| *of = None)
                    .or_insert(Some(NodeId(node)));
            }
        }
        Self {
            block_bytes,
            node_of,
        }
    }

    /// The node of a physical address, if listed.
    pub(crate) fn node_of(&self, physical: u64) -> Option<NodeId> {
        let block = u32::try_from(physical.checked_div(self.block_bytes)?).ok()?;
        *self.node_of.get(&block)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_by_block() {
        let folder = tempfile::tempdir().unwrap();
        for block in [
            "node/node0/memory0",
            "node/node0/memory1",
            "node/node0/memory_failure",
            "node/node3/memory1",
            "node/node3/memory2",
            "memory",
        ] {
            let path = folder.path().join("sys/devices/system").join(block);
            std::fs::create_dir_all(path).unwrap();
        }
        let size = folder
            .path()
            .join("sys/devices/system/memory/block_size_bytes");
        std::fs::write(size, "8000000\n").unwrap();
        let blocks = MemoryBlocks::read(&Root::new(folder.path()));
        assert_eq!(blocks.node_of(0x7ff_ffff), Some(NodeId(0)));
        assert_eq!(blocks.node_of(0x800_0000), None, "a block of two nodes");
        assert_eq!(blocks.node_of(0x1000_0000), Some(NodeId(3)));
        assert_eq!(blocks.node_of(0x1800_0000), None);
        assert_eq!(MemoryBlocks::default().node_of(0), None);
    }
}
