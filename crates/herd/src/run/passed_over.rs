//! Which snapshots are recorded, where there are more than anyone could look through.
//!
//! Placed every 10 ms, 16 threads would fill some 2 GB an hour. So where the cadence is shorter than
//! [`Settings::record_interval_ms`]:
//!
//! * an interval in which something was decided is recorded as it was, with what was decided;
//! * the intervals before it in which nothing was, since the last record, are recorded as one: counts
//!   summed, shares averaged by time, the rest as seen last. Nothing that was counted is lost, but for
//!   threads that ended meanwhile;
//! * when nothing is decided, such a record is made once in the record interval.
//!
//! Hundreds of threads that are decided on in every interval would still be gigabytes. So no more than
//! [`MOST_PER_SECOND`] threads are recorded in a second on average, but for the one record of all in the
//! record interval: about a gigabyte an hour. Beyond that what was decided is recorded without what it
//! was decided on; what counted is in its reasons.
//!
//! Something was decided when anything is ordered or undone or a person is told something, and when a
//! wish is refused for the first time in the record interval: a policy that insists on what it may not
//! have says so a hundred times a second.
//!
//! A replay sees the intervals that were recorded: a policy that goes by each interval alone decides in
//! those of decisions as it did; one that keeps averages has had fewer, longer intervals in between. Who
//! wants to replay to the bit records every interval (`record_interval_ms = 0`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use numaherd_world::{Counts, Process, Sharing, Snapshot, Thread, ThreadId};

use crate::governor::rate::TokenBucket;
use crate::governor::{Governed, Guard};
use crate::settings::Settings;

/// Most threads that are recorded in a second on average, at some 350 bytes each.
const MOST_PER_SECOND: f64 = 800.0;

/// What is to be recorded of an interval.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    /// Snapshots, in order; the last is of this interval, or of this one and those before it.
    pub(super) snapshots: Vec<Snapshot>,
    /// Whether what was made of it is.
    pub(super) placing: bool,
}

/// What has been seen and is not recorded yet, and when it will be.
#[derive(Debug)]
pub(super) struct PassedOver {
    /// Time from one record to the next while nothing is decided; `None`: every interval is recorded.
    every_ns: Option<u64>,
    /// What was seen since the last record, as one.
    rest: Option<Snapshot>,
    /// End of the latest interval that was recorded because its time had come, in ns.
    recorded_ns: Option<u64>,
    /// Sequence of the latest snapshot that was recorded.
    last: u64,
    /// What was refused since, and recorded.
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

    /// From now on by these settings, which are resolved. What has not been recorded yet has been asked
    /// for before ([`Self::rest`]).
    pub(super) fn set_cadence(&mut self, settings: &Settings) {
        self.every_ns = every_ns(settings);
    }

    /// What is to be recorded now; nothing when the interval is passed over.
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
                Some(earlier) => as_one(earlier, snapshot),
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

    /// Sequence of the latest snapshot that was recorded.
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

/// Time from one record to the next while nothing is decided; `None` where every interval is recorded.
fn every_ns(settings: &Settings) -> Option<u64> {
    let every = Duration::from_millis(settings.record_interval_ms);
    let thins = settings.placement_interval(u64::MAX) < every;
    thins.then(|| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX))
}

/// Two spans of time as one: what happened in both, and how it was at the end of the later one.
fn as_one(earlier: Snapshot, later: &Snapshot) -> Snapshot {
    let spans = (earlier.interval_ns as f64, later.interval_ns as f64);
    let thread = |thread: &Thread| match earlier.thread(thread.id) {
        Some(before) => thread_as_one(before, thread, spans),
        None => thread_since(thread, spans),
    };
    let process = |process: &Process| {
        let before = earlier.process(process.id);
        Process {
            sharing: both_shared(before.and_then(|b| b.sharing.as_ref()), process),
            residency: process
                .residency
                .clone()
                .or_else(|| before?.residency.clone()),
            ..process.clone()
        }
    };
    let mut gaps = earlier.gaps.clone();
    gaps.extend(later.gaps.iter().cloned());
    let mut said = BTreeSet::new();
    gaps.retain(|gap| said.insert(gap.clone()));
    Snapshot {
        interval_ns: earlier.interval_ns.saturating_add(later.interval_ns),
        threads: later.threads.iter().map(thread).collect(),
        processes: later.processes.iter().map(process).collect(),
        gaps,
        ..later.clone()
    }
}

fn thread_as_one(earlier: &Thread, later: &Thread, spans: (f64, f64)) -> Thread {
    let ran = (earlier.cpu_share * spans.0, later.cpu_share * spans.1);
    let counts = match (&earlier.counts, &later.counts) {
        (Some(earlier), Some(later)) => Some(counts_as_one(earlier, later, ran)),
        (one, other) => one.or(*other),
    };
    Thread {
        cpu_share: mean((earlier.cpu_share, later.cpu_share), spans),
        wait_share: mean((earlier.wait_share, later.wait_share), spans),
        counts,
        ..later.clone()
    }
}

/// A thread that was not there before.
fn thread_since(later: &Thread, spans: (f64, f64)) -> Thread {
    Thread {
        cpu_share: mean((0.0, later.cpu_share), spans),
        wait_share: mean((0.0, later.wait_share), spans),
        ..later.clone()
    }
}

/// Both counts; what was not counted in one of them is not known of both. `ran` is how long the thread
/// did, each time.
fn counts_as_one(earlier: &Counts, later: &Counts, ran: (f64, f64)) -> Counts {
    let both = |earlier: Option<u64>, later: Option<u64>| Some(earlier?.saturating_add(later?));
    Counts {
        instructions: earlier.instructions.saturating_add(later.instructions),
        cycles: both(earlier.cycles, later.cycles),
        lines: earlier.lines.saturating_add(later.lines),
        local: both(earlier.local, later.local),
        remote: both(earlier.remote, later.remote),
        uncore_busy_cycles: both(earlier.uncore_busy_cycles, later.uncore_busy_cycles),
        uncore_requests: both(earlier.uncore_requests, later.uncore_requests),
        counted_share: mean((earlier.counted_share, later.counted_share), ran),
    }
}

fn both_shared(earlier: Option<&Arc<Sharing>>, later: &Process) -> Option<Arc<Sharing>> {
    match (earlier, &later.sharing) {
        (Some(earlier), Some(later)) => {
            let pairs = earlier.pairs.iter().chain(&later.pairs).copied();
            Some(Arc::new(Sharing::of(pairs)))
        }
        (one, other) => one.or(other.as_ref()).cloned(),
    }
}

/// The mean of two figures by their weights; the later figure where both weigh nothing.
fn mean(figures: (f64, f64), weights: (f64, f64)) -> f64 {
    let all = weights.0 + weights.1;
    if all > 0.0 {
        (figures.0 * weights.0 + figures.1 * weights.1) / all
    } else {
        figures.1
    }
}
