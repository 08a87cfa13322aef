//! What a layout would cost: asks the model how its threads would run if they were placed differently.
//!
//! The cost is the mean over the threads of the time for an instruction, relative to the thread alone with its memory
//! local: the mean slowdown, 1 when nobody disturbs anybody. Memory stays where it is, unless the question says where
//! it goes. Only a modelled machine can tell this. An oracle decides by it.

use std::sync::{Arc, Mutex};

use numaherd_topology::{CpuId, NodeId};
use numaherd_world::in_step::{InStep, lock};
use numaherd_world::{MemoryPart, ThreadId};

use crate::engine::Engine;
use crate::world::Model;

/// Asks a [`Model`] about layouts, also while a herd runs it.
#[derive(Clone)]
pub struct CostModel {
    shared: Arc<Mutex<Engine>>,
}

impl std::fmt::Debug for CostModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CostModel").finish_non_exhaustive()
    }
}

impl Model {
    /// A handle to ask about this model's threads.
    pub fn cost_model(&self) -> CostModel {
        CostModel {
            shared: self.shared().handle(),
        }
    }
}

impl CostModel {
    /// Mean slowdown of all threads if the threads of `layout` ran on its CPUs and the others stayed. `homes` spreads
    /// the pages of each part of the memory over nodes by weights, in the order of [`CostModel::parts`]; a part whose
    /// entry is `None` stays. Without homes, all parts stay. Returns `None` if a thread, a CPU or a node does not
    /// exist, or a node has no room for its pages.
    pub fn slowdown(
        &self,
        layout: &[(ThreadId, CpuId)],
        homes: &[Option<Vec<(NodeId, u32)>>],
    ) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.slowdown(layout, homes)
    }

    /// The memory of the running threads, in parts that can be placed independently.
    pub fn parts(&self) -> Vec<MemoryPart> {
        let engine = lock(&self.shared);
        engine.parts()
    }

    /// A lower bound of the mean slowdown over all layouts and all homes of memory: every thread alone, with its memory
    /// on the node that is best for where it runs. `None` when no thread runs.
    pub fn least_joint_slowdown(&self) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.least_joint_slowdown()
    }

    /// A lower bound of the mean slowdown over all layouts: every thread alone, where it runs best with its memory as
    /// it is. `None` when no thread runs.
    pub fn least_slowdown(&self) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.least_slowdown()
    }
}
