//! Profiles in the lab: a guest for each size of the last-level cache.

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use numaherd_experiment::progress;
use numaherd_lab_launcher::{Command, Ending, Guest};
use numaherd_topology::{CacheKind, Machine, NodeId};

use super::assemble::{Parts, Run, last_level, latencies};
use super::measured::Measured;
use super::nodes::{Nodes, read};
use super::report::Report;
use super::text::Profile;
use crate::cli::Profile as Options;
use crate::lab;
use numaherd::exit::{Exit, OrExit, ended};

/// The machine of the lab unless another is named.
const USUAL_MACHINE: &str = "lab-4x2-half";

/// Measures in guests of a machine, one for each size of its last-level cache.
///
/// # Errors
/// The lab is not set up, the machine lacks a figure, or the program fails or runs too shortly.
pub fn in_lab(options: &Options) -> Result<(Profile, Vec<Run>)> {
    let machine = lab::machine(options.machine.as_deref().unwrap_or(USUAL_MACHINE))?;
    let topology = machine.topology().or_exit(Exit::Usage)?;
    let nodes = Nodes::of(&topology)?;
    let own_kib = last_level(&machine)?.size_kib;
    let mut others = options.cache_sizes.clone();
    if others.is_empty() {
        others = vec![own_kib / 2, own_kib / 4];
    }
    others.retain(|&kib| kib != own_kib);
    // All are refused before any is run.
    let machines: Vec<(u64, Machine)> = std::iter::once(own_kib)
        .chain(others)
        .map(|kib| Ok((kib, with_cache(&machine, kib)?)))
        .collect::<Result<_>>()?;
    let latencies = latencies(&machine, &nodes)?;
    let all = nodes.memories(options.repeat).len() + machines.len() - 1;
    let bar = progress(all as u64);
    let (mut runs, mut reports) = (Vec::new(), Vec::new());
    let mut kernel = String::new();
    for (kib, machine) in &machines {
        let memories = if *kib == own_kib {
            nodes.memories(options.repeat)
        } else {
            vec![nodes.local]
        };
        let attempt = || in_guest(options, &nodes, machine, &memories, &bar);
        let seen = lab::once_more(&bar, attempt)?;
        kernel = seen.kernel;
        reports.push((*kib << 10, seen.report));
        runs.extend(seen.measured.into_iter().map(|measured| Run {
            cache_bytes: Some(*kib << 10),
            measured,
        }));
    }
    bar.finish_and_clear();
    let how = vec![
        format!("numaherd profile in the lab's {}", machine.name),
        format!(
            "Kernel {kernel}; counters: {}, and the lab's report.",
            runs[0].measured.counters
        ),
    ];
    let parts = Parts {
        options,
        nodes: &nodes,
        latencies: Some(latencies),
        how,
        reports,
    };
    let profile = parts.assemble(&runs)?;
    Ok((profile, runs))
}

/// What one guest gave.
struct Seen {
    kernel: String,
    measured: Vec<Measured>,
    report: Report,
}

fn in_guest(
    options: &Options,
    nodes: &Nodes,
    machine: &Machine,
    memories: &[NodeId],
    bar: &ProgressBar,
) -> Result<Seen> {
    let guest: Guest = lab::guest(machine)?.boot().map_err(lab::error)?;
    guest.write_file("/proc/sys/kernel/numa_balancing", "0")?;
    let kernel = guest.kernel().to_owned();
    let mut measured = Vec::new();
    for &memory in memories {
        bar.set_message(format!(
            "memory on node {memory}, {} KiB of cache",
            last_level(machine)?.size_kib
        ));
        let command = Command::inherited(nodes.run(options, memory, &["--model"])?)?;
        let output = guest.output(&command, Some(options.limit))?;
        let code = match output.ending {
            Ending::Exited(code) => Some(code),
            Ending::Killed(_) => None,
        };
        measured.push(read(code, &output.stdout, &output.stderr)?);
        bar.inc(1);
    }
    let report = guest
        .stop()?
        .report
        .context("the guest ended without the lab's report of what it did; run it again")?;
    let report: Report =
        serde_json::from_str(&report).context("the lab's report cannot be read")?;
    // The report covers whole programs only.
    if options.part.skip.is_none() && options.part.length.is_none() {
        for run in &mut measured {
            run.own = Some(report.own(&run.pids));
        }
    }
    Ok(Seen {
        kernel,
        measured,
        report,
    })
}

/// The machine with another last-level cache, of as many ways.
fn with_cache(machine: &Machine, kib: u64) -> Result<Machine> {
    let mut other = machine.clone();
    let last = other
        .caches
        .iter_mut()
        .rfind(|spec| spec.kind != CacheKind::Instruction);
    last.context("there is a last-level cache")?.size_kib = kib;
    // The lab's model knows whether it can have such a cache.
    let same = last_level(machine)?.size_kib == kib;
    numaherd_lab_launcher::machine::hardware(&other).map_err(|error| {
        let message = if same {
            error.to_string()
        } else {
            format!("no last-level cache of {kib} KiB: {error}")
        };
        ended(Exit::Usage, message)
    })?;
    Ok(other)
}
