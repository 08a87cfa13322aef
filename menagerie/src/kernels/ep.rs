//! ep: pairs of normally distributed random numbers, counted by size ("embarrassingly parallel":
//! RNR-94-007, section 2.2.1 "EP"; sizes and values of NPB 3).
//!
//! Memory: each thread fills and reads its own buffer of 1 MiB. Threads meet only to add up their
//! counts at the end. An iteration is here a batch of 2^16 pairs; batches are divided among the
//! threads.

use super::nas_random::NasRandom;
use super::{Check, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;

/// Pairs in a batch.
const PAIRS: usize = 1 << 16;

/// The seed of this benchmark.
const SEED: u64 = 271_828_183;

/// Largest relative error of the sums.
const TOLERANCE: f64 = 1e-8;

/// Annuli in which pairs are counted, by the larger of a pair's two numbers, rounded down.
const ANNULI: usize = 10;

/// The problem of a class.
///
/// # Errors
///
/// None: all memory belongs to single threads.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let log_pairs = terms.class.of([24, 25, 28, 30, 32]);
    let batches = (1 << log_pairs) / PAIRS as u64;
    let sums = terms.published("sums");
    Problem::new(format!("2^{log_pairs} pairs"), batches, Ep { sums })
}

struct Ep {
    /// The published sums of the first and of the second numbers of all pairs.
    sums: Vec<f64>,
}

/// Sums and counts of pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Found {
    sums: [f64; 2],
    counts: [f64; ANNULI],
}

impl Found {
    /// Adds the pairs that the polar method makes from a batch's `numbers`, uniform from 0 to 1.
    fn add(&mut self, numbers: &[f64]) {
        let (pairs, _) = numbers.as_chunks::<2>();
        for pair in pairs {
            let [x, y] = pair.map(|number| 2.0 * number - 1.0);
            let square = x * x + y * y;
            if square <= 1.0 {
                let scale = (-2.0 * square.ln() / square).sqrt();
                let (x, y) = (x * scale, y * scale);
                self.counts[x.abs().max(y.abs()) as usize] += 1.0;
                self.sums[0] += x;
                self.sums[1] += y;
            }
        }
    }
}

impl Kernel for Ep {
    fn set_up(&self, _member: &Member<'_>) -> Result<(), Stopped> {
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let mut buffer = vec![0.0; 2 * PAIRS];
        let mut found = Found::default();
        let batches = usize::try_from(member.iterations_wanted()).unwrap_or(usize::MAX);
        for batch in member.share(batches) {
            if member.is_stopping() {
                break;
            }
            let start = batch as u64 * buffer.len() as u64;
            NasRandom::new(SEED).skipped(start).fill(&mut buffer);
            found.add(&buffer);
            member.count(1);
        }
        let sums = member.sums(found.sums)?;
        for count in found.counts {
            // As in the benchmark, although the sums are not used.
            member.sum(count)?;
        }
        let names = ["sum of first numbers", "sum of second numbers"];
        let checks = names.into_iter().zip(sums).enumerate();
        Ok(checks
            .map(|(at, (name, sum))| {
                Check::published(name, sum, self.sums.get(at).copied(), TOLERANCE)
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_normally_distributed() {
        let mut numbers = vec![0.0; 2 * PAIRS];
        NasRandom::new(SEED).fill(&mut numbers);
        let mut found = Found::default();
        found.add(&numbers);
        let pairs: f64 = found.counts.iter().sum();
        // The area of a circle relative to its square.
        assert!((pairs / PAIRS as f64 - std::f64::consts::FRAC_PI_4).abs() < 0.01);
        // Both numbers within 1: 0.6827 squared; within 2: 0.9545 squared.
        assert!((found.counts[0] / pairs - 0.466).abs() < 0.01);
        assert!(((found.counts[0] + found.counts[1]) / pairs - 0.911).abs() < 0.01);
        assert!(found.sums.iter().all(|sum| sum.abs() < 3.0 * pairs.sqrt()));
    }

    #[test]
    fn what_lies_outside_the_circle_does_not_count() {
        let mut found = Found::default();
        found.add(&[0.99, 0.99, 0.01, 0.99]);
        assert_eq!(found, Found::default());
    }
}
