//! A scenario prepared for the model: machine, jobs, settings, and each program's time alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use numaherd_model::{Binding, Hardware, Job, Library, Model, Options, Placement, Program, Until};
use numaherd_topology::{CpuId, CpuSet, Domain, Machine, NodeId};
use numaherd_world::{Progress, World as _};
use rayon::prelude::*;
use serde::Serialize;

use crate::scenario::{self, Cpus, Memory, Scenario};
use crate::settings::Settings;
use crate::{ExperimentError, OnModel, penalties};

/// The name of a process in results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The name of its entry.
    pub program: String,
    /// The number of the copy, from 0 over all entries of that name.
    pub copy: u32,
}

/// A scenario prepared to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine.
    pub hardware: Hardware,
    /// The processes.
    pub jobs: Vec<Job>,
    /// Their names, in the same order.
    pub labels: Vec<Label>,
    /// The time of each alone on the machine, in seconds, in the same order; `None` for those that
    /// are not measured.
    pub alone_s: Vec<Option<f64>>,
    /// The end of a trial.
    pub until: Until,
    /// Settings; the seed is the first trial's.
    pub settings: Settings,
}

impl Plan {
    /// The jobs and settings for its trials.
    pub fn on_model(&self) -> OnModel<'_> {
        OnModel {
            hardware: &self.hardware,
            jobs: &self.jobs,
            until: self.until,
            settings: &self.settings,
        }
    }

    /// Prepares a scenario. `machine` replaces its own; `profiles` are added to its own.
    ///
    /// # Errors
    /// The machine lacks figures or is too small, a program has no profile, a CPU or node does not
    /// exist, or a setting is wrong.
    pub fn of(
        scenario: &Scenario,
        machine: Option<&str>,
        profiles: &[PathBuf],
        overrides: &[String],
        seed: u64,
    ) -> Result<Self, ExperimentError> {
        let mut settings = Settings::of(scenario, overrides, seed)?;
        let library = library(scenario, profiles)?;
        let hardware = hardware(scenario, machine)?;
        let (mut jobs, mut labels, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut copies: BTreeMap<&str, u32> = BTreeMap::new();
        for (number, entry) in scenario.programs.iter().enumerate() {
            let program = library
                .get(&entry.profile)
                .map_err(|error| scenario.wrong(&format!("program[{number}].profile"), error))?;
            fits(scenario, number, program, &hardware)?;
            let program = scaled(program, entry.work);
            for copy in 0..entry.copies {
                let seen = copies.entry(&entry.name).or_default();
                labels.push(Label {
                    program: entry.name.clone(),
                    copy: *seen,
                });
                *seen += 1;
                jobs.push(job(entry, &program, copy, number));
                entries.push(number);
            }
        }
        // Finds errors in the jobs as a whole before it spends time on them.
        Model::new(
            hardware.clone(),
            jobs.clone(),
            scenario.until,
            settings.model,
        )
        .map_err(|error| ExperimentError::Scenario {
            file: scenario.from.clone(),
            why: error.to_string(),
        })?;
        let known = penalties::of(&hardware, jobs.iter().map(|job| &*job.program));
        penalties::fill(&mut settings.policies, known);
        let alone: Vec<Option<f64>> = (0..scenario.programs.len())
            .into_par_iter()
            .map(|number| {
                let first = entries.iter().position(|&of| of == number);
                let job = first.map(|at| &jobs[at]).filter(|job| job.measured);
                job.map(|job| alone_s(&hardware, job, scenario.until, settings.model))
                    .transpose()
            })
            .collect::<Result<_, ExperimentError>>()?;
        Ok(Self {
            alone_s: entries.iter().map(|&number| alone[number]).collect(),
            hardware,
            jobs,
            labels,
            until: scenario.until,
            settings,
        })
    }
}

fn library(scenario: &Scenario, profiles: &[PathBuf]) -> Result<Library, ExperimentError> {
    let own = scenario
        .profiles
        .iter()
        .map(|path| scenario.folder().join(path));
    own.chain(profiles.iter().cloned())
        .try_fold(Library::built_in().clone(), |library, path| {
            Ok(library.merged(Library::read(&path)?))
        })
}

/// The machine: a preset, a file beside the scenario, or one from the command line.
fn hardware(scenario: &Scenario, machine: Option<&str>) -> Result<Hardware, ExperimentError> {
    let beside = scenario.folder().join(&scenario.machine);
    let name = match machine {
        Some(name) => Path::new(name),
        None if beside.is_file() => &beside,
        None => Path::new(&scenario.machine),
    };
    Ok(Hardware::of(&Machine::find(&name.to_string_lossy())?)?)
}

/// The program with its work multiplied by `work`.
fn scaled(program: &Arc<Program>, work: f64) -> Arc<Program> {
    let mut program = program.clone();
    if work != 1.0 {
        for phase in &mut Arc::make_mut(&mut program).phases {
            phase.instructions *= work;
        }
    }
    program
}

