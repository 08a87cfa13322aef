//! A profile put together from its runs.

use std::path::Path;

use anyhow::Result;
use numaherd_topology::machine::CacheSpec;
use numaherd_topology::{CacheKind, Machine, NodeId};
use serde::Serialize;

use super::derive::{self, Latencies, Rates};
use super::held::shown;
use super::measured::Measured;
use super::nodes::Nodes;
use super::report::{Report, Vcpu};
use super::text::{Point, Profile};
use crate::cli::Profile as Options;
use crate::exit::{Exit, ended};

/// One run and the cache that it had.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Bytes of the last-level cache, where they are known.
    pub cache_bytes: Option<u64>,
    /// What it gave.
    #[serde(flatten)]
    pub measured: Measured,
}

/// What the rule needs of a machine.
///
/// # Errors
/// The figure that its file leaves out.
pub fn latencies(machine: &Machine, nodes: &Nodes) -> Result<Latencies> {
    let missing = |key: &str| {
        let told = format!(
            "the machine {} has no {key}, which a profile needs",
            machine.name
        );
        ended(Exit::Usage, told)
    };
    let rows = machine.memory.latency_ns.as_ref();
    let row = rows.and_then(|rows| rows.get(nodes.local.index()));
    let to = |node: NodeId| row.and_then(|row| row.get(node.index())).copied();
    let core = &machine.core;
    let in_flight = core
        .misses_in_flight
        .ok_or_else(|| missing("core.misses_in_flight"))?;
    Ok(Latencies {
        local_ns: to(nodes.local).ok_or_else(|| missing("memory.latency_ns"))?,
        remote_ns: to(nodes.remote).ok_or_else(|| missing("memory.latency_ns"))?,
        llc_ns: last_level(machine)?
            .latency_ns
            .ok_or_else(|| missing("latency_ns of the last [[cache]]"))?,
        clock_ghz: core.clock_ghz.ok_or_else(|| missing("core.clock_ghz"))?,
        in_flight: f64::from(in_flight),
    })
}

/// The machine's last-level cache.
///
/// # Errors
/// It has none.
pub fn last_level(machine: &Machine) -> Result<&CacheSpec> {
    let last = machine
        .caches
        .iter()
        .rfind(|spec| spec.kind != CacheKind::Instruction);
    last.ok_or_else(|| {
        let told = format!(
            "the machine {} has no last-level cache: add a [[cache]]",
            machine.name
        );
        ended(Exit::Usage, told)
    })
}

/// What a profile is put together from, beside the runs.
pub struct Parts<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Where it ran.
    pub nodes: &'a Nodes,
    /// What the machine is like, where that is known.
    pub latencies: Option<Latencies>,
    /// Where and how it was measured, a line each.
    pub how: Vec<String>,
    /// The lab's report for each size of the cache, in bytes.
    pub reports: Vec<(u64, Report)>,
}

impl Parts<'_> {
    /// The profile.
    ///
    /// # Errors
    /// Memory was not where it was bound to be.
    pub fn assemble(mut self, runs: &[Run]) -> Result<Profile> {
        let own = runs[0].cache_bytes;
        let with = |cache: Option<u64>, node: NodeId| -> Vec<Measured> {
            let these = runs
                .iter()
                .filter(|run| run.cache_bytes == cache && run.measured.memory_node == node.0);
            these.map(|run| run.measured.clone()).collect()
        };
        let (near, far) = (with(own, self.nodes.local), with(own, self.nodes.remote));
        self.check_memory(&near, &far)?;
        let (local, remote) = (Rates::of(&near), Rates::of(&far));
        let mut points = Vec::new();
        let mut sizes: Vec<Option<u64>> = runs.iter().map(|run| run.cache_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for cache in sizes {
            let runs = with(cache, self.nodes.local);
            let rates = Rates::of(&runs);
            let demand = self.counted(cache, &runs[0]).map(|seen| {
                let fetched = seen.llc_miss + seen.prefetch;
                rates.lines * share(seen.llc_miss, fetched)
            });
            points.push(Point {
                cache_bytes: cache.unwrap_or(0),
                cycles_per_instruction: rates.cycles_per_instruction,
                lines: rates.lines,
                demand,
            });
        }
        let seen = self.counted(own, &near[0]);
        let threads = near.iter().map(|run| run.threads).max().unwrap_or(1);
        let instructions = near.iter().map(Measured::whole_instructions).sum::<f64>();
        let whole = if self.options.skip.is_none() && self.options.length.is_none() {
            "The whole run"
        } else {
            "A part of the run"
        };
        let command = shown(&self.options.program);
        self.how.push(format!(
            "{whole}{} of `{command}`, alone, on node {}, memory there and on node {}; {} runs each.",
            if self.options.waits { " from its start signal on" } else { "" },
            self.nodes.local,
            self.nodes.remote,
            near.len()
        ));
        Ok(Profile {
            name: self.name(),
            command,
            how: self.how,
            threads,
            footprint_bytes: runs
                .iter()
                .map(|run| run.measured.footprint_bytes)
                .max()
                .unwrap_or(0),
            instructions: instructions / near.len() as f64 / f64::from(threads),
            numa_penalty: derive::numa_penalty(&local, &remote),
            wait: self
                .latencies
                .map(|machine| derive::wait(&local, &remote, &machine)),
            machine: self.latencies,
            local,
            remote,
            cache_accesses: seen
                .map(|seen| 1000.0 * share(seen.llc_access, seen.user_instructions)),
            cache_bytes: own.unwrap_or(0),
            points,
            written_per_line: seen.map(|seen| share(seen.writeback, seen.llc_miss + seen.prefetch)),
        })
    }

    fn name(&self) -> String {
        self.options.name.clone().unwrap_or_else(|| {
            let program = Path::new(&self.options.program[0]);
            program
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        })
    }

    /// What the lab counted beside perf events, for a size of the cache.
    fn counted(&self, cache: Option<u64>, measured: &Measured) -> Option<Vcpu> {
        let (_, report) = self
            .reports
            .iter()
            .find(|(bytes, _)| Some(*bytes) == cache)?;
        Some(report.of(measured))
    }

    /// That the memory was where it was bound to be.
    fn check_memory(&self, near: &[Measured], far: &[Measured]) -> Result<()> {
        let local_share = |run: &Measured| {
            let few = run.lines < run.instructions / 1000;
            (!few).then(|| run.local_lines.map(|local| share(local, run.lines)))?
        };
        for (runs, bound_to, expected) in
            [(near, self.nodes.local, 1.0), (far, self.nodes.remote, 0.0)]
        {
            for found in runs.iter().filter_map(local_share) {
                if (found - expected).abs() > 0.1 {
                    return Err(ended(
                        Exit::Failure,
                        format!(
                            "{:.0} % of the lines came from the core's own node though all memory \
                             was bound to node {bound_to}: the program binds its memory itself; \
                             leave that out of its command line",
                            found * 100.0
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// `part / whole`; 0 of nothing.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}
