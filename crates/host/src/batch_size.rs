//! How many pages to give the kernel in one call, learned from the times of past calls.

use crate::options::PageOptions;

/// Base pages that the kernel unmaps at once (since Linux 6.3).
pub(crate) const KERNEL_BATCH: usize = 512;
/// The weight of one batch's time against the next one's in [`Pace`].
const DECAY: f64 = 0.8;

/// How many of a kind fit the time targets: a line through the times of the last batches, whose
/// slope is the time per page and whose height is the cost of a call (the kernel first empties the
/// per-CPU page lists of all CPUs).
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many to give the kernel in the next call.
    pub(crate) batch: usize,
    most: usize,
    /// How many the kernel unmaps at once.
    at_once: usize,
    // Decayed sums of 1, count, time, count², count · time.
    batches: f64,
    counts: f64,
    times: f64,
    squares: f64,
    products: f64,
}

impl Pace {
    pub(crate) fn new(first: usize, most: usize, at_once: usize) -> Self {
        let most = most.max(1);
        Self {
            batch: first.clamp(1, most),
            most,
            at_once,
            batches: 0.0,
            counts: 0.0,
            times: 0.0,
            squares: 0.0,
            products: 0.0,
        }
    }

    /// The longest a page can have been unmapped in a call of this size and time.
    pub(crate) fn away_ns(&self, took_ns: u64, count: usize) -> u64 {
        let at_once = self.at_once.min(count) as u128;
        let away = u128::from(took_ns) * at_once / count.max(1) as u128;
        u64::try_from(away).unwrap_or(u64::MAX)
    }

    /// Fits the batch to the targets by what the last ones took.
    pub(crate) fn learn(&mut self, options: &PageOptions, took_ns: u64, count: usize) {
        let target = options.call_target.as_nanos() as f64;
        let pause = options.pause_target.as_nanos() as f64;
        let (time, count) = (took_ns as f64, count as f64);
        for (sum, value) in [
            (&mut self.batches, 1.0),
            (&mut self.counts, count),
            (&mut self.times, time),
            (&mut self.squares, count * count),
            (&mut self.products, count * time),
        ] {
            *sum = *sum * DECAY + value;
        }
        let (mean_count, mean_time) = (self.counts / self.batches, self.times / self.batches);
        let spread = self.squares / self.batches - mean_count * mean_count;
        let along = self.products / self.batches - mean_count * mean_time;
        let average = (mean_time / mean_count).max(1.0);
        // Batches of one size say nothing of the slope; then all of the time is the pages'.
        let slope = if spread > 1e-6 * mean_count * mean_count {
            (along / spread).clamp(0.3 * average, average)
        } else {
            average
        };
        let fixed = (mean_time - slope * mean_count).max(0.0);
        let fitting = (target - fixed).max(0.25 * target) / slope;
        // Shrinks at once; grows by doubling, and only after a full batch: one quick batch is no
        // proof. A size that just took too long is not tried again, whatever the line says.
        let tried = if time > target {
            count * target / time
        } else {
            f64::MAX
        };
        let full = count >= self.batch as f64;
        let most = if full {
            self.batch.saturating_mul(2)
        } else {
            self.batch
        };
        let at_once = self.at_once as f64;
        let within_pause = if at_once * slope / 2.0 > pause && self.at_once > 1 {
            2.0 * pause / slope
        } else {
            f64::MAX
        };
        self.batch = (fitting.min(tried).min(within_pause).round() as usize)
            .min(most)
            .clamp(1, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_a_call_costs_by_itself_is_told_from_what_its_pages_cost() {
        let options = PageOptions {
            call_target: Duration::from_millis(3),
            ..PageOptions::default()
        };
        let mut pace = Pace::new(1, 1000, KERNEL_BATCH);
        // A millisecond for the call and 10 us for each.
        for _ in 0..20 {
            let took = 1_000_000 + 10_000 * pace.batch as u64;
            pace.learn(&options, took, pace.batch);
        }
        assert_eq!(pace.batch, 200);
    }

    #[test]
    fn a_batch_that_took_too_long_is_not_tried_again() {
        let mut pace = Pace::new(100, 1000, KERNEL_BATCH);
        pace.learn(&PageOptions::default(), 250_000_000, 100);
        assert!(pace.batch <= 10, "{}", pace.batch);
    }
}
