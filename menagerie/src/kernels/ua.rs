//! ua: heat from a moving ball in a moving medium, on spectral elements of a mesh that is refined
//! around the ball and coarsened behind it. The elements' neighbours and their common values change
//! every five steps, so the accesses are irregular and change, too.
//!
//! Memory: elements, and the mortar points between them, lie in the order of the octree, and each
//! thread has a contiguous part of both. When the mesh changes, all values move to their places in
//! the new order, and each thread's elements change.
//!
//! Source: Feng, Van der Wijngaart, Biswas, Mavriplis, "Unstructured Adaptive (UA) NAS Parallel
//! Benchmark, Version 1.0", NAS-04-006 (sizes and values of NPB 3). The OpenMP version locks each
//! mortar point for additions. Here, elements store their parts and mortar points collect them, so
//! that a team always gets the same digits; and only the first thread makes the mesh.

use super::field::WholeArray;
use super::{Array, Check, Class, Kernel, Member, Problem, Stopped, Terms};
use crate::error::Error;
use crate::sync::lock;
use std::sync::{Arc, Mutex};

mod element;
mod mesh;
mod mortar;
mod numbering;
mod solver;

use element::VOLUME;
use mesh::Mesh;
use mortar::SLOTS;
use numbering::{Grid, Sources};
use solver::{Elements, Mortars, Solver, Unknowns};

/// Steps between two changes of the mesh.
const EVERY: u64 = 5;

/// Largest relative error of the integral.
const TOLERANCE: f64 = 1e-8;

/// A class's parameters.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Room for elements and for mortar points: a few more than the mesh ever has on the ball's path.
    elements: usize,
    mortars: usize,
    /// Level of the smallest elements.
    finest: u32,
    /// Radius of the ball.
    radius: f64,
}

impl Size {
    fn of(class: Class) -> Size {
        Size {
            elements: class.of([250, 700, 2400, 8800, 33_500]),
            mortars: class.of([11_900, 27_400, 94_900, 343_000, 1_290_000]),
            finest: class.of([4, 5, 6, 7, 8]),
            radius: class.of([0.04, 0.06, 0.076, 0.076, 0.067]),
        }
    }

    /// The length of a step in time.
    fn step(&self) -> f64 {
        0.04 * 0.5f64.powi(self.finest.cast_signed())
    }
}

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    let size = Size::of(terms.class);
    let (values, slots) = (VOLUME * size.elements, SLOTS * size.elements);
    let lengths = [values, values, values, values, values, values, slots];
    let shape = Shape {
        mesh: Mesh::new(size.finest),
        grid: Arc::default(),
        sources: Arc::default(),
    };
    let ua = Ua {
        size,
        elements: Array::several(terms, lengths)?,
        index: WholeArray::new(terms, slots)?,
        mortars: Array::several(terms, [size.mortars; 7])?,
        shape: Mutex::new(shape),
        integral: terms.published("integral").first().copied(),
    };
    let Size { finest, radius, .. } = size;
    let sizes = format!("{finest} levels, a ball of radius {radius}, elements of 5 x 5 x 5 points");
    Problem::new(sizes, terms.class.of([50, 100, 200, 200, 200]), ua)
}

/// The mesh and the data derived from it.
#[derive(Debug)]
struct Shape {
    mesh: Mesh,
    grid: Arc<Grid>,
    sources: Arc<Sources>,
}

#[derive(Debug)]
struct Ua {
    size: Size,
    /// Two temperatures, residual, direction, image, update, slots.
    elements: [Array; 7],
    index: WholeArray,
    /// Guess, residual, direction, image, update, inverse of the diagonal, shares.
    mortars: [Array; 7],
    shape: Mutex<Shape>,
    /// The published integral of the temperature.
    integral: Option<f64>,
}

impl Ua {
    fn solver(&self) -> Solver<'_> {
        let [first, second, residual, direction, image, update, slots] =
            self.elements.each_ref().map(Array::field);
        let elements = Elements {
            temperature: [first, second],
            unknowns: Unknowns {
                residual,
                direction,
                image,
                update,
            },
            slots,
            index: self.index.field(),
        };
        let [guess, residual, direction, image, update, inverse, share] =
            self.mortars.each_ref().map(Array::field);
        let mortars = Mortars {
            guess,
            unknowns: Unknowns {
                residual,
                direction,
                image,
                update,
            },
            inverse,
            share,
        };
        let lengths = [self.size.step(), self.size.radius];
        Solver::new(elements, mortars, lengths, self.size.finest)
    }

    /// Adapts the mesh to the ball's position at `time`, and transfers the temperature to it.
    fn adapt(
        &self,
        member: &Member<'_>,
        solver: &mut Solver<'_>,
        time: f64,
    ) -> Result<(), Stopped> {
        let shape = || lock(&self.shape);
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
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        let mut solver = self.solver();
        self.adapt(member, &mut solver, 0.0)?;
        // A step whose result is discarded, so that all pages are present.
        solver.advance(member, 0.0)?;
        solver.clear(member);
        Ok(())
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let mut solver = self.solver();
        solver.grid = Arc::clone(&lock(&self.shape).grid);
        solver.sources = Arc::clone(&lock(&self.shape).sources);
        let mut time = 0.0;
        for iteration in member.iterations() {
            solver.advance(member, time)?;
            time += self.size.step();
            if iteration % EVERY == 0 && iteration != member.iterations_wanted() {
                self.adapt(member, &mut solver, time)?;
            }
        }
        let name = "integral of the temperature";
        let integral = solver.integral(member)?;
        Ok(vec![Check::published(
            name,
            integral,
            self.integral,
            TOLERANCE,
        )])
    }
}
