//! `numaherd lab compare`: a scenario under several policies and on several kernels, side by side.
//!
//! One guest of a kernel serves its trials, one after another; repeats go round the kernels and policies, so that
//! whatever drifts, drifts for all. A policy or program of others that cannot run in a guest is shown with what is
//! missing, and is no failure. If the guest itself dies (QEMU, not the trial), the trial runs once more in a new one. A trial
//! that fails is shown, counted as failed and left out of the figures, and the program ends with an
//! error. If the first one fails before its programs begin, no other is tried: it would fail in the same way.

mod cgroup;
mod check;
mod inside;
mod member;
pub mod outcome;
mod output;
mod peer;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::in_lab::{Better, Measure};
use numaherd_experiment::scenario::BEST_KNOWN;
use numaherd_experiment::{Asked, ExperimentError, Scenario, Trial, Trials, World, progress};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{
    self as launcher, Command, Ending, Guest, KernelFiles, RunOptions, Stream, on_path,
};
use numaherd_policy::registry;
use numaherd_quantity::listed;
use numaherd_world::Signal;
use serde::Serialize;
use toml::Table;

use crate::cli::{LabCompare, LabTrial};
use crate::lab::{self, outlet};
use member::STEP;
use outcome::{Failed, Failure, Outcome, Results, Step, Summary};
use peer::Ground;

/// The kernel as it is, with NUMA balancing and cache-aware scheduling off.
const BASELINE: &str = "linux";

/// Whether one of our policies places threads and pages: not the kernel, a program of others, or a scenario that knows
/// what is best.
fn is_ours(policy: &str) -> bool {
    policy != BASELINE && !World::Lab.other_policies().contains(&policy)
}

/// The policy of the `numaherd run` that observes a trial: `linux`, which changes nothing, unless a policy
/// places, so that every trial is observed by the same means and at the same cost.
fn observing_policy(policy: &str) -> &str {
    match is_ours(policy) {
        true => policy,
        false => BASELINE,
    }
}

/// Whether a policy needs a machine that measures how long pages stay in TLBs: one with an IPM unit.
fn needs_tlb_residency(policy: &str) -> bool {
    let needs = registry::needs(observing_policy(policy));
    needs.is_ok_and(|needs| needs.contains(&Signal::TlbResidency))
}

/// What `--json FILE` holds.
#[derive(Serialize)]
struct Recorded<'a> {
    /// Version of this form.
    schema: u32,
    /// The scenario's file.
    scenario: &'a Table,
    /// The unit of what is compared.
    unit: &'a str,
    /// Which is better.
    better: Better,
    summaries: Vec<OnKernel<'a, Summary>>,
    trials: Vec<OnKernel<'a, &'a Outcome>>,
    failed: Vec<OnKernel<'a, &'a Failed>>,
    /// What could not run at all.
    cannot_run: Vec<OnKernel<'a, &'a Failed>>,
}

/// What came of trials on a kernel.
#[derive(Serialize)]
struct OnKernel<'a, T> {
    kernel: &'a str,
    #[serde(flatten)]
    what: T,
}

impl<'a> Recorded<'a> {
    fn of(scenario: &'a Scenario, results: &[&'a Results], measure: &'a Measure) -> Self {
        fn all<'a, T>(
            results: &[&'a Results],
            of: impl Fn(&'a Results) -> Vec<T>,
        ) -> Vec<OnKernel<'a, T>> {
            let on = |results: &&'a Results| {
                let kernel = &results.kernel;
                let all = of(results).into_iter();
                all.map(move |what| OnKernel { kernel, what })
            };
            results.iter().flat_map(on).collect()
        }
        Self {
            schema: 3,
            scenario: &scenario.written,
            unit: &measure.unit,
            better: measure.better,
            summaries: all(results, |of| of.summaries(measure.better)),
            trials: all(results, |of| of.outcomes.iter().collect()),
            failed: all(results, |of| of.failed.iter().collect()),
            cannot_run: all(results, |of| of.cannot_run.iter().collect()),
        }
    }
}

