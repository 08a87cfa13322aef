//! stencil: elastic waves in a box of layered rock, by finite differences of fourth order on a
//! staggered grid in velocity and stress, as in programs for earthquakes such as Ondes3D (Virieux
//! 1986; Levander 1988).
//!
//! A pressure pulse spreads from the middle. Beyond the box everything is at rest, so no energy
//! leaves it, and forward and backward differences are transposes of each other. So the leapfrog
//! scheme conserves its energy exactly, which is the check. The kinetic part of the energy uses the
//! product of the velocities before and after the moment of the stresses.
//!
//! Memory: nine arrays. A thread owns a slab of planes across the third axis. It writes only there,
//! and reads two planes of each neighbour: access is regular, and only the edges of slabs are
//! shared. Borders of two points at rest surround the box.

use super::field::Field;
use super::{Array, Check, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;

/// Points of the border on each side.
const BORDER: usize = 2;

/// Weights of the differences between the nearer two points and the farther two.
const NEAR: f64 = 9.0 / 8.0;
const FAR: f64 = -1.0 / 24.0;

/// Distance between points, in kilometres.
const SPACING: f64 = 0.1;

/// Length of a step in seconds: 0.4 of the fastest wave's time from point to point.
const STEP: f64 = 0.4 * SPACING / 6.8;

/// Largest relative change of energy, from rounding only.
const TOLERANCE: f64 = 1e-11;

/// Points along an axis and steps, for each class.
const SIZES: [(usize, u64); 5] = [(24, 20), (64, 40), (128, 80), (256, 80), (400, 100)];

/// Layers of rock: velocities of pressure and shear waves in km/s, density in g/cm^3.
const LAYERS: [[f64; 3]; 3] = [[4.0, 2.3, 2.3], [5.8, 3.36, 2.72], [6.8, 3.93, 2.92]];

/// Properties of a plane's rock: the elastic constants of Lamé, and the density.
#[derive(Clone, Copy)]
struct Rock {
    lambda: f64,
    mu: f64,
    density: f64,
}

impl Rock {
    /// The rock of a plane; the layers are equally thick.
    fn of(plane: usize, points: usize) -> Rock {
        let [pressure, shear, density] = LAYERS[plane * LAYERS.len() / points];
        let mu = density * shear * shear;
        Rock {
            lambda: density * pressure * pressure - 2.0 * mu,
            mu,
            density,
        }
    }
}

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let (points, steps) = terms.class.of(SIZES);
    let sizes = format!("{points} x {points} x {points} points");
    Problem::new(sizes, steps, Stencil::new(points, terms)?)
}

struct Stencil {
    points: usize,
    /// Velocities along the three axes.
    velocity: [Array; 3],
    /// Stresses along the axes.
    normal: [Array; 3],
    /// Stresses between the first and second, first and third, second and third axis.
    shear: [Array; 3],
}

/// Rows of one array around a row.
#[derive(Clone, Copy)]
struct Rows<'a> {
    /// This row, and those from two before it to two after it along the second and third axes.
    own: Field<'a>,
    second: [Field<'a>; 5],
    third: [Field<'a>; 5],
}

impl Rows<'_> {
    /// Difference along `AXIS`, centred half a point ahead.
    #[inline(always)]
    fn ahead<const AXIS: usize>(&self, at: usize) -> f64 {
        self.difference::<AXIS>(at, 0)
    }

    /// Difference along `AXIS`, centred half a point behind.
    #[inline(always)]
    fn behind<const AXIS: usize>(&self, at: usize) -> f64 {
        self.difference::<AXIS>(at, 1)
    }

    #[inline(always)]
    fn difference<const AXIS: usize>(&self, at: usize, back: usize) -> f64 {
        let value = |to: usize| match AXIS {
            0 => self.own.get(at + to - 2 - back),
            1 => self.second[to - back].get(at),
            _ => self.third[to - back].get(at),
        };
        NEAR * (value(3) - value(2)) + FAR * (value(4) - value(1))
    }
}

impl Stencil {
    fn new(points: usize, terms: &Terms<'_>) -> Result<Stencil, Error> {
        let length = (points + 2 * BORDER).pow(3);
        let [a, b, c, d, e, f, g, h, i] = Array::several(terms, [length; 9])?;
        Ok(Stencil {
            points,
            velocity: [a, b, c],
            normal: [d, e, f],
            shear: [g, h, i],
        })
    }

