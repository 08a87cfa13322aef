//! Foresight: what a layout of threads would cost, told by a world that can be asked.
//!
//! Only a modelled world can: it knows the programs, and a layout can be tried there without
//! running it. Policies that go by it (`oracle`) are yardsticks for those that do not.

use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::ThreadId;

/// Tells what layouts would cost.
pub trait Foresight: Send + Sync {
    /// Predicted cost of a layout, lower is better, in a unit of its own that is the same for all
    /// layouts asked about in one interval; `None` when it cannot tell.
    ///
    /// Each thread is named at most once. Threads that are not named stay where they are. Layouts
    /// that differ only in which of a memory domain's like cores runs which thread cost the same.
    fn cost(&self, layout: &[(ThreadId, CpuId)]) -> Option<f64>;

    /// A cost that no layout of these threads can be below, in the unit of [`Foresight::cost`];
    /// `None` (unless provided) when no such figure is known. It is what a search that cannot try
    /// all layouts states as its bound.
    fn least(&self, threads: &[ThreadId]) -> Option<f64> {
        let _ = threads;
        None
    }
}

/// What a policy can be handed besides settings and snapshots.
#[derive(Clone, Default)]
pub struct Means {
    /// What layouts would cost; in modelled worlds only.
    pub foresight: Option<Arc<dyn Foresight>>,
}
