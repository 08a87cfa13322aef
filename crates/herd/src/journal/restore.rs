//! Gives back what an instance left that could not do it itself.

use std::path::Path;
use std::sync::Arc;

use numaherd_topology::CpuSet;
use numaherd_world::{AffinityOrder, AffinityResult, ThreadId};

use super::{Journal, Owed};
use crate::error::HerdError;

/// What is known of a thread's mask now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Current {
    /// The thread is there, of that number and birth, and has this mask.
    Mask(CpuSet),
    /// There is no such thread any more.
    Gone,
    /// Its mask cannot be read.
    Unreadable {
        /// What was tried, why it failed, what to do.
        error: String,
    },
}

/// What became of the threads of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Given back.
    pub restored: Vec<ThreadId>,
    /// Had already what was found.
    pub as_found: Vec<ThreadId>,
    /// Ended meanwhile.
    pub gone: u64,
    /// Left alone because someone else has changed the mask since; thread, name, mask.
    pub left_alone: Vec<(ThreadId, String, CpuSet)>,
    /// Could not be given back; thread, name, error. They stay in the journal.
    pub failed: Vec<(ThreadId, String, String)>,
    /// What else is to be said.
    pub messages: Vec<String>,
}

impl Journal {
    /// Gives back every thread that is owed, by the rules of the [module](super). `mask_now` tells a
    /// thread's mask; `apply` sets one.
    ///
    /// # Errors
    /// [`HerdError::Io`] when the journal cannot be written; what was given back stays so.
    pub fn restore(
        &mut self,
        mut mask_now: impl FnMut(ThreadId) -> Current,
        mut apply: impl FnMut(AffinityOrder) -> AffinityResult,
    ) -> Result<Restored, HerdError> {
        let mut report = Restored {
            messages: self.messages.clone(),
            ..Restored::default()
        };
        let mut settled = Vec::new();
        for (&thread, owed) in &self.owed {
            let now = match mask_now(thread) {
                Current::Mask(now) => now,
                Current::Gone => {
                    report.gone += 1;
                    settled.push(thread);
                    continue;
                }
                Current::Unreadable { error } => {
                    let name = owed.entry.name.clone();
                    report.failed.push((thread, name, error));
                    continue;
                }
            };
            if give_back(thread, owed, now, &mut apply, &mut report) {
                settled.push(thread);
            }
        }
        self.settle(&settled)?;
        Ok(report)
    }
}

/// Gives one thread back; returns whether it need not be looked at again.
fn give_back(
    thread: ThreadId,
    owed: &Owed,
    now: CpuSet,
    apply: &mut impl FnMut(AffinityOrder) -> AffinityResult,
    report: &mut Restored,
) -> bool {
    let entry = &owed.entry;
    if now == entry.found || now == entry.back {
        report.as_found.push(thread);
        return true;
    }
    if !owed.masks.contains(&now) {
        report.left_alone.push((thread, entry.name.clone(), now));
        return true;
    }
    let order = AffinityOrder {
        thread,
        core: None,
        cpus: Arc::new(entry.back.clone()),
    };
    match apply(order) {
        // Narrowed to its cpuset, which is what giving back to the kernel means.
        AffinityResult::Done | AffinityResult::Narrowed { .. } => report.restored.push(thread),
        AffinityResult::Gone => report.gone += 1,
        AffinityResult::Failed { error } => {
            report.failed.push((thread, entry.name.clone(), error));
            return false;
        }
    }
    true
}

/// Opens the journal at `path`, gives back all that is owed and closes it: `release` after a kill.
///
/// # Errors
/// As [`Journal::open`] and [`Journal::restore`].
pub fn restore(
    path: &Path,
    boot: &str,
    owner: &str,
    mask_now: impl FnMut(ThreadId) -> Current,
    apply: impl FnMut(AffinityOrder) -> AffinityResult,
) -> Result<Restored, HerdError> {
    let mut journal = Journal::open(path, boot, owner)?;
    let report = journal.restore(mask_now, apply)?;
    journal.close()?;
    Ok(report)
}
