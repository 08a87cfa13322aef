//! What a layout would cost: the model asked about threads it runs, placed otherwise.
//!
//! The cost is the mean over the threads of the time for an instruction, relative to the thread
//! alone with its memory local: the mean slowdown, 1 when nobody disturbs anybody. Memory stays where
//! it is, unless the question says where it goes. Only a modelled machine can tell this; it is what an oracle decides by.

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
    /// Something to ask about this model's threads.
    pub fn cost_model(&self) -> CostModel {
        CostModel {
            shared: self.shared().handle(),
        }
    }
}

impl CostModel {
    /// Mean slowdown of all threads were these on those CPUs, and the others where they are. `None`
    /// when a thread is not there any more, or a CPU never was.
    pub fn slowdown(&self, layout: &[(ThreadId, CpuId)]) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.slowdown(layout)
    }

    /// The memory of the threads that run, in parts that can be placed each by itself.
    pub fn parts(&self) -> Vec<MemoryPart> {
        let engine = lock(&self.shared);
        engine.parts()
    }

    /// [`CostModel::slowdown`], were the pages of each part spread over nodes by weights, `None` for those that
    /// stay, in the order of [`CostModel::parts`]. `None` also where a node has no room for them.
    pub fn joint_slowdown(
        &self,
        layout: &[(ThreadId, CpuId)],
        homes: &[Option<Vec<(NodeId, u32)>>],
    ) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.joint_slowdown(layout, homes)
    }

    /// A mean slowdown that no layout can be below, wherever memory is: every thread alone, with its memory on
    /// the node that is best for where it runs. `None` when no thread runs.
    pub fn least_joint_slowdown(&self) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.least_joint_slowdown()
    }

    /// A mean slowdown that no layout can be below: every thread alone, where that is best for its
    /// memory. `None` when no thread runs.
    pub fn least_slowdown(&self) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.least_slowdown()
    }
}
