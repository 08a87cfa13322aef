//! `numaherd lab compare`: a scenario under several policies, side by side.
//!
//! One guest serves all trials, one after another; repeats go round the policies, so that whatever drifts,
//! drifts for all. If the guest itself dies (QEMU, not the trial), the trial runs once more in a new one. A trial
//! that fails is shown, counted as failed and left out of the figures, and the program ends with an
//! error.

mod inside;
pub mod outcome;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::scenario::{BEST_KNOWN, LINUX_BALANCING};
use numaherd_experiment::{Asked, ExperimentError, Scenario, Trial, Trials, World, progress};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{Command, Ending, Guest, KernelFiles, on_path};
use numaherd_policy::registry;
use numaherd_world::Signal;
use serde::Serialize;
use toml::Table;

use crate::cli::{LabCompare, LabTrial};
use crate::lab::{self, outlet};
use outcome::{Outcome, Summary};

/// Debian's numad, with its own defaults and NUMA balancing off (it turns it off itself).
const NUMAD: &str = "numad";
/// What places threads and pages without Numaherd: first the kernel, with NUMA balancing off; last the best placement
/// that the scenario knows, which no policy need find.
pub const BASELINES: [&str; 4] = ["linux", LINUX_BALANCING, NUMAD, BEST_KNOWN];

/// The policy of the `numaherd run` that observes a trial: `linux`, which changes nothing, unless a policy
/// places, so that every trial is observed by the same means and at the same cost.
fn observing_policy(policy: &str) -> &str {
    match BASELINES.contains(&policy) {
        true => BASELINES[0],
        false => policy,
    }
}

/// Whether a policy needs a machine that measures how long pages stay in TLBs: one with an IPM unit.
fn needs_tlb_residency(policy: &str) -> bool {
    let needs = registry::needs(observing_policy(policy));
    needs.is_ok_and(|needs| needs.contains(&Signal::TlbResidency))
}

/// What `--json FILE` holds.
#[derive(Serialize)]
struct Comparison<'a> {
    /// Version of this form.
    schema: u32,
    /// The scenario's file.
    scenario: &'a Table,
    summaries: &'a [Summary],
    trials: &'a [Outcome],
    failed: &'a [Failed],
}

/// A trial that gave no figures.
#[derive(Serialize)]
struct Failed {
    #[serde(rename = "contender")]
    policy: String,
    repeat: u32,
    error: String,
}

