//! Memory shared by the threads of a kernel: arrays of numbers that any thread may read and write
//! at any time.
//!
//! An array is fresh memory from the operating system, so the thread that first writes a page
//! determines its node, as with the static arrays of the OpenMP programs. Arrays allocated together
//! lie one after the other, as in a Fortran common block. If each started on a huge page, a loop
//! over several of them would use the same sets of caches and TLBs for all.
//!
//! Elements are atomic words accessed with relaxed order, which on current processors is the plain
//! load or store of an OpenMP program. Barriers order the accesses of different threads
//! ([`super::team`]).

use super::Terms;
use crate::error::Error;
use crate::sys::{LINE, Region};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Owner of an array of floating-point numbers. Computations use its [`Field`].
#[derive(Debug)]
pub struct Array {
    region: Arc<Region>,
    words: Range<usize>,
}

impl Array {
    /// Arrays of these lengths, one after the other in memory, with all elements zero.
    ///
    /// # Errors
    ///
    /// If the machine, or the home node, has too little memory.
    pub fn several<const N: usize>(
        terms: &Terms<'_>,
        lengths: [usize; N],
    ) -> Result<[Array; N], Error> {
        const IN_LINE: usize = LINE / size_of::<u64>();
        let mut end = 0;
        let ranges = lengths.map(|length| {
            let start = end;
            end = (start + length).next_multiple_of(IN_LINE);
            start..start + length
        });
        let region = Arc::new(terms.memory(end * size_of::<u64>())?);
        Ok(ranges.map(|words| Array {
            region: Arc::clone(&region),
            words,
        }))
    }

    /// One array.
    ///
    /// # Errors
    ///
    /// As [`Array::several`].
    pub fn new(terms: &Terms<'_>, length: usize) -> Result<Array, Error> {
        let [array] = Array::several(terms, [length])?;
        Ok(array)
    }

    /// Its elements.
    pub fn field(&self) -> Field<'_> {
        Field {
            words: &self.region.shared_words()[self.words.clone()],
        }
    }
}

/// The elements of an array, or a contiguous part of them.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Field<'a> {
    /// Element `index`.
    #[inline(always)]
    pub fn get(self, index: usize) -> f64 {
        f64::from_bits(self.words[index].load(Ordering::Relaxed))
    }

    /// Makes element `index` `value`.
    #[inline(always)]
    pub fn set(self, index: usize, value: f64) {
        self.words[index].store(value.to_bits(), Ordering::Relaxed);
    }

    /// Adds to element `index`. This is not atomic: no other thread may write it meanwhile.
    #[inline(always)]
    pub fn add(self, index: usize, value: f64) {
        let word = &self.words[index];
        let sum = f64::from_bits(word.load(Ordering::Relaxed)) + value;
        word.store(sum.to_bits(), Ordering::Relaxed);
    }

    /// The `length` elements from `start` on. Loops over a row use this, because the compiler then
    /// knows the bounds.
    #[inline(always)]
    pub fn row(self, start: usize, length: usize) -> Field<'a> {
        Field {
            words: &self.words[start..start + length],
        }
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.words.len()
    }

    /// Makes all elements of `range` `value`.
    pub fn fill(self, range: Range<usize>, value: f64) {
        for word in &self.words[range] {
            word.store(value.to_bits(), Ordering::Relaxed);
        }
    }
}

/// Owner of an array of 32-bit integers.
#[derive(Debug)]
pub struct WholeArray {
    region: Region,
    length: usize,
}

impl WholeArray {
    /// An array of `length` elements, zero.
    ///
    /// # Errors
    ///
    /// As [`Array::several`].
    pub fn new(terms: &Terms<'_>, length: usize) -> Result<WholeArray, Error> {
        let region = terms.memory(length * size_of::<u32>())?;
        Ok(WholeArray { region, length })
    }

    /// Its elements.
    pub fn field(&self) -> WholeField<'_> {
        WholeField {
            words: &self.region.shared_half_words()[..self.length],
        }
    }
}

/// The elements of an array of integers, or a contiguous part of them.
#[derive(Clone, Copy, Debug)]
pub struct WholeField<'a> {
    words: &'a [AtomicU32],
}

impl<'a> WholeField<'a> {
    /// All of `words`, which belong to no array.
    pub fn over(words: &'a [AtomicU32]) -> WholeField<'a> {
        WholeField { words }
    }

    /// Element `index`.
    #[inline(always)]
    pub fn get(self, index: usize) -> u32 {
        self.words[index].load(Ordering::Relaxed)
    }

    /// Makes element `index` `value`.
    #[inline(always)]
    pub fn set(self, index: usize, value: u32) {
        self.words[index].store(value, Ordering::Relaxed);
    }

    /// Number of elements.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.words.len()
    }

    /// The `length` elements from `start` on.
    #[inline(always)]
    pub fn row(self, start: usize, length: usize) -> WholeField<'a> {
        WholeField {
            words: &self.words[start..start + length],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Class, trial};
    use proptest::prelude::*;

    /// The address of an element.
    fn address(field: Field<'_>, index: usize) -> usize {
        std::ptr::from_ref(&field.words[index]).addr()
    }

    proptest! {
        #[test]
        fn arrays_lie_one_after_the_other_and_share_no_line(lengths in [1usize..5000, 1..5000, 1..5000]) {
            let arrays = trial::with_terms(Class::S, 1, |terms| Array::several(terms, lengths)).unwrap();
            let fields = arrays.each_ref().map(Array::field);
            prop_assert_eq!(fields.map(Field::len), lengths);
            for pair in fields.windows(2) {
                let end = address(pair[0], pair[0].len() - 1);
                let start = address(pair[1], 0);
                prop_assert!(end < start && start - end <= LINE);
                prop_assert_ne!(end / LINE, start / LINE);
            }
        }

        #[test]
        fn what_is_set_is_there_and_nowhere_else(length in 2usize..100, at in 0usize..100, value: f64) {
            let at = at % length;
            let array = trial::with_terms(Class::S, 1, |terms| Array::new(terms, length)).unwrap();
            let field = array.field();
            field.set(at, value);
            for index in 0..length {
                let expected = if index == at { value } else { 0.0 };
                prop_assert_eq!(field.get(index).to_bits(), expected.to_bits());
            }
            field.set(at, 1.5);
            field.add(at, 2.0);
            prop_assert_eq!(field.row(at, 1).get(0), 3.5);
        }
    }

    #[test]
    fn whole_numbers_lie_side_by_side() {
        trial::with_terms(Class::S, 1, |terms| {
            let array = WholeArray::new(terms, 5000).unwrap();
            let field = array.field();
            assert_eq!(field.len(), 5000);
            (0..5000).for_each(|at| field.set(at, at as u32));
            assert!((0..5000).all(|at| field.row(at, 1).get(0) == at as u32));
        });
    }

    #[test]
    fn more_memory_than_there_is_is_refused_before_it_is_touched() {
        trial::with_terms(Class::S, 1, |terms| {
            let error = Array::new(terms, 1 << 50).unwrap_err();
            let Error::ClassTooLarge { wanted, .. } = &error else {
                panic!("{error}");
            };
            assert_eq!(*wanted, 1 << 53);
            assert_eq!(error.exit_code(), 1);
        });
    }
}
