//! `numaherd lab compare`: a scenario under several policies and on several kernels, side by side.
//!
//! One guest of a kernel serves its trials, one after another; repeats go round the kernels and policies, so that
//! whatever drifts, drifts for all. Several scenarios run one after another, and an overview ends the output. A policy
//! or program of others that cannot run in a guest is shown with what is missing, and is no failure. If the guest itself
//! dies (QEMU, not the trial), the trial runs once more in a new one. A trial
//! that fails is shown, counted as failed and left out of the figures, and the program ends with an
//! error. If the first one fails before its programs begin, no other is tried: it would fail in the same way.

mod cgroup;
mod check;
mod inside;
mod kept;
mod launch;
mod member;
pub mod outcome;
mod output;
mod overview;
mod peer;
mod recorded;
mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
use numaherd_experiment::scenario::{BEST_KNOWN, enforced};
use numaherd_experiment::{Asked, ExperimentError, Scenario, Trial, Trials, World, progress};
use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{
    self as launcher, Command, Ending, Guest, KernelFiles, Stream, on_path,
};
use numaherd_policy::registry;
use numaherd_quantity::listed;
use numaherd_topology::Machine;
use numaherd_world::Signal;
use toml::Table;

use crate::cli::{LabCompare, LabTrial};
use crate::lab::{self, outlet};
use kept::Kept;
use launch::STEP;
use outcome::{Failed, Failure, Outcome, Results, Step};
use peer::Ground;
use recorded::Recorded;

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
        true => enforced(policy).0,
        false => BASELINE,
    }
}

/// Whether a policy needs a machine that measures how long pages stay in TLBs: one with an IPM unit.
fn needs_tlb_residency(policy: &str) -> bool {
    let needs = registry::needs(observing_policy(policy));
    needs.is_ok_and(|needs| needs.contains(&Signal::TlbResidency))
}

/// A scenario on all kernels.
struct Field {
    scenario: Scenario,
    /// Its file, as the guest sees it.
    file: PathBuf,
    /// Its text, where it has no file.
    text: Option<String>,
    /// The weight of each node under weighted interleaving.
    weights: Vec<u32>,
    comparisons: Vec<Comparison>,
}

/// A scenario on a kernel: what is tried in guests of one kind, and what came of it.
struct Comparison {
    guests: lab::Guests,
    trials: Trials,
    kept: Option<Kept>,
    results: Results,
    /// The first trial failed, and all others would fail in the same way.
    is_hopeless: bool,
}

impl Field {
    /// That of a scenario of a name, or of the command.
    fn of(options: &LabCompare, name: Option<&String>) -> Result<Self> {
        let (mut scenario, file, text) = match name {
            Some(name) => {
                let file = fs::canonicalize(name).unwrap_or(name.into());
                (named(name)?, file, None)
            }
            None => {
                let text = of_command(&options.program)?;
                let scenario = Scenario::parse(&text, "CMD", World::Lab).or_exit(Exit::Usage)?;
                (scenario, OF_COMMAND.into(), Some(text))
            }
        };
        if let Some(machine) = &options.machine {
            scenario.machine.clone_from(machine);
        }
        let machine = lab::machine(&scenario.machine)?;
        let kernels: Vec<Option<&str>> = match &options.kernels[..] {
            [] => vec![None],
            named => named.iter().map(|kernel| Some(kernel.as_str())).collect(),
        };
        let comparisons = kernels.into_iter();
        let comparisons = comparisons.map(|of| Comparison::of(options, of, &scenario, &machine));
        let mut field = Self {
            comparisons: comparisons.collect::<Result<_>>()?,
            weights: peer::weights(&machine.topology().or_exit(Exit::Usage)?),
            scenario,
            file,
            text,
        };
        match check::check(&field.scenario) {
            // The others of several scenarios go on.
            Err(error) if options.scenarios.len() > 1 => field.give_up(|_| true, &error),
            other => other?,
        }
        if let Err(error) = field.scenario.clone().best_known() {
            field.give_up(|policy| policy == BEST_KNOWN, &error.into());
        }
        Ok(field)
    }

    /// Notes that some policies cannot run.
    fn give_up(&mut self, is_one: impl Fn(&str) -> bool, error: &anyhow::Error) {
        for Comparison {
            results, trials, ..
        } in &mut self.comparisons
        {
            let trials = trials.round(0).filter(|trial| is_one(&trial.policy));
            let failed = trials.map(|trial| Failed::of(trial, format!("{error:#}")));
            results.cannot_run.extend(failed);
        }
    }

    fn results(&self) -> Vec<&Results> {
        self.comparisons.iter().map(|of| &of.results).collect()
    }

