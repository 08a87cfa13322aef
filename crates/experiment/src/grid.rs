//! The trials of an experiment: each policy, several times.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use numaherd_policy::registry;
use rayon::prelude::*;

use crate::ExperimentError;

/// The policies to compare: each once, and each a policy or one of `others`.
///
/// # Errors
/// A name is unknown; the message has the nearest.
pub fn policies(names: &[String], others: &[&str]) -> Result<Vec<String>, ExperimentError> {
    let mut policies: Vec<String> = Vec::new();
    for name in names {
        let name = name.trim().to_owned();
        if !others.contains(&name.as_str()) {
            registry::halves(&name)?;
        }
        if !policies.contains(&name) {
            policies.push(name);
        }
    }
    Ok(policies)
}

/// Runs each policy `repeat` times, on all cores: first all of the first policy's. Trials know nothing of
/// each other, so that they give the same however many cores there are.
///
/// # Errors
/// That of a trial.
pub fn run_all<T: Send>(
    policies: &[String],
    repeat: u32,
    run: impl Fn(&str, u32) -> Result<T, ExperimentError> + Sync,
) -> Result<Vec<T>, ExperimentError> {
    let all = policies
        .iter()
        .flat_map(|policy| (0..repeat).map(move |at| (policy, at)));
    let all: Vec<(&String, u32)> = all.collect();
    let bar = progress(all.len() as u64);
    let trials = all.into_par_iter().map(|(policy, at)| {
        let trial = run(policy, at)?;
        bar.inc(1);
        Ok(trial)
    });
    let trials = trials.collect();
    bar.finish_and_clear();
    trials
}

/// A bar on standard error, where that is a terminal.
pub fn progress(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (about {eta} left) {msg}");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
