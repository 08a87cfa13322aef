//! `numaherd trace simulate`: a trace on a modelled machine, under several policies.
//!
//! Every trial is the loop that herds a live machine, on modelled time. Trials know nothing of each
//! other: they run on all cores, and give the same however many there are. The trials of one run
//! start from the same seed under every policy.

mod table;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use numaherd::exit::{Exit, ended};
use numaherd::print;
use numaherd_experiment::playback::{self, ORACLE, Trial};
use numaherd_experiment::{Scenario, Settings, World, policies, run_all};
use numaherd_topology::Machine;
use numaherd_trace::Trace;
use numaherd_trace::world::{Analysis, Figures, Hardware, Options, Recording};
use serde::Serialize;

use crate::cli::TraceSimulate;

/// What `--json` gives.
#[derive(Serialize)]
struct Report {
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
    /// What came of each run.
    pub runs: Vec<Figures>,
}

/// Plays traces and prints a table for each.
///
/// # Errors
/// A trace, a policy, a setting or the machine is unknown or wrong; a trial fails.
pub fn simulate(options: &TraceSimulate) -> Result<()> {
    let usage = |error: &dyn std::fmt::Display| ended(Exit::Usage, error);
    let scenario = match &options.config {
        Some(path) => Scenario::find(&path.to_string_lossy(), World::Trace),
        None => Scenario::parse("", "the settings that suit a trace", World::Trace),
    };
    let scenario = scenario.map_err(|error| usage(&error))?;
    let settings = Settings::of(&scenario, World::Trace, &[], options.seed);
    let mut settings = settings.map_err(|error| usage(&error))?;
    let machine = match (&options.machine, scenario.machine.as_str()) {
        (Some(name), _) => name,
        (None, "") => USUAL_MACHINE,
        (None, name) => name,
    };
    let machine = Machine::find(machine).map_err(|error| usage(&error))?;
    let hardware = Hardware::of(&machine).map_err(|error| usage(&error))?;
    if let Some(loops) = options.loops {
        settings.trace.loops = loops;
    }
    let asked = match &options.policies[..] {
        [] => &scenario.policies,
        asked => asked,
    };
    let policies = policies(asked, &[ORACLE]).map_err(|error| usage(&error))?;
    let runs = options.runs.unwrap_or(scenario.repeat);
    let traces = options.files.iter().map(|file| {
        let trace = Arc::new(super::opened(file)?);
        let played = Playing {
            trace: &trace,
            hardware: &hardware,
            settings: &settings,
            seed: options.seed,
        };
        played.under(&policies, runs, file)
    });
    let report = Report {
        schema: 1,
        machine: hardware.topology.name().to_owned(),
        seed: options.seed,
        runs,
        loops: settings.trace.loops,
        dilation: settings.trace.dilation,
        traces: traces.collect::<Result<_>>()?,
    };
    print::shown(options.json, &report, || shown(&report))
}

/// The machine unless the user or the scenario names one.
const USUAL_MACHINE: &str = "lab-4x2";

/// A trace on a machine.
struct Playing<'a> {
    trace: &'a Arc<Trace>,
    hardware: &'a Hardware,
    settings: &'a Settings,
    seed: u64,
}

impl Playing<'_> {
    /// Plays it under all policies, as often as asked.
    fn under(&self, policies: &[String], runs: u32, file: &Path) -> Result<Played> {
        let (trace, settings) = (self.trace, self.settings);
        let needs_analysis = policies.iter().any(|name| name == ORACLE);
        let analysis = needs_analysis
            .then(|| {
                Analysis::of(
                    &mut Recording::new(trace.clone()),
                    self.hardware.page_bytes(),
                )
            })
            .transpose()?;
        let ran = run_all(policies, runs, |policy, run| {
            let ran = playback::run(&Trial {
                hardware: self.hardware,
                trace,
                options: Options {
                    seed: self.seed.wrapping_add(run.into()),
                    ..settings.trace.clone()
                },
                policy,
                policies: &settings.policies,
                herd: &settings.herd,
                analysis: analysis.as_ref(),
            })?;
            Ok(ran.figures)
        })?;
        let compared = policies.iter().zip(ran.chunks(runs as usize));
        Ok(Played {
            file: file.display().to_string(),
            threads: trace.threads().len(),
            policies: compared
                .map(|(policy, runs)| Compared {
                    policy: policy.clone(),
                    runs: runs.to_vec(),
                })
                .collect(),
        })
    }
}

fn shown(report: &Report) -> String {
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
