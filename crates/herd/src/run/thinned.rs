//! Which snapshots are recorded, when there are more than anyone could look through.
//!
//! Placed every 10 ms, 16 threads would fill some 2 GB an hour. So if the cadence is shorter than
//! [`Settings::record_interval_ms`]:
//!
//! * an interval with a decision is recorded as it was, with the decision;
//! * the intervals without decisions since the last record are recorded as one: counts summed, shares
//!   averaged by time, the rest as last seen. No count is lost, except for threads that ended meanwhile;
//! * while nothing is decided, such a record is made once per record interval.
//!
//! Decisions on hundreds of threads in every interval would still make gigabytes. So on average no more
//! than [`MOST_PER_SECOND`] threads are recorded per second, apart from the one record of all in each
//! record interval: about a gigabyte an hour. Beyond that, a decision is recorded without its snapshot;
//! its reasons hold what counted.
//!
//! An interval has a decision when something is ordered or undone, a person is told something, or a wish
//! is refused for the first time in the record interval: a policy that insists on what it may not have
//! says so a hundred times a second.
//!
//! A replay sees the recorded intervals: a policy that depends on each interval alone decides as it did
//! in those with decisions; one that keeps averages sees fewer, longer intervals in between. An exact
//! replay needs every interval recorded (`record_interval_ms = 0`).

use std::collections::BTreeSet;
use std::time::Duration;

use numaherd_world::{Snapshot, ThreadId};

use crate::governor::rate::TokenBucket;
use crate::governor::{Governed, Guard};
use crate::settings::Settings;

/// Most threads recorded per second on average, at some 310 bytes each.
const MOST_PER_SECOND: f64 = 800.0;

/// What is to be recorded of an interval.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Snapshots, in order; the last is of this interval, or of this one and those before it.
    pub(super) snapshots: Vec<Snapshot>,
    /// Whether to record its placing.
    pub(super) placing: bool,
}

/// What has been seen but is not recorded yet, and when it will be.
#[derive(Debug)]
pub(super) struct PassedOver {
    /// Time from one record to the next while nothing is decided; `None`: every interval is recorded.
    every_ns: Option<u64>,
    /// What was seen since the last record, as one.
    rest: Option<Snapshot>,
    /// End of the latest interval that was recorded because its time had come, in ns.
    recorded_ns: Option<u64>,
    /// Sequence of the latest recorded snapshot.
    last: u64,
    /// The recorded refusals since then.
    refused: BTreeSet<(ThreadId, Guard)>,
    /// Threads that may be recorded.
    room: TokenBucket,
}

impl PassedOver {
    /// Nothing seen yet. `settings` are resolved.
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            every_ns: every_ns(settings),
            rest: None,
            recorded_ns: None,
            last: 0,
            refused: BTreeSet::new(),
            room: TokenBucket::full(MOST_PER_SECOND, MOST_PER_SECOND, 0),
        }
    }

    /// Sets the cadence by these settings, which are resolved. The caller has recorded the rest before
    /// ([`Self::rest`]).
    pub(super) fn set_cadence(&mut self, settings: &Settings) {
        self.every_ns = every_ns(settings);
    }

    /// What to record now; nothing if the interval is passed over.
    pub(super) fn saw(&mut self, snapshot: &Snapshot, governed: &Governed) -> Recorded {
        let Some(every_ns) = self.every_ns else {
            self.last = snapshot.sequence;
            return Recorded {
                snapshots: vec![snapshot.clone()],
                placing: true,
            };
        };
        let decided = self.is_decided(governed);
        // To the nearest interval.
        let until = snapshot.time_ns.saturating_add(snapshot.interval_ns / 2);
        let due = |since: u64| until >= since.saturating_add(every_ns);
        let is_due = self.recorded_ns.is_none_or(due);
        if is_due {
            self.recorded_ns = Some(snapshot.time_ns);
            self.refused.clear();
        }
        if decided || is_due {
            let refused = governed.refusals.iter().map(|r| (r.thread, r.guard));
            self.refused.extend(refused);
        }
        self.room.advance(snapshot.time_ns);
        let earlier = self.rest.take();
        let snapshots = if decided && self.room.allows() {
            earlier.into_iter().chain([snapshot.clone()]).collect()
        } else {
            let together = match earlier {
                Some(earlier) => earlier.with_later(snapshot),
                None => snapshot.clone(),
            };
            if is_due {
                vec![together]
            } else {
                self.rest = Some(together);
                Vec::new()
            }
        };
        if !snapshots.is_empty() {
            self.last = snapshot.sequence;
        }
        let threads: usize = snapshots.iter().map(|s| s.threads.len()).sum();
        self.room.take(threads as f64);
        Recorded {
            placing: decided || !snapshots.is_empty(),
            snapshots,
        }
    }

    /// What is not recorded yet, as one.
    pub(super) fn rest(&mut self) -> Option<Snapshot> {
        let rest = self.rest.take()?;
        self.last = rest.sequence;
        Some(rest)
    }

    /// Sequence of the latest recorded snapshot.
    pub(super) fn last_recorded(&self) -> u64 {
        self.last
    }

    fn is_decided(&self, governed: &Governed) -> bool {
        let known = |thread, guard| self.refused.contains(&(thread, guard));
        let anew = governed.refusals.iter().any(|r| !known(r.thread, r.guard));
        let ordered = !governed.changes.is_empty() || !governed.undone.is_empty();
        ordered || anew || !governed.notices.is_empty()
    }
}

/// Time from one record to the next while nothing is decided; `None` if every interval is recorded.
fn every_ns(settings: &Settings) -> Option<u64> {
    let every = Duration::from_millis(settings.record_interval_ms);
    let thins = settings.placement_interval(u64::MAX) < every;
    thins.then(|| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX))
}
