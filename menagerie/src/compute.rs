//! compute: a chain of dependent integer multiplications and rotations. It touches no memory, so
//! the miss rate is 0: DINO's turtle. The same chain fills the time between the accesses of other
//! workloads and so sets their miss rate.
//!
//! Why a rotation: a chain of multiplications and additions is linear, so a compiler could merge
//! eight steps into one. On x86-64 the loop is four fixed instructions, so no compiler changes its
//! cost, and the actual miss rate is the requested one.

use crate::error::Error;
use crate::random::mix;
use crate::sys::spin;
use crate::workload::{Cost, Workload};
use std::hint::black_box;

/// Instructions of one turn of [`spin`]: multiply, rotate, count, branch.
pub const INSTRUCTIONS_PER_ITERATION: f64 = 4.0;

/// The cost of one iteration.
pub const COST: Cost = Cost::new(INSTRUCTIONS_PER_ITERATION, 0.0);

/// Iterations in a round.
pub const ROUND: u64 = 1_000_000;

/// A turtle.
#[derive(Debug)]
pub struct Compute {
    state: u64,
}

impl Compute {
    /// A chain that starts at a value derived from `seed`.
    pub fn new(seed: u64) -> Compute {
        Compute {
            state: mix(seed) | 1,
        }
    }
}

impl Workload for Compute {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        self.state = black_box(spin(black_box(self.state), operations));
        Ok(())
    }

    fn batch(&self) -> u64 {
        1 << 18
    }

    fn round(&self) -> u64 {
        ROUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_iteration_is_left_out(first in 0u64..2000, second in 0u64..2000, seed: u64) {
            let mut parts = Compute::new(seed);
            parts.run(first).unwrap();
            parts.run(second).unwrap();
            let mut whole = Compute::new(seed);
            whole.run(first + second).unwrap();
            prop_assert_eq!(parts.state, whole.state);
        }
    }
}
