//! grid: a fluid of particles in a box, sorted into cells, with the access pattern of PARSEC's fluidanimate.
//!
//! A column of fluid falls and spreads. The forces are those of smoothed-particle hydrodynamics
//! (Müller, Charypar and Gross, 2003): a particle's density is a sum over the particles within the
//! side of a cell, pressure pushes particles apart where they are too dense, and viscosity evens
//! out their velocities. The unit of length is the side of a cell.
//!
//! Threads own blocks of cells, which divide the box along its first and third axes. Each pair of
//! particles is computed once, for both; the other particle may belong to another thread. So cells
//! at the edge of a block have a mutex, which is locked for every addition to them.
//!
//! Memory: the first thread makes and so first touches all of the fluid, as in fluidanimate.
//! Afterwards a thread works on its own block, and writes to the cells around it. In every step,
//! particles move to the other of two sets of cells.

mod cells;
mod fluid;

use super::{Check, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;
use crate::random::{self, mix};
use cells::{Blocks, Cells, PLACE};
use fluid::{ACROSS, Fluid};

/// Cells along the axes of each class, and its steps.
const SIZES: [([usize; 3], u64); 5] = [
    ([12, 18, 12], 5),
    ([24, 36, 24], 10),
    ([32, 48, 32], 20),
    ([48, 72, 48], 50),
    ([64, 96, 64], 100),
];

/// The part of the box along each axis that the column fills at the start.
const FILLED: [f64; 3] = [0.5, 0.75, 1.0];

/// Initial displacement of particles, relative to their distance.
const DISORDER: f64 = 0.05;

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let (sides, steps) = terms.class.of(SIZES);
    let [nx, ny, nz] = sides;
    let particles = column(sides).iter().product();
    let grid = Grid {
        seed: terms.seed,
        sides,
        blocks: Blocks::new(sides, terms.threads),
        cells: [
            Cells::new(terms, sides, particles)?,
            Cells::new(terms, sides, particles)?,
        ],
    };
    let sizes = format!("{particles} particles in {nx} x {ny} x {nz} cells");
    Problem::new(sizes, steps, grid)
}

struct Grid {
    seed: u64,
    sides: [usize; 3],
    blocks: Blocks,
    /// The particles of this step and of the one before, alternating.
    cells: [Cells; 2],
}

impl Grid {
    /// Makes the column.
    fn fill(&self, cells: &Cells) {
        let [nx, ny, nz] = column(self.sides);
        let mut state = mix(self.seed);
        let mut disorder = || {
            state = random::next(state);
            ((state >> 32) as f64 / (1u64 << 32) as f64 - 0.5) * 2.0 * DISORDER
        };
        for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    let place = [x, y, z].map(|at| (at as f64 + 0.5 + disorder()) / ACROSS);
                    let cell = cells.at(place);
                    cells.push(cell, place, [0.0; 3], [0.0; 3]);
                }
            }
        }
    }

    /// The set of cells that a step works on, and the set from which it takes particles.
    fn turn(&self, step: u64) -> [&Cells; 2] {
        let [even, odd] = &self.cells;
        if step.is_multiple_of(2) {
            [even, odd]
        } else {
            [odd, even]
        }
    }

    /// One step.
    fn step(&self, member: &Member<'_>, step: u64) -> Result<(), Stopped> {
        let [cells, before] = self.turn(step);
        let block = self.blocks.of(member.index);
        if member.index == 0 {
            cells.drop_additions();
        }
        block.cells(self.sides).for_each(|cell| cells.clear(cell));
        member.wait()?;
        for cell in block.cells(self.sides) {
            self.blocks.sort(before, cell, cells);
        }
        member.wait()?;
        let fluid = Fluid {
            cells,
            blocks: &self.blocks,
            sides: self.sides,
        };
        let phases = [
            Fluid::begin,
            Fluid::add_densities,
            Fluid::end_densities,
            Fluid::add_forces,
            Fluid::advance,
        ];
        for phase in phases {
            for cell in block.cells(self.sides) {
                phase(&fluid, cell);
            }
            member.wait()?;
        }
        Ok(())
    }

    /// Checks on the particles of all members at the end.
    fn checks(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let [cells, _] = self.turn(member.iterations_wanted());
        let (mut counted, mut undefined, mut densest) = (0.0, 0.0, 0.0f64);
        for cell in self.blocks.of(member.index).cells(self.sides) {
            for particle in cells.particles(cell) {
                counted += 1.0;
                let place = cells.get(particle, PLACE);
                undefined += place.iter().filter(|at| !at.is_finite()).count() as f64;
                densest = densest.max(cells.density(particle));
            }
        }
        let [counted, undefined] = member.sums([counted, undefined])?;
        let densest = member.max(densest)?;
        let particles: usize = column(self.sides).iter().product();
        Ok(vec![
            Check::always("particles", counted, particles as f64, 0.0),
            Check::always("coordinates that are no numbers", undefined, 0.0, 0.0),
            // A fluid that has burst or collapsed has a density far from that at rest.
            Check::always("density of the densest, of that at rest", densest, 1.0, 0.5),
        ])
    }
}

/// Particles along each axis of the column at the start.
fn column(sides: [usize; 3]) -> [usize; 3] {
    std::array::from_fn(|axis| (FILLED[axis] * sides[axis] as f64 * ACROSS) as usize)
}

impl Kernel for Grid {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        if member.index == 0 {
            self.fill(&self.cells[0]);
        }
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        for step in member.iterations() {
            self.step(member, step)?;
        }
        self.checks(member)
    }
}
