//! Statistics of a few figures, for instance those of several runs: mean, deviation, confidence interval,
//! quantile.
//!
//! The 95 % confidence interval of a mean is Student's. Over n figures with mean m and standard deviation s (of n - 1
//! degrees of freedom) it is m ± t · s / √n, where t is the 0.975 quantile of Student's distribution. It contains the
//! mean of a normal population in 95 of 100 such samples. A single figure says nothing about the spread, and has no
//! interval.

use std::borrow::Borrow;

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Arithmetic mean; NaN for an empty sample.
pub fn mean(figures: impl IntoIterator<Item = impl Borrow<f64>>) -> f64 {
    let figures = figures.into_iter().map(|figure| *figure.borrow());
    let add = |(sum, count), figure: f64| (sum + figure, count + 1.0);
    let (sum, count) = figures.fold((0.0, 0.0), add);
    sum / count
}

/// Sample standard deviation (n - 1); `None` for fewer than two figures.
pub fn deviation(figures: &[f64]) -> Option<f64> {
    let freedom = figures
        .len()
        .checked_sub(1)
        .filter(|&freedom| freedom > 0)?;
    let middle = mean(figures);
    let squares: f64 = figures.iter().map(|figure| (figure - middle).powi(2)).sum();
    Some((squares / freedom as f64).sqrt())
}

/// The figure at this share (0 to 1) of the sorted figures, which it reorders. `None` for an empty sample.
pub fn quantile(figures: &mut [f64], share: f64) -> Option<f64> {
    let last = figures.len().checked_sub(1)?;
    let at = (last as f64 * share).round() as usize;
    let (_, found, _) = figures.select_nth_unstable_by(at, f64::total_cmp);
    Some(*found)
}

/// The mean of some figures, and how far off it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// How many figures.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Half of the 95 % confidence interval; `None` for too few figures.
    pub half: Option<f64>,
}

impl Mean {
    /// The mean of these figures; `None` if there are none, or if their sum is not finite.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let count = figures.len();
        let mean = Some(mean(figures)).filter(|mean| mean.is_finite())?;
        let half = deviation(figures).map(|of| t(count as f64 - 1.0) * of / (count as f64).sqrt());
        let half = half.filter(|half| half.is_finite());
        Some(Self { count, mean, half })
    }
}

/// The 0.975 quantile of Student's t.
fn t(freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom);
    let student = student.expect("two figures or more leave a degree of freedom");
    student.inverse_cdf(0.975)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        let tables = [
            (1.0, 12.706),
            (2.0, 4.303),
            (4.0, 2.776),
            (9.0, 2.262),
            (30.0, 2.042),
        ];
        for (freedom, quantile) in tables {
            assert!(
                (t(freedom) - quantile).abs() < 5e-4,
                "{freedom}: {}",
                t(freedom)
            );
        }
    }

    #[test]
    fn an_interval_is_that_of_the_textbook() {
        // Mean 5, s = √2.5, t(4) = 2.776445: half = 1.963243.
        let mean = Mean::of(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert_eq!((mean.count, mean.mean), (5, 5.0));
        assert!((mean.half.unwrap() - 1.963_243).abs() < 1e-5, "{mean:?}");
    }

    #[test]
    fn a_single_figure_has_no_interval_and_none_has_no_mean() {
        let one = Mean {
            count: 1,
            mean: 4.0,
            half: None,
        };
        assert_eq!(Mean::of(&[4.0]), Some(one));
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[f64::MAX, f64::MAX]), None);
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(deviation(&[1.0, 3.0]), Some(2f64.sqrt()));
        assert_eq!(deviation(&[1.0]), None);
        assert_eq!(deviation(&[]), None);
    }

    #[test]
    fn a_quantile_is_one_of_the_figures() {
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.9), Some(3.0));
        assert_eq!(quantile(&mut [], 0.5), None);
    }

    proptest! {
        #[test]
        fn figures_that_agree_have_no_spread_and_shifting_them_shifts_the_mean(
            figures in prop::collection::vec(-1e6..1e6f64, 2..12), by in -1e6..1e6f64,
        ) {
            let mean = Mean::of(&figures).unwrap();
            let shifted: Vec<f64> = figures.iter().map(|figure| figure + by).collect();
            let shifted = Mean::of(&shifted).unwrap();
            prop_assert!((shifted.mean - mean.mean - by).abs() < 1e-6);
            prop_assert!((shifted.half.unwrap() - mean.half.unwrap()).abs() < 1e-3);
            let same = Mean::of(&[by, by, by]).unwrap();
            prop_assert!(same.half.unwrap() < 1e-6);
        }
    }
}
