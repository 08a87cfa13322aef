//! From which processes a process descends, as far as it shows.
//!
//! A new thread inherits the mask of the thread that starts it, and keeps it. So a program that sets masks has *heirs*:
//! threads that were started with one of its masks. They may be in another process, beyond what the program manages, and
//! orphaned, so that no parent leads to them.

use serde::{Deserialize, Serialize};

use crate::bounds::Bounds;
use crate::snapshot::{ProcessId, ThreadId};

/// What a process has from its ancestors. A number that is 0 is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kinship {
    /// The number of its parent.
    pub parent: u32,
    /// The number of its process group.
    pub group: u32,
    /// The number of its session.
    pub session: u32,
    /// Its cgroups; `None` where it is in none but the root, which every process is in.
    pub cgroup: Option<String>,
    /// The number of its user.
    pub user: Option<u32>,
}

impl Kinship {
    /// Whether two processes may have an ancestor in common: the same session, process group or cgroup. In
    /// the root cgroup, which says nothing, the user counts.
    pub fn may_be_of(&self, other: &Self) -> bool {
        let same = |own: u32, other: u32| own != 0 && own == other;
        let of_user = || self.user.is_some() && self.user == other.user;
        same(self.session, other.session)
            || same(self.group, other.group)
            || self.cgroup == other.cgroup && (self.cgroup.is_some() || of_user())
    }
}

/// How far a search for threads with certain masks goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Threads are sure to be found only in processes that are new since the last search, or that had such threads then.
    Quick,
    /// All are found.
    Thorough,
}

/// The result of a search for threads with certain masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The threads that were found.
    pub found: Vec<Bound>,
    /// Whether no thread with such a mask can have been missed, except those that the threads found have started since. It
    /// is false where threads ended before they could be looked at: threads that they had started may have such a mask
    /// too, and may not be orphans yet.
    pub is_complete: bool,
}

impl Default for Search {
    /// No thread has such a mask.
    fn default() -> Self {
        Self {
            found: Vec::new(),
            is_complete: true,
        }
    }
}

/// A thread anywhere on the machine that has a certain mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Which thread.
    pub thread: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// The thread's name.
    pub name: String,
    /// What it may use.
    pub bounds: Bounds,
    /// From which processes its process descends.
    pub kin: Kinship,
    /// Whether the parent of its process may be another process than the one that started it.
    pub is_orphan: bool,
    /// A time at which its session existed, on the clock of births: the birth of the oldest process in it. A process
    /// cannot join a session, only begin one.
    pub session_born: u64,
}
