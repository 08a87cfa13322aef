//! Figures of nodes: one for all, or one for each.

use serde::{Deserialize, Serialize};

/// A figure of every node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a number, or a list of numbers, one for each node"
)]
pub enum PerNode<T> {
    /// The same for all nodes.
    All(T),
    /// One for each node, in order.
    Each(Vec<T>),
}

impl<T: Copy> PerNode<T> {
    /// The figure of a node.
    ///
    /// # Panics
    /// For a node beyond a list, which [`Machine::parse`](super::Machine::parse) refuses.
    pub fn of(&self, node: usize) -> T {
        match self {
            Self::All(figure) => *figure,
            Self::Each(figures) => figures[node],
        }
    }

    /// The figures of `nodes` nodes.
    pub fn list(&self, nodes: usize) -> Vec<T> {
        (0..nodes).map(|node| self.of(node)).collect()
    }

    /// The figures that the file gives: one, or one for each node.
    pub(super) fn given(&self) -> &[T] {
        match self {
            Self::All(figure) => std::slice::from_ref(figure),
            Self::Each(figures) => figures,
        }
    }
}
