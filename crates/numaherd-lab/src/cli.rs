//! The command line of the laboratory: one definition that feeds parser and help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, Parser, Subcommand, ValueEnum};
use numaherd::exit::EXIT_CODES;
use numaherd::laboratory::about;
use numaherd_experiment::claims::Paper;
use numaherd_quantity::{parse_bytes, parse_time};

mod lab;
mod trace;

pub use lab::{Herding, Lab, LabBrm, LabCompare, LabRun, LabTrial};
pub use trace::{Trace, TraceImport, TraceInfo, TraceRecord, TraceSimulate, TraceSra};

/// Compare policies in a real guest kernel, on a model of a machine and on recorded traces.
#[derive(Debug, Parser)]
#[command(name = "numaherd-lab", bin_name = "numaherd", version, about, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(subcommand, about = about("lab"))]
    Lab(Lab),
    #[command(about = about("simulate"))]
    Simulate(Box<Simulate>),
    #[command(about = about("reproduce"))]
    Reproduce(Reproduce),
    #[command(about = about("profile"))]
    Profile(Box<Profile>),
    /// One run of a profile, where it is measured
    #[command(hide = true)]
    ProfileRun(Box<ProfileRun>),
    #[command(subcommand, about = about("trace"))]
    Trace(Trace),
    /// Write manual pages and shell completions of both programs
    #[command(hide = true)]
    Manual(Manual),
}

/// Options of `profile`.
#[derive(Debug, Args)]
#[command(after_help = PROFILE_HELP)]
pub struct Profile {
    /// The lab's machine: a preset or a machine file; with --here, a description of this machine
    /// [default in the lab: lab-4x2-half]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Measure on this machine instead of in the lab
    #[arg(long)]
    pub here: bool,

    /// Name of the profile [default: the program's file name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Additional sizes of the last-level cache [default: half and a quarter of the machine's]
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = cache_kib, conflicts_with = "here")]
    pub cache_sizes: Vec<u64>,

    /// Number of runs with local and with remote memory
    #[arg(long, value_name = "NUMBER", default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,

    /// Which part of CMD to count
    #[command(flatten)]
    pub part: Part,

    /// Kill the guest if one run takes longer than this
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "10m")]
    pub limit: Duration,

    /// Write the profile to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON with every run
    #[arg(long)]
    pub json: bool,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

const PROFILE_HELP: &str = "\
Sizes: 512KiB, 2MiB. The output of CMD is not shown. A program that waits receives --ready-file PATH, \
which it creates after its set-up, and --go-file PATH, a FIFO that starts it when closed.";

/// Which part of a program a profile counts.
#[derive(Debug, Args)]
#[group(skip)]
pub struct Part {
    /// CMD waits for a start signal, like the programs of scenarios; count only from then on
    #[arg(long)]
    pub waits: bool,

    /// Do not count the first part of each run
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub skip: Option<Duration>,

    /// End each run after this much counted time
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub length: Option<Duration>,
}

/// Options of `profile-run`.
#[derive(Debug, Args)]
pub struct ProfileRun {
    /// The node whose CPUs it runs on
    #[arg(long, value_name = "NODE")]
    pub cpu_node: u32,

    /// The node that its memory is bound to
    #[arg(long, value_name = "NODE")]
    pub memory_node: u32,

    /// Switch the lab's hardware model on while it runs
    #[arg(long)]
    pub model: bool,

    /// Which part of CMD to count
    #[command(flatten)]
    pub part: Part,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
#[command(after_help = SIMULATE_HELP)]
pub struct Simulate {
    /// A scenario's name or file
    #[arg(required_unless_present = "list")]
    pub scenario: Option<String>,

    /// List the built-in scenarios
    #[arg(long, conflicts_with = "scenario")]
    pub list: bool,

    /// Policies to compare, the baseline first [default: the scenario's]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub policies: Vec<String>,

    /// Number of runs of each policy, with different seeds [default: the scenario's]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: Option<u32>,

    /// Seed of the first repeat
    #[arg(long, value_name = "NUMBER", default_value = "0")]
    pub seed: u64,

    /// Machine: a preset or a machine file [default: the scenario's]
    #[arg(long, value_name = "NAME")]
    pub machine: Option<String>,

    /// Additional files of program profiles
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub programs: Vec<PathBuf>,

