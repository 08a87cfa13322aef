//! Notices when a move made a thread slower, and has it undone, once.
//!
//! *Speed* is instructions per second of CPU time, so that a thread which merely waits does not
//! count as slow. Compared are `n` intervals before the move with `n` intervals after it, `settle`
//! intervals in between being passed over (caches fill, pages follow).
//!
//! A move made a thread slower when
//! * its mean speed after is below its mean speed before by more than `share`, and
//! * its highest speed after is below its lowest before: what the workload does by itself from one
//!   interval to the next (its phases) is no fault of the move.
//!
//! It is undone when, besides, the threads together gained nothing by what was moved then: the mean
//! over all measured threads of speed after / speed before is below 1. A policy may slow one thread
//! for the good of the others.
//!
//! On by default, with a loss of 30 % over 3 intervals: it costs nothing while all goes well, and a
//! wrong undo costs one move. Turn it off (`limits.worse.undo`) where a policy is to be measured as it
//! was published.
//! A move of a thread to the same domain is undone once only; if the policy insists, it has its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use numaherd_topology::{CpuId, DomainId};
use numaherd_world::{Snapshot, Thread, ThreadId};

use crate::settings::Worse;

/// A thread that used less of a CPU, or was counted for less of its time, tells nothing of its speed.
const LEAST_SHARE: f64 = 0.1;

/// A move that made a thread slower.
#[derive(Clone, Debug, PartialEq)]
pub struct Worsened {
    /// Which thread.
    pub thread: ThreadId,
    /// The core that was given to it.
    pub to: CpuId,
    /// The core that it had been given before, if any.
    pub from: Option<CpuId>,
    /// Share of its speed that it lost.
    pub lost: f64,
    /// Mean over all measured threads of speed after / speed before.
    pub all: f64,
}

impl Worsened {
    /// Whether the move is to be undone: the threads together gained nothing.
    pub fn is_loss(&self) -> bool {
        self.all < 1.0
    }
}

#[derive(Clone, Debug)]
struct Pending {
    from: Option<CpuId>,
    to: CpuId,
    domain: DomainId,
    intervals: usize,
}

/// Follows the speeds of threads around their moves.
#[derive(Clone, Debug)]
pub struct Judge {
    rule: Worse,
    speeds: BTreeMap<ThreadId, VecDeque<f64>>,
    pending: BTreeMap<ThreadId, Pending>,
    judged: BTreeSet<(ThreadId, DomainId)>,
}

impl Judge {
    /// Nothing seen yet.
    pub fn new(rule: Worse) -> Self {
        Self {
            rule,
            speeds: BTreeMap::new(),
            pending: BTreeMap::new(),
            judged: BTreeSet::new(),
        }
    }

    /// Takes in an interval; returns the moves that turn out to have made a thread slower.
    pub fn saw(&mut self, snapshot: &Snapshot) -> Vec<Worsened> {
        let span = 2 * self.rule.intervals + self.rule.settle;
        let mut speeds = std::mem::take(&mut self.speeds);
        for thread in &snapshot.threads {
            // One interval without a speed, and before and after cannot be compared.
            let Some(speed) = speed(thread, snapshot.interval_ns) else {
                continue;
            };
            let mut history = speeds.remove(&thread.id).unwrap_or_default();
            if history.len() == span {
                history.pop_front();
            }
            history.push_back(speed);
            self.speeds.insert(thread.id, history);
        }
        let speeds = &self.speeds;
        self.pending.retain(|thread, _| speeds.contains_key(thread));
        self.judged
            .retain(|&(thread, _)| snapshot.thread(thread).is_some());
        self.judge()
    }

    /// Notes that a thread was moved to another domain. `from` is the core that it had been given
    /// before.
    pub fn moved(&mut self, thread: ThreadId, from: Option<CpuId>, to: CpuId, domain: DomainId) {
        let pending = Pending {
            from,
            to,
            domain,
            intervals: 0,
        };
        self.pending.insert(thread, pending);
    }

    fn judge(&mut self) -> Vec<Worsened> {
        let due = self.rule.settle + self.rule.intervals;
        let mut worsened = Vec::new();
        let mut judged = Vec::new();
        for (&thread, pending) in &mut self.pending {
            pending.intervals += 1;
            if pending.intervals < due {
                continue;
            }
            judged.push(thread);
            let fresh = !self.judged.contains(&(thread, pending.domain));
            let lost = lost(&self.speeds[&thread], &self.rule).filter(|_| fresh);
            let Some(lost) = lost else { continue };
            self.judged.insert((thread, pending.domain));
            worsened.push(Worsened {
                thread,
                to: pending.to,
                from: pending.from,
                lost,
                all: 1.0,
            });
        }
        for thread in judged {
            self.pending.remove(&thread);
        }
        if !worsened.is_empty() {
            let all = self.all_after_by_before();
            worsened.iter_mut().for_each(|w| w.all = all);
        }
        worsened
    }

    fn all_after_by_before(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for speeds in self.speeds.values() {
            if let Some((before, after)) = sides(speeds, &self.rule) {
                sum += mean(&after) / mean(&before);
                count += 1;
            }
        }
        if count == 0 {
            1.0
        } else {
            sum / f64::from(count)
        }
    }
}

/// Instructions per second of CPU time; `None` where that would be a guess.
fn speed(thread: &Thread, interval_ns: u64) -> Option<f64> {
    let counts = thread.counts.as_ref()?;
    let enough = thread.cpu_share >= LEAST_SHARE && counts.counted_share >= LEAST_SHARE;
    if !enough || counts.instructions == 0 || interval_ns == 0 {
        return None;
    }
    let cpu_seconds = thread.cpu_share * interval_ns as f64 / 1e9;
    Some(counts.instructions as f64 / cpu_seconds)
}

/// The share of its speed that a thread lost, when the move is to blame for it.
fn lost(speeds: &VecDeque<f64>, rule: &Worse) -> Option<f64> {
    let (before, after) = sides(speeds, rule)?;
    let lost = 1.0 - mean(&after) / mean(&before);
    let slowest_before = before.iter().copied().fold(f64::INFINITY, f64::min);
    let fastest_after = after.iter().copied().fold(0.0, f64::max);
    (lost > rule.share && fastest_after < slowest_before).then_some(lost)
}

/// The speeds before and after; `None` when the thread has not been seen for long enough.
fn sides(speeds: &VecDeque<f64>, rule: &Worse) -> Option<(Vec<f64>, Vec<f64>)> {
    let n = rule.intervals;
    (speeds.len() == 2 * n + rule.settle).then(|| {
        let before = speeds.iter().take(n).copied().collect();
        let after = speeds.iter().skip(n + rule.settle).copied().collect();
        (before, after)
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
