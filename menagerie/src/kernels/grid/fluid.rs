//! The forces between particles and their effects, after Müller, Charypar and Gross,
//! "Particle-based fluid simulation for interactive applications" (2003): equations 3 and 20 for
//! densities, 10 and 21 for pressure, 14 and 22 for viscosity.
//!
//! Units: the reach of forces, which is the side of a cell, is 1; density at rest is 1; gravity
//! is 1.

use super::cells::{ACCELERATION, Blocks, Cells, HALF, PLACE, Particle, VELOCITY, around};
use std::f64::consts::PI;

/// Number of particles along the reach of forces, at rest.
pub const ACROSS: f64 = 1.7;

/// Mass of a particle.
const MASS: f64 = 1.0 / (ACROSS * ACROSS * ACROSS);

/// Length of a step. In it, sound travels a tenth of a cell's side.
const STEP: f64 = 0.005;

/// Pressure per unit of excess density: the square of the velocity of sound, which is some five
/// times the velocity of a particle that falls from the top.
const STIFFNESS: f64 = 500.0;

/// Viscosity.
const VISCOSITY: f64 = 0.4;

/// The part of its velocity that a particle keeps when it bounces off a wall.
const BOUNCE: f64 = 0.5;

/// Acceleration of all particles.
const GRAVITY: [f64; 3] = [0.0, -1.0, 0.0];

/// The particles of a step and their division.
pub struct Fluid<'g> {
    /// The particles.
    pub cells: &'g Cells,
    /// The owners of cells.
    pub blocks: &'g Blocks,
    /// Cells along the axes.
    pub sides: [usize; 3],
}

/// A cell and a particle in it.
#[derive(Clone, Copy)]
struct Placed {
    cell: usize,
    particle: Particle,
}

impl Fluid<'_> {
    /// Initialises a cell's particles before forces are added up: only gravity, no density.
    pub fn begin(&self, cell: usize) {
        for particle in self.cells.particles(cell) {
            self.cells.set_density(particle, 0.0);
            self.cells.set(particle, ACCELERATION, GRAVITY);
        }
    }

    /// Visits the pairs of a cell: each of its particles with the earlier ones in the cell, and
    /// with those of the cells before it.
    #[inline(always)]
    fn pairs(&self, cell: usize, visit: impl Fn(Placed, Placed)) {
        for particle in self.cells.particles(cell) {
            let one = Placed { cell, particle };
            for near in around(cell, self.sides).take_while(|near| *near <= cell) {
                let others = self.cells.particles(near);
                // Stops at the particle itself in its own cell; no other cell contains it.
                for particle in others.take_while(|other| *other != one.particle) {
                    let cell = near;
                    visit(one, Placed { cell, particle });
                }
            }
        }
    }

    /// Adds (1 - r^2)^3 to the densities of both particles of each pair in reach. The constant
    /// factor comes later.
    pub fn add_densities(&self, cell: usize) {
        self.pairs(cell, |one, other| {
            let [there, here] = [other, one].map(|placed| self.cells.get(placed.particle, PLACE));
            let square = square(minus(there, here));
            if square < 1.0 {
                let change = (1.0 - square).powi(3);
                for placed in [one, other] {
                    let _alone = self.blocks.lock(placed.cell);
                    self.cells.add_density(placed.particle, change);
                }
            }
        });
    }

    /// Turns the sums into densities; a particle contributes to its own.
    pub fn end_densities(&self, cell: usize) {
        let factor = MASS * 315.0 / (64.0 * PI);
        for particle in self.cells.particles(cell) {
            let sum = 1.0 + self.cells.density(particle);
            self.cells.set_density(particle, factor * sum);
        }
    }

    /// Adds pressure and viscosity of each pair in reach to both accelerations.
    pub fn add_forces(&self, cell: usize) {
        self.pairs(cell, |one, other| {
            let change = self.force(one.particle, other.particle);
            if let Some(force) = change {
                for (placed, sign) in [(one, 1.0), (other, -1.0)] {
                    let _alone = self.blocks.lock(placed.cell);
                    let change = force.map(|force| sign * force);
                    self.cells.add_acceleration(placed.particle, change);
                }
            }
        });
    }

    /// The acceleration of `one` by `other`, if they are in reach. The force is divided by both
    /// densities, so the pair's momentum is conserved.
    #[inline(always)]
    fn force(&self, one: Particle, other: Particle) -> Option<[f64; 3]> {
        let cells = self.cells;
        let away = minus(cells.get(one, PLACE), cells.get(other, PLACE));
        let square = square(away);
        if square >= 1.0 {
            return None;
        }
        // Two particles at the same position have no direction of separation.
        let distance = square.sqrt().max(1e-9);
        let densities = [cells.density(one), cells.density(other)];
        let part = 45.0 / PI * MASS / (densities[0] * densities[1]);
        // Densities below that at rest do not attract, or a free surface would clump.
        let pressure = |density: f64| STIFFNESS * (density - 1.0).max(0.0);
        let push = part * (pressure(densities[0]) + pressure(densities[1])) / 2.0
            * (1.0 - distance).powi(2)
            / distance;
        let drag = part * VISCOSITY * (1.0 - distance);
        let slower = minus(cells.get(other, VELOCITY), cells.get(one, VELOCITY));
        Some(std::array::from_fn(|axis| {
            push * away[axis] + drag * slower[axis]
        }))
    }

    /// Moves a cell's particles by the leapfrog scheme; they bounce off walls.
    pub fn advance(&self, cell: usize) {
        let cells = self.cells;
        for particle in cells.particles(cell) {
            let acceleration = cells.get(particle, ACCELERATION);
            let mut half = cells.get(particle, HALF);
            let mut place = cells.get(particle, PLACE);
            let mut velocity = [0.0; 3];
            for axis in 0..3 {
                let before = half[axis];
                half[axis] += STEP * acceleration[axis];
                place[axis] += STEP * half[axis];
                velocity[axis] = (before + half[axis]) / 2.0;
                let wall = self.sides[axis] as f64;
                let inside = place[axis].clamp(0.0, wall);
                if place[axis] != inside {
                    place[axis] = inside;
                    half[axis] *= -BOUNCE;
                    velocity[axis] *= -BOUNCE;
                }
            }
            cells.set(particle, PLACE, place);
            cells.set(particle, HALF, half);
            cells.set(particle, VELOCITY, velocity);
        }
    }
}

