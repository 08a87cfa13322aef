//! What room the nodes have for blocks, and which are near and which apart.

use std::collections::BTreeMap;

use numaherd_topology::{NodeId, NodeSet, Topology};
use numaherd_world::Snapshot;

/// The room of each node as it will be once what was ordered has moved.
#[derive(Clone, Debug)]
pub(super) struct Room {
    block_bytes: i128,
    nodes: BTreeMap<NodeId, OfNode>,
}

#[derive(Clone, Copy, Debug)]
struct OfNode {
    /// Free bytes beyond those that are kept free.
    spare: i128,
    /// Bytes that the kernel gives up before it is short.
    old_files: i128,
    /// Bytes that should come and have no room.
    wanted: i128,
    is_apart: bool,
    /// Whether it is apart and gives more bytes per second than any near node, as HBM does.
    is_fast: bool,
}

impl Room {
    /// The room that a snapshot shows; nodes that it does not show have none.
    pub(super) fn of(
        snapshot: &Snapshot,
        topology: &Topology,
        keep_free: f64,
        block_bytes: u64,
    ) -> Self {
        let bandwidth = |node: NodeId| {
            let rows = topology.timing().node_gb_per_s.as_ref()?;
            rows.get(topology.node_index(node)?).copied()
        };
        let near = topology.nodes().iter().filter(|node| !node.is_apart());
        let near = near.filter(|node| node.has_memory());
        let of_near: Vec<f64> = near.filter_map(|node| bandwidth(node.id)).collect();
        let is_faster = |of: f64| !of_near.is_empty() && of_near.iter().all(|&near| of > near);
        let of_node = |state: &numaherd_world::NodeState| {
            let node = topology.node(state.id).filter(|node| node.has_memory())?;
            let kept = (state.total_bytes as f64 * keep_free).ceil() as i128;
            let of_node = OfNode {
                spare: i128::from(state.free_bytes) - kept,
                old_files: i128::from(state.old_file_bytes),
                wanted: 0,
                is_apart: node.is_apart(),
                is_fast: node.is_apart() && bandwidth(node.id).is_some_and(is_faster),
            };
            Some((state.id, of_node))
        };
        Self {
            block_bytes: i128::from(block_bytes),
            nodes: snapshot.nodes.iter().filter_map(of_node).collect(),
        }
    }

    pub(super) fn is_apart(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|of| of.is_apart)
    }

    /// Whether a node has room for one more block.
    pub(super) fn has(&self, node: NodeId) -> bool {
        let room = self.nodes.get(&node);
        room.is_some_and(|of| of.spare >= self.block_bytes)
    }

    /// Notes that a block goes to a node.
    pub(super) fn take(&mut self, node: NodeId) {
        if let Some(of) = self.nodes.get_mut(&node) {
            of.spare -= self.block_bytes;
        }
    }

    /// Notes that a block leaves a node.
    pub(super) fn free(&mut self, node: NodeId) {
        if let Some(of) = self.nodes.get_mut(&node) {
            of.spare += self.block_bytes;
        }
    }

    /// Notes that a block should come to a node that has no room for it.
    pub(super) fn want(&mut self, node: NodeId) {
        if let Some(of) = self.nodes.get_mut(&node) {
            of.wanted += self.block_bytes;
        }
    }

    /// The near nodes with less free memory than is to be kept free, counting old files as free, or with less room
    /// than is wanted.
    pub(super) fn short(&self) -> Vec<NodeId> {
        let nodes = self.nodes.keys().copied();
        nodes.filter(|&node| self.is_short(node)).collect()
    }

    pub(super) fn is_short(&self, node: NodeId) -> bool {
        let of = self.nodes.get(&node);
        of.is_some_and(|of| {
            let is_short = of.spare + of.old_files < 0 || of.spare < of.wanted && of.wanted > 0;
            !of.is_apart && is_short
        })
    }

    /// The allowed near node nearest to a node, by the SLIT; one with room for a block if there is any.
    pub(super) fn near_to(
        &self,
        node: NodeId,
        allowed: &NodeSet,
        topology: &Topology,
    ) -> Option<NodeId> {
        let with_room = |id, of: &OfNode| !of.is_apart && self.has(id);
        let roomy = self.nearest(node, allowed, topology, with_room);
        roomy.or_else(|| self.nearest(node, allowed, topology, |_, of| !of.is_apart))
    }

    /// The node apart that is nearest to a node, of those that are allowed, have room for a block and are not
    /// faster.
    pub(super) fn apart_from(
        &self,
        node: NodeId,
        allowed: &NodeSet,
        topology: &Topology,
    ) -> Option<NodeId> {
        let is_one = |id, of: &OfNode| of.is_apart && !of.is_fast && self.has(id);
        self.nearest(node, allowed, topology, is_one)
    }

    /// The same among all nodes apart, fast ones included, for which `suits` holds.
    pub(super) fn any_apart_from(
        &self,
        node: NodeId,
        allowed: &NodeSet,
        topology: &Topology,
        suits: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let is_one = |id, of: &OfNode| of.is_apart && self.has(id) && suits(id);
        self.nearest(node, allowed, topology, is_one)
    }

    fn nearest(
        &self,
        to: NodeId,
        allowed: &NodeSet,
        topology: &Topology,
        is_one: impl Fn(NodeId, &OfNode) -> bool,
    ) -> Option<NodeId> {
        let nodes = self.nodes.iter().filter(|(id, _)| allowed.contains(**id));
        let nodes = nodes.filter(|(id, of)| is_one(**id, of));
        let nearest = nodes.min_by_key(|(id, _)| topology.distance(to, **id).unwrap_or(u32::MAX));
        nearest.map(|(&id, _)| id)
    }
}
