//! The command line of `numaherd report`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use numaherd_quantity::{NotATime, parse_time};

/// Options of `report`.
#[derive(Debug, Args)]
#[command(after_help = HELP, group = ArgGroup::new("many"))]
pub struct Report {
    /// One ledger, or several to compare; with --fleet, also directories of ledgers
    #[arg(
        required_unless_present = "prometheus",
        conflicts_with = "prometheus",
        value_name = "LEDGER"
    )]
    pub ledgers: Vec<PathBuf>,

    /// The file to write; - for standard output
    #[arg(short, long, value_name = "FILE", required_unless_present = "many")]
    pub output: Option<PathBuf>,

    /// Take each ledger as a host: which hosts, groups and programs lose most, and what would help
    #[arg(long, group = "many")]
    pub fleet: bool,

    /// The same from a Prometheus: its http:// address
    #[arg(long, value_name = "URL", group = "many")]
    pub prometheus: Option<String>,

    /// Average Prometheus' figures over this time [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = span, requires = "prometheus")]
    pub over: Option<Duration>,

    /// Print JSON instead of text
    #[arg(long, requires = "many", conflicts_with = "output")]
    pub json: bool,
}

/// A time over which Prometheus has at least a few samples.
fn span(text: &str) -> Result<Duration, String> {
    let time = parse_time(text).map_err(|error: NotATime| error.to_string())?;
    match time.as_secs() {
        0..60 => Err("at least 1 min, so that there are several samples in it".to_owned()),
        _ => Ok(time),
    }
}

const HELP: &str = "\
The page is self-contained: no script, no network. Runs of one policy on one machine are combined into \
means with 95 % confidence intervals. A damaged ledger is shown up to the damage. --fleet and --prometheus \
print text, unless --output names a page. docs/fleet.md.";
