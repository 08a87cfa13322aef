//! The command line: one definition that feeds parser and help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use numaherd_files::setting;
use numaherd_quantity::parse_time;
use numaherd_world::{AffinityScope, Enforcement};
use serde::de::DeserializeOwned;

use crate::exit::EXIT_CODES;

mod config;
mod explain;
mod machines;
mod numad;
mod replay;
mod report;
mod serve;
mod top;
mod trial;

pub use config::{Config, ConfigCheck, ConfigKeys, ConfigShow};
pub use explain::Explain;
pub use machines::{Advise, Agent, Wanted};
pub use numad::{AsNumad, USAGE as NUMAD_USAGE};
pub use replay::{Record, Replay};
pub use report::Report;
pub use serve::{Ctl, Serve};
pub use top::{Top, View as TopView};
pub use trial::Trial;

/// Decide which core every thread runs on and which memory node every page lives on.
#[derive(Debug, Parser)]
#[command(name = "numaherd", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Place the threads and pages of this machine, or of selected processes
    Run(Box<Run>),
    /// Show a run on a terminal: a ledger, the running herd, or this machine
    Top(Top),
    /// Herd like `run`, and serve metrics, a web page and a control socket
    Serve(Box<Serve>),
    /// Control a herd started by `serve`: status, pause, resume, policy, reload, watch
    Ctl(Ctl),
    /// Report what can be measured and done on this machine, and what is missing
    Doctor(Doctor),
    /// Describe a machine: this one, a preset, or a file
    Topology(Topology),
    /// List the policies, or describe one
    Policies(Policies),
    /// Show the configuration, check a file, describe the keys
    #[command(subcommand)]
    Config(Config),
    /// Explain what a run observed, decided and did, from its ledger
    Explain(Explain),
    /// Observe without deciding, and record everything that `replay` needs
    Record(Box<Record>),
    /// Show what policies would have decided in a recorded run
    Replay(Box<Replay>),
    /// Measure on this machine whether a policy helps: it and Linux in turn, in random order
    Trial(Box<Trial>),
    /// Write one run, or several side by side, as a page of charts and tables
    Report(Report),
    /// Restore the affinities that a killed run has changed
    Release(Release),
    /// In a virtual machine: report to the host which vCPUs run bound threads
    Agent(Agent),
    /// Suggest nodes on which to start a program, like numad -w
    Advise(Advise),
}

/// Options of `run`.
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = RUN_HELP)]
pub struct Run {
    /// Policy, or a placement and a paging joined by a plus sign [default: adaptive]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Which threads; by default, all that may be placed
    #[command(flatten)]
    pub selection: SelectionOptions,

    /// How to place them
    #[command(flatten)]
    pub steering: Steering,

    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,

    /// What is read and written
    #[command(flatten)]
    pub files: HerdFiles,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,

    /// Start this program, and herd it until it ends
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RUN_HELP: &str = "\
Times: 500ms, 1s, 2.5s, 10m.
SIGINT and SIGTERM end the run and restore all affinities. After a kill -9, `numaherd release` \
or the next run restores them.";

/// The files of a herd.
#[derive(Clone, Debug, Default, Args)]
pub struct HerdFiles {
    /// Configuration file, or none [default: /etc/numaherd/numaherd.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Event definitions for this processor, which take precedence over the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Record all observations, decisions and outcomes in this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,

    /// Where to save the original affinities before the first change
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
}

/// How a policy is run, here or in a guest of the lab.
#[derive(Clone, Debug, Default, Args)]
pub struct Steering {
    /// Decide, check and record, but change nothing
    #[arg(long)]
    pub dry_run: bool,

    /// How often to place threads [default: the policy's own interval, or 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// How often to consider moving pages [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub paging_interval: Option<Duration>,

    /// Place threads only on these CPUs
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<numaherd_topology::CpuSet>,

    /// Move pages only to these nodes
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<numaherd_topology::NodeSet>,

    /// How far from its assigned core a thread may run [default: the policy's own scope, or domain]
    #[arg(long, alias = "stray", value_parser = one_of::<AffinityScope>())]
    pub scope: Option<AffinityScope>,

    /// How to carry placements out [default: affinity]
    #[arg(long, value_parser = one_of::<Enforcement>())]
    pub enforce: Option<Enforcement>,

    /// Also place threads whose affinity a user has set
    #[arg(long)]
    pub take_over: bool,

    /// Seed of the policy's random numbers [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
}

/// Which threads to herd.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub struct SelectionOptions {
    /// These processes
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// Processes in this control group or below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Processes with this command name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Processes of this user (name or number)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

/// A setting's choice between words: on the command line as in a file.
fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: setting::Value + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let choices = T::KIND.choices().unwrap_or_default().iter();
    let words = choices.map(|choice| {
        PossibleValue::new(choice.word).help(choice.what.trim_ascii().trim_end_matches('.'))
    });
    PossibleValuesParser::new(words).try_map(|word| serde_json::from_value(word.into()))
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Read the machine whose /proc and /sys are below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Event definitions for this processor, which take precedence over the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

/// Options of `topology`.
#[derive(Debug, Args)]
#[command(after_help = TOPOLOGY_HELP)]
pub struct Topology {
    /// The machine to describe [default: this machine]
    #[arg(value_name = "SOURCE")]
    pub source: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print the layers of scx_layered that `--enforce scx` expects on this machine
    #[arg(long, conflicts_with_all = ["presets", "json"])]
    pub layers: bool,

    /// List the presets
    #[arg(long, conflicts_with = "source")]
    pub presets: bool,
}

const TOPOLOGY_HELP: &str = "\
SOURCE is a directory that contains sys/ (a captured tree), an hwloc XML file, a machine file \
(.toml), the name of a preset, or an hwloc synthetic string such as \"numa:4 core:2 pu:1\".";

/// Options of `policies`.
#[derive(Debug, Args)]
pub struct Policies {
    /// Describe this policy
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `release`.
#[derive(Debug, Args)]
pub struct Release {
    /// The journal of the killed run
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_sound() {
        crate::laboratory::definition().debug_assert();
    }
}
