//! The trials of an experiment: each policy, several times.

use std::fs;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use numaherd_policy::registry;
use rayon::prelude::*;

use crate::scenario::{MOST_REPEATS, Ours};
use crate::{ExperimentError, Scenario, Trial, World};

/// The user's choices, which override the scenario's.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The policies to compare, the baseline first; empty for the scenario's.
    pub policies: &'a [String],
    /// The number of runs of each policy.
    pub repeat: Option<u32>,
    /// Seed of the first repeat.
    pub seed: u64,
    /// The folder for a ledger of each trial; it is created.
    pub ledgers: Option<&'a Path>,
}

/// The trials of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trials {
    /// The policies, each once, the baseline first.
    pub policies: Vec<String>,
    /// The number of runs of each policy.
    pub repeat: u32,
    all: Vec<Trial>,
}

impl Trials {
    /// The trials of a scenario, ordered by policy.
    ///
    /// # Errors
    /// A policy is unknown (the message names the nearest), or the folder for ledgers cannot be created.
    pub fn of(scenario: &Scenario, asked: &Asked<'_>) -> Result<Self, ExperimentError> {
        let others = scenario.world.other_policies();
        let names = match asked.policies {
            [] => &scenario.policies,
            asked => asked,
        };
        let mut policies: Vec<String> = Vec::new();
        for name in names.iter().map(|name| name.trim()) {
            if !others.contains(&name) {
                let policy = match scenario.world {
                    World::Lab => Ours::of(name).policy,
                    World::Model | World::Trace => name,
                };
                registry::halves(policy)?;
            }
            if !policies.iter().any(|known| known == name) {
                policies.push(name.to_owned());
            }
        }
        if let Some(folder) = asked.ledgers {
            fs::create_dir_all(folder).map_err(|why| ExperimentError::Ledgers {
                folder: folder.to_owned(),
                why,
            })?;
        }
        let repeat = asked.repeat.unwrap_or(scenario.repeat).min(MOST_REPEATS);
        let trial = |policy: &String, at: u32| Trial {
            policy: policy.clone(),
            repeat: at,
            seed: asked.seed.wrapping_add(at.into()),
            ledger: asked
                .ledgers
                .map(|folder| folder.join(format!("{policy}.{at}.ledger"))),
        };
        let of_policy = |policy| (0..repeat).map(move |at| trial(policy, at));
        let all = policies.iter().flat_map(of_policy).collect();
        Ok(Self {
            policies,
            repeat,
            all,
        })
    }

    /// Runs all trials on all cores, with a progress bar. Returns the results in the trials' order.
    ///
    /// # Errors
    /// The first error of a trial.
    pub fn run<T: Send>(
        &self,
        run: impl Fn(&Trial) -> Result<T, ExperimentError> + Sync,
    ) -> Result<Vec<T>, ExperimentError> {
        let bar = progress(self.all.len() as u64);
        let given = self.all.par_iter().map(|trial| {
            let given = run(trial)?;
            bar.inc(1);
            Ok(given)
        });
        let given = given.collect();
        bar.finish_and_clear();
        given
    }

    /// Repeat number `at` of all policies; empty beyond the last.
    pub fn round(&self, at: u32) -> impl DoubleEndedIterator<Item = &Trial> {
        self.all.iter().filter(move |trial| trial.repeat == at)
    }

    /// Each policy with its trials' results, from the results of [`Trials::run`].
    pub fn by_policy<'a, T>(&'a self, given: &'a [T]) -> impl Iterator<Item = (&'a str, &'a [T])> {
        let policies = self.policies.iter().map(String::as_str);
        policies.zip(given.chunks(self.repeat.max(1) as usize))
    }
}

/// A progress bar on standard error, if that is a terminal.
pub fn progress(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} (about {eta} left) {msg}");
    bar.set_style(style.expect("the template is right"));
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    #[test]
    fn trials_are_policy_by_policy_or_round_by_round() {
        let scenario = Scenario::find("web-service", World::Model).unwrap();
        let policies = ["linux", " dino", "linux"].map(str::to_owned);
        let asked = Asked {
            policies: &policies,
            repeat: Some(2),
            seed: 7,
            ledgers: None,
        };
        let trials = Trials::of(&scenario, &asked).unwrap();
        let all = trials.run(|trial| Ok((trial.policy.clone(), trial.seed)));
        let all = all.unwrap();
        let expected = [("linux", 7), ("linux", 8), ("dino", 7), ("dino", 8)];
        assert_eq!(all, expected.map(|(name, seed)| (name.to_owned(), seed)));
        let round = trials
            .round(1)
            .map(|trial| (trial.policy.as_str(), trial.seed));
        assert!(round.eq([("linux", 8), ("dino", 8)]));
        assert_eq!(trials.round(2).count(), 0);
        let (name, given) = trials.by_policy(&all).last().unwrap();
        assert_eq!((name, given), ("dino", &all[2..]));
    }
}
