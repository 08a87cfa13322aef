//! The command line of `numaherd report`.

use std::path::PathBuf;

use clap::Args;

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Report {
    /// The ledgers of one run or of several, which are then compared
    #[arg(required = true, value_name = "LEDGER")]
    pub ledgers: Vec<PathBuf>,

    /// The page's file; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

const HELP: &str = "\
The page needs nothing but itself: no script, no network. Runs of one policy on one machine are taken
together: means with 95 % confidence intervals. A damaged ledger is drawn up to the damage.";