    /// Points along an axis, borders included.
    fn side(&self) -> usize {
        self.points + 2 * BORDER
    }

    fn row<'a>(&self, array: &'a Array, plane: usize, row: usize) -> Field<'a> {
        let side = self.side();
        array.field().row((plane * side + row) * side, side)
    }

    /// The rows around a row.
    #[inline(always)]
    fn rows<'a>(&self, array: &'a Array, plane: usize, row: usize) -> Rows<'a> {
        Rows {
            own: self.row(array, plane, row),
            second: std::array::from_fn(|to| self.row(array, plane, row + to - BORDER)),
            third: std::array::from_fn(|to| self.row(array, plane + to - BORDER, row)),
        }
    }

    #[inline(always)]
    fn row_of_each<'a>(&self, of: &'a [Array; 3], plane: usize, row: usize) -> [Field<'a>; 3] {
        of.each_ref().map(|array| self.row(array, plane, row))
    }

    #[inline(always)]
    fn rows_of_each<'a>(&self, of: &'a [Array; 3], plane: usize, row: usize) -> [Rows<'a>; 3] {
        of.each_ref().map(|array| self.rows(array, plane, row))
    }

    /// Advances the velocities of a member's planes by a step. With `MEASURE`, returns the member's
    /// part of the energy at this moment.
    fn accelerate<const MEASURE: bool>(&self, member: &Member<'_>) -> f64 {
        let mut energy = 0.0;
        for plane in member.share(self.points) {
            let rock = Rock::of(plane, self.points);
            let factor = STEP / SPACING / rock.density;
            let plane = plane + BORDER;
            for row in BORDER..self.points + BORDER {
                let velocity = self.row_of_each(&self.velocity, plane, row);
                let [xx, yy, zz] = self.rows_of_each(&self.normal, plane, row);
                let [xy, xz, yz] = self.rows_of_each(&self.shear, plane, row);
                for at in BORDER..self.points + BORDER {
                    let change = [
                        xx.ahead::<0>(at) + xy.behind::<1>(at) + xz.behind::<2>(at),
                        xy.behind::<0>(at) + yy.ahead::<1>(at) + yz.behind::<2>(at),
                        xz.behind::<0>(at) + yz.behind::<1>(at) + zz.ahead::<2>(at),
                    ];
                    for (velocity, change) in velocity.into_iter().zip(change) {
                        let before = velocity.get(at);
                        let after = before + factor * change;
                        velocity.set(at, after);
                        if MEASURE {
                            energy += 0.5 * rock.density * before * after;
                        }
                    }
                    if MEASURE {
                        let normal = [xx, yy, zz].map(|rows| rows.own.get(at));
                        let shear = [xy, xz, yz].map(|rows| rows.own.get(at));
                        energy += potential(rock, normal, shear);
                    }
                }
            }
        }
        energy
    }

    /// Advances the stresses of a member's planes by a step.
    fn strain(&self, member: &Member<'_>) {
        for plane in member.share(self.points) {
            let rock = Rock::of(plane, self.points);
            let factor = STEP / SPACING;
            let plane = plane + BORDER;
            for row in BORDER..self.points + BORDER {
                let [x, y, z] = self.rows_of_each(&self.velocity, plane, row);
                let normal = self.row_of_each(&self.normal, plane, row);
                let shear = self.row_of_each(&self.shear, plane, row);
                for at in BORDER..self.points + BORDER {
                    let along = [x.behind::<0>(at), y.behind::<1>(at), z.behind::<2>(at)];
                    let volume = rock.lambda * (along[0] + along[1] + along[2]);
                    for (stress, along) in normal.into_iter().zip(along) {
                        stress.add(at, factor * (volume + 2.0 * rock.mu * along));
                    }
                    let across = [
                        x.ahead::<1>(at) + y.ahead::<0>(at),
                        x.ahead::<2>(at) + z.ahead::<0>(at),
                        y.ahead::<2>(at) + z.ahead::<1>(at),
                    ];
                    for (stress, across) in shear.into_iter().zip(across) {
                        stress.add(at, factor * rock.mu * across);
                    }
                }
            }
        }
    }
}

