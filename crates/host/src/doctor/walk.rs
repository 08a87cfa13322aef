//! A load for counters to count: a walk over more memory than the caches hold, of a known number of
//! lines.
//!
//! Each line names the next, in the order of a linear congruential generator of full period (Knuth,
//! TAOCP 2, 3.2.1.2: an odd step, a factor of 1 modulo 4), which no prefetcher follows. Eight walkers
//! take turns, each over its own lines: some processors count outstanding misses in fours, and would
//! see none of a single walker's.

use std::hint::black_box;

use numaherd_topology::Topology;

/// Reads in flight.
const WALKERS: usize = 8;
/// The most lines in a walk.
const MOST_STEPS: usize = 1 << 18;
/// Bytes to walk over if the caches' sizes are unknown.
const USUAL_BYTES: u64 = 64 << 20;
/// Bounds on it: a gigabyte of cache would take long to exceed.
const FEWEST_BYTES: u64 = 4 << 20;
const MOST_BYTES: u64 = 256 << 20;
const FACTOR: u32 = 0x0019_660d;
const STEP: u32 = 0x3c6e_f35f;

/// A cache line.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line {
    next: u32,
}

/// The memory of a walk.
pub(super) struct Walk {
    lines: Vec<Line>,
}

impl Walk {
    /// Four times the largest cache, within bounds, touched by the caller.
    pub(super) fn new(topology: &Topology) -> Self {
        let largest = topology
            .caches()
            .iter()
            .filter_map(|cache| cache.size_bytes);
        let bytes = largest
            .max()
            .map_or(USUAL_BYTES, |bytes| bytes.saturating_mul(4))
            .clamp(FEWEST_BYTES, MOST_BYTES);
        Self::of_bytes(bytes)
    }

    fn of_bytes(bytes: u64) -> Self {
        let lines = usize::try_from(bytes / size_of::<Line>() as u64)
            .unwrap_or(usize::MAX)
            .next_power_of_two();
        let lines = (0..lines).map(|at| Line {
            next: next(u32::try_from(at).unwrap_or(0), lines),
        });
        Self {
            lines: lines.collect(),
        }
    }

    /// Walks; returns the number of lines read, each only once.
    pub(super) fn run(&self) -> u64 {
        let all = self.lines.len();
        let steps = (all / WALKERS).min(MOST_STEPS / WALKERS);
        // Each walker begins as far behind the last one as a walk is long.
        let mut at = [0_u32; WALKERS];
        for walker in 1..WALKERS {
            at[walker] = (0..steps).fold(at[walker - 1], |at, _| next(at, all));
        }
        for _ in 0..steps {
            for at in &mut at {
                *at = self.lines[*at as usize].next;
            }
        }
        black_box(at);
        (steps * WALKERS) as u64
    }
}

/// The line after `at`, of `lines` (a power of two).
fn next(at: u32, lines: usize) -> u32 {
    let mask = u32::try_from(lines - 1).unwrap_or(u32::MAX);
    at.wrapping_mul(FACTOR).wrapping_add(STEP) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_comes_once() {
        let walk = Walk::of_bytes(1 << 20);
        let lines = walk.lines.len();
        assert_eq!(lines, 1 << 14);
        let mut seen = vec![false; lines];
        let mut at = 0;
        for _ in 0..lines {
            assert!(!std::mem::replace(&mut seen[at as usize], true));
            at = walk.lines[at as usize].next;
        }
        assert_eq!(at, 0);
        assert_eq!(walk.run(), lines as u64);
        assert_eq!(Walk::of_bytes(64 << 20).run(), MOST_STEPS as u64);
    }
}
