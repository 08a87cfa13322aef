//! The command line of `numaherd explain`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use numaherd_quantity::{NotATime, parse_time};

/// Options of `explain`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Explain {
    /// The ledger of a finished or running herd [default: the configured one]
    pub ledger: Option<PathBuf>,

    /// Only the decision with this number
    #[arg(long, value_name = "NUMBER", value_parser = number, conflicts_with_all = ["at", "from", "to"])]
    pub decision: Option<u64>,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Only this thread
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,

    /// Only processes or threads with this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Only decisions around this time, within one interval before or after
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["from", "to"])]
    pub at: Option<Duration>,

    /// Only decisions from this time on
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Duration>,

    /// Only decisions up to this time
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Duration>,

    /// Show everything
    #[arg(long)]
    pub all: bool,

    /// Only what a batch job lost, in a few lines that begin with this name
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["decision", "pid", "tid", "name", "at", "from", "to", "all"]
    )]
    pub job: Option<String>,

    /// Also report a job that binds its threads and has the machine to itself
    #[arg(long, requires = "job")]
    pub pinned: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
Without options, it prints a page: what was done, why, whether it helped, how to stop it, and the \
latest decisions with their numbers. The number is that of the ledger record, as in `#412`; the number \
of the corresponding snapshot or outcome works too. Times count from the start of the run: 90s, 12.5s, \
2m.";

/// Reads `412` or `#412`.
fn number(text: &str) -> Result<u64, String> {
    text.strip_prefix('#')
        .unwrap_or(text)
        .parse()
        .map_err(|_| "a decision is a number, as 412".to_owned())
}

/// Reads a time since the run's start, which may be 0.
fn moment(text: &str) -> Result<Duration, NotATime> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        _ => parse_time(text),
    }
}
