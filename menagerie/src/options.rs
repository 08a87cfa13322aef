//! The command line: one definition for the parser, the help and the parameters in the JSON report.

use crate::access::AccessKind;
use crate::kernels::{self, Class};
use crate::memory::Start;
use crate::phases::PhaseLength;
use crate::stream;
use crate::sys::HugePages;
use crate::threads::Length;
use clap::{Args, Parser, Subcommand, ValueEnum};
use numaherd_quantity::{NotASize, parse_bytes};
use numaherd_topology::{CpuId, CpuSet, ListError, NodeId};
use serde::{Serialize, Serializer};
use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

/// Default length of a thread's work.
pub const DEFAULT_LENGTH: Duration = Duration::from_secs(10);

/// Default length of a phase.
pub const DEFAULT_PHASE: Duration = Duration::from_secs(4);

/// Workloads with known memory behaviour, to try schedulers and simulators on.
#[derive(Debug, Parser)]
#[command(name = "menagerie", version, after_help = AFTER_HELP)]
pub struct Options {
    /// Which workload.
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Sizes: 64MiB, 64m, 1.5g, 4096. SIGINT or SIGTERM ends a run early; its result so far is printed.
Exit codes: 0 done; 1 failed; 2 the command line cannot work here; 128 + n ended by signal n.";

/// One workload each.
#[derive(Debug, Subcommand, Serialize)]
#[serde(untagged)]
pub enum Command {
    /// Follow pointers through memory in random order: one line in flight, latency counts
    Chase(WithMemory<BetweenLines>),
    /// Pass over memory in order: bandwidth counts
    Stream(WithMemory<Stream>),
    /// Multiply and add without touching memory: a turtle
    Compute(Common),
    /// Add to random lines, none waiting for another: many lines in flight
    Update(WithMemory<Update>),
    /// Change between miss rates every few seconds, as the ranks of an MPI job do
    Phases(WithMemory<Phases>),
    /// Threads that read and write one working set together
    Share(WithMemory<Share>),
    /// A private list in random order, then words that all threads add to: BRM's micro-benchmark
    Micro(Micro),
    /// A client and a server that touches memory for each request
    Pair(WithMemory<Pair>),
    /// Compute in parallel as programs do: the NAS kernels, a pipeline, a stencil, a grid
    Kernel(Kernel),
    /// The serving process of a pair, started by it
    #[command(hide = true)]
    Serve(Serve),
}

impl Command {
    /// How to start and report; None for a serving process.
    pub fn conduct(&self) -> Option<&Conduct> {
        let common = match self {
            Command::Chase(options) => &options.common,
            Command::Update(options) => &options.common,
            Command::Stream(options) => &options.common,
            Command::Compute(common) => common,
            Command::Phases(options) => &options.common,
            Command::Share(options) => &options.common,
            Command::Micro(options) => &options.common,
            Command::Pair(options) => &options.common,
            Command::Kernel(options) => return Some(&options.conduct),
            Command::Serve(_) => return None,
        };
        Some(&common.conduct)
    }
}

/// Options of a workload that has memory: its own, of its memory, and what all workloads have.
#[derive(Debug, Args, Serialize)]
pub struct WithMemory<Own: Args + Serialize> {
    /// Its own.
    #[command(flatten)]
    #[serde(flatten)]
    pub own: Own,
    /// Memory.
    #[command(flatten)]
    #[serde(flatten)]
    pub memory: Memory,
    /// What all workloads have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Options of `stream` alone.
#[derive(Debug, Args, Serialize)]
pub struct Stream {
    /// What to do with each line; scale and triad divide the working set into 2 and 3 arrays
    #[arg(long, value_enum, default_value = "sum")]
    #[serde(serialize_with = "as_name")]
    pub kernel: stream::Kernel,
}

/// Options of `phases` alone.
#[derive(Debug, Args, Serialize)]
pub struct Phases {
    /// Miss rates to go through, in lines per 1000 instructions; 0 touches no memory
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', default_value = "120,1", value_parser = level)]
    pub levels: Vec<f64>,
    /// How memory is accessed
    #[arg(long, value_enum, default_value = "chase")]
    #[serde(serialize_with = "as_name")]
    pub access: AccessKind,
    /// Phases to be ahead by at the start; 1.5 begins in the middle of the second level
    #[arg(long, value_name = "PHASES", default_value = "0", allow_negative_numbers = true, value_parser = offset)]
    pub offset: f64,
    /// Phases by which each thread is ahead of the one before it
    #[arg(long, value_name = "PHASES", default_value = "0", allow_negative_numbers = true, value_parser = offset)]
    pub stagger: f64,
    /// How long a phase lasts.
    #[command(flatten)]
    #[serde(flatten)]
    pub phase: Phase,
}

/// How long a phase lasts.
#[derive(Debug, Args, Serialize)]
#[group(multiple = false)]
pub struct Phase {
    /// Length of a phase by the clock [default: 4]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(serialize_with = "as_seconds")]
    pub phase_seconds: Option<Duration>,
    /// Length of a phase in operations
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub phase_operations: Option<u64>,
    /// Length of a phase in instructions: equal work at every level
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub phase_instructions: Option<u64>,
}

impl Phase {
    /// The requested length; 4 seconds by default.
    pub fn length(&self) -> PhaseLength {
        match (
            self.phase_seconds,
            self.phase_operations,
            self.phase_instructions,
        ) {
            (_, Some(operations), _) => PhaseLength::Operations(operations),
            (_, _, Some(instructions)) => PhaseLength::Instructions(instructions),
            (duration, None, None) => PhaseLength::Time(duration.unwrap_or(DEFAULT_PHASE)),
        }
    }
}

/// Options of `share` alone.
#[derive(Debug, Args, Serialize)]
pub struct Share {
    /// Share of operations that write, in percent
    #[arg(long, value_name = "PERCENT", default_value = "0", value_parser = clap::value_parser!(u8).range(..=100))]
    pub write_percent: u8,
    /// Share the working set with other processes that give the same name, in /dev/shm; whoever ends takes the name away
    #[arg(long, value_name = "NAME", value_parser = shared_name)]
    pub shared_memory: Option<String>,
}

/// Options of `micro`.
#[derive(Debug, Args, Serialize)]
pub struct Micro {
    /// Private lists of all threads together, in whole lines of 64 bytes each; 0 for none
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = size_or_none)]
    pub working_set: usize,
    /// What all threads share, in whole words of 8 bytes; 0 for nothing
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = size_or_none)]
    pub sharing_size: usize,
    /// Where memory lies unless --home names a node
    #[arg(long, value_enum, default_value = "local", conflicts_with = "home")]
    #[serde(serialize_with = "as_name")]
    pub memory: MemoryPolicy,
    /// Transparent huge pages
    #[arg(long, value_enum, default_value = "default")]
    #[serde(serialize_with = "as_name")]
    pub thp: HugePages,
    /// What all workloads have.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common,
}

