//! bt: the synthetic flow of [`cfd`](super::cfd), marched by the scheme of Beam and Warming: along
//! each axis in turn, the five equations are solved together, one line of the grid at a time, as a
//! block tridiagonal system.
//!
//! Threads split the planes of constant z for the right-hand side and the systems along x and y,
//! and the planes of constant y for those along z. So in each step, all of the change array passes
//! from one split to the other twice, and all of the state once.
//!
//! Source: RNR-94-007, section 3.3 (the approximate factorisation).

use super::cfd::Axis;
use super::cfd::application::{self, Scheme};
use super::cfd::flow::Flow;
use super::{Member, Problem, Stopped, Terms};
use crate::error::Error;

mod block_tridiagonal;

use block_tridiagonal::Solver;

/// Points along each axis, steps, and the length of a step, of classes S, W, A, B and C.
const SIZES: [(usize, u64, f64); 5] = [
    (12, 60, 0.01),
    (24, 200, 0.0008),
    (64, 200, 0.0008),
    (102, 200, 0.0003),
    (162, 200, 0.0001),
];

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    application::problem(terms, terms.class.of(SIZES), |_| Ok(Bt))
}

struct Bt;

impl Scheme for Bt {
    fn march(&self, flow: Flow<'_>, step: f64, member: &Member<'_>) -> Result<(), Stopped> {
        let mut solver = Solver::new(flow, step);
        for _ in member.iterations() {
            flow.right_hand_side(member, step)?;
            for axis in [Axis::X, Axis::Y] {
                for k in flow.own_planes(member) {
                    solver.solve(axis, k);
                }
            }
            member.wait()?;
            // There are as many planes of constant y as of constant z.
            for j in flow.own_planes(member) {
                solver.solve(Axis::Z, j);
            }
            member.wait()?;
            flow.advance(member, 1.0);
            member.wait()?;
        }
        Ok(())
    }
}
