//! Carrying out orders by hints: sets a thread's hint, and takes hints back.

use numaherd_world::{AffinityOrder, AffinityResult};

use super::layers::{ANYWHERE, Layers};
use crate::files::Root;
use crate::kernel::{Errno, HintMap, Kernel};

/// The hints of a running scheduler.
#[derive(Debug)]
pub struct Hints {
    pub(super) map: HintMap,
    pub(super) layers: Layers,
}

impl Hints {
    /// Has a thread prefer the place of its core, or none if it is given back. Its affinity stays the same.
    pub(crate) fn carry_out(&self, kernel: &dyn Kernel, order: &AffinityOrder) -> AffinityResult {
        let thread = order.thread;
        let hint = match order.core {
            None => ANYWHERE,
            Some(core) => match self.layers.hint(core) {
                Some(hint) => hint,
                None => {
                    return AffinityResult::Failed {
                        error: format!(
                            "cannot have {thread} prefer CPU {core}: it was not online when the scheduler started; \
                             start numaherd again"
                        ),
                    };
                }
            },
        };
        match kernel.set_hint(&self.map, thread, hint) {
            Ok(true) => AffinityResult::Done,
            Ok(false) => AffinityResult::Gone,
            Err(errno) => AffinityResult::Failed {
                error: format!(
                    "cannot give {thread} the hint {hint}: {errno}: {}",
                    why(errno)
                ),
            },
        }
    }

    /// Takes back the hints of all threads of the machine; gives how many had one.
    pub(crate) fn take_back(&self, kernel: &dyn Kernel, root: &Root) -> u64 {
        let mut taken = 0;
        for pid in root.numbers("proc", "").unwrap_or_default() {
            for tid in root
                .numbers(&format!("proc/{pid}/task"), "")
                .unwrap_or_default()
            {
                let hint = kernel.hint_of(&self.map, tid);
                let has_one = matches!(hint, Ok(Some(hint)) if hint != ANYWHERE);
                let Some(born) = kernel.born(tid).filter(|_| has_one) else {
                    continue;
                };
                let thread = numaherd_world::ThreadId { tid, born };
                let set = kernel.set_hint(&self.map, thread, ANYWHERE);
                taken += u64::from(set == Ok(true));
            }
        }
        taken
    }
}

fn why(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => "permission denied; run as root",
        Errno::INVAL => "Linux 6.9 or newer is needed",
        Errno::NOSYS => "there is no kernel behind a captured tree",
        Errno::MFILE | Errno::NFILE => "raise the limit of open files (ulimit -n)",
        _ => "unexpected; see bpf(2)",
    }
}
