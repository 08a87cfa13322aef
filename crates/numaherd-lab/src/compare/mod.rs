//! `numaherd lab compare`: a scenario under several policies and on several kernels, side by side.
//!
//! One guest of a kernel runs its trials, one after another; repeats alternate between kernels and policies, so that
//! a drift affects all alike. Several scenarios run one after another, and an overview ends the output. A policy or
//! peer that cannot run in a guest is shown with what is missing, and is not a failure. If the guest itself dies
//! (QEMU, not the trial), the trial runs once more in a new one. A trial that fails is shown, counted as failed and
//! left out of the figures, and the program ends with an error. If the first one fails before its programs begin, no
//! other is tried, because it would fail in the same way.

mod cgroup;
mod check;
mod comparison;
mod field;
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
mod tried;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use numaherd::exit::{Exit, ended};
use numaherd::print;
use numaherd_experiment::scenario::{BEST_KNOWN, Ours};
use numaherd_experiment::{Trial, Trials, World, progress};
use numaherd_lab_launcher::{self as launcher, on_path};

use crate::cli::{LabCompare, LabTrial};
use crate::lab;
use field::{Field, OF_COMMAND, named};
use outcome::Results;
use peer::Ground;
use recorded::Recorded;
pub use tried::Tried;

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
        true => Ours::of(policy).policy,
        false => BASELINE,
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
        print::file(path, &overview::chart(&lines))?;
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

/// What to do next, as it can be typed.
fn next_steps(trials: &Trials) -> String {
    let numaherd = print::called();
    // The last trial under a policy of ours, if any: its ledger has something to explain.
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
         A program of your own, herded:  {numaherd} lab run --policy adaptive --ledger herd.jsonl -- CMD\n",
        explain.unwrap_or_default()
    )
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
/// As [`inside::run`].
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
