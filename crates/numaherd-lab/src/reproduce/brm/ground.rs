//! The machine that BRM's experiments run on, and how workloads are run on it.
//!
//! Two Xeon E5620 of four cores (`xeon-e5620-2s`), whose remote latency is the paper's own (Fig 4a, at
//! 256 MB): an input here, no result. SMT, which the paper had on, is off: it never ran more threads
//! than cores where a figure of it is held against ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use numaherd_model::{Binding, Hardware, Job, Library, Micro, Options, Outcome, Placement, Until};
use numaherd_policy::Settings;
use numaherd_topology::{CpuId, Machine, NodeId};
use rayon::prelude::*;

use super::mean;
use numaherd_experiment::trial::{Trial, as_published, run};

/// Stands for the paper's default scheduler.
pub(super) const KERNEL: &str = "linux";
/// The paper's policy.
pub(super) const BRM: &str = "brm";
/// The same with one candidate at a time: not in the paper.
pub(super) const IN_TURN: &str = "brm-in-turn";

/// Where a workload's pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// All on node 0 (Fig 1, 5, 7, 8a).
    Node0,
    /// Where the threads touch them first.
    Local,
    /// Two thirds on node 0, whoever uses them: a machine of 12 GB on nodes of 8 (§2.3, §6).
    Wide,
}

impl Memory {
    fn placement(self) -> Placement {
        match self {
            Self::Node0 => Placement::On(NodeId(0)),
            Self::Local => Placement::FirstTouch,
            Self::Wide => Placement::Split(vec![(NodeId(0), 2), (NodeId(1), 1)]),
        }
    }
}

/// How often the paper's threads go through their lists and the shared area (§2.2).
const LOOPS: u32 = 1000;
/// Shorter runs the paper leaves out where it compares schedulers, in s (§6).
const LEAST_S: f64 = 10.0;

/// The micro-benchmark, as often through list and shared area as the paper's threads go.
fn micro(threads: u32, working_set_bytes: u64, shared_bytes: u64) -> Micro {
    Micro {
        threads,
        working_set_bytes,
        shared_bytes,
        loops: LOOPS,
    }
}

/// The machine and the programs.
pub(super) struct Ground {
    pub(super) hardware: Hardware,
    pub(super) library: &'static Library,
    /// brm with every thread a candidate: the paper's programs are all tagged.
    pub(super) settings: Settings,
}

/// What was measured of a workload, over its runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    /// Mean time of the workload's threads, by run: the paper's measure.
    times: Vec<f64>,
}

impl Measured {
    /// Mean over the runs.
    pub(super) fn mean(&self) -> f64 {
        mean(self.times.iter().copied())
    }

    /// Relative standard deviation over the runs, in percent; 0 for one run.
    pub(super) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares: f64 = self.times.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / (self.times.len() as f64 - 1.0).max(1.0)).sqrt() / mean * 100.0
    }
}

