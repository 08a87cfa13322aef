//! The result of one trial in the lab, and summaries of several.

use std::fmt;

use numaherd_experiment::Trial;
use numaherd_experiment::in_lab::Better;
use numaherd_experiment::statistics::{deviation, mean};
use numaherd_lab_launcher as launcher;
use numaherd_quantity::statistics::Mean;
use serde::{Deserialize, Serialize, Serializer};

use super::is_ours;

/// One process of a scenario, as it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    /// Its name in the scenario.
    pub name: String,
    /// The number of the copy, from 0.
    pub copy: u32,
    /// Whether its completion time counts.
    pub measured: bool,
    /// Seconds from the start of its measured part to its end.
    pub seconds: f64,
    /// Mean of its threads' run times in seconds, which differ where they do not wait for each other.
    pub mean_thread_seconds: f64,
    /// Whether it did all of its work, or was ended when the measured programs had.
    pub complete: bool,
    /// How often its threads were moved to another CPU, where the kernel reports it.
    pub thread_moves: Option<u64>,
    /// What is measured of it, where that is not its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure: Option<f64>,
}

impl ProgramResult {
    /// What is compared: its figure, or its time in seconds.
    fn compared(&self) -> f64 {
        self.figure.unwrap_or(self.seconds)
    }
}

/// A trial that gave no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// How far the trial had come.
    pub at: Step,
    /// Which program, which step, and why.
    pub error: String,
}

impl Failure {
    /// The failure of a trial that ended in an error.
    pub fn of(error: anyhow::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self {
            at: match error.downcast_ref() {
                Some(launcher::Error::NoBoot { .. }) => Step::Boot,
                _ => Step::Measured,
            },
            error: format!("{error:#}"),
        })
    }
}

/// A part of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// There is no guest.
    Boot,
    /// The policy or peer cannot run in this guest; nothing was started.
    Peer,
    /// Programs are set up: what places threads and pages has no part in it.
    SetUp,
    /// Time is modelled.
    Measured,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl std::error::Error for Failure {}

/// One run of a scenario under one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What placed threads and pages; the reader of a file sets it.
    #[serde(rename = "contender", skip_deserializing, serialize_with = "contender")]
    pub policy: String,
    /// Version and settings of that, where its name and the kernel's version do not say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// The processes.
    pub programs: Vec<ProgramResult>,
    /// Cache lines fetched from memory per 1000 instructions, over all threads of the scenario,
    /// prefetches included.
    pub misses_per_1000_instructions: Option<f64>,
    /// Share of those lines that came from the node of the core.
    pub local_access_ratio: Option<f64>,
    /// Core cycles in which requests to the uncore were outstanding, per request (BRM §3.1), over all
    /// threads of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncore_penalty: Option<f64>,
    /// Moves of threads that the policy ordered (none where there is no policy of ours).
    pub thread_moves_ordered: u64,
    /// Base pages that the policy moved, as read back.
    pub pages_moved_ordered: u64,
    /// Base pages that the kernel moved between nodes, on any request (`pgmigrate_success`).
    pub pages_moved: u64,
}

impl Outcome {
    fn measured(&self) -> impl Iterator<Item = &ProgramResult> {
        self.programs.iter().filter(|program| program.measured)
    }

    /// Mean of what is measured of the programs.
    pub fn mean(&self) -> f64 {
        mean(self.measured().map(ProgramResult::compared))
    }

    /// The worst that is measured of a program.
    fn worst(&self, better: Better) -> f64 {
        let worst = self.measured().map(ProgramResult::compared);
        worst_of(worst, better)
    }

    /// Moves of threads to another CPU, over all programs.
    pub fn thread_moves(&self) -> Option<u64> {
        self.programs
            .iter()
            .map(|program| program.thread_moves)
            .sum()
    }
}

fn worst_of(figures: impl Iterator<Item = f64>, better: Better) -> f64 {
    match better {
        Better::Lower => figures.fold(f64::NEG_INFINITY, f64::max),
        Better::Higher => figures.fold(f64::INFINITY, f64::min),
    }
}

