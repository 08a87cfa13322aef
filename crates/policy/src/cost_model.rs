//! A cost model: what a layout of threads would cost, predicted without running it.
//!
//! Only modelled worlds have one: they know the programs. Policies that use it (`oracle`) are yardsticks
//! for those that do not.

use std::sync::Arc;

use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{MemoryPart, ThreadId};

/// The nodes that pages are spread over, each with its weight: of every run, each node gets the share that
/// its weight has in all. `None`: the pages stay where they are.
pub type Home = Option<Vec<(NodeId, u32)>>;

/// Predicts what layouts cost.
pub trait CostModel: Send + Sync {
    /// Predicted cost of a layout with each part of the memory at its home, lower is better, in a unit of
    /// its own that is the same for all layouts of one interval; `None` when it cannot predict one, or a
    /// node has no room for what would be on it.
    ///
    /// Each thread is named at most once. Threads that are not named stay where they are. Homes are in the
    /// order of [`CostModel::parts`]; without any, all memory stays. Layouts that differ only in which of a
    /// memory domain's like cores runs which thread cost the same.
    fn cost(&self, layout: &[(ThreadId, CpuId)], homes: &[Home]) -> Option<f64>;

    /// A cost that no layout of these threads can be below while memory stays, in the unit of
    /// [`CostModel::cost`]; `None` when no such figure is known. A search that cannot try all layouts
    /// states it as its bound.
    fn least(&self, threads: &[ThreadId]) -> Option<f64> {
        let _ = threads;
        None
    }

    /// The memory of the threads that run, in parts, in an order that stays the same while nothing else
    /// happens; none where pages cannot be placed.
    fn parts(&self) -> Vec<MemoryPart> {
        Vec::new()
    }

    /// As [`CostModel::least`], wherever memory is.
    fn joint_least(&self, threads: &[ThreadId]) -> Option<f64> {
        let _ = threads;
        None
    }
}

/// Knows no cost: for callers that only ask what a policy needs.
pub struct NoCosts;

impl CostModel for NoCosts {
    fn cost(&self, _: &[(ThreadId, CpuId)], _: &[Home]) -> Option<f64> {
        None
    }
}

/// What a policy can get besides settings and snapshots.
#[derive(Clone, Default)]
pub struct Means {
    /// The cost model; in modelled worlds only.
    pub cost_model: Option<Arc<dyn CostModel>>,
}
