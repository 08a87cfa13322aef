//! ft: a heat-like equation on a periodic box, solved by Fourier transforms along its three axes
//! (RNR-94-007, section 2.2.1 "FT"; sizes and values of NPB 3).
//!
//! Random initial values are transformed once. Every iteration multiplies each coefficient by its
//! decay over one more step, transforms back, and adds up 1024 of the values.
//!
//! Memory: threads own planes across the third axis for transforms along the first two, and planes
//! across the second for those along the third. So in each iteration, all data passes from one
//! division to the other (all to all). A complex number is two elements; lines along the first axis
//! have room for one more point, so that not all lines begin in the same set of a cache.

mod line;

use super::field::Field;
use super::nas_random::{NasRandom, SEED};
use super::{Array, Check, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;
use line::{Direction, Lines, Place};
use std::f64::consts::PI;

/// Decay of a coefficient per step: exp of minus four times this times the squares of pi and of its
/// wave number.
const ALPHA: f64 = 1e-6;

/// Values added up for a checksum.
const SUMMED: usize = 1024;

/// Largest relative error of a checksum.
const TOLERANCE: f64 = 1e-12;

/// Lines transformed together: enough for runs of a few cache lines.
const BLOCK: usize = 16;

/// Points along the axes of each class, and its iterations.
const SIZES: [([usize; 3], u64); 5] = [
    ([64, 64, 64], 6),
    ([128, 128, 32], 6),
    ([256, 256, 128], 6),
    ([512, 256, 256], 20),
    ([512, 512, 512], 20),
];

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let (sides, iterations) = terms.class.of(SIZES);
    let [nx, ny, nz] = sides;
    let points = (nx + 1) * ny * nz;
    let [coefficients, values, decays] = Array::several(terms, [2 * points, 2 * points, points])?;
    let ft = Ft {
        sides,
        published: [terms.published("real"), terms.published("imaginary")],
        coefficients,
        values,
        decays,
    };
    Problem::new(format!("{nx} x {ny} x {nz} points"), iterations, ft)
}

struct Ft {
    sides: [usize; 3],
    /// Real and imaginary parts of the checksums.
    published: [Vec<f64>; 2],
    /// The coefficients.
    coefficients: Array,
    /// The values to transform.
    values: Array,
    /// The decay of each coefficient in a step.
    decays: Array,
}

impl Ft {
    /// The number of a point.
    fn point(&self, x: usize, y: usize, z: usize) -> usize {
        (z * self.sides[1] + y) * (self.sides[0] + 1) + x
    }

    /// Computes the decays in a member's planes. Frequencies in the upper half of an axis are
    /// negative.
    fn set_decays(&self, member: &Member<'_>) {
        let frequency = |at: usize, side: usize| {
            let at = at as f64;
            let side = side as f64;
            if at < side / 2.0 { at } else { at - side }
        };
        let decays = self.decays.field();
        let [nx, ny, nz] = self.sides;
        for z in member.share(nz) {
            for y in 0..ny {
                let across = frequency(z, nz).powi(2) + frequency(y, ny).powi(2);
                let row = decays.row(self.point(0, y, z), nx);
                for x in 0..nx {
                    let square = across + frequency(x, nx).powi(2);
                    row.set(x, (-4.0 * ALPHA * PI * PI * square).exp());
                }
            }
        }
    }

    /// Draws the initial values of a member's planes.
    fn draw(&self, member: &Member<'_>) {
        let [nx, ny, nz] = self.sides;
        let values = self.values.field();
        let mut line = vec![0.0; 2 * nx];
        let planes = member.share(nz);
        let start = 2 * (planes.start * ny * nx) as u64;
        let mut random = NasRandom::new(SEED).skipped(start);
        for z in planes {
            for y in 0..ny {
                random.fill(&mut line);
                let row = values.row(2 * self.point(0, y, z), 2 * nx);
                for (at, number) in line.iter().enumerate() {
                    row.set(at, *number);
                }
            }
        }
    }

    /// Transforms `from` into `to` along all axes; an inverse transform has the opposite order.
    fn transform(
        &self,
        member: &Member<'_>,
        lines: &mut [Lines; 3],
        direction: Direction,
        from: Field<'_>,
        to: Field<'_>,
    ) -> Result<(), Stopped> {
        // Between the first two axes, every member stays in its planes.
        let (order, stays_after) = match direction {
            Direction::Forward => ([0, 1, 2], 0),
            Direction::Inverse => ([2, 1, 0], 1),
        };
        let mut source = from;
        for axis in order {
            self.transform_axis(member, &mut lines[axis], axis, direction, source, to);
            if axis != stays_after {
                member.wait()?;
            }
            source = to;
        }
        member.wait()
    }

