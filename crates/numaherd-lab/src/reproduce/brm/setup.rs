//! The machine that BRM's experiments run on, and how workloads run on it.
//!
//! Two Xeon E5620 of four cores (`xeon-e5620-2s`). SMT, which the paper had on, is off: in all figures that are compared
//! here, the paper never ran more threads than cores. With SMT, the credit scheduler leaves four vCPUs on one socket,
//! which may start there in 8 of 100 runs; without, it sends one of them to the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use numaherd_experiment::Ran;
use numaherd_experiment::statistics::{Sample, mean};
use numaherd_model::{Binding, Job, Micro, Outcome, Placement, Scheduler, Until};
use numaherd_policy::Settings;
use numaherd_policy::settings::BrmSettings;
use numaherd_topology::{CpuId, NodeId};
use rayon::prelude::*;

use crate::reproduce::inputs::Inputs;
use crate::reproduce::testbed::{KERNEL, Testbed, Workload};

/// The paper's policy.
pub(super) const BRM: &str = "brm";
/// The same with one candidate at a time: not in the paper.
pub(super) const IN_TURN: &str = "brm-in-turn";

/// Where a workload's pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// All on node 0 (Fig 1, 5, 7).
    Node0,
    /// Where the threads touch them first.
    Local,
    /// Two thirds on node 0, whichever threads use them: a virtual machine of 12 GB on nodes of 8 (§2.3, §6).
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

    /// A job with its pages there.
    pub(super) fn of(self, job: Job) -> Job {
        Job {
            memory: self.placement(),
            ..job
        }
    }
}

/// Jobs whose threads Xen's credit scheduler runs, as the paper's vCPUs: the scheduler that it compares with, and on top
/// of which brm places candidates.
pub(super) fn on_xen(jobs: Vec<Job>, until: Until) -> Workload {
    let mut workload = Workload::new(jobs, until);
    workload.options.scheduler = Scheduler::XenCredit;
    workload
}

/// How often the paper's threads go through their lists and the shared area (§2.2).
const LOOPS: u32 = 1000;
/// The shortest run in seconds with which the paper compares schedulers (§6).
const LEAST_S: f64 = 10.0;

/// The sizes of the micro-benchmark in bytes: the threads' lists together, and what all threads share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) lists: u64,
    pub(super) shared: u64,
}

impl Sizes {
    fn micro(self, threads: u32, loops: u32) -> Micro {
        Micro {
            threads,
            working_set_bytes: self.lists,
            shared_bytes: self.shared,
            loops,
        }
    }
}

/// The paper's machine.
pub(in crate::reproduce) const MACHINE: &str = "xeon-e5620-2s";

/// The machine, with brm's settings.
pub(super) struct Setup {
    pub(super) testbed: Testbed,
}

impl Setup {
    pub(super) fn new(inputs: &Inputs) -> Result<Self> {
        let mut testbed = inputs.testbed(MACHINE)?;
        // The paper's programs are all tagged, so that every thread is a candidate.
        testbed.policies = Settings::parse("[brm]\ncandidates = \"all\"")?;
        Ok(Self { testbed })
    }

    /// The same machine with brm as `change` makes it.
    pub(super) fn with(&self, change: impl FnOnce(&mut BrmSettings)) -> Self {
        let testbed = self.testbed.with(|settings| change(&mut settings.brm));
        Self { testbed }
    }

    /// The micro-benchmark with so many threads.
    pub(super) fn micro(&self, threads: u32, sizes: Sizes, memory: Memory) -> Result<Job> {
        let program = sizes
            .micro(threads, LOOPS)
            .program(&self.testbed.hardware)?;
        Ok(memory.of(Job::new(Arc::new(program))))
    }

    /// The same with four threads in the virtual machine of §6, and with as many loops as it takes to run for
    /// [`LEAST_S`] with all threads on node 0.
    pub(super) fn long_micro(&self, sizes: Sizes) -> Result<Job> {
        let once = self.outcome(sizes, Memory::Wide, [4, 0])?;
        let times = (LEAST_S / once.seconds).max(1.0);
        let loops = (f64::from(LOOPS) * times).ceil() as u32;
        let program = sizes.micro(4, loops).program(&self.testbed.hardware)?;
        Ok(Memory::Wide.of(Job::new(Arc::new(program))))
    }

