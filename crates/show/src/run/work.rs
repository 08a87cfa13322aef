//! Work done over some intervals, and the figures that follow from it.

use numaherd_herd::CountSums;
use numaherd_world::Counts;

/// A thread must have run, and been counted, for this share of an interval to tell its speed.
pub(crate) const LEAST_SHARE: f64 = 0.1;

/// Sums over threads and intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// What was counted.
    pub(crate) counted: CountSums,
    /// Instructions of intervals that tell a speed, and their seconds of CPU time.
    timed_instructions: f64,
    timed_seconds: f64,
    /// Seconds of CPU time.
    pub(crate) cpu_seconds: f64,
}

impl Work {
    /// What a thread did in an interval of so many ns.
    pub(crate) fn of(counts: Option<&Counts>, cpu_share: f64, interval_ns: u64) -> Self {
        let share = share(cpu_share);
        let seconds = share * interval_ns as f64 / 1e9;
        let mut work = Self {
            cpu_seconds: seconds,
            ..Self::default()
        };
        let Some(counts) = counts else {
            return work;
        };
        work.counted.add_counts(counts);
        if share >= LEAST_SHARE && counts.counted_share >= LEAST_SHARE && counts.instructions > 0 {
            work.timed_instructions = counts.instructions as f64;
            work.timed_seconds = seconds;
        }
        work
    }

    /// Adds what was done elsewhere or later.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counted.add(&other.counted);
        self.timed_instructions += other.timed_instructions;
        self.timed_seconds += other.timed_seconds;
        self.cpu_seconds += other.cpu_seconds;
    }

    /// Instructions per second of CPU time, of intervals in which threads ran and were counted for a
    /// tenth of the time or more.
    pub(crate) fn speed(&self) -> Option<f64> {
        (self.timed_seconds > 0.0).then(|| self.timed_instructions / self.timed_seconds)
    }
}

/// Adds a ledger's figure to a sum, which stays at the end of its range when the figure is absurd.
pub(crate) fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// The sum of a ledger's figures, at most the end of its range.
pub(crate) fn sum(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}

/// A share of a ledger's, which can be any number, as one of 0 to 1.
pub(crate) fn share(share: f64) -> f64 {
    if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(millions: u64) -> Counts {
        Counts {
            instructions: millions * 1_000_000,
            lines: millions * 10_000,
            local: Some(millions * 2_500),
            remote: Some(millions * 7_500),
            counted_share: 1.0,
            ..Counts::default()
        }
    }

    #[test]
    fn figures_are_those_of_the_sums() {
        let mut work = Work::of(Some(&counts(300)), 0.5, 1_000_000_000);
        work.add(&Work::of(Some(&counts(100)), 0.5, 1_000_000_000));
        assert_eq!(work.speed(), Some(400e6));
        assert_eq!(work.counted.miss_rate(), Some(10.0));
        assert_eq!(work.counted.local_access_ratio(), Some(0.25));
        assert_eq!(work.counted.uncore_penalty(), None);
        assert_eq!(work.cpu_seconds, 1.0);
    }

    #[test]
    fn a_thread_that_hardly_ran_tells_no_speed_but_its_misses_count() {
        let work = Work::of(Some(&counts(300)), 0.05, 1_000_000_000);
        assert_eq!(work.speed(), None);
        assert_eq!(work.counted.miss_rate(), Some(10.0));
        assert_eq!(Work::of(None, f64::INFINITY, 1).cpu_seconds, 0.0);
    }
}
