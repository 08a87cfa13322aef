//! phases: a thread that is a devil for a while, then something milder, then a turtle, and so on in
//! rotation, like the ranks of an MPI job between their exchanges. This makes `di-migrate` chase
//! its own measurements, and it is what DINO's class history should ignore.
//!
//! A level is a miss rate, in lines per 1000 instructions. Iterations of the compute loop between
//! the lines set it. Both have a known number of instructions, so a level needs no calibration run
//! and is the same on every machine. Level 0 touches no memory.

use crate::access::{Access, Instructions};
use crate::compute::INSTRUCTIONS_PER_ITERATION;
use crate::error::Error;
use crate::random::mix;
use crate::steady::batch_with;
use crate::sys::spin;
use crate::workload::{Detail, PhaseTotal, Workload};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Iterations of one operation at level 0: 1000 instructions.
const TURTLE_ITERATIONS: u64 = 250;

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PhaseLength {
    /// By the clock.
    Time(Duration),
    /// In operations: equal numbers of lines, so the mild phases last longest.
    Operations(u64),
    /// In instructions, as for a program with a given amount of work.
    Instructions(u64),
}

/// One level and its operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Requested lines per 1000 instructions.
    asked: f64,
    /// Iterations after each line; at level 0, in place of a line.
    compute: u64,
    /// Instructions per operation.
    instructions: f64,
}

impl Level {
    /// The level nearest to `asked` with accesses of `kind`.
    pub fn new(asked: f64, kind: Instructions) -> Level {
        if asked == 0.0 {
            let instructions = TURTLE_ITERATIONS as f64 * INSTRUCTIONS_PER_ITERATION;
            return Level {
                asked,
                compute: TURTLE_ITERATIONS,
                instructions,
            };
        }
        let compute = kind.compute_for(asked);
        Level {
            asked,
            compute,
            instructions: kind.cost(compute).instructions_per_operation,
        }
    }

    /// Its actual lines per 1000 instructions.
    fn rate(self) -> f64 {
        if self.asked == 0.0 {
            0.0
        } else {
            1000.0 / self.instructions
        }
    }

    /// Operations in a phase of `length`; None if the clock decides.
    pub fn operations(self, length: PhaseLength) -> Option<u64> {
        match length {
            PhaseLength::Time(_) => None,
            PhaseLength::Operations(operations) => Some(operations),
            PhaseLength::Instructions(instructions) => {
                Some(((instructions as f64 / self.instructions).round() as u64).max(1))
            }
        }
    }
}

/// The rest of the current phase.
#[derive(Clone, Copy, Debug)]
enum Left {
    /// The clock decides: the phase's end, None before its first operation, and its length.
    Until(Option<Instant>, Duration),
    Operations(u64),
}

/// A thread that changes between phases.
pub struct Phases<A> {
    access: A,
    levels: Vec<Level>,
    length: PhaseLength,
    current: usize,
    left: Left,
    /// Whether the current phase has not begun its first operation.
    fresh: bool,
    totals: Vec<PhaseTotal>,
    state: u64,
}

impl<A: Access> Phases<A> {
    /// Starts `offset` phases into the rotation of `levels` (at least one): 1.5 begins in the
    /// middle of the second level.
    pub fn new(
        access: A,
        levels: Vec<Level>,
        length: PhaseLength,
        offset: f64,
        seed: u64,
    ) -> Phases<A> {
        let current = (offset.floor() as u64 % levels.len() as u64) as usize;
        let totals = levels
            .iter()
            .map(|level| PhaseTotal {
                level: level.asked,
                lines_per_1000_instructions: level.rate(),
                phases: 0,
                operations: 0,
                seconds: 0.0,
            })
            .collect();
        let mut phases = Phases {
            access,
            levels,
            length,
            current,
            left: Left::Operations(0),
            fresh: true,
            totals,
            state: mix(seed),
        };
        phases.enter(current, 1.0 - offset.fract());
        phases
    }

    /// Begins a phase with only `share` (0 to 1) of its length.
    fn enter(&mut self, level: usize, share: f64) {
        self.current = level;
        self.fresh = true;
        self.left = match (self.length, self.levels[level].operations(self.length)) {
            (PhaseLength::Time(duration), _) => Left::Until(None, duration.mul_f64(share)),
            (_, operations) => {
                let operations = operations.unwrap_or(1) as f64 * share;
                Left::Operations((operations.round() as u64).max(1))
            }
        };
    }

    /// Does as many of `operations` as the phase and one check of the clock allow.
    fn step(&mut self, operations: u64) -> u64 {
        let level = self.levels[self.current];
        let start = Instant::now();
        let operations = operations.min(batch_with(level.compute));
        let operations = match &mut self.left {
            Left::Operations(left) => operations.min(*left),
            Left::Until(end, duration) => {
                end.get_or_insert(start + *duration);
                operations
            }
        };
        if level.asked == 0.0 {
            self.state = black_box(spin(black_box(self.state), operations * level.compute));
        } else {
            self.access.touch(operations, level.compute);
        }
        let now = Instant::now();
        let total = &mut self.totals[self.current];
        total.phases += u64::from(std::mem::take(&mut self.fresh));
        total.operations += operations;
        total.seconds += (now - start).as_secs_f64();
        let over = match &mut self.left {
            Left::Operations(left) => {
                *left -= operations;
                *left == 0
            }
            Left::Until(end, _) => end.is_some_and(|end| now >= end),
        };
        if over {
            self.enter((self.current + 1) % self.levels.len(), 1.0);
        }
        operations
    }
}

