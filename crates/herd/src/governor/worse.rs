//! Notices when a move made a thread slower, and has it undone, once.
//!
//! *Speed* is instructions per second of CPU time, so that a thread that merely waits does not count as
//! slow. It is measured over *spans* of a second or so: as many intervals as make one up, so that the
//! rule means the same at any cadence. The rule compares `n` spans before the move with `n` spans after
//! it, and skips `settle` spans in between (caches fill, pages follow).
//!
//! A thread that is moved again before it is judged is not judged: either move could be to blame, and
//! an undo would not put it where it was before the first. A policy that tries places out and corrects
//! itself within those seconds (BRM does, in some tenths of one) is thus left to it; what it lets stand
//! is judged.
//!
//! A move made a thread slower when
//! * its mean speed after is below its mean speed before by more than `share`, and
//! * its highest speed after is below its lowest before: what the workload does by itself from span to
//!   span (its phases) is no fault of the move.
//!
//! It is undone only if, besides, the threads together gained nothing by the moves then: the mean over
//! all measured threads of speed after / speed before is below 1. A policy may slow one thread for the
//! good of the others.
//!
//! On by default, with a loss of 30 % over 3 s: it costs nothing while all goes well, and a wrong undo
//! costs one move. Turn it off (`limits.worse.undo`) to measure a policy as it was published. A
//! thread's move to the same domain is undone only once; a policy that insists has its way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use numaherd_topology::{CpuId, DomainId};
use numaherd_world::{Snapshot, Thread, ThreadId};

use crate::settings::Worse;

/// The speed of a thread that used less of a CPU, or was counted for less of its time, is unknown.
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

/// A move that is yet to be judged.
#[derive(Clone, Debug)]
struct Pending {
    from: Option<CpuId>,
    to: CpuId,
    domain: DomainId,
    /// Spans since.
    spans: usize,
}

/// What a thread did since its last span ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Span {
    length_ns: u64,
    cpu_s: f64,
    counted_s: f64,
    instructions: f64,
}

impl Span {
    fn add(&mut self, thread: &Thread, interval_ns: u64) {
        self.length_ns = self.length_ns.saturating_add(interval_ns);
        let cpu_s = thread.cpu_share * interval_ns as f64 / 1e9;
        self.cpu_s += cpu_s;
        if let Some(counts) = &thread.counts {
            self.counted_s += counts.counted_share * cpu_s;
            self.instructions += counts.instructions as f64;
        }
    }

    /// Instructions per second of CPU time; `None` where too little is known.
    fn speed(&self) -> Option<f64> {
        let ran = self.cpu_s >= LEAST_SHARE * self.length_ns as f64 / 1e9;
        let counted = self.counted_s >= LEAST_SHARE * self.cpu_s;
        let known = ran && counted && self.instructions > 0.0 && self.cpu_s > 0.0;
        known.then(|| self.instructions / self.cpu_s)
    }
}

#[derive(Clone, Debug, Default)]
struct Followed {
    open: Span,
    /// Speeds of the latest spans that count, the oldest first.
    speeds: VecDeque<f64>,
    pending: Option<Pending>,
}

/// Follows the speeds of threads around their moves.
#[derive(Clone, Debug)]
pub struct Judge {
    rule: Worse,
    threads: BTreeMap<ThreadId, Followed>,
    judged: BTreeSet<(ThreadId, DomainId)>,
}

impl Judge {
    /// Nothing seen yet.
    pub fn new(rule: Worse) -> Self {
        Self {
            rule,
            threads: BTreeMap::new(),
            judged: BTreeSet::new(),
        }
    }

    /// By another rule; `judged` are the moves that an earlier judge has judged; each is undone only
    /// once.
    pub fn with_judged(rule: Worse, judged: BTreeSet<(ThreadId, DomainId)>) -> Self {
        Self {
            judged,
            ..Self::new(rule)
        }
    }

    /// The moves that have been judged.
    pub fn into_judged(self) -> BTreeSet<(ThreadId, DomainId)> {
        self.judged
    }

