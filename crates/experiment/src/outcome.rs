//! The result of one trial, job by job.

use numaherd_herd::Guard;
use numaherd_model::Until;
use serde::Serialize;
use std::collections::BTreeMap;

use crate::plan::{Label, Plan, runs_done};
use crate::scenario::Count;
use crate::statistics::mean;
use crate::{Ran, Trial};

/// One process of a scenario after a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobOutcome {
    /// Its name.
    #[serde(flatten)]
    pub label: Label,
    /// Whether it is measured.
    pub measured: bool,
    /// Its completion time in seconds, by the scenario's rule.
    pub seconds: Option<f64>,
    /// Completion times of all runs it completed, in seconds.
    pub completions_s: Vec<f64>,
    /// Mean time of one request in seconds, if it serves requests.
    pub request_s: Option<f64>,
    /// Instructions of its threads.
    pub instructions: f64,
    /// Cache lines read from memory.
    pub lines: f64,
    /// Of these, lines from other nodes.
    pub remote_lines: f64,
    /// Thread moves between memory domains, whoever caused them.
    pub thread_moves: u64,
    /// Base pages moved.
    pub pages_moved: u64,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The policy.
    pub policy: String,
    /// Number of the repeat, from 0.
    pub repeat: u32,
    /// Its seed.
    pub seed: u64,
    /// Modelled time in seconds.
    pub seconds: f64,
    /// Thread moves that the policy ordered.
    pub thread_moves_ordered: u64,
    /// The governor's refusals, by guard.
    pub refusals: BTreeMap<Guard, u64>,
    /// The processes, in the scenario's order.
    pub jobs: Vec<JobOutcome>,
}

impl Outcome {
    /// The outcome of a trial.
    pub fn of(plan: &Plan, count: Count, trial: &Trial, ran: &Ran) -> Self {
        let jobs = plan.jobs.iter().zip(&plan.labels).zip(&ran.work);
        let jobs = jobs.enumerate().map(|(at, ((job, label), work))| {
            let own = ran.completions.iter().filter(|run| run.job == at);
            let completions_s: Vec<f64> = own.map(|run| run.seconds()).collect();
            let seconds = match (plan.until, count) {
                (Until::Time(time), _) => {
                    let there = (time.saturating_sub(job.starts_after)).as_secs_f64();
                    let done = runs_done(&job.program, work.instructions);
                    (done > 0.0).then(|| there / done)
                }
                (Until::Completions(_), Count::First) => completions_s.first().copied(),
                (Until::Completions(_), Count::Second) => completions_s.get(1).copied(),
                (Until::Completions(_), Count::All) => {
                    let all = completions_s.iter().copied();
                    (!completions_s.is_empty()).then(|| mean(all))
                }
            };
            let request = job.program.request_instructions;
            JobOutcome {
                label: label.clone(),
                measured: job.measured,
                seconds,
                completions_s,
                request_s: request.and_then(|request| work.seconds_per_request(request)),
                instructions: work.instructions,
                lines: work.lines,
                remote_lines: work.remote_lines,
                thread_moves: work.thread_moves,
                pages_moved: work.pages_moved,
            }
        });
        Self {
            policy: trial.policy.clone(),
            repeat: trial.repeat,
            seed: trial.seed,
            seconds: ran.seconds,
            thread_moves_ordered: ran.summary.totals.thread_moves,
            refusals: ran.summary.totals.refusals.clone(),
            jobs: jobs.collect(),
        }
    }
}
