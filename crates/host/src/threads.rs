//! The affinities of single threads, without a world around them: what giving back after a kill
//! needs.

use std::path::Path;

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, ThreadId};

use crate::affinity;
use crate::files::Root;
use crate::kernel::Live;

/// The threads under a root.
#[derive(Debug)]
pub struct Threads {
    live: Live,
}

impl Threads {
    /// The threads whose /proc is below `root`; for the live machine that is `/`.
    pub fn new(root: &Path) -> Self {
        Self {
            live: Live {
                root: Root::new(root),
            },
        }
    }

    /// The affinity mask of a thread now; `None` when it has ended.
    ///
    /// # Errors
    /// The kernel does not tell; a sentence with why.
    pub fn mask(&self, thread: ThreadId) -> Result<Option<CpuSet>, String> {
        affinity::mask(&self.live, thread)
            .map_err(|errno| format!("cannot read the affinity of {thread}: {errno}"))
    }

    /// Gives a thread the CPUs of an order, checked and read back.
    pub fn set(&self, order: &AffinityOrder) -> AffinityResult {
        affinity::set(&self.live, order.thread, &order.cpus)
    }
}
