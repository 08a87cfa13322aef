//! What all workloads have in common: they do a number of operations when told, and say what one
//! operation is and costs.

use crate::error::Error;
use crate::histogram::Latencies;
use serde::Serialize;

/// Work in a measured loop. A workload has its memory set up before it is handed to the loop.
pub trait Workload {
    /// Does exactly `operations` operations.
    fn run(&mut self, operations: u64) -> Result<(), Error>;

    /// Operations between two looks at the clock: about a millisecond of work where memory is
    /// near, a few where it is far.
    fn batch(&self) -> u64 {
        8192
    }

    /// Operations in one round (`--rounds`).
    fn round(&self) -> u64;

    /// What it has to say beyond a number of operations.
    fn detail(&self) -> Detail {
        Detail::None {}
    }
}

/// What one operation is made of. Counted in the release build for x86-64 (README, "What an
/// operation costs"); on other processors instructions differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Instructions in user mode, loop included.
    pub instructions_per_operation: f64,
    /// Cache lines fetched from memory, for a working set that no cache holds.
    pub lines_per_operation: f64,
    /// The miss rate that follows, by which DINO classes threads.
    pub lines_per_1000_instructions: f64,
}

impl Cost {
    /// So many instructions and lines in an operation.
    pub const fn new(instructions: f64, lines: f64) -> Cost {
        Cost {
            instructions_per_operation: instructions,
            lines_per_operation: lines,
            lines_per_1000_instructions: 1000.0 * lines / instructions,
        }
    }
}

/// What a thread reports beyond operations and time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Detail {
    /// Nothing.
    None {},
    /// The bandwidth of a stream.
    Stream {
        /// Bytes read and written.
        bytes_per_second: f64,
        /// Time for one line.
        ns_per_line: f64,
    },
    /// What each level of changing phases has done.
    Phases {
        /// One entry a level, in the order given.
        phases: Vec<PhaseTotal>,
    },
    /// What a thread of the micro-benchmark has added, and whether its list was whole.
    Micro {
        /// Ones added to shared words.
        added: u64,
        /// Ways through the list that did not read each of its entries once.
        wrong_passes: u64,
    },
    /// The serving half of a pair, and how long its client waited.
    Pair {
        /// Process that serves.
        server_pid: u32,
        /// Thread that serves.
        server_tid: u32,
        /// From sending a request to having its reply.
        latency_ns: Latencies,
    },
}

/// What one level of changing phases has done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseTotal {
    /// Lines per 1000 instructions asked for.
    pub level: f64,
    /// Lines per 1000 instructions that the level's loop really has.
    pub lines_per_1000_instructions: f64,
    /// Times the level was entered.
    pub phases: u64,
    /// Operations done in it.
    pub operations: u64,
    /// Time spent in it.
    pub seconds: f64,
}
