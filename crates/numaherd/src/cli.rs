//! The command line: one definition that feeds parser and help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::exit::EXIT_CODES;

mod config;
mod explain;
mod lab;
mod machines;
mod manual;
mod replay;
mod report;
mod serve;
mod top;
mod trace;

pub use config::{Config, ConfigCheck, ConfigKeys, ConfigShow};
pub use explain::Explain;
pub use lab::{Herding, Lab, LabBrm, LabCompare, LabRun, LabTrial};
pub use machines::{Advise, Agent, AsNumad, Wanted};
pub use manual::Manual;
pub use replay::{Record, Replay};
pub use report::Report;
pub use serve::{Ask, Ctl, Serve};
pub use top::{Top, View as TopView};
pub use trace::{Trace, TraceImport, TraceInfo, TraceRecord, TraceSimulate, TraceSra};

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
    /// Run a program alone, with memory near and far, and write its profile
    Profile(Box<Profile>),
    /// Run a scenario on a model of a machine, under one policy or several
    Simulate(Box<Simulate>),
    /// Run the papers' experiments on the model and hold their claims against it
    Reproduce(Reproduce),
    /// One run of a profile, where it is measured
    #[command(hide = true)]
    ProfileRun(Box<ProfileRun>),
    /// Give threads the affinities back that they had before a run that was killed
    Release(Release),
    /// In a virtual machine: tell the host which vCPUs run threads that are bound to some of them
    Agent(Agent),
    /// Say which nodes to start something on, as numad -w does
    Advise(Advise),
    /// Look into recorded memory accesses, and learn from them
    #[command(subcommand)]
    Trace(Trace),
    /// Run programs in the lab: a real multi-node kernel with modelled hardware
    #[command(subcommand)]
    Lab(Lab),
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
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub interval: Option<Duration>,

    /// How often pages are looked after [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub paging_interval: Option<Duration>,

    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
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

/// Options of `profile`.
#[derive(Debug, Args)]
#[command(after_help = PROFILE_HELP)]
pub struct Profile {
    /// The lab's machine, a preset or a machine file; with --here, what this machine is like
    /// [default in the lab: lab-4x2-half]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Measure on this machine instead of in the lab
    #[arg(long)]
    pub here: bool,

    /// What the profile is called [default: the program's file name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Further sizes of the last-level cache [default: half and a quarter of the machine's]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = cache_kib, conflicts_with = "here")]
    pub cache_sizes: Vec<u64>,

    /// How often it is run with local and with remote memory
    #[arg(long, value_name = "NUMBER", default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// CMD waits for its start, as the programs of scenarios do; what is before is not counted
    #[arg(long)]
    pub waits: bool,

    /// Do not count the first part of each run
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub skip: Option<Duration>,

    /// End each run after so long a counted part
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,

    /// Kill the guest when one run takes longer than this
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub limit: Duration,

    /// Write the profile to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON, every run in it
    #[arg(long)]
    pub json: bool,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const PROFILE_HELP: &str = "\
Sizes: 512KiB, 2MiB. What CMD prints is not shown. A program that waits is given --ready-file PATH,
which it creates when it has set up, and --go-file PATH, a FIFO whose closing starts it.";

/// Options of `profile-run`.
#[derive(Debug, Args)]
pub struct ProfileRun {
    /// The node whose CPUs it runs on
    #[arg(long, value_name = "NODE")]
    pub cpu_node: u32,

    /// The node that its memory is bound to
    #[arg(long, value_name = "NODE")]
    pub memory_node: u32,

    /// Switch the lab's hardware model on while it runs
    #[arg(long)]
    pub model: bool,

    /// As in `profile`
    #[arg(long)]
    pub waits: bool,

    /// As in `profile`
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub skip: Option<Duration>,

    /// As in `profile`
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub length: Option<Duration>,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub struct Simulate {
    /// A scenario's name or file
    #[arg(required_unless_present = "list")]
    pub scenario: Option<String>,

    /// List the scenarios that come with the program
    #[arg(long, conflicts_with = "scenario")]
    pub list: bool,

    /// Who is compared, the baseline first [default: the scenario's]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policies: Vec<String>,

    /// How often each is run, each time from another seed [default: the scenario's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,

    /// Seed of the first repeat
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub seed: u64,

    /// A preset or a machine file instead of the scenario's
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Files of further program profiles
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub programs: Vec<PathBuf>,

    /// Change a setting of the loop, the policies or the model
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Write everything as JSON to this file; - prints it instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw bar charts into this directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// Keep the ledger of every trial in this directory
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,
}

const SIMULATE_HELP: &str = "\
Keys: herd.limits.bounce_limit=3, policies.n_mass.threshold=40, model.variation=0.1.
Scenario files and what the model makes of them: docs/simulate.md.";

/// Options of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = REPRODUCE_HELP)]
pub struct Reproduce {
    /// Whose claims
    #[arg(value_enum)]
    pub paper: Papers,

    /// Write every line as JSON to this file; - prints it instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Fewer and shorter runs, for a look: nothing is held against the record
    #[arg(long)]
    pub quick: bool,

    /// Renew this record of what holds; lines of a paper that is not run are kept
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Where recorded traces are kept [default: numaherd/traces in the user's cache folder]
    #[arg(long, value_name = "FOLDER")]
    pub traces: Option<PathBuf>,

    /// Draw IPM's sharing patterns (Fig 6) into this folder first
    #[arg(long, value_name = "FOLDER")]
    pub heat_maps: Option<PathBuf>,

    /// Run nothing: show what this record says
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "record"])]
    pub from: Option<PathBuf>,

    /// Write the page that docs/FIDELITY.md is
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// A paper, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Papers {
    /// DINO (Blagodurov and others, 2011).
    Dino,
    /// N-MASS (Majo and Gross, 2011).
    NMass,
    /// BRM (Rao and others, 2013).
    Brm,
    /// IPM (Cruz and others, 2016); needs the lab, which records the traces.
    Ipm,
    /// All of them.
    All,
}

const REPRODUCE_HELP: &str = "\
Ends with 7 when a claim does not hold that held when the program's record (docs/fidelity.json) was
made. What a line means, and when it holds: docs/FIDELITY.md.";

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

/// Reads `500ms`, `1s`, `2.5s`, `10m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number
        .parse()
        .map_err(|_| "a time is written 500ms, 1s or 10m".to_owned())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "s" => number,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err("a time needs a unit: 500ms, 1s, 10m or 1h".to_owned()),
    };
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if duration >= Duration::from_millis(1) => Ok(duration),
        _ => Err("a time must be 1ms or more".to_owned()),
    }
}

/// Reads `512KiB` or `2MiB` as KiB.
fn cache_kib(text: &str) -> Result<u64, String> {
    let (number, kib) = match (text.strip_suffix("KiB"), text.strip_suffix("MiB")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 1024),
        _ => return Err("a size is written 512KiB or 2MiB".to_owned()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "a size is a whole number of KiB or MiB".to_owned())?;
    match number.checked_mul(kib) {
        // A last-level cache of a terabyte is a mistake.
        Some(kib @ 1..=0x4000_0000) => Ok(kib),
        _ => Err("a cache has from 1KiB to 1048576MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(cache_kib("2MiB"), Ok(2048));
        for wrong in ["0KiB", "2", "1.5MiB", "99999999999999MiB", "-1KiB", "MiB"] {
            assert!(cache_kib(wrong).is_err(), "{wrong}");
        }
        for wrong in ["10", "s", "-1s", "0s", "1e400s", "1d", "NaNs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
