//! `numaherd trace simulate`: a trace on a modelled machine, under several policies.
//!
//! Every trial is the loop that herds a live machine, on modelled time. Trials are independent:
//! they run on all cores, and give the same results however many there are. The trials of one run
//! start from the same seed under every policy.

mod table;

use std::path::Path;

use anyhow::{Result, anyhow};
use numaherd::exit::{Exit, OrExit};
use numaherd::print;
use numaherd_experiment::{Asked, ORACLE, OnTrace, Scenario, Settings, Trials, World};
use numaherd_topology::Machine;
use numaherd_trace::world::{Analysis, Figures, Hardware};
use serde::Serialize;

use crate::cli::TraceSimulate;

/// What `--json` gives.
#[derive(Serialize)]
struct TraceReport {
    /// Version of this form.
    schema: u32,
    /// The machine that was modelled.
    machine: String,
    seed: u64,
    runs: u32,
    loops: u32,
    dilation: u64,
    traces: Vec<Played>,
}

/// A trace under all policies.
#[derive(Serialize)]
struct Played {
    file: String,
    threads: usize,
    policies: Vec<Compared>,
}

/// A policy on a trace.
#[derive(Clone, Serialize)]
pub struct Compared {
    /// Its name.
    pub policy: String,
    /// The figures of each run.
    pub runs: Vec<Figures>,
}

/// Plays traces and prints a table for each.
///
/// # Errors
/// A trace, a policy, a setting or the machine is unknown or wrong; a trial fails.
pub fn simulate(options: &TraceSimulate) -> Result<()> {
    if options.ledgers.is_some() && options.files.len() > 1 {
        let more = anyhow!(
            "--ledgers keeps those of one trace, and there are several; name one at a time"
        );
        return Err(more).or_exit(Exit::Usage);
    }
    let scenario = match &options.config {
        Some(path) => Scenario::find(&path.to_string_lossy(), World::Trace),
        None => Scenario::parse("", "the settings that suit a trace", World::Trace),
    };
    let scenario = scenario.or_exit(Exit::Usage)?;
    let mut settings = Settings::of(&scenario, &[], options.seed).or_exit(Exit::Usage)?;
    if let Some(loops) = options.loops {
        settings.trace.loops = loops;
    }
    let machine = match (&options.machine, scenario.machine.as_str()) {
        (Some(name), _) => name,
        (None, "") => USUAL_MACHINE,
        (None, name) => name,
    };
    let hardware =
        Hardware::of(&Machine::find(machine).or_exit(Exit::Usage)?).or_exit(Exit::Usage)?;
    let asked = Asked {
        policies: &options.policies,
        repeat: options.runs,
        seed: options.seed,
        ledgers: options.ledgers.as_deref(),
    };
    let trials = Trials::of(&scenario, &asked).or_exit(Exit::Usage)?;
    let traces = options
        .files
        .iter()
        .map(|file| play(file, &hardware, &settings, &trials));
    let report = TraceReport {
        schema: 1,
        machine: hardware.topology.name().to_owned(),
        seed: options.seed,
        runs: trials.repeat,
        loops: settings.trace.loops,
        dilation: settings.trace.dilation,
        traces: traces.collect::<Result<_>>()?,
    };
    print::shown(options.json, &report, || shown(&report))
}

/// The machine unless the user or the scenario names one.
const USUAL_MACHINE: &str = "lab-4x2";

/// Plays a trace under all policies.
fn play(file: &Path, hardware: &Hardware, settings: &Settings, trials: &Trials) -> Result<Played> {
    let trace = super::opened(file)?;
    let needs_analysis = trials.policies.iter().any(|name| name == ORACLE);
    let analysis = match needs_analysis {
        true => Some(Analysis::of(&trace, hardware.page_bytes())?),
        false => None,
    };
    let on_trace = OnTrace {
        hardware,
        trace: &trace,
        settings,
        analysis: analysis.as_ref(),
    };
    let figures = trials.run(|trial| Ok(on_trace.run(trial)?.figures))?;
    let compared = trials.by_policy(&figures).map(|(policy, runs)| Compared {
        policy: policy.to_owned(),
        runs: runs.to_vec(),
    });
    Ok(Played {
        file: file.display().to_string(),
        threads: trace.threads().len(),
        policies: compared.collect(),
    })
}

fn shown(report: &TraceReport) -> String {
    let times = |count: u32, what: &str| match count {
        1 => format!("{what} once"),
        _ => format!("{what} {count} times"),
    };
    let mut text = String::new();
    for played in &report.traces {
        text += &format!(
            "{} ({} threads), {} on {}, {}\n\n",
            played.file,
            played.threads,
            times(report.loops, "played"),
            report.machine,
            times(report.runs, "run"),
        );
        text += &table::compared(&played.policies);
        text += "\n\n";
        for sentence in table::remarks(&played.policies) {
            text += &sentence;
            text += "\n";
        }
    }
    text += table::LEGEND;
    text += "\n";
    text
}
