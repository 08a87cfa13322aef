//! ua: heat that a moving ball leaves in a moving medium, on spectral elements of a mesh that is
//! refined around the ball and coarsened behind it. Which element meets which, and which values are
//! the same, changes every five steps: the accesses are irregular, and change.
//!
//! Memory: elements, and the mortar points between them, lie in the order of the octree, and each
//! thread has a run of both. When the mesh changes, all values move to where the new order has
//! them, and a thread's elements change with it.
//!
//! Source: Feng, Van der Wijngaart, Biswas, Mavriplis, "Unstructured Adaptive (UA) NAS Parallel
//! Benchmark, Version 1.0", NAS-04-006 (sizes and values of NPB 3). Unlike the OpenMP version,
//! which locks each mortar point to add to it, elements leave their parts and mortar points collect
//! them, so that the same team gets the same digits; and the first thread alone makes the mesh.

use super::field::WholeArray;
use super::{Array, Check, Kernel, Member, Stopped, Terms};
use crate::error::Error;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

mod element;
mod mesh;
mod mortar;
mod numbering;
mod solver;

use element::VOLUME;
use mesh::Mesh;
use mortar::SLOTS;
use numbering::{Grid, Sources};
use solver::{Elements, Mortars, Solver};

/// Steps between two changes of the mesh.
const EVERY: u64 = 5;

/// Largest relative error of the integral.
const TOLERANCE: f64 = 1e-8;

/// A class's parameters.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Most elements and mortar points the mesh has wherever the ball is.
    elements: usize,
    mortars: usize,
    /// Level of the smallest elements.
    finest: u32,
    iterations: u64,
    /// Radius of the ball.
    radius: f64,
    /// The published integral of the temperature.
    integral: f64,
}

/// S, W, A, B and C. The room is a little more than the mesh ever needs on the ball's way.
const SIZES: [Size; 5] = [
    Size {
        elements: 250,
        mortars: 11_900,
        finest: 4,
        iterations: 50,
        radius: 0.04,
        integral: 0.189_001_311_096_2e-2,
    },
    Size {
        elements: 700,
        mortars: 27_400,
        finest: 5,
        iterations: 100,
        radius: 0.06,
        integral: 0.256_979_483_707_6e-4,
    },
    Size {
        elements: 2400,
        mortars: 94_900,
        finest: 6,
        iterations: 200,
        radius: 0.076,
        integral: 0.893_999_628_144_3e-4,
    },
    Size {
        elements: 8800,
        mortars: 343_000,
        finest: 7,
        iterations: 200,
        radius: 0.076,
        integral: 0.450_756_192_290_1e-4,
    },
    Size {
        elements: 33_500,
        mortars: 1_290_000,
        finest: 8,
        iterations: 200,
        radius: 0.067,
        integral: 0.154_473_658_71e-4,
    },
];

impl Size {
    /// The length of a step in time.
    fn step(&self) -> f64 {
        0.04 * 0.5f64.powi(self.finest.cast_signed())
    }
}

/// The mesh and what is made of it.
#[derive(Debug)]
struct Shape {
    mesh: Mesh,
    grid: Arc<Grid>,
    sources: Arc<Sources>,
}

/// The problem and its memory.
#[derive(Debug)]
pub struct Ua {
    size: Size,
    /// Two temperatures, residual, direction, image, update, slots.
    elements: [Array; 7],
    index: WholeArray,
    /// Guess, residual, direction, image, update, inverse of the diagonal, shares.
    mortars: [Array; 7],
    shape: Mutex<Shape>,
    integral: OnceLock<f64>,
}

