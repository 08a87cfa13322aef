//! What a unit at the TLBs reports by itself: pages that should be moved, and how much threads share
//! (IPM §4.2, §4.3).
//!
//! Unlike a sample, a notice is a finding: the unit has weighed who uses the page (IPM, Eq. 6 to 8).

use numaherd_topology::NodeId;
use serde::{Deserialize, Serialize};

use crate::snapshot::{ProcessId, ThreadId};

/// A page that another node than its own uses intensely (IPM, Eq. 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When it was found, in ns since the world began.
    pub time_ns: u64,
    /// The thread whose use of the page led to it.
    pub thread: ThreadId,
    /// The process whose page it is.
    pub process: ProcessId,
    /// Its number: virtual address / bytes of a base page.
    pub page: u64,
    /// The node that it is on.
    pub from: NodeId,
    /// The node that uses it.
    pub to: NodeId,
}

/// How much the threads of a process shared pages in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// Each pair that shared anything, once, the lower thread first, ascending; with how much, in
    /// the unit of the source (for IPM the Sharing Matrix's, 2^`CR_shift` cycles of residency).
    pub pairs: Vec<(ThreadId, ThreadId, u64)>,
}

impl Sharing {
    /// From cells in any order; those of one pair, given either way round, are added up. Cells of a
    /// thread with itself are left out.
    pub fn of(cells: impl IntoIterator<Item = (ThreadId, ThreadId, u64)>) -> Self {
        let mut pairs: Vec<_> = cells
            .into_iter()
            .filter(|&(one, other, amount)| one != other && amount > 0)
            .map(|(one, other, amount)| (one.min(other), one.max(other), amount))
            .collect();
        pairs.sort_unstable();
        pairs.dedup_by(|next, kept| {
            let is_same = (next.0, next.1) == (kept.0, kept.1);
            if is_same {
                kept.2 = kept.2.saturating_add(next.2);
            }
            is_same
        });
        Self { pairs }
    }

    /// How much two threads shared.
    pub fn between(&self, one: ThreadId, other: ThreadId) -> u64 {
        let pair = (one.min(other), one.max(other));
        let at = self.pairs.binary_search_by_key(&pair, |&(a, b, _)| (a, b));
        at.map_or(0, |at| self.pairs[at].2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_a_pair_are_added_up_whichever_way_round_they_are() {
        let thread = |tid| ThreadId { tid, born: 0 };
        let (a, b, c) = (thread(1), thread(2), thread(3));
        let sharing = Sharing::of([
            (b, a, 5),
            (a, a, 100),
            (c, a, 0),
            (a, b, 2),
            (b, c, u64::MAX),
            (c, b, 1),
        ]);
        assert_eq!(sharing.pairs, [(a, b, 7), (b, c, u64::MAX)]);
        assert_eq!((sharing.between(b, a), sharing.between(a, c)), (7, 0));
    }
}
