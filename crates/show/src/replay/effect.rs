//! What a model predicts of the difference: values, filled in by a caller that has a model.
//!
//! The value of a prediction depends on its error, so each comes with its errors: the same model predicts, for the same
//! intervals, how fast the threads run where they were recorded, and [`Errors`] compares that with how fast they ran.
//! Beside it is the error of saying "as in the interval before": a model that is no better adds nothing while nothing
//! changes. For predictions of moves, the errors for threads that had moved count; if none had, the recording cannot
//! test them.

use numaherd_quantity::statistics::quantile;
use serde::Serialize;

/// A model's prediction for a recording, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prediction {
    /// There is none, and why: one sentence without its full stop.
    None(String),
    /// There is one.
    Predicted(Predicted),
}

/// A model's prediction for a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The machine whose figures the model uses.
    pub machine: String,
    /// Intervals that were predicted.
    pub intervals: u64,
    /// Intervals that could not be predicted, because threads that were busy in them were not counted.
    pub uncounted: u64,
    /// Errors for all threads, under the recorded placement.
    pub errors: Errors,
    /// Errors for threads that were in another memory domain than in the interval before.
    pub moved: Option<Errors>,
    /// The effect of each replayed policy, in their order; `None` for one that was not replayed.
    pub effects: Vec<Option<Effect>>,
}

/// The errors of the model, and of using no model. They are errors of the time per instruction, as shares of the
/// measured time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// Thread-intervals that were compared with measurements.
    pub checked: u64,
    /// Median of the model's errors, without their sign.
    pub median: f64,
    /// Nine in ten of these errors are below this.
    pub most: f64,
    /// Median of the errors with their sign: above 0 if the model is too slow.
    pub bias: f64,
    /// Median error, without sign, of saying "as in the interval before".
    pub as_before: f64,
}

/// What would change, as shares: 0.05 is 5 % faster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Instructions per second of all threads together.
    pub total: f64,
    /// The change for each process, by number.
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
    /// Summarizes the model's errors, with their sign, and those of saying "as before"; `None` without any.
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