impl Ua {
    /// The problem of a class.
    ///
    /// # Errors
    ///
    /// Where memory is short.
    pub fn make(terms: &Terms<'_>) -> Result<Box<dyn Kernel>, Error> {
        let size = terms.class.of(SIZES);
        let values = VOLUME * size.elements;
        let slots = SLOTS * size.elements;
        let shape = Shape {
            mesh: Mesh::new(size.finest),
            grid: Arc::default(),
            sources: Arc::default(),
        };
        Ok(Box::new(Ua {
            size,
            elements: Array::several(
                terms,
                [values, values, values, values, values, values, slots],
            )?,
            index: WholeArray::new(terms, slots)?,
            mortars: Array::several(terms, [size.mortars; 7])?,
            shape: Mutex::new(shape),
            integral: OnceLock::new(),
        }))
    }

    fn solver(&self) -> Solver<'_> {
        let [first, second, residual, direction, image, update, slots] =
            self.elements.each_ref().map(Array::field);
        let elements = Elements {
            temperature: [first, second],
            residual,
            direction,
            image,
            update,
            slots,
            index: self.index.field(),
        };
        let [guess, residual, direction, image, update, inverse, share] =
            self.mortars.each_ref().map(Array::field);
        let mortars = Mortars {
            guess,
            residual,
            direction,
            image,
            update,
            inverse,
            share,
        };
        let lengths = [self.size.step(), self.size.radius];
        Solver::new(elements, mortars, lengths, self.size.finest)
    }

    /// Fits the mesh to where the ball is at `time`, and moves the temperature over to it.
    fn adapt(
        &self,
        member: &Member<'_>,
        solver: &mut Solver<'_>,
        time: f64,
    ) -> Result<(), Stopped> {
        let shape = || self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        member.wait()?;
        if member.index == 0 {
            let mut shape = shape();
            shape.mesh.adapt(&solver.ball(time));
            let grid = Grid::new(&shape.mesh, self.size.finest);
            let room =
                grid.cells.len() <= self.size.elements && grid.mortars() <= self.size.mortars;
            assert!(room, "the mesh outgrows its class: run fewer iterations");
            shape.grid = Arc::new(grid);
        }
        member.wait()?;
        let old = std::mem::replace(&mut solver.grid, Arc::clone(&shape().grid));
        if !old.cells.is_empty() {
            solver.current = 1 - solver.current;
            solver.remap(member, &old);
        }
        solver.connect(member);
        member.wait()?;
        if member.index == 0 {
            let grid = &solver.grid;
            let slots = SLOTS * grid.cells.len();
            let index = solver.elements.index;
            let sources = Sources::new(grid.mortars(), (0..slots).map(|slot| index.get(slot)));
            shape().sources = Arc::new(sources);
        }
        member.wait()?;
        solver.sources = Arc::clone(&shape().sources);
        solver.prepare(member)
    }
}

impl Kernel for Ua {
    fn problem(&self) -> String {
        let Size { finest, radius, .. } = self.size;
        format!("{finest} levels, a ball of radius {radius}, elements of 5 x 5 x 5 points")
    }

    fn iterations(&self) -> u64 {
        self.size.iterations
    }

    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let mut solver = self.solver();
        self.adapt(member, &mut solver, 0.0)?;
        // A step whose result is thrown away, so that all pages are there.
        solver.advance(member, 0.0)?;
        solver.clear(member);
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let mut solver = self.solver();
        {
            let shape = self.shape.lock().unwrap_or_else(PoisonError::into_inner);
            solver.grid = Arc::clone(&shape.grid);
            solver.sources = Arc::clone(&shape.sources);
        }
        let mut time = 0.0;
        for iteration in member.iterations() {
            solver.advance(member, time)?;
            time += self.size.step();
            if iteration % EVERY == 0 && iteration != member.iterations_wanted() {
                self.adapt(member, &mut solver, time)?;
            }
        }
        let integral = solver.integral(member)?;
        if member.index == 0 {
            let _ = self.integral.set(integral);
        }
        Ok(())
    }

    fn results(&self, _iterations: u64) -> Vec<Check> {
        let check = |integral: &f64| {
            let published = Some(self.size.integral);
            Check::published(
                "integral of the temperature",
                *integral,
                published,
                TOLERANCE,
            )
        };
        self.integral.get().map(check).into_iter().collect()
    }
}
