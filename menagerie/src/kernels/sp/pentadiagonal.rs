//! The scalar pentadiagonal systems of one direction: five for each line of the grid, of which
//! three (those that travel with the flow) have the same matrix.
//!
//! A row couples a point to two neighbours on either side. Rows are eliminated in order: once rows
//! p - 1 and p - 2 have the form r(p) + d r(p+1) + e r(p+2), row p is brought to this form, too. A
//! second pass from the far end substitutes back. Border values do not change, so rows start and
//! end inside.
//!
//! Lines along x are solved one at a time; along y and z, all lines of a plane advance together, so
//! the innermost loop always accesses memory in order.

use crate::kernels::cfd::flow::Flow;
use crate::kernels::cfd::{Axis, CONDUCTION, DISSIPATION, Five, VISCOSITY, fourth_difference};
use crate::kernels::field::Field;

/// The rest of a row of three matrices after elimination: the factors of r(p+1) and r(p+2).
type Upper = [[f64; 2]; 3];

/// The unknowns of each matrix: those carried by the flow, and those of sound that travels with and
/// against it.
const UNKNOWNS: [std::ops::Range<usize>; 3] = [0..3, 3..4, 4..5];

/// Solves planes of systems; its memory belongs to one thread.
#[derive(Debug)]
pub struct Solver<'a> {
    flow: Flow<'a>,
    sound: Field<'a>,
    step: f64,
    upper: Vec<Upper>,
}

/// A plane of lines along one axis.
#[derive(Clone, Copy)]
struct Plane {
    axis: Axis,
    /// The place of position 0 of line 0.
    origin: usize,
    /// Distance in places between neighbours on a line, and between lines.
    along: usize,
    across: usize,
}

impl<'a> Solver<'a> {
    /// For time steps of length `step`; `sound` has the speed of sound at the points inside.
    pub fn new(flow: Flow<'a>, sound: Field<'a>, step: f64) -> Solver<'a> {
        let n = flow.grid.n();
        Solver {
            flow,
            sound,
            step,
            upper: vec![[[0.0; 2]; 3]; n * n],
        }
    }

    /// Solves all systems along `axis` in plane number `plane`: of constant z for x and y, of
    /// constant y for z.
    pub fn solve(&mut self, axis: Axis, plane: usize) {
        let grid = self.flow.grid;
        let (origin, across) = match axis {
            Axis::X => (grid.at(0, 0, plane), Axis::Y),
            Axis::Y => (grid.at(0, 0, plane), Axis::X),
            Axis::Z => (grid.at(0, plane, 0), Axis::X),
        };
        let plane = Plane {
            axis,
            origin,
            along: grid.stride(axis),
            across: grid.stride(across),
        };
        let inside = || grid.inside();
        if axis == Axis::X {
            for line in inside() {
                inside().for_each(|p| self.eliminate(plane, line, p));
                inside().rev().for_each(|p| self.insert(plane, line, p));
            }
        } else {
            for p in inside() {
                inside().for_each(|line| self.eliminate(plane, line, p));
            }
            for p in inside().rev() {
                inside().for_each(|line| self.insert(plane, line, p));
            }
        }
    }

    /// Index of the rest of row `position` of `line`.
    #[inline]
    fn kept(&self, plane: Plane, line: usize, position: usize) -> usize {
        let n = self.flow.grid.n();
        match plane.axis {
            Axis::X => line * n + position,
            Axis::Y | Axis::Z => position * n + line,
        }
    }

    /// Brings row `position` to the form r(p) + d r(p+1) + e r(p+2).
    #[inline]
    fn eliminate(&mut self, plane: Plane, line: usize, position: usize) {
        // Row 0 is border and has no rest; row 1 has no weight for the point before it.
        let (near, far) = (position - 1, position.saturating_sub(2));
        let place = plane.place(line, position);
        let rows = self.rows(plane, place, position);
        let change = self.flow.change;
        let mut right = change.get(place);
        let right_near = change.get(plane.place(line, near));
        let right_far = change.get(plane.place(line, far));
        let upper_near = self.upper[self.kept(plane, line, near)];
        let upper_far = self.upper[self.kept(plane, line, far)];
        let mut upper = [[0.0; 2]; 3];
        for (matrix, [a, mut b, mut c, mut d, e]) in rows.into_iter().enumerate() {
            b -= a * upper_far[matrix][0];
            c -= a * upper_far[matrix][1] + b * upper_near[matrix][0];
            d -= b * upper_near[matrix][1];
            let scale = 1.0 / c;
            upper[matrix] = [d * scale, e * scale];
            for unknown in UNKNOWNS[matrix].clone() {
                let sum = right[unknown] - a * right_far[unknown] - b * right_near[unknown];
                right[unknown] = sum * scale;
            }
        }
        change.set(place, right);
        let kept = self.kept(plane, line, position);
        self.upper[kept] = upper;
    }

    /// Row `position` of the three matrices, at `place`.
    #[inline]
    fn rows(&self, plane: Plane, place: usize, position: usize) -> [Five; 3] {
        let n = self.flow.grid.n();
        let (first, second) = self.flow.grid.differences(self.step);
        let (low, high) = (place - plane.along, place + plane.along);
        let diffusion = |place: usize| {
            // The largest diffusion of the five equations.
            let viscous = VISCOSITY * self.flow.volume.get(place);
            plane.axis.diffusion() + viscous * CONDUCTION.max(4.0 / 3.0)
        };
        let velocity = self.flow.velocity[plane.axis.index()];
        let mut row = fourth_difference(position, n).map(|w| w * self.step * DISSIPATION);
        row[1] -= first * velocity.get(low) + second * diffusion(low);
        row[2] += 1.0 + 2.0 * second * diffusion(place);
        row[3] += first * velocity.get(high) - second * diffusion(high);
        let (sound_low, sound_high) = (first * self.sound.get(low), first * self.sound.get(high));
        let [a, b, c, d, e] = row;
        [
            row,
            [a, b - sound_low, c, d + sound_high, e],
            [a, b + sound_low, c, d - sound_high, e],
        ]
    }

    /// Substitutes the solutions of the two rows after `position`.
    #[inline]
    fn insert(&self, plane: Plane, line: usize, position: usize) {
        // The border does not change: beyond the last row there is nothing to substitute.
        let (near, far) = (position + 1, (position + 2).min(self.flow.grid.n() - 1));
        let place = plane.place(line, position);
        let change = self.flow.change;
        let mut right = change.get(place);
        let right_near = change.get(plane.place(line, near));
        let right_far = change.get(plane.place(line, far));
        let upper = self.upper[self.kept(plane, line, position)];
        for (matrix, [d, e]) in upper.into_iter().enumerate() {
            for unknown in UNKNOWNS[matrix].clone() {
                right[unknown] -= d * right_near[unknown] + e * right_far[unknown];
            }
        }
        change.set(place, right);
    }
}

impl Plane {
    /// The place of a point.
    #[inline]
    fn place(self, line: usize, position: usize) -> usize {
        self.origin + line * self.across + position * self.along
    }
}
