//! The command line of `numaherd top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use numaherd_quantity::parse_time;

/// Options of `top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Top {
    /// A ledger; when left out, the herd that runs here, or else this machine as it is
    #[arg(value_name = "LEDGER")]
    pub source: Option<PathBuf>,

    /// Go on with a ledger that is still written, or is not there yet
    #[arg(short, long, requires = "source")]
    pub follow: bool,

    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,

    /// Draw one frame into this file as SVG, and end; - for standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Begin at this time of a ledger
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "source")]
    pub at: Option<Duration>,

    /// What to show first
    #[arg(long, value_enum, default_value = "processes")]
    pub view: View,

    /// Sort by the column of this title
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,

    /// Show only rows with this text or regular expression
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,

    /// Columns of a frame that is printed or drawn [default: those of the terminal, or 120]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub width: Option<u16>,

    /// Rows of a frame that is printed or drawn [default: those of the terminal, or 40]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub height: Option<u16>,

    /// Watch this machine by oneself, even where a herd runs
    #[arg(long, conflicts_with = "source")]
    pub here: bool,

    /// The control socket of the herd to watch
    #[arg(long, value_name = "PATH", conflicts_with_all = ["source", "here"])]
    pub socket: Option<PathBuf>,

    /// Draw with letters of ASCII alone
    #[arg(long)]
    pub ascii: bool,

    /// Listen to the mouse: click to select and to sort, wheel to scroll
    #[arg(long)]
    pub mouse: bool,
}

/// What to show first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// Processes and virtual machines.
    Processes,
    /// Threads.
    Threads,
    /// From node to node.
    Heat,
    /// What was decided.
    Decisions,
}

const HELP: &str = "\
Press ? for the keys. Nothing is ever changed: without a herd, this machine is watched by one that only
looks. NO_COLOR is heeded. What each column is: docs/top.md.";