/// What places threads and pages as files have it: a peer by its name, others as `{"policy": "dino"}`.
fn contender<S: Serializer>(policy: &str, to: S) -> Result<S::Ok, S::Error> {
    match is_ours(policy) {
        false => to.serialize_str(policy),
        true => to.serialize_newtype_variant("Policy", 0, "policy", policy),
    }
}

/// A trial that gave no figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// What should have placed threads and pages.
    #[serde(rename = "contender", serialize_with = "contender")]
    pub policy: String,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Why there are none.
    pub error: String,
}

/// The results of a scenario on one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// The kernel's release.
    pub kernel: String,
    /// What was compared, in order.
    pub policies: Vec<String>,
    /// How many trials of each were asked for.
    pub repeat: u32,
    /// The trials that gave figures.
    pub outcomes: Vec<Outcome>,
    /// Those that did not.
    pub failed: Vec<Failed>,
    /// What cannot run on this kernel or machine, and why.
    pub cannot_run: Vec<Failed>,
}

impl Failed {
    /// A failed trial, and why.
    pub fn of(trial: &Trial, error: String) -> Self {
        Self {
            policy: trial.policy.clone(),
            repeat: trial.repeat,
            error,
        }
    }
}

impl Results {
    /// Adds the result of a trial.
    pub fn take(&mut self, trial: &Trial, made: Result<Outcome, Failure>) {
        match made {
            Ok(outcome) => self.outcomes.push(outcome),
            Err(Failure {
                at: Step::Peer,
                error,
            }) => self.cannot_run.push(Failed::of(trial, error)),
            Err(failure) => self.failed.push(Failed::of(trial, failure.error)),
        }
    }

    /// How many trials were not made, though they could be.
    pub fn missing(&self) -> usize {
        let all = (self.policies.len() - self.cannot_run.len()) * self.repeat as usize;
        all.saturating_sub(self.outcomes.len() + self.failed.len())
    }

    /// The sums of all policies that gave figures, in order.
    pub fn summaries(&self, better: Better) -> Vec<Summary> {
        let policies = self.policies.iter();
        let summary = |policy: &String| Summary::of(policy, &self.outcomes, better);
        policies.filter_map(summary).collect()
    }
}

/// All trials of one policy.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// What placed threads and pages.
    #[serde(rename = "contender")]
    pub policy: String,
    /// Its version and settings, where its name and the kernel's version do not say them.
    pub settings: Option<String>,
    /// How many trials ended well.
    pub trials: usize,
    /// Mean of what is measured: of the trials' means.
    pub mean: f64,
    /// The worst that is measured of any program.
    pub worst: f64,
    /// Standard deviation of the trials' means (n - 1); `None` for a single trial.
    pub deviation: Option<f64>,
    /// Half of the 95 % confidence interval of the mean (Student's t); `None` for a single trial.
    pub interval: Option<f64>,
    /// Mean over the trials, where it could be measured in all.
    pub misses_per_1000_instructions: Option<f64>,
    /// Mean over the trials, where it could be measured in all.
    pub local_access_ratio: Option<f64>,
    /// Mean moves of threads to another CPU per trial, by anyone.
    pub thread_moves: Option<f64>,
    /// Mean moves of threads per trial that the policy ordered.
    pub thread_moves_ordered: f64,
    /// Mean base pages moved per trial, by anyone.
    pub pages_moved: f64,
    /// Mean base pages moved per trial that the policy ordered.
    pub pages_moved_ordered: f64,
}

