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
    /// Mean slowdown of all threads if these ran on those CPUs, and the others where they are, with the pages
    /// of each part of the memory spread over nodes by weights, in the order of [`CostModel::parts`]; `None` for
    /// a part that stays. Without homes, all parts stay. `None` when a thread or a CPU does not exist, or a
    /// node has no room for its pages.
    pub fn slowdown(
        &self,
        layout: &[(ThreadId, CpuId)],
        homes: &[Option<Vec<(NodeId, u32)>>],
    ) -> Option<f64> {
        let engine = lock(&self.shared);
        engine.slowdown(layout, homes)
    }

    /// The memory of the threads that run, in parts that can be placed each by itself.
    pub fn parts(&self) -> Vec<MemoryPart> {
        let engine = lock(&self.shared);
        engine.parts()
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
