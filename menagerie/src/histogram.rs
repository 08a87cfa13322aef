//! A histogram of latencies with a relative error of at most 1/32, in a few kilobytes for any
//! number of values: a client that kept every latency would have a large working set itself.
//!
//! Approach: values below 32 have a bucket each; above, every power of two is divided into 32
//! equal buckets (as in HdrHistogram).

use serde::Serialize;

/// Buckets in each power of two.
const STEPS: u64 = 32;

/// Values counted by size.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    sum: u128,
    count: u64,
    largest: u64,
}

/// The summary of latencies, in nanoseconds. All 0 if there were none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latencies {
    /// Their mean, exact.
    pub mean: f64,
    /// Half are at most this.
    pub p50: u64,
    /// 99 % are at most this.
    pub p99: u64,
    /// The largest, exact.
    pub max: u64,
}

impl Histogram {
    /// Counts `value`.
    pub fn add(&mut self, value: u64) {
        let bucket = bucket(value);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.sum += u128::from(value);
        self.count += 1;
        self.largest = self.largest.max(value);
    }

    /// The least bucket limit that `share` (0 to 1) of the values do not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted.max(1) {
                return upper(bucket).min(self.largest);
            }
        }
        0
    }

    /// The summary that is reported.
    pub fn latencies(&self) -> Latencies {
        if self.count == 0 {
            return Latencies::default();
        }
        Latencies {
            mean: self.sum as f64 / self.count as f64,
            p50: self.quantile(0.5),
            p99: self.quantile(0.99),
            max: self.largest,
        }
    }
}

fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = value.ilog2() - STEPS.ilog2();
    (u64::from(power) * STEPS + (value >> power)) as usize
}

/// The largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let power = bucket / STEPS - 1;
    let first = (bucket % STEPS + STEPS) << power;
    first + ((1 << power) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_counted_is_nothing_told() {
        assert_eq!(Histogram::default().latencies(), Latencies::default());
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_and_is_narrow(value: u64) {
            let upper = upper(bucket(value));
            prop_assert!(upper >= value);
            prop_assert!(upper - value <= value / STEPS);
            prop_assert!(bucket(value) == 0 || super::upper(bucket(value) - 1) < value);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(
            mut values in proptest::collection::vec(0u64..1 << 40, 1..300), share in 0.0f64..=1.0
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let told = histogram.quantile(share);
            prop_assert!(told >= exact && told - exact <= exact / STEPS, "{} for {}", told, exact);
            let latencies = histogram.latencies();
            prop_assert_eq!(latencies.max, *values.last().unwrap());
            let mean = values.iter().sum::<u64>() as f64 / values.len() as f64;
            prop_assert!((latencies.mean - mean).abs() <= mean * 1e-9);
        }
    }
}
