//! What was decided about a thread or about pages, and what came of it: one entry each, the latest of
//! which are kept.
//!
//! A thread that is refused the same again interval after interval is entered once. Pages that go to
//! one node for one process between two snapshots are one entry, whose figures grow.

use std::collections::VecDeque;
use std::sync::Arc;

use numaherd_herd::Guard;
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{ProcessId, ThreadId};

use crate::Did;

/// Entries that are kept.
const MOST: usize = 2_000;

/// A decision and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// Counts up by one from act to act of a run.
    pub number: u64,
    /// When, in ns since the world began.
    pub time_ns: u64,
    /// The thread, or that for which pages were to move.
    pub thread: ThreadId,
    /// Its name then; empty where it was not seen.
    pub name: String,
    /// Its process, where that is known.
    pub process: Option<ProcessId>,
    /// What was to happen.
    pub what: What,
    /// The rule that decided; empty where the governor decided by itself.
    pub rule: String,
    /// Why, in one sentence.
    pub why: String,
    /// What else was considered and why it lost; may be empty.
    pub instead_of: String,
    /// What the governor or the kernel said to it; empty where it was simply done.
    pub said: String,
}

/// What was to happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum What {
    /// A thread was to leave its CPU.
    Thread {
        /// The CPU it was on.
        from: CpuId,
        /// The CPU it was to have; `None` for the kernel's choice.
        to: Option<CpuId>,
        /// What came of it.
        did: Came,
    },
    /// Pages were to go to a node.
    Pages {
        /// Where to.
        to: NodeId,
        /// Base pages moved, as read back.
        moved: u64,
        /// Base pages that were to move and did not.
        left: u64,
        /// What came of it.
        did: Came,
    },
}

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// It was carried out, or tried, or would have been.
    Did(Did),
    /// The governor refused.
    Refused(Guard),
    /// It waits for bandwidth.
    Waits,
}

impl Act {
    /// What came of it.
    pub fn came(&self) -> Came {
        match self.what {
            What::Thread { did, .. } | What::Pages { did, .. } => did,
        }
    }

    /// Whether something is elsewhere for it, or would be were it no dry run.
    pub fn is_move(&self) -> bool {
        match self.came() {
            Came::Did(Did::Planned) => true,
            Came::Did(Did::Moved | Did::Undone | Did::Stolen) => {
                !matches!(self.what, What::Pages { moved: 0, .. })
            }
            _ => false,
        }
    }
}

/// The latest acts.
#[derive(Clone, Debug, Default)]
pub struct Acts {
    latest: VecDeque<Arc<Act>>,
    /// How many there were.
    number: u64,
}

impl Acts {
    /// The latest, oldest first.
    pub fn latest(&self) -> impl DoubleEndedIterator<Item = &Arc<Act>> + ExactSizeIterator {
        self.latest.iter()
    }

    /// How many there were in all.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The act of this number, if it is still kept.
    pub fn get(&self, number: u64) -> Option<&Arc<Act>> {
        let first = self.number - self.latest.len() as u64;
        let at = number.checked_sub(first)?;
        self.latest.get(usize::try_from(at).ok()?)
    }

    /// Enters an act, under the next number.
    pub(super) fn add(&mut self, mut act: Act) -> Arc<Act> {
        act.number = self.number;
        self.number += 1;
        if self.latest.len() == MOST {
            self.latest.pop_front();
        }
        let act = Arc::new(act);
        self.latest.push_back(act.clone());
        act
    }

    /// Changes the act of this number, if it is still kept.
    pub(super) fn change(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Act),
    ) -> Option<Arc<Act>> {
        let first = self.number - self.latest.len() as u64;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        let act = self.latest.get_mut(at)?;
        change(Arc::make_mut(act));
        Some(act.clone())
    }
}