impl Summary {
    /// Sums up the trials of one policy; `None` when there are none.
    pub fn of(policy: &str, all: &[Outcome], better: Better) -> Option<Self> {
        let own: Vec<&Outcome> = all.iter().filter(|one| one.policy == policy).collect();
        if own.is_empty() {
            return None;
        }
        let over = |value: &dyn Fn(&Outcome) -> f64| mean(own.iter().map(|trial| value(trial)));
        let if_all = |value: &dyn Fn(&Outcome) -> Option<f64>| {
            let values: Option<Vec<f64>> = own.iter().map(|trial| value(trial)).collect();
            values.map(mean)
        };
        let means: Vec<f64> = own.iter().map(|trial| trial.mean()).collect();
        let worst = own.iter().map(|trial| trial.worst(better));
        Some(Self {
            policy: policy.to_owned(),
            settings: own[0].settings.clone(),
            trials: own.len(),
            mean: mean(&means),
            worst: worst_of(worst, better),
            deviation: deviation(&means),
            interval: Mean::of(&means).and_then(|mean| mean.half),
            misses_per_1000_instructions: if_all(&|trial| trial.misses_per_1000_instructions),
            local_access_ratio: if_all(&|trial| trial.local_access_ratio),
            thread_moves: if_all(&|trial| trial.thread_moves().map(|moves| moves as f64)),
            thread_moves_ordered: over(&|trial| trial.thread_moves_ordered as f64),
            pages_moved: over(&|trial| trial.pages_moved as f64),
            pages_moved_ordered: over(&|trial| trial.pages_moved_ordered as f64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(policy: &str, repeat: u32, seconds: [f64; 2], local: Option<f64>) -> Outcome {
        let program = |copy: u32, seconds: f64, measured: bool| ProgramResult {
            name: if measured {
                "devil".into()
            } else {
                "turtle".into()
            },
            copy,
            measured,
            seconds,
            mean_thread_seconds: seconds,
            complete: measured,
            thread_moves: Some(3),
            figure: None,
        };
        Outcome {
            policy: policy.to_owned(),
            settings: None,
            repeat,
            programs: vec![
                program(0, seconds[0], true),
                program(1, seconds[1], true),
                program(0, 100.0, false),
            ],
            misses_per_1000_instructions: Some(10.0),
            local_access_ratio: local,
            uncore_penalty: None,
            thread_moves_ordered: 2,
            pages_moved_ordered: 0,
            pages_moved: 4096,
        }
    }

    #[test]
    fn a_summary_is_of_measured_programs_and_of_one_policy() {
        let trials = [
            trial("dino", 0, [4.0, 6.0], Some(0.5)),
            trial("dino", 1, [6.0, 8.0], Some(1.0)),
            trial("linux", 0, [50.0, 50.0], Some(0.1)),
        ];
        let summary = Summary::of("dino", &trials, Better::Lower).unwrap();
        assert_eq!(summary.trials, 2);
        assert_eq!(summary.mean, 6.0);
        assert_eq!(summary.worst, 8.0);
        assert_eq!(summary.deviation, Some(2.0_f64.sqrt()));
        // Student's t of one degree of freedom is 12.706, the standard error 1.
        assert!((summary.interval.unwrap() - 12.706).abs() < 1e-3);
        assert_eq!(summary.local_access_ratio, Some(0.75));
        assert_eq!(summary.thread_moves, Some(9.0));
        assert_eq!(Summary::of("numad", &trials, Better::Lower), None);
    }

    #[test]
    fn a_figure_that_one_trial_lacks_is_not_made_up_from_the_others() {
        let trials = [
            trial("linux", 0, [1.0, 1.0], None),
            trial("linux", 1, [1.0, 1.0], Some(0.5)),
        ];
        let summary = Summary::of("linux", &trials, Better::Lower).unwrap();
        assert_eq!(summary.local_access_ratio, None);
        let single = Summary::of("linux", &trials[..1], Better::Lower).unwrap();
        assert_eq!(single.deviation, None);
    }

    #[test]
    fn where_a_figure_is_measured_it_is_compared_and_the_worst_is_the_lowest_rate() {
        let mut trials = [
            trial("linux", 0, [1.0, 1.0], None),
            trial("linux", 1, [1.0, 1.0], None),
        ];
        for (number, figure) in [100.0, 300.0, 500.0, 700.0].into_iter().enumerate() {
            trials[number / 2].programs[number % 2].figure = Some(figure);
        }
        let summary = Summary::of("linux", &trials, Better::Higher).unwrap();
        assert_eq!((summary.mean, summary.worst), (400.0, 100.0));
    }
}
