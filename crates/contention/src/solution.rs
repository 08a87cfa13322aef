//! An answer, from which the next one starts.

use crate::Speed;

/// Speeds that change by less than this part are settled, unless the caller asks for less.
pub(crate) const SETTLED: f64 = 1e-6;

/// An answer, kept as the start of the next one: little changes from epoch to epoch.
#[derive(Clone, Debug)]
pub struct Solution {
    /// How each thread goes on.
    pub speeds: Vec<Speed>,
    /// Speeds that change by less than this part are settled.
    pub(crate) settled: f64,
    pub(crate) waits: Vec<f64>,
    pub(crate) windows: Vec<f64>,
    pub(crate) ns: Vec<f64>,
}

impl Default for Solution {
    fn default() -> Self {
        Self::within(SETTLED)
    }
}

impl Solution {
    /// No answer yet. Speeds that change by less than this part from one round to the next are settled: a
    /// search among layouts whose demands are estimates needs no more than a hundredth.
    pub fn within(settled: f64) -> Self {
        Self {
            speeds: Vec::new(),
            settled,
            waits: Vec::new(),
            windows: Vec::new(),
            ns: Vec::new(),
        }
    }
}