/// Where memory lies that has no home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MemoryPolicy {
    /// Where its thread first touches it, on the CPU that is dealt to it
    Local,
    /// Page by page on all nodes in turn
    Interleave,
}

/// Options of `pair` alone.
#[derive(Debug, Args, Serialize)]
pub struct Pair {
    /// Pages that the server touches for a request
    #[arg(long, value_name = "NUMBER", default_value = "8")]
    pub pages: u64,
    /// Iterations of the compute loop between a reply and the next request
    #[arg(long, value_name = "ITERATIONS", default_value = "0")]
    pub think: u64,
    /// What requests go through
    #[arg(long, value_enum, default_value = "pipe")]
    #[serde(serialize_with = "as_name")]
    pub via: Via,
    /// Make every server a process of its own
    #[arg(long)]
    pub processes: bool,
}

/// What requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Two pipes.
    Pipe,
    /// Memory, waiting on a futex.
    Futex,
}

/// Options of `kernel`.
#[derive(Debug, Args, Serialize)]
pub struct Kernel {
    /// Which kernel
    #[arg(value_name = "NAME", value_enum)]
    #[serde(serialize_with = "as_name")]
    pub kernel: kernels::Name,
    /// Size of the problem
    #[arg(long, value_enum, default_value = "S")]
    #[serde(serialize_with = "as_name")]
    pub class: Class,
    /// Threads of the team
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = positive)]
    pub threads: usize,
    /// Iterations [default: those of the class, for which results are published]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..1 << 53))]
    pub iterations: Option<u64>,
    /// Transparent huge pages
    #[arg(long, value_enum, default_value = "default")]
    #[serde(serialize_with = "as_name")]
    pub thp: HugePages,
    /// Where it runs.
    #[command(flatten)]
    #[serde(flatten)]
    pub place: Place,
    /// Seed of pipeline and grid; the NAS kernels have theirs
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,
    /// How to start and report.
    #[command(flatten)]
    #[serde(skip)]
    pub conduct: Conduct,
}