impl Ground {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            hardware: Hardware::of(&Machine::preset("xeon-e5620-2s")?)?,
            library: Library::built_in(),
            settings: Settings::parse("[brm]\ncandidates = \"all\"")?,
        })
    }

    /// A job with its pages there.
    pub(super) fn placed(&self, job: Job, memory: Memory) -> Job {
        Job {
            memory: memory.placement(),
            ..job
        }
    }

    /// The micro-benchmark: threads, bytes of their lists together, bytes that they share.
    pub(super) fn micro(
        &self,
        threads: u32,
        list_bytes: u64,
        shared_bytes: u64,
        memory: Memory,
    ) -> Result<Job> {
        let program = micro(threads, list_bytes, shared_bytes).program(&self.hardware)?;
        Ok(self.placed(Job::new(Arc::new(program)), memory))
    }

    /// The same of four threads, with as many more loops as let it run for [`LEAST_S`] with all threads on
    /// node 0.
    pub(super) fn long_micro(&self, list_bytes: u64, shared_bytes: u64) -> Result<Job> {
        let memory = Memory::Node0;
        let once = self.outcome(list_bytes, shared_bytes, memory, self.cpus(0))?;
        let times = (LEAST_S / once.seconds).max(1.0);
        let micro = Micro {
            loops: (f64::from(LOOPS) * times).ceil() as u32,
            ..micro(4, list_bytes, shared_bytes)
        };
        let program = micro.program(&self.hardware)?;
        Ok(self.placed(Job::new(Arc::new(program)), memory))
    }

    /// How it goes with its threads bound to those CPUs.
    pub(super) fn outcome(
        &self,
        list_bytes: u64,
        shared_bytes: u64,
        memory: Memory,
        cpus: Vec<CpuId>,
    ) -> Result<Outcome> {
        let micro = micro(u32::try_from(cpus.len())?, list_bytes, shared_bytes);
        Ok(micro.bound(&self.hardware, cpus, memory.placement())?)
    }

    /// The CPUs of a node, in their order.
    pub(super) fn cpus(&self, node: u32) -> Vec<CpuId> {
        let cpus = self.hardware.topology().cpus().iter();
        cpus.filter(|cpu| cpu.node == NodeId(node))
            .map(|cpu| cpu.id)
            .collect()
    }

    /// Runs jobs under a policy, each to its first end, from so many seeds. Each job's time is divided
    /// by its part of `per`.
    pub(super) fn under(
        &self,
        policy: &str,
        jobs: &[Job],
        per: &[f64],
        runs: u32,
    ) -> Result<Measured> {
        let herd = as_published();
        let times = (0..u64::from(runs)).into_par_iter().map(|seed| {
            let ran = run(&Trial {
                hardware: &self.hardware,
                jobs: jobs.to_vec(),
                until: Until::Completions(1),
                options: Options {
                    seed,
                    ..Options::default()
                },
                policy,
                policies: &self.settings,
                herd: &herd,
            })?;
            let mut first = BTreeMap::new();
            for ended in &ran.completions {
                first.entry(ended.job).or_insert(ended.thread_s);
            }
            ensure!(
                first.len() == jobs.len(),
                "a job under {policy} did not end"
            );
            Ok(mean(first.into_iter().map(|(job, time)| time / per[job])))
        });
        Ok(Measured {
            times: times.collect::<Result<_>>()?,
        })
    }

    /// Runs jobs under every binding of their threads to nodes (each thread a core to itself), one run
    /// each: a binding leaves nothing to chance. Threads of one process, and jobs of one program, are
    /// alike, so that only how many go to node 0 matters.
    pub(super) fn bindings(&self, jobs: &[Job], per: &[f64]) -> Result<Vec<Measured>> {
        let bound: Vec<Vec<Job>> = self.distinct_bindings(jobs)?;
        bound
            .into_par_iter()
            .map(|jobs| self.under(KERNEL, &jobs, per, 1))
            .collect()
    }

    /// The jobs, bound in every distinct way.
    fn distinct_bindings(&self, jobs: &[Job]) -> Result<Vec<Vec<Job>>> {
        let nodes = [self.cpus(0), self.cpus(1)];
        let threads: Vec<usize> = jobs
            .iter()
            .enumerate()
            .flat_map(|(at, job)| std::iter::repeat_n(at, job.program.threads as usize))
            .collect();
        ensure!(threads.len() <= 8, "there are 2 times 4 cores");
        let mut distinct = BTreeMap::new();
        for pattern in 0..1_u32 << threads.len() {
            let mut free = nodes.clone();
            let mut cpus: Vec<Vec<CpuId>> = vec![Vec::new(); jobs.len()];
            let mut key = BTreeMap::new();
            let fits = threads.iter().enumerate().all(|(bit, &job)| {
                let node = (pattern >> bit & 1) as usize;
                if free[node].is_empty() {
                    return false;
                }
                *key.entry((jobs[job].program.name.clone(), node))
                    .or_insert(0) += 1;
                cpus[job].push(free[node].remove(0));
                true
            });
            if fits {
                distinct.entry(key).or_insert(cpus);
            }
        }
        let bound = distinct.into_values().map(|cpus| {
            let each = jobs.iter().zip(cpus);
            each.map(|(job, cpus)| Job {
                binding: Binding::Each(cpus),
                ..job.clone()
            })
            .collect()
        });
        let bound: Vec<Vec<Job>> = bound.collect();
        bound
            .first()
            .context("no binding has room for the threads")?;
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_enumerated_up_to_what_is_alike() {
        let ground = Ground::new().unwrap();
        let job = |name: &str| Job::new(ground.library.get(name).unwrap().clone());
        let count = |jobs: &[Job]| ground.distinct_bindings(jobs).unwrap().len();
        assert_eq!(count(&[job("lu.C")]), 5);
        assert_eq!(count(&[job("mcf"), job("mcf"), job("mcf"), job("mcf")]), 5);
        assert_eq!(
            count(&[job("mcf"), job("milc"), job("soplex"), job("sphinx3")]),
            16
        );
    }
}
