//! A scenario made ready to run: machine, jobs, settings, and what each program takes alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use numaherd_model::{Binding, Hardware, Job, Library, Model, Options, Placement, Program, Until};
use numaherd_topology::{CpuId, CpuSet, Machine, NodeId};
use numaherd_world::{Progress, World};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::penalties;
use super::scenario::{Cpus, Entry, Limits, Memory, Scenario, Tables, refused};
use numaherd::config::merge;
use numaherd::exit::{Exit, ended};
use numaherd_experiment::trial;

/// Settings of the loop, the policies and the model, as read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Of the loop.
    pub herd: numaherd_herd::Settings,
    /// Of the policies.
    pub policies: numaherd_policy::Settings,
    /// Of the model.
    pub model: Options,
}

/// What a scenario may say of the model.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ModelTable {
    variation: f64,
    counter_noise: f64,
    page_move_ns: f64,
    samples_per_tick: u32,
    wakes_elsewhere_s: f64,
}

impl Default for ModelTable {
    fn default() -> Self {
        let usual = Options::default();
        Self {
            variation: usual.variation,
            counter_noise: usual.counter_noise,
            page_move_ns: usual.page_move_ns,
            samples_per_tick: usual.samples_per_tick,
            wakes_elsewhere_s: usual.wakes_elsewhere_s,
        }
    }
}

impl Settings {
    /// The scenario's settings, with `overrides` (`herd.limits.bounce_limit=3`) on top.
    ///
    /// # Errors
    /// A key or value that cannot be; the message names it and who said it.
    pub fn of(scenario: &Scenario, overrides: &[String], seed: u64) -> Result<Self> {
        let (from, mut tables) = (&scenario.from, scenario.settings.clone());
        let base = match scenario.governor {
            Limits::Usual => numaherd_herd::Settings::default(),
            Limits::AsPublished => trial::as_published(),
        };
        // First alone, so that an error names the file when it is the file's.
        let of_file = Self::read(&base, &tables, seed)
            .map_err(|(key, why)| ended(Exit::Usage, format!("{from}: {key}: {why}")))?;
        if overrides.is_empty() {
            return Ok(of_file);
        }
        for text in overrides {
            set(&mut tables, text)?;
        }
        Self::read(&base, &tables, seed)
            .map_err(|(key, why)| ended(Exit::Usage, format!("--set {key}: {why}")))
    }

    fn read(
        base: &numaherd_herd::Settings,
        tables: &Tables,
        seed: u64,
    ) -> Result<Self, (&'static str, String)> {
        fn said(key: &'static str) -> impl Fn(toml::de::Error) -> (&'static str, String) {
            move |error| (key, error.message().trim().replace('\n', ", "))
        }
        let mut herd = Table::try_from(base).map_err(|error| ("herd", error.to_string()))?;
        merge(&mut herd, &tables.herd);
        let herd: numaherd_herd::Settings = herd.try_into().map_err(said("settings.herd"))?;
        herd.check()
            .map_err(|error| ("settings.herd", error.to_string()))?;
        let policies: numaherd_policy::Settings = tables
            .policies
            .clone()
            .try_into()
            .map_err(said("settings.policies"))?;
        policies
            .check()
            .map_err(|error| ("settings.policies", error.to_string()))?;
        let model: ModelTable = tables.model.clone().try_into().map_err(said("model"))?;
        Ok(Self {
            herd,
            policies,
            model: Options {
                seed,
                variation: model.variation,
                counter_noise: model.counter_noise,
                page_move_ns: model.page_move_ns,
                samples_per_tick: model.samples_per_tick,
                wakes_elsewhere_s: model.wakes_elsewhere_s,
            },
        })
    }
}

/// Carries out one `--set KEY=VALUE`. What is no TOML value is taken for text.
fn set(tables: &mut Tables, text: &str) -> Result<()> {
    let usage = |why: &str| {
        let told = format!(
            "cannot set {text:?}: {why}; say for instance herd.limits.bounce_limit=3, \
             policies.n_mass.threshold=40 or model.variation=0.1"
        );
        ended(Exit::Usage, told)
    };
    let (key, value) = text.split_once('=').ok_or_else(|| usage("it has no ="))?;
    let read = |value: &str| toml::from_str::<Table>(&format!("{key} = {value}"));
    let table = read(value)
        .or_else(|_| read(&Value::from(value.trim()).to_string()))
        .map_err(|_| usage("its key cannot be read"))?;
    for (root, value) in table {
        let Value::Table(value) = value else {
            return Err(usage("its key ends too early"));
        };
        let under = match root.as_str() {
            "herd" => &mut tables.herd,
            "policies" => &mut tables.policies,
            "model" => &mut tables.model,
            _ => return Err(usage("a key begins with herd, policies or model")),
        };
        merge(under, &value);
    }
    Ok(())
}

