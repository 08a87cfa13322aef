//! Statistics of samples: mean, extremes, sample standard deviation, correlation, regression line.
//!
//! A figure that a sample does not determine (the mean of nothing, the correlation with a constant) is NaN, unless the
//! return type is an `Option`.

use std::borrow::Borrow;

pub use numaherd_quantity::statistics::{deviation, mean};
use serde::{Deserialize, Serialize};

/// The largest figure; NaN for an empty sample.
pub fn largest(figures: impl IntoIterator<Item = impl Borrow<f64>>) -> f64 {
    each(figures).fold(f64::NAN, f64::max)
}

/// The smallest figure; NaN for an empty sample.
pub fn smallest(figures: impl IntoIterator<Item = impl Borrow<f64>>) -> f64 {
    each(figures).fold(f64::NAN, f64::min)
}

fn each(figures: impl IntoIterator<Item = impl Borrow<f64>>) -> impl Iterator<Item = f64> {
    figures.into_iter().map(|figure| *figure.borrow())
}

/// [`deviation`] relative to the mean; `None` for fewer than two figures.
pub fn relative_deviation(figures: &[f64]) -> Option<f64> {
    Some(deviation(figures)? / mean(figures))
}

/// Pearson's correlation coefficient of paired figures; NaN if either side does not vary. The correlation of [`ranks`]
/// is Spearman's.
pub fn correlation(one: &[f64], other: &[f64]) -> f64 {
    let around_mean = |row: &[f64]| -> Vec<f64> {
        let middle = mean(row);
        row.iter().map(|figure| figure - middle).collect()
    };
    let product = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let (one, other) = (around_mean(one), around_mean(other));
    product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt()
}

/// Ranks from 1 upwards; equal figures share the mean of their ranks.
pub fn ranks(figures: &[f64]) -> Vec<f64> {
    let rank = |figure: &f64| {
        let below = figures.iter().filter(|other| *other < figure).count() as f64;
        let equal = figures.iter().filter(|other| *other == figure).count() as f64;
        below + (equal + 1.0) / 2.0
    };
    figures.iter().map(rank).collect()
}

/// A sample, for instance the times of several runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sample(pub Vec<f64>);

impl Sample {
    /// Its [`mean`].
    pub fn mean(&self) -> f64 {
        mean(&self.0)
    }

    /// Its [`largest`] figure.
    pub fn largest(&self) -> f64 {
        largest(&self.0)
    }

    /// Its [`relative_deviation`].
    pub fn relative_deviation(&self) -> Option<f64> {
        relative_deviation(&self.0)
    }

    /// The same in percent; 0 for a single figure, which deviates from nothing.
    pub fn deviation_percent(&self) -> f64 {
        self.relative_deviation().map_or(0.0, |share| share * 100.0)
    }
}

/// A straight line fitted by least squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearFit {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for each unit of x.
    pub slope: f64,
    /// Coefficient of determination, R².
    pub determination: f64,
}

impl LinearFit {
    /// The line through points (x, y).
    pub fn through(points: &[(f64, f64)]) -> Self {
        let x = mean(points.iter().map(|point| point.0));
        let y = mean(points.iter().map(|point| point.1));
        let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
        let xx = sum(&|point| (point.0 - x).powi(2));
        let yy = sum(&|point| (point.1 - y).powi(2));
        let xy = sum(&|point| (point.0 - x) * (point.1 - y));
        Self {
            intercept: y - xy / xx * x,
            slope: xy / xx,
            determination: xy * xy / (xx * yy),
        }
    }

    /// The line's value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_correlates_fully_and_a_constant_not_at_all() {
        assert!((correlation(&[1.0, 2.0, 3.0], &[10.0, 8.0, 6.0]) + 1.0).abs() < 1e-12);
        assert!((correlation(&[0.0, 1.0, 2.0], &[0.0, 2.0, 1.0]) - 0.5).abs() < 1e-12);
        assert!(correlation(&[1.0, 2.0, 3.0], &[1.0, 0.0, 1.0]).abs() < 1e-12);
        assert!(correlation(&[1.0, 1.0], &[1.0, 2.0]).is_nan());
    }

    #[test]
    fn the_deviation_is_that_of_a_sample() {
        assert_eq!(deviation(&[1.0, 3.0]), Some(2f64.sqrt()));
        assert_eq!(relative_deviation(&[1.0, 3.0]), Some(2f64.sqrt() / 2.0));
        assert_eq!(deviation(&[1.0]), None);
        assert_eq!(Sample(vec![1.0]).deviation_percent(), 0.0);
    }

    #[test]
    fn equal_figures_share_a_rank() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 9.0]), [2.5, 1.0, 2.5, 4.0]);
    }

    #[test]
    fn a_line_through_points_on_a_line_is_that_line() {
        let points = [1.0, 4.0, 9.0].map(|x| (x, 1.05 + 0.015 * x));
        let line = LinearFit::through(&points);
        assert!((line.intercept - 1.05).abs() < 1e-12);
        assert!((line.slope - 0.015).abs() < 1e-12);
        assert!((line.determination - 1.0).abs() < 1e-12);
        assert!((line.at(100.0) - 2.55).abs() < 1e-12);
    }
}
