//! Why a trace cannot be written or read, and what is damaged in one that can.

use std::fmt;
use std::path::{Path, PathBuf};

use numaherd_hardware::HardwareError;
use numaherd_topology::{CpuId, Invalid, NodeId};
use serde::Serialize;

/// Why a trace cannot be written, read, or played on a machine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be opened.
    #[error("cannot open {path}: {why}; check the path", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// A trace cannot be read any further.
    #[error("cannot read the trace at byte {at}: {why}")]
    Read {
        /// Where, in bytes from the start of the file.
        at: u64,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// A trace cannot be written any further.
    #[error("cannot write the trace at byte {at}: {why}; is the disk full?")]
    Write {
        /// Where, in bytes from the start of the file.
        at: u64,
        /// The operating system's reason.
        why: std::io::Error,
    },
    /// The file does not start as a trace does.
    #[error(
        "this is not a trace: {0}; use `numaherd trace import` to convert the output of other tools"
    )]
    NoTrace(String),
    /// The text comes from no tool whose traces can be read.
    #[error(
        "no line of this text is one of `valgrind --tool=lackey --trace-mem=yes` or of `perf script -F comm,pid,tid,time,period,event,addr`: it starts with {0:?}"
    )]
    UnknownText(String),
    /// The file is of a later version of the format.
    #[error(
        "this trace has version {found}, but this program reads versions up to {known}; record it again, or use a newer numaherd"
    )]
    Version {
        /// The file's version.
        found: u32,
        /// The latest version that can be read.
        known: u32,
    },
    /// The file is damaged.
    #[error("{0}")]
    Damaged(Damage),
    /// A frame was given more events than it can hold.
    #[error(
        "{given} events do not fit into one frame, which holds at most {most}; write them in several"
    )]
    FrameFull {
        /// Events given.
        given: usize,
        /// Events that a frame holds.
        most: usize,
    },
    /// A frame was written for a thread that is in no table.
    #[error(
        "thread {thread} was never named to the writer, which knows of {known}; call Writer::thread first"
    )]
    UnknownThread {
        /// The thread's number.
        thread: u32,
        /// Threads that the writer knows of.
        known: u32,
    },
    /// K or N of a migration strategy is 0.
    #[error("{0} is 0; pages per move (K) and accesses per sample (N) must be 1 or more")]
    Zero(&'static str),
    /// The caches to run a trace through cannot be modelled.
    #[error("the caches cannot be modelled: {0}")]
    Caches(HardwareError),
    /// A trace touches more memory than is modelled.
    #[error("the caches cannot be modelled: the trace touches more than {0} bytes of memory")]
    Memory(u64),
    /// A trace's pages and a machine's lines do not fit each other.
    #[error(
        "the trace's pages have {page_bytes} bytes; they must be a power of two and hold lines of {line_bytes} bytes"
    )]
    Pages {
        /// Bytes of the trace's pages.
        page_bytes: u64,
        /// Bytes of a line.
        line_bytes: u64,
    },
    /// The machine file lacks figures, or has invalid ones.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// The machine's topology contradicts itself.
    #[error("the machine {machine} cannot be built: {why}")]
    Topology {
        /// Its name.
        machine: String,
        /// What is wrong.
        why: Invalid,
    },
    /// The machine's model and its topology differ in their cores or nodes.
    #[error(
        "the machine {machine} cannot be built: its model has {} cores on {} nodes, its topology {} CPUs on {}",
        .model.0, .model.1, .topology.0, .topology.1
    )]
    Shape {
        /// Its name.
        machine: String,
        /// Cores and nodes of the model.
        model: (usize, usize),
        /// CPUs and nodes of the topology.
        topology: (usize, usize),
    },
    /// The machine's hardware or memory contradicts itself.
    #[error("the machine {machine} cannot be built: {why}")]
    Machine {
        /// Its name.
        machine: String,
        /// What is wrong.
        why: HardwareError,
    },
    /// The IPM unit cannot be built as configured.
    #[error("the IPM unit cannot be built: {0}; change `ipm`, or omit it")]
    Unit(HardwareError),
    /// An option is invalid.
    #[error("{option} is {value}; it must be {must}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        value: u64,
        /// The values that are allowed.
        must: &'static str,
    },
    /// A given placement has more threads than the trace.
    #[error("the given placement is of {given} threads, and the trace has {threads}")]
    StartThreads {
        /// Threads of the placement.
        given: usize,
        /// Threads of the trace.
        threads: usize,
    },
    /// A given placement names a CPU that is not there.
    #[error("the given placement names CPU {cpu}, which {machine} does not have")]
    StartCpu {
        /// The CPU.
        cpu: CpuId,
        /// The machine's name.
        machine: String,
    },
    /// A given placement names a node without memory.
    #[error("the given placement names node {node}, where {machine} has no memory")]
    StartNode {
        /// The node.
        node: NodeId,
        /// The machine's name.
        machine: String,
    },
    /// The trace has no threads.
    #[error("the trace has no threads")]
    NoThreads,
    /// A frame could not be compressed.
    #[error("cannot compress a frame of thread {thread}: {why}")]
    Compress {
        /// The thread's number.
        thread: u32,
        /// The compressor's reason.
        why: std::io::Error,
    },
}

impl Error {
    /// Why a file cannot be opened, with the operating system's reason.
    pub(crate) fn open(path: &Path) -> impl Fn(std::io::Error) -> Self {
        |why| Self::Open {
            path: path.to_owned(),
            why,
        }
    }
}

/// Where a trace is damaged, and how. Everything before it is reliable.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Damage {
    /// Where, in bytes from the start of the file.
    pub at: u64,
    /// What is wrong there.
    pub why: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the trace is damaged at byte {}: {}", self.at, self.why)
    }
}
