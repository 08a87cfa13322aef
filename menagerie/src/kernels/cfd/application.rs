//! The common part of bt, sp and lu as kernels: they take the steps of their class from the first
//! guess, and compare the flow's final norms with published ones (RNR-94-007, section 3.1; values
//! of all classes as in NPB 3.3).

use super::Five;
use super::flow::{Arrays, Flow};
use crate::error::Error;
use crate::kernels::{Check, Kernel, Member, Problem, Stopped, Terms};

/// Largest relative error against the published values.
const TOLERANCE: f64 = 1e-8;

/// How an application takes its steps.
pub trait Scheme: Sync {
    /// Marches `flow` by all steps of `member`, each of time `step`. All members call it, and it
    /// ends with a barrier.
    ///
    /// # Errors
    ///
    /// When the run ends early.
    fn march(&self, flow: Flow<'_>, step: f64, member: &Member<'_>) -> Result<(), Stopped>;

    /// The surface integral of the pressure, for an application that it verifies, too.
    ///
    /// # Errors
    ///
    /// When the run ends early.
    fn surface(&self, _flow: Flow<'_>, _member: &Member<'_>) -> Result<Option<f64>, Stopped> {
        Ok(None)
    }
}

/// A scheme, its flow, and the flow's published final values.
struct Application<S> {
    scheme: S,
    arrays: Arrays,
    step: f64,
    residual: Vec<f64>,
    error: Vec<f64>,
    surface: Vec<f64>,
}

/// The problem of `n` points along each axis and `iterations` steps of length `step`.
///
/// # Errors
///
/// If memory is short.
pub fn problem<S: Scheme + 'static>(
    terms: &Terms<'_>,
    (n, iterations, step): (usize, u64, f64),
    scheme: impl FnOnce(&Arrays) -> Result<S, Error>,
) -> Result<Problem, Error> {
    let arrays = Arrays::new(terms, n)?;
    let application = Application {
        scheme: scheme(&arrays)?,
        arrays,
        step,
        residual: terms.published("residual"),
        error: terms.published("error"),
        surface: terms.published("surface"),
    };
    let sizes = format!("{n} x {n} x {n} points, steps of {step}");
    Problem::new(sizes, iterations, application)
}

impl<S: Scheme> Kernel for Application<S> {
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped> {
        self.arrays.flow().begin(member)
    }

    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped> {
        let flow = self.arrays.flow();
        self.scheme.march(flow, self.step, member)?;
        let surface = self.scheme.surface(flow, member)?;
        let error = flow.error_norms(member)?;
        let residual = flow.residual_norms(member)?;
        let mut checks = five("residual", residual, &self.residual);
        checks.extend(five("distance from the solution", error, &self.error));
        checks.extend(surface.map(|value| {
            let published = self.surface.first().copied();
            let name = "surface integral of the pressure";
            Check::published(name, value, published, TOLERANCE)
        }));
        Ok(checks)
    }
}

/// A check of each of the five `values`.
fn five(name: &str, values: Five, published: &[f64]) -> Vec<Check> {
    let check = |(at, value)| {
        let name = format!("{name} {}", at + 1);
        Check::published(name, value, published.get(at).copied(), TOLERANCE)
    };
    values.into_iter().enumerate().map(check).collect()
}