    /// Change a setting of the loop, the policies or the model
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Write all figures to this file as JSON; - prints them instead of the tables
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draw bar charts into this directory
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// Keep the ledger of every trial in this directory
    #[arg(long, value_name = "DIR")]
    pub ledgers: Option<PathBuf>,
}

const SIMULATE_HELP: &str = "\
Keys: herd.limits.bounce_limit=3, policies.n_mass.threshold=40, model.variation=0.1.
Scenario files and the model: docs/simulate.md.";

/// Options of `reproduce`.
#[derive(Debug, Args)]
#[command(after_help = REPRODUCE_HELP)]
pub struct Reproduce {
    /// The paper
    #[arg(value_enum)]
    pub paper: Papers,

    /// Write all lines to this file as JSON; - prints them instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Fewer and shorter runs, without comparing with the record
    #[arg(long)]
    pub quick: bool,

    /// Run on the machine of this file in place of the paper's of the same name, without comparing with the record
    #[arg(long = "machine", value_name = "FILE", conflicts_with_all = ["decisions", "from", "markdown", "record"])]
    pub machines: Vec<PathBuf>,

    /// Renew this record of the results; keeps the lines of papers that are not run
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// The commit that the program was built from, for the record
    #[arg(long, value_name = "COMMIT", requires = "record")]
    pub commit: Option<String>,

    /// Folder of recorded traces [default: numaherd/traces in the user's cache folder]
    #[arg(long, value_name = "FOLDER")]
    pub traces: Option<PathBuf>,

    /// Record all traces again first
    #[arg(long, conflicts_with = "from")]
    pub fresh_traces: bool,

    /// Draw IPM's sharing patterns (Fig 6) into this folder first
    #[arg(long, value_name = "FOLDER")]
    pub heat_maps: Option<PathBuf>,

    /// Show what brm's decisions on its micro-benchmark rest on, and check no claim; only for brm
    #[arg(long, conflicts_with_all = ["json", "record", "from", "markdown"])]
    pub decisions: bool,

    /// Run nothing, and show this record
    #[arg(long, value_name = "FILE", conflicts_with_all = ["quick", "record"])]
    pub from: Option<PathBuf>,

    /// Write the results to this file as a page like docs/FIDELITY.md
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// A paper, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Papers(pub &'static [Paper]);

impl ValueEnum for Papers {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(&[Paper::Dino]),
            Self(&[Paper::NMass]),
            Self(&[Paper::Brm]),
            Self(&[Paper::Ipm]),
            Self(&[Paper::Autonuma]),
            Self(&[Paper::Adaptive]),
            Self(&Paper::ALL),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self.0 {
            [Paper::Dino] => ("dino", "DINO (Blagodurov and others, 2011)"),
            [Paper::NMass] => ("n-mass", "N-MASS (Majo and Gross, 2011)"),
            [Paper::Brm] => ("brm", "BRM (Rao and others, 2013)"),
            [Paper::Ipm] => (
                "ipm",
                "IPM (Cruz and others, 2016); needs the lab to record traces",
            ),
            [Paper::Autonuma] => (
                "autonuma",
                "autonuma-benchmark (Arcangeli and Holasek, 2012)",
            ),
            [Paper::Adaptive] => (
                "adaptive",
                "Not a paper: what `adaptive` must show on the papers' workloads",
            ),
            _ => ("all", "All of them"),
        };
        Some(PossibleValue::new(name).help(help))
    }
}

const REPRODUCE_HELP: &str = "\
Exits with 7 if a claim does not hold that held in the program's record (docs/fidelity.json). What a \
line means, and when it holds: docs/FIDELITY.md.";

/// Options of `manual`.
#[derive(Debug, Args)]
#[command(after_help = MANUAL_HELP)]
pub struct Manual {
    /// The folder to write to; it is created if missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,

    /// The date on the pages [default: none]
    #[arg(
        long,
        value_name = "YYYY-MM-DD",
        default_value = "",
        hide_default_value = true
    )]
    pub date: String,
}

const MANUAL_HELP: &str = "\
Writes PROGRAM/man1/*.1, a page for each command, and bash/numaherd, zsh/_numaherd, fish/numaherd.fish. The \
same programs and date give the same bytes.";

/// Reads `512KiB` or `2MiB` as KiB.
fn cache_kib(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text, 0).map_err(|error| error.to_string())?;
    match bytes / 1024 {
        // A last-level cache of more than a terabyte is a mistake.
        kib @ 1..=0x4000_0000 if bytes.is_multiple_of(1024) => Ok(kib),
        _ => Err("a cache has whole KiB, from 1KiB to 1048576MiB: 512KiB or 2MiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_of_caches_have_units() {
        assert_eq!(cache_kib("2MiB"), Ok(2048));
        for wrong in ["0KiB", "2", "1.5KiB", "99999999999999MiB", "-1KiB", "MiB"] {
            assert!(cache_kib(wrong).is_err(), "{wrong}");
        }
    }
}
