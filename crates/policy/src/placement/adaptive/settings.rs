//! When `adaptive` acts, as its user may set it.

use numaherd_files::settings;

/// The share of the busy cores that must be gained to act. The papers' suites on the model gain more with it than with
/// 0.01, and none of their workloads takes 0.2 % longer than under Linux (chosen here).
pub const LEAST_GAIN: f64 = 0.005;

settings! {
    /// When `adaptive` acts.
    #[derive(Copy)]
    pub struct AdaptiveSettings {
        /// Share of the busy cores that must be gained.
        least_gain: f64 = LEAST_GAIN, unit: "share", range: 0.0..=1.0, source: "chosen here";
        /// Share of each process's time that actions may cost before they have shown a gain.
        loss_budget: f64 = 0.01, unit: "share", range: 0.0..=1.0, source: "chosen here";
        /// What actions may cost a process that has not run for long.
        first_credit_ms: f64 = 100.0, unit: "ms", range: 0.0..=1e9, source: "chosen here";
        /// For how long nothing is tried after an action that did not gain; twice as long each time after.
        wait_s: f64 = 5.0, unit: "s", range: 0.0..=1e9, source: "chosen here";
        /// How many layouts a search may try. On machines with many threads fewer are, so that a decision
        /// takes no longer.
        layouts: usize = 256, unit: "layouts", range: 1.0..=f64::MAX, source: "chosen here";
    }
}
