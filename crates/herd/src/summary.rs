//! The sums of a run and its ending: for the last lines of `run` and for comparisons.

use std::collections::BTreeMap;

use numaherd_policy::losses::{Basis, Estimate, Losses, Range, Withheld};
use numaherd_world::{Counts, Enforcement, PageFailure, Snapshot};
use serde::{Deserialize, Serialize};

use crate::governor::{Guard, Refusal};
use crate::ledger::PagingTick;

/// Why a run ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case")]
pub enum Ending {
    /// All requested intervals have been run.
    Intervals,
    /// The requested time is over.
    Length,
    /// Someone asked to stop.
    Stopped,
    /// The world ended: what was watched is over.
    World,
    /// The world could not be seen any more.
    Failed {
        /// What was tried, on what, why it failed, what to do.
        error: String,
    },
}

/// Figures summed over a run. Pages are base pages.
///
/// The loop sums them while it runs; a reader of a ledger without an end sums them from its lines. Both use the same
/// functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Placement intervals seen.
    pub intervals: u64,
    /// The world's own time at the last snapshot, in ns.
    pub duration_ns: u64,
    /// Threads that orders forced off their CPU. A mask that contains the CPU on which the thread runs does not count.
    pub thread_moves: u64,
    /// Thread moves undone because they had made things worse.
    pub undone: u64,
    /// Threads given to idle nodes because they had to wait where they were held.
    #[serde(default)]
    pub stolen: u64,
    /// Thread moves that the governor let through, carried out or not, undone ones included. In a dry run no thread
    /// moves, so a move wanted in several intervals counts in each.
    pub planned_thread_moves: u64,
    /// Pages in orders, carried out or not: the sum of [`PagingTick::ordered_pages`].
    pub planned_pages: u64,
    /// Pages moved, as read back.
    pub pages_moved: u64,
    /// Pages that were to move but did not, by the kernel's reason.
    pub pages_failed: BTreeMap<PageFailure, u64>,
    /// Counts of all threads; in the ledger, members of the same object.
    #[serde(flatten)]
    pub counted: CountSums,
    /// Plan entries refused, by guard.
    pub refusals: BTreeMap<Guard, u64>,
    /// Lost cores, by what they are estimated from; nothing is added while all is idle or nothing is known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<Basis, LostSums>,
    /// Seconds in which the policy left what it could recover, by what kept it from acting.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub withheld: BTreeMap<Withheld, f64>,
    /// Threads whose affinities were given back, or hints taken back, in pauses and at the end; `None` if the ledger
    /// says nothing.
    pub restored: Option<u64>,
}

/// Sums of threads' counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountSums {
    /// Instructions, where counted.
    pub instructions: u64,
    /// Cache lines fetched from memory, where counted.
    pub lines: u64,
    /// Of the lines whose node was counted, those from the core's own node.
    pub local: u64,
    /// Of the lines whose node was counted, those from other nodes.
    pub remote: u64,
    /// Cycles in which requests to the uncore were outstanding, where both this and the requests were counted.
    #[serde(default)]
    pub uncore_busy_cycles: u64,
    /// Such requests.
    #[serde(default)]
    pub uncore_requests: u64,
}

/// Lost cores, summed over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LostSums {
    /// Seconds covered by the sum.
    pub seconds: f64,
    /// CPU seconds lost.
    pub lost: Range,
    /// Of these seconds, those in which it was known what is recoverable.
    pub searched_seconds: f64,
    /// CPU seconds that another placement would have recovered in those.
    pub recoverable: Range,
}

/// A finished run: what it was, why it ended, and its totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The policy's name; if it was changed, the last one's.
    pub policy: String,
    /// Whether the run was a dry run at its end.
    pub dry_run: bool,
    /// How placements were carried out.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub enforce: Enforcement,
    /// Why it ended.
    pub ending: Ending,
    /// Its figures; in the ledger, members of the same object.
    #[serde(flatten)]
    pub totals: Totals,
    /// What a person should know, each sentence once.
    pub notices: Vec<String>,
}

fn is_usual(enforcement: &Enforcement) -> bool {
    *enforcement == Enforcement::default()
}

impl Summary {
    pub(crate) fn new(policy: &str, dry_run: bool, enforce: Enforcement) -> Self {
        Self {
            policy: policy.to_owned(),
            dry_run,
            enforce,
            ending: Ending::Stopped,
            totals: Totals {
                restored: Some(0),
                ..Totals::default()
            },
            notices: Vec::new(),
        }
    }
}

impl CountSums {
    /// Adds what was counted of a thread in an interval.
    pub fn add_counts(&mut self, counts: &Counts) {
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

    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.instructions, other.instructions);
        add(&mut self.lines, other.lines);
        add(&mut self.local, other.local);
        add(&mut self.remote, other.remote);
        add(&mut self.uncore_busy_cycles, other.uncore_busy_cycles);
        add(&mut self.uncore_requests, other.uncore_requests);
    }

    /// Lines with a known node.
    pub fn known_lines(&self) -> u64 {
        self.local.saturating_add(self.remote)
    }

    /// Share of lines that came from the core's own node; `None` if not counted.
    pub fn local_access_ratio(&self) -> Option<f64> {
        let all = self.known_lines();
        (all > 0).then(|| self.local as f64 / all as f64)
    }

    /// Lines fetched from memory per 1000 instructions; `None` if nothing was counted.
    pub fn miss_rate(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.lines as f64 * 1000.0 / self.instructions as f64)
    }

    /// Cycles per request to the uncore (BRM §3.1); `None` if not counted.
    pub fn uncore_penalty(&self) -> Option<f64> {
        let (busy, requests) = (self.uncore_busy_cycles, self.uncore_requests);
        (requests > 0).then(|| busy as f64 / requests as f64)
    }
}

impl Totals {
    /// Adds a snapshot that stands for this many intervals.
    pub fn add_snapshot(&mut self, snapshot: &Snapshot, intervals: u64) {
        add(&mut self.intervals, intervals);
        self.duration_ns = snapshot.time_ns;
        for counts in snapshot.threads.iter().filter_map(|t| t.counts.as_ref()) {
            self.counted.add_counts(counts);
        }
    }

    /// Adds a paging tick.
    pub fn add_paging(&mut self, tick: &PagingTick) {
        add(&mut self.planned_pages, tick.ordered_pages);
        self.add_refusals(&tick.refusals);
        for outcome in &tick.outcomes {
            add(&mut self.pages_moved, outcome.moved);
            for (&failure, &pages) in &outcome.failed {
                add(self.pages_failed.entry(failure).or_default(), pages);
            }
        }
    }

    /// Adds what was lost in an interval.
    pub fn add_losses(&mut self, losses: &Losses, interval_ns: u64) {
        let Estimate::Known(known) = &losses.estimate else {
            return;
        };
        let seconds = interval_ns as f64 / 1e9;
        if let Some(why) = losses.withheld {
            *self.withheld.entry(why).or_default() += seconds;
        }
        let sums = self.lost.entry(known.from).or_default();
        sums.seconds += seconds;
        sums.lost.add(&known.lost, seconds);
        if let Some(recoverable) = &known.recoverable {
            sums.searched_seconds += seconds;
            sums.recoverable.add(recoverable, seconds);
        }
    }

    /// Adds refusals.
    pub fn add_refusals(&mut self, refusals: &[Refusal]) {
        for refusal in refusals {
            *self.refusals.entry(refusal.guard).or_default() += 1;
        }
    }
}

/// Adds to a sum; saturates if a counter has gone mad.
fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}
