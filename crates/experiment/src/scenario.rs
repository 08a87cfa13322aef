//! Scenario files: programs, their machine, the policies to compare, the end of a trial, and the figures that count.
//!
//! The lab, the contention model and traces read the same format; `docs/simulate.md` explains each key. A program may
//! have a command for the lab (`command`) and its replacement on the model (`profile`, `work`), so both worlds can run
//! the same file. A key without a meaning in the world that reads the file ([`ELSEWHERE`]) is refused, as is every
//! other mistake, with file, line, key and reason. Checks that need the machine or profiles (whether a CPU exists) are
//! in [`crate::plan`].

mod file;
pub mod in_lab;
mod read;

use std::path::{Path, PathBuf};

use numaherd_files::{Document, read as files};
use numaherd_model::Until;
use numaherd_topology::CpuSet;
use numaherd_world::Enforcement;
use serde::{Deserialize, Serialize, Serializer};
use toml::{Table, Value};

use crate::ExperimentError;
use in_lab::{InLab, Measure};

/// The size limit of a file, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// The most repeats of an experiment.
pub const MOST_REPEATS: u32 = 100_000;

/// In the lab and on the model: the kernel with NUMA balancing on and Debian's defaults.
pub const LINUX_BALANCING: &str = "linux-balancing";
/// In the lab: the kernel with NUMA balancing and cache-aware scheduling on.
pub const LINUX_CACHE_AWARE: &str = "linux-cache-aware";
/// In the lab: the kernel, with new pages of programs interleaved over all nodes.
pub const INTERLEAVE: &str = "interleave";
/// In the lab: the kernel, with new pages of programs interleaved in proportion to the nodes' bandwidth.
pub const WEIGHTED_INTERLEAVE: &str = "weighted-interleave";
/// In the lab: Debian's numad, with its own defaults.
pub const NUMAD: &str = "numad";
/// In the lab: schedulers of sched_ext.
pub const SCHED_EXT: [&str; 3] = ["scx_layered", "scx_rusty", "scx_cosmos"];
/// In the lab: the scenario's best known placement from the start. It bounds the gain of policies.
pub const BEST_KNOWN: &str = "best-known";

/// In the lab: suffix of a policy of ours whose placements become hints to scx_layered instead of affinity masks.
const BY_HINTS: &str = "@scx";

/// In the lab: suffix of a policy of ours that runs with the kernel's NUMA balancing on.
const BESIDE_BALANCING: &str = "@balancing";

/// A contender of the lab that is one of our policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// How its placements are carried out.
    pub enforcement: Enforcement,
    /// Whether the kernel's NUMA balancing is on.
    pub balancing: bool,
}

impl<'a> Ours<'a> {
    /// Parses a contender's name: `brm`, `brm@scx` or `brm@balancing`.
    pub fn of(contender: &'a str) -> Self {
        let hinted = contender.strip_suffix(BY_HINTS);
        let balanced = contender.strip_suffix(BESIDE_BALANCING);
        Self {
            policy: hinted.or(balanced).unwrap_or(contender),
            enforcement: match hinted {
                Some(_) => Enforcement::Scx,
                None => Enforcement::Affinity,
            },
            balancing: balanced.is_some(),
        }
    }
}

/// Where an experiment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// In a guest with a real kernel.
    Lab,
    /// On the contention model.
    Model,
    /// On recorded memory accesses.
    Trace,
}