/// Options of `serve`.
#[derive(Debug, Args, Serialize)]
pub struct Serve {
    /// Pages that a request touches
    #[arg(long)]
    pub pages: u64,
    /// Memory.
    #[command(flatten)]
    #[serde(flatten)]
    pub memory: Memory,
    /// Where it runs.
    #[command(flatten)]
    #[serde(flatten)]
    pub place: Place,
    /// Seed.
    #[arg(long)]
    pub seed: u64,
}

/// What is done between lines.
#[derive(Debug, Args, Serialize)]
pub struct BetweenLines {
    /// Iterations of the compute loop after each line, which lower the miss rate
    #[arg(long, value_name = "ITERATIONS", default_value = "0")]
    pub compute: u64,
}

/// Options of `update` alone.
#[derive(Debug, Args, Serialize)]
pub struct Update {
    /// Between the lines.
    #[command(flatten)]
    #[serde(flatten)]
    pub between: BetweenLines,
    /// Grow from one line to the whole working set over this many rounds; pages are first touched when they are reached
    #[arg(long, value_name = "ROUNDS", conflicts_with = "home", value_parser = clap::value_parser!(u64).range(1..))]
    pub grow: Option<u64>,
}

/// Memory.
#[derive(Debug, Args, Serialize)]
pub struct Memory {
    /// Memory of each thread (share: of all together; pair: of each server), in whole pages
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size)]
    pub working_set: usize,
    /// Transparent huge pages
    #[arg(long, value_enum, default_value = "default")]
    #[serde(serialize_with = "as_name")]
    pub thp: HugePages,
}

/// Where threads start and run.
#[derive(Debug, Args, Serialize)]
pub struct Place {
    /// Memory node that holds the working set at the start; pages may be moved afterwards
    #[arg(long, value_name = "NODE", value_parser = node)]
    pub home: Option<NodeId>,
    /// Where threads set up before they are free to run anywhere: home, any, or a CPU
    #[arg(long, value_name = "CPU", default_value = "home", value_parser = start)]
    #[serde(serialize_with = "as_start")]
    pub start_cpu: Start,
    /// CPUs to pin threads to, dealt in turn: 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub cpus: Option<CpuList>,
}

/// CPUs, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuList(pub Vec<CpuId>);

/// What all workloads have.
#[derive(Debug, Args, Serialize)]
pub struct Common {
    /// Threads (pair: clients, each with a server)
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = positive)]
    pub threads: usize,
    /// Where they run.
    #[command(flatten)]
    #[serde(flatten)]
    pub place: Place,
    /// How much they do.
    #[command(flatten)]
    #[serde(flatten)]
    pub length: LengthOptions,
    /// Seed of all random choices; each thread derives its own
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub seed: u64,
    /// How to start and report.
    #[command(flatten)]
    #[serde(skip)]
    pub conduct: Conduct,
}

/// How much each thread does.
#[derive(Debug, Args, Serialize)]
#[group(multiple = false)]
pub struct LengthOptions {
    /// Passes over the working set (compute: 1,000,000 iterations; phases: all levels once; pair: a request; micro: a loop)
    #[arg(long, value_name = "NUMBER")]
    pub rounds: Option<u64>,
    /// Operations
    #[arg(long, value_name = "NUMBER")]
    pub operations: Option<u64>,
    /// Time [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    #[serde(serialize_with = "as_seconds")]
    pub seconds: Option<Duration>,
}

