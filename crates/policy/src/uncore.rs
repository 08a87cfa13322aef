//! Uncore penalties averaged: of each thread over time, and of all candidates together.
//!
//! Problem: the uncore penalty of one interval of 10 ms is noisy, and what a placement is to be
//! judged by is not one thread's penalty but everybody's (BRM §4.2): a thread that moves may gain
//! what its neighbours lose.
//!
//! Terms: the *uncore penalty* is in core cycles per request
//! ([`numaherd_world::Counts::uncore_penalty`]). A thread's *average* is an exponentially weighted
//! moving average of it. The *system-wide penalty* is the mean of the averages of all candidates
//! that have one.
//!
//! Rules:
//! * `average = (7 × average + sample) / 8`, a sample each interval (BRM §5). The first sample is
//!   the average; an interval in which a thread asked for next to nothing leaves its average as it
//!   is.
//! * The system-wide penalty is kept up to date thread by thread, as each one's average changes
//!   (BRM Algorithm 1, line 16), never added up anew. So that this stays exact for ever, averages
//!   are added up as whole numbers of 1/1024 of a cycle.
//!
//! Readings (the paper does not print how penalties are put together):
//! * *Mean, not sum.* While the candidates stay the same they are one thing; when one comes or
//!   goes, a sum jumps by a whole penalty and a mean only by what the one differs from the rest.
//!   (What is left of the jump is taken out where penalties are compared over time:
//!   `placement/brm.rs`.)
//! * *Not weighted by requests.* Requests per second fall when a thread is slowed down, so a mean
//!   that is weighted by them would count a thread least where it is hurt most. Requests per unit
//!   of work do not depend on placement (§3), but nobody can see units of work. Unweighted, what
//!   brm makes small is the mean number of cycles that a candidate loses per request.
//!
//! Two forms, the same while nothing happens between two ticks:
//! * [`Total`], plain: one total that every update goes to, exact at every moment. With several
//!   updating cores that is a lock (and BRM §6.3's cost).
//! * [`Shard`], the form that §8 leaves open: a shard of it per node, updated by its owner alone,
//!   who sees the other shards as they were at the last tick. No lock, and nothing is written that
//!   another core writes.
//!
//! Properties: a total is exactly the sum of what was added and not taken away, in any order; at a
//! tick all shards see what one total would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use numaherd_world::Counts;

use crate::settings::SystemPenaltyForm;

/// Requests of an interval below which its penalty is no sample. Ours: a mean of fewer is off by a
/// tenth of what single requests differ by, and at 10 ms a thread that asks for fewer loses less
/// than a thousandth of its time to them.
const LEAST_REQUESTS: u64 = 100;

/// A sample of the uncore penalty in cycles per request; `None` where it is not measured, or where
/// the thread asked for next to nothing.
pub fn sample(counts: &Counts) -> Option<f64> {
    counts.uncore_requests.filter(|&n| n >= LEAST_REQUESTS)?;
    counts.uncore_penalty()
}

/// An exponentially weighted moving average with a weight of 1/8 (BRM §5).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Average(Option<f64>);

impl Average {
    /// Takes in the sample of one interval, if it has one.
    pub fn observe(&mut self, sample: Option<f64>) {
        self.0 = match (self.0, sample) {
            (Some(average), Some(sample)) => Some((average * 7.0 + sample) / 8.0),
            (before, sample) => before.or(sample),
        };
    }

    /// Begins again with that sample.
    pub fn restart(&mut self, sample: f64) {
        self.0 = Some(sample);
    }

    /// The average, in the unit of its samples; `None` before the first.
    pub fn value(self) -> Option<f64> {
        self.0
    }
}

/// What one candidate adds to a total: its average in 1/1024 of a cycle per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part(u64);

impl Part {
    const PER_CYCLE: f64 = 1024.0;
    /// No request waits half a second. A total of as many threads as the kernel can number (2^22)
    /// holds that many times this.
    const MOST_CYCLES: f64 = (1 << 30) as f64;

    /// Of an average in cycles per request.
    pub fn of_cycles(cycles: f64) -> Self {
        Self((cycles.clamp(0.0, Self::MOST_CYCLES) * Self::PER_CYCLE).round() as u64)
    }
}

/// The system-wide penalty, plain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    sum: u64,
    candidates: u64,
}

impl Total {
    /// A candidate comes.
    pub fn add(&mut self, part: Part) {
        self.sum = self.sum.saturating_add(part.0);
        self.candidates += 1;
    }