/// Runs the comparison and prints its table.
///
/// # Errors
/// The scenario or a policy is unknown, the lab is not set up, a file cannot be written, or a
/// trial failed.
pub fn compare(options: &LabCompare) -> Result<()> {
    let scenario = scenario(&options.scenario)?;
    let asked = Asked {
        policies: &options.policies,
        repeat: options.repeat,
        seed: 0,
        ledgers: options.ledgers.as_deref(),
    };
    let trials = Trials::of(&scenario, &asked).map_err(|error| match error {
        ExperimentError::Policy(error) => {
            ended!(
                Usage,
                "{error}; lab compare also knows {LINUX_BALANCING}, {NUMAD} and {BEST_KNOWN}"
            )
        }
        other => other.into(),
    })?;
    if trials.policies.iter().any(|policy| policy == BEST_KNOWN) {
        scenario.clone().best_known().or_exit(Exit::Usage)?;
    }
    let machine = lab::machine(&scenario.machine)?;
    // One that needs it has it in every guest, so that all run on the same hardware.
    let residency = trials
        .policies
        .iter()
        .any(|policy| needs_tlb_residency(policy));
    let mut guest = lab::guest(&machine)?;
    guest.ipm = residency.then(IpmConfig::of_paper);
    guest.linux.clone_from(&options.linux);
    let kernel = KernelFiles::find(options.linux.as_deref()).map_err(lab::error)?;
    let mut guests = lab::Guests::new(guest);
    let tried = Tried {
        scenario: &fs::canonicalize(&options.scenario).unwrap_or((&options.scenario).into()),
        menagerie: &menagerie()?,
        limit: options.limit,
    };
    let repeat = trials.repeat;
    let bar = progress(trials.policies.len() as u64 * u64::from(repeat));
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for trial in trials.in_rounds() {
        let (policy, at) = (&trial.policy, trial.repeat);
        bar.set_message(format!("{policy}, {} of {repeat}", at + 1));
        let began = Instant::now();
        match guests.run(&bar, |guest| tried.once(guest, trial)) {
            Ok(outcome) => {
                let took = began.elapsed();
                bar.suspend(|| print::aside(&ended_line(&outcome, repeat, took)));
                outcomes.push(outcome);
            }
            Err(error) => {
                let error = format!("{error:#}");
                bar.suspend(|| print::say(format!("{policy}, repeat {at}: {error}")));
                failed.push(Failed {
                    policy: policy.clone(),
                    repeat: at,
                    error,
                });
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    guests.stop()?;
    let summaries = trials.policies.iter();
    let summaries = summaries.filter_map(|policy| Summary::of(policy, &outcomes));
    let summaries: Vec<Summary> = summaries.collect();
    if let Some(path) = &options.json {
        let all = Comparison {
            schema: 1,
            scenario: &scenario.written,
            summaries: &summaries,
            trials: &outcomes,
            failed: &failed,
        };
        print::file(path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    print::out(&format!(
        "{}: {} ({}, Linux {}, {repeat} repeats)\n{}\n{}\n\n{}\n{}",
        scenario.name,
        scenario.about,
        scenario.machine,
        kernel.release,
        table::table(&summaries),
        table::LEGEND,
        table::verdict(&scenario, &summaries),
        next_steps(options, &trials),
    ))?;
    if !failed.is_empty() {
        bail!(
            "{} of {} trials failed and are not in the figures",
            failed.len(),
            failed.len() + outcomes.len()
        );
    }
    Ok(())
}

/// The line of a trial that has ended.
fn ended_line(outcome: &Outcome, repeat: u32, took: Duration) -> String {
    let of = match repeat {
        1 => String::new(),
        all => format!(", {} of {all}", outcome.repeat + 1),
    };
    format!(
        "{}{of}: {:.2} s ({:.0} s here)\n",
        outcome.policy,
        outcome.mean_seconds(),
        took.as_secs_f64()
    )
}

/// What to do next, as it can be typed.
fn next_steps(options: &LabCompare, trials: &Trials) -> String {
    let numaherd = print::called();
    // The last that herds, where one does: what it did is what there is to tell.
    let is_own = |policy: &&String| !BASELINES.contains(&policy.as_str());
    let told = trials.policies.iter().rfind(is_own);
    let explain = options.ledgers.as_ref().zip(told).map(|(folder, policy)| {
        let ledger = print::quoted(&folder.join(format!("{policy}.0.ledger")));
        format!("What {policy} did, and why:  {numaherd} explain {ledger}\n")
    });
    format!(
        "\n{}A program of your own, herded:  {numaherd} lab run --policy dino --ledger herd.jsonl -- CMD\n",
        explain.unwrap_or_default()
    )
}

fn scenario(name: &str) -> Result<Scenario> {
    Scenario::find(name, World::Lab).or_exit(Exit::Usage)
}

/// A scenario as it is to be tried in a guest.
pub struct Tried<'a> {
    /// Its name, or its file as the guest sees it.
    pub scenario: &'a Path,
    /// The menagerie's program.
    pub menagerie: &'a Path,
    /// How long one trial may take.
    pub limit: Duration,
}

/// Where the guest keeps the ledger of a trial.
const IN_GUEST: &str = "/run/numaherd-trial.ledger";

impl Tried<'_> {
    /// One trial in a guest that runs; its ledger leaves the guest where one is wanted.
    ///
    /// # Errors
    /// The trial fails, the guest dies, or the ledger cannot be written.
    pub fn once(&self, guest: &Guest, trial: &Trial) -> Result<Outcome> {
        let mut arguments: Vec<OsString> = vec![std::env::current_exe()?.into()];
        arguments.extend(["lab", "trial"].map(Into::into));
        arguments.push(self.scenario.into());
        arguments.extend(["--policy", &trial.policy].map(Into::into));
        arguments.extend(["--repeat", &trial.repeat.to_string()].map(Into::into));
        arguments.extend(["--menagerie".into(), self.menagerie.into()]);
        if trial.ledger.is_some() {
            arguments.extend(["--ledger", IN_GUEST].map(Into::into));
        }
        let output = guest.output(&Command::inherited(arguments)?, Some(self.limit))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.ending != Ending::Exited(0) {
            bail!("the trial ended with {:?}: {}", output.ending, said.trim());
        }
        let mut outcome: Outcome = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the trial gave no result; it said {said:?}"))?;
        outcome.policy.clone_from(&trial.policy);
        if let Some(path) = &trial.ledger {
            fs::File::create(path)
                .map_err(Into::into)
                .and_then(|mut file| {
                    outlet::copy(guest, Path::new(IN_GUEST), &mut file, self.limit)
                })
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(outcome)
    }
}

/// The static menagerie that `make build` put beside this program, or the one on the `PATH`.
pub fn menagerie() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let built = format!(
        "{}-unknown-linux-gnu/release/menagerie",
        std::env::consts::ARCH
    );
    let mut beside = program
        .ancestors()
        .flat_map(|d| [d.join("menagerie"), d.join(&built)]);
    let beside = beside.find(|candidate| candidate.is_file());
    beside.or_else(|| on_path("menagerie")).ok_or_else(|| {
        let told =
            "cannot find the menagerie's program beside numaherd or on the PATH; run `make build`";
        ended(Exit::NotSetUp, told)
    })
}

/// One trial, inside the guest: prints its result as JSON.
///
/// # Errors
/// What [`inside::run`] says.
pub fn trial(options: &LabTrial) -> Result<()> {
    let trial = Trial {
        policy: options.policy.clone(),
        repeat: options.repeat,
        seed: options.repeat.into(),
        ledger: options.ledger.clone(),
    };
    let mut scenario = scenario(&options.scenario)?;
    if trial.policy == BEST_KNOWN {
        scenario = scenario.best_known()?;
    }
    let outcome = inside::run(&scenario, &trial, &options.menagerie)?;
    print::out(&(serde_json::to_string(&outcome)? + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_need_an_ipm_unit_are_known() {
        assert!(needs_tlb_residency("ipm"));
        for name in ["linux", "linux-balancing", "numad", "best-known", "dino"] {
            assert!(!needs_tlb_residency(name), "{name}");
        }
    }
}