fn minus(left: [f64; 3], right: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|axis| left[axis] - right[axis])
}

fn square(vector: [f64; 3]) -> f64 {
    vector.iter().map(|part| part * part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Class, trial};
    use crate::random::{self, mix};
    use proptest::prelude::*;

    const SIDES: [usize; 3] = [4, 3, 4];

    /// Particles anywhere in the box, with any velocity, in cells.
    fn scattered(cells: &Cells, seed: u64, count: usize) -> Vec<([f64; 3], [f64; 3])> {
        let mut state = mix(seed);
        let mut number = || {
            state = random::next(state);
            (state >> 32) as f64 / (1u64 << 32) as f64
        };
        let mut particles = Vec::new();
        for _ in 0..count {
            let place = SIDES.map(|side| side as f64 * number());
            let velocity = SIDES.map(|_| number() - 0.5);
            cells.push(cells.at(place), place, velocity, velocity);
            particles.push((place, velocity));
        }
        particles
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn densities_are_sums_over_all_in_reach_and_momentum_stays(seed: u64, count in 1usize..300) {
            trial::with_terms(Class::S, 1, |terms| {
                let cells = Cells::new(terms, SIDES, count).unwrap();
                let particles = scattered(&cells, seed, count);
                let blocks = Blocks::new(SIDES, 3);
                let fluid = Fluid { cells: &cells, blocks: &blocks, sides: SIDES };
                let all = || 0..SIDES.iter().product();
                all().for_each(|cell| fluid.begin(cell));
                all().for_each(|cell| fluid.add_densities(cell));
                all().for_each(|cell| fluid.end_densities(cell));
                for cell in all() {
                    for particle in cells.particles(cell) {
                        let here = cells.get(particle, PLACE);
                        let near = |there: [f64; 3]| (1.0 - square(minus(here, there))).max(0.0);
                        let sum: f64 = particles.iter().map(|(there, _)| near(*there).powi(3)).sum();
                        let density = MASS * 315.0 / (64.0 * PI) * sum;
                        let error = (cells.density(particle) - density).abs();
                        assert!(error <= 1e-12 * density, "{error}");
                    }
                }
                all().for_each(|cell| fluid.add_forces(cell));
                let mut total = [0.0; 3];
                let mut largest = 0.0f64;
                for cell in all() {
                    for particle in cells.particles(cell) {
                        let acceleration = minus(cells.get(particle, ACCELERATION), GRAVITY);
                        largest = largest.max(square(acceleration).sqrt());
                        total = minus(total, acceleration);
                    }
                }
                assert!(square(total).sqrt() <= 1e-11 * largest * count as f64, "{total:?}");
            });
        }
    }

    #[test]
    fn a_particle_comes_off_a_wall_slower_than_it_came() {
        trial::with_terms(Class::S, 1, |terms| {
            let cells = Cells::new(terms, SIDES, 1).unwrap();
            cells.push(0, [0.001, 1.0, 1.0], [-2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]);
            let blocks = Blocks::new(SIDES, 1);
            let fluid = Fluid {
                cells: &cells,
                blocks: &blocks,
                sides: SIDES,
            };
            fluid.begin(0);
            fluid.advance(0);
            let seen: Vec<_> = cells
                .particles(0)
                .map(|particle| (cells.get(particle, PLACE)[0], cells.get(particle, HALF)[0]))
                .collect();
            assert_eq!(seen, [(0.0, 1.0)]);
        });
    }
}