/// A scenario on a kernel: what is tried in guests of one kind, and what came of it.
struct Comparison {
    guest: RunOptions,
    trials: Trials,
    results: Results,
    /// The first trial failed, and all others would fail in the same way.
    is_hopeless: bool,
}

impl Comparison {
    fn of(
        options: &LabCompare,
        kernel: Option<&str>,
        scenario: &Scenario,
        guest: &RunOptions,
    ) -> Result<Self> {
        let files = KernelFiles::find(kernel).map_err(lab::error)?;
        let mut ledgers = options.ledgers.clone();
        if let (Some(folder), Some(kernel), 2..) = (&mut ledgers, kernel, options.kernels.len()) {
            folder.push(kernel);
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
        let mut guest = guest.clone();
        guest.linux = kernel.map(str::to_owned);
        // One that needs it has it in every guest, so that all run on the same hardware.
        let mut policies = trials.policies.iter();
        let residency = policies.any(|policy| needs_tlb_residency(policy));
        guest.ipm = residency.then(IpmConfig::of_paper);
        let results = Results {
            kernel: files.release,
            policies: trials.policies.clone(),
            repeat: trials.repeat,
            outcomes: Vec::new(),
            failed: Vec::new(),
            cannot_run: Vec::new(),
        };
        Ok(Self {
            guest,
            trials,
            results,
            is_hopeless: false,
        })
    }

    /// Carries out a repeat of each policy.
    fn round(
        &mut self,
        at: u32,
        guests: &mut lab::Guests,
        bar: &ProgressBar,
        once: impl Fn(&Guest, &Trial) -> Result<Outcome>,
        unit: &str,
    ) {
        let results = &mut self.results;
        for trial in self.trials.round(at) {
            let (policy, repeat) = (&trial.policy, self.trials.repeat);
            if self.is_hopeless || results.cannot_run.iter().any(|one| one.policy == *policy) {
                bar.inc(1);
                continue;
            }
            bar.set_message(format!("{policy}, {} of {repeat}", at + 1));
            let began = Instant::now();
            match guests.run(bar, |guest| once(guest, trial)) {
                Ok(outcome) => {
                    let took = began.elapsed();
                    let line = ended_line(&outcome, unit, repeat, took);
                    bar.suspend(|| print::aside(&line));
                    results.outcomes.push(outcome);
                }
                Err(error) => {
                    let step = error.downcast_ref().map(|failure: &Failure| failure.at);
                    let is_first = results.outcomes.is_empty() && results.failed.is_empty();
                    let no_boot =
                        matches!(error.downcast_ref(), Some(launcher::Error::NoBoot { .. }));
                    let failed = Failed {
                        policy: policy.clone(),
                        repeat: at,
                        error: format!("{error:#}"),
                    };
                    let error = &failed.error;
                    if step == Some(Step::Peer) {
                        bar.suspend(|| print::say(format!("{policy} cannot run: {error}")));
                        results.cannot_run.push(failed);
                    } else {
                        bar.suspend(|| print::say(format!("{policy}, repeat {at}: {error}")));
                        self.is_hopeless = is_first && (no_boot || step == Some(Step::SetUp));
                        results.failed.push(failed);
                    }
                }
            }
            bar.inc(1);
        }
    }
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
    let machine = lab::machine(&scenario.machine)?;
    let guest = lab::guest(&machine)?;
    let kernels: Vec<Option<&str>> = match &options.kernels[..] {
        [] => vec![None],
        named => named.iter().map(|kernel| Some(kernel.as_str())).collect(),
    };
    let of_kernel = |kernel| Comparison::of(options, kernel, &scenario, &guest);
    let comparisons: Result<Vec<Comparison>> = kernels.into_iter().map(of_kernel).collect();
    let mut comparisons = comparisons?;
    let trials = comparisons[0].trials.clone();
    if trials.policies.iter().any(|policy| policy == BEST_KNOWN) {
        scenario.clone().best_known().or_exit(Exit::Usage)?;
    }
    check::check(&scenario)?;
    // What QEMU or the model cannot build need not be tried.
    launcher::machine::shape(&machine, None).map_err(lab::error)?;
    let ipm = comparisons[0].guest.ipm.as_ref();
    launcher::machine::model(&machine, ipm).map_err(lab::error)?;
    let tried = Tried {
        scenario: &match &options.scenario {
            Some(name) => fs::canonicalize(name).unwrap_or(name.into()),
            None => OF_COMMAND.into(),
        },
        menagerie: &menagerie()?,
        weights: &peer::weights(&machine.topology().or_exit(Exit::Usage)?),
        limit: options.limit,
    };
    let once = |guest: &Guest, trial: &Trial| {
        if let Some(text) = &text {
            guest.write_file(OF_COMMAND, text).map_err(lab::error)?;
        }
        tried.once(guest, trial)
    };
    let measure = scenario.measure();
    let all = trials.policies.len() * trials.repeat as usize * comparisons.len();
    let bar = progress(all as u64);
    let mut guests: Vec<lab::Guests> = comparisons
        .iter()
        .map(|comparison| lab::Guests::new(comparison.guest.clone()))
        .collect();
    let kernels = comparisons.len();
    for at in 0..trials.repeat {
        for (comparison, guests) in comparisons.iter_mut().zip(&mut guests) {
            comparison.round(at, guests, &bar, once, &measure.unit);
            if kernels > 1 {
                // Never two at a time: they would share the host's processors.
                guests.stop()?;
            }
        }
    }
    bar.finish_and_clear();
    for mut guests in guests {
        guests.stop()?;
    }
    let results: Vec<&Results> = comparisons.iter().map(|of| &of.results).collect();
    if let Some(path) = &options.json {
        let all = Recorded::of(&scenario, &results, &measure);
        print::file(path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    let sum = |of: fn(&Results) -> usize| results.iter().map(|results| of(results)).sum::<usize>();
    let (ended, failed) = (sum(|of| of.outcomes.len()), sum(|of| of.failed.len()));
    if ended == 0 {
        let hopeless = comparisons.iter().filter(|of| of.is_hopeless).count();
        let rest = match hopeless * (trials.policies.len() * trials.repeat as usize - 1) {
            0 => String::new(),
            rest => format!("; the other {rest} would fail in the same way and were not tried"),
        };
        bail!("no trial of {} gave a figure{rest}", scenario.name);
    }
    print::out(&format!(
        "{}\n{}",
        table::comparison(&scenario, &results),
        next_steps(&trials),
    ))?;
    if failed > 0 {
        bail!(
            "{failed} of {} trials failed and are not in the figures",
            ended + failed
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
fn next_steps(trials: &Trials) -> String {
    let numaherd = print::called();
    // The last that herds, where one does: what it did is what there is to tell.
    let mut ours = trials.round(0).filter(|trial| is_ours(&trial.policy));
    let told = ours.next_back();
    let explain = told.and_then(|trial| {
        let ledger = print::quoted(trial.ledger.as_ref()?);
        let policy = &trial.policy;
        Some(format!(
            "What {policy} did, and why:  {numaherd} explain {ledger}\n"
        ))
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

/// A scenario as it is to be tried in a guest.
pub struct Tried<'a> {
    /// Its name, or its file as the guest sees it.
    pub scenario: &'a Path,
    /// The menagerie's program.
    pub menagerie: &'a Path,
    /// The weight of each node under weighted interleaving.
    pub weights: &'a [u32],
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
        for weight in self.weights {
            arguments.extend(["--weight", &weight.to_string()].map(Into::into));
        }
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
    let ground = Ground {
        root: "/".into(),
        programs: launcher::peers(),
        weights: options.weights.clone(),
    };
    let outcome = inside::run(&scenario, &trial, &options.menagerie, &ground);
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
