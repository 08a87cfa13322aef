//! The trait of all worlds, and the order in which its methods may be called.
//!
//! `topology`, `signals` and `affinity_of` at any time. Then, once an interval: [`World::run_for`],
//! [`World::observe`], [`World::apply`]. [`World::pager`] hands out, once, the half of the world
//! that samples accesses and moves pages at the faster cadence; it may run in a thread of its own
//! while the placement half goes on.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuSet, Topology};

use crate::orders::{Orders, Outcome, PageOutcome};
use crate::plan::PageOrder;
use crate::sample::Sample;
use crate::signal::SignalReport;
use crate::snapshot::{Snapshot, ThreadId};

/// Whether a world goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The time has passed.
    Ran,
    /// Someone asked to stop, or what was watched has ended.
    Ended,
}

/// Why a world cannot be observed any more. Failures on single threads or pages are no errors:
/// they are gaps in the snapshot or outcomes.
#[derive(Debug, thiserror::Error)]
#[error("cannot observe {world}: {reason}")]
pub struct WorldError {
    /// Which world.
    pub world: String,
    /// What was tried, on what, why it failed, what to do.
    pub reason: String,
}

/// A machine: observes and applies, never decides.
pub trait World {
    /// The machine.
    fn topology(&self) -> &Arc<Topology>;

    /// What can be measured here, in the order of [`crate::Signal::ALL`].
    fn signals(&self) -> &[SignalReport];

    /// Lets the machine run for an interval of its own time (live: waits; modelled: computes).
    fn run_for(&mut self, interval: Duration) -> Progress;

    /// What happened since the last call (or since the world began).
    ///
    /// # Errors
    /// When the world as a whole cannot be seen any more.
    fn observe(&mut self) -> Result<Snapshot, WorldError>;

    /// The mask that a thread has now, one among them that has left the selection and is in no
    /// snapshot any more. `None` when it has ended, or when this world cannot tell.
    fn affinity_of(&self, _thread: ThreadId) -> Option<CpuSet> {
        None
    }

    /// Carries out affinity orders, and page orders too when the pager has not been handed out.
    fn apply(&mut self, orders: &Orders) -> Outcome;

    /// Hands out the paging half; `None` when it cannot page, or has been handed out already.
    fn pager(&mut self) -> Option<Box<dyn Pager>>;
}

/// The half of a world that samples accesses and moves pages.
pub trait Pager: Send {
    /// Lets the machine run for an interval of its own time.
    fn run_for(&mut self, interval: Duration) -> Progress;

    /// The accesses sampled since the last call, in time order.
    ///
    /// # Errors
    /// When samples cannot be had any more.
    fn samples(&mut self) -> Result<Vec<Sample>, WorldError>;

    /// Moves pages; one outcome per order, in their order.
    fn apply(&mut self, orders: &[PageOrder]) -> Vec<PageOutcome>;
}
