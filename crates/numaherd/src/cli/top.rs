//! The command line of `numaherd top`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use numaherd_quantity::parse_time;

/// Options of `top`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Top {
    /// A ledger [default: the running herd, or else this machine]
    #[arg(value_name = "LEDGER")]
    pub source: Option<PathBuf>,

    /// Follow a ledger that is still being written, or does not exist yet
    #[arg(short, long, requires = "source")]
    pub follow: bool,

    /// Print one frame as text, and exit
    #[arg(long)]
    pub once: bool,

    /// Write one frame to this file as SVG, and exit; - for standard output
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Start at this time of a ledger
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "source")]
    pub at: Option<Duration>,

    /// What to show first
    #[arg(long, value_enum, default_value = "processes")]
    pub view: View,

    /// Sort by the column with this title
    #[arg(long, value_name = "COLUMN")]
    pub sort: Option<String>,

    /// Show only rows with this text or regular expression
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,

    /// Columns of a printed or drawn frame [default: those of the terminal, or 120]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub width: Option<u16>,

    /// Rows of a printed or drawn frame [default: those of the terminal, or 40]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub height: Option<u16>,

    /// Watch this machine directly, even if a herd is running
    #[arg(long, conflicts_with = "source")]
    pub here: bool,

    /// The control socket of the herd to watch
    #[arg(long, value_name = "PATH", conflicts_with_all = ["source", "here"])]
    pub socket: Option<PathBuf>,

    /// Use ASCII characters only
    #[arg(long)]
    pub ascii: bool,

    /// Use the mouse: click to select and to sort, wheel to scroll
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
    /// Accesses from node to node.
    Heat,
    /// Decisions.
    Decisions,
}

const HELP: &str = "\
Press ? for the keys. `top` never changes anything; if no herd is running, it watches this machine \
itself. It respects NO_COLOR. Columns: docs/top.md.";
