//! Rate limits: a token bucket on the world's own time.
//!
//! The bucket fills at `rate` up to `burst`. A thing may be done while there is at least one token, and then
//! takes what it costs. One large thing (all pages of a process) can thus put the bucket into debt; nothing
//! more passes until it has filled again.
//! Property: what was taken by time t is at most `burst + rate * t` plus the cost of one thing.

const SECOND_NS: f64 = 1e9;

/// A token bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at_ns: u64,
}

impl TokenBucket {
    /// A full bucket at time `now_ns`; `rate` in tokens per second, `burst` in tokens.
    pub fn full(rate: f64, burst: f64, now_ns: u64) -> Self {
        Self {
            rate,
            burst,
            tokens: burst,
            at_ns: now_ns,
        }
    }

    /// Sets another rate and another burst.
    pub fn set(&mut self, rate: f64, burst: f64) {
        self.rate = rate;
        self.burst = burst;
        self.tokens = self.tokens.min(burst);
    }

    /// Lets time pass. An earlier time changes nothing.
    pub fn advance(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.at_ns) as f64 / SECOND_NS;
        self.at_ns = self.at_ns.max(now_ns);
        self.tokens = (self.tokens + passed * self.rate).min(self.burst);
    }

    /// Whether a thing that costs one token or more may be done.
    pub fn allows(&self) -> bool {
        self.tokens >= 1.0
    }

    /// Takes what a thing costs, if need be into debt.
    pub fn take(&mut self, cost: f64) {
        self.tokens -= cost;
    }

    /// Gives back what was taken and not used.
    pub fn give_back(&mut self, unused: f64) {
        self.tokens = (self.tokens + unused).min(self.burst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bucket_fills_at_its_rate_up_to_its_burst() {
        let mut bucket = TokenBucket::full(10.0, 5.0, 0);
        bucket.take(5.0);
        assert!(!bucket.allows());
        bucket.advance(100_000_000);
        assert!(bucket.allows());
        bucket.take(1.0);
        assert!(!bucket.allows());
        bucket.advance(3_600_000_000_000);
        assert_eq!(bucket, TokenBucket::full(10.0, 5.0, 3_600_000_000_000));
    }

    #[test]
    fn a_bucket_keeps_no_more_than_its_new_burst() {
        let mut bucket = TokenBucket::full(10.0, 5.0, 0);
        bucket.set(1.0, 2.0);
        assert_eq!(bucket, TokenBucket::full(1.0, 2.0, 0));
    }

    #[test]
    fn debt_is_paid_before_anything_more_is_let_through() {
        let mut bucket = TokenBucket::full(10.0, 5.0, 0);
        bucket.take(25.0);
        bucket.advance(2_000_000_000);
        assert!(!bucket.allows());
        bucket.advance(2_100_000_000);
        assert!(bucket.allows());
    }

    /// After any moment s the bucket holds no more than if it had been full then: the burst, what has flowed in
    /// since, less what was taken since. It holds the least of these.
    #[test]
    fn every_short_course_leaves_the_least_that_any_full_moment_leaves() {
        const BURST: f64 = 3.0;
        let steps = || {
            [0u64, 1, 2]
                .into_iter()
                .flat_map(|pass| [0.0, 1.0, 2.0, 5.0].map(|cost| (pass, cost)))
        };
        let mut courses = vec![vec![]];
        for _ in 0..4 {
            let longer = courses
                .iter()
                .flat_map(|course| steps().map(|step| [&course[..], &[step]].concat()));
            courses = longer.collect();
        }
        assert_eq!(courses.len(), 12usize.pow(4));
        for course in courses {
            let mut bucket = TokenBucket::full(1.0, BURST, 0);
            // For each moment: what a bucket that was full then would hold now.
            let mut since = vec![BURST];
            let mut now = 0;
            for &(pass, cost) in &course {
                now += pass;
                bucket.advance(now * 1_000_000_000);
                since.iter_mut().for_each(|held| *held += pass as f64);
                since.push(BURST);
                let held = since.iter().copied().fold(f64::INFINITY, f64::min);
                assert_eq!(bucket.tokens, held, "{course:?}");
                assert_eq!(bucket.allows(), held >= 1.0, "{course:?}");
                if bucket.allows() {
                    bucket.take(cost);
                    since.iter_mut().for_each(|held| *held -= cost);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_keeps_to_rate_and_burst(
            rate in 0.0..100.0f64,
            burst in 1.0..50.0f64,
            steps in proptest::collection::vec((0u64..1_000_000_000, 0.0..80.0f64), 0..60),
        ) {
            let mut bucket = TokenBucket::full(rate, burst, 0);
            let (mut now, mut taken) = (0u64, 0.0);
            for (pass, cost) in steps {
                now += pass;
                bucket.advance(now);
                if bucket.allows() {
                    let most = burst + rate * now as f64 / 1e9;
                    prop_assert!(taken <= most, "{} taken before this, {} allowed", taken, most);
                    bucket.take(cost);
                    taken += cost;
                }
            }
        }
    }
}
