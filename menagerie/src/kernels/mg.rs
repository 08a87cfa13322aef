//! mg: Poisson's equation on a cube with periodic borders, by V-cycles over ever coarser grids
//! (RNR-94-007, section 2.2.1 "MG"; sizes and values of NPB 3).
//!
//! The right-hand side is +1 at the ten points with the largest random numbers, -1 at the ten with
//! the smallest, 0 elsewhere. A cycle restricts the residual down to a grid of 2^3 points, and
//! corrects and smooths the solution on the way back up.
//!
//! Memory: every grid has a border of one point that repeats the opposite side. Threads divide the
//! planes along the third axis of each grid among them, so neighbours meet in two planes. On
//! coarser grids, parts of different threads share pages, and the coarsest have fewer planes than
//! threads. All levels of a quantity are in one array, the finest first.

mod operators;

use super::nas_random::{NasRandom, SEED};
use super::{Array, Check, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;
use crate::sync::lock;
use operators::{Grid, correct, residual, restrict, smooth};
use std::sync::Mutex;

/// Points of each sign in the right-hand side.
const CHARGES: usize = 10;

/// Largest relative error of the norm.
const TOLERANCE: f64 = 1e-8;

/// The smoother of classes S, W and A.
const SMALL: [f64; 3] = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0];

/// The smoother of the larger classes.
const LARGE: [f64; 3] = [-3.0 / 17.0, 1.0 / 33.0, -1.0 / 61.0];

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let log_points = terms.class.of([5, 7, 8, 8, 9]);
    let mut levels = Vec::new();
    let mut start = 0;
    for level in (1..=log_points).rev() {
        let side = (1 << level) + 2;
        levels.push((side, start));
        start += side * side * side;
    }
    levels.reverse();
    let points = 1usize << log_points;
    let [u, v, r] = Array::several(terms, [start, (points + 2).pow(3), start])?;
    let mg = Mg {
        points,
        smoother: terms.class.of([SMALL, SMALL, SMALL, LARGE, LARGE]),
        norm: terms.published("norm").first().copied(),
        levels,
        u,
        v,
        r,
        candidates: Mutex::default(),
    };
    let iterations = terms.class.of([4, 4, 4, 20, 20]);
    Problem::new(
        format!("{points} x {points} x {points} points"),
        iterations,
        mg,
    )
}

struct Mg {
    /// Points along an axis, without the border.
    points: usize,
    /// Weights of the smoother: of a point, of those that share a face with it, and of those that share an edge.
    smoother: [f64; 3],
    /// The published norm of the last residual.
    norm: Option<f64>,
    /// Side of each level's grid with its border, and its start in `u` and `r`; the coarsest first.
    levels: Vec<(usize, usize)>,
    u: Array,
    v: Array,
    r: Array,
    /// Each member's candidates for the charges.
    candidates: Mutex<Vec<Candidate>>,
}

/// A random number and the point that has it.
type Candidate = (f64, usize);