    /// A run of the micro-benchmark with so many threads bound to each node.
    pub(super) fn outcome(&self, sizes: Sizes, memory: Memory, on: [usize; 2]) -> Result<Outcome> {
        let nodes = [0, 1].map(|node| self.testbed.cpus(NodeId(node)));
        let cpus = nodes
            .iter()
            .zip(on)
            .flat_map(|(cpus, count)| &cpus[..count]);
        let cpus: Vec<CpuId> = cpus.copied().collect();
        let micro = sizes.micro(u32::try_from(cpus.len())?, LOOPS);
        Ok(micro.bound(&self.testbed.hardware, cpus, memory.placement())?)
    }

    /// Runs jobs under a policy, each to its first end: the mean time of the workload's threads (the paper's
    /// measure) in each run. Each job's time is divided by its part of `per`.
    pub(super) fn under(
        &self,
        policy: &str,
        jobs: &[Job],
        per: &[f64],
        seeds: &[u64],
    ) -> Result<Sample> {
        let workload = on_xen(jobs.to_vec(), Until::Completions(1));
        self.times(policy, &workload, per, seeds)
    }

    /// The same for a workload that is ready to run.
    pub(super) fn times(
        &self,
        policy: &str,
        workload: &Workload,
        per: &[f64],
        seeds: &[u64],
    ) -> Result<Sample> {
        let time = |ran: &Ran| {
            let mut first = BTreeMap::new();
            for ended in &ran.completions {
                first.entry(ended.job).or_insert(ended.thread_s);
            }
            ensure!(
                first.len() == workload.jobs.len(),
                "a job under {policy} did not end"
            );
            Ok(mean(first.into_iter().map(|(job, time)| time / per[job])))
        };
        let ran = self.testbed.runs(policy, workload, seeds)?;
        let times = ran.iter().map(|ran| time(ran));
        Ok(Sample(times.collect::<Result<_>>()?))
    }

    /// The time of jobs under every binding of their threads to nodes (each thread has a core to itself),
    /// shortest first; one run each, since a binding leaves nothing to chance. Threads of one process are
    /// alike, and so are jobs of one program, so that only the number of them on node 0 matters.
    pub(super) fn bindings(&self, jobs: &[Job], per: &[f64]) -> Result<Vec<f64>> {
        let bound = self.distinct_bindings(jobs)?.into_par_iter();
        let mut times = bound
            .map(|jobs| Ok(self.under(KERNEL, &jobs, per, &[0])?.mean()))
            .collect::<Result<Vec<f64>>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// The jobs, bound in every distinct way.
    fn distinct_bindings(&self, jobs: &[Job]) -> Result<Vec<Vec<Job>>> {
        let nodes = [0, 1].map(|node| self.testbed.cpus(NodeId(node)));
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
        ensure!(!distinct.is_empty(), "no binding has room for the threads");
        let bound = distinct.into_values().map(|cpus| {
            let each = jobs.iter().zip(cpus);
            each.map(|(job, cpus)| Job {
                binding: Binding::Each(cpus),
                ..job.clone()
            })
            .collect()
        });
        Ok(bound.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bindings_are_enumerated_up_to_what_is_alike() {
        let setup = Setup::new(&Inputs::default()).unwrap();
        let job = |name: &str| Job::new(setup.testbed.program(name).unwrap().clone());
        let count = |jobs: &[Job]| setup.distinct_bindings(jobs).unwrap().len();
        assert_eq!(count(&[job("lu.C")]), 5);
        assert_eq!(count(&[job("mcf"), job("mcf"), job("mcf"), job("mcf")]), 5);
        assert_eq!(
            count(&[job("mcf"), job("milc"), job("soplex"), job("sphinx3")]),
            16
        );
    }
}
