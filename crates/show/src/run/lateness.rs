//! How late the loop's intervals were, which shows whether anything held it up.
//!
//! An interval lasts from one snapshot to the next. Its lateness is how much longer than the cadence it
//! was: the loop's own work, and whatever kept the loop from running. Intervals recorded as one snapshot
//! count with their mean.

use serde::Serialize;

/// Upper bounds of what is counted apart, in seconds.
pub const LATENESS_BOUNDS_S: [f64; 10] =
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0];

/// How late intervals were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Intervals that could be judged: those of before, between or after lost lines cannot.
    pub intervals: u64,
    /// Their lateness together, in seconds.
    pub sum_s: f64,
    /// The latest.
    pub last_s: f64,
    /// The most.
    pub most_s: f64,
    /// How many were late by no more than each of [`LATENESS_BOUNDS_S`] and more than the bound
    /// before it; last those beyond all bounds.
    pub counts: [u64; LATENESS_BOUNDS_S.len() + 1],
}

impl Lateness {
    /// Takes in so many intervals of `interval_ns` together, which should have had `expected_ns`.
    pub(super) fn add(&mut self, intervals: u64, interval_ns: u64, expected_ns: u64) {
        if intervals == 0 {
            return;
        }
        let late_s = interval_ns.saturating_sub(expected_ns) as f64 / 1e9;
        let each_s = late_s / intervals as f64;
        self.intervals = self.intervals.saturating_add(intervals);
        self.sum_s += late_s;
        self.last_s = each_s;
        self.most_s = self.most_s.max(each_s);
        let place = LATENESS_BOUNDS_S.iter().position(|&bound| each_s <= bound);
        let count = &mut self.counts[place.unwrap_or(LATENESS_BOUNDS_S.len())];
        *count = count.saturating_add(intervals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_late_by_what_it_is_longer_than_its_cadence() {
        let mut lateness = Lateness::default();
        lateness.add(1, 1_003_000_000, 1_000_000_000);
        lateness.add(100, 1_050_000_000, 1_000_000_000);
        lateness.add(1, 900_000_000, 1_000_000_000);
        lateness.add(1, 9_000_000_000, 1_000_000_000);
        lateness.add(0, 9_000_000_000, 0);
        assert_eq!(lateness.intervals, 103);
        assert_eq!(lateness.counts, [101, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((lateness.most_s, lateness.last_s), (8.0, 8.0));
        assert!((lateness.sum_s - 8.053).abs() < 1e-9);
    }
}
