//! What `adaptive` must show on the model: the papers' suites compared with Linux, all seed policies and the joint
//! oracle, also in worlds whose physics differ from what the policy assumes.
//!
//! The *time* of a workload under a policy is the mean slowdown of its jobs, against each alone, as a share of
//! that under Linux from the same seed; that of a suite is the mean over its workloads and seeds.
//!
//! The *bound* is the joint oracle's time, or that of Linux where this is less. The oracle ignores the cost of
//! moving: if the phases of jobs change often, it moves threads and memory so often that leaving all in place takes
//! less time.

mod physics;

use std::collections::BTreeMap;

use anyhow::Result;
use numaherd_experiment::claims::{Measured, changes};
use numaherd_experiment::statistics::{largest, mean};
use numaherd_model::{Job, alone};
use numaherd_policy::placement::sharing::Evidence;
use numaherd_topology::CpuId;
use rayon::prelude::*;

use super::ipm::setup::{Platform, Played, Plays, Run, Setup};
use super::testbed::{Effort, KERNEL, Suite, Testbed, Workload, improvement, increase};
use super::traces::{Traces, few, where_recorded};
use super::{brm, dino, nmass};

const ADAPTIVE: &str = "adaptive";
const BOUND: &str = "joint-oracle";
/// The policies of the papers, and older or simpler ones, as far as the model has the signals that they use.
const SEEDS: [&str; 9] = [
    "homeward",
    "interleave",
    "maximum-local",
    "n-mass",
    "di-plain",
    "di-migrate",
    "dino",
    "brm",
    "ipm",
];

/// Times of a suite's workloads under each policy, as shares of those under Linux.
type Times = BTreeMap<&'static str, Vec<f64>>;

/// Modelled seconds that stand for the papers' hour: a policy that must learn first finds shorter runs harder.
const HOUR_S: f64 = 300.0;
/// How often a trace is played; its set-up is played once, and takes about half of the first time.
const LOOPS: u32 = 2;
/// Layouts that the joint oracle tries at each turn, so that a suite takes minutes.
const LAYOUTS: usize = 1000;

/// A quarter of the runs, and minutes in place of an hour.
pub fn effort(of_others: &Effort) -> Effort {
    Effort::new(of_others.runs.div_ceil(4), of_others.hour_s.min(HOUR_S))
}

/// Runs all experiments.
///
/// # Errors
/// A machine or program is unknown, or a run fails.
pub fn measure(effort: &Effort, traces: &Traces) -> Result<Measured> {
    let mut suites = dino::suites(effort)?;
    suites.extend(nmass::suites(effort)?);
    suites.extend(brm::suites(effort)?);
    let mut measured = Measured::new();
    for suite in &mut suites {
        suite.testbed = suite.testbed.with(|settings| {
            // The model has no TLBs.
            settings.ipm.evidence = Evidence::Samples;
            settings.oracle.layouts = LAYOUTS;
        });
        measured.append(as_described(suite, effort)?);
        measured.append(perturbed(suite, effort)?);
    }
    measured.append(where_recorded(on_traces(effort, traces))?);
    Ok(measured)
}

