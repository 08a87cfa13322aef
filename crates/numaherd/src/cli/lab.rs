//! The command line of `numaherd lab`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::duration;

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
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "10m")]
    pub limit: Duration,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
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
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
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