/// Checks that machine and profile satisfy an entry.
fn fits(
    scenario: &Scenario,
    number: usize,
    program: &Program,
    hardware: &Hardware,
) -> Result<(), ExperimentError> {
    let refuse =
        |key: &str, why: String| Err(scenario.wrong(&format!("program[{number}].{key}"), why));
    let entry = &scenario.programs[number];
    let topology = hardware.topology();
    if let Memory::Node(node) = entry.memory {
        let there = topology.node(NodeId::from(node));
        if there.is_none_or(|node| node.memory_bytes == 0) {
            let nodes = topology.memory_nodes();
            let why = format!(
                "there is no memory on node {node}: {} has it on {nodes}",
                topology.name()
            );
            return refuse("memory", why);
        }
    }
    let (key, cpus) = match &entry.cpus {
        Cpus::Free => ("", &CpuSet::new()),
        Cpus::StartOn(cpus) => ("start_on", cpus),
        Cpus::Within(cpus) => ("cpus", cpus),
        Cpus::Pinned(cpus) => ("pinned", cpus),
    };
    let online = topology.online_cpus();
    let missing = cpus.difference(&online);
    if !missing.is_empty() {
        let why = format!("{} has no CPU {missing}: it has {online}", topology.name());
        return refuse(key, why);
    }
    if program.repeat && entry.measured && matches!(scenario.until, Until::Completions(_)) {
        let why = format!(
            "{} never ends, so that it cannot complete: say until = {{ hours = 1 }}, or measured = \
             false",
            entry.profile
        );
        return refuse("profile", why);
    }
    Ok(())
}

fn job(entry: &scenario::Program, program: &Arc<Program>, copy: u32, number: usize) -> Job {
    let threads = program.threads as usize;
    let program = if entry.stagger && copy > 0 {
        program.begun_at(copy as usize).into()
    } else {
        program.clone()
    };
    // A copy's threads continue after the CPU of the previous copy's last thread.
    let dealt = |cpus: &CpuSet| -> Vec<CpuId> {
        let mut cpus: Vec<CpuId> = cpus.iter().collect();
        let from = copy as usize * threads % cpus.len();
        cpus.rotate_left(from);
        cpus
    };
    Job {
        program,
        memory: match entry.memory {
            Memory::FirstTouch => Placement::FirstTouch,
            Memory::Interleave => Placement::Interleave,
            Memory::Node(node) => Placement::On(NodeId::from(node)),
        },
        binding: match &entry.cpus {
            Cpus::Free => Binding::Free,
            Cpus::StartOn(cpus) => Binding::StartOn(dealt(cpus)),
            Cpus::Within(cpus) => Binding::Within(cpus.clone()),
            Cpus::Pinned(cpus) => Binding::Each(dealt(cpus)),
        },
        starts_after: Duration::from_secs_f64(entry.start_after_s),
        measured: entry.measured,
        gang: entry
            .gang
            .then_some(u32::try_from(number).unwrap_or(u32::MAX)),
        tag: None,
    }
}

/// The time of a process alone on the machine, in seconds: its threads spread over the domains, its
/// memory local, beginning at the node where it is fastest.
fn alone_s(
    hardware: &Hardware,
    job: &Job,
    until: Until,
    options: Options,
) -> Result<f64, ExperimentError> {
    let until = match until {
        Until::Completions(_) => Until::Completions(1),
        time => time,
    };
    let options = Options {
        variation: 0.0,
        ..options
    };
    let topology = hardware.topology();
    let firsts: Vec<usize> = topology
        .nodes()
        .iter()
        .filter_map(|node| {
            let of_node = |domain: &Domain| domain.node == node.id;
            topology.domains().iter().position(of_node)
        })
        .collect();
    let mut fastest = f64::INFINITY;
    for first in firsts {
        let order = over_domains(hardware, first);
        let threads = job.program.threads as usize;
        let alone = Job {
            memory: Placement::FirstTouch,
            binding: Binding::StartOn(order.into_iter().cycle().take(threads).collect()),
            starts_after: Duration::ZERO,
            gang: None,
            ..job.clone()
        };
        let mut model = Model::new(hardware.clone(), vec![alone], until, options)?;
        while model.run_for(Duration::from_secs(3600)) == Progress::Ran {}
        let runs = match until {
            Until::Completions(_) => 1.0,
            Until::Time(_) => runs_done(&job.program, model.work()[0].instructions),
        };
        let seconds = model.seconds() / runs;
        fastest = fastest.min(seconds);
    }
    Ok(fastest)
}

/// The number of a program's runs that equal these instructions.
pub fn runs_done(program: &Program, instructions: f64) -> f64 {
    instructions / (program.instructions() * f64::from(program.threads))
}

/// All CPUs, one of each domain in turn, beginning with domain `first`.
fn over_domains(hardware: &Hardware, first: usize) -> Vec<CpuId> {
    let topology = hardware.topology();
    let online = topology.online_cpus();
    let mut domains: Vec<Vec<CpuId>> = topology
        .domains()
        .iter()
        .map(|domain| domain.cpus.intersection(&online).iter().collect())
        .collect();
    domains.rotate_left(first);
    let most = domains.iter().map(Vec::len).max().unwrap_or(0);
    (0..most)
        .flat_map(|at| domains.iter().filter_map(move |cpus| cpus.get(at)).copied())
        .collect()
}

#[cfg(test)]
mod tests;
