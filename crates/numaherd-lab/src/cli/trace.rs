//! The command line of `numaherd trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use numaherd_quantity::parse_time;
use numaherd_trace::sra::Strategy;

mod simulate;

pub use simulate::TraceSimulate;

/// What to do with traces.
#[derive(Debug, Subcommand)]
pub enum Trace {
    /// Record the loads and stores of a program, by running it in the lab
    Record(TraceRecord),
    /// Describe a trace
    Info(TraceInfo),
    /// Convert the text of valgrind's Lackey or of `perf script` to a trace
    Import(TraceImport),
    /// Compute which pages should follow a thread that moved to another node (DINO §4.1)
    Sra(TraceSra),
    /// Play traces on a modelled machine under several policies, and compare them
    Simulate(TraceSimulate),
}

/// Options of `trace record`.
#[derive(Debug, Args)]
pub struct TraceRecord {
    /// Write the trace to this file
    #[arg(short, long, value_name = "FILE", default_value = "numaherd.trace")]
    pub output: PathBuf,

    /// Machine of the guest: a preset or a machine file
    #[arg(long, value_name = "NAME", default_value = "lab-4x2")]
    pub machine: String,

    /// Memory of each node in MiB [default: the machine's]
    #[arg(long, value_name = "MIB")]
    pub memory_mib: Option<u64>,

    /// End the program after this time; the trace contains what it has done until then
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub limit: Option<Duration>,

    /// List the recorded threads at the end
    #[arg(long)]
    pub threads: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, last = true)]
    pub program: Vec<OsString>,
}

/// Options of `trace info`.
#[derive(Debug, Args)]
#[command(after_help = FILES)]
pub struct TraceInfo {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `trace import`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub struct TraceImport {
    /// The text; `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Write the trace to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `trace sra`.
#[derive(Debug, Args)]
#[command(after_help = SRA_HELP)]
pub struct TraceSra {
    /// The trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The strategies [default: all]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = strategy())]
    pub strategies: Vec<Strategy>,

    /// Pages to move at a time (K) [default: 1,2,4,…,16384]
    #[arg(long, short = 'k', value_name = "K,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub pages: Vec<u64>,

    /// Sample one in N memory accesses [default: 1,10,…,100000]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub one_in: Vec<u64>,

    /// Use the caches of this machine: a preset or a file [default: DINO's]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Seed of the positions of samples and of random pages
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub seed: u64,

    /// Also write the cells to this file as CSV
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Also draw them to this file as SVG
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A strategy by its name.
fn strategy() -> impl TypedValueParser<Value = Strategy> {
    let named = |name: String| Strategy::ALL.into_iter().find(|known| known.name() == name);
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::name))
        .try_map(move |name| named(name).ok_or("there is no such strategy"))
}

const FILES: &str = "\
FILE is a trace, or the text of `valgrind --tool=lackey --trace-mem=yes` or of `perf script -F \
comm,pid,tid,time,period,event,addr`, which is imported first.";

const IMPORT_HELP: &str = "\
Examples:
    valgrind --tool=lackey --trace-mem=yes CMD 2>&1 | numaherd trace import - -o x.trace
    perf mem record CMD; perf script -F comm,pid,tid,time,period,event,addr > samples.txt
Lines that cannot be parsed are counted, and the first few are shown.";

const SRA_HELP: &str = "\
Saved remote accesses: the thread has just been moved to another node, all its memory is remote; of \
the accesses that miss the last-level cache, how many are no longer remote because a sample of them \
brought pages along? docs/trace.md says precisely what is counted.
FILE may be a text that `trace import` reads.";
