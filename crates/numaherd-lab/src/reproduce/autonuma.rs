//! autonuma-benchmark (Arcangeli and Holasek, 2012): four programs that clear memory, on Linux without and with
//! balancing of memory between nodes, on the model of a machine of four nodes.
//!
//! | program | what it does |
//! |---|---|
//! | `numa01` | two processes with a thread for each second CPU; all of a process clear its 3 GiB, 51 times |
//! | `numa01_THREAD_ALLOC` | the same processes; each thread clears its own part of the 3 GiB, 1000 times |
//! | `numa02` | one process with a thread for each CPU; each clears its own part of 1 GiB, 800 times |
//! | `numa02_SMT` | the same with a thread for each second CPU |
//!
//! A thread starts on the node of its parent and touches its memory there before the kernel moves it: Linux 3.6 does not
//! look for an idle CPU on other nodes when a thread is created (`sd_numa_init`, without `SD_BALANCE_FORK`; recalled).
//! Clearing a line reads and writes it, five instructions at a time; the prefetchers keep as many lines in
//! flight as the core can hold.

use std::sync::Arc;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, list};
use numaherd_experiment::scenario::LINUX_BALANCING;
use numaherd_experiment::statistics::mean;
use numaherd_model::program::{Curve, LINE_BYTES, Phase};
use numaherd_model::{Binding, Job, Program, Until};
use numaherd_topology::NodeId;

use super::inputs::Inputs;
use super::testbed::{Effort, KERNEL, Testbed, Workload};

/// A machine of four nodes; the benchmark's is not described.
pub const MACHINE: &str = "xeon-x7550-4s";
/// The node on which everything starts.
const FIRST: NodeId = NodeId(0);
const GIB: u64 = 1 << 30;
/// Lines that 1000 instructions clear: four stores of 16 bytes and a step of the loop for each.
const LINES: f64 = 200.0;

/// One of the programs, on a machine of so many CPUs.
struct Benchmark {
    name: &'static str,
    processes: u32,
    threads: u32,
    bytes: u64,
    /// Whether each thread clears all of it.
    is_shared: bool,
    rounds: f64,
}

fn benchmarks(cpus: u32) -> [Benchmark; 4] {
    let half = cpus / 2;
    let one = |name, processes, threads, gib, is_shared, rounds| Benchmark {
        name,
        processes,
        threads,
        bytes: gib * GIB,
        is_shared,
        rounds,
    };
    [
        one("numa01", 2, half, 3, true, 51.0),
        one("numa01-thread-alloc", 2, half, 3, false, 1000.0),
        one("numa02", 1, cpus, 1, false, 800.0),
        one("numa02-smt", 1, half, 1, false, 800.0),
    ]
}

impl Benchmark {
    /// The program; a run makes this part of its rounds.
    fn program(&self, in_flight: f64, part: f64) -> Result<Program> {
        let parts = if self.is_shared { 1 } else { self.threads };
        let bytes = self.bytes as f64;
        let lines = bytes / LINE_BYTES / f64::from(parts) * self.rounds * part;
        let curve = Curve::new(LINES, &[(bytes, LINES)], bytes)?;
        Ok(Program {
            name: self.name.to_owned(),
            about: "clears memory".to_owned(),
            source: "autonuma-benchmark".to_owned(),
            threads: self.threads,
            footprint_bytes: self.bytes,
            hot: None,
            shared_accesses: f64::from(u8::from(self.is_shared)),
            shared_written: 0.0,
            numa_penalty: None,
            request_instructions: None,
            repeat: false,
            phases: vec![Phase {
                misses_in_flight: in_flight,
                written_per_line: 1.0,
                ..Phase::new(lines / LINES * 1000.0, 1.0, curve)
            }],
        })
    }

    fn workload(&self, testbed: &Testbed, effort: &Effort) -> Result<Workload> {
        let part = effort.hour_s / Effort::FULL.hour_s;
        let program = self.program(testbed.hardware.figures.in_flight, part)?;
        let job = Job {
            binding: Binding::StartOn(testbed.cpus(FIRST)),
            ..Job::new(Arc::new(program))
        };
        let jobs = vec![job; self.processes as usize];
        Ok(Workload::new(jobs, Until::Completions(1)))
    }
}

/// Runs all experiments.
///
/// # Errors
/// The machine is unknown, or a run fails.
pub fn measure(effort: &Effort, inputs: &Inputs) -> Result<Measured> {
    let testbed = inputs.testbed(MACHINE)?;
    effort.with_intervals(|effort| on(&testbed, effort))
}

fn on(testbed: &Testbed, effort: &Effort) -> Result<Measured> {
    let cpus = testbed.hardware.topology().cpus().len() as u32;
    let mut measured = Measured::new();
    let mut seconds = [KERNEL, LINUX_BALANCING].map(|kernel| (kernel, Vec::new()));
    for benchmark in benchmarks(cpus) {
        let workload = benchmark.workload(testbed, effort)?;
        for (kernel, seconds) in &mut seconds {
            let runs = testbed.runs(kernel, &workload, &effort.seeds())?;
            let ends: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
            seconds.push((benchmark.name, mean(&ends)));
        }
    }
    let [(_, without), (_, with)] = &seconds;
    for (id, seconds) in [("order-without", without), ("order-with", with)] {
        measured.order(id, seconds.iter().map(|&(_, seconds)| seconds));
        measured.detail(format!("{id}-seconds"), list(seconds.iter().copied(), 0));
    }
    for (&(name, without), &(_, with)) in without.iter().zip(with) {
        measured.order(format!("{name}-faster"), [without, with]);
        measured.figure(format!("{name}-ratio"), with / without * 100.0);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_experiment::claims::{Claims, Paper};

    #[test]
    fn every_claim_has_a_figure_and_every_figure_a_claim() {
        let effort = Effort::new(1, 30.0);
        let claims = Claims::built_in(Paper::Autonuma).unwrap();
        let lines = claims
            .judge(&measure(&effort, &Inputs::default()).unwrap())
            .unwrap();
        assert!(lines.iter().all(|line| line.ours.is_some()));
    }
}