/// One process of a scenario, as results call it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    /// The name of its entry.
    pub program: String,
    /// Which copy, from 0 over all entries of that name.
    pub copy: u32,
}

/// A scenario made ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The machine.
    pub hardware: Hardware,
    /// The processes.
    pub jobs: Vec<Job>,
    /// Their names, in the same order.
    pub labels: Vec<Label>,
    /// What each takes alone on the machine, in seconds, in the same order; `None` of those that
    /// are not measured.
    pub alone_s: Vec<Option<f64>>,
    /// Until when.
    pub until: Until,
    /// Settings; the seed is the first trial's.
    pub settings: Settings,
}

impl Plan {
    /// Makes a scenario ready: `machine` instead of its own, `programs` as further profiles.
    ///
    /// # Errors
    /// The machine has no figures or is too small, a program has no profile, a CPU or node is not
    /// there, a setting cannot be.
    pub fn of(
        scenario: &Scenario,
        machine: Option<&str>,
        programs: &[std::path::PathBuf],
        overrides: &[String],
        seed: u64,
    ) -> Result<Self> {
        let mut settings = Settings::of(scenario, overrides, seed)?;
        let library = library(scenario, programs)?;
        let hardware = hardware(scenario, machine)?;
        let (mut jobs, mut labels, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let mut copies: BTreeMap<&str, u32> = BTreeMap::new();
        for (number, entry) in scenario.programs.iter().enumerate() {
            let refuse = |key: &str, why: String| refused(&scenario.from, entry.line, key, why);
            let program = library
                .get(&entry.profile)
                .map_err(|error| refuse("profile", error.to_string()))?;
            fits(scenario, entry, program, &hardware)?;
            for copy in 0..entry.copies {
                let seen = copies.entry(&entry.name).or_default();
                labels.push(Label {
                    program: entry.name.clone(),
                    copy: *seen,
                });
                *seen += 1;
                jobs.push(job(entry, program, copy, number));
                entries.push(number);
            }
        }
        let wrong = |error| ended(Exit::Usage, format!("{}: {error}", scenario.from));
        // What is wrong with the jobs as a whole is found before time is spent on them.
        Model::new(
            hardware.clone(),
            jobs.clone(),
            scenario.until,
            settings.model,
        )
        .map_err(|error| wrong(error.to_string()))?;
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
            .collect::<Result<_>>()?;
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

fn library(scenario: &Scenario, programs: &[std::path::PathBuf]) -> Result<Library> {
    let own = scenario
        .profiles
        .iter()
        .map(|path| scenario.folder().join(path));
    let mut library = Library::built_in().clone();
    for path in own.chain(programs.iter().cloned()) {
        let read = Library::read(&path).map_err(|error| ended(Exit::Usage, error))?;
        library = library.merged(read);
    }
    Ok(library)
}

/// The machine: a preset, or a file beside the scenario, or one that the command line names.
fn hardware(scenario: &Scenario, machine: Option<&str>) -> Result<Hardware> {
    let beside = scenario.folder().join(&scenario.machine);
    let name = match machine {
        Some(name) => Path::new(name),
        None if beside.is_file() => &beside,
        None => Path::new(&scenario.machine),
    };
    let machine = Machine::find(&name.to_string_lossy());
    let machine = machine.map_err(|error| ended(Exit::Usage, error))?;
    Hardware::of(&machine).map_err(|error| ended(Exit::Usage, error))
}

/// Looks for what an entry asks for and the machine or the profile has not.
fn fits(scenario: &Scenario, entry: &Entry, program: &Program, hardware: &Hardware) -> Result<()> {
    let refuse = |key: &str, why: String| Err(refused(&scenario.from, entry.line, key, why));
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

fn job(entry: &Entry, program: &std::sync::Arc<Program>, copy: u32, number: usize) -> Job {
    let threads = program.threads as usize;
    let program = if entry.stagger && copy > 0 {
        program.begun_at(copy as usize).into()
    } else {
        program.clone()
    };
    // The first thread of a copy goes on where the last of the copy before it was dealt to.
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

/// What a process takes with the machine to itself, in seconds: its threads dealt over the domains,
/// its memory local, from whichever node it is fastest.
fn alone_s(hardware: &Hardware, job: &Job, until: Until, options: Options) -> Result<f64> {
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
            let of_node = |domain: &numaherd_topology::Domain| domain.node == node.id;
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
        let mut model = Model::new(hardware.clone(), vec![alone], until, options)
            .context("cannot run a program alone")?;
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

/// How many runs of a program so many instructions come to.
pub fn runs_done(program: &Program, instructions: f64) -> f64 {
    instructions / (program.instructions() * f64::from(program.threads))
}

/// All CPUs: one of each domain, round and round, beginning with the domain of that place.
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
