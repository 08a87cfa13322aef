//! The command line of `numaherd report`.

use std::path::PathBuf;

use clap::Args;

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Report {
    /// One ledger, or several to compare
    #[arg(required = true, value_name = "LEDGER")]
    pub ledgers: Vec<PathBuf>,

    /// The file to write; - for standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

const HELP: &str = "\
The page is self-contained: no script, no network. Runs of one policy on one machine are combined into
means with 95 % confidence intervals. A damaged ledger is shown up to the damage.";
