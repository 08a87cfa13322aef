//! A scenario on a kernel: its trials, in guests of one kind, and their results.

use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::ProgressBar;
use numaherd::exit::ended;
use numaherd::print;
use numaherd_experiment::{Asked, ExperimentError, Scenario, Trial, Trials, World};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{self as launcher, Guest, KernelFiles};
use numaherd_policy::registry;
use numaherd_quantity::listed;
use numaherd_topology::Machine;
use numaherd_world::Signal;

use super::kept::Kept;
use super::observing_policy;
use super::outcome::{Failure, Outcome, Results, Step};
use crate::cli::LabCompare;
use crate::lab;

/// A scenario on a kernel: what is tried in guests of one kind, and the results.
pub(super) struct Comparison {
    pub(super) guests: lab::Guests,
    pub(super) trials: Trials,
    pub(super) kept: Option<Kept>,
    pub(super) results: Results,
    /// Whether the first trial failed, so that all others would fail in the same way.
    pub(super) is_hopeless: bool,
}

impl Comparison {
    pub(super) fn of(
        options: &LabCompare,
        kernel: Option<&str>,
        scenario: &Scenario,
        machine: &Machine,
    ) -> Result<Self> {
        let release = KernelFiles::find(kernel).map_err(lab::error)?.release;
        let mut ledgers = options.ledgers.clone();
        if let Some(folder) = &mut ledgers {
            if options.scenarios.len() > 1 {
                folder.push(&scenario.name);
            }
            folder.extend(kernel.filter(|_| options.kernels.len() > 1));
        }
        let asked = Asked {
            policies: &options.policies,
            repeat: options.repeat,
            seed: 0,
            ledgers: ledgers.as_deref(),
        };
        let trials = Trials::of(scenario, &asked).map_err(|error| match error {
            ExperimentError::Policy(error) => {
                let others = listed(World::Lab.other_policies());
                ended!(Usage, "{error}; lab compare also knows {others}")
            }
            other => other.into(),
        })?;
        let mut guest = lab::guest(machine)?;
        guest.linux = kernel.map(str::to_owned);
        guest.kernel_accesses = scenario.kernel_accesses;
        // If one policy needs it, every guest has it, so that all run on the same hardware.
        let mut policies = trials.policies.iter();
        let residency = policies.any(|policy| needs_tlb_residency(policy));
        guest.ipm = residency.then(IpmConfig::of_paper);
        // What QEMU or the model cannot build need not be tried.
        let shape = launcher::machine::shape(machine, None).map_err(lab::error)?;
        launcher::machine::fits(machine, &shape, launcher::machine::host_mib())
            .map_err(lab::error)?;
        launcher::machine::model(machine, guest.ipm.as_ref()).map_err(lab::error)?;
        let keep = options.keep.as_ref();
        let kept = keep.map(|folder| Kept::new(folder, &scenario.name, &release));
        Ok(Self {
            guests: lab::Guests::new(guest),
            kept: kept.transpose()?,
            results: Results {
                kernel: release,
                policies: trials.policies.clone(),
                repeat: trials.repeat,
                outcomes: Vec::new(),
                failed: Vec::new(),
                cannot_run: Vec::new(),
            },
            trials,
            is_hopeless: false,
        })
    }

    /// Carries out a repeat of each policy, except trials that are kept or would begin after `end`.
    pub(super) fn round(
        &mut self,
        at: u32,
        end: Option<Instant>,
        bar: &ProgressBar,
        unit: &str,
        once: impl Fn(&Guest, &Trial) -> Result<Outcome>,
    ) -> Result<()> {
        for trial in self.trials.round(at) {
            bar.inc(1);
            let (results, policy) = (&mut self.results, &trial.policy);
            if self.is_hopeless || results.cannot_run.iter().any(|one| one.policy == *policy) {
                continue;
            }
            let kept = self.kept.as_ref().map(|kept| kept.load(trial));
            let made = match kept.transpose()?.flatten() {
                Some(made) => made,
                None if end.is_some_and(|end| Instant::now() >= end) => continue,
                None => {
                    bar.set_message(format!("{policy}, {} of {}", at + 1, results.repeat));
                    let began = Instant::now();
                    let made = self.guests.run(bar, |guest| once(guest, trial));
                    let made = made.map_err(Failure::of);
                    let took = began.elapsed();
                    bar.suspend(|| say_end(trial, &made, unit, results.repeat, took));
                    if let Some(kept) = &self.kept {
                        kept.save(trial, &made)?;
                    }
                    made
                }
            };
            let is_first = results.outcomes.is_empty() && results.failed.is_empty();
            let failed_at = made.as_ref().err().map(|failure| failure.at);
            self.is_hopeless = is_first && matches!(failed_at, Some(Step::Boot | Step::SetUp));
            results.take(trial, made);
        }
        Ok(())
    }
}

/// Whether a policy needs a machine that measures how long pages stay in TLBs: one with an IPM unit.
fn needs_tlb_residency(policy: &str) -> bool {
    let needs = registry::needs(observing_policy(policy));
    needs.is_ok_and(|needs| needs.contains(&Signal::TlbResidency))
}

/// Says how a trial has ended.
fn say_end(
    trial: &Trial,
    made: &Result<Outcome, Failure>,
    unit: &str,
    repeat: u32,
    took: Duration,
) {
    let policy = &trial.policy;
    match made {
        Ok(outcome) => print::aside(&ended_line(outcome, unit, repeat, took)),
        Err(Failure {
            at: Step::Peer,
            error,
        }) => print::say(format!("{policy} cannot run: {error}")),
        Err(failure) => print::say(format!("{policy}, repeat {}: {failure}", trial.repeat)),
    }
}

/// The line of a trial that has ended.
fn ended_line(outcome: &Outcome, unit: &str, repeat: u32, took: Duration) -> String {
    let unit = format!(" {unit}");
    let unit = unit.trim_end();
    let of = match repeat {
        1 => String::new(),
        all => format!(", {} of {all}", outcome.repeat + 1),
    };
    format!(
        "{}{of}: {:.2}{unit} ({:.0} s here)\n",
        outcome.policy,
        outcome.mean(),
        took.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_need_an_ipm_unit_are_known() {
        assert!(needs_tlb_residency("ipm"));
        for name in [
            "linux",
            "linux-balancing",
            "interleave",
            "numad",
            "scx_rusty",
            "dino",
        ] {
            assert!(!needs_tlb_residency(name), "{name}");
        }
    }
}
