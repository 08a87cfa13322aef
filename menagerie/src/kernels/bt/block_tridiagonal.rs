//! The block tridiagonal systems of one direction, one for each line of the grid. A row couples the
//! five changes at a point to those at its two neighbours.
//!
//! A row is lower x(p-1) + diagonal x(p) + upper x(p+1) = r(p). Rows are eliminated in order: once
//! row p - 1 has the form x(p-1) + upper x(p) = r(p-1), row p is brought to this form, too. A
//! second pass from the far end substitutes back. Border values do not change, so rows start and
//! end inside.
//!
//! Lines are solved one at a time, also along y and z, where accesses stride through memory.

use crate::kernels::cfd::Axis;
use crate::kernels::cfd::flow::Flow;
use crate::kernels::cfd::jacobian::{Block, Jacobians, solve, take_product, times};

/// Solves lines; its memory belongs to one thread.
#[derive(Debug)]
pub struct Solver<'a> {
    flow: Flow<'a>,
    step: f64,
    /// The Jacobians at each point of the line.
    jacobians: Vec<Jacobians>,
    /// The rest of each row after elimination: the factor of x(p+1).
    upper: Vec<Block>,
}

impl<'a> Solver<'a> {
    /// For time steps of length `step`.
    pub fn new(flow: Flow<'a>, step: f64) -> Solver<'a> {
        let n = flow.grid.n();
        Solver {
            flow,
            step,
            jacobians: vec![Jacobians::default(); n],
            upper: vec![Block::default(); n],
        }
    }

    /// Solves all systems along `axis` in plane number `plane`: of constant z for x and y, of
    /// constant y for z.
    pub fn solve(&mut self, axis: Axis, plane: usize) {
        let grid = self.flow.grid;
        for line in grid.inside() {
            let origin = match axis {
                Axis::X => grid.at(0, line, plane),
                Axis::Y => grid.at(line, 0, plane),
                Axis::Z => grid.at(line, plane, 0),
            };
            self.line(axis, origin);
        }
    }

    /// Solves the system of the line along `axis` that starts on the border at `origin`.
    fn line(&mut self, axis: Axis, origin: usize) {
        let (grid, change) = (self.flow.grid, self.flow.change);
        let stride = grid.stride(axis);
        for (position, jacobians) in self.jacobians.iter_mut().enumerate() {
            let state = self.flow.state.get(origin + position * stride);
            *jacobians = Jacobians::new(axis, state);
        }
        // Row 0 is border: its rest and its change are zero.
        let mut before = [0.0; 5];
        for position in grid.inside() {
            let place = origin + position * stride;
            let (lower, mut diagonal, mut upper) = self.row(axis, position);
            let mut right = change.get(place);
            let carried = times(&lower, &before);
            (0..5).for_each(|c| right[c] -= carried[c]);
            take_product(&mut diagonal, &lower, &self.upper[position - 1]);
            solve(diagonal, &mut right, Some(&mut upper));
            change.set(place, right);
            self.upper[position] = upper;
            before = right;
        }
        let mut after = [0.0; 5];
        for position in grid.inside().rev() {
            let place = origin + position * stride;
            let mut right = change.get(place);
            let carried = times(&self.upper[position], &after);
            (0..5).for_each(|c| right[c] -= carried[c]);
            change.set(place, right);
            after = right;
        }
    }

    /// Row `position`: lower, diagonal and upper.
    #[inline]
    fn row(&self, axis: Axis, position: usize) -> (Block, Block, Block) {
        let (first, second) = self.flow.grid.differences(self.step);
        let neighbour = |position: usize, first: f64| -> Block {
            let at = &self.jacobians[position];
            blocks(|row, column, identity| {
                first * at.convective[row][column]
                    - second * (at.viscous[row][column] + axis.diffusion() * identity)
            })
        };
        let here = &self.jacobians[position].viscous;
        let diagonal = blocks(|row, column, identity| {
            identity + 2.0 * second * (here[row][column] + axis.diffusion() * identity)
        });
        (
            neighbour(position - 1, -first),
            diagonal,
            neighbour(position + 1, first),
        )
    }
}

/// The block with the elements `element(row, column, identity)`, where `identity` is the identity's element.
#[inline]
fn blocks(element: impl Fn(usize, usize, f64) -> f64) -> Block {
    std::array::from_fn(|row| {
        std::array::from_fn(|column| element(row, column, if row == column { 1.0 } else { 0.0 }))
    })
}