impl Mg {
    /// The grid of `array` at `level`; 0 is the coarsest.
    fn grid<'a>(&self, array: &'a Array, level: usize) -> Grid<'a> {
        let (side, start) = self.levels[level];
        Grid::new(array.field().row(start, side * side * side), side)
    }

    /// The finest level.
    fn finest(&self) -> usize {
        self.levels.len() - 1
    }

    /// Places the charges: every member draws the numbers of its planes, and all agree on the extremes.
    fn charge(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let points = self.points;
        let v = self.grid(&self.v, self.finest());
        v.clear(member);
        let mut line = vec![0.0; points];
        let (mut large, mut small) = (Vec::new(), Vec::new());
        let planes = member.share(points);
        let start = (planes.start * points * points) as u64;
        let mut random = NasRandom::new(SEED).skipped(start);
        for plane in planes {
            for row in 0..points {
                random.fill(&mut line);
                for (at, number) in line.iter().enumerate() {
                    let point = v.index(plane + 1, row + 1, at + 1);
                    keep(&mut large, (*number, point));
                    keep(&mut small, (-*number, point));
                }
            }
        }
        // Numbers are above 0, so a sign can distinguish the two kinds.
        lock(&self.candidates).extend(large.into_iter().chain(small));
        member.wait()?;
        if member.index == 0 {
            let (mut large, mut small) = (Vec::new(), Vec::new());
            for candidate in lock(&self.candidates).iter() {
                let kept = if candidate.0 > 0.0 {
                    &mut large
                } else {
                    &mut small
                };
                keep(kept, *candidate);
            }
            for (charges, value) in [(large, 1.0), (small, -1.0)] {
                charges
                    .iter()
                    .for_each(|(_, point)| v.field().set(*point, value));
            }
        }
        member.wait()?;
        v.wrap(member)
    }

    /// One V-cycle.
    fn cycle(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let finest = self.finest();
        for level in (1..=finest).rev() {
            let (fine, coarse) = (self.grid(&self.r, level), self.grid(&self.r, level - 1));
            restrict(member, fine, coarse)?;
        }
        let smoother = self.smoother;
        let coarsest = self.grid(&self.u, 0);
        coarsest.clear(member);
        member.wait()?;
        smooth(member, self.grid(&self.r, 0), coarsest, smoother)?;
        for level in 1..=finest {
            let (u, r) = (self.grid(&self.u, level), self.grid(&self.r, level));
            if level < finest {
                u.clear(member);
                member.wait()?;
            }
            correct(member, self.grid(&self.u, level - 1), u)?;
            let v = if level < finest {
                r
            } else {
                self.grid(&self.v, level)
            };
            residual(member, u, v, r)?;
            smooth(member, r, u, smoother)?;
        }
        Ok(())
    }

    /// Computes the residual of the finest grid, v - A u.
    fn residual(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let finest = self.finest();
        let [u, v, r] = [&self.u, &self.v, &self.r].map(|array| self.grid(array, finest));
        residual(member, u, v, r)
    }

    /// Root of the mean square of the finest residual.
    fn norm(&self, member: &Member<'_>) -> Result<f64, Stopped> {
        let r = self.grid(&self.r, self.finest());
        let points = self.points;
        let sum = member.sum(r.squares(member))?;
        Ok((sum / points.pow(3) as f64).sqrt())
    }
}

/// Inserts a candidate into the ten largest, the largest first.
fn keep(kept: &mut Vec<Candidate>, candidate: Candidate) {
    if kept.len() == CHARGES && candidate.0 <= kept[CHARGES - 1].0 {
        return;
    }
    let at = kept.partition_point(|other| other.0 >= candidate.0);
    kept.insert(at, candidate);
    kept.truncate(CHARGES);
}

impl Kernel for Mg {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.grid(&self.u, self.finest()).clear(member);
        self.charge(member)?;
        // The benchmark does this before it starts its clock: a cycle touches everything.
        self.residual(member)?;
        self.cycle(member)?;
        self.residual(member)?;
        self.grid(&self.u, self.finest()).clear(member);
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        self.residual(member)?;
        for _ in member.iterations() {
            self.cycle(member)?;
            self.residual(member)?;
        }
        let norm = self.norm(member)?;
        Ok(vec![Check::published("norm", norm, self.norm, TOLERANCE)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ten_largest_are_kept(numbers in prop::collection::vec(0.0f64..1.0, 10..200)) {
            let mut kept = Vec::new();
            for (at, number) in numbers.iter().enumerate() {
                keep(&mut kept, (*number, at));
            }
            let mut sorted = numbers.clone();
            sorted.sort_by(|left, right| right.total_cmp(left));
            prop_assert!(kept.iter().map(|(number, _)| number).eq(&sorted[..10]));
            prop_assert!(kept.iter().all(|(number, at)| numbers[*at] == *number));
        }
    }
}
