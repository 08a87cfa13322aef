//! What a run came to, in figures: from its last record, or counted from the lines of a ledger that
//! has none.

use std::collections::BTreeMap;

use numaherd_herd::{Guard, Summary};
use numaherd_world::{PageFailure, PageOutcome, Snapshot};
use serde::Serialize;

use crate::deeds::Deed;

/// What a run came to. Pages are base pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Placement intervals seen.
    pub intervals: u64,
    /// The world's time at the last snapshot, in ns.
    pub duration_ns: u64,
    /// Threads that had to leave their CPU by order.
    pub thread_moves: u64,
    /// Thread moves undone because they had made things worse; counted in `thread_moves` too.
    pub undone: u64,
    /// Threads given to idle nodes because they were held where they had to wait; counted in
    /// `thread_moves` too.
    pub stolen: u64,
    /// Thread moves that the governor let through, carried out or not.
    pub planned_thread_moves: u64,
    /// Pages that were asked for by orders, carried out or not.
    pub planned_pages: u64,
    /// Pages moved, as read back.
    pub pages_moved: u64,
    /// Pages that were to move and did not, by the kernel's reason.
    pub pages_failed: BTreeMap<PageFailure, u64>,
    /// Instructions of all threads, where counted.
    pub instructions: u64,
    /// Cache lines fetched from memory by all threads, where counted.
    pub lines: u64,
    /// Of the lines whose node was counted, those from the core's own node.
    pub local: u64,
    /// Of the lines whose node was counted, those from other nodes.
    pub remote: u64,
    /// Cycles in which requests to the uncore were outstanding, of all threads, where both this and
    /// the requests were counted.
    pub uncore_busy_cycles: u64,
    /// Such requests.
    pub uncore_requests: u64,
    /// Plan entries refused, by guard.
    pub refusals: BTreeMap<Guard, u64>,
    /// Affinities that were given back at the end; `None` where the ledger does not say.
    pub restored: Option<u64>,
}

impl Totals {
    /// Share of lines that came from the core's own node; `None` where that was not counted.
    pub fn local_access_ratio(&self) -> Option<f64> {
        let all = self.local.saturating_add(self.remote);
        (all > 0).then(|| self.local as f64 / all as f64)
    }

    /// Lines fetched from memory per 1000 instructions; `None` where nothing was counted.
    pub fn miss_rate(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.lines as f64 * 1000.0 / self.instructions as f64)
    }

    /// Cycles per request to the uncore, over all threads; `None` where that was not counted.
    pub fn uncore_penalty(&self) -> Option<f64> {
        let (busy, requests) = (self.uncore_busy_cycles, self.uncore_requests);
        (requests > 0).then(|| busy as f64 / requests as f64)
    }

    /// Takes in a snapshot, which stands for the intervals since the one before it that is recorded.
    pub(crate) fn saw(&mut self, snapshot: &Snapshot, before: Option<&Snapshot>) {
        let passed = before.map_or(1, |before| {
            snapshot.sequence.saturating_sub(before.sequence)
        });
        add(&mut self.intervals, passed);
        self.duration_ns = snapshot.time_ns;
        for counts in snapshot.threads.iter().filter_map(|t| t.counts.as_ref()) {
            add(&mut self.instructions, counts.instructions);
            add(&mut self.lines, counts.lines);
            if let (Some(local), Some(remote)) = (counts.local, counts.remote) {
                add(&mut self.local, local);
                add(&mut self.remote, remote);
            }
            let uncore = counts.uncore_busy_cycles.zip(counts.uncore_requests);
            if let Some((busy, requests)) = uncore {
                add(&mut self.uncore_busy_cycles, busy);
                add(&mut self.uncore_requests, requests);
            }
        }
    }

    /// Takes in what an order came to.
    pub(crate) fn ordered(&mut self, deed: &Deed<'_>) {
        let moves = deed.leaves && !deed.is_back;
        self.planned_thread_moves += u64::from(moves);
        self.thread_moves += u64::from(deed.took && moves);
        self.undone += u64::from(deed.took && deed.is_undo);
        self.stolen += u64::from(deed.took && deed.is_stolen);
    }

    pub(crate) fn paged(&mut self, outcome: &PageOutcome) {
        add(&mut self.pages_moved, outcome.moved);
        for (&failure, &pages) in &outcome.failed {
            add(self.pages_failed.entry(failure).or_default(), pages);
        }
    }

    pub(crate) fn refused(&mut self, guard: Guard) {
        *self.refusals.entry(guard).or_default() += 1;
    }
}

impl From<&Summary> for Totals {
    fn from(summary: &Summary) -> Self {
        Self {
            intervals: summary.intervals,
            duration_ns: summary.duration_ns,
            thread_moves: summary.thread_moves,
            undone: summary.undone,
            stolen: summary.stolen,
            planned_thread_moves: summary.planned_thread_moves,
            planned_pages: summary.planned_pages,
            pages_moved: summary.pages_moved,
            pages_failed: summary.pages_failed.clone(),
            instructions: summary.instructions,
            lines: summary.lines,
            local: summary.local,
            remote: summary.remote,
            uncore_busy_cycles: summary.uncore_busy_cycles,
            uncore_requests: summary.uncore_requests,
            refusals: summary.refusals.clone(),
            restored: Some(summary.restored),
        }
    }
}

/// Adds a figure of a ledger's to a sum, which stays at the end of its range when the figure is mad.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// The sum of figures of a ledger's, at most the end of its range.
pub(crate) fn sum(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}
