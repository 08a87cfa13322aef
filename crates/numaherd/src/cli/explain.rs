//! The command line of `numaherd explain`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use numaherd_quantity::{NotATime, parse_time};

/// Options of `explain`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Explain {
    /// The ledger of a run, ended or going on [default: the one that the configuration names]
    pub ledger: Option<PathBuf>,

    /// Only this decision, by the number that is shown with it
    #[arg(long, value_name = "NUMBER", value_parser = number, conflicts_with_all = ["at", "from", "to"])]
    pub decision: Option<u64>,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pub pid: Option<u32>,

    /// Only this thread
    #[arg(long, value_name = "TID")]
    pub tid: Option<u32>,

    /// Only processes or threads of this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Only what was decided about then, within an interval on either side
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with_all = ["from", "to"])]
    pub at: Option<Duration>,

    /// Only what was decided from then on
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub from: Option<Duration>,

    /// Only what was decided until then
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub to: Option<Duration>,

    /// Leave nothing out
    #[arg(long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
Without a choice it is a page: what was done, why, whether it helped, how to stop it, and the latest
decisions by their numbers. A number is that of the ledger's record, as `#412`; that of a snapshot or
an outcome names the decision that was drawn from it or led to it. Times count from the run's start:
90s, 12.5s, 2m.";

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
