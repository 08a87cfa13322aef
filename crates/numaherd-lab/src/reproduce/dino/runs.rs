//! Workloads under the kernel and under the paper's policies: the same jobs and seeds for each.
//!
//! *Improvement* is by how much a time is shorter than under the kernel's own placement (the paper's Default),
//! in percent of the kernel's time.

use anyhow::{Context, Result};
use numaherd_experiment::Ran;
use numaherd_experiment::statistics::Sample;

use crate::reproduce::testbed::{Effort, KERNEL, Testbed, Workload, improvement, of_runs};

/// Mean time in seconds after which a CPU's sleeping thread wakes up on another CPU: the paper's Linux 2.6.29
/// knows no home of a thread. Our choice; if it is short compared with a run, threads that sleep now and then
/// are anywhere by the middle of the run, however short they sleep.
const WAKES_ELSEWHERE_S: f64 = 60.0;

/// The workload on that Linux.
pub(super) fn on_old_linux(workload: &Workload) -> Workload {
    waking_elsewhere(workload, WAKES_ELSEWHERE_S)
}

/// The workload on a Linux that wakes threads elsewhere after that many seconds; 0: never.
pub(super) fn waking_elsewhere(workload: &Workload, seconds: f64) -> Workload {
    let mut workload = workload.clone();
    workload.options.wakes_elsewhere_s = seconds;
    workload
}

/// A job's time in a run, by the job's place; any unit, as times are only compared.
pub(super) type Time<'a> = &'a (dyn Fn(&Ran, usize) -> Option<f64> + Sync);

/// Seconds per 10^9 instructions of a job, all its runs together.
pub(super) fn pace(ran: &Ran, job: usize) -> Option<f64> {
    let instructions = ran.work[job].instructions;
    (instructions > 0.0).then(|| ran.seconds / instructions * 1e9)
}

/// All runs of a workload under one policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Runs {
    /// Times over the runs, by job.
    pub(super) times: Vec<Sample>,
    /// Moves of a job's process between memory domains per hour, over the runs, by job.
    pub(super) moves: Vec<Sample>,
}

impl Runs {
    /// Runs a workload on the paper's Linux as often as the effort says.
    pub(super) fn of(
        testbed: &Testbed,
        policy: &str,
        workload: &Workload,
        time: Time<'_>,
        effort: &Effort,
    ) -> Result<Self> {
        Self::as_it_is(testbed, policy, &on_old_linux(workload), time, effort)
    }

    /// The same on the Linux of the workload's own options.
    pub(super) fn as_it_is(
        testbed: &Testbed,
        policy: &str,
        workload: &Workload,
        time: Time<'_>,
        effort: &Effort,
    ) -> Result<Self> {
        let ran = testbed.runs(policy, workload, &effort.seeds())?;
        let jobs = 0..workload.jobs.len();
        let times = jobs.clone().map(|job| {
            let of_run = |one| {
                time(one, job).with_context(|| format!("job {job} under {policy} has no time"))
            };
            let times = ran.iter().map(|one| of_run(one.as_ref()));
            Ok(Sample(times.collect::<Result<_>>()?))
        });
        let moves = jobs.map(|job| {
            let per_hour = |one: &Ran| one.work[job].thread_moves as f64 / one.seconds * 3600.0;
            Sample(ran.iter().map(|one| per_hour(one)).collect())
        });
        Ok(Self {
            times: times.collect::<Result<_>>()?,
            moves: moves.collect(),
        })
    }

    /// These runs alone.
    pub(super) fn of_runs(&self, runs: &[usize]) -> Self {
        let of = |samples: &[Sample]| samples.iter().map(|one| of_runs(one, runs)).collect();
        Self {
            times: of(&self.times),
            moves: of(&self.moves),
        }
    }

    /// Improvement of each job's mean time.
    pub(super) fn improvements(&self, over: &Self) -> Vec<f64> {
        self.compared(over, Sample::mean)
    }

    /// Improvement of each job's longest time.
    pub(super) fn worst_improvements(&self, over: &Self) -> Vec<f64> {
        self.compared(over, Sample::largest)
    }

    fn compared(&self, over: &Self, of: fn(&Sample) -> f64) -> Vec<f64> {
        let pairs = over.times.iter().zip(&self.times);
        pairs
            .map(|(over, times)| improvement(of(over), of(times)))
            .collect()
    }

    /// Relative standard deviation of each job's time, in percent.
    pub(super) fn deviations(&self) -> Vec<f64> {
        self.times.iter().map(Sample::deviation_percent).collect()
    }
}

/// A workload under the kernel and the paper's three policies.
pub(super) struct Compared {
    pub(super) kernel: Runs,
    pub(super) plain: Runs,
    pub(super) migrate: Runs,
    pub(super) dino: Runs,
}

impl Compared {
    pub(super) fn of(
        testbed: &Testbed,
        workload: &Workload,
        time: Time<'_>,
        effort: &Effort,
    ) -> Result<Self> {
        let under = |policy| Runs::of(testbed, policy, workload, time, effort);
        Ok(Self {
            kernel: under(KERNEL)?,
            plain: under("di-plain")?,
            migrate: under("di-migrate")?,
            dino: under("dino")?,
        })
    }

    /// The three policies with their names, the weakest first.
    pub(super) fn policies(&self) -> [(&'static str, &Runs); 3] {
        [
            ("di-plain", &self.plain),
            ("di-migrate", &self.migrate),
            ("dino", &self.dino),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn improvements_are_in_percent_of_the_kernels_time() {
        let runs = |times: [[f64; 2]; 2]| Runs {
            times: times.map(|times| Sample(times.into())).into(),
            moves: vec![Sample(vec![0.0]); 2],
        };
        let kernel = runs([[90.0, 110.0], [50.0, 50.0]]);
        let other = runs([[80.0, 80.0], [60.0, 65.0]]);
        let close = |found: Vec<f64>, expected: [f64; 2]| {
            let pairs = found.iter().zip(expected);
            assert!(
                pairs
                    .into_iter()
                    .all(|(found, expected)| (found - expected).abs() < 1e-9)
            );
        };
        close(other.improvements(&kernel), [20.0, -25.0]);
        close(
            other.worst_improvements(&kernel),
            [100.0 * (1.0 - 8.0 / 11.0), -30.0],
        );
        close(kernel.deviations(), [200f64.sqrt(), 0.0]);
    }
}
