//! The affinities of single threads, without a world around them: what giving back after a kill
//! needs.

use std::path::Path;

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, Bounds, ThreadId};

use crate::affinity;
use crate::cpusets::Cpusets;
use crate::files::Root;
use crate::kernel::{Errno, Kernel, Live};

/// The threads under a root.
#[derive(Debug)]
pub struct Threads {
    live: Live,
    cpusets: Cpusets,
}

impl Threads {
    /// The threads whose /proc is below `root`; for the live machine that is `/`.
    pub fn new(root: &Path) -> Self {
        let root = Root::new(root);
        Self {
            cpusets: Cpusets::new(root.clone()),
            live: Live { root },
        }
    }

    /// What a thread may use now; `None` when it has ended.
    ///
    /// # Errors
    /// The kernel does not tell; a sentence with why.
    pub fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        let Self { live, cpusets } = self;
        let online = live.root.online_cpus();
        bounds_of(live, cpusets, online.as_ref(), thread)
            .map_err(|errno| format!("cannot read the affinity of {thread}: {errno}"))
    }

    /// Gives a thread the CPUs of an order, checked and read back.
    pub fn set(&self, order: &AffinityOrder) -> AffinityResult {
        affinity::set(&self.live, order.thread, &order.cpus)
    }
}

/// What a thread may use now, its cpuset read anew; `None` when it has ended. Where it is not known which CPUs
/// are `online` those of its mask count.
pub(crate) fn bounds_of(
    kernel: &dyn Kernel,
    cpusets: &mut Cpusets,
    online: Option<&CpuSet>,
    thread: ThreadId,
) -> Result<Option<Bounds>, Errno> {
    let Some(mask) = affinity::mask(kernel, thread)? else {
        return Ok(None);
    };
    cpusets.begin(online.unwrap_or(&mask));
    let cpus = (*cpusets.cpus_of(&format!("proc/{}", thread.tid))).clone();
    Ok(Some(Bounds { mask, cpus }))
}