    /// Its lines of the overview.
    fn lines(&self) -> Vec<overview::Line<'_>> {
        let results = self.comparisons.iter().map(|of| &of.results);
        let line = |results| overview::Line::of(&self.scenario, results);
        results.map(line).collect()
    }
}

impl Comparison {
    fn of(
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
        // One that needs it has it in every guest, so that all run on the same hardware.
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

    /// Carries out a repeat of each policy, but for what is kept; what would begin after `end` is left out.
    fn round(
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

/// Runs the comparison and prints its tables.
///
/// # Errors
/// A scenario or a policy is unknown, the lab is not set up, a file cannot be read or written, or a trial failed.
pub fn compare(options: &LabCompare) -> Result<()> {
    let fields: Result<Vec<Field>> = match &options.scenarios[..] {
        [] => Field::of(options, None).map(|field| vec![field]),
        names => names
            .iter()
            .map(|name| Field::of(options, Some(name)))
            .collect(),
    };
    let mut fields = fields?;
    run(options, &mut fields)?;
    if let Some(path) = &options.json {
        let all = Recorded::of(&fields);
        print::file(path, &(serde_json::to_string_pretty(&all)? + "\n"))?;
    }
    let results: Vec<&Results> = fields.iter().flat_map(Field::results).collect();
    let ended = results.iter().map(|of| of.outcomes.len()).sum::<usize>();
    let failed = results.iter().map(|of| of.failed.len()).sum::<usize>();
    let missing = results.iter().map(|of| of.missing()).sum::<usize>();
    let comparisons = || fields.iter().flat_map(|field| &field.comparisons);
    let is_hopeless = comparisons().all(|comparison| comparison.is_hopeless);
    if ended == 0 {
        let rest = match missing {
            0 => String::new(),
            rest if is_hopeless => {
                format!("; the other {rest} would fail in the same way and were not tried")
            }
            rest => format!("; {rest} were not tried"),
        };
        let names: Vec<&str> = fields.iter().map(|of| of.scenario.name.as_str()).collect();
        bail!("no trial of {} gave a figure{rest}", names.join(", "));
    }
    let tables = fields
        .iter()
        .map(|of| table::comparison(&of.scenario, &of.results()));
    let mut text = tables.collect::<Vec<_>>().join("\n");
    if fields.len() > 1 || options.chart.is_some() {
        text += &overview(options, &fields)?;
    } else {
        text += &next_steps(&fields[0].comparisons[0].trials);
    }
    print::out(&text)?;
    if missing > 0 {
        print::say(format!(
            "{missing} trials were not made{}",
            match &options.keep {
                Some(folder) => format!("; the others are kept in {}", folder.display()),
                None => String::new(),
            }
        ));
    }
    if failed > 0 {
        bail!(
            "{failed} of {} trials failed and are not in the figures",
            ended + failed
        );
    }
    Ok(())
}

/// The tables of all scenarios together; their chart goes to its file.
fn overview(options: &LabCompare, fields: &[Field]) -> Result<String> {
    let lines: Vec<overview::Line<'_>> = fields.iter().flat_map(Field::lines).collect();
    if let Some(path) = &options.chart {
        print::file(path, &overview::chart(&lines)?)?;
    }
    Ok(format!("\n{}", overview::text(&lines)))
}

/// Carries out all trials, repeat by repeat.
fn run(options: &LabCompare, fields: &mut [Field]) -> Result<()> {
    let menagerie = menagerie()?;
    let end = options.time.map(|time| Instant::now() + time);
    let comparisons = || fields.iter().flat_map(|field| &field.comparisons);
    let trials =
        comparisons().map(|of| of.trials.policies.len() as u64 * u64::from(of.trials.repeat));
    let bar = progress(trials.sum());
    let (kinds, rounds) = (
        comparisons().count(),
        comparisons().map(|of| of.trials.repeat).max(),
    );
    for at in 0..rounds.unwrap_or(0) {
        for field in &mut *fields {
            let unit = field.scenario.measure().unit;
            let tried = Tried {
                scenario: &field.file,
                menagerie: &menagerie,
                weights: &field.weights,
                limit: options.limit,
            };
            let text = field.text.as_deref();
            for comparison in &mut field.comparisons {
                comparison.round(at, end, &bar, &unit, |guest, trial| {
                    if let Some(text) = text {
                        guest.write_file(OF_COMMAND, text).map_err(lab::error)?;
                    }
                    tried.once(guest, trial)
                })?;
                if kinds > 1 {
                    // Never two guests at a time: they would share the host's processors.
                    comparison.guests.stop()?;
                }
            }
        }
    }
    bar.finish_and_clear();
    for comparison in fields.iter_mut().flat_map(|field| &mut field.comparisons) {
        comparison.guests.stop()?;
    }
    Ok(())
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