    /// Forgets all speeds, and with them the moves that are yet to be judged.
    pub fn forget_speeds(&mut self) {
        self.threads.clear();
    }

    /// Takes in an interval; returns the moves that turn out to have made a thread slower.
    pub fn saw(&mut self, snapshot: &Snapshot) -> Vec<Worsened> {
        let mut before = std::mem::take(&mut self.threads);
        let span_ns = self.rule.span_ms.saturating_mul(1_000_000);
        let mut due = Vec::new();
        for thread in &snapshot.threads {
            let mut followed = before.remove(&thread.id).unwrap_or_default();
            followed.open.add(thread, snapshot.interval_ns);
            // To the nearest interval.
            let half = snapshot.interval_ns / 2;
            if followed.open.length_ns.saturating_add(half) >= span_ns {
                due.extend(followed.close(&self.rule).map(|moved| (thread.id, moved)));
            }
            // Nothing is known of most sleeping threads.
            if !followed.is_new() {
                self.threads.insert(thread.id, followed);
            }
        }
        self.judged
            .retain(|&(thread, _)| snapshot.thread(thread).is_some());
        self.judge(due)
    }

    /// Notes that a thread was moved to another domain. `from` is the core that it had been given
    /// before.
    pub fn moved(&mut self, thread: ThreadId, from: Option<CpuId>, to: CpuId, domain: DomainId) {
        let followed = self.threads.entry(thread).or_default();
        followed.break_off();
        followed.pending = Some(Pending {
            from,
            to,
            domain,
            spans: 0,
        });
    }

    /// Notes that a thread was moved to another domain by a change that is not judged.
    pub fn disturbed(&mut self, thread: ThreadId) {
        if let Some(followed) = self.threads.get_mut(&thread) {
            followed.break_off();
            followed.speeds.clear();
        }
    }

    fn judge(&mut self, due: Vec<(ThreadId, Pending)>) -> Vec<Worsened> {
        let mut worsened = Vec::new();
        for (thread, moved) in due {
            let followed = self.threads.get(&thread);
            let lost = followed.and_then(|followed| lost(&followed.speeds, &self.rule));
            let Some(lost) = lost.filter(|_| self.judged.insert((thread, moved.domain))) else {
                continue;
            };
            worsened.push(Worsened {
                thread,
                to: moved.to,
                from: moved.from,
                lost,
                all: 1.0,
            });
        }
        if !worsened.is_empty() {
            let all = self.all_after_by_before();
            worsened.iter_mut().for_each(|w| w.all = all);
        }
        worsened
    }

    fn all_after_by_before(&self) -> f64 {
        let (mut sum, mut count) = (0.0, 0);
        for followed in self.threads.values() {
            if let Some((before, after)) = sides(&followed.speeds, &self.rule) {
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

impl Followed {
    /// Whether nothing is known of it.
    fn is_new(&self) -> bool {
        self.open == Span::default() && self.speeds.is_empty() && self.pending.is_none()
    }

    /// Ends the span; returns the move that can now be judged.
    fn close(&mut self, rule: &Worse) -> Option<Pending> {
        let Some(speed) = std::mem::take(&mut self.open).speed() else {
            // One span without a speed, and before and after cannot be compared.
            self.speeds.clear();
            self.pending = None;
            return None;
        };
        if self.speeds.len() == 2 * rule.intervals + rule.settle {
            self.speeds.pop_front();
        }
        self.speeds.push_back(speed);
        let pending = self.pending.as_mut()?;
        pending.spans += 1;
        if pending.spans < rule.settle + rule.intervals {
            return None;
        }
        self.pending.take()
    }

    /// The thread goes elsewhere: what it did since the last span is of no one place; nor is what was
    /// before, if its last move is not judged yet.
    fn break_off(&mut self) {
        self.open = Span::default();
        if self.pending.take().is_some() {
            self.speeds.clear();
        }
    }
}

/// The share of its speed that a thread lost, if the move is to blame.
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
