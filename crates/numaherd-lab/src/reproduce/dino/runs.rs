//! Workloads under policies: the same jobs and seeds under each, in parallel, and what came of it.
//!
//! Policies act as they were published ([`as_published`]). *Improvement* is that of a time over the
//! kernel's own placement (the paper's Default), in percent of the kernel's time: positive is faster.

use anyhow::{Context, Result};
use numaherd_model::{Job, Options, Until};
use rayon::prelude::*;

use super::{Ground, largest, mean};
use numaherd_experiment::trial::{Ran, Trial, as_published, run};

/// Mean time between two times that a CPU's thread wakes up on another, in s: the paper's Linux
/// 2.6.29 knows of no home. Chosen; where it is short beside a run, threads that sleep now and then are
/// anywhere by its middle, however short.
const WAKES_ELSEWHERE_S: f64 = 60.0;

/// The kernel's own placement.
pub(super) const DEFAULT: &str = "linux";
/// The paper's three policies, the weakest first.
pub(super) const POLICIES: [&str; 3] = ["di-plain", "di-migrate", "dino"];

/// What is run, until when, and what is measured of each job.
pub(super) struct Workload<'a> {
    pub(super) jobs: Vec<Job>,
    pub(super) until: Until,
    /// A job's time in a run, by its place; any unit, as times are only compared.
    pub(super) time: &'a (dyn Fn(&Ran, usize) -> Option<f64> + Sync),
}

/// All runs of a workload under one policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Runs {
    /// By job, by run.
    times: Vec<Vec<f64>>,
    /// Moves between memory domains per hour, by job, mean over the runs; of the job's process.
    moves: Vec<f64>,
}

/// Seconds per 10^9 instructions of a job, all its runs together.
pub(super) fn pace(ran: &Ran, job: usize) -> Option<f64> {
    let instructions = ran.work[job].instructions;
    (instructions > 0.0).then(|| ran.seconds / instructions * 1e9)
}

/// What runs under one policy, `settings` but for the seed.
pub(super) fn runs(
    ground: &Ground,
    workload: &Workload<'_>,
    policy: &str,
    settings: &numaherd_policy::Settings,
    count: u32,
) -> Result<Runs> {
    let herd = as_published();
    let ran: Vec<Ran> = (0..u64::from(count))
        .into_par_iter()
        .map(|seed| {
            run(&Trial {
                hardware: &ground.hardware,
                jobs: workload.jobs.clone(),
                until: workload.until,
                options: Options {
                    seed,
                    wakes_elsewhere_s: WAKES_ELSEWHERE_S,
                    ..Options::default()
                },
                policy,
                policies: settings,
                herd: &herd,
            })
        })
        .collect::<Result<_>>()?;
    let jobs = 0..workload.jobs.len();
    let times = jobs.clone().map(|job| {
        let time = |one| {
            (workload.time)(one, job)
                .with_context(|| format!("job {job} under {policy} was never measured"))
        };
        ran.iter().map(time).collect::<Result<_>>()
    });
    let moves = jobs.map(|job| {
        let per_hour = |one: &Ran| one.work[job].thread_moves as f64 / one.seconds * 3600.0;
        mean(ran.iter().map(per_hour))
    });
    Ok(Runs {
        times: times.collect::<Result<_>>()?,
        moves: moves.collect(),
    })
}

impl Runs {
    /// Mean time of a job.
    fn mean(&self, job: usize) -> f64 {
        mean(self.times[job].iter().copied())
    }

    /// Its longest.
    fn worst(&self, job: usize) -> f64 {
        largest(self.times[job].iter().copied())
    }

    /// Standard deviation of its time over the runs, in percent of the mean; 0 for one run.
    pub(super) fn deviation(&self, job: usize) -> f64 {
        let times = &self.times[job];
        let mean = self.mean(job);
        let squares: f64 = times.iter().map(|time| (time - mean).powi(2)).sum();
        (squares / (times.len() as f64 - 1.0).max(1.0)).sqrt() / mean * 100.0
    }

    /// Moves between memory domains per hour.
    pub(super) fn moves(&self, job: usize) -> f64 {
        self.moves[job]
    }

    /// How many jobs there are.
    pub(super) fn jobs(&self) -> std::ops::Range<usize> {
        0..self.times.len()
    }

    /// Improvement of a job's mean time over another's runs.
    pub(super) fn improvement(&self, over: &Self, job: usize) -> f64 {
        improvement(over.mean(job), self.mean(job))
    }

    /// Improvement of a job's longest time.
    pub(super) fn worst_improvement(&self, over: &Self, job: usize) -> f64 {
        improvement(over.worst(job), self.worst(job))
    }

    /// Mean improvement of all jobs.
    pub(super) fn mean_improvement(&self, over: &Self) -> f64 {
        mean(self.jobs().map(|job| self.improvement(over, job)))
    }

    /// Mean deviation of all jobs.
    pub(super) fn mean_deviation(&self) -> f64 {
        mean(self.jobs().map(|job| self.deviation(job)))
    }
}

/// By how much of a time another is shorter, in percent.
fn improvement(over: f64, time: f64) -> f64 {
    (1.0 - time / over) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn improvements_are_of_the_kernels_time() {
        let kernel = Runs {
            times: vec![vec![90.0, 110.0], vec![50.0, 50.0]],
            moves: vec![0.0; 2],
        };
        let other = Runs {
            times: vec![vec![80.0, 80.0], vec![60.0, 65.0]],
            moves: vec![0.0; 2],
        };
        assert!((other.improvement(&kernel, 0) - 20.0).abs() < 1e-9);
        assert!((other.improvement(&kernel, 1) + 25.0).abs() < 1e-9);
        assert!((other.worst_improvement(&kernel, 1) + 30.0).abs() < 1e-9);
        assert!((other.mean_improvement(&kernel) + 2.5).abs() < 1e-9);
        let deviation = 200f64.sqrt();
        assert!((kernel.deviation(0) - deviation).abs() < 1e-9);
        assert!((kernel.mean_deviation() - deviation / 2.0).abs() < 1e-9);
    }
}