impl LengthOptions {
    /// The requested length; 10 seconds by default.
    pub fn length(&self) -> Length {
        match (self.rounds, self.operations, self.seconds) {
            (Some(rounds), _, _) => Length::Rounds(rounds),
            (_, Some(operations), _) => Length::Operations(operations),
            (None, None, duration) => Length::Time(duration.unwrap_or(DEFAULT_LENGTH)),
        }
    }
}

/// How to start and report.
#[derive(Debug, Args)]
pub struct Conduct {
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// File to create once set-up is done: process id, then the ids of the measured threads
    #[arg(long, value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
    /// FIFO to wait for before the measured part; opening it for writing and closing it releases all
    #[arg(long, value_name = "PATH")]
    pub go_file: Option<PathBuf>,
}

/// Parses a size of memory, above 0.
fn size(text: &str) -> Result<usize, String> {
    match parse_bytes(text, 1).map(isize::try_from) {
        Ok(Ok(0)) => Err("must be more than 0".to_owned()),
        Ok(Ok(bytes)) => Ok(bytes.unsigned_abs()),
        Ok(Err(_)) => Err(NotASize::TooLarge.to_string()),
        Err(why) => Err(why.to_string()),
    }
}

/// Parses a size, or 0 for none.
fn size_or_none(text: &str) -> Result<usize, String> {
    match text.trim() {
        "0" => Ok(0),
        text => size(text),
    }
}

/// Parses a name of shared memory, which must be a valid file name.
fn shared_name(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("must be a name".to_owned()),
        name if name.contains('/') => Err("must be a name without /".to_owned()),
        name => Ok(name.to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(error.to_string()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        // The upper limit keeps sums with the present time within the clock's range.
        Ok(duration) if !duration.is_zero() && seconds <= 1e9 => Ok(duration),
        _ => Err("must be above 0 and at most 1000000000".to_owned()),
    }
}

fn level(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // Below this, an operation would be longer than a phase.
        Ok(level) if level == 0.0 || (level >= 0.001 && level.is_finite()) => Ok(level),
        _ => Err("must be 0, or 0.001 or more lines per 1000 instructions".to_owned()),
    }
}

fn offset(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(offset) if (0.0..1e6).contains(&offset) => Ok(offset),
        _ => Err("must be a number of phases from 0 to 1000000".to_owned()),
    }
}

fn node(text: &str) -> Result<NodeId, ParseIntError> {
    text.parse().map(NodeId)
}

fn start(text: &str) -> Result<Start, String> {
    match (text, text.parse()) {
        ("home", _) => Ok(Start::Home),
        ("any", _) => Ok(Start::Any),
        (_, Ok(cpu)) => Ok(Start::Cpu(CpuId(cpu))),
        _ => Err("must be home, any or a CPU".to_owned()),
    }
}

/// CPUs in the order given, in which they are assigned.
fn cpus(text: &str) -> Result<CpuList, String> {
    let ranges: Result<Vec<CpuSet>, ListError> = text.split(',').map(str::parse).collect();
    let ranges = ranges.map_err(|error| error.to_string())?;
    let cpus: Vec<CpuId> = ranges.iter().flat_map(CpuSet::iter).collect();
    if cpus.is_empty() {
        return Err("must be a list such as 0-3,8".to_owned());
    }
    Ok(CpuList(cpus))
}

fn as_seconds<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    value
        .map(|duration| duration.as_secs_f64())
        .serialize(serializer)
}

fn as_name<T: ValueEnum, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    name_of(value).serialize(serializer)
}

/// The word for `value` on the command line.
pub fn name_of<T: ValueEnum>(value: &T) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn as_start<S: Serializer>(value: &Start, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn lengths_left_out_have_defaults() {
        let Command::Phases(phases) = Options::parse_from(["menagerie", "phases"]).command else {
            panic!()
        };
        assert_eq!(
            phases.common.length.length(),
            Length::Time(Duration::from_secs(10))
        );
        assert_eq!(
            phases.own.phase.length(),
            PhaseLength::Time(Duration::from_secs(4))
        );
    }
}
