//! The pseudo-random numbers of the NAS benchmarks (RNR-94-007, section 2.3): the linear
//! congruential generator x' = a x mod 2^46, whose numbers are x 2^-46.
//!
//! The report computes the products in halves of 23 bits, since it uses only floating-point
//! numbers. The low 46 bits of a 64-bit product are exactly the same number.

/// The multiplier of the benchmarks: 5^13.
pub const MULTIPLIER: u64 = 1_220_703_125;

/// The seed of most benchmarks.
pub const SEED: u64 = 314_159_265;

const MASK: u64 = (1 << 46) - 1;

/// 2^-46.
const SCALE: f64 = 1.0 / (1u64 << 46) as f64;

/// A state of the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NasRandom(u64);

impl NasRandom {
    /// The generator with the low 46 bits of `seed`.
    pub fn new(seed: u64) -> NasRandom {
        NasRandom(seed & MASK)
    }

    /// The generator after `count` more numbers.
    pub fn skipped(self, count: u64) -> NasRandom {
        let mut state = self.0;
        let mut factor = MULTIPLIER;
        let mut left = count;
        while left > 0 {
            if left & 1 == 1 {
                state = state.wrapping_mul(factor) & MASK;
            }
            factor = factor.wrapping_mul(factor) & MASK;
            left >>= 1;
        }
        NasRandom(state)
    }

    /// The next number, above 0 and below 1 (`randlc`).
    #[inline(always)]
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER) & MASK;
        self.0 as f64 * SCALE
    }

    /// The next numbers, as many as `numbers` holds (`vranlc`).
    pub fn fill(&mut self, numbers: &mut [f64]) {
        for number in numbers {
            *number = self.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_multiplier_is_the_power_that_the_report_names() {
        assert_eq!(MULTIPLIER, 5u64.pow(13));
    }

    proptest! {
        #[test]
        fn skipping_is_drawing_and_forgetting(seed in 0u64..1 << 46, count in 0u64..3000) {
            let mut drawn = NasRandom::new(seed);
            for _ in 0..count {
                drawn.next();
            }
            prop_assert_eq!(NasRandom::new(seed).skipped(count), drawn);
        }

        #[test]
        fn skips_add_up(seed in 0u64..1 << 46, first in 0u64..1 << 50, second in 0u64..1 << 50) {
            let random = NasRandom::new(seed);
            prop_assert_eq!(random.skipped(first).skipped(second), random.skipped(first + second));
        }

        #[test]
        fn a_step_is_exact(seed in 0u64..1 << 46) {
            let mut random = NasRandom::new(seed);
            let number = random.next();
            let exact = u128::from(seed) * u128::from(MULTIPLIER) % (1 << 46);
            prop_assert_eq!(number, exact as f64 / (1u64 << 46) as f64);
        }

        #[test]
        fn filling_is_drawing_one_after_the_other(seed in 0u64..1 << 46) {
            let (mut filled, mut drawn) = (NasRandom::new(seed), NasRandom::new(seed));
            let mut numbers = [0.0; 100];
            filled.fill(&mut numbers);
            prop_assert!(numbers.iter().all(|number| *number == drawn.next()));
            prop_assert_eq!(filled, drawn);
        }
    }

    #[test]
    fn the_period_is_the_longest_there_is() {
        // An odd state recurs after 2^44 steps and not before (2^43 steps lead elsewhere).
        let random = NasRandom::new(SEED);
        assert_eq!(random.skipped(1 << 44), random);
        assert_ne!(random.skipped(1 << 43), random);
    }
}
