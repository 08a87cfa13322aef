//! `numaherd lab compare`: a scenario under several policies, side by side.
//!
//! One guest serves all trials, one after another; repeats go round the policies, so that whatever drifts,
//! drifts for all. If the guest itself dies (QEMU, not the trial), the trial runs once more in a new one. A trial
//! that fails is shown, counted as failed and left out of the figures, and the program ends with an
//! error.

mod inside;
pub mod scheduler;
mod table;
pub mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::{Scenario, World, progress};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{Command, Ending, Guest};
use serde::Serialize;
use toml::Table;

use crate::cli::{LabCompare, LabTrial};
use crate::lab::{self, outlet};
use inside::TrialOptions;
use scheduler::Scheduler;
use trial::{Summary, Trial};

/// What `--json FILE` holds.
#[derive(Serialize)]
struct Comparison<'a> {
    /// Version of this form.
    schema: u32,
    /// The scenario's file.
    scenario: &'a Table,
    summaries: &'a [Summary],
    trials: &'a [Trial],
    failed: &'a [Failed],
}

/// A trial that gave no figures.
#[derive(Serialize)]
struct Failed {
    #[serde(rename = "contender")]
    scheduler: String,
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
    let schedulers = schedulers(match &options.policies[..] {
        [] => &scenario.policies,
        asked => asked,
    })?;
    let repeat = options.repeat.unwrap_or(scenario.repeat);
    if let Some(directory) = &options.ledgers {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let menagerie = menagerie()?;
    let machine = lab::machine(&scenario.machine)?;
    // One that needs it has it in every guest, so that all run on the same hardware.
    let residency = schedulers.iter().any(Scheduler::needs_tlb_residency);
    let mut guests = lab::Guests::new(&machine, residency.then(IpmConfig::of_paper));
    let rounds = (0..repeat).flat_map(|at| schedulers.iter().map(move |scheduler| (at, scheduler)));
    let rounds: Vec<_> = rounds.collect();
    let bar = progress(rounds.len() as u64);
    let (mut trials, mut failed) = (Vec::new(), Vec::new());
    for (at, scheduler) in rounds {
        bar.set_message(format!("{scheduler}, {} of {repeat}", at + 1));
        match guests.run(&bar, |guest| {
            trial_in(guest, options, scheduler, at, &menagerie)
        }) {
            Ok(trial) => trials.push(trial),
            Err(error) => {
                let error = format!("{error:#}");
                bar.suspend(|| eprintln!("numaherd: {scheduler}, repeat {at}: {error}"));
                failed.push(Failed {
                    scheduler: scheduler.to_string(),
                    repeat: at,
                    error,
                });
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    guests.stop()?;
    let summaries: Vec<Summary> = schedulers
        .iter()
        .filter_map(|scheduler| Summary::of(scheduler, &trials))
        .collect();
    if let Some(path) = &options.json {
        let (trials, failed) = (&trials, &failed);
        let all = Comparison {
            schema: 1,
            scenario: &scenario.written,
            summaries: &summaries,
            trials,
            failed,
        };
        print::file(path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    println!(
        "{}: {} ({}, {} repeats)",
        scenario.name, scenario.about, scenario.machine, repeat
    );
    println!("{}\n{}\n", table::table(&summaries), table::LEGEND);
    println!("{}", table::verdict(&scenario, &summaries));
    print!("{}", next_steps(options, &schedulers));
    if !failed.is_empty() {
        bail!(
            "{} of {} trials failed and are not in the figures",
            failed.len(),
            failed.len() + trials.len()
        );
    }
    Ok(())
}

/// What to do next, as it can be typed.
fn next_steps(options: &LabCompare, schedulers: &[Scheduler]) -> String {
    let numaherd = print::called();
    // The one that herds, where one does: what it did is what there is to tell.
    let herds = |scheduler: &&Scheduler| matches!(scheduler, Scheduler::Policy(_));
    let told = schedulers.iter().rfind(herds);
    let explain = options
        .ledgers
        .as_ref()
        .zip(told)
        .map(|(directory, scheduler)| {
            let ledger = print::quoted(&directory.join(format!("{scheduler}.0.ledger")));
            format!("What {scheduler} did, and why:  {numaherd} explain {ledger}\n")
        });
    format!(
        "\n{}A program of your own, herded:  {numaherd} lab run --policy dino --ledger herd.jsonl -- CMD\n",
        explain.unwrap_or_default()
    )
}

fn schedulers(names: &[String]) -> Result<Vec<Scheduler>> {
    let mut schedulers: Vec<Scheduler> = Vec::new();
    for name in names {
        let scheduler = Scheduler::parse(name.trim())?;
        if !schedulers.contains(&scheduler) {
            schedulers.push(scheduler);
        }
    }
    Ok(schedulers)
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
    /// Where in the guest to record runs, if anywhere.
    pub ledger: Option<&'a Path>,
    /// How long one trial may take.
    pub limit: Duration,
}

impl Tried<'_> {
    /// One trial in a guest that runs.
    ///
    /// # Errors
    /// The trial fails, or the guest dies.
    pub fn once(&self, guest: &Guest, scheduler: &Scheduler, repeat: u32) -> Result<Trial> {
        let mut arguments: Vec<std::ffi::OsString> = vec![std::env::current_exe()?.into()];
        arguments.extend(["lab", "trial"].map(Into::into));
        arguments.push(self.scenario.into());
        arguments.extend(["--policy".into(), scheduler.to_string().into()]);
        arguments.extend(["--repeat".into(), repeat.to_string().into()]);
        arguments.extend(["--menagerie".into(), self.menagerie.into()]);
        if let Some(ledger) = self.ledger {
            arguments.extend(["--ledger".into(), ledger.into()]);
        }
        let output = guest.output(&Command::inherited(arguments)?, Some(self.limit))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.ending != Ending::Exited(0) {
            bail!("the trial ended with {:?}: {}", output.ending, said.trim());
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the trial gave no result; it said {said:?}"))
    }
}

/// One trial of a comparison; its ledger is kept where that is wanted.
fn trial_in(
    guest: &Guest,
    options: &LabCompare,
    scheduler: &Scheduler,
    repeat: u32,
    menagerie: &Path,
) -> Result<Trial> {
    let scenario =
        fs::canonicalize(&options.scenario).unwrap_or_else(|_| (&options.scenario).into());
    let ledger = Path::new("/run/numaherd-trial.ledger");
    let tried = Tried {
        scenario: &scenario,
        menagerie,
        ledger: options.ledgers.is_some().then_some(ledger),
        limit: options.limit,
    };
    let trial = tried.once(guest, scheduler, repeat)?;
    if let Some(directory) = &options.ledgers {
        let path = directory.join(format!("{scheduler}.{repeat}.ledger"));
        fs::File::create(&path)
            .map_err(Into::into)
            .and_then(|mut file| outlet::copy(guest, ledger, &mut file, options.limit))
            .with_context(|| format!("cannot write {}", path.display()))?;
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
        scenario: &scenario(&options.scenario)?,
        scheduler: &Scheduler::parse(&options.policy)?,
        repeat: options.repeat,
        menagerie: &options.menagerie,
        ledger: options.ledger.as_deref(),
    })?;
    println!("{}", serde_json::to_string(&trial)?);
    Ok(())
}
