//! The command line of `numaherd lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use numaherd::cli::Steering;
use numaherd_quantity::parse_time;
use serde::Serialize;

/// The lab.
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// Run a program of this machine in the guest, and pass on its output and exit code
    Run(LabRun),
    /// Run a scenario under several policies and compare them
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
    /// Machine of the guest: a preset or a machine file
    #[arg(long, value_name = "NAME", default_value = "lab-4x2")]
    pub machine: String,

    /// The guest's kernel, where it is not that of `make setup`: a newer one, which `scripts/setup.sh linux VERSION`
    /// prepares, such as 7.3
    #[arg(long = "kernel", value_name = "VERSION")]
    pub linux: Option<String>,

    /// Run the guest in the host's time, without the hardware model
    #[arg(long)]
    pub real_time: bool,

    /// Also model the machine's TLBs and an IPM unit, which reports pages that should move and threads that
    /// share pages (/dev/numaherd_ipm)
    #[arg(long, conflicts_with = "real_time")]
    pub ipm: bool,

    /// Kill the guest after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10m")]
    pub limit: Duration,

    /// How to herd CMD, if at all
    #[command(flatten)]
    pub herding: Herding,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RUN_HELP: &str = "\
With --policy, `numaherd run` herds CMD in the guest, and prints its summary to standard error. With \
--ledger, the record is written during the run: watch it with `numaherd top --follow FILE`, and read it \
afterwards with `numaherd explain FILE`.
Files that CMD writes stay in the guest and are lost when it ends.";

/// `numaherd run` in the guest, and its options.
#[derive(Debug, Args)]
#[command(next_help_heading = "Herding")]
#[command(mut_group("Steering", |group| group.requires("herded")))]
#[group(skip)]
pub struct Herding {
    /// Herd CMD in the guest with this policy (see `numaherd policies`)
    #[arg(long, value_name = "NAME", group = "herded")]
    pub policy: Option<String>,

    /// Configuration file for `numaherd run`, which may name the policy [default: none, not even this
    /// machine's own]
    #[arg(long, value_name = "FILE", group = "herded")]
    pub config: Option<PathBuf>,

    /// Record all observations, decisions and outcomes in this file of the host, during the run
    #[arg(long, value_name = "FILE", requires = "herded")]
    pub ledger: Option<PathBuf>,

    /// How to herd it
    #[command(flatten)]
    pub steering: Steering,
}

impl Herding {
    /// The arguments of `numaherd run`; `None` if nothing should herd CMD.
    pub fn arguments(&self) -> Option<Vec<OsString>> {
        if self.policy.is_none() && self.config.is_none() {
            return None;
        }
        let how = &self.steering;
        let config = self.config.clone().unwrap_or_else(|| "none".into());
        let time = |time: Duration| format!("{}ms", time.as_millis());
        let options: [(&str, Option<OsString>); 9] = [
            ("--policy", self.policy.as_ref().map(Into::into)),
            ("--config", Some(config.into())),
            ("--interval", how.interval.map(|of| time(of).into())),
            (
                "--paging-interval",
                how.paging_interval.map(|of| time(of).into()),
            ),
            ("--cpus", how.cpus.as_ref().map(|of| of.to_string().into())),
            (
                "--nodes",
                how.nodes.as_ref().map(|of| of.to_string().into()),
            ),
            ("--scope", how.scope.and_then(word)),
            ("--enforce", how.enforce.and_then(word)),
            ("--seed", how.seed.map(|seed| seed.to_string().into())),
        ];
        let given = options
            .into_iter()
            .filter_map(|(name, value)| Some([name.into(), value?]));
        let mut words: Vec<OsString> = given.flatten().collect();
        words.extend(how.dry_run.then(|| "--dry-run".into()));
        words.extend(how.take_over.then(|| "--take-over".into()));
        Some(words)
    }
}

/// A choice as it is typed.
fn word(choice: impl Serialize) -> Option<OsString> {
    Some(serde_json::to_value(choice).ok()?.as_str()?.into())
}

/// Options of `lab compare`.
#[derive(Debug, Args)]
pub struct LabCompare {
    /// Scenarios, each by its name or file; an overview ends the output of several
    #[arg(
        value_name = "SCENARIO",
        required_unless_present = "program",
        conflicts_with = "program"
    )]
    pub scenarios: Vec<String>,

    /// Machine of the guest: a preset or a machine file [default: the scenario's; for CMD, lab-4x2]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// What to compare: linux, linux-balancing, linux-cache-aware, interleave, weighted-interleave, numad, scx_layered,
    /// scx_rusty, scx_cosmos, best-known, or policies, such as brm, brm@scx for hints to scx_layered, or brm@balancing beside the
    /// kernel's NUMA balancing [default: the scenario's, or linux, linux-balancing, numad, di-plain, di-migrate, dino; for CMD, linux,
    /// linux-balancing, adaptive]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policies: Vec<String>,

    /// Kernels for the guest, side by side: that of `make setup` by its version, such as 6.12, and newer ones, which
    /// `scripts/setup.sh linux VERSION` prepares, such as 7.3
    #[arg(long = "kernel", value_name = "VERSION,…", value_delimiter = ',')]
    pub kernels: Vec<String>,

    /// Number of runs of each [default: the scenario's, or 5; for CMD, 3]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,

    /// Also write all trials to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Keep the ledger of every trial in this directory
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,

    /// Draw the overview of several scenarios as an SVG file
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,

    /// Keep what each trial gave in this directory, and make no trial again that is there
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,

    /// Begin no trial after this time; with --keep, the same command continues
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub time: Option<Duration>,

    /// Kill the guest if one trial takes longer than this
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "5m")]
    pub limit: Duration,

    /// In place of a scenario: a program that runs alone, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `lab brm`.
#[derive(Debug, Args)]
pub struct LabBrm {
    /// Shorter runs and three repeats: an hour or two instead of half a day
    #[arg(long)]
    pub quick: bool,

    /// Working sets in MiB [default: 4,8,16,32,64,128]
    #[arg(long, value_name = "MIB,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub working_sets: Vec<u64>,

    /// Number of runs of each strategy; 0 for only Fig 5 and 7 [default: 10, with --quick 3]
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

    /// The policy or baseline
    #[arg(long, value_name = "NAME")]
    pub policy: String,

    /// Which repeat
    #[arg(long, value_name = "NUMBER")]
    pub repeat: u32,

    /// The menagerie's program
    #[arg(long, value_name = "FILE")]
    pub menagerie: PathBuf,

    /// The weight of each node under weighted interleaving, one after the other
    #[arg(long = "weight", value_name = "NUMBER")]
    pub weights: Vec<u32>,

    /// Record the run in this file
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
}
