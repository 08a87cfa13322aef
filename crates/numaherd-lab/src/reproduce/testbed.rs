//! What the papers' experiments share: how much is run, a paper's machine on the contention model, and a memo
//! of runs.
//!
//! Policies act as they were published ([`numaherd_experiment::Settings::as_published`]): nothing limits or undoes what they decide.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use numaherd_experiment::claims::{Measured, jackknife};
use numaherd_experiment::statistics::{Sample, mean};
use numaherd_experiment::{OnModel, Ran, Trial, World, as_published};
use numaherd_herd::Herd;
use numaherd_herd::ledger::{Line, Record};
use numaherd_model::program::Phase;
use numaherd_model::{Hardware, Job, Library, Model, Options, Program, Until, alone};
use numaherd_policy::{Settings, registry};
use numaherd_topology::{CpuId, Machine, NodeId};
use rayon::prelude::*;

/// Stands for the papers' default schedulers: the modelled kernel's own placement.
pub const KERNEL: &str = "linux";

/// The programs of CPU2006 (FACTS 1.1). The papers leave some out without naming them.
pub fn cpu2006() -> impl Iterator<Item = &'static str> {
    "perlbench bzip2 gcc bwaves gamess mcf milc zeusmp gromacs cactusADM leslie3d namd gobmk \
     dealII soplex povray calculix hmmer sjeng GemsFDTD libquantum h264ref tonto lbm omnetpp \
     astar wrf sphinx3 xalancbmk"
        .split_whitespace()
}

/// How much is run. Experiments on traces run once in any case: chance is only in where the kernel starts
/// threads, and it is the same for all policies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effort {
    /// Runs of each experiment with chance in it, each with its own seed; 10 in the papers.
    pub runs: u32,
    /// Modelled seconds of experiments of a fixed time; 3600 in the papers.
    pub hour_s: f64,
    /// A seed that is left out: see [`Effort::with_intervals`].
    without: Option<u64>,
}

impl Effort {
    /// As in the papers.
    pub const FULL: Self = Self {
        runs: 10,
        hour_s: 3600.0,
        without: None,
    };
    /// For a first look: figures with chance in them are less accurate.
    pub const QUICK: Self = Self {
        runs: 2,
        hour_s: 900.0,
        without: None,
    };

    /// So many runs, and so many modelled seconds.
    pub const fn new(runs: u32, hour_s: f64) -> Self {
        Self {
            runs,
            hour_s,
            without: None,
        }
    }

    /// So many runs, if there are more.
    pub fn at_most(self, runs: u32) -> Self {
        let runs = self.runs.min(runs);
        Self { runs, ..self }
    }

    /// The seeds of the runs.
    pub fn seeds(&self) -> Vec<u64> {
        let seeds = 0..u64::from(self.runs);
        seeds.filter(|&seed| Some(seed) != self.without).collect()
    }

    /// What an experiment measures, with the 95 % confidence interval of each margin, by the delete-one jackknife: the
    /// experiment is made again without each of the runs. A [`Testbed`] runs what it ran before only once. Without
    /// intervals where there are fewer than three runs.
    ///
    /// # Errors
    /// Those of `experiment`.
    pub fn with_intervals(
        &self,
        experiment: impl Fn(&Self) -> Result<Measured>,
    ) -> Result<Measured> {
        let measured = experiment(self)?;
        if self.runs < 3 {
            return Ok(measured);
        }
        let left_out = |seed| {
            let without = Some(seed);
            experiment(&Self { without, ..*self })
        };
        let replicates = self.seeds().into_iter().map(left_out);
        Ok(measured.with_replicates(&replicates.collect::<Result<Vec<_>>>()?))
    }

    /// A part of the hour.
    pub fn part_of_hour(&self, part: f64) -> Until {
        Until::Time(std::time::Duration::from_secs_f64(self.hour_s * part))
    }
}

