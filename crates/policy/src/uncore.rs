//! Uncore penalties averaged: of each thread over time, and of all candidates together.
//!
//! Problem: the uncore penalty of one interval of 10 ms is noisy, and a placement is to be judged by
//! the penalty of all threads, not of one (BRM §4.2): a thread that moves may gain what its neighbours
//! lose.
//!
//! Terms: the *uncore penalty* is in core cycles per request
//! ([`numaherd_world::Counts::uncore_penalty`]). A thread's *average* is an exponentially weighted
//! moving average of it. The *system-wide penalty* is the mean of the averages of all candidates
//! that have one.
//!
//! Rules:
//! * `average = (7 × average + sample) / 8`, a sample each interval (BRM §5). The first sample is
//!   the average; an interval in which a thread made next to no requests leaves its average as it is.
//! * The system-wide penalty is kept up to date thread by thread, as each one's average changes
//!   (BRM Algorithm 1, line 16), never added up anew. So that this stays exact for ever, averages
//!   are added up as whole numbers of 1/1024 of a cycle.
//!
//! Readings (the paper does not print how penalties are put together):
//! * *Mean, not sum.* While the candidates stay the same, both serve alike; when one comes or goes, a
//!   sum jumps by a whole penalty, a mean only by how much that one differs from the rest. (What is
//!   left of the jump is taken out where penalties are compared over time: `placement/brm.rs`.)
//! * *Not weighted by requests.* Requests per second fall when a thread is slowed down, so a mean
//!   that is weighted by them would count a thread least where it is hurt most. Requests per unit
//!   of work do not depend on placement (§3), but units of work cannot be observed. Unweighted, brm
//!   minimises the mean number of cycles that a candidate loses per request.
//!
//! Two forms, the same while nothing happens between two ticks ([`SystemPenalty`]):
//! * plain: one total that every update goes to, exact at every moment. With several updating cores it
//!   needs a lock (and has BRM §6.3's cost).
//! * sharded, the form that §8 leaves open: a part of it per node, updated by its owner alone, which
//!   sees the other parts as they were at the last tick. It needs no lock, and no two cores write the
//!   same data.
//!
//! Properties: a total is exactly the sum of what was added and not taken away, in any order; at a
//! tick all shards see what one total would be.

use numaherd_files::choices;
use numaherd_world::Counts;

choices! {
    /// How the system-wide penalty is kept.
    pub enum SystemPenaltyForm {
        /// One total, exact at every update (BRM 4.2).
        #[default]
        Plain = "plain",
        /// A part for each node, which sees the others as of the last tick (BRM 8).
        Sharded = "sharded",
    }
}

/// Requests of an interval below which its penalty is no sample. Ours: a mean of fewer is off by a
/// tenth of what single requests differ by, and at 10 ms a thread that makes fewer loses less than a
/// thousandth of its time to them.
const LEAST_REQUESTS: u64 = 100;

/// A sample of the uncore penalty in cycles per request; `None` where it is not measured, or where the
/// thread made next to no requests.
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

    /// The part for an average in cycles per request.
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
    /// Adds a candidate.
    pub fn add(&mut self, part: Part) {
        self.sum = self.sum.saturating_add(part.0);
        self.candidates += 1;
    }

    /// Removes a candidate; `part` is what it last added.
    pub fn remove(&mut self, part: Part) {
        self.sum = self.sum.saturating_sub(part.0);
        self.candidates = self.candidates.saturating_sub(1);
    }

    /// Takes in a candidate's changed average: BRM Algorithm 1, line 16.
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

/// The system-wide penalty in either form.
#[derive(Clone, Debug)]
pub struct SystemPenalty {
    /// One for the whole machine, or one for each of its nodes, in their order.
    shards: Vec<Total>,
    /// The same as they were at the last tick: as they are seen from other nodes.
    at_tick: Vec<Total>,
}

impl SystemPenalty {
    /// Without candidates yet, on a machine of that many nodes.
    pub fn new(form: SystemPenaltyForm, nodes: usize) -> Self {
        let shards = match form {
            SystemPenaltyForm::Plain => 1,
            SystemPenaltyForm::Sharded => nodes,
        };
        Self {
            shards: vec![Total::default(); shards],
            at_tick: vec![Total::default(); shards],
        }
    }

    fn shard_of(&self, node: usize) -> usize {
        node.min(self.shards.len() - 1)
    }

    /// The total that a candidate on a node (by its place in the topology) goes to.
    pub fn at(&mut self, node: usize) -> &mut Total {
        let shard = self.shard_of(node);
        &mut self.shards[shard]
    }

    /// The mean as a candidate on that node sees it, in cycles per request.
    pub fn seen_from(&self, node: usize) -> Option<f64> {
        let own = self.shard_of(node);
        let others = self.at_tick[..own].iter().chain(&self.at_tick[own + 1..]);
        others.copied().fold(self.shards[own], Total::and).mean()
    }

    /// The mean as it is, in cycles per request.
    pub fn mean(&self) -> Option<f64> {
        let shards = self.shards.iter().copied();
        shards.fold(Total::default(), Total::and).mean()
    }

    /// Begins a tick: every shard sees the others as they are now.
    pub fn tick(&mut self) {
        self.at_tick.clone_from(&self.shards);
    }
}

#[cfg(test)]
mod tests;
