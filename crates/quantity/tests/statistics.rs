//! Statistics against their definitions: every sample of up to five small figures.

use numaherd_quantity::statistics::{Mean, deviation, mean, quantile};

/// Every sample of `count` figures from -2 to 2.
fn samples(count: u32) -> impl Iterator<Item = Vec<f64>> {
    (0..5u32.pow(count)).map(move |number| {
        let digits = (0..count).map(|at| number / 5u32.pow(at) % 5);
        digits.map(|digit| f64::from(digit) - 2.0).collect()
    })
}

#[test]
fn the_variance_is_half_the_mean_square_of_all_differences() {
    for sample in (2..=5).flat_map(samples) {
        let differences = sample
            .iter()
            .flat_map(|a| sample.iter().map(move |b| a - b));
        let squares: f64 = differences.map(|difference| difference.powi(2)).sum();
        let count = sample.len() as f64;
        let expected = squares / (2.0 * count * (count - 1.0));
        let found = deviation(&sample).unwrap().powi(2);
        let off = (found - expected).abs();
        assert!(off < 1e-12, "{sample:?}: {found}, not {expected}");
    }
}

#[test]
fn a_mean_and_its_interval_follow_figures_that_are_mirrored_or_doubled() {
    for sample in (1..=5).flat_map(samples) {
        let found = Mean::of(&sample).unwrap();
        let off: f64 = sample.iter().map(|figure| figure - found.mean).sum();
        assert!(off.abs() < 1e-12, "{sample:?}");
        assert_eq!(found.mean, mean(&sample));
        assert_eq!(found.half.is_some(), sample.len() > 1);
        for factor in [-1.0, 2.0] {
            let other: Vec<f64> = sample.iter().map(|figure| factor * figure).collect();
            let other = Mean::of(&other).unwrap();
            let half = found.half.map(|half| factor.abs() * half);
            assert_eq!((other.mean, other.half), (factor * found.mean, half));
        }
    }
}

#[test]
fn a_quantile_is_the_figure_with_as_many_before_it() {
    for sample in (1..=5).flat_map(samples) {
        let mut sorted = sample.clone();
        sorted.sort_by(f64::total_cmp);
        for tenths in 0..=10u32 {
            let share = f64::from(tenths) / 10.0;
            let found = quantile(&mut sample.clone(), share).unwrap();
            let at = (share * (sample.len() - 1) as f64).round() as usize;
            assert_eq!(found, sorted[at], "{sample:?} at {share}");
        }
    }
}
