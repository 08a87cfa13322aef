//! The order in which a chase visits its lines: every line once, unpredictable to prefetchers,
//! without a table.
//!
//! Problem: a table of a million shuffled indices would be a second working set, and a shuffle
//! touches every entry twice, which is slow on a simulated machine.
//!
//! Approach: count 0, 1, 2, … up to a power of two, map each number by a bijection on that many
//! bits (multiply by an odd number and fold the upper half onto the lower, three times), and drop
//! results beyond the last line. A bijection never repeats a result, so linking successive results
//! gives one ring of all lines. It takes at most two steps per line.
//!
//! Terms: Feistel-like mixing as in the finalisers of integer hashes; "cycle walking" in
//! format-preserving encryption is the dropping.

use crate::random::mix;

/// The numbers 0 to `count` - 1, each once, in an order chosen by `seed`.
pub fn shuffled(count: usize, seed: u64) -> impl Iterator<Item = usize> {
    let scramble = Scramble::new(count, seed);
    (0..scramble.span())
        .map(move |step| scramble.apply(step))
        .filter(move |index| *index < count)
}

/// A bijection on the numbers of `bits` bits.
struct Scramble {
    bits: u32,
    multipliers: [u64; 3],
    offset: u64,
}

impl Scramble {
    fn new(count: usize, seed: u64) -> Scramble {
        let bits = (count.max(2) - 1).ilog2() + 1;
        let multipliers = [1, 2, 3].map(|round| mix(seed.wrapping_add(round)) | 1);
        Scramble {
            bits,
            multipliers,
            offset: mix(seed),
        }
    }

    fn span(&self) -> usize {
        1 << self.bits
    }

    fn apply(&self, step: usize) -> usize {
        let mask = (1u64 << self.bits) - 1;
        let fold = self.bits.div_ceil(2);
        let mut value = (step as u64).wrapping_add(self.offset) & mask;
        for multiplier in self.multipliers {
            value = value.wrapping_mul(multiplier) & mask;
            value ^= value >> fold;
        }
        value as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn every_line_is_visited_once(count in 1usize..5000, seed: u64) {
            let order: Vec<usize> = shuffled(count, seed).collect();
            prop_assert_eq!(order.len(), count);
            prop_assert!(order.iter().all(|index| *index < count));
            prop_assert_eq!(order.iter().collect::<HashSet<_>>().len(), count);
        }
    }

    #[test]
    fn a_seed_always_gives_the_same_order() {
        let order: Vec<usize> = shuffled(12, 1).collect();
        assert_eq!(order, [4, 11, 1, 5, 7, 3, 6, 9, 2, 10, 8, 0]);
    }

    #[test]
    fn seeds_differ() {
        assert!(!shuffled(1000, 1).eq(shuffled(1000, 2)));
    }

    /// A stream prefetcher follows adjacent lines; a stride prefetcher follows equal distances.
    #[test]
    fn neither_neighbours_nor_strides_are_frequent() {
        let order: Vec<usize> = shuffled(1 << 16, 7).collect();
        let steps: Vec<isize> = order
            .windows(2)
            .map(|pair| pair[1].cast_signed() - pair[0].cast_signed())
            .collect();
        let near = steps.iter().filter(|step| step.abs() <= 4).count();
        let repeated = steps.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(
            near < steps.len() / 1000,
            "{near} of {} steps go to a neighbour",
            steps.len()
        );
        assert!(
            repeated < steps.len() / 1000,
            "{repeated} of {} steps repeat",
            steps.len()
        );
    }
}
