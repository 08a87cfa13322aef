//! lu: the synthetic flow of [`cfd`](super::cfd), marched by symmetric successive over-relaxation:
//! the implicit operator of all three axes at once, split into a lower and an upper triangular
//! part, each solved in one sweep over the grid.
//!
//! A point waits for its neighbours, so threads cannot each take planes of their own. They split
//! the rows instead, and follow one another through the planes: a thread does its rows of a plane
//! once its neighbour has done his, and waits for that a plane at a time. What flows along z is
//! split by rows too, the rest of the right-hand side by planes: twice in each step all of the
//! change array goes from one split to the other. The blocks of the triangular systems are made
//! where they are needed, not kept.
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
/// Where memory is short.
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
