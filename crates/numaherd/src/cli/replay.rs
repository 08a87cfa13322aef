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

    /// Which threads; all that may be steered when nothing is chosen
    #[command(flatten)]
    pub selection: SelectionOptions,

    /// Measure what these policies go by [default: everything this machine measures]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub for_policies: Vec<String>,

    /// Stop after this time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,

    /// Look this often, and record every look [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub interval: Option<Duration>,

    /// Events to count with on this processor, tried before the built-in ones
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,

    /// Start this program and record it, until it ends
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const RECORD_HELP: &str = "\
Nothing is decided and nothing is changed. Size: some 310 bytes for each thread and interval; 16 threads
at 1s are 20 MB an hour, at 10ms 2 GB. Beyond 1 GiB the older half is let go. What a recording can be
replayed with is said at its end.";

/// Options of `replay`.
#[derive(Debug, Args)]
#[command(after_help = REPLAY_HELP)]
pub struct Replay {
    /// The ledger of a run or a recording
    pub ledger: PathBuf,

    /// Policies to ask, or placements and pagings joined by a plus
    #[arg(long, required = true, value_name = "NAME,…", value_delimiter = ',')]
    pub policy: Vec<String>,

    /// Carry each policy's own placement on, instead of judging each interval as it was recorded
    #[arg(long)]
    pub carry_on: bool,

    /// Print every decision, the policies side by side
    #[arg(long)]
    pub decisions: bool,

    /// The machine's figures for the prediction: a preset or a machine file [default: the preset that
    /// the ledger names, if it does]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Files of profiles of the recorded programs, for the prediction
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub programs: Vec<PathBuf>,

    /// Change a setting of the loop or the policies
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Configuration file, whose settings of loop and policies are used [default: the recorded run's
    /// settings of the loop, the policies' own]
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
Keys: herd.limits.bounce_limit=3, policies.n_mass.threshold=40. Ends with 3 when the ledger holds
nothing that any of the policies could go by. What agreement and prediction mean: docs/replay.md.";