/// Figures of so many runs with half of their 95 % intervals, as [`Effort::with_intervals`] has them: `3.1 ± 0.4`.
/// `figures` gives them for runs by their place.
fn shown(decimals: usize, runs: usize, figures: impl Fn(&[usize]) -> Vec<f64>) -> Vec<String> {
    let all: Vec<usize> = (0..runs).collect();
    let without = |left_out| {
        let others = all.iter().copied().filter(|&run| run != left_out);
        figures(&others.collect::<Vec<_>>())
    };
    let replicates: Vec<Vec<f64>> = match runs {
        0..3 => Vec::new(),
        _ => (0..runs).map(without).collect(),
    };
    let show = |(at, figure): (usize, f64)| {
        let without: Vec<f64> = replicates.iter().map(|one| one[at]).collect();
        let half = jackknife(&without).map(|half| format!(" ± {half:.decimals$}"));
        format!("{figure:.decimals$}{}", half.unwrap_or_default())
    };
    figures(&all).into_iter().enumerate().map(show).collect()
}

/// A row of a table: what it is of, and the figures of the effort's runs as [`shown`] gives them.
pub fn row_of_runs(
    name: String,
    effort: &Effort,
    figures: impl Fn(&[usize]) -> Vec<f64>,
) -> Vec<String> {
    let shown = shown(1, effort.seeds().len(), figures);
    [name].into_iter().chain(shown).collect()
}

/// How a row is called by how many seconds pass before something happens; 0 is never.
pub fn after(seconds: f64) -> String {
    match seconds {
        0.0 => "never".to_owned(),
        seconds => format!("{seconds} s"),
    }
}

/// A sample of these runs alone.
pub fn of_runs(sample: &Sample, runs: &[usize]) -> Sample {
    Sample(runs.iter().map(|&run| sample.0[run]).collect())
}

/// Results by what was run, so that a run that several experiments need happens once.
#[derive(Debug)]
pub struct Memo<K, T>(Mutex<HashMap<K, Arc<T>>>);

impl<K, T> Default for Memo<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T> Memo<K, T> {
    /// The result for a key, computed if it is new. Two threads that ask at the same time may both compute it.
    ///
    /// # Errors
    /// Those of `compute`.
    pub fn get(&self, key: K, compute: impl FnOnce() -> Result<T>) -> Result<Arc<T>> {
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = known().get(&key) {
            return Ok(result.clone());
        }
        let result = Arc::new(compute()?);
        Ok(known().entry(key).or_insert(result).clone())
    }
}

/// What runs, until when, and how the model runs it; the seed is each run's own.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The jobs.
    pub jobs: Vec<Job>,
    /// When a run ends.
    pub until: Until,
    /// The model's options.
    pub options: Options,
}

impl Workload {
    /// Jobs with the model's defaults.
    pub fn new(jobs: Vec<Job>, until: Until) -> Self {
        Self {
            jobs,
            until,
            options: Options::default(),
        }
    }
}

/// Workloads of a paper on its machine, each with its name.
#[derive(Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// The machine.
    pub testbed: Testbed,
    /// What runs on it.
    pub workloads: Vec<(String, Workload)>,
}

/// A paper's machine, and runs on it.
#[derive(Debug)]
pub struct Testbed {
    /// The machine.
    pub hardware: Hardware,
    /// The policies' settings.
    pub policies: Settings,
    programs: Arc<Library>,
    /// Options of the model that every workload has.
    model: toml::Table,
    /// By policy and workload, as text, and by seed.
    runs: Memo<(Arc<str>, u64), Ran>,
}

impl Testbed {
    /// A machine, programs for it, and options of the model that every workload has.
    ///
    /// # Errors
    /// The model cannot run the machine, or has no such options.
    pub fn new(machine: &Machine, programs: Arc<Library>, model: toml::Table) -> Result<Self> {
        let options = Options::default().with(&model)?;
        Ok(Self {
            hardware: Hardware::of(machine)?.with(&options),
            policies: Settings::default(),
            programs,
            model,
            runs: Memo::default(),
        })
    }