/// IPM's programs, with eight threads, on two of its machines: time against first touch, and its gain as a share of
/// what the oracle gains, which places threads and pages by the whole trace.
fn on_traces(effort: &Effort, traces: &Traces) -> Result<Measured> {
    let plays = Plays::new(traces);
    let setup = Setup::new(&plays, effort.seeds(), 0);
    let kernels = few();
    let (mut losses, mut gains, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for platform in [Platform::Simics, Platform::Itanium] {
        let under = |policy| {
            let runs = kernels.iter().map(|kernel| {
                let run = Run::new(platform, kernel, policy)?;
                Ok(run.with(|options| options.loops = LOOPS))
            });
            setup.run(runs.collect::<Result<_>>()?)
        };
        let (kernel, adaptive, bound) = (under(KERNEL)?, under(ADAPTIVE)?, under("oracle")?);
        for (at, of) in kernels.iter().enumerate() {
            let name = format!("{} on {platform:?}", of.name);
            let saved = |played: &Played| improvement(kernel[at].time, played.time);
            losses.push((name, -saved(&adaptive[at])));
            gains.push(saved(&adaptive[at]));
            bounds.push(saved(&bound[at]));
        }
    }
    let mut measured = Measured::new();
    measured.figure("traces-kernel", largest(losses.iter().map(|one| one.1)));
    measured.figure("traces-bound", mean(&gains) / mean(&bounds) * 100.0);
    let each = losses.iter().zip(&bounds);
    let each = each.map(|((name, loss), bound)| format!("{name} {:+.1} of {bound:+.1}", -loss));
    measured.detail("traces-programs", each.collect::<Vec<_>>().join(", "));
    Ok(measured)
}

/// A suite on the machine as it is described.
fn as_described(suite: &Suite, effort: &Effort) -> Result<Measured> {
    let policies: Vec<_> = SEEDS.into_iter().chain([ADAPTIVE, BOUND]).collect();
    let times = times(&suite.testbed, &suite.workloads, &policies, &effort.seeds())?;
    let of = |policy: &str| mean(&times[policy]);
    let best = SEEDS.into_iter().min_by(|a, b| of(a).total_cmp(&of(b)));
    let best = best.expect("there are seeds");
    let name = suite.name;
    let mut measured = Measured::new();
    measured.figure(format!("{name}-best"), increase(of(best), of(ADAPTIVE)));
    measured.figure(format!("{name}-bound"), behind(&times));
    measured.figure(format!("{name}-kernel"), worst(&times));
    let all = policies
        .iter()
        .map(|&policy| (policy, improvement(1.0, of(policy))));
    measured.detail(format!("{name}-policies"), changes(all, 1));
    measured.detail(format!("{name}-workloads"), by_workload(suite, &times));
    Ok(measured)
}

/// The same in worlds that differ from the description.
fn perturbed(suite: &Suite, effort: &Effort) -> Result<Measured> {
    let mut all = Times::new();
    for world in effort.seeds() {
        let (testbed, workloads) = physics::perturbed(suite, world)?;
        for (policy, times) in times(&testbed, &workloads, &[ADAPTIVE, BOUND], &[world])? {
            all.entry(policy).or_default().extend(times);
        }
    }
    let name = suite.name;
    let mut measured = Measured::new();
    measured.figure(format!("{name}-other-worlds-bound"), behind(&all));
    measured.figure(format!("{name}-other-worlds-kernel"), worst(&all));
    Ok(measured)
}

/// By how much `adaptive` is slower than the bound, in percent of the bound's time.
fn behind(times: &Times) -> f64 {
    increase(mean(&times[ADAPTIVE]), mean(&times[BOUND]))
}

/// By how much `adaptive` is slower than Linux in the worst workload, in percent.
fn worst(times: &Times) -> f64 {
    largest(times[ADAPTIVE].iter().map(|time| increase(*time, 1.0)))
}

/// What `adaptive` and the bound save in each workload.
fn by_workload(suite: &Suite, times: &Times) -> String {
    let each = suite.workloads.iter().enumerate().map(|(at, (name, _))| {
        let [adaptive, bound] = [ADAPTIVE, BOUND].map(|policy| improvement(1.0, times[policy][at]));
        format!("{name} {adaptive:+.1} of {bound:+.1}")
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The times of workloads under policies, mean over the seeds; that under the joint oracle is the bound.
fn times(
    testbed: &Testbed,
    workloads: &[(String, Workload)],
    policies: &[&'static str],
    seeds: &[u64],
) -> Result<Times> {
    let mut all = Times::new();
    for &policy in policies {
        let time = |(_, workload): &(String, Workload)| {
            let of_seed = |&seed: &u64| {
                let under = |policy| slowdown(testbed, policy, workload, seed);
                let time = under(policy)? / under(KERNEL)?;
                Ok(if policy == BOUND { time.min(1.0) } else { time })
            };
            let times = seeds.iter().map(of_seed);
            Ok(mean(times.collect::<Result<Vec<f64>>>()?))
        };
        let times = workloads.par_iter().map(time);
        all.insert(policy, times.collect::<Result<_>>()?);
    }
    Ok(all)
}

/// The mean slowdown of a workload's jobs, against each alone.
fn slowdown(testbed: &Testbed, policy: &str, workload: &Workload, seed: u64) -> Result<f64> {
    let ran = testbed.run(policy, workload, seed)?;
    let of = |(job, work): (&Job, &numaherd_model::Work)| {
        let phases = job.program.phases.iter();
        let alone = |phase| alone(&testbed.hardware, phase, CpuId(0)).ns;
        let alone: f64 = phases.map(|phase| phase.instructions * alone(phase)).sum();
        ran.seconds * 1e12 / work.instructions / (alone / job.program.instructions())
    };
    Ok(mean(workload.jobs.iter().zip(&ran.work).map(of)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_experiment::claims::{Claims, Paper};

    #[test]
    fn the_bound_is_at_most_the_time_under_linux_where_the_joint_oracle_takes_longer() {
        let effort = Effort::new(1, 60.0);
        let mut suites = dino::suites(&effort).unwrap();
        let suite = (suites.iter_mut().find(|suite| suite.name == "dino-mpi")).unwrap();
        suite.testbed = (suite.testbed).with(|settings| settings.oracle.layouts = 100);
        suite.workloads.retain(|(name, _)| name == "137.lu");
        let (_, workload) = &suite.workloads[0];
        let under = |policy| slowdown(&suite.testbed, policy, workload, 0).unwrap();
        assert!(under(BOUND) > under(KERNEL));
        let times = times(&suite.testbed, &suite.workloads, &[BOUND], &[0]).unwrap();
        assert_eq!(times[BOUND], [1.0]);
    }

    #[test]
    fn every_claim_has_a_figure_and_every_figure_a_claim() {
        let folder = tempfile::tempdir().unwrap();
        let traces = super::super::traces::made::all(folder.path());
        let effort = Effort::new(1, 6.0);
        let claims = Claims::built_in(Paper::Adaptive).unwrap();
        let lines = claims.judge(&measure(&effort, &traces).unwrap()).unwrap();
        assert_eq!(lines.len(), claims.claims.len());
    }
}
