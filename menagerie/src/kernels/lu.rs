//! lu: the synthetic flow of [`cfd`](super::cfd), marched by symmetric successive over-relaxation:
//! the implicit operator of all three axes is split into a lower and an upper triangular part, each
//! solved in one sweep over the grid.
//!
//! A point depends on its neighbours, so threads cannot take separate planes. They split the rows
//! instead, and follow one another through the planes: in each plane, a thread waits until its
//! neighbour has done its rows, then does its own. The fluxes along z are split by rows, too, the
//! rest of the right-hand side by planes. So in each step, all of the change array passes from one
//! split to the other twice. The blocks of the triangular systems are computed where they are
//! needed, not stored.
//!
//! Source: RNR-94-007, section 3.5 (symmetric successive over-relaxation).

use super::cfd::application::{self, Scheme};
use super::cfd::flow::Flow;
use super::{Member, Problem, Stopped, Terms};
use crate::error::Error;

mod pipeline;
mod surface;
mod sweep;

use pipeline::Pipeline;
use sweep::{RELAXATION, Sweeper};

/// Points along each axis, steps, and the length of a step, of classes S, W, A, B and C.
const SIZES: [(usize, u64, f64); 5] = [
    (12, 50, 0.5),
    (33, 300, 0.0015),
    (64, 250, 2.0),
    (102, 250, 2.0),
    (162, 250, 2.0),
];

/// The problem of a class.
///
/// # Errors
///
/// If memory is short.
pub fn problem(terms: &Terms<'_>) -> Result<Problem, Error> {
    application::problem(terms, terms.class.of(SIZES), |_| {
        Ok(Lu(Pipeline::new(terms.threads)))
    })
}

struct Lu(Pipeline);

impl Scheme for Lu {
    fn march(&self, flow: Flow<'_>, step: f64, member: &Member<'_>) -> Result<(), Stopped> {
        let mut sweeper = Sweeper::new(flow, step, member, &self.0);
        for _ in member.iterations() {
            flow.right_hand_side_by_rows(member, step)?;
            sweeper.sweep();
            member.wait()?;
            flow.advance(member, 1.0 / (RELAXATION * (2.0 - RELAXATION)));
            member.wait()?;
        }
        Ok(())
    }

    fn surface(&self, flow: Flow<'_>, member: &Member<'_>) -> Result<Option<f64>, Stopped> {
        surface::integral(flow, member).map(Some)
    }
}
