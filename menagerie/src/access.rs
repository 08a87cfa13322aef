//! Accesses to memory with a configurable number of instructions between them: the chase, with one
//! line in flight at a time, and the random update, with as many as the core supports.

use crate::compute::INSTRUCTIONS_PER_ITERATION;
use crate::random::{self, mix};
use crate::shuffle;
use crate::sys::{LINE, Region, Ring, spin};
use crate::workload::Cost;
use std::hint::black_box;

/// Touches one line per operation, with iterations of [`spin`] after each.
pub trait Access {
    /// Touches `lines` lines, with `compute` iterations after each.
    fn touch(&mut self, lines: u64, compute: u64);

    /// Lines in the working set.
    fn lines(&self) -> u64;
}

impl Access for Box<dyn Access> {
    fn touch(&mut self, lines: u64, compute: u64) {
        self.as_mut().touch(lines, compute);
    }

    fn lines(&self) -> u64 {
        self.as_ref().lines()
    }
}

/// How memory is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AccessKind {
    /// One line in flight.
    Chase,
    /// Many lines in flight.
    Update,
}

impl AccessKind {
    /// Accesses of this kind to `region`, in an order chosen by `seed`.
    pub fn to(self, region: Region, seed: u64) -> Box<dyn Access> {
        match self {
            AccessKind::Chase => Box::new(Chase::new(region, seed)),
            AccessKind::Update => Box::new(Update::new(region, seed)),
        }
    }

    /// The instructions of one access.
    pub fn instructions(self) -> Instructions {
        match self {
            AccessKind::Chase => CHASE,
            AccessKind::Update => UPDATE,
        }
    }
}

/// Instructions of a kind of access, without those of [`spin`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instructions {
    /// Per line, without computation between lines (an unrolled loop).
    pub bare: f64,
    /// Per line, with computation.
    pub with_compute: f64,
}

/// A chase: one load a hop, and two instructions of the loop for 32 hops.
pub const CHASE: Instructions = Instructions {
    bare: 1.0 + 2.0 / 32.0,
    with_compute: 4.0,
};

/// A random update: eight instructions for an update, and two of the loop for eight updates.
pub const UPDATE: Instructions = Instructions {
    bare: 8.0 + 2.0 / 8.0,
    with_compute: 11.0,
};

impl Instructions {
    /// The cost of one line and `compute` iterations.
    pub fn cost(self, compute: u64) -> Cost {
        let instructions = match compute {
            0 => self.bare,
            _ => self.with_compute + compute as f64 * INSTRUCTIONS_PER_ITERATION,
        };
        Cost::new(instructions, 1.0)
    }

    /// The number of iterations for a rate nearest to `rate` lines per 1000 instructions, which
    /// must be above 0.
    pub fn compute_for(self, rate: f64) -> u64 {
        let wanted = 1000.0 / rate;
        let filled = ((wanted - self.with_compute) / INSTRUCTIONS_PER_ITERATION)
            .round()
            .max(1.0);
        let distance = |compute| (self.cost(compute).instructions_per_operation - wanted).abs();
        let filled = filled as u64;
        if distance(0) <= distance(filled) {
            0
        } else {
            filled
        }
    }
}

/// A walk along a ring of all lines in random order: `p = *p`.
#[derive(Debug)]
pub struct Chase {
    ring: Ring,
    state: u64,
}

impl Chase {
    /// Links the lines of `region` in an order chosen by `seed`.
    pub fn new(region: Region, seed: u64) -> Chase {
        let order = shuffle::shuffled(region.bytes() / LINE, seed);
        Chase {
            ring: Ring::link(region, order),
            state: mix(seed),
        }
    }
}

impl Access for Chase {
    #[inline(never)]
    fn touch(&mut self, lines: u64, compute: u64) {
        if compute == 0 {
            self.ring.walk(lines);
            return;
        }
        let mut state = self.state;
        self.ring.walk_with(lines, || state = spin(state, compute));
        self.state = black_box(state);
    }

    fn lines(&self) -> u64 {
        self.ring.lines() as u64
    }
}

/// Independent additions to random lines.
#[derive(Debug)]
pub struct Update {
    region: Region,
    /// Lines in use, from the region's first.
    used: usize,
    random: u64,
    state: u64,
}

impl Update {
    /// Updates in `region`, at lines chosen by `seed`.
    pub fn new(region: Region, seed: u64) -> Update {
        Update {
            used: region.bytes() / LINE,
            region,
            random: mix(seed),
            state: mix(seed),
        }
    }
}

