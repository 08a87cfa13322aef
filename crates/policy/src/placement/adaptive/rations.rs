//! How many pages may follow their use, for processes whose credit does not pay for all of their memory.

use std::collections::BTreeMap;

use numaherd_world::ProcessId;

use super::action::{Follow, Ordered};

/// Pages of each such process that its paging may order in all.
#[derive(Default)]
pub(super) struct Rations(BTreeMap<ProcessId, u64>);

impl Rations {
    /// Adds what an action lets follow. Where that is all, there is no limit any more.
    pub(super) fn give(&mut self, followed: &[Follow]) {
        for follow in followed.iter().filter(|follow| follow.is_by_use()) {
            match follow.ordered {
                Ordered::AsUsed(Some(most)) => *self.0.entry(follow.process).or_default() += most,
                _ => drop(self.0.remove(&follow.process)),
            }
        }
    }

    /// Whether a process has a limit: not all of its memory was paid for.
    pub(super) fn limits(&self, process: ProcessId) -> bool {
        self.0.contains_key(&process)
    }

    /// See [`crate::policy::Place::rations`].
    pub(super) fn all(&self) -> Vec<(ProcessId, u64)> {
        let rations = self.0.iter();
        rations.map(|(&process, &pages)| (process, pages)).collect()
    }

    pub(super) fn retain(&mut self, is_there: impl Fn(&ProcessId) -> bool) {
        self.0.retain(|process, _| is_there(process));
    }
}