macro_rules! built_in {
    ($($name:literal: $file:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../scenarios/", $file)))),*]
    };
}

impl World {
    /// The scenarios of this world that come with the program, each with its text.
    pub fn built_in(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Lab => built_in! {
                "unlucky-order": "unlucky-order.toml",
                "devils-on-one-node": "devils-on-one-node.toml",
                "changing-phases": "changing-phases.toml",
            },
            Self::Model => built_in! {
                "memory-on-one-node": "model/memory-on-one-node.toml",
                "sixteen-programs": "model/sixteen-programs.toml",
                "sixteen-ranks": "model/sixteen-ranks.toml",
                "web-service": "model/web-service.toml",
            },
            Self::Trace => &[],
        }
    }

    /// The default policies to compare, the baseline first.
    pub fn usual_policies(self) -> &'static [&'static str] {
        match self {
            Self::Lab => &[
                "linux",
                LINUX_BALANCING,
                NUMAD,
                "di-plain",
                "di-migrate",
                "dino",
            ],
            Self::Model => &["linux", LINUX_BALANCING, "dino"],
            Self::Trace => &[
                "first-touch",
                "interleave",
                "random-mapping",
                "numa-balancing",
                "kmaf",
                "tlb-miss",
                "tlb-miss-history",
                "ipm",
                crate::ORACLE,
            ],
        }
    }

    /// The contenders other than our policies.
    pub fn other_policies(self) -> &'static [&'static str] {
        match self {
            Self::Lab => &[
                LINUX_BALANCING,
                LINUX_CACHE_AWARE,
                INTERLEAVE,
                WEIGHTED_INTERLEAVE,
                NUMAD,
                SCHED_EXT[0],
                SCHED_EXT[1],
                SCHED_EXT[2],
                BEST_KNOWN,
            ],
            Self::Model => &[LINUX_BALANCING],
            Self::Trace => &[],
        }
    }

    /// The default number of runs of each policy.
    pub fn usual_repeat(self) -> u32 {
        match self {
            Self::Lab => 5,
            Self::Model | Self::Trace => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lab => "in the lab",
            Self::Model => "on the model",
            Self::Trace => "on a trace",
        }
    }
}

/// A scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// The world that it runs in.
    #[serde(skip)]
    pub world: World,
    /// Short name.
    pub name: String,
    /// One line on what it shows.
    pub about: String,
    /// Preset or machine file.
    pub machine: String,
    /// A noun for the measured programs in sentences, for instance "devils".
    #[serde(skip)]
    pub measured_are: String,
    /// The policies to compare unless the command line names some; the first is the baseline.
    pub policies: Vec<String>,
    /// The number of runs of each unless the command line gives it.
    pub repeat: u32,
    /// The end of a trial.
    #[serde(serialize_with = "until_as_text")]
    pub until: Until,
    /// Which completed runs of a program count.
    pub count: Count,
    /// The limits that `[settings]` starts from.
    pub governor: Limits,
    /// Whether accesses of the kernel are modelled, like those of programs.
    #[serde(skip)]
    pub kernel_accesses: bool,
    /// `[settings.herd]`, `[settings.policies]`, `[model]` and `[trace]`.
    pub settings: Tables,
    /// Files of further profiles, relative to the scenario's folder.
    pub profiles: Vec<PathBuf>,
    /// The programs, in the order in which they start.
    pub programs: Vec<Program>,
    /// The file's tables as they are written.
    #[serde(skip)]
    pub written: Table,
    /// The file's name for errors.
    #[serde(skip)]
    pub from: String,
    #[serde(skip)]
    text: String,
}

/// Which completed runs of a program give its completion time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Count {
    /// The first.
    First,
    /// The second (DINO §3.2: of three, so that all programs run during all of it).
    Second,
    /// The mean of all completed runs; in a trial of a fixed time, the time of a run at the mean
    /// pace, completed or not.
    #[default]
    All,
}

/// A policy's limits before `[settings]` changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limits {
    /// The limits of `numaherd run`.
    #[default]
    Usual,
    /// No limits: the policy acts as published.
    AsPublished,
}

/// Settings as written; [`crate::settings`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tables {
    /// Of the loop.
    pub herd: Table,
    /// Of the policies.
    pub policies: Table,
    /// Of the model.
    pub model: Table,
    /// Of the playback of a trace.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub trace: Table,
}

/// Some processes of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Program {
    /// Its name in results.
    pub name: String,
    /// The program in the lab.
    #[serde(skip)]
    pub lab: InLab,
    /// Name of the profile that the model runs.
    pub profile: String,
    /// Its work as a multiple of the profile's.
    #[serde(skip)]
    pub work: f64,
    /// How many processes.
    pub copies: u32,
    /// The place of their pages at the start.
    pub memory: Memory,
    /// The CPUs on which their threads may run.
    pub cpus: Cpus,
    /// The CPUs to which [`BEST_KNOWN`] binds them in the lab, one each.
    #[serde(skip)]
    pub best_on: Option<CpuSet>,
    /// Start time, in seconds.
    pub start_after_s: f64,
    /// Whether they are measured.
    pub measured: bool,
    /// Whether the copies wait for each other, like the ranks of a job.
    pub gang: bool,
    /// Whether each copy begins one phase later than the one before.
    pub stagger: bool,
}

/// The place of a process's pages at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// On the node where each thread starts.
    FirstTouch,
    /// Evenly over all nodes.
    Interleave,
    /// All on this node.
    Node(u32),
}

