//! The combined results of several trials, policy by policy, as the papers report them.
//!
//! For each program, over all copies and repeats (DINO §5.2): the mean completion time, the longest
//! (worst case), and the standard deviation relative to the mean. For each policy, over all
//! programs: mean and worst slowdown, and the mean of the deviations. *Slowdown* is the completion
//! time divided by that alone on the machine. *Saved* against the first policy is the relative
//! reduction of its figure; negative if the figure is worse.

use serde::Serialize;

use crate::outcome::{JobOutcome, Outcome};
use crate::plan::Plan;
use crate::statistics::{largest, mean, relative_deviation};
use crate::table::saved;

/// A program under a policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProgramFigures {
    /// The program's name in the scenario.
    pub program: String,
    /// Completion time alone, in seconds.
    pub alone_s: f64,
    /// Mean completion time in seconds.
    pub mean_s: f64,
    /// Longest completion time in seconds.
    pub worst_s: f64,
    /// Standard deviation (n - 1) over mean; `None` for a single time.
    pub deviation: Option<f64>,
    /// Mean over alone.
    pub slowdown: f64,
    /// Mean time of a request in seconds, if it serves requests.
    pub request_s: Option<f64>,
    /// Thread moves between domains, per process and hour.
    pub thread_moves_per_hour: f64,
    /// Savings against the first policy.
    pub saved: Option<Saved>,
}

/// Savings against the first policy, relative to its figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saved {
    /// Of the mean: of completion times of a program, of slowdowns of a policy.
    pub mean: f64,
    /// Of the worst.
    pub worst: f64,
    /// Of the standard deviation; `None` if the first policy has none.
    pub deviation: Option<f64>,
    /// Of the time of a request.
    pub request: Option<f64>,
}

/// A policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyFigures {
    /// Its name.
    pub policy: String,
    /// Number of trials.
    pub trials: usize,
    /// Mean slowdown of the measured processes.
    pub slowdown: f64,
    /// The worst slowdown of one of them in any trial.
    pub worst_slowdown: f64,
    /// Mean of the programs' deviations; `None` if none has one.
    pub deviation: Option<f64>,
    /// Savings against the first policy.
    pub saved: Option<Saved>,
    /// Thread moves between domains of all processes, whoever caused them: mean per trial.
    pub thread_moves: f64,
    /// Thread moves that the policy ordered: mean per trial.
    pub thread_moves_ordered: f64,
    /// Base pages moved: mean per trial.
    pub pages_moved: f64,
    /// Thread moves between domains, per process and hour.
    pub thread_moves_per_hour: f64,
    /// Cache lines read from memory per 1000 instructions, of all processes.
    pub miss_rate: f64,
    /// Share of them from the core's own node; `None` when there were none.
    pub local_access_ratio: Option<f64>,
    /// The measured programs, in the scenario's order.
    pub programs: Vec<ProgramFigures>,
}

/// The figures of each policy, in their order; the first policy is the baseline.
pub fn figures(plan: &Plan, policies: &[String], trials: &[Outcome]) -> Vec<PolicyFigures> {
    let mut all: Vec<PolicyFigures> = Vec::new();
    for policy in policies {
        let own: Vec<&Outcome> = trials.iter().filter(|t| t.policy == *policy).collect();
        all.push(of_policy(plan, policy, &own, all.first()));
    }
    all
}