impl Access for Update {
    #[inline(never)]
    fn touch(&mut self, lines: u64, compute: u64) {
        let (memory, _) = self
            .region
            .words()
            .as_chunks_mut::<{ LINE / size_of::<u64>() }>();
        let memory = &mut memory[..self.used];
        let mut random = self.random;
        let mut add = || {
            random = random::next(random);
            let line = &mut memory[random::index(random, memory.len())];
            line[0] = line[0].wrapping_add(1);
        };
        if compute == 0 {
            for _ in 0..lines / 8 {
                for _ in 0..8 {
                    add();
                }
            }
            for _ in 0..lines % 8 {
                add();
            }
        } else {
            let mut state = self.state;
            for _ in 0..lines {
                add();
                state = spin(state, compute);
            }
            self.state = black_box(state);
        }
        self.random = random;
        black_box(memory);
    }

    fn lines(&self) -> u64 {
        (self.region.bytes() / LINE) as u64
    }
}

/// Updates of a working set that grows line by line.
#[derive(Debug)]
pub struct Growing {
    update: Update,
    /// Number of updates until all of it is in use.
    until: u64,
    done: u64,
}

impl Growing {
    /// Lets `update` grow until all lines are in use, after `rounds` (at least one) times their number of updates.
    pub fn new(update: Update, rounds: u64) -> Growing {
        Growing {
            until: update.lines().saturating_mul(rounds),
            update,
            done: 0,
        }
    }

    /// Lines in use after `done` updates, at least one.
    fn used(&self, done: u64) -> usize {
        let lines = self.update.lines();
        let used = u128::from(lines) * u128::from(done) / u128::from(self.until.max(1));
        used.clamp(1, u128::from(lines)) as usize
    }
}

impl Access for Growing {
    fn touch(&mut self, lines: u64, compute: u64) {
        self.update.used = self.used(self.done);
        self.update.touch(lines, compute);
        self.done = self.done.saturating_add(lines);
    }

    fn lines(&self) -> u64 {
        self.update.lines()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(pages: usize) -> Region {
        let mut region = Region::map(pages * 4096).unwrap();
        region.populate().unwrap();
        region
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// From any line, a chase first returns to it after as many hops as there are lines.
        #[test]
        fn a_chase_is_one_cycle_of_all_lines(pages in 1usize..20, seed: u64, compute in 0u64..3) {
            let mut chase = Chase::new(region(pages), seed);
            let lines = chase.lines();
            prop_assert_eq!(lines, 64 * pages as u64);
            let first = chase.ring.position();
            for hop in 1..=lines {
                chase.touch(1, compute);
                prop_assert_eq!(chase.ring.position() == first, hop == lines);
            }
        }

        #[test]
        fn compute_between_hops_does_not_change_the_way(hops in 0u64..300, seed: u64) {
            let mut bare = Chase::new(region(4), seed);
            let mut filled = Chase::new(region(4), seed);
            bare.touch(hops, 0);
            filled.touch(hops, 5);
            prop_assert_eq!(bare.ring.position(), filled.ring.position());
        }

        #[test]
        fn every_update_is_done(first in 0u64..500, second in 0u64..500, seed: u64) {
            let mut update = Update::new(region(3), seed);
            update.touch(first, 0);
            update.touch(second, 2);
            prop_assert_eq!(update.region.words().iter().sum::<u64>(), first + second);
        }

        /// Only lines in use are touched, and in the end all are in use.
        #[test]
        fn a_growing_working_set_is_reached_evenly(rounds in 1u64..5, steps in 1u64..100, seed: u64) {
            let mut growing = Growing::new(Update::new(region(3), seed), rounds);
            let all = rounds * growing.lines();
            for step in 1..=steps {
                growing.touch(all / steps, 0);
                let used = (growing.lines() * (step - 1) * (all / steps) / all).max(1) as usize;
                let beyond = &growing.update.region.words()[8 * used..];
                prop_assert!(beyond.iter().all(|word| *word == 0));
            }
            prop_assert_eq!(growing.used(all), growing.lines() as usize);
        }

        #[test]
        fn a_seed_always_updates_the_same_lines(updates in 0u64..500, seed: u64) {
            let mut bare = Update::new(region(3), seed);
            let mut filled = Update::new(region(3), seed);
            bare.touch(updates, 0);
            filled.touch(updates, 1);
            prop_assert_eq!(bare.region.words(), filled.region.words());
        }

        /// No whole number of iterations gives a nearer rate.
        #[test]
        fn the_rate_asked_for_is_met_as_nearly_as_can_be(rate in 0.01f64..900.0) {
            for kind in [CHASE, UPDATE] {
                let wanted = 1000.0 / rate;
                let distance =
                    |compute| (kind.cost(compute).instructions_per_operation - wanted).abs();
                let best = kind.compute_for(rate);
                prop_assert!(distance(best) <= distance(best + 1));
                prop_assert!(best == 0 || distance(best) <= distance(best - 1));
            }
        }
    }

    #[test]
    fn updates_reach_the_whole_working_set() {
        let mut update = Update::new(region(1), 3);
        update.touch(64 * 20, 0);
        let touched = update
            .region
            .words()
            .iter()
            .filter(|word| **word > 0)
            .count();
        assert_eq!(touched, 64, "20 updates a line and every line was hit");
    }
}