    /// Transforms a member's lines along `axis`, a block of lines at a time.
    fn transform_axis(
        &self,
        member: &Member<'_>,
        lines: &mut Lines,
        axis: usize,
        direction: Direction,
        from: Field<'_>,
        to: Field<'_>,
    ) {
        let [nx, ny, nz] = self.sides;
        // Distances in elements from one point of a line to the next, and from a line to its neighbour.
        let along = 2 * [1, nx + 1, (nx + 1) * ny][axis];
        let beside = if axis == 0 { 2 * (nx + 1) } else { 2 };
        let (planes, count) = match axis {
            0 => (member.share(nz), ny),
            1 => (member.share(nz), nx),
            _ => (member.share(ny), nx),
        };
        for plane in planes {
            let start = 2 * match axis {
                2 => self.point(0, plane, 0),
                _ => self.point(0, 0, plane),
            };
            for first in (0..count).step_by(BLOCK) {
                let place = Place {
                    start: start + first * beside,
                    along,
                    beside,
                    width: BLOCK.min(count - first),
                };
                lines.read(from, place);
                lines.transform(direction);
                lines.write(to, place);
            }
        }
    }

    /// Lets a member's coefficients decay by one step, and copies them for the transform.
    fn evolve(&self, member: &Member<'_>) {
        let [nx, ny, nz] = self.sides;
        let decays = self.decays.field();
        let (coefficients, values) = (self.coefficients.field(), self.values.field());
        for z in member.share(nz) {
            for y in 0..ny {
                let start = self.point(0, y, z);
                let decays = decays.row(start, nx);
                let row = coefficients.row(2 * start, 2 * nx);
                let values = values.row(2 * start, 2 * nx);
                for x in 0..nx {
                    let decay = decays.get(x);
                    for at in [2 * x, 2 * x + 1] {
                        let value = row.get(at) * decay;
                        row.set(at, value);
                        values.set(at, value);
                    }
                }
            }
        }
    }

    /// The sum of 1024 values spread over the box, divided by the number of points.
    fn checksum(&self, member: &Member<'_>) -> Result<[f64; 2], Stopped> {
        let [nx, ny, nz] = self.sides;
        let values = self.values.field();
        let mut sum = [0.0; 2];
        for j in member.share_of(1..SUMMED + 1) {
            let at = 2 * self.point(j % nx, 3 * j % ny, 5 * j % nz);
            sum[0] += values.get(at);
            sum[1] += values.get(at + 1);
        }
        let points = (nx * ny * nz) as f64;
        Ok(member.sums(sum)?.map(|sum| sum / points))
    }

    fn lines(&self) -> [Lines; 3] {
        self.sides.map(|side| Lines::new(side, BLOCK))
    }

    /// Computes the coefficients.
    fn begin(&self, member: &Member<'_>, lines: &mut [Lines; 3]) -> Result<(), Stopped> {
        self.set_decays(member);
        self.draw(member);
        let (values, coefficients) = (self.values.field(), self.coefficients.field());
        self.transform(member, lines, Direction::Forward, values, coefficients)
    }
}

impl Kernel for Ft {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        // The benchmark does this before it starts its clock, and then again.
        self.begin(member, &mut self.lines())
    }

    /// Every iteration has its checksum, so shorter runs can be compared, too.
    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let mut lines = self.lines();
        self.begin(member, &mut lines)?;
        let mut checks = Vec::new();
        for iteration in member.iterations() {
            self.evolve(member);
            member.wait()?;
            let values = self.values.field();
            self.transform(member, &mut lines, Direction::Inverse, values, values)?;
            let checksum = self.checksum(member)?;
            for (part, at) in [("real", 0), ("imaginary", 1)] {
                let name = format!("checksum {iteration} ({part})");
                if let Some(&published) = self.published[at].get(iteration as usize - 1) {
                    checks.push(Check::each_iteration(
                        name,
                        checksum[at],
                        published,
                        TOLERANCE,
                    ));
                }
            }
        }
        Ok(checks)
    }
}
