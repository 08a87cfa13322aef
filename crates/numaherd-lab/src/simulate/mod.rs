//! `numaherd simulate`: a scenario on the contention model, under several policies.
//!
//! Every trial is the loop that herds a live machine, on modelled time. Trials are independent: they run on all
//! cores, and give the same results however many there are. The trials of one repeat start from the same seed under
//! every policy.

mod table;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use numaherd::exit::{Exit, OrExit};
use numaherd::print;
use numaherd_experiment::chart::{Series, bars::bars};
use numaherd_experiment::figures::{PolicyFigures, ProgramFigures, figures};
use numaherd_experiment::outcome::Outcome;
use numaherd_experiment::plan::{Label, Plan};
use numaherd_experiment::scenario::until_in_words;
use numaherd_experiment::{Asked, Scenario, Trials, World};
use serde::Serialize;

use crate::cli::Simulate;

/// What `--json` gives.
#[derive(Serialize)]
struct SimulateReport<'a> {
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
    let scenario = Scenario::find(name, World::Model).or_exit(Exit::Usage)?;
    let asked = Asked {
        policies: &options.policies,
        repeat: options.repeat,
        seed: options.seed,
        ledgers: options.ledgers.as_deref(),
    };
    let trials = Trials::of(&scenario, &asked).or_exit(Exit::Usage)?;
    let repeat = trials.repeat;
    let plan = Plan::of(
        &scenario,
        options.machine.as_deref(),
        &options.programs,
        &options.set,
        options.seed,
    )
    .or_exit(Exit::Usage)?;
    let outcomes = trials.run(|trial| {
        let ran = plan.on_model().run(trial)?;
        Ok(Outcome::of(&plan, scenario.count, trial, &ran))
    })?;
    let figures = figures(&plan, &trials.policies, &outcomes);
    if let Some(folder) = &options.svg {
        draw(folder, &scenario.name, &figures)?;
    }
    let machine = plan.hardware.topology().name();
    if let Some(path) = &options.json {
        let alone = plan.labels.iter().zip(&plan.alone_s);
        let report = SimulateReport {
            schema: 1,
            scenario: &scenario,
            machine,
            seed: options.seed,
            repeat,
            alone: alone
                .map(|(label, &seconds)| Alone { label, seconds })
                .collect(),
            policies: &figures,
            trials: &outcomes,
        };
        print::file(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
        if path == Path::new("-") {
            return Ok(());
        }
    }
    print::out(&shown(&scenario, machine, repeat, &figures))
}

/// A chart: its file's name, its title, in which `{first}` stands for the first policy, and its
/// figure, in the title's unit.
type Chart = (
    &'static str,
    &'static str,
    fn(&ProgramFigures) -> Option<f64>,
);

const CHARTS: [Chart; 4] = [
    (
        "slowdown",
        "Slowdown against alone on the machine",
        |program| Some(program.slowdown),
    ),
    (
        "mean",
        "Mean completion time: saved against {first}, %",
        |program| Some(program.saved?.mean * 100.0),
    ),
    (
        "worst",
        "Longest completion time: saved against {first}, %",
        |program| Some(program.saved?.worst * 100.0),
    ),
    (
        "deviation",
        "Deviation: saved against {first}, %",
        |program| Some(program.saved?.deviation? * 100.0),
    ),
];

/// Draws every chart that there are figures for into a folder, which is made if need be.
fn draw(folder: &Path, scenario: &str, policies: &[PolicyFigures]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let Some(first) = policies.first() else {
        return Ok(());
    };
    let names: Vec<&str> = first
        .programs
        .iter()
        .map(|program| program.program.as_str())
        .collect();
    for (file, title, figure) in CHARTS {
        let series = policies.iter().map(|policy| Series {
            name: policy.policy.clone(),
            figures: policy.programs.iter().map(figure).collect(),
        });
        let series: Vec<Series> = series.collect();
        if series
            .iter()
            .all(|series| series.figures.iter().all(Option::is_none))
        {
            continue;
        }
        let title = format!("{scenario}: {}", title.replace("{first}", &first.policy));
        let path = folder.join(format!("{file}.svg"));
        print::file(&path, &bars(&title, &names, &series))?;
    }
    Ok(())
}

fn shown(scenario: &Scenario, machine: &str, repeat: u32, figures: &[PolicyFigures]) -> String {
    let times = if repeat == 1 {
        "once".to_owned()
    } else {
        format!("{repeat} times")
    };
    let verdict = table::verdict(figures).map(|told| format!("\n{}", print::paragraph(&told)));
    format!(
        "{}: {}\non {machine}, until {}, {times}\n\n{}\n\n{}\n\n{}{}",
        scenario.name,
        scenario.about,
        until_in_words(&scenario.until),
        table::policies(figures),
        table::programs(figures),
        print::paragraph(table::LEGEND),
        verdict.unwrap_or_default()
    )
}

/// The scenarios that come with the program.
fn list() -> Result<String> {
    let mut text = String::new();
    for (name, source) in World::Model.built_in() {
        let scenario = Scenario::parse(source, name, World::Model)?;
        text += &format!("{name:<20}  {}\n", scenario.about);
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
