//! Scenario files: which programs run on which machine under which policies, until when, and what counts.
//!
//! The lab, the contention model and traces read one format; `docs/simulate.md` explains each key. A program
//! may say what runs in the lab (`command`) and what the model runs in its place (`profile`, `work`), so
//! that both worlds run the same file. A key that means nothing in the world that reads the file
//! ([`ELSEWHERE`]) is refused, as is every other mistake, with file, line, key and reason. What only machine and
//! profiles can tell (whether a CPU is there) is checked in [`crate::plan`].

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

/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;
/// The most repeats of an experiment.
pub const MOST_REPEATS: u32 = 100_000;

/// In the lab and on the model: the kernel, with NUMA balancing on and as Debian ships it.
pub const LINUX_BALANCING: &str = "linux-balancing";
/// In the lab: the kernel, with NUMA balancing and cache-aware scheduling on.
pub const LINUX_CACHE_AWARE: &str = "linux-cache-aware";
/// In the lab: the kernel, programs started with their new pages dealt to all nodes in turn.
pub const INTERLEAVE: &str = "interleave";
/// In the lab: the same, by the bandwidth of the nodes.
pub const WEIGHTED_INTERLEAVE: &str = "weighted-interleave";
/// In the lab: Debian's numad, with its own defaults.
pub const NUMAD: &str = "numad";
/// In the lab: schedulers of sched_ext.
pub const SCHED_EXT: [&str; 3] = ["scx_layered", "scx_rusty", "scx_cosmos"];
/// In the lab: the best placement that the scenario knows, from the start. It bounds what a policy can gain.
pub const BEST_KNOWN: &str = "best-known";

/// In the lab: ends the name of a policy of ours whose placements are carried out by hints to scx_layered, and not by
/// affinity masks.
const BY_HINTS: &str = "@scx";

/// In the lab: ends the name of a policy of ours beside which the kernel's NUMA balancing is on.
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
    /// The one of this name: `brm`, `brm@scx` or `brm@balancing`.
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

    /// The policies that are compared unless a scenario or the user names some, the baseline first.
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

    /// What can be compared beside the policies.
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

    /// How often each policy runs unless a scenario or the user says so.
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
    /// Where it runs.
    #[serde(skip)]
    pub world: World,
    /// Short name.
    pub name: String,
    /// One line on what it shows.
    pub about: String,
    /// Preset or machine file.
    pub machine: String,
    /// What the measured programs are called in sentences, for instance "devils".
    #[serde(skip)]
    pub measured_are: String,
    /// Policies that are compared unless the command line names some; the first is the baseline.
    pub policies: Vec<String>,
    /// How often each is run unless the command line says.
    pub repeat: u32,
    /// Until when.
    #[serde(serialize_with = "until_as_text")]
    pub until: Until,
    /// Which completed runs of a program count.
    pub count: Count,
    /// Which limits hold before `[settings]`.
    pub governor: Limits,
    /// Whether accesses of the kernel pass through the modelled caches, as those of programs do.
    #[serde(skip)]
    pub kernel_accesses: bool,
    /// `[settings.herd]`, `[settings.policies]`, `[model]` and `[trace]`.
    pub settings: Tables,
    /// Files of further profiles, relative to the scenario's folder.
    pub profiles: Vec<PathBuf>,
    /// What runs, in the order it is started in.
    pub programs: Vec<Program>,
    /// The file as it is written.
    #[serde(skip)]
    pub written: Table,
    /// What errors call the file.
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
    /// The second (DINO §3.2: of three, so that all programs run from its start to its end).
    Second,
    /// The mean of all that were completed; where a time was run, the time of a run at the mean
    /// pace, completed or not.
    #[default]
    All,
}

/// What limits a policy before `[settings]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limits {
    /// The limits of `numaherd run`.
    #[default]
    Usual,
    /// None: the policy acts as it was published.
    AsPublished,
}

/// Settings as they are written; [`crate::settings`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tables {
    /// Of the loop.
    pub herd: Table,
    /// Of the policies.
    pub policies: Table,
    /// Of the model.
    pub model: Table,
    /// Of how a trace is played.
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub trace: Table,
}

/// Some processes of one program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Program {
    /// What it is called in results.
    pub name: String,
    /// What the lab does with it.
    #[serde(skip)]
    pub lab: InLab,
    /// Name of the profile that the model runs.
    pub profile: String,
    /// How much of the profile's work it does.
    #[serde(skip)]
    pub work: f64,
    /// How many processes.
    pub copies: u32,
    /// Where their pages are when they start.
    pub memory: Memory,
    /// Where their threads may run.
    pub cpus: Cpus,
    /// CPUs that they are bound to in the lab, one each, where the best placement known is tried ([`BEST_KNOWN`]).
    #[serde(skip)]
    pub best_on: Option<CpuSet>,
    /// When they start, in seconds.
    pub start_after_s: f64,
    /// Whether they count.
    pub measured: bool,
    /// Whether the copies wait for each other, as the ranks of a job do.
    pub gang: bool,
    /// Whether each copy begins one phase later than the one before.
    pub stagger: bool,
}

/// Where the pages of a process are when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Memory {
    /// On the node that each thread starts on.
    FirstTouch,
    /// Evenly over all nodes.
    Interleave,
    /// All on this node.
    Node(u32),
}

/// Where the threads of some processes may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cpus {
    /// Anywhere.
    Free,
    /// Dealt to these one after the other, and free from then on.
    StartOn(CpuSet),
    /// Anywhere on these: no policy may move them elsewhere.
    Within(CpuSet),
    /// Dealt to these one after the other: no policy may move them.
    Pinned(CpuSet),
}

impl Program {
    /// The arguments that tell a copy in the lab, which waits for its start, where it is to be.
    pub fn placement(&self, copy: u32) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Memory::Node(node) = self.memory {
            arguments.extend(["--home".to_owned(), node.to_string()]);
        }
        let (starts, stays) = match &self.cpus {
            // The first touch puts its memory beside it.
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
    /// No such scenario or file, or one that is wrong: the message names file, line, key and reason.
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

    /// Reads a scenario's text; `from` is what errors call it.
    ///
    /// # Errors
    /// The text is wrong: the message names line, key and reason.
    pub fn parse(text: &str, from: &str, world: World) -> Result<Self, ExperimentError> {
        Ok(read::scenario(Document::new(text, from), world)?)
    }

    /// The scenario with each program bound to where it is best, with its memory beside it, from the start.
    ///
    /// # Errors
    /// It does not say of every program where that is.
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

    /// What is measured of its programs: the same of all.
    pub fn measure(&self) -> Measure {
        let measured = self.programs.iter().find(|program| program.measured);
        measured.map_or_else(Measure::default, |program| program.lab.measure.clone())
    }

    /// The error of a scenario whose key is wrong.
    pub fn wrong(&self, key: &str, why: impl std::fmt::Display) -> ExperimentError {
        Document::new(&self.text, &self.from)
            .wrong_key(key, why)
            .into()
    }

    /// The folder that relative paths of the scenario start from.
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
