//! The affinities of a machine's threads, without a world around them: what restoring them after a kill needs.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;

use crate::bounds::Bounds;
use crate::kinship::Search;
use crate::orders::{AffinityOrder, AffinityResult};
use crate::snapshot::ThreadId;

/// The affinities of a machine's threads.
pub trait Affinities {
    /// What a thread may use now; `None` when it has ended.
    ///
    /// # Errors
    /// It cannot be read: a sentence with what was tried, why it failed, what to do.
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String>;

    /// The threads of the whole machine that were born at `since` or later, in clock ticks since boot, and have
    /// one of these masks, or what the kernel has left of one.
    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search;

    /// Sets the affinity of a thread.
    fn set(&mut self, order: &AffinityOrder) -> AffinityResult;

    /// Gives the kernel some time to renew the masks of threads whose cpuset has just changed.
    fn let_masks_settle(&mut self) {}

    /// Now, on a clock that does not jump; it bounds the search for heirs.
    fn now(&self) -> Duration;
}