impl<A: Access> Workload for Phases<A> {
    fn run(&mut self, operations: u64) -> Result<(), Error> {
        let mut left = operations;
        while left > 0 {
            left -= self.step(left);
        }
        Ok(())
    }

    fn batch(&self) -> u64 {
        batch_with(self.levels[self.current].compute)
    }

    /// Operations of all levels once. Not used if the clock decides: then the program converts
    /// rounds to seconds.
    fn round(&self) -> u64 {
        self.levels
            .iter()
            .filter_map(|level| level.operations(self.length))
            .sum::<u64>()
            .max(1)
    }

    fn detail(&self) -> Detail {
        Detail::Phases {
            phases: self.totals.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::CHASE;
    use proptest::prelude::*;

    /// Records its calls.
    #[derive(Default)]
    struct Noted(Vec<(u64, u64)>);

    impl Access for Noted {
        fn touch(&mut self, lines: u64, compute: u64) {
            match self.0.last_mut() {
                Some((total, last)) if *last == compute => *total += lines,
                _ => self.0.push((lines, compute)),
            }
        }

        fn lines(&self) -> u64 {
            1
        }
    }

    fn levels(asked: &[f64]) -> Vec<Level> {
        asked
            .iter()
            .map(|level| Level::new(*level, CHASE))
            .collect()
    }

    fn phases(asked: &[f64], length: PhaseLength, offset: f64) -> Phases<Noted> {
        Phases::new(Noted::default(), levels(asked), length, offset, 1)
    }

    #[test]
    fn levels_take_turns() {
        let mut phases = phases(&[120.0, 20.0, 1.0], PhaseLength::Operations(100), 0.0);
        phases.run(450).unwrap();
        let [devil, mild, turtle] = [120.0, 20.0, 1.0].map(|rate| CHASE.compute_for(rate));
        assert_eq!(
            phases.access.0,
            [
                (100, devil),
                (100, mild),
                (100, turtle),
                (100, devil),
                (50, mild)
            ]
        );
        let Detail::Phases { phases: totals } = phases.detail() else {
            panic!()
        };
        assert_eq!(
            totals
                .iter()
                .map(|total| total.operations)
                .collect::<Vec<_>>(),
            [200, 150, 100]
        );
        assert_eq!(
            totals.iter().map(|total| total.phases).collect::<Vec<_>>(),
            [2, 2, 1]
        );
    }

    #[test]
    fn an_offset_starts_within_a_phase() {
        let mut phases = phases(&[120.0, 20.0], PhaseLength::Operations(100), 3.25);
        phases.run(100).unwrap();
        let [devil, mild] = [120.0, 20.0].map(|rate| CHASE.compute_for(rate));
        assert_eq!(phases.access.0, [(75, mild), (25, devil)]);
    }

    #[test]
    fn level_0_touches_nothing() {
        let mut phases = phases(&[0.0], PhaseLength::Operations(10), 0.0);
        phases.run(25).unwrap();
        assert!(phases.access.0.is_empty());
        let Detail::Phases { phases: totals } = phases.detail() else {
            panic!()
        };
        assert_eq!(
            (totals[0].operations, totals[0].lines_per_1000_instructions),
            (25, 0.0)
        );
    }

    #[test]
    fn the_clock_may_decide() {
        // Phases of zero length: every batch is a phase of its own.
        let mut phases = phases(&[120.0, 20.0], PhaseLength::Time(Duration::ZERO), 0.0);
        let batch = phases.batch();
        phases.run(3 * batch).unwrap();
        let Detail::Phases { phases: totals } = phases.detail() else {
            panic!()
        };
        assert_eq!(
            (totals[0].operations, totals[1].operations),
            (2 * batch, batch)
        );
    }

    proptest! {
        #[test]
        fn phases_of_equal_instructions_have_equal_instructions(rate in 0.0f64..900.0) {
            let level = Level::new(rate, CHASE);
            let operations = level.operations(PhaseLength::Instructions(100_000_000)).unwrap();
            let instructions = operations as f64 * level.instructions;
            prop_assert!((instructions / 1e8 - 1.0).abs() < 0.01, "{}", instructions);
        }

        #[test]
        fn a_round_passes_every_level_once(
            asked in proptest::collection::vec(0.5f64..900.0, 1..5), offset in 0.0f64..4.0
        ) {
            let mut phases = phases(&asked, PhaseLength::Instructions(100_000), offset);
            phases.run(phases.round() * 2).unwrap();
            let Detail::Phases { phases: totals } = phases.detail() else { panic!() };
            let operations: u64 = totals.iter().map(|total| total.operations).sum();
            prop_assert_eq!(operations, phases.round() * 2);
            for total in totals {
                prop_assert!((2..=3).contains(&total.phases), "{}", total.phases);
            }
        }
    }
}
