//! Several intervals as one, for readers that look less often than a world is observed: a ledger at a
//! quick cadence, a policy among others that decide more often.
//!
//! Counts are summed, shares averaged by time, the rest is as seen last. Nothing that was counted is
//! lost, except for threads that ended meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::notice::Sharing;
use crate::snapshot::{Counts, Process, Snapshot, Thread};

impl Snapshot {
    /// This interval and the one after it as one: what happened in both, and how it was at the end of
    /// the later one, whose number it has.
    #[must_use]
    pub fn with_later(self, later: &Self) -> Self {
        as_one(self, later)
    }
}

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

/// Both counts together; a count that one of them lacks is not known for both. `ran` is how long the
/// thread ran in each.
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
