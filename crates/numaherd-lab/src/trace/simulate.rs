//! `numaherd trace simulate`: a trace on a modelled machine, under several policies.
//!
//! Every trial is the loop that herds a live machine, on modelled time. Trials know nothing of each
//! other: they run on all cores, and give the same however many there are. The trials of one run
//! start from the same seed under every policy.

mod settings;
mod table;
pub mod trial;

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use numaherd_topology::Machine;
use numaherd_trace::Trace;
use numaherd_trace::world::{Analysis, Figures, Hardware, Options, Recording};
use rayon::prelude::*;
use serde::Serialize;

use crate::cli::TraceSimulate;
use crate::simulate::progress;
use numaherd::exit::{Exit, ended};
use numaherd::print;
use settings::Settings;
use trial::{ORACLE, Trial};

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
    let machine = Machine::find(&options.machine).map_err(|error| usage(&error))?;
    let hardware = Hardware::of(&machine).map_err(|error| usage(&error))?;
    let settings = Settings::of(options)?;
    let policies = policies(&options.policies)?;
    let mut traces = Vec::new();
    for file in &options.files {
        let trace = Arc::new(super::opened(file)?);
        traces.push(play(
            options, file, &trace, &hardware, &settings, &policies,
        )?);
    }
    let report = Report {
        schema: 1,
        machine: hardware.topology.name().to_owned(),
        seed: options.seed,
        runs: options.runs,
        loops: settings.trace.loops,
        dilation: settings.trace.dilation,
        traces,
    };
    print::shown(options.json, &report, || shown(&report))
}

/// The policies to compare, each once and each known.
fn policies(asked: &[String]) -> Result<Vec<String>> {
    let mut policies: Vec<String> = Vec::new();
    for name in asked {
        let name = name.trim().to_owned();
        if name != ORACLE {
            numaherd_policy::registry::halves(&name).map_err(|error| ended(Exit::Usage, error))?;
        }
        if !policies.contains(&name) {
            policies.push(name);
        }
    }
    Ok(policies)
}

/// A trace under all policies, as often as asked.
fn play(
    options: &TraceSimulate,
    file: &Path,
    trace: &Arc<Trace>,
    hardware: &Hardware,
    settings: &Settings,
    policies: &[String],
) -> Result<Played> {
    let analysis = policies
        .iter()
        .any(|name| name == ORACLE)
        .then(|| Analysis::of(&mut Recording::new(trace.clone()), hardware.page_bytes()))
        .transpose()?;
    let all = policies
        .iter()
        .flat_map(|policy| (0..options.runs).map(move |run| (policy, run)));
    let all: Vec<(&String, u32)> = all.collect();
    let bar = progress(all.len() as u64);
    let ran: Result<Vec<Figures>> = all
        .into_par_iter()
        .map(|(policy, run)| {
            let ran = trial::run(&Trial {
                hardware,
                trace,
                options: Options {
                    seed: options.seed.wrapping_add(run.into()),
                    ..settings.trace.clone()
                },
                policy,
                policies: &settings.policies,
                herd: &settings.herd,
                analysis: analysis.as_ref(),
            })?;
            bar.inc(1);
            Ok(ran.figures)
        })
        .collect();
    bar.finish_and_clear();
    let ran = ran?;
    let runs = ran.chunks(options.runs as usize);
    Ok(Played {
        file: file.display().to_string(),
        threads: trace.threads().len(),
        policies: policies
            .iter()
            .zip(runs)
            .map(|(policy, runs)| Compared {
                policy: policy.clone(),
                runs: runs.to_vec(),
            })
            .collect(),
    })
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
