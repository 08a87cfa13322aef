//! The command line of `numaherd lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use numaherd_topology::{CpuSet, NodeSet};

use numaherd_quantity::parse_time;

use super::Stray;

/// The lab.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Run a program of this machine in the guest; its output and exit code come back
    Run(LabRun),
    /// Run a scenario under several contenders and compare them side by side
    Compare(LabCompare),
    /// Measure BRM's micro-benchmark in the guest: its Fig 5, 7, 8a and 9
    Brm(LabBrm),
    /// One trial, inside the guest
    #[command(hide = true)]
    Trial(LabTrial),
}

/// Options of `lab run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub struct LabRun {
    /// What the guest looks like: a preset or a machine file
    #[arg(long, value_name = "NAME", default_value = "lab-4x2")]
    pub machine: String,

    /// Let the guest run in the host's time, without the hardware model
    #[arg(long)]
    pub real_time: bool,

    /// Model the machine's TLBs, with an IPM unit that tells which pages should move and which threads
    /// share them (/dev/numaherd_ipm)
    #[arg(long, conflicts_with = "real_time")]
    pub ipm: bool,

    /// Kill the guest after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10m")]
    pub limit: Duration,

    /// Who herds CMD, if anybody is to
    #[command(flatten)]
    pub herding: Herding,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RUN_HELP: &str = "\
With --policy, `numaherd run` herds CMD in the guest: what it prints at its end goes to standard error,
and with --ledger the record of it comes out while it runs. See it live by `numaherd top --follow FILE`,
and afterwards by `numaherd explain FILE`.
What CMD writes to files stays in the guest and is gone with it.";

/// `numaherd run` in the guest, and what it is told.
#[derive(Debug, Args)]
#[command(next_help_heading = "Herding")]
#[group(skip)]
pub struct Herding {
    /// Herd CMD in the guest by this policy (`numaherd policies`)
    #[arg(long, value_name = "NAME", group = "herded")]
    pub policy: Option<String>,

    /// Configuration file, as `numaherd run` takes it; it may name the policy. Without it none is read,
    /// this machine's own neither
    #[arg(long, value_name = "FILE", group = "herded")]
    pub config: Option<PathBuf>,

    /// Record everything seen, decided and done in this file of the host, while it runs
    #[arg(long, value_name = "FILE", requires = "herded")]
    pub ledger: Option<PathBuf>,

    /// Plan, govern and record, but carry nothing out
    #[arg(long, requires = "herded")]
    pub dry_run: bool,

    /// How often threads are placed [default: as the policy's source has it, or 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "herded")]
    pub interval: Option<Duration>,

    /// How often pages are looked after [default: 10ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "herded")]
    pub paging_interval: Option<Duration>,

    /// Keep threads to these CPUs
    #[arg(long, value_name = "LIST", requires = "herded")]
    pub cpus: Option<CpuSet>,

    /// Move pages to these nodes only
    #[arg(long, value_name = "LIST", requires = "herded")]
    pub nodes: Option<NodeSet>,

    /// How far a thread may stray from the core it is given [default: as the policy has it, or domain]
    #[arg(long, value_enum, requires = "herded")]
    pub stray: Option<Stray>,

    /// Steer threads that have an affinity of their own, too
    #[arg(long, requires = "herded")]
    pub take_over: bool,

    /// Seed of the policy's random numbers [default: 0]
    #[arg(long, value_name = "NUMBER", requires = "herded")]
    pub seed: Option<u64>,
}

impl Herding {
    /// What `numaherd run` is told of it; nothing when nobody is to herd.
    pub fn arguments(&self) -> Option<Vec<OsString>> {
        if self.policy.is_none() && self.config.is_none() {
            return None;
        }
        let mut told = Vec::new();
        let mut option = |name: &str, value: Option<OsString>| {
            told.extend(
                value
                    .map(|value| [name.into(), value])
                    .into_iter()
                    .flatten(),
            );
        };
        let time = |time: Duration| format!("{}ms", time.as_millis()).into();
        let stray = self.stray.and_then(|stray| stray.to_possible_value());
        option("--policy", self.policy.as_ref().map(Into::into));
        let config = self.config.clone().unwrap_or_else(|| "none".into());
        option("--config", Some(config.into()));
        option("--interval", self.interval.map(time));
        option("--paging-interval", self.paging_interval.map(time));
        option(
            "--cpus",
            self.cpus.as_ref().map(|cpus| cpus.to_string().into()),
        );
        option(
            "--nodes",
            self.nodes.as_ref().map(|nodes| nodes.to_string().into()),
        );
        option("--stray", stray.map(|stray| stray.get_name().into()));
        option("--seed", self.seed.map(|seed| seed.to_string().into()));
        told.extend(self.dry_run.then(|| "--dry-run".into()));
        told.extend(self.take_over.then(|| "--take-over".into()));
        Some(told)
    }
}

/// Options of `lab compare`.
#[derive(Debug, Args)]
pub struct LabCompare {
    /// A scenario's name or file
    pub scenario: String,

    /// Who is compared: linux, linux-balancing, numad, or policies
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = crate::compare::USUAL)]
    pub policies: Vec<String>,

    /// How often each is run
    #[arg(long, value_name = "NUMBER", default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// Also write all trials to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Keep the ledger of every trial in this directory
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,

    /// Kill the guest when one trial takes longer than this
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5m")]
    pub limit: Duration,
}

/// Options of `lab brm`.
#[derive(Debug, Args)]
pub struct LabBrm {
    /// Shorter runs and three repeats: an hour or two in place of half a day
    #[arg(long)]
    pub quick: bool,

    /// Working sets in MiB [default: 4,8,16,32,64,128]
    #[arg(long, value_name = "MIB,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub working_sets: Vec<u64>,

    /// How often each strategy is run, 0 for Fig 5 and 7 alone [default: 10, with --quick 3]
    #[arg(long, value_name = "NUMBER")]
    pub repeat: Option<u32>,

    /// Steps of each thread in a run of Fig 8a and 9 [default: 80000000, with --quick 20000000]
    #[arg(long, value_name = "NUMBER")]
    pub steps: Option<u64>,

    /// Only Fig 8a and 9
    #[arg(long)]
    pub strategies_only: bool,

    /// Also write all figures to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Options of `lab trial`.
#[derive(Debug, Args)]
pub struct LabTrial {
    /// A scenario's name or file
    pub scenario: String,

    /// Who places
    #[arg(long, value_name = "NAME")]
    pub policy: String,

    /// Which repeat
    #[arg(long, value_name = "NUMBER")]
    pub repeat: u32,

    /// The menagerie's program
    #[arg(long, value_name = "FILE")]
    pub menagerie: PathBuf,

    /// Record the run in this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}
