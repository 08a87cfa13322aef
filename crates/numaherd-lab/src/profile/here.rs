//! Profiles on this machine: its own nodes, its own counters.

use std::path::Path;
use std::process;

use anyhow::{Context, Result};
use numaherd_experiment::progress;
use numaherd_topology::{CacheKind, sysfs};

use super::assemble::{Parts, Run, latencies};
use super::nodes::{Nodes, read};
use super::once;
use super::text::Profile;
use crate::cli::Profile as Options;
use crate::lab;

/// Measures on this machine.
///
/// # Errors
/// It has one node or no counters, or the program fails or runs too shortly.
pub fn here(options: &Options) -> Result<(Profile, Vec<Run>)> {
    let topology = sysfs::read(Path::new(once::ROOT))?;
    let nodes = Nodes::of(&topology)?;
    let (counters, caveat) = once::counters(&topology)?;
    let machine = options.machine.as_deref().map(lab::machine).transpose()?;
    let latencies = machine.as_ref().map(|m| latencies(m, &nodes)).transpose()?;
    let cache_bytes = topology.caches().iter().rev().find(|cache| {
        let cpus = topology.node(nodes.local).map(|node| &node.cpus);
        cache.kind != CacheKind::Instruction
            && cpus.is_some_and(|cpus| cpus.intersects(&cache.cpus))
    });
    let cache_bytes = cache_bytes.and_then(|cache| cache.size_bytes);
    let bar = progress(nodes.memories(options.repeat).len() as u64);
    let mut runs = Vec::new();
    for memory in nodes.memories(options.repeat) {
        bar.set_message(format!("memory on node {memory}"));
        let words = nodes.run(options, memory, &[])?;
        let output = process::Command::new(&words[0]).args(&words[1..]).output();
        let output = output.with_context(|| format!("cannot run {}", words[0].display()))?;
        let measured = read(output.status.code(), &output.stdout, &output.stderr)?;
        runs.push(Run {
            cache_bytes,
            measured,
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    let machine = machine.map_or_else(|| "this machine".to_owned(), |machine| machine.name);
    let mut how = vec![format!("numaherd profile --here on {machine}")];
    how.push(format!("Counters: {counters}."));
    how.extend(caveat.map(|caveat| format!("Mind: {caveat}.")));
    let parts = Parts {
        options,
        nodes: &nodes,
        latencies,
        how,
        reports: Vec::new(),
    };
    let profile = parts.assemble(&runs)?;
    Ok((profile, runs))
}
