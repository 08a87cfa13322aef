//! A profile put together from its runs.

use std::path::Path;

use anyhow::Result;
use numaherd_topology::machine::CacheSpec;
use numaherd_topology::{CacheKind, Machine, NodeId};
use serde::Serialize;

use super::bound::shown;
use super::derive::{self, Latencies, Rates};
use super::measured::Measured;
use super::nodes::Nodes;
use super::report::{Report, Vcpu};
use super::text::{Point, Profile};
use crate::cli::Profile as Options;
use numaherd::exit::{Exit, ended};

/// One run and the cache that it had.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Bytes of the last-level cache, where they are known.
    pub cache_bytes: Option<u64>,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Measured,
}

/// The figures of a machine that the rule needs.
///
/// # Errors
/// Its file leaves out one, which is named.
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
    /// The machine's latencies, where they are known.
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
        let whole = if self.options.part.skip.is_none() && self.options.part.length.is_none() {
            "The whole run"
        } else {
            "A part of the run"
        };
        let command = shown(&self.options.program);
        self.how.push(format!(
            "{whole}{} of `{command}`, alone, on node {}, memory there and on node {}; runs of each: {}.",
            if self.options.part.waits { " from its start signal on" } else { "" },
            self.nodes.local,
            self.nodes.remote,
            near.len()
        ));
        let used = near.iter().map(|run| run.cpus_used).sum::<f64>() / near.len() as f64;
        if used < 0.9 * f64::from(threads) {
            self.how.push(format!(
                "Mind: it used {used:.2} CPUs with {threads} threads at work; what it sleeps is \
                 not in here (keys busy and sleep_ms)."
            ));
        }
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

    /// Checks that the memory was where it was bound to be.
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
                    return Err(ended!(
                        Failure,
                        "{:.0} % of the lines came from the core's own node though all memory \
                             was bound to node {bound_to}: the program binds its memory itself; \
                             leave that out of its command line",
                        found * 100.0
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::profile::measured::tests::measured;

    fn options() -> Box<Options> {
        let line = ["numaherd", "profile", "--name", "x", "--", "/bin/x", "1"];
        let Command::Profile(options) = Cli::parse_from(line).command else {
            unreachable!("it is a profile");
        };
        options
    }

    fn run(memory_node: u32, cache_kib: u64, cycles: u64, local_lines: u64) -> Run {
        Run {
            cache_bytes: Some(cache_kib << 10),
            measured: measured(|run| {
                run.memory_node = memory_node;
                run.cycles = cycles;
                run.local_lines = Some(local_lines);
            }),
        }
    }

    fn assemble(runs: &[Run]) -> Result<Profile> {
        let machine = Machine::preset("lab-4x2-half").unwrap();
        let nodes = Nodes::of(&machine.topology().unwrap()).unwrap();
        let parts = Parts {
            options: &options(),
            latencies: Some(latencies(&machine, &nodes).unwrap()),
            nodes: &nodes,
            how: vec!["a test".into()],
            reports: Vec::new(),
        };
        parts.assemble(runs)
    }

    #[test]
    fn each_run_goes_where_it_belongs() {
        let runs = [
            run(0, 2048, 5_000_000, 20_000),
            run(0, 2048, 5_200_000, 20_000),
            run(1, 2048, 7_500_000, 0),
            run(1, 2048, 7_500_000, 0),
            run(0, 512, 6_000_000, 20_000),
        ];
        let profile = assemble(&runs).unwrap();
        assert_eq!(
            (profile.name.as_str(), profile.command.as_str()),
            ("x", "x 1")
        );
        assert!((profile.numa_penalty - 7.5 / 5.1).abs() < 1e-9);
        let cpi: Vec<(u64, f64)> = profile
            .points
            .iter()
            .map(|point| (point.cache_bytes >> 10, point.cycles_per_instruction))
            .collect();
        assert_eq!(cpi, [(512, 6.0), (2048, 5.1)]);
        // 20 lines, 120 ns farther, 2400 ns longer in all.
        let wait = profile.wait.unwrap();
        assert!((wait.misses_in_flight - 1.0).abs() < 1e-9, "{wait:?}");
        assert!((wait.cycles_per_instruction - 2.1).abs() < 1e-9, "{wait:?}");
        assert_eq!(
            (profile.cache_accesses, profile.written_per_line),
            (None, None)
        );
    }

    #[test]
    fn memory_that_was_not_where_it_was_bound_is_refused() {
        let near = run(0, 2048, 5_000_000, 20_000);
        let told = |runs: &[Run]| assemble(runs).err().unwrap().to_string();
        let own_binding = [near, run(1, 2048, 5_000_000, 20_000)];
        assert!(told(&own_binding).starts_with("100 % of the lines"));
        let elsewhere = [run(0, 2048, 5_000_000, 4_000), run(1, 2048, 7_000_000, 0)];
        assert!(told(&elsewhere).contains("20 %") && told(&elsewhere).contains("node 0"));
    }
}
