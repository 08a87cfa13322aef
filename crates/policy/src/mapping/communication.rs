//! Which threads communicate, and how much: a symmetric matrix of counts, one row for each thread.
//!
//! The unit of a count is whatever the signal gives: cycles of TLB residency shared (IPM's Sharing
//! Matrix), samples, lines handed over. Mappers use only how counts compare, never the unit.
//!
//! Properties: symmetric, its diagonal 0 (no thread communicates with itself); counts stop at the
//! largest `u64` instead of wrapping; as many threads as there is memory for.

use std::borrow::Cow;

/// Mappers add counts up in 64 bits with room to spare for the levels of a tree.
const LARGEST_TOTAL: u128 = 1 << 56;

/// See the top of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Communication {
    threads: usize,
    // Row by row.
    cells: Vec<u64>,
    // Of all cells, so that each pair counts twice.
    total: u128,
}

impl Communication {
    /// The matrix of threads that never communicated.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            cells: vec![0; threads * threads],
            total: 0,
        }
    }

    /// The matrix of the counts that `count` gives for row and column. Rows need not be symmetric,
    /// as those of IPM's Sharing Matrix are not: the two directions are added up.
    pub fn of(threads: usize, mut count: impl FnMut(usize, usize) -> u64) -> Self {
        let mut of = Self::new(threads);
        for row in 0..threads {
            for column in 0..threads {
                of.add(row, column, count(row, column));
            }
        }
        of
    }

    /// How many threads there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// What two threads communicated; 0 of a thread with itself.
    pub fn between(&self, one: usize, other: usize) -> u64 {
        self.row(one)[other]
    }

    /// What a thread communicated with each.
    pub fn row(&self, thread: usize) -> &[u64] {
        &self.cells[thread * self.threads..][..self.threads]
    }

    /// What all threads communicated, each pair counted once.
    pub fn total(&self) -> u128 {
        self.total / 2
    }

    /// Counts more communication of two threads. That of a thread with itself is not kept.
    pub fn add(&mut self, one: usize, other: usize, count: u64) {
        if one != other {
            self.set(one, other, self.between(one, other).saturating_add(count));
        }
    }

    /// All cells, row by row, halved until sums of them fit well into 64 bits. Up to a total of
    /// 2^55 over all pairs, they are as counted.
    pub(super) fn cells(&self) -> Cow<'_, [u64]> {
        let mut halvings = 0;
        while self.total >> halvings > LARGEST_TOTAL {
            halvings += 1;
        }
        match halvings {
            0 => Cow::Borrowed(&self.cells),
            _ => self.cells.iter().map(|cell| cell >> halvings).collect(),
        }
    }

    fn set(&mut self, one: usize, other: usize, count: u64) {
        let before = self.between(one, other);
        self.total = self.total - 2 * u128::from(before) + 2 * u128::from(count);
        self.cells[one * self.threads + other] = count;
        self.cells[other * self.threads + one] = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_add_up_and_the_diagonal_stays_empty() {
        let sharing = [[9, 1, 2], [10, 9, 0], [20, 5, 9]];
        let of = Communication::of(3, |row, column| sharing[row][column]);
        assert_eq!(of.row(0), [0, 11, 22]);
        assert_eq!(of.row(1), [11, 0, 5]);
        assert_eq!(of.row(2), [22, 5, 0]);
        assert_eq!(of.total(), 38);
    }

    #[test]
    fn sums_of_the_largest_counts_fit() {
        let of = Communication::of(4, |row, column| if row < column { u64::MAX } else { 0 });
        let sum: u128 = of.cells().iter().map(|&cell| u128::from(cell)).sum();
        assert!(sum <= LARGEST_TOTAL && sum > LARGEST_TOTAL / 4);
    }
}
