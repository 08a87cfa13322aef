//! What a model says of the difference: values, filled in by whoever knows a model.
//!
//! A prediction is worth what its error is, so there is none without one: the same model, in the same
//! intervals, says how fast the threads go where they were recorded, and that is held against how fast
//! they went ([`Errors`]). Beside it is what saying "as in the interval before" would have been off by: a
//! model that is no better has nothing to add while nothing changes. What counts for a prediction of
//! moves are threads that had moved; where there were none the recording cannot tell.

use numaherd_quantity::statistics::quantile;
use serde::Serialize;

/// A model's word on a recording, or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prediction {
    /// There is none, and why: one sentence without its full stop.
    None(String),
    /// There is one.
    Predicted(Predicted),
}

/// A model's word on a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The machine whose figures it goes by.
    pub machine: String,
    /// Intervals that were predicted.
    pub intervals: u64,
    /// Intervals that could not be, since threads that were busy in them were not counted.
    pub uncounted: u64,
    /// All threads, under the recorded placement.
    pub errors: Errors,
    /// Those that were in another memory domain than in the interval before.
    pub moved: Option<Errors>,
    /// One of each replayed policy, in their order; `None` of one that was not replayed.
    pub effects: Vec<Option<Effect>>,
}

/// How far off the model was, and how far off no model would have been. Errors are of the time for an
/// instruction, as shares of what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Thread-intervals that were held against what was measured.
    pub checked: u64,
    /// Median of the model's errors, without their sign.
    pub median: f64,
    /// Nine in ten are below this.
    pub most: f64,
    /// Median with their sign: above 0 where the model says too slow.
    pub bias: f64,
    /// Median error, without sign, of saying "as in the interval before".
    pub as_before: f64,
}

/// What would change, as shares: 0.05 is 5 % faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Instructions per second of all threads together.
    pub total: f64,
    /// Of each process, by number.
    pub processes: Vec<ProcessEffect>,
    /// The thread that would lose most, or gain least.
    pub worst: Option<ThreadEffect>,
}

/// What would change for a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessEffect {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Instructions per second of all its threads together.
    pub change: f64,
}

/// What would change for a thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadEffect {
    /// Its number.
    pub tid: u32,
    /// Its process's number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Instructions per second.
    pub change: f64,
}

impl Errors {
    /// Of the model's errors with their sign and of those of saying "as before"; `None` without any.
    pub fn of(mut model: Vec<f64>, mut as_before: Vec<f64>) -> Option<Self> {
        let checked = model.len() as u64;
        let bias = quantile(&mut model, 0.5)?;
        let sizes = |errors: &mut Vec<f64>| errors.iter_mut().for_each(|e| *e = e.abs());
        sizes(&mut model);
        sizes(&mut as_before);
        Some(Self {
            checked,
            median: quantile(&mut model, 0.5)?,
            most: quantile(&mut model, 0.9)?,
            bias,
            as_before: quantile(&mut as_before, 0.5)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_medians_and_nine_tenths() {
        let model: Vec<f64> = (-5..=5).map(|tenth| f64::from(tenth) / 10.0).collect();
        let errors = Errors::of(model, vec![0.2, -0.3, 0.1]).unwrap();
        assert_eq!(errors.checked, 11);
        assert_eq!(errors.bias, 0.0);
        assert_eq!(errors.median, 0.3);
        assert_eq!(errors.most, 0.5);
        assert_eq!(errors.as_before, 0.2);
        assert_eq!(Errors::of(Vec::new(), Vec::new()), None);
    }
}
