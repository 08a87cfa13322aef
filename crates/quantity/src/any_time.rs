//! An interval of a mean that holds however often one looks at it: an experimenter who watches figures arrive and
//! stops when the interval suits is still wrong in at most 5 of 100 experiments. A Student's interval
//! ([`crate::statistics::Mean`]) holds for a number of figures that is fixed beforehand, and is wrong far more often
//! here.
//!
//! After n figures with mean m and sample deviation s, t = √n (m - µ) / s, ν = n - 1. The Bayes factor of "the mean is
//! some number of deviations away from µ, that number being normal with variance g" against "the mean is µ",
//!
//! ```text
//! B = (1 + ng)^(-1/2) · ((1 + t²/ν) / (1 + t²/(ν(1 + ng))))^(n/2)
//! ```
//!
//! starts at 1, and is a martingale of expectation 1 where the mean of normal figures is µ, whatever
//! their deviation. By Ville's inequality it ever exceeds 20 in at most 1 of 20 experiments; the
//! interval contains each µ with B < 20. The variance g is free, and chosen so that the interval is narrowest after
//! a planned number of figures.
//!
//! Source: T. L. Lai, "On confidence sequences", Annals of Statistics 4(2), 1976; the form is that of H. Wang and A.
//! Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", 2023; the
//! Bayes factor that of M. Gönen et al., "The Bayesian two-sample t test", 2005. Figures that are not normal: see the
//! tests of `numaherd trial`, which simulate what it does with them.

use crate::statistics::{Mean, deviation, mean};

/// 1 / 0.05: what the Bayes factor exceeds in at most 5 of 100 experiments.
const LEAST_ODDS: f64 = 20.0;

/// The upper 80 % quantile of the normal distribution.
const FOUR_IN_FIVE: f64 = 0.8416;

/// Most figures that [`AnyTime::to_see`] asks for.
const MOST: usize = 1 << 24;

/// The rule that makes intervals, once a number of figures is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AnyTime {
    /// The variance g.
    variance: f64,
}

impl AnyTime {
    /// Intervals that are narrowest after `count` figures (at least 2), and hold after any number.
    pub fn planned(count: usize) -> Self {
        let count = count.max(2);
        // In steps of a fifth from 1/n to 10^9/n: the minimum is flat.
        let variances = (0..114).map(|step| 1.2f64.powi(step) / count as f64);
        let width = |variance: f64| Self { variance }.width(count).unwrap_or(f64::INFINITY);
        let narrowest = variances.min_by(|&a, &b| width(a).total_cmp(&width(b)));
        Self {
            variance: narrowest.unwrap_or(1.0),
        }
    }

    /// Half of the 95 % interval, in deviations; `None` where `count` figures exclude no mean.
    fn width(self, count: usize) -> Option<f64> {
        let n = count as f64;
        let spread = 1.0 + n * self.variance;
        let bound = (LEAST_ODDS * spread.sqrt()).powf(2.0 / n);
        // t²/ν at which the Bayes factor is 20.
        let square =
            (count > 1 && bound < spread).then(|| (bound - 1.0) / (1.0 - bound / spread))?;
        Some((square * (n - 1.0) / n).sqrt())
    }

    /// The mean of these figures with half of its interval (`None` for too few figures); `None` if there are no
    /// figures.
    pub fn mean(self, figures: &[f64]) -> Option<Mean> {
        let count = figures.len();
        let mean = Some(mean(figures.iter().copied())).filter(|mean| mean.is_finite())?;
        let half = self.width(count).zip(deviation(figures));
        let half = half.map(|(width, deviation)| width * deviation);
        Some(Mean { count, mean, half })
    }

    /// How many figures with this deviation and a mean of `effect` are needed for their interval to exclude 0, in
    /// four experiments of five; `None` if more than 2^24.
    pub fn to_see(effect: f64, deviation: f64) -> Option<usize> {
        let is_enough = |count: usize| {
            let width = Self::planned(count).width(count).unwrap_or(f64::INFINITY);
            (width + FOUR_IN_FIVE / (count as f64).sqrt()) * deviation <= effect
        };
        let mut enough = 4;
        while !is_enough(enough) {
            enough *= 2;
            if enough > MOST {
                return None;
            }
        }
        let (mut few, mut enough) = (enough / 2, enough);
        while few + 1 < enough {
            let middle = few.midpoint(enough);
            if is_enough(middle) {
                enough = middle;
            } else {
                few = middle;
            }
        }
        Some(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Bayes factor as it is defined.
    fn bayes_factor(rule: AnyTime, figures: &[f64], at: f64) -> f64 {
        let n = figures.len() as f64;
        let t = n.sqrt() * (mean(figures.iter().copied()) - at) / deviation(figures).unwrap();
        let (x, spread) = (t * t / (n - 1.0), 1.0 + n * rule.variance);
        ((1.0 + x) / (1.0 + x / spread)).powf(n / 2.0) / spread.sqrt()
    }

    #[test]
    fn at_the_ends_of_the_interval_the_odds_are_twenty() {
        let figures = [0.3, -0.1, 0.4, 0.2, 0.0, 0.35, 0.1, 0.25, 0.15, 0.3];
        for planned in [5, 10, 30] {
            let rule = AnyTime::planned(planned);
            let Mean { mean, half, .. } = rule.mean(&figures).unwrap();
            let end = mean + half.unwrap();
            let odds = bayes_factor(rule, &figures, end);
            assert!((odds - 20.0).abs() < 1e-9, "{planned}: {odds}");
            assert!(bayes_factor(rule, &figures, end + 0.01) > 20.0);
            assert!(bayes_factor(rule, &figures, mean) < 1.0);
        }
    }

    #[test]
    fn it_is_narrowest_where_it_was_planned_to_be_and_wider_than_students() {
        for count in [8, 30, 200] {
            let width = |planned| AnyTime::planned(planned).width(count).unwrap();
            assert!(width(count) <= width(count * 4) && width(count) <= width(count * 2 / 3));
            let students = 1.96 / (count as f64).sqrt();
            assert!((1.4..2.6).contains(&(width(count) / students)), "{count}");
        }
    }

    #[test]
    fn too_few_figures_have_no_interval() {
        let rule = AnyTime::planned(30);
        assert_eq!(rule.mean(&[]), None);
        assert_eq!(rule.mean(&[1.0]).unwrap().half, None);
        assert_eq!(rule.mean(&[1.0, 2.0, 1.5]).unwrap().half, None);
        let ten = [1.0, 2.0].repeat(5);
        assert!(rule.mean(&ten).unwrap().half.is_some());
        assert_eq!(AnyTime::planned(1000).mean(&ten).unwrap().half, None);
    }

    #[test]
    fn half_the_effect_takes_about_four_times_as_many_figures() {
        let (two, one) = (AnyTime::to_see(0.02, 0.03), AnyTime::to_see(0.01, 0.03));
        let ratio = one.unwrap() as f64 / two.unwrap() as f64;
        assert!((3.0..5.0).contains(&ratio), "{two:?} {one:?}");
        assert_eq!(AnyTime::to_see(1e-9, 1.0), None);
        assert_eq!(AnyTime::to_see(0.01, 0.0), Some(3));
    }
}