fn of_policy(
    plan: &Plan,
    policy: &str,
    trials: &[&Outcome],
    first: Option<&PolicyFigures>,
) -> PolicyFigures {
    let mut names: Vec<&str> = Vec::new();
    for (label, job) in plan.labels.iter().zip(&plan.jobs) {
        if job.measured && !names.contains(&label.program.as_str()) {
            names.push(&label.program);
        }
    }
    let programs: Vec<ProgramFigures> = names
        .iter()
        .map(|&name| {
            let base = first.and_then(|first| first.programs.iter().find(|p| p.program == name));
            of_program(plan, name, trials, base)
        })
        .collect();
    let jobs = || trials.iter().flat_map(|trial| &trial.jobs);
    let slowdowns = trials.iter().flat_map(|trial| {
        let jobs = trial.jobs.iter().zip(&plan.alone_s);
        jobs.filter_map(|(job, alone)| Some(job.seconds? / (*alone)?))
    });
    let slowdowns: Vec<f64> = slowdowns.collect();
    let (slowdown, worst_slowdown) = (mean(&slowdowns), largest(&slowdowns));
    let deviations: Vec<f64> = programs.iter().filter_map(|p| p.deviation).collect();
    let deviation = (!deviations.is_empty()).then(|| mean(deviations));
    let saved = first.map(|first| Saved {
        mean: 1.0 - slowdown / first.slowdown,
        worst: 1.0 - worst_slowdown / first.worst_slowdown,
        deviation: saved_of(deviation, first.deviation),
        request: None,
    });
    let by_trial = |value: &dyn Fn(&Outcome) -> f64| mean(trials.iter().map(|trial| value(trial)));
    let sum = |value: fn(&JobOutcome) -> f64| jobs().map(value).sum::<f64>();
    let (lines, remote) = (sum(|job| job.lines), sum(|job| job.remote_lines));
    PolicyFigures {
        policy: policy.to_owned(),
        trials: trials.len(),
        slowdown,
        worst_slowdown,
        deviation,
        saved,
        thread_moves: by_trial(&|t| t.jobs.iter().map(|job| job.thread_moves as f64).sum()),
        thread_moves_ordered: by_trial(&|trial| trial.thread_moves_ordered as f64),
        pages_moved: by_trial(&|t| t.jobs.iter().map(|job| job.pages_moved as f64).sum()),
        thread_moves_per_hour: moves_per_hour(trials, |_| true),
        miss_rate: lines * 1000.0 / sum(|job| job.instructions).max(1.0),
        local_access_ratio: (lines > 0.0).then(|| 1.0 - remote / lines),
        programs,
    }
}

fn of_program(
    plan: &Plan,
    name: &str,
    trials: &[&Outcome],
    base: Option<&ProgramFigures>,
) -> ProgramFigures {
    let is_own = |job: &JobOutcome| job.measured && job.label.program == name;
    let own = || {
        let jobs = trials.iter().flat_map(|trial| &trial.jobs);
        jobs.filter(|job| is_own(job))
    };
    let times: Vec<f64> = own().filter_map(|job| job.seconds).collect();
    let requests: Vec<f64> = own().filter_map(|job| job.request_s).collect();
    let labels = plan.labels.iter().zip(&plan.alone_s);
    let alone = labels.filter(|(label, _)| label.program == name);
    let alone_s = mean(alone.filter_map(|(_, alone)| *alone));
    let (mean_s, worst_s) = (mean(&times), largest(&times));
    let deviation = relative_deviation(&times);
    let request_s = (!requests.is_empty()).then(|| mean(requests));
    let saved = base.map(|base| Saved {
        mean: 1.0 - mean_s / base.mean_s,
        worst: 1.0 - worst_s / base.worst_s,
        deviation: saved_of(
            deviation.map(|share| share * mean_s / base.mean_s),
            base.deviation,
        ),
        request: saved_of(request_s, base.request_s),
    });
    ProgramFigures {
        program: name.to_owned(),
        alone_s,
        mean_s,
        worst_s,
        deviation,
        slowdown: mean_s / alone_s,
        request_s,
        thread_moves_per_hour: moves_per_hour(trials, is_own),
        saved,
    }
}

/// The saving in a figure that either policy may lack.
fn saved_of(ours: Option<f64>, first: Option<f64>) -> Option<f64> {
    saved(ours?, first?)
}

/// Thread moves between domains of the chosen processes, per process and hour.
fn moves_per_hour(trials: &[&Outcome], of: impl Fn(&JobOutcome) -> bool) -> f64 {
    let (mut moves, mut hours) = (0.0, 0.0);
    for trial in trials {
        for job in trial.jobs.iter().filter(|job| of(job)) {
            moves += job.thread_moves as f64;
            hours += trial.seconds / 3600.0;
        }
    }
    if hours > 0.0 { moves / hours } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Label;

    #[test]
    fn moves_are_counted_by_process_and_hour() {
        let job = |moves: u64| JobOutcome {
            label: Label {
                program: "p".to_owned(),
                copy: 0,
            },
            measured: true,
            seconds: Some(1.0),
            completions_s: Vec::new(),
            request_s: None,
            instructions: 1.0,
            lines: 0.0,
            remote_lines: 0.0,
            thread_moves: moves,
            pages_moved: 0,
        };
        let trial = Outcome {
            policy: "linux".to_owned(),
            repeat: 0,
            seed: 0,
            seconds: 1800.0,
            thread_moves_ordered: 0,
            refusals: [].into(),
            jobs: vec![job(10), job(20)],
        };
        // 30 moves of two processes in half an hour.
        assert_eq!(moves_per_hour(&[&trial], |_| true), 30.0);
        assert_eq!(moves_per_hour(&[], |_| true), 0.0);
    }
}
