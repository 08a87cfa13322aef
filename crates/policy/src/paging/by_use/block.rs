//! One block: which nodes use it, where it lies, where it was ordered.

use std::collections::BTreeMap;

use numaherd_topology::NodeId;

use crate::paging::driver::Access;

/// What was seen of a block.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    pub(super) accesses: BTreeMap<NodeId, u32>,
    /// How many of them were to a page on the thread's own node.
    pub(super) local: u32,
    /// Where it lies, by the last of them or the last order.
    pub(super) home: Option<NodeId>,
    /// How many of its accesses count there.
    pub(super) counted: u32,
    /// Where it was ordered.
    pub(super) ordered: Option<Ordered>,
}

/// An order for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ordered {
    pub(super) to: NodeId,
    pub(super) since_ns: u64,
    pub(super) kind: Kind,
    /// Whether it was judged by its own accesses.
    pub(super) is_judged: bool,
}

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One node uses it.
    Private,
    /// Several do.
    Shared,
}

impl Block {
    /// Takes in an access.
    pub(super) fn take(&mut self, access: &Access<'_>) {
        self.local += u32::from(!access.is_remote());
        *self.accesses.entry(access.node).or_default() += 1;
    }

    pub(super) fn all(&self) -> u32 {
        self.accesses.values().sum()
    }

    /// Whether at least three quarters of the accesses were to pages that lie with their users.
    pub(super) fn is_local(&self) -> bool {
        self.local * 4 >= self.all() * 3
    }

    /// The node that at least three quarters of the accesses came from.
    pub(super) fn main_user(&self) -> Option<NodeId> {
        let (&node, &most) = self.accesses.iter().max_by_key(|&(_, &count)| count)?;
        (most * 4 >= self.all() * 3).then_some(node)
    }

    /// The nodes of a process's threads that use the block at least half as much as if all used it alike. `None` where all
    /// do.
    pub(super) fn few_users(&self, nodes: &[NodeId]) -> Option<Vec<NodeId>> {
        let of_node: Vec<&[NodeId]> = nodes.chunk_by(|a, b| a == b).collect();
        let uses = |on: &&&[NodeId]| {
            let accesses = self.accesses.get(&on[0]).copied().unwrap_or(0);
            u64::from(accesses) * nodes.len() as u64 * 2 >= u64::from(self.all()) * on.len() as u64
        };
        let users = of_node.iter().filter(uses).map(|on| on[0]);
        let users: Vec<NodeId> = users.collect();
        (users.len() < of_node.len()).then_some(users)
    }

    /// What the block is by its accesses; `user` is its main user, if it has one. `None` where its pages already lie with
    /// their users.
    pub(super) fn kind(&self, user: Option<NodeId>) -> Option<Kind> {
        match user {
            Some(_) => Some(Kind::Private),
            None if self.is_local() => None,
            None => Some(Kind::Shared),
        }
    }
}
