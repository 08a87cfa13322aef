//! `numaherd lab compare`: a scenario under several policies, side by side.
//!
//! One guest serves all trials, one after another; repeats go round the policies, so that whatever drifts,
//! drifts for all. If the guest itself dies (QEMU, not the trial), the trial runs once more in a new one. A trial
//! that fails is shown, counted as failed and left out of the figures, and the program ends with an
//! error. If the first one fails before its programs begin, no other is tried: it would fail in the same way.

mod cgroup;
mod check;
mod inside;
mod member;
pub mod outcome;
mod output;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::in_lab::Better;
use numaherd_experiment::scenario::{BEST_KNOWN, LINUX_BALANCING};
use numaherd_experiment::{Asked, ExperimentError, Scenario, Trial, Trials, World, progress};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{
    self as launcher, Command, Ending, Guest, KernelFiles, Stream, on_path,
};
use numaherd_policy::registry;
use numaherd_world::Signal;
use serde::Serialize;
use toml::Table;

use crate::cli::{LabCompare, LabTrial};
use crate::lab::{self, outlet};
use member::STEP;
use outcome::{Failure, Outcome, Summary};

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
    /// The unit of what is compared.
    unit: &'a str,
    /// Which is better.
    better: Better,
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
    let (mut scenario, text) = match &options.scenario {
        Some(name) => (named(name)?, None),
        None => {
            let text = of_command(&options.program)?;
            let scenario = Scenario::parse(&text, "CMD", World::Lab).or_exit(Exit::Usage)?;
            (scenario, Some(text))
        }
    };
    if let Some(machine) = &options.machine {
        scenario.machine.clone_from(machine);
    }
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
    check::check(&scenario)?;
    let mut guest = lab::guest(&machine)?;
    guest.ipm = residency.then(IpmConfig::of_paper);
    guest.linux.clone_from(&options.linux);
    let kernel = KernelFiles::find(options.linux.as_deref()).map_err(lab::error)?;
    // What QEMU or the model cannot build need not be tried.
    launcher::machine::shape(&machine, None).map_err(lab::error)?;
    launcher::machine::model(&machine, guest.ipm.as_ref()).map_err(lab::error)?;
    let mut guests = lab::Guests::new(guest);
    let tried = Tried {
        scenario: &match &options.scenario {
            Some(name) => fs::canonicalize(name).unwrap_or(name.into()),
            None => OF_COMMAND.into(),
        },
        menagerie: &menagerie()?,
        limit: options.limit,
    };
    let (repeat, measure) = (trials.repeat, scenario.measure());
    let bar = progress(trials.policies.len() as u64 * u64::from(repeat));
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    for trial in trials.in_rounds() {
        let (policy, at) = (&trial.policy, trial.repeat);
        bar.set_message(format!("{policy}, {} of {repeat}", at + 1));
        let began = Instant::now();
        let tried = guests.run(&bar, |guest| {
            if let Some(text) = &text {
                guest.write_file(OF_COMMAND, text).map_err(lab::error)?;
            }
            tried.once(guest, trial)
        });
        match tried {
            Ok(outcome) => {
                let took = began.elapsed();
                bar.suspend(|| print::aside(&ended_line(&outcome, &measure.unit, repeat, took)));
                outcomes.push(outcome);
            }
            Err(error) => {
                let hopeless = outcomes.is_empty() && failed.is_empty() && fails_always(&error);
                let error = format!("{error:#}");
                bar.suspend(|| print::say(format!("{policy}, repeat {at}: {error}")));
                failed.push(Failed {
                    policy: policy.clone(),
                    repeat: at,
                    error,
                });
                if hopeless {
                    break;
                }
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    guests.stop()?;
    let summaries = trials.policies.iter();
    let summaries = summaries.filter_map(|policy| Summary::of(policy, &outcomes, measure.better));
    let summaries: Vec<Summary> = summaries.collect();
    if let Some(path) = &options.json {
        let all = Comparison {
            schema: 2,
            scenario: &scenario.written,
            unit: &measure.unit,
            better: measure.better,
            summaries: &summaries,
            trials: &outcomes,
            failed: &failed,
        };
        print::file(path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    let trials_of_all = trials.policies.len() * repeat as usize;
    let tried = outcomes.len() + failed.len();
    if outcomes.is_empty() {
        let rest = match trials_of_all - tried {
            0 => String::new(),
            rest => format!("; the other {rest} would fail in the same way and were not tried"),
        };
        bail!("no trial of {} gave a figure{rest}", scenario.name);
    }
    print::out(&format!(
        "{}: {} ({}, Linux {}, {repeat} repeats)\n{}\n{}\n\n{}\n{}",
        scenario.name,
        scenario.about,
        scenario.machine,
        kernel.release,
        table::table(&measure, &summaries),
        table::legend(&measure),
        table::verdict(&scenario, &summaries),
        next_steps(options, &trials),
    ))?;
    if !failed.is_empty() {
        bail!(
            "{} of {} trials failed and are not in the figures",
            failed.len(),
            tried
        );
    }
    Ok(())
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
        "\n{}A program of your own, compared:  {numaherd} lab compare -- CMD\n\
         A program of your own, herded:  {numaherd} lab run --policy dino --ledger herd.jsonl -- CMD\n",
        explain.unwrap_or_default()
    )
}

fn named(name: &str) -> Result<Scenario> {
    Scenario::find(name, World::Lab).or_exit(Exit::Usage)
}

/// Where the guest finds the scenario of a command.
const OF_COMMAND: &str = "/run/numaherd-scenario.toml";

/// The text of a scenario in which a program runs alone, on the machine of `lab run` unless another is named. Few
/// policies and repeats (chosen here): a person waits.
fn of_command(program: &[OsString]) -> Result<String> {
    let words = program.iter().map(|word| word.to_str());
    let words: Option<Vec<&str>> = words.collect();
    let words = words.ok_or_else(|| ended!(Usage, "CMD is not UTF-8: put it into a script"))?;
    let shown = words.iter().map(|word| print::quoted(Path::new(word)));
    let name = Path::new(words[0]).file_name().unwrap_or_default();
    let mut scenario = toml::toml! {
        machine = "lab-4x2"
        policies = ["linux", "linux-balancing", "adaptive"]
        repeat = 3
    };
    let name = name.to_string_lossy().into_owned();
    let entry = Table::from_iter([("command".to_owned(), toml::Value::from(words.clone()))]);
    scenario.insert(
        "about".to_owned(),
        shown.collect::<Vec<_>>().join(" ").into(),
    );
    scenario.insert("name".to_owned(), name.into());
    scenario.insert("program".to_owned(), toml::Value::Array(vec![entry.into()]));
    Ok(toml::to_string(&scenario)?)
}

/// Whether a trial failed of something that all other trials would fail of, too: before its programs began, or
/// because no guest boots.
fn fails_always(error: &anyhow::Error) -> bool {
    let no_boot = matches!(error.downcast_ref(), Some(launcher::Error::NoBoot { .. }));
    no_boot
        || error
            .downcast_ref()
            .is_some_and(|failure: &Failure| failure.before_start)
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
        let (mut printed, mut said) = (Vec::new(), Vec::new());
        let command = Command::inherited(arguments)?;
        let ending = guest.stream(&command, Some(self.limit), |stream, bytes| match stream {
            Stream::Stdout => printed.extend_from_slice(bytes),
            Stream::Stderr => said.extend_from_slice(bytes),
        });
        let said = String::from_utf8_lossy(&said);
        let (steps, said): (Vec<&str>, Vec<&str>) =
            said.lines().partition(|line| line.starts_with(STEP));
        let said = said.join("\n");
        let ending = ending.map_err(|error| match error {
            launcher::Error::CommandTimeLimit { limit } => {
                let step = steps.last().and_then(|step| step.strip_prefix(STEP));
                let step = step.map_or_else(String::new, |step| format!(": {step}"));
                anyhow!(
                    "the trial was ended after {} s (`--limit`){step}",
                    limit.as_secs()
                )
            }
            other => lab::error(other),
        })?;
        if ending != Ending::Exited(0) {
            bail!("the trial ended with {ending:?}: {said}");
        }
        let outcome: Result<Outcome, Failure> = serde_json::from_slice(&printed)
            .with_context(|| format!("the trial gave no result; it said {said:?}"))?;
        let mut outcome = outcome?;
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
    let mut scenario = named(&options.scenario)?;
    if trial.policy == BEST_KNOWN {
        scenario = scenario.best_known()?;
    }
    let outcome = inside::run(&scenario, &trial, &options.menagerie);
    print::out(&(serde_json::to_string(&outcome)? + "\n"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_command_is_a_scenario_of_one_program() {
        let command = ["/bin/sh", "-c", "it's {copy}"].map(OsString::from);
        let text = of_command(&command).unwrap();
        let scenario = Scenario::parse(&text, "CMD", World::Lab).unwrap();
        assert_eq!((scenario.name.as_str(), scenario.repeat), ("sh", 3));
        assert_eq!(scenario.about, r"/bin/sh -c 'it'\''s {copy}'");
        let program = &scenario.programs[0];
        assert_eq!(
            (program.name.as_str(), program.copies, program.lab.waits),
            ("sh", 1, false)
        );
        let refused = of_command(&[OsString::from_vec(vec![0xff])]).unwrap_err();
        assert_eq!(numaherd::exit::of(&refused), Some(Exit::Usage));
    }

    #[test]
    fn those_that_need_an_ipm_unit_are_known() {
        assert!(needs_tlb_residency("ipm"));
        for name in ["linux", "linux-balancing", "numad", "best-known", "dino"] {
            assert!(!needs_tlb_residency(name), "{name}");
        }
    }
}
