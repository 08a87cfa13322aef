//! The affinities of single threads, without a world around them: what giving back after a kill
//! needs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, Bounds, Search, ThreadId};

use crate::affinity;
use crate::cpusets::Cpusets;
use crate::files::Root;
use crate::kernel::{Errno, Kernel, Live};
use crate::sweep::{Sweep, Wanted};

/// The threads under a root.
#[derive(Debug)]
pub struct Threads {
    live: Live,
    sweep: Sweep,
}

impl Threads {
    /// The threads whose /proc is below `root`; for the live machine that is `/`.
    pub fn new(root: &Path) -> Self {
        let root = Root::new(root);
        Self {
            sweep: Sweep::new(root.clone()),
            live: Live { root },
        }
    }

    fn online(&self) -> CpuSet {
        // Where it is not known, none counts as offline.
        let all = || (0..=u32::from(u16::MAX)).map(Into::into).collect();
        self.live.root.online_cpus().unwrap_or_else(all)
    }

    /// What a thread may use now; `None` when it has ended.
    ///
    /// # Errors
    /// The kernel does not tell; a sentence with why.
    pub fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        let online = self.online();
        bounds_of(&self.live, self.sweep.cpusets(&online), thread)
            .map_err(|errno| format!("cannot read the affinity of {thread}: {errno}"))
    }

    /// The threads of the whole machine that were born at `since` or later, in clock ticks since boot, and have
    /// one of these masks, or what the kernel has left of one.
    pub fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search {
        let online = self.online();
        let wanted = Wanted {
            masks,
            since,
            thoroughly: true,
            is_watched: &|_| false,
        };
        self.sweep.find(&self.live, &online, &wanted)
    }

    /// Now on a clock that does not jump.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.live.now_ns())
    }

    /// Gives a thread the CPUs of an order, checked and read back.
    pub fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        let result = affinity::set(&self.live, order.thread, &order.cpus);
        if order.core.is_none() {
            self.sweep.given_back(order.thread.tid);
        }
        result
    }
}

/// What a thread may use now; `None` when it has ended.
pub(crate) fn bounds_of(
    kernel: &dyn Kernel,
    cpusets: &mut Cpusets,
    thread: ThreadId,
) -> Result<Option<Bounds>, Errno> {
    let Some(mask) = affinity::mask(kernel, thread)? else {
        return Ok(None);
    };
    let cpus = (*cpusets.cpus_of(&format!("proc/{}", thread.tid))).clone();
    Ok(Some(Bounds { mask, cpus }))
}
