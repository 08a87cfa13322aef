//! What a run of a pseudo-application starts from and what it has to end with.
//!
//! A run of a published size and number of steps is right if each of its norms is within a
//! relative distance of 1e-8 of the published one (RNR-94-007, section 3.1; values of all classes
//! as in NPB 3.3).

use super::Five;
use super::flow::Flow;
use crate::kernels::{Check, Member, Stopped};

/// The relative distance from the published values that still counts as right.
const TOLERANCE: f64 = 1e-8;

/// What one class asks for.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    /// Points along each axis.
    pub n: usize,
    /// Steps.
    pub iterations: u64,
    /// Length of a step in time.
    pub step: f64,
    /// What the run ends with.
    pub end: Values,
}

impl Problem {
    /// One of sp or bt: residuals and errors as [`Values`] has them.
    pub const fn new(n: usize, iterations: u64, step: f64, residual: Five, error: Five) -> Problem {
        Problem {
            n,
            iterations,
            step,
            end: Values {
                residual,
                error,
                surface: None,
            },
        }
    }

    /// One of lu, with the surface integral too.
    pub const fn with_surface(mut self, surface: f64) -> Problem {
        self.end.surface = Some(surface);
        self
    }

    /// Sizes in words.
    pub fn text(&self) -> String {
        let Problem { n, step, .. } = self;
        format!("{n} x {n} x {n} points, steps of {step}")
    }

    /// `run`, if there is one, beside what is published.
    pub fn checks(&self, run: Option<&Values>) -> Vec<Check> {
        let Some(run) = run else {
            return Vec::new();
        };
        let check = |name, value, expected| Check::published(name, value, expected, TOLERANCE);
        let mut checks = Vec::new();
        for (name, values, expected) in [
            ("residual", run.residual, self.end.residual),
            ("distance from the solution", run.error, self.end.error),
        ] {
            let five = values.into_iter().zip(expected).enumerate();
            checks.extend(five.map(|(at, (value, expected))| {
                check(format!("{name} {}", at + 1), value, Some(expected))
            }));
        }
        let surface = run.surface.map(|value| {
            let name = "surface integral of the pressure".to_owned();
            check(name, value, self.end.surface)
        });
        checks.extend(surface);
        checks
    }
}

/// What a run ends with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    /// Root mean squares of the right-hand side.
    pub residual: Five,
    /// Root mean squares of the distance from the solution.
    pub error: Five,
    /// The surface integral of the pressure, of lu alone.
    pub surface: Option<f64>,
}

impl Values {
    /// The present ones of `flow`. All members call it, after a barrier.
    ///
    /// # Errors
    ///
    /// Where the run shall end.
    pub fn of(flow: Flow<'_>, member: &Member<'_>) -> Result<Values, Stopped> {
        Ok(Values {
            error: flow.error_norms(member)?,
            residual: flow.residual_norms(member)?,
            surface: None,
        })
    }
}