    /// A candidate goes; `part` is what it last added.
    pub fn remove(&mut self, part: Part) {
        self.sum = self.sum.saturating_sub(part.0);
        self.candidates = self.candidates.saturating_sub(1);
    }

    /// A candidate's average has changed: BRM Algorithm 1, line 16.
    pub fn update(&mut self, before: Part, now: Part) {
        self.sum = self.sum.saturating_sub(before.0).saturating_add(now.0);
    }

    /// The mean in cycles per request; `None` without candidates.
    pub fn mean(&self) -> Option<f64> {
        let mean = || self.sum as f64 / self.candidates as f64 / Part::PER_CYCLE;
        (self.candidates > 0).then(mean)
    }

    fn and(self, other: Self) -> Self {
        Self {
            sum: self.sum.saturating_add(other.sum),
            candidates: self.candidates + other.candidates,
        }
    }
}

/// A shard's total as the others may see it, alone in its cache lines (two, since neighbours are
/// prefetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
struct Published {
    sum: AtomicU64,
    candidates: AtomicU64,
}

/// A shard of the system-wide penalty.
///
/// Its owner adds and updates as with a [`Total`], and calls [`Shard::publish`] and then
/// [`Shard::look`] once a tick. Who looks while another publishes may see the one's new sum with
/// its old number of candidates: a wrong mean until the next tick, and only where a candidate came
/// or went.
#[derive(Debug)]
pub struct Shard {
    own: Total,
    others: Total,
    published: Arc<[Published]>,
    at: usize,
}

impl Shard {
    /// A system-wide penalty in that many shards.
    pub fn split(count: usize) -> Vec<Self> {
        let published: Arc<[Published]> = (0..count).map(|_| Published::default()).collect();
        let shard = |at| Self {
            own: Total::default(),
            others: Total::default(),
            published: Arc::clone(&published),
            at,
        };
        (0..count).map(shard).collect()
    }

    /// This shard's own share of the total.
    pub fn own(&mut self) -> &mut Total {
        &mut self.own
    }

    /// Shows the others this shard's share as it is now.
    pub fn publish(&self) {
        let mine = &self.published[self.at];
        mine.sum.store(self.own.sum, Ordering::Release);
        mine.candidates
            .store(self.own.candidates, Ordering::Release);
    }

    /// Takes in what the others have published.
    pub fn look(&mut self) {
        let others = self.published.iter().enumerate();
        let others = others.filter(|&(at, _)| at != self.at);
        self.others = others.fold(Total::default(), |all, (_, one)| {
            all.and(Total {
                sum: one.sum.load(Ordering::Acquire),
                candidates: one.candidates.load(Ordering::Acquire),
            })
        });
    }

    /// The mean in cycles per request, of this shard now and of the others when it last looked.
    pub fn mean(&self) -> Option<f64> {
        self.own.and(self.others).mean()
    }
}

/// The system-wide penalty in either form, with a shard for each node.
#[derive(Debug)]
pub enum SystemPenalty {
    /// One total.
    Plain(Total),
    /// A shard for each node of the machine, in its order.
    Sharded(Vec<Shard>),
}

impl SystemPenalty {
    /// Of nobody yet, on a machine of that many nodes.
    pub fn new(form: SystemPenaltyForm, nodes: usize) -> Self {
        match form {
            SystemPenaltyForm::Plain => Self::Plain(Total::default()),
            SystemPenaltyForm::Sharded => Self::Sharded(Shard::split(nodes)),
        }
    }

    /// The total that a candidate on a node (by its place in the topology) goes to.
    pub fn at(&mut self, node: usize) -> &mut Total {
        match self {
            Self::Plain(total) => total,
            Self::Sharded(shards) => shards[node].own(),
        }
    }

    /// The mean as a candidate on that node sees it, in cycles per request.
    pub fn seen_from(&self, node: usize) -> Option<f64> {
        match self {
            Self::Plain(total) => total.mean(),
            Self::Sharded(shards) => shards[node].mean(),
        }
    }

    /// The mean as it is, in cycles per request.
    pub fn mean(&self) -> Option<f64> {
        match self {
            Self::Plain(total) => total.mean(),
            Self::Sharded(shards) => shards
                .iter()
                .fold(Total::default(), |all, shard| all.and(shard.own))
                .mean(),
        }
    }

    /// A tick begins: every shard sees the others as they are now.
    pub fn tick(&mut self) {
        if let Self::Sharded(shards) = self {
            shards.iter().for_each(Shard::publish);
            shards.iter_mut().for_each(Shard::look);
        }
    }
}

#[cfg(test)]
mod tests;
