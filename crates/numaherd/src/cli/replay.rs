//! The command line of `numaherd record` and `numaherd replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use numaherd_quantity::parse_time;

use super::SelectionOptions;

/// Options of `record`.
#[derive(Debug, Args)]
#[command(after_help = RECORD_HELP)]
pub struct Record {
    /// The ledger to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Which threads; by default, all that may be placed
    #[command(flatten)]
    pub selection: SelectionOptions,

    /// Measure only what these policies need [default: everything that this machine can measure]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub for_policies: Vec<String>,

    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,

    /// Observe, and record, this often [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// Event definitions for this processor, which take precedence over the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,

    /// Start this program, and record it until it ends
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RECORD_HELP: &str = "\
Nothing is decided and nothing is changed. A recording takes about 310 bytes per thread and interval: 16 \
threads take 20 MB an hour at 1s, and 2 GB at 10ms. If the name ends with .zst, it is compressed. At \
1 GiB, the older half is deleted. At the end, the output lists the policies that can be replayed on the recording.";

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub struct Replay {
    /// The ledger of a run or a recording
    pub ledger: PathBuf,

    /// Policies, or placements and pagings joined by a plus sign
    #[arg(long, required = true, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Vec<String>,

    /// Carry each policy's own placement on from interval to interval, instead of judging each interval as
    /// recorded
    #[arg(long)]
    pub carry_on: bool,

    /// Print every decision, with the policies side by side
    #[arg(long)]
    pub decisions: bool,

    /// Machine for the prediction: a preset or a machine file [default: the preset named in the ledger, if
    /// any]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Profiles of the recorded programs, for the prediction
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub programs: Vec<PathBuf>,

    /// Change a setting of the loop or the policies
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Configuration file with the settings of loop and policies [default: the recorded settings of the
    /// loop, and the defaults of the policies]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Seed of the policies' random numbers [default: the recorded run's]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const REPLAY_HELP: &str = "\
Keys: herd.limits.bounce_limit=3, policies.n_mass.threshold=40. Exits with 3 if the \
ledger lacks signals that all of the policies need. Agreement and prediction: docs/replay.md.";
