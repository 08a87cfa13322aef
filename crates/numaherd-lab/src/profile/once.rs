//! One run of a program, bound to one node's CPUs and one node's memory, counted from outside
//! (`numaherd profile-run`, which `numaherd profile` runs once for each placement, here or in a
//! guest).
//!
//! It is held back until its counters are open; from then on they are read every [`TICK`]. What a
//! thread does between the last reading and its end is lost. Ratios (cycles and lines per
//! instruction) therefore cover what was read, and the total of instructions is scaled up for the
//! time that was not.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use numaherd_host::{EventTable, Host, HostOptions, Selection};
use numaherd_topology::{CpuSet, NodeId, Topology, sysfs};
use numaherd_world::{Progress, Signal, SignalState, World};

use super::bound;
use super::measured::Measured;
use crate::cli::ProfileRun;
use crate::guest::{Model, Scratch};
use crate::held::release;
use numaherd::exit::ended;
use numaherd::print;

/// Time between two readings of the counters.
pub const TICK: Duration = Duration::from_millis(20);

/// The machine that is measured.
pub const ROOT: &str = "/";

/// Runs a program once and prints what was measured as JSON.
///
/// # Errors
/// The machine has no counters or no such nodes, the program fails or runs too shortly to count.
pub fn run(options: &ProfileRun) -> Result<()> {
    let topology = Arc::new(sysfs::read(Path::new(ROOT))?);
    let (counters, caveat) = counters(&topology)?;
    let cpus = domain_cpus(&topology, NodeId(options.cpu_node))?;
    let scratch = Scratch::new()?;
    let mut program = bound::start(options, &cpus, &scratch.0)?;
    program.wait_until_ready()?;
    let model = options.model.then(Model::on).transpose()?;
    let selection = Selection::Child {
        pid: program.process.id(),
    };
    let host = HostOptions {
        residency_share: 0.0,
        ..HostOptions::new(selection)
    };
    let mut host = Host::new(host, topology)?;
    let mut measured = Measured {
        cpu_node: options.cpu_node,
        memory_node: options.memory_node,
        cpus,
        threads: 1,
        counted_share: 1.0,
        counters,
        caveat,
        ..Measured::default()
    };
    let mut cpu_seconds = 0.0;
    let skip = options.part.skip.unwrap_or_default();
    release(&scratch.0.join("go"))?;
    let begun = Instant::now();
    let (mut counted_from, mut seen_at) = (None, Duration::ZERO);
    let mut stopped = false;
    while host.run_for(TICK) == Progress::Ran {
        let snapshot = host.observe()?;
        let before = std::mem::replace(&mut seen_at, begun.elapsed());
        measured.look_at_processes(&snapshot);
        if before < skip {
            continue;
        }
        let from = *counted_from.get_or_insert(before);
        cpu_seconds += measured.add(&snapshot);
        let length = options.part.length;
        if length.is_some_and(|length| seen_at >= from + length) {
            program.end()?;
            stopped = true;
            break;
        }
    }
    let from = counted_from.unwrap_or(seen_at);
    measured.seconds = (seen_at - from).as_secs_f64();
    // The profile of a program that was stopped ends with the last reading.
    measured.whole_seconds = match stopped {
        true => measured.seconds,
        false => begun.elapsed().saturating_sub(from).as_secs_f64(),
    };
    measured.cpus_used = cpu_seconds / measured.seconds;
    let status = program.finish()?;
    drop(model);
    if !stopped && !status.success() {
        let name = options.program[0].display();
        return Err(ended!(
            Failure,
            "{name} failed ({status}), so nothing was measured"
        ));
    }
    measured.check(cpu_seconds, options)?;
    print::out(&(serde_json::to_string(&measured)? + "\n"))
}

/// What this machine counts lines from memory with.
///
/// # Errors
/// It cannot: why, and what would help.
pub fn counters(topology: &Topology) -> Result<(String, Option<String>)> {
    let signals = numaherd_host::signals(Path::new(ROOT), topology, EventTable::built_in());
    let miss_rate = signals.iter().find(|s| s.signal == Signal::MissRate);
    match miss_rate.map(|report| &report.state) {
        Some(SignalState::Measured { source, caveat }) => Ok((source.clone(), caveat.clone())),
        Some(SignalState::Missing { reason, remedy }) => Err(ended!(
            SignalMissing,
            "this machine has no counters to measure a program with: {reason}; {remedy}, or \
                 measure it in the lab (without --here)"
        )),
        None => unreachable!("every signal is reported"),
    }
}

/// The CPUs of a node's first memory domain, those that are online.
fn domain_cpus(topology: &Topology, node: NodeId) -> Result<CpuSet> {
    let online = topology.online_cpus();
    topology
        .domains()
        .iter()
        .filter(|domain| domain.node == node)
        .map(|domain| domain.cpus.intersection(&online))
        .find(|cpus| !cpus.is_empty())
        .ok_or_else(|| ended!(Usage, "node {node} has no CPU that is online"))
}