    /// A program.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn program(&self, name: &str) -> Result<&Arc<Program>> {
        Ok(self.programs.get(name)?)
    }

    /// What a program of one phase does.
    ///
    /// # Errors
    /// As [`Self::program`].
    pub fn phase(&self, name: &str) -> Result<&Phase> {
        Ok(&self.program(name)?.phases[0])
    }

    /// The same machine with other settings of the policies.
    pub fn with(&self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut policies = self.policies.clone();
        change(&mut policies);
        Self {
            hardware: self.hardware.clone(),
            policies,
            programs: self.programs.clone(),
            model: self.model.clone(),
            runs: Memo::default(),
        }
    }

    /// The CPUs of a node, in their order.
    pub fn cpus(&self, node: NodeId) -> Vec<CpuId> {
        let cpus = self.hardware.topology().cpus().iter();
        let cpus = cpus.filter(|cpu| cpu.node == node);
        cpus.map(|cpu| cpu.id).collect()
    }

    /// One run under a policy.
    ///
    /// # Errors
    /// The policy is unknown, or the jobs cannot run.
    pub fn run(&self, policy: &str, workload: &Workload, seed: u64) -> Result<Arc<Ran>> {
        let mut runs = self.runs(policy, workload, &[seed])?;
        Ok(runs.remove(0))
    }

    fn run_once(
        &self,
        policy: &str,
        workload: &Workload,
        key: (Arc<str>, u64),
    ) -> Result<Arc<Ran>> {
        let seed = key.1;
        self.runs.get(key, || {
            let settings = numaherd_experiment::Settings {
                policies: self.policies.clone(),
                model: workload.options.with(&self.model)?,
                ..numaherd_experiment::Settings::as_published(World::Model)
            };
            let on_model = OnModel {
                hardware: &self.hardware,
                jobs: &workload.jobs,
                until: workload.until,
                settings: &settings,
            };
            let trial = Trial {
                seed,
                ..Trial::of(policy)
            };
            Ok(on_model.run(&trial)?)
        })
    }

    /// One run under a policy, and what the herd decides in it, as it comes. The model at its end.
    ///
    /// # Errors
    /// As [`Testbed::run`].
    pub fn watch(
        &self,
        policy: &str,
        workload: &Workload,
        seed: u64,
        mut watcher: impl FnMut(&Record),
    ) -> Result<Model> {
        let options = Options {
            seed,
            ..workload.options.with(&self.model)?
        };
        let jobs = workload.jobs.clone();
        let mut model = Model::new(self.hardware.clone(), jobs, workload.until, options)?;
        let settings = numaherd_herd::Settings {
            seed,
            record_interval_ms: 0,
            ..as_published()
        };
        Herd::new(&mut model, registry::build(policy, &self.policies)?)
            .settings(settings)
            .watched(|line: &Line| watcher(&line.record))
            .run(&AtomicBool::new(false))
            .with_context(|| format!("cannot run {policy} on the model"))?;
        Ok(model)
    }

    /// Runs under a policy, one with each seed, on all cores.
    ///
    /// # Errors
    /// As [`Testbed::run`].
    pub fn runs(&self, policy: &str, workload: &Workload, seeds: &[u64]) -> Result<Vec<Arc<Ran>>> {
        // Once for all seeds: the curves of a workload's programs are long to write.
        let what: Arc<str> = format!("{:?}", (policy, workload)).into();
        let seeds = seeds.par_iter();
        seeds
            .map(|&seed| self.run_once(policy, workload, (what.clone(), seed)))
            .collect()
    }

    /// Time of each job's work under a policy over the time of the same work alone, mean over the seeds.
    ///
    /// # Errors
    /// As [`Testbed::run`].
    pub fn slowdowns(&self, policy: &str, workload: &Workload, seeds: &[u64]) -> Result<Vec<f64>> {
        let runs = self.runs(policy, workload, seeds)?;
        let slowdown = |(at, job): (usize, &Job)| {
            let alone = alone(&self.hardware, &job.program.phases[0], CpuId(0)).ns;
            mean(
                runs.iter()
                    .map(|ran| ran.seconds * 1e12 / ran.work[at].instructions / alone),
            )
        };
        Ok(workload.jobs.iter().enumerate().map(slowdown).collect())
    }
}

/// By how much a time is shorter than another, in percent of the other.
pub fn improvement(over: f64, time: f64) -> f64 {
    (1.0 - time / over) * 100.0
}

/// By how much a figure is larger than another, in percent of the other.
pub fn increase(figure: f64, over: f64) -> f64 {
    (figure / over - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_the_interval_of_their_runs() {
        // The mean of 0 to 3, and 3.182 times 1.291 over the root of 4 runs; of two runs nothing is known.
        let figures = |runs: &[usize]| vec![mean(runs.iter().map(|&run| run as f64)), -1.0];
        let shown = |runs| shown(1, runs, figures);
        assert_eq!(shown(4), ["1.5 ± 2.1", "-1.0 ± 0.0"]);
        assert_eq!(shown(2), ["0.5", "-1.0"]);
    }
}
