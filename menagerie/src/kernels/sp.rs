//! sp: the synthetic flow of [`cfd`](super::cfd), marched by the diagonalised scheme of Beam and
//! Warming (Pulliam and Chaussee): along each axis in turn, the equations are decoupled into five
//! independent ones, each of which couples a point to two neighbours on either side.
//!
//! Threads split the planes of constant z for the right-hand side and the systems along x and y,
//! and the planes of constant y for those along z. So in each step, all of the change array passes
//! from one split to the other twice, which is the program's sharing pattern.
//!
//! Source: RNR-94-007, section 3.4 (the diagonalised approximate factorisation).

use super::cfd::application::{self, Scheme};
use super::cfd::flow::Flow;
use super::cfd::{Axis, ENERGY, GAMMA, PRESSURE};
use super::field::Field;
use super::{Array, Member, Problem, Stopped, Terms};
use crate::error::Error;

mod characteristic;
mod pentadiagonal;

use characteristic::{Point, x_into_y, y_into_z};
use pentadiagonal::Solver;

/// Points along each axis, steps, and the length of a step, of classes S, W, A, B and C.
const SIZES: [(usize, u64, f64); 5] = [
    (12, 100, 0.015),
    (36, 400, 0.0015),
    (64, 400, 0.0015),
    (102, 400, 0.001),
    (162, 400, 0.00067),
];

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    application::problem(terms, terms.class.of(SIZES), |arrays| {
        let sound = Array::new(terms, arrays.flow().grid.places())?;
        Ok(Sp { sound })
    })
}

struct Sp {
    /// Speed of sound at the points inside.
    sound: Array,
}

impl Scheme for Sp {
    fn march(&self, flow: Flow<'_>, step: f64, member: &Member<'_>) -> Result<(), Stopped> {
        let sound = self.sound.field();
        let march = March { flow, sound, step };
        let mut solver = Solver::new(flow, sound, step);
        for _ in member.iterations() {
            march.step(member, &mut solver)?;
        }
        Ok(())
    }
}

/// The data of the steps.
#[derive(Clone, Copy)]
struct March<'a> {
    flow: Flow<'a>,
    sound: Field<'a>,
    step: f64,
}

impl March<'_> {
    /// One time step.
    fn step(self, member: &Member<'_>, solver: &mut Solver<'_>) -> Result<(), Stopped> {
        let (flow, change) = (self.flow, self.flow.change);
        flow.right_hand_side(member, self.step)?;
        for k in flow.own_planes(member) {
            flow.for_row(k, |place| {
                self.sound.set(place, self.speed_of_sound(place));
                change.set(place, self.point(place).into_x(change.get(place)));
            });
        }
        for k in flow.own_planes(member) {
            solver.solve(Axis::X, k);
            flow.for_row(k, |place| change.set(place, x_into_y(change.get(place))));
        }
        for k in flow.own_planes(member) {
            solver.solve(Axis::Y, k);
            flow.for_row(k, |place| change.set(place, y_into_z(change.get(place))));
        }
        member.wait()?;
        // There are as many planes of constant y as of constant z.
        for j in flow.own_planes(member) {
            solver.solve(Axis::Z, j);
        }
        member.wait()?;
        for k in flow.own_planes(member) {
            flow.for_row(k, |place| {
                change.set(place, self.point(place).out_of_z(change.get(place)));
            });
        }
        flow.advance(member, 1.0);
        member.wait()
    }

    fn speed_of_sound(self, place: usize) -> f64 {
        let inner = self.flow.state.component(place, ENERGY) - self.flow.kinetic.get(place);
        (GAMMA * PRESSURE * self.flow.volume.get(place) * inner).sqrt()
    }

    fn point(self, place: usize) -> Point {
        Point {
            density: self.flow.state.component(place, 0),
            velocity: self.flow.velocity.map(|velocity| velocity.get(place)),
            sound: self.sound.get(place),
        }
    }
}
