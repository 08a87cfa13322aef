//! The NUMA penalty: how much slower a program runs when its memory is on another node.
//!
//! Definition (N-MASS §3.2, formula 1): cycles per instruction when run remotely, divided by those
//! when run locally, alone on the machine. At least 1: if a program seems to gain from being remote, the
//! measurement went wrong.
//!
//! Where it comes from ([`Estimate`]): a *profile* is the penalty that was measured for a program,
//! by its name; the *regression* (N-MASS §4.5, Figure 7) knows only the miss rate:
//! `1.05 + 0.015 x lines per 1000 instructions`. The paper prints the two figures in the wrong
//! order ("slope intercept and slope are 0.015 and 1.05"): read that way, a program of 10 lines per
//! 1000 instructions would be ten times slower remotely, while all that were measured are within
//! 1.0 to 1.46. A program without a profile has the regression's.
//!
//! A name is the process's as the kernel shows it, which is at most 15 bytes long: a longer name of
//! a profile stands for the process whose name is its first 15 bytes.

use std::collections::BTreeMap;

use numaherd_files::{choices, settings};

/// What the kernel keeps of a process's name, in bytes.
const KERNEL_NAME_BYTES: usize = 15;

choices! {
    /// Where a NUMA penalty comes from.
    pub enum Estimate {
        /// What was measured of the program, else the regression.
        #[default]
        Profile = "profile",
        /// The regression for all (N-MASS 4.5).
        Regression = "regression",
    }
}

settings! {
    /// How much slower programs run when their memory is on another node: the NUMA penalty that `n-mass`
    /// and `maximum-local` sort by (N-MASS 3.2).
    pub struct PenaltySettings {
        /// Where a penalty comes from.
        estimate: Estimate, source: "N-MASS 3.4, 4.5";
        /// The regression's penalty of a program that never accesses memory.
        intercept: f64 = 1.05, unit: "NUMA penalty", range: 0.0..=f64::MAX, source: "N-MASS 4.5";
        /// What a line per 1000 instructions adds to it.
        slope: f64 = 0.015, unit: "NUMA penalty per line per 1000 instructions", range: 0.0..=f64::MAX,
            source: "N-MASS 4.5";
        /// Measured penalties by process name: `numaherd profile` measures them.
        programs: BTreeMap<String, f64>, unit: "NUMA penalty", range: 1.0..=f64::MAX, source: "N-MASS 3.2",
            example: "{ mcf = 1.21 }";
        /// Miss rates recorded of programs alone, by process name: N-MASS uses them in place of those
        /// measured now, as its prototype did.
        miss_rates: BTreeMap<String, f64>, unit: "lines per 1000 instructions", range: 0.0..=f64::MAX,
            source: "N-MASS 3.4", example: "{ mcf = 38.3 }";
    }
}

impl PenaltySettings {
    /// The NUMA penalty of a process of that name, for a thread of that miss rate (lines per 1000
    /// instructions). Never below 1.
    pub fn of(&self, process: &str, miss_rate: f64) -> f64 {
        let measured = match self.estimate {
            Estimate::Profile => self.measured(process),
            Estimate::Regression => None,
        };
        let penalty = measured.unwrap_or(self.intercept + self.slope * miss_rate);
        penalty.max(1.0)
    }

    /// The profile's penalty of a process of that name.
    pub fn measured(&self, process: &str) -> Option<f64> {
        of_process(&self.programs, process)
    }

    /// The miss rate that was recorded of a process of that name, alone.
    pub fn recorded(&self, process: &str) -> Option<f64> {
        of_process(&self.miss_rates, process)
    }
}

/// The figure of a process, by its name as the kernel shows it.
fn of_process(figures: &BTreeMap<String, f64>, process: &str) -> Option<f64> {
    let exact = figures.get(process);
    let cut = || {
        let longer = figures.range::<str, _>((
            std::ops::Bound::Excluded(process),
            std::ops::Bound::Unbounded,
        ));
        let (name, figure) = longer.into_iter().next()?;
        (process.len() == KERNEL_NAME_BYTES && name.starts_with(process)).then_some(figure)
    };
    exact.or_else(cut).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_regression_is_the_papers_with_its_figures_in_the_right_order() {
        let regression = PenaltySettings::default();
        assert_eq!(regression.of("any", 0.0), 1.05);
        assert_eq!(regression.of("any", 10.0), 1.05 + 0.15);
        // The range that the paper measured: 1.0 to 1.46.
        assert!((regression.of("any", 27.3) - 1.46).abs() < 0.001);
    }

    #[test]
    fn a_recorded_miss_rate_is_found_by_the_name_as_the_kernel_shows_it() {
        let mut settings = PenaltySettings::default();
        settings
            .miss_rates
            .insert("a-program-with-a-long-name".into(), 7.0);
        assert_eq!(settings.recorded("a-program-with-"), Some(7.0));
        assert_eq!(settings.recorded("a-program"), None);
    }

    #[test]
    fn a_profile_goes_before_the_regression_unless_that_is_asked_for() {
        let mut settings = PenaltySettings::default();
        settings.programs.insert("mcf".into(), 1.21);
        assert_eq!(settings.of("mcf", 40.0), 1.21);
        assert_eq!(settings.of("lbm", 20.0), 1.05 + 0.015 * 20.0);
        settings.estimate = Estimate::Regression;
        assert_eq!(settings.of("mcf", 40.0), 1.05 + 0.015 * 40.0);
    }

    #[test]
    fn no_penalty_is_below_one() {
        let settings = PenaltySettings {
            intercept: 0.5,
            slope: 0.01,
            ..PenaltySettings::default()
        };
        assert_eq!(settings.of("any", 10.0), 1.0);
        assert_eq!(settings.of("any", 100.0), 1.5);
    }

    #[test]
    fn a_name_that_the_kernel_cut_is_still_known() {
        let mut settings = PenaltySettings::default();
        settings.programs.insert("a-very-long-program".into(), 1.3);
        settings.programs.insert("mcf-long".into(), 1.2);
        assert_eq!(settings.measured("a-very-long-pro"), Some(1.3));
        assert_eq!(settings.measured("a-very-long-program"), Some(1.3));
        assert_eq!(settings.measured("a-very-long-prx"), None);
        assert_eq!(settings.measured("mcf"), None, "a short name was not cut");
    }
}
