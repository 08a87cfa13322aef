//! The command line: one definition that feeds parser and help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use numaherd_quantity::parse_time;

use crate::exit::EXIT_CODES;

mod config;
mod explain;
mod machines;
mod manual;
mod replay;
mod report;
mod serve;
mod top;

pub use config::{Config, ConfigCheck, ConfigKeys, ConfigShow};
pub use explain::Explain;
pub use machines::{Advise, Agent, AsNumad, Wanted};
pub use manual::Manual;
pub use replay::{Record, Replay};
pub use report::Report;
pub use serve::{Ask, Ctl, Serve};
pub use top::{Top, View as TopView};

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
    /// Herd the machine's threads and pages, or those of chosen processes
    Run(Box<Run>),
    /// Watch a run on a terminal: a ledger, the herd that runs here, or this machine
    Top(Top),
    /// Herd as `run` does, and show metrics and a page, and listen to `ctl`, meanwhile
    Serve(Box<Serve>),
    /// Ask a herd that serves: status, pause, resume, policy, reload, watch
    Ctl(Ctl),
    /// Say what can and cannot be seen and done on this machine
    Doctor(Doctor),
    /// Print and draw a machine: this one, a preset, a file
    Topology(Topology),
    /// List the policies, or tell about one
    Policies(Policies),
    /// Say what is configured, check a file, tell what the keys mean
    #[command(subcommand)]
    Config(Config),
    /// Tell what was seen, decided and done, from a ledger
    Explain(Explain),
    /// Watch, decide nothing, and record all that policies could be asked about later
    Record(Box<Record>),
    /// Ask other policies what they would have decided on what a ledger holds
    Replay(Box<Replay>),
    /// Draw one run, or several side by side, as a page of charts and tables
    Report(Report),
    /// Give threads the affinities back that they had before a run that was killed
    Release(Release),
    /// In a virtual machine: tell the host which vCPUs run threads that are bound to some of them
    Agent(Agent),
    /// Say which nodes to start something on, as numad -w does
    Advise(Advise),
    /// Write the manual pages and the shells' completions
    #[command(hide = true)]
    Manual(Manual),
}

/// Options of `run`.
#[derive(Clone, Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct Run {
    /// Policy, or a placement and a paging joined by a plus [default: dino]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// Which threads; all that may be steered when nothing is chosen
    #[command(flatten)]
    pub selection: SelectionOptions,

    /// Plan, govern and record, but carry nothing out
    #[arg(long)]
    pub dry_run: bool,

    /// How often threads are placed [default: as the policy's source has it, or 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// How often pages are looked after [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub paging_interval: Option<Duration>,

    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,

    /// Keep threads to these CPUs
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<numaherd_topology::CpuSet>,

    /// Move pages to these nodes only
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<numaherd_topology::NodeSet>,

    /// How far a thread may stray from the core it is given [default: as the policy has it, or domain]
    #[arg(long, value_enum)]
    pub stray: Option<Stray>,

    /// Steer threads that have an affinity of their own, too
    #[arg(long)]
    pub take_over: bool,

    /// Seed of the policy's random numbers [default: 0]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Configuration file, or none [default: /etc/numaherd/numaherd.toml where there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Events to count with on this processor, tried before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Record everything seen, decided and done in this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,

    /// Where affinities as found are written down before the first change
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,

    /// Start this program and herd it, until it ends
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RUN_HELP: &str = "\
Times: 500ms, 1s, 2.5s, 10m.
SIGINT and SIGTERM end the run; every affinity is given back as it was found. After a kill -9,
`numaherd release` does that, and so does the next run.";

/// Which threads.
#[derive(Clone, Debug, Args)]
#[group(multiple = false)]
pub struct SelectionOptions {
    /// These processes
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    pub pid: Vec<u32>,

    /// The processes of this control group and those below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,

    /// Processes of this command name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Processes of this user (name or number)
    #[arg(long, value_name = "USER")]
    pub user: Option<String>,
}

/// How far a thread may stray.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stray {
    /// To its SMT siblings only.
    Core,
    /// Within the memory domain.
    Domain,
    /// Within the memory node.
    Node,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Look at the machine whose /proc and /sys are below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,

    /// Events to count with on this processor, tried before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
}

/// Options of `topology`.
#[derive(Debug, Args)]
#[command(after_help = TOPOLOGY_HELP)]
pub struct Topology {
    /// What to read; this machine when left out
    #[arg(value_name = "SOURCE")]
    pub source: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// List the presets
    #[arg(long, conflicts_with = "source")]
    pub presets: bool,
}

const TOPOLOGY_HELP: &str = "\
SOURCE is a directory that contains sys/ (a captured tree), an hwloc XML file, a machine file
(.toml), the name of a preset, or an hwloc synthetic string such as \"numa:4 core:2 pu:1\".";

/// Options of `policies`.
#[derive(Debug, Args)]
pub struct Policies {
    /// Tell about this one
    pub name: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `release`.
#[derive(Debug, Args)]
pub struct Release {
    /// The journal of the run that was killed
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
