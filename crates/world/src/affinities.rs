//! The affinities of a machine's threads, without a world around them: what giving back after a kill needs.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;

use crate::bounds::Bounds;
use crate::kinship::Search;
use crate::orders::{AffinityOrder, AffinityResult};
use crate::snapshot::ThreadId;

/// The affinities of a machine's threads.
pub trait Affinities {
    /// What a thread of that number and birth may use now; `None` when there is none any more.
    ///
    /// # Errors
    /// It cannot be read: a sentence with what was tried, why it failed, what to do.
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String>;

    /// The threads of the whole machine that were born at `since` or later, in clock ticks since boot, and have
    /// one of these masks, or what the kernel has left of one.
    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search;

    /// Sets one.
    fn set(&mut self, order: &AffinityOrder) -> AffinityResult;

    /// Lets some time pass in which the kernel sets masks anew whose cpuset has just changed.
    fn let_masks_settle(&mut self) {}

    /// Now on a clock that does not jump, by which the search for heirs is bounded.
    fn now(&self) -> Duration;
}
