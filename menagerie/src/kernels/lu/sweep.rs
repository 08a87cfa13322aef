//! The two triangular systems of a step over all points: each point is coupled to the neighbours
//! before it (lower), then to those after it (upper). A sweep visits the points by plane, row and
//! point, up and then down again, so the neighbours that it needs are done.

use super::pipeline::{Pipeline, Turn};
use crate::kernels::Member;
use crate::kernels::cfd::flow::Flow;
use crate::kernels::cfd::jacobian::{Block, Jacobians, solve, times};
use crate::kernels::cfd::{Axis, Five};
use std::ops::Range;

/// The over-relaxation factor (ω).
pub const RELAXATION: f64 = 1.2;

/// The direction of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// One thread's part of the sweeps: a block of rows of each plane.
#[derive(Debug)]
pub struct Sweeper<'a> {
    flow: Flow<'a>,
    step: f64,
    rows: Range<usize>,
    index: usize,
    threads: usize,
    pipeline: &'a Pipeline,
    turn: Turn<'a>,
    /// Planes done in all sweeps before this one.
    before: u64,
}

impl<'a> Sweeper<'a> {
    /// The part of `member`, for time steps of length `step`.
    pub fn new(
        flow: Flow<'a>,
        step: f64,
        member: &Member<'_>,
        pipeline: &'a Pipeline,
    ) -> Sweeper<'a> {
        Sweeper {
            flow,
            step,
            // As many rows as planes.
            rows: flow.own_planes(member),
            index: member.index,
            threads: member.threads,
            pipeline,
            turn: pipeline.turn(member.index),
            before: 0,
        }
    }

    /// Turns the right-hand side into the change, by a sweep up and one down.
    pub fn sweep(&mut self) {
        let planes = self.flow.grid.inside();
        for k in planes.clone() {
            let neighbour = self.index.checked_sub(1);
            self.follow(neighbour, k as u64);
            self.rows.clone().for_each(|j| self.row_up(j, k));
            self.turn.done();
        }
        self.before += planes.len() as u64;
        for (count, k) in planes.clone().rev().enumerate() {
            let neighbour = (self.index + 1 < self.threads).then_some(self.index + 1);
            self.follow(neighbour, count as u64 + 1);
            self.rows.clone().rev().for_each(|j| self.row_down(j, k));
            self.turn.done();
        }
        self.before += planes.len() as u64;
    }

    /// Waits until `neighbour`, if there is one, has done `planes` of this sweep.
    fn follow(&self, neighbour: Option<usize>, planes: u64) {
        if let Some(neighbour) = neighbour {
            self.pipeline.wait_for(neighbour, self.before + planes);
        }
    }

    fn row_up(&self, j: usize, k: usize) {
        let (grid, change) = (self.flow.grid, self.flow.change);
        for i in grid.inside() {
            let place = grid.at(i, j, k);
            let (coupled, mut right) = (self.coupled(place, Direction::Up), change.get(place));
            (0..5).for_each(|c| right[c] -= coupled[c]);
            solve(self.diagonal(place), &mut right, None);
            change.set(place, right);
        }
    }

    fn row_down(&self, j: usize, k: usize) {
        let (grid, change) = (self.flow.grid, self.flow.change);
        for i in grid.inside().rev() {
            let place = grid.at(i, j, k);
            let mut coupled = self.coupled(place, Direction::Down);
            solve(self.diagonal(place), &mut coupled, None);
            let mut right = change.get(place);
            (0..5).for_each(|c| right[c] -= coupled[c]);
            change.set(place, right);
        }
    }

    /// The effect of the changes at the three visited neighbours on the point at `place`.
    #[inline]
    fn coupled(&self, place: usize, direction: Direction) -> Five {
        let mut sum = [0.0; 5];
        for axis in [Axis::Z, Axis::Y, Axis::X] {
            let stride = self.flow.grid.stride(axis);
            let (neighbour, sign) = match direction {
                Direction::Up => (place - stride, -1.0),
                Direction::Down => (place + stride, 1.0),
            };
            let (first, second) = self.flow.grid.differences(self.step);
            let change = self.flow.change.get(neighbour);
            let at = Jacobians::new(axis, self.flow.state.get(neighbour));
            let (carried, rubbed) = (times(&at.convective, &change), times(&at.viscous, &change));
            for c in 0..5 {
                sum[c] += RELAXATION
                    * (sign * first * carried[c]
                        - second * (rubbed[c] + axis.diffusion() * change[c]));
            }
        }
        sum
    }

    /// The diagonal block of the point at `place`.
    #[inline]
    fn diagonal(&self, place: usize) -> Block {
        let state = self.flow.state.get(place);
        let (_, second) = self.flow.grid.differences(self.step);
        let mut sum = [[0.0; 5]; 5];
        for axis in [Axis::X, Axis::Y, Axis::Z] {
            let viscous = Jacobians::new(axis, state).viscous;
            for (row, values) in sum.iter_mut().enumerate() {
                for (value, viscous) in values.iter_mut().zip(viscous[row]) {
                    *value += 2.0 * second * viscous;
                }
                values[row] += 2.0 * second * axis.diffusion();
            }
        }
        (0..5).for_each(|at| sum[at][at] += 1.0);
        sum
    }
}
