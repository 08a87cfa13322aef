//! The Sharing Matrix (SM) of an application: the affinity between each pair of its threads
//! (IPM §4.2, §4.3.2, Eq. 3).
//!
//! A thread adds to its own row only (§4.3.2), so the matrix itself is not symmetric. The affinity
//! of two threads is the sum of what both have added, [`SharingMatrix::between`]; give that to a
//! mapping algorithm. Eq. 3 taken literally also adds to the diagonal if a thread is itself among
//! the last sharers of a page. The matrix keeps these values, but they count for no affinity.
//!
//! Reading: elements saturate. The paper says so for the NUMA Vector only, but with sums that wrap,
//! the two threads that share most could seem to share nothing.

/// Affinity between the threads of an application, in units of 2^`CR_shift` cycles of residency.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharingMatrix {
    /// Room for threads (`nt`).
    threads: usize,
    /// Row by row.
    elements: Vec<u32>,
    /// Highest value of an element.
    most: u32,
}

impl SharingMatrix {
    pub(super) fn new(threads: u32, element_bits: u32) -> Self {
        let threads = threads as usize;
        Self {
            threads,
            elements: vec![0; threads * threads],
            most: u32::MAX >> (32 - element_bits),
        }
    }

    /// Room for threads: the number of rows and of columns.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// What `thread` has added for each thread that shared pages with it, indexed by that thread's number.
    ///
    /// # Panics
    /// When there is no room for such a thread.
    pub fn row(&self, thread: u32) -> &[u32] {
        &self.elements[thread as usize * self.threads..][..self.threads]
    }

    /// Affinity of two threads, symmetric; 0 between a thread and itself.
    ///
    /// # Panics
    /// When there is no room for such threads.
    pub fn between(&self, one: u32, other: u32) -> u64 {
        if one == other {
            return 0;
        }
        let added = |row, column: u32| u64::from(self.row(row)[column as usize]);
        added(one, other) + added(other, one)
    }

    /// Ages the matrix, as the operating system does each time it maps threads: multiplies every
    /// element by `factor`, 0.75 in the paper (§4.4.4), and rounds down.
    ///
    /// # Panics
    /// When `factor` is not from 0 to 1.
    pub fn age(&mut self, factor: f64) {
        assert!((0.0..=1.0).contains(&factor), "ageing by {factor}");
        for element in self.elements.iter_mut().filter(|element| **element != 0) {
            *element = (f64::from(*element) * factor) as u32;
        }
    }

    /// Eq. 3, for one sharer.
    pub(super) fn add(&mut self, thread: u32, sharer: u32, residency: u64) {
        let element = &mut self.elements[thread as usize * self.threads + sharer as usize];
        let sum = u64::from(*element).saturating_add(residency);
        *element = sum.min(u64::from(self.most)) as u32;
    }

    /// Resets a thread's row and column (§4.4.3).
    pub(super) fn reset(&mut self, thread: u32) {
        let thread = thread as usize;
        self.elements[thread * self.threads..][..self.threads].fill(0);
        for row in self.elements.chunks_exact_mut(self.threads) {
            row[thread] = 0;
        }
    }

    /// Makes room for more threads: a new matrix with the values of the old one (§4.4.2).
    pub(super) fn grow(&mut self, threads: u32) {
        let threads = threads as usize;
        let mut elements = vec![0; threads * threads];
        let rows = elements.chunks_exact_mut(threads);
        for (new, old) in rows.zip(self.elements.chunks_exact(self.threads)) {
            new[..self.threads].copy_from_slice(old);
        }
        *self = Self {
            threads,
            elements,
            most: self.most,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ageing_multiplies_and_rounds_down() {
        let mut matrix = SharingMatrix::new(2, 32);
        matrix.add(0, 1, 100);
        matrix.add(1, 0, 1);
        matrix.add(1, 1, u64::MAX);
        matrix.age(0.75);
        assert_eq!(matrix.row(0), [0, 75]);
        assert_eq!(matrix.row(1), [0, 3_221_225_471]);
    }

    proptest! {
        /// Affinity is symmetric, elements stay within their bits, growth keeps all elements, and a
        /// reset clears only one thread's row and column.
        #[test]
        fn whatever_is_added(
            bits in 1u32..33,
            added in prop::collection::vec((0u32..6, 0u32..6, any::<u64>(), 0u32..40), 0..100),
            gone in 0u32..6,
        ) {
            let mut matrix = SharingMatrix::new(6, bits);
            for &(thread, sharer, residency, shift) in &added {
                matrix.add(thread, sharer, residency >> shift);
            }
            let before = matrix.clone();
            matrix.grow(9);
            for one in 0..6 {
                prop_assert_eq!(&matrix.row(one)[..6], before.row(one));
                prop_assert!(matrix.row(one).iter().all(|&element| element <= u32::MAX >> (32 - bits)));
                prop_assert_eq!(matrix.between(one, one), 0);
                for other in 0..9 {
                    prop_assert_eq!(matrix.between(one, other), matrix.between(other, one));
                }
            }
            matrix.reset(gone);
            for one in 0..6 {
                for other in 0..6u32 {
                    let kept = before.row(one)[other as usize];
                    let expected = if one == gone || other == gone { 0 } else { kept };
                    prop_assert_eq!(matrix.row(one)[other as usize], expected);
                }
            }
        }
    }
}
