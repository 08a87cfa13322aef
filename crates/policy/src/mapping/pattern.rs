//! Whether communication between threads has changed so much that they are to be mapped anew.
//!
//! Problem: a mapping that follows every flicker of the counts moves threads for nothing. IPM
//! (§4.4.4) changes it "only if the sharing pattern changes significantly" and leaves open what that
//! is.
//!
//! Measure (ours): the share of all communication that is now between other pairs than when threads
//! were last mapped. Both matrices are scaled to a sum of 1; the measure is half the sum of the
//! differences of their cells (the total variation distance), from 0, the same pattern however much
//! or little there is of it, to 1, none of the pairs the same. A pattern has changed when that is
//! above a share that can be set; a fifth by default, as N-MASS (§3.4) has it for miss rates. It is
//! compared with the last mapped pattern, not the last seen one, so that slow changes are noticed
//! too.
//!
//! Chance alone makes patterns differ: of N events spread evenly over m pairs, two samples differ by
//! about 0.56 * sqrt(m / N). With fewer than eight events to a pair, that is above a fifth.
//!
//! A pattern has also changed when threads or available CPUs came or went. As long as no threads have
//! communicated, there is nothing to go by, and what was mapped stays.
//!
//! Properties: the same pattern again is no change, even if aged or multiplied (except for rounding);
//! the first with any communication is one. Cost: n^2, far below that of a mapper.

use super::{Communication, Tree};

/// Default of the share of communication that must have changed.
pub const CHANGED_BY: f64 = 0.2;

/// What threads were last mapped by. See the top of this file.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    changed_by: f64,
    last: Option<(Communication, Tree)>,
}

impl Pattern {
    /// Nothing mapped yet. `changed_by` is the share of communication, from 0 to 1, above which a
    /// pattern has changed.
    pub fn new(changed_by: f64) -> Self {
        Self {
            changed_by,
            last: None,
        }
    }

    /// Whether threads are to be mapped anew. If so, this becomes the last mapped pattern.
    pub fn has_changed(&mut self, communication: &Communication, tree: &Tree) -> bool {
        let changed = match &self.last {
            None => communication.total() > 0,
            Some((last, on)) => {
                last.threads() != communication.threads()
                    || on != tree
                    || difference(last, communication) > self.changed_by
            }
        };
        if changed {
            self.last = Some((communication.clone(), tree.clone()));
        }
        changed
    }
}

/// The share of communication that is between other pairs, from 0 to 1 (see above). 0 when one of the
/// two has no communication, or they are of different numbers of threads.
pub fn difference(one: &Communication, other: &Communication) -> f64 {
    let totals = [one.total(), other.total()].map(|total| total as f64);
    if totals.contains(&0.0) || one.threads() != other.threads() {
        return 0.0;
    }
    let pairs = (0..one.threads()).flat_map(|thread| {
        let [one, other] = [one, other].map(|of| &of.row(thread)[..thread]);
        one.iter().zip(other)
    });
    let differences =
        pairs.map(|(&one, &other)| (one as f64 / totals[0] - other as f64 / totals[1]).abs());
    differences.sum::<f64>() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(threads: usize, strength: u64) -> Communication {
        Communication::of(
            threads,
            |row, column| {
                if row + 1 == column { strength } else { 0 }
            },
        )
    }

    fn tree(cpus: usize) -> Tree {
        Tree::even(&[2, cpus / 2]).expect("there are CPUs")
    }

    #[test]
    fn the_first_communication_is_a_change_and_more_of_the_same_is_none() {
        let mut pattern = Pattern::new(CHANGED_BY);
        assert!(!pattern.has_changed(&Communication::new(8), &tree(8)));
        assert!(pattern.has_changed(&chain(8, 100), &tree(8)));
        assert!(!pattern.has_changed(&chain(8, 100), &tree(8)));
        assert!(!pattern.has_changed(&chain(8, 7), &tree(8)));
        assert!(!pattern.has_changed(&Communication::new(8), &tree(8)));
    }

    #[test]
    fn threads_that_come_and_cpus_that_go_are_changes() {
        let mut pattern = Pattern::new(CHANGED_BY);
        assert!(pattern.has_changed(&chain(8, 100), &tree(8)));
        assert!(pattern.has_changed(&chain(9, 100), &tree(8)));
        assert!(pattern.has_changed(&chain(9, 100), &tree(6)));
        assert!(!pattern.has_changed(&chain(9, 100), &tree(6)));
    }

    #[test]
    fn the_measure_is_the_share_between_other_pairs() {
        // 70 between 0 and 1, 30 between 1 and 2; then 30 goes to another pair and all doubles.
        let of = |pairs: &[(usize, usize, u64)]| {
            let mut of = Communication::new(4);
            pairs
                .iter()
                .for_each(|&(one, other, count)| of.add(one, other, count));
            of
        };
        let before = of(&[(0, 1, 70), (1, 2, 30)]);
        let after = of(&[(0, 1, 140), (2, 3, 60)]);
        assert!((difference(&before, &after) - 0.3).abs() < 1e-12);
        assert!((difference(&after, &before) - 0.3).abs() < 1e-12);
        assert!((difference(&before, &of(&[(0, 3, 1)])) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_creeps_is_noticed_though_no_step_is_large() {
        let mut pattern = Pattern::new(CHANGED_BY);
        let step = |percent: u64| {
            let mut of = Communication::new(4);
            of.add(0, 1, 100 - percent);
            of.add(2, 3, percent);
            of
        };
        let changed: Vec<u64> = (0..100)
            .filter(|&percent| pattern.has_changed(&step(percent), &tree(4)))
            .collect();
        assert_eq!(changed, [0, 21, 42, 63, 84]);
    }
}