/// The CPUs on which the threads of some processes may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// Anywhere.
    Free,
    /// Each starts on one of these, in turn, and is then free.
    StartOn(CpuSet),
    /// Anywhere on these: no policy may move them elsewhere.
    Within(CpuSet),
    /// Each on one of these, in turn: no policy may move them.
    Pinned(CpuSet),
}

impl Program {
    /// The arguments that place a copy in the lab that waits for its start.
    pub fn placement(&self, copy: u32) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Memory::Node(node) = self.memory {
            arguments.extend(["--home".to_owned(), node.to_string()]);
        }
        let (starts, stays) = match &self.cpus {
            // The first touch puts its memory on its node.
            Cpus::Pinned(cpus) if self.memory == Memory::FirstTouch => (Some(cpus), Some(cpus)),
            Cpus::Pinned(cpus) => (None, Some(cpus)),
            Cpus::StartOn(cpus) => (Some(cpus), None),
            Cpus::Free | Cpus::Within(_) => (None, None),
        };
        for (option, cpus) in [("--start-cpu", starts), ("--cpus", stays)] {
            let cpu = cpus.and_then(|cpus| cpus.iter().nth(copy as usize % cpus.len()));
            arguments.extend(
                cpu.into_iter()
                    .flat_map(|cpu| [option.to_owned(), cpu.to_string()]),
            );
        }
        arguments
    }
}

fn until_as_text<S: Serializer>(until: &Until, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&until_in_words(until))
}

/// `3 completions` or `3600 s`.
pub fn until_in_words(until: &Until) -> String {
    match until {
        Until::Completions(1) => "1 completion".to_owned(),
        Until::Completions(all) => format!("{all} completions"),
        Until::Time(time) => format!("{} s", time.as_secs_f64()),
    }
}

impl Scenario {
    /// The scenario of that name, or in that file.
    ///
    /// # Errors
    /// There is no such scenario or file, or it is wrong: the message names file, line, key and reason.
    pub fn find(name: &str, world: World) -> Result<Self, ExperimentError> {
        let built_in = world.built_in();
        if let Some((_, text)) = built_in.iter().find(|(built_in, _)| *built_in == name) {
            return Self::parse(text, name, world);
        }
        let path = Path::new(name);
        if !name.ends_with(".toml") && !path.exists() {
            let known: Vec<&str> = built_in.iter().map(|&(name, _)| name).collect();
            return Err(ExperimentError::NoScenario {
                name: name.to_owned(),
                known: known.join(", "),
            });
        }
        Self::parse(&files::text(path, LARGEST_FILE)?, name, world)
    }

    /// Parses a scenario's text; `from` is its name for errors.
    ///
    /// # Errors
    /// The text is wrong: the message names line, key and reason.
    pub fn parse(text: &str, from: &str, world: World) -> Result<Self, ExperimentError> {
        Ok(read::scenario(Document::new(text, from), world)?)
    }

    /// The scenario with each program bound to its best CPUs from the start, with its memory on their nodes.
    ///
    /// # Errors
    /// A program of the scenario has no `best_on`.
    pub fn best_known(mut self) -> Result<Self, ExperimentError> {
        let unknown = |program: &Program| program.best_on.is_none();
        if let Some(at) = self.programs.iter().position(unknown) {
            let why =
                format!("say on which CPUs it is best (`best_on`), or leave out {BEST_KNOWN}");
            return Err(self.wrong(&format!("program[{at}]"), why));
        }
        for program in &mut self.programs {
            program.memory = Memory::FirstTouch;
            program.cpus = program.best_on.take().map_or(Cpus::Free, Cpus::Pinned);
        }
        Ok(self)
    }

    /// The measure of its programs, which is the same for all.
    pub fn measure(&self) -> Measure {
        let measured = self.programs.iter().find(|program| program.measured);
        measured.map_or_else(Measure::default, |program| program.lab.measure.clone())
    }

    /// An error at a key of the scenario.
    pub fn wrong(&self, key: &str, why: impl std::fmt::Display) -> ExperimentError {
        Document::new(&self.text, &self.from)
            .wrong_key(key, why)
            .into()
    }

    /// The folder to which the scenario's paths are relative.
    pub fn folder(&self) -> &Path {
        Path::new(&self.from).parent().unwrap_or(Path::new(""))
    }

    /// `[settings]` as a configuration of `numaherd run`.
    pub fn configuration(&self) -> Table {
        let settings = self.written.get("settings").and_then(Value::as_table);
        settings.cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
