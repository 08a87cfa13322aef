//! stream: sequential passes, for which prefetchers run ahead, so they measure bandwidth and not
//! latency. The kernels are STREAM's, on integers, plus a plain sum; [`Kernel::arrays`] gives the
//! lines that each fetches.

use crate::error::Error;
use crate::sys::{LINE, Region};
use crate::workload::{Cost, Workload};
use std::hint::black_box;

/// Words in a line.
const WORDS: usize = LINE / size_of::<u64>();

/// What is done with each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kernel {
    /// sum += a: one line read.
    Sum,
    /// a = 3 b: one line read, one written.
    Scale,
    /// a = b + 3 c: two lines read, one written.
    Triad,
}

impl Kernel {
    /// Arrays that share the working set, which is also the number of lines fetched per operation:
    /// a line to be written is fetched first.
    pub fn arrays(self) -> usize {
        match self {
            Kernel::Sum => 1,
            Kernel::Scale => 2,
            Kernel::Triad => 3,
        }
    }

    /// The cost of one operation: the next line of each array.
    pub fn cost(self) -> Cost {
        let instructions = match self {
            Kernel::Sum => 13.0,
            Kernel::Scale | Kernel::Triad => 27.0,
        };
        Cost::new(instructions, self.arrays() as f64)
    }
}

/// Sequential passes over a working set.
#[derive(Debug)]
pub struct Stream {
    region: Region,
    kernel: Kernel,
    /// Lines of each array.
    lines: usize,
    /// The next line of each array.
    next: usize,
    sum: u64,
}

impl Stream {
    /// Divides `region` among the kernel's arrays. It must have room for a line of each.
    pub fn new(region: Region, kernel: Kernel) -> Stream {
        let lines = region.bytes() / LINE / kernel.arrays();
        Stream {
            region,
            kernel,
            lines,
            next: 0,
            sum: 0,
        }
    }

    /// Processes the next `lines` lines of each array, which must not exceed its end.
    #[inline(never)]
    fn pass(&mut self, lines: usize) {
        let range = self.next..self.next + lines;
        let (memory, _) = self.region.words().as_chunks_mut::<WORDS>();
        // Hidden from the compiler, so that it does not merge repeated passes.
        let memory = black_box(memory);
        let (first, rest) = memory.split_at_mut(self.lines);
        match self.kernel {
            Kernel::Sum => self.sum = sum(self.sum, &first[range]),
            Kernel::Scale => scale(&mut first[range.clone()], &rest[range]),
            Kernel::Triad => {
                let (second, third) = rest.split_at(self.lines);
                triad(
                    &mut first[range.clone()],
                    &second[range.clone()],
                    &third[range],
                );
            }
        }
    }
}

#[inline(never)]
fn sum(start: u64, lines: &[[u64; WORDS]]) -> u64 {
    lines
        .iter()
        .flatten()
        .fold(start, |sum, word| sum.wrapping_add(*word))
}

#[inline(never)]
fn scale(to: &mut [[u64; WORDS]], from: &[[u64; WORDS]]) {
    for (to, from) in to.iter_mut().zip(from) {
        for word in 0..WORDS {
            to[word] = from[word].wrapping_mul(3);
        }
    }
}

#[inline(never)]
fn triad(to: &mut [[u64; WORDS]], left: &[[u64; WORDS]], right: &[[u64; WORDS]]) {
    for ((to, left), right) in to.iter_mut().zip(left).zip(right) {
        for word in 0..WORDS {
            to[word] = left[word].wrapping_add(right[word].wrapping_mul(3));
        }
    }
}

impl Workload for Stream {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        let mut left = operations;
        while left > 0 {
            let lines = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.lines - self.next);
            self.pass(lines);
            self.next = (self.next + lines) % self.lines;
            left -= lines as u64;
        }
        black_box(self.sum);
        Ok(())
    }

    fn batch(&self) -> u64 {
        1 << 14
    }

    fn round(&self) -> u64 {
        self.lines as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region() -> Region {
        let mut region = Region::map(3 * 4096).unwrap();
        for (index, word) in region.words().iter_mut().enumerate() {
            *word = index as u64;
        }
        region
    }

    #[test]
    fn a_round_of_sum_adds_every_word_once() {
        let mut stream = Stream::new(region(), Kernel::Sum);
        stream.run(stream.round()).unwrap();
        assert_eq!(stream.sum, (0..3 * 512).sum::<u64>());
    }

    #[test]
    fn a_round_of_scale_makes_one_half_three_times_the_other() {
        let mut stream = Stream::new(region(), Kernel::Scale);
        stream.run(stream.round()).unwrap();
        let words = stream.region.words();
        let (left, right) = words.split_at(words.len() / 2);
        assert!(
            left.iter()
                .zip(right)
                .all(|(left, right)| *left == 3 * right)
        );
        assert_eq!(right[0], 768);
    }

    #[test]
    fn a_round_of_triad_adds_three_times_the_third_to_the_second() {
        let mut stream = Stream::new(region(), Kernel::Triad);
        stream.run(stream.round()).unwrap();
        for (index, word) in stream.region.words()[..512].iter().enumerate() {
            let index = index as u64;
            assert_eq!(*word, (512 + index) + 3 * (1024 + index));
        }
    }

    proptest! {
        #[test]
        fn passes_may_be_cut_anywhere(cuts in proptest::collection::vec(0u64..500, 0..8)) {
            let mut stream = Stream::new(region(), Kernel::Sum);
            for cut in &cuts {
                stream.run(*cut).unwrap();
            }
            let lines: u64 = cuts.iter().sum();
            let line_sum = |line: u64| (line % 192 * 8..line % 192 * 8 + 8).sum::<u64>();
            prop_assert_eq!(stream.sum, (0..lines).map(line_sum).sum::<u64>());
        }
    }
}
