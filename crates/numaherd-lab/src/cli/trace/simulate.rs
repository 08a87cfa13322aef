//! The command line of `numaherd trace simulate`.

use std::path::PathBuf;

use clap::Args;

/// Options of `trace simulate`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct TraceSimulate {
    /// Traces; each has a table of its own
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// The machine: a preset or a machine file [default: the scenario's, or lab-4x2]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Policies to compare, the baseline first [default: the scenario's, or first-touch, interleave,
    /// random-mapping, numa-balancing, kmaf, tlb-miss, tlb-miss-history, ipm, oracle]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policies: Vec<String>,

    /// Number of runs of each policy, with different seeds [default: the scenario's, or 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,

    /// Seed of the first run
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub seed: u64,

    /// A scenario, or its settings alone: [herd], [policies] and [trace]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Play each trace this many times; threads and pages stay where they are
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub loops: Option<u32>,

    /// Keep the ledger of every trial in this directory; of one trace only
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

const HELP: &str = "\
The oracle knows the whole trace and has threads and pages in the best places from the start.
Traces are short, so one modelled millisecond stands for 64 ms of the loop's time (`dilation` in [trace]).
The model and the figures: docs/trace.md.";
