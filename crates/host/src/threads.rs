//! The affinities of single threads, without a world around them: needed to give back after a kill.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuSet;
use numaherd_world::{Affinities, AffinityOrder, AffinityResult, Bounds, Effort, Search, ThreadId};

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
    /// The threads whose /proc is below `root`; `/` is the live machine.
    pub fn new(root: &Path) -> Self {
        let root = Root::new(root);
        Self {
            sweep: Sweep::new(root.clone()),
            live: Live { root },
        }
    }

    fn online(&self) -> CpuSet {
        // If unknown, no CPU counts as offline.
        let all = || (0..=u32::from(u16::MAX)).map(Into::into).collect();
        self.live.root.online_cpus().unwrap_or_else(all)
    }
}

impl Affinities for Threads {
    fn bounds_of(&mut self, thread: ThreadId) -> Result<Option<Bounds>, String> {
        let online = self.online();
        let cpusets = self.sweep.cpusets(&online);
        bounds_of(&self.live, cpusets, thread)
            .map_err(|errno| format!("cannot read the affinity of {thread}: {errno}"))
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Search {
        let online = self.online();
        let wanted = Wanted {
            masks,
            since,
            effort: Effort::Thorough,
            is_watched: &|_| false,
        };
        self.sweep.find(&self.live, &online, &wanted)
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        let online = self.online();
        let result = set(&self.live, self.sweep.cpusets(&online), order);
        if order.core.is_none() {
            self.sweep.given_back(order.thread.tid);
        }
        result
    }

    fn let_masks_settle(&mut self) {
        self.live.pause(BETWEEN_LOOKS);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.live.now_ns())
    }
}

/// How often mask and cpuset are read until they belong together, and the wait in between (chosen here): the kernel has
/// then finished with a cpuset of some thousand threads.
pub(crate) const MOST_LOOKS: u32 = 8;
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// How often a mask is set while the cpuset changes (chosen here).
const MOST_TRIES: u32 = 3;

/// Gives a thread the CPUs of an order. If its cpuset is widened meanwhile, Linux may leave it what the mask has in the
/// former cpuset, until the next change: `__sched_setaffinity` in kernel/sched/syscalls.c reads the cpuset before it
/// sets the mask, and then only checks whether the cpuset was narrowed. The mask is then set again.
pub(crate) fn set(
    kernel: &dyn Kernel,
    cpusets: &mut Cpusets,
    order: &AffinityOrder,
) -> AffinityResult {
    let mut tries = 1;
    loop {
        let result = affinity::set(kernel, order.thread, &order.cpus);
        let AffinityResult::Narrowed { .. } = result else {
            return result;
        };
        let bounds = bounds_of(kernel, cpusets, order.thread);
        let is_all_that_is_left =
            |now: Bounds| numaherd_world::is_mask(&now.mask, &order.cpus, &now.cpus);
        if tries == MOST_TRIES || bounds.is_ok_and(|now| now.is_none_or(is_all_that_is_left)) {
            return result;
        }
        tries += 1;
    }
}

/// The mask of a thread and the CPUs of its cpuset, as far as they belong together.
pub(crate) struct Look {
    pub(crate) bounds: Bounds,
    /// Whether the cpuset stayed the same while the mask was read, and has all of the mask's CPUs. If not, the kernel
    /// may be yet to set the mask anew.
    pub(crate) is_settled: bool,
}

/// Looks once at a thread with this folder in /proc; `mask` reads its mask.
pub(crate) fn look<E>(
    kernel: &dyn Kernel,
    cpusets: &mut Cpusets,
    folder: &str,
    mask: impl FnOnce() -> Result<Option<CpuSet>, E>,
) -> Result<Option<Look>, E> {
    let changes = cpusets.changes();
    let number = cpusets.number_of(folder);
    cpusets.cpus(number);
    let Some(mask) = mask()? else {
        return Ok(None);
    };
    cpusets.begin_again(kernel.now_ns());
    let number = cpusets.number_of(folder);
    let cpus = (*cpusets.cpus(number)).clone();
    let is_settled = cpusets.changes() == changes && mask.is_subset(&cpus);
    let earlier = cpusets.earlier(number);
    let bounds = Bounds {
        mask,
        cpus,
        earlier,
    };
    Ok(Some(Look { bounds, is_settled }))
}

/// What a thread may use now; `None` when it has ended.
pub(crate) fn bounds_of(
    kernel: &dyn Kernel,
    cpusets: &mut Cpusets,
    thread: ThreadId,
) -> Result<Option<Bounds>, Errno> {
    let folder = format!("proc/{}", thread.tid);
    let mut looks = 0;
    loop {
        cpusets.refresh(kernel.now_ns());
        let mask = || affinity::mask(kernel, thread);
        let Some(Look { bounds, is_settled }) = look(kernel, cpusets, &folder, mask)? else {
            return Ok(None);
        };
        looks += 1;
        if is_settled {
            return Ok(Some(bounds));
        }
        if looks == MOST_LOOKS {
            // It keeps changing: the mask may be what any recent cpuset left of one.
            let cpus = bounds.mask.clone();
            return Ok(Some(Bounds { cpus, ..bounds }));
        }
        kernel.pause(BETWEEN_LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Mutex;

    use super::*;
    use crate::fake;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// A kernel that sets the mask of its one thread anew only in the pause after a change of cpuset, and then changes
    /// the cpuset once more if there is a next change.
    #[derive(Debug)]
    struct Late {
        file: PathBuf,
        mask: Mutex<CpuSet>,
        masks: Mutex<Vec<(&'static str, &'static str)>>,
    }

    impl Kernel for Late {
        fn affinity(&self, _: u32, words: &mut Vec<u64>) -> Result<(), Errno> {
            words.clear();
            words.extend(self.mask.lock().unwrap().as_words());
            Ok(())
        }

        fn born(&self, _: u32) -> Option<u64> {
            Some(70)
        }

        fn pause(&self, _: Duration) {
            let (mask, cpuset) = self.masks.lock().unwrap().pop().expect("it settles");
            *self.mask.lock().unwrap() = cpus(mask);
            fs::write(&self.file, cpuset).unwrap();
        }
    }

    #[test]
    fn mask_and_cpuset_of_a_thread_belong_together_while_the_cpuset_changes() {
        let (folder, root) = fake::root();
        let (own, cgroup) = (
            folder.path().join("proc/7"),
            folder.path().join("sys/fs/cgroup/a"),
        );
        for folder in [&own, &cgroup] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(own.join("cgroup"), "0::/a\n").unwrap();
        let file = cgroup.join("cpuset.cpus.effective");
        fs::write(&file, "0-1").unwrap();
        let mut cpusets = Cpusets::new(root);
        cpusets.begin(&cpus("0-7"));
        let number = cpusets.number_of("proc/7");
        cpusets.cpus(number);
        // It was given CPU 3, which its former cpuset lacked: the kernel has left it all of that cpuset.
        fs::write(&file, "0-7").unwrap();
        let kernel = Late {
            file,
            mask: Mutex::new(cpus("0-1")),
            masks: Mutex::new(vec![("3", "0-3"), ("3", "0-3")]),
        };
        cpusets.begin(&cpus("0-7"));
        let thread = ThreadId { tid: 7, born: 70 };
        let bounds = bounds_of(&kernel, &mut cpusets, thread).unwrap().unwrap();
        assert_eq!((bounds.mask, bounds.cpus), (cpus("3"), cpus("0-3")));
    }
}
