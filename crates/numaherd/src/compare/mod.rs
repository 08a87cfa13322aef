//! `numaherd lab compare`: a scenario under several contenders, side by side.
//!
//! One guest serves all trials, one after another; repeats go round the contenders, so that
//! whatever drifts, drifts for all. A trial whose guest dies (QEMU, not the trial) is said and run once
//! more; one that fails is shown, counted as failed and left out of the figures, and the program ends
//! with an error.

mod contender;
mod inside;
mod scenario;
mod table;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use numaherd_hardware::IpmConfig;
use numaherd_lab::{Command, Ending, Guest};
use serde::Serialize;

use crate::cli::{LabCompare, LabTrial};
use crate::exit::{Exit, ended};
use crate::lab;
use contender::Contender;
pub use contender::USUAL;
use inside::TrialOptions;
use scenario::Scenario;
use trial::{Summary, Trial};

/// What `--json FILE` holds.
#[derive(Serialize)]
struct Comparison<'a> {
    /// Version of this form.
    schema: u32,
    scenario: &'a Scenario,
    summaries: &'a [Summary],
    trials: &'a [Trial],
    failed: &'a [Failed],
}

/// A trial that gave no figures.
#[derive(Serialize)]
struct Failed {
    contender: String,
    repeat: u32,
    error: String,
}

/// Runs the comparison and prints its table.
///
/// # Errors
/// The scenario or a contender is unknown, the lab is not set up, a file cannot be written, or a
/// trial failed.
pub fn compare(options: &LabCompare) -> Result<()> {
    let scenario = Scenario::find(&options.scenario)?;
    let contenders = contenders(&options.policies)?;
    if let Some(directory) = &options.ledgers {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let menagerie = menagerie()?;
    let machine = lab::machine(&scenario.machine)?;
    // One that needs it has it in every guest, so that all run on the same hardware.
    let residency = contenders.iter().any(Contender::needs_tlb_residency);
    let ipm = residency.then(IpmConfig::of_paper);
    let rounds = (0..options.repeat).flat_map(|r| contenders.iter().map(move |c| (r, c)));
    let rounds: Vec<_> = rounds.collect();
    let bar = progress(rounds.len() as u64);
    let (mut trials, mut failed) = (Vec::new(), Vec::new());
    let mut guest: Option<Guest> = None;
    for (repeat, contender) in rounds {
        bar.set_message(format!("{contender}, {} of {}", repeat + 1, options.repeat));
        let mut attempt = || {
            let running = match guest.take() {
                Some(guest) => guest,
                None => lab::boot(&machine, ipm)?,
            };
            let trial = trial_in(&running, options, contender, repeat, &menagerie)?;
            // After a failure, whatever state the guest is in, the next trial gets a fresh one.
            guest = Some(running);
            Ok(trial)
        };
        let mut result = attempt();
        if let Err(error) = &result
            && lab::is_dead(error)
        {
            bar.suspend(|| {
                eprintln!("numaherd: {contender}, repeat {repeat}: {error:#}; once more");
            });
            result = attempt();
        }
        match result {
            Ok(trial) => trials.push(trial),
            Err(error) => {
                let error = format!("{error:#}");
                bar.suspend(|| eprintln!("numaherd: {contender}, repeat {repeat}: {error}"));
                failed.push(Failed {
                    contender: contender.to_string(),
                    repeat,
                    error,
                });
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(guest) = guest {
        guest.stop()?;
    }
    let summaries: Vec<Summary> = contenders
        .iter()
        .filter_map(|c| Summary::of(c, &trials))
        .collect();
    if let Some(path) = &options.json {
        let (trials, failed) = (&trials, &failed);
        let all = Comparison {
            schema: 1,
            scenario: &scenario,
            summaries: &summaries,
            trials,
            failed,
        };
        fs::write(path, serde_json::to_string_pretty(&all)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!(
        "{}: {} ({}, {} repeats)",
        scenario.name, scenario.about, scenario.machine, options.repeat
    );
    println!("{}\n{}\n", table::table(&summaries), table::LEGEND);
    println!("{}", table::verdict(&scenario, &summaries));
    if !failed.is_empty() {
        bail!(
            "{} of {} trials failed and are not in the figures",
            failed.len(),
            failed.len() + trials.len()
        );
    }
    Ok(())
}

fn contenders(names: &[String]) -> Result<Vec<Contender>> {
    let mut contenders: Vec<Contender> = Vec::new();
    for name in names {
        let contender = Contender::parse(name.trim())?;
        if !contenders.contains(&contender) {
            contenders.push(contender);
        }
    }
    Ok(contenders)
}

fn progress(trials: u64) -> ProgressBar {
    let bar = ProgressBar::new(trials);
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (about {eta} left) {msg}");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// One trial in a guest that runs.
fn trial_in(
    guest: &Guest,
    options: &LabCompare,
    contender: &Contender,
    repeat: u32,
    menagerie: &Path,
) -> Result<Trial> {
    let mut arguments: Vec<std::ffi::OsString> = vec![std::env::current_exe()?.into()];
    let scenario =
        fs::canonicalize(&options.scenario).unwrap_or_else(|_| (&options.scenario).into());
    arguments.extend(["lab", "trial"].map(Into::into));
    arguments.push(scenario.into());
    arguments.extend(["--policy".into(), contender.to_string().into()]);
    arguments.extend(["--repeat".into(), repeat.to_string().into()]);
    arguments.extend(["--menagerie".into(), menagerie.into()]);
    let ledger = "/run/numaherd-trial.ledger";
    if options.ledgers.is_some() {
        arguments.extend(["--ledger".into(), ledger.into()]);
    }
    let command = Command::inherited(arguments)?;
    let output = guest.output(&command, Some(options.limit))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.ending != Ending::Exited(0) {
        bail!("the trial ended with {:?}: {}", output.ending, said.trim());
    }
    let trial = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the trial gave no result; it said {said:?}"))?;
    if let Some(directory) = &options.ledgers {
        let text = guest
            .output(&Command::inherited(["cat", ledger])?, Some(options.limit))?
            .stdout;
        let path = directory.join(format!("{contender}.{repeat}.ledger"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(trial)
}

/// The static menagerie that `make build` put beside this program, or the one on the `PATH`.
pub fn menagerie() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let built = format!(
        "{}-unknown-linux-gnu/release/menagerie",
        std::env::consts::ARCH
    );
    let beside = program
        .ancestors()
        .flat_map(|d| [d.join("menagerie"), d.join(&built)]);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join("menagerie"));
    beside.chain(on_path).find(|candidate| candidate.is_file()).ok_or_else(|| {
        let told = "cannot find the menagerie's program beside numaherd or on the PATH; run `make build`";
        ended(Exit::NotSetUp, told)
    })
}

/// One trial, inside the guest: prints its result as JSON.
///
/// # Errors
/// What [`inside::trial`] says.
pub fn trial(options: &LabTrial) -> Result<()> {
    let trial = inside::trial(&TrialOptions {
        scenario: &Scenario::find(&options.scenario)?,
        contender: &Contender::parse(&options.policy)?,
        repeat: options.repeat,
        menagerie: &options.menagerie,
        ledger: options.ledger.as_deref(),
    })?;
    println!("{}", serde_json::to_string(&trial)?);
    Ok(())
}