/// Energy of rock under stress, per unit of volume.
fn potential(rock: Rock, normal: [f64; 3], shear: [f64; 3]) -> f64 {
    let squares = |stresses: [f64; 3]| stresses.iter().map(|stress| stress * stress).sum::<f64>();
    let trace: f64 = normal.iter().sum();
    let part = rock.lambda / (3.0 * rock.lambda + 2.0 * rock.mu);
    (squares(normal) + 2.0 * squares(shear) - part * trace * trace) / (4.0 * rock.mu)
}

impl Kernel for Stencil {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let side = self.side();
        let share = member.share(self.points);
        // The outermost slabs include the borders.
        let start = if share.start == 0 {
            0
        } else {
            share.start + BORDER
        };
        let end = if share.end == self.points {
            side
        } else {
            share.end + BORDER
        };
        let arrays = self.velocity.iter().chain(&self.normal).chain(&self.shear);
        for array in arrays {
            let size = side * side;
            array
                .field()
                .fill(start * size..(end * size).max(start * size), 0.0);
        }
        // A pulse three points wide.
        let middle = self.points as f64 / 2.0;
        let offset = |at: usize| (at as f64 - middle).powi(2);
        for plane in share {
            for row in 0..self.points {
                let normal = self.row_of_each(&self.normal, plane + BORDER, row + BORDER);
                for at in 0..self.points {
                    let square = offset(plane) + offset(row) + offset(at);
                    let pressure = (-square / 9.0).exp();
                    normal
                        .iter()
                        .for_each(|stress| stress.set(at + BORDER, pressure));
                }
            }
        }
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let (mut first, mut last) = (f64::NAN, f64::NAN);
        for iteration in member.iterations() {
            if iteration == 1 || iteration == member.iterations_wanted() {
                last = member.sum(self.accelerate::<true>(member))?;
                if iteration == 1 {
                    first = last;
                }
            } else {
                self.accelerate::<false>(member);
                member.wait()?;
            }
            self.strain(member);
            member.wait()?;
        }
        Ok(vec![Check::always("energy", last, first, TOLERANCE)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::team::Team;
    use crate::kernels::{Class, trial};
    use crate::stop::Stop;

    #[test]
    fn differences_are_of_fourth_order() {
        trial::with_terms(Class::S, 1, |terms| {
            let stencil = Stencil::new(24, terms).unwrap();
            let side = stencil.side();
            let array = Array::new(terms, side.pow(3)).unwrap();
            // Cubics have no error: x^3 along each axis, half a point from the centre of the difference.
            for at in 0..side.pow(3) {
                let [x, y, z] = [at % side, at / side % side, at / side / side];
                let cubic = |at: usize| (at as f64).powi(3);
                array
                    .field()
                    .set(at, cubic(x) + 2.0 * cubic(y) + 3.0 * cubic(z));
            }
            let rows = stencil.rows(&array, 5, 7);
            let near = |value: f64, expected: f64| {
                assert!((value - expected).abs() < 1e-9, "{value} {expected}");
            };
            near(rows.ahead::<0>(9), 3.0 * 9.5 * 9.5);
            near(rows.behind::<0>(9), 3.0 * 8.5 * 8.5);
            near(rows.ahead::<1>(9), 6.0 * 7.5 * 7.5);
            near(rows.behind::<1>(9), 6.0 * 6.5 * 6.5);
            near(rows.ahead::<2>(9), 9.0 * 5.5 * 5.5);
            near(rows.behind::<2>(9), 9.0 * 4.5 * 4.5);
        });
    }

    #[test]
    fn a_pulse_spreads_alike_along_the_axes_of_a_layer_and_keeps_its_energy() {
        trial::with_terms(Class::S, 1, |terms| {
            let stencil = Stencil::new(24, terms).unwrap();
            let stop = Stop::new();
            let team = Team::new(1, &stop);
            let member = team.member(0, 8);
            stencil.set_up(&member).unwrap();
            let energy = &stencil.run(&member).unwrap()[0];
            assert!(
                energy.value > 0.0 && energy.error.unwrap() < TOLERANCE,
                "{energy:?}"
            );
            let [x, y, _] = stencil.velocity.each_ref().map(Array::field);
            let side = stencil.side();
            let mut fastest = 0.0f64;
            for plane in 0..side {
                for row in 0..side {
                    for at in 0..side {
                        let along = x.get((plane * side + row) * side + at);
                        let across = y.get((plane * side + at) * side + row);
                        assert!((along - across).abs() < 1e-15);
                        fastest = fastest.max(along.abs());
                    }
                }
            }
            assert!(fastest > 1e-3, "{fastest}");
        });
    }
}
