//! From whom a process descends, as far as it shows.
//!
//! A thread that is started gets the mask of the thread that starts it, and keeps it. Whoever sets masks
//! therefore has *heirs*: threads that were started with one of his. They may be in another process, beyond
//! what he looks after, and orphaned, so that no parent tells of them.

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
    /// Its cgroups; `None` where it is in none but the root, which everyone is in.
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
    /// Only those threads are sure to be found that are in a process which is new since the last search, or which had such
    /// threads then.
    Quick,
    /// All are found.
    Thorough,
}

/// What a search for threads with certain masks came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The threads that were found.
    pub found: Vec<Bound>,
    /// Whether nobody with such a mask can have been missed but those that whoever was found has started since. It is
    /// false where threads ended before they could be looked at: those that they had started may have such a mask too,
    /// and may not be orphans yet.
    pub is_complete: bool,
}

impl Default for Search {
    /// Nobody has such a mask.
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
    /// From whom its process descends.
    pub kin: Kinship,
    /// Whether the parent of its process may be another than the one that started it.
    pub is_orphan: bool,
    /// Its session was there at this time, on the clock of births: the birth of the oldest process in it. Nobody can
    /// join a session, only begin one.
    pub session_born: u64,
}
