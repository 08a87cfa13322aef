//! The common interface of all workloads: they do a given number of operations, and describe an
//! operation and its cost.

use crate::error::Error;
use crate::histogram::Latencies;
use serde::Serialize;

/// Work in a measured loop. A workload's memory is set up before the loop.
pub trait Workload {
    /// Does exactly `operations` operations.
    fn run(&mut self, operations: u64) -> Result<(), Error>;

    /// Operations between two checks of the clock: about a millisecond of work with near memory, a
    /// few with far memory.
    fn batch(&self) -> u64 {
        8192
    }

    /// Operations in one round (`--rounds`).
    fn round(&self) -> u64;

    /// Its figures beyond a number of operations.
    fn detail(&self) -> Detail {
        Detail::None {}
    }
}

/// The cost of one operation. Counted in the release build for x86-64 (README, "What an operation
/// costs"); on other processors, instructions differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Instructions in user mode, loop included.
    pub instructions_per_operation: f64,
    /// Cache lines fetched from memory, if the working set fits in no cache.
    pub lines_per_operation: f64,
    /// The resulting miss rate, by which DINO classifies threads.
    pub lines_per_1000_instructions: f64,
}

impl Cost {
    /// The cost of this many instructions and lines in an operation.
    pub const fn new(instructions: f64, lines: f64) -> Cost {
        Cost {
            instructions_per_operation: instructions,
            lines_per_operation: lines,
            lines_per_1000_instructions: 1000.0 * lines / instructions,
        }
    }
}

/// A thread's figures beyond operations and time.
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
    /// The work at each level of changing phases.
    Phases {
        /// One entry per level, in the order given.
        phases: Vec<PhaseTotal>,
    },
    /// The additions and list passes of a thread of the micro-benchmark.
    Micro {
        /// Ones added to shared words.
        added: u64,
        /// Passes of the list that did not read each of its entries once.
        wrong_passes: u64,
    },
    /// The serving half of a pair, and its client's waits.
    Pair {
        /// Process that serves.
        server_pid: u32,
        /// Thread that serves.
        server_tid: u32,
        /// Time from sending a request to receiving its reply.
        latency_ns: Latencies,
    },
}

/// The work at one level of changing phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PhaseTotal {
    /// Requested lines per 1000 instructions.
    pub level: f64,
    /// Actual lines per 1000 instructions of the level's loop.
    pub lines_per_1000_instructions: f64,
    /// Times the level was entered.
    pub phases: u64,
    /// Operations done in it.
    pub operations: u64,
    /// Time spent in it.
    pub seconds: f64,
}
