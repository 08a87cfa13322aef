//! `numaherd simulate`: a scenario on the contention model, under several policies.
//!
//! Every trial is the loop that herds a live machine, on modelled time. Trials know nothing of each
//! other: they run on all cores, and give the same however many there are. The trials of one repeat
//! start from the same seed under every policy.

mod chart;
mod figures;
mod outcome;
pub mod penalties;
pub mod plan;
pub mod scenario;
mod table;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use numaherd_model::Options;
use rayon::prelude::*;
use serde::Serialize;

use crate::cli::Simulate;
use figures::PolicyFigures;
use numaherd::exit::{Exit, ended};
use numaherd::print;
use numaherd_experiment::trial::{self, Trial};
use outcome::Outcome;
use plan::{Label, Plan};
use scenario::{MOST_REPEATS, Scenario, until_in_words};

/// What `--json` gives.
#[derive(Serialize)]
struct Report<'a> {
    /// Version of this form.
    schema: u32,
    scenario: &'a Scenario,
    /// The machine that was modelled.
    machine: &'a str,
    seed: u64,
    repeat: u32,
    /// What each process takes alone, in seconds.
    alone: Vec<Alone<'a>>,
    policies: &'a [PolicyFigures],
    trials: &'a [Outcome],
}

#[derive(Serialize)]
struct Alone<'a> {
    #[serde(flatten)]
    label: &'a Label,
    seconds: Option<f64>,
}

/// Runs a scenario and prints its tables.
///
/// # Errors
/// The scenario, a policy, a profile or the machine is unknown or wrong; a trial fails; a file cannot
/// be written.
pub fn simulate(options: &Simulate) -> Result<()> {
    if options.list {
        return print::out(&list()?);
    }
    let name = options.scenario.as_deref().unwrap_or_default();
    let scenario = Scenario::find(name)?;
    let policies = policies(options, &scenario)?;
    let repeat = options.repeat.unwrap_or(scenario.repeat).min(MOST_REPEATS);
    let plan = Plan::of(
        &scenario,
        options.machine.as_deref(),
        &options.programs,
        &options.set,
        options.seed,
    )?;
    if let Some(folder) = &options.ledgers {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let trials = run_all(&plan, &scenario, &policies, repeat, options)?;
    let figures = figures::figures(&plan, &policies, &trials);
    if let Some(folder) = &options.svg {
        chart::draw(folder, &scenario.name, &figures)?;
    }
    let machine = plan.hardware.topology().name();
    if let Some(path) = &options.json {
        let alone = plan.labels.iter().zip(&plan.alone_s);
        let report = Report {
            schema: 1,
            scenario: &scenario,
            machine,
            seed: options.seed,
            repeat,
            alone: alone
                .map(|(label, &seconds)| Alone { label, seconds })
                .collect(),
            policies: &figures,
            trials: &trials,
        };
        let text = serde_json::to_string_pretty(&report)? + "\n";
        if path == Path::new("-") {
            return print::out(&text);
        }
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print::out(&shown(&scenario, machine, repeat, &figures))
}

/// The policies to compare, each once and each known.
fn policies(options: &Simulate, scenario: &Scenario) -> Result<Vec<String>> {
    let asked = if options.policies.is_empty() {
        &scenario.policies
    } else {
        &options.policies
    };
    let mut policies: Vec<String> = Vec::new();
    for name in asked {
        let name = name.trim().to_owned();
        numaherd_policy::registry::halves(&name).map_err(|error| ended(Exit::Usage, error))?;
        if !policies.contains(&name) {
            policies.push(name);
        }
    }
    Ok(policies)
}

/// All trials, in the order of the policies and then of the repeats.
fn run_all(
    plan: &Plan,
    scenario: &Scenario,
    policies: &[String],
    repeat: u32,
    options: &Simulate,
) -> Result<Vec<Outcome>> {
    let all = policies
        .iter()
        .flat_map(|policy| (0..repeat).map(move |at| (policy, at)));
    let all: Vec<(&String, u32)> = all.collect();
    let bar = progress(all.len() as u64);
    let trials: Result<Vec<Outcome>> = all
        .into_par_iter()
        .map(|(policy, at)| {
            let seed = options.seed.wrapping_add(at.into());
            let trial = Trial {
                hardware: &plan.hardware,
                jobs: plan.jobs.clone(),
                until: plan.until,
                options: Options {
                    seed,
                    ..plan.settings.model
                },
                policy,
                policies: &plan.settings.policies,
                herd: &plan.settings.herd,
            };
            let ledger = options
                .ledgers
                .as_ref()
                .map(|folder| folder.join(format!("{policy}.{at}.ledger")));
            let ran = trial::run_recorded(&trial, ledger.as_deref())?;
            bar.inc(1);
            Ok(Outcome::of(plan, scenario.count, policy, at, seed, &ran))
        })
        .collect();
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

fn shown(scenario: &Scenario, machine: &str, repeat: u32, figures: &[PolicyFigures]) -> String {
    let times = if repeat == 1 {
        "once".to_owned()
    } else {
        format!("{repeat} times")
    };
    let mut text = format!(
        "{}: {}\non {machine}, until {}, {times}\n\n",
        scenario.name,
        scenario.about,
        until_in_words(&scenario.until)
    );
    text += &table::policies(figures);
    text += "\n\n";
    text += &table::programs(figures);
    text += "\n\n";
    text += table::LEGEND;
    text += "\n";
    if let Some(verdict) = table::verdict(figures) {
        text += "\n";
        text += &verdict;
        text += "\n";
    }
    text
}

/// The scenarios that come with the program.
fn list() -> Result<String> {
    let mut text = String::new();
    for (name, source) in scenario::BUILT_IN {
        let scenario = Scenario::parse(source, name)?;
        text += &format!("{name:<20}  {}\n", scenario.about);
    }
    Ok(text)
}
