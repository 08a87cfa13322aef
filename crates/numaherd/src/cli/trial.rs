//! The command line of `numaherd trial`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use numaherd_quantity::parse_time;

use super::{HerdFiles, SelectionOptions};

/// Options of `trial`.
#[derive(Debug, Args)]
#[command(after_help = TRIAL_HELP)]
pub struct Trial {
    /// The policy to try [default: the configured one, or adaptive]
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,

    /// What to compare it with: linux (threads where Linux had them, with their affinities restored, and nothing
    /// decided), or another policy
    #[arg(long, value_name = "NAME", default_value = "linux")]
    pub against: String,

    /// Which threads; by default, all that may be placed
    #[command(flatten)]
    pub selection: SelectionOptions,

    /// How long one side runs before the next; two blocks make a pair
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10s")]
    pub block: Duration,

    /// How much of the beginning of each block does not count [default: 3/10 of a block]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub washout: Option<Duration>,

    /// How long the trial takes: as many pairs as fit
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10m")]
    pub time: Duration,

    /// End as soon as a difference is shown
    #[arg(long)]
    pub stop_early: bool,

    /// Measure progress by this shell command, which prints a counter that only rises
    #[arg(long, value_name = "CMD", conflicts_with = "prometheus")]
    pub progress: Option<String>,

    /// Measure progress by a counter of a Prometheus endpoint: its http:// address, and the metric's name,
    /// optionally with labels
    #[arg(long, num_args = 2, value_names = ["URL", "METRIC"])]
    pub prometheus: Option<Vec<String>>,

    /// Seed of the order of blocks, and of the policy's random numbers [default: from the clock]
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,

    /// What is read and written
    #[command(flatten)]
    pub files: HerdFiles,

    /// Print one JSON object at the end instead of text
    #[arg(long)]
    pub json: bool,

    /// Start this program in a process group of its own, and end the group with the trial
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const TRIAL_HELP: &str = "\
Ctrl-C ends the trial at any moment: it restores all affinities and prints what is known by then, \
with an interval that holds. Without --progress and --prometheus, progress is what the machine \
counts, instructions or else CPU time; neither need be what your program is for. docs/trial.md.";
