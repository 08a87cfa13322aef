//! Program profiles: what a program asks of a machine, as figures of its own.
//!
//! A profile holds what is true of the program on any machine (instructions, memory, lines fetched against cache held,
//! lines in flight); the model finds out how it runs on a particular machine. A profile is written by hand in TOML, or
//! derived from a sweep of cache sizes. `docs/programs.md` explains each key; `data/programs/` holds the profiles that
//! come with Numaherd.
//!
//! Terms: *lines* are cache lines of 64 bytes read from memory per 1000 instructions, prefetched ones counted (the
//! papers' *miss rate*); *demand* lines are those that no prefetcher fetched; *in flight* are lines that were requested
//! but have not arrived.

mod derive;
mod library;
mod read;

pub use library::Library;
use numaherd_contention::Demands;
pub use numaherd_contention::{Curve, LINE_BYTES};

/// What one process of a program asks of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Short name, as used in scenarios.
    pub name: String,
    /// One line that describes it.
    pub about: String,
    /// Where the figures come from, and how certain they are.
    pub source: String,
    /// Threads of one process, at least 1.
    pub threads: u32,
    /// Resident memory of one process, in bytes.
    pub footprint_bytes: u64,
    /// The pages that most accesses go to; `None`: all pages alike.
    pub hot: Option<Hot>,
    /// Share (0 to 1) of a thread's accesses to memory that go to pages which all threads of the
    /// process use; the rest go to the thread's own part of the pages.
    pub shared_accesses: f64,
    /// Lines per 1000 instructions that a thread needs and another thread of its process wrote
    /// last, so that they come from a cache, not from memory.
    pub shared_written: f64,
    /// Measured cycles per instruction with all memory remote, over those with all of it local.
    pub numa_penalty: Option<f64>,
    /// Instructions per request, for a program that serves requests.
    pub request_instructions: Option<f64>,
    /// Whether the phases begin again after the last one; otherwise the program ends there.
    pub repeat: bool,
    /// The phases in the order in which they run, at least one.
    pub phases: Vec<Phase>,
}

/// A share of the pages that gets a share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hot {
    /// Share of the pages, above 0 and at most 1.
    pub pages: f64,
    /// Share of the accesses that go to them, from `pages` to 1.
    pub accesses: f64,
}

/// A stretch of a program during which its figures are constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Instructions that each thread executes in it.
    pub instructions: f64,
    /// Cycles of the reference core per instruction while the last-level cache answers all.
    pub cycles_per_instruction: f64,
    /// Lines read from memory per 1000 instructions against bytes of cache held.
    pub lines: Curve,
    /// The same without lines that a prefetcher fetched, where known; see [`Phase::demand_at`].
    pub demand: Option<Curve>,
    /// Lines in flight, on average, while it waits for memory; at least 1.
    pub misses_in_flight: f64,
    /// Lines written back to memory per line read.
    pub written_per_line: f64,
    /// Share of the time that it wants a CPU, above 0 and at most 1; it sleeps in the rest.
    pub busy: f64,
    /// Length of one sleep; 0 where `busy` is 1.
    pub sleep_ns: f64,
    /// What it writes in an area that all threads of its process go over in the same order; `None` if there is no such
    /// area.
    pub shared_writes: Option<SharedWrites>,
}

/// Writes to an area that all threads of a process write, line after line in the same order.
///
/// A thread that goes over the area alone takes each line once, from the thread that wrote it last. Several
/// at a time soon meet at one line, since a later one does not wait until it has caught up with the others.
/// From then on each write takes the line from another thread, and every thread waits its turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedWrites {
    /// Lines per 1000 instructions.
    pub lines: f64,
    /// Writes per 1000 instructions, at least `lines`.
    pub writes: f64,
}

impl Program {
    /// Instructions that each thread executes in one pass through all phases.
    pub fn instructions(&self) -> f64 {
        self.phases.iter().map(|phase| phase.instructions).sum()
    }

    /// This program with its first `phases` phases moved to the end, so that processes of one job, which go through the
    /// same phases, need not do so in step.
    #[must_use]
    pub fn begun_at(&self, phases: usize) -> Self {
        let mut later = self.clone();
        let all = later.phases.len().max(1);
        later.phases.rotate_left(phases % all);
        later
    }
}

impl Phase {
    /// A phase that always wants a CPU, has one miss in flight and writes nothing.
    pub fn new(instructions: f64, cycles_per_instruction: f64, lines: Curve) -> Self {
        Self {
            instructions,
            cycles_per_instruction,
            lines,
            demand: None,
            misses_in_flight: 1.0,
            written_per_line: 0.0,
            busy: 1.0,
            sleep_ns: 0.0,
            shared_writes: None,
        }
    }

    /// The figures of the phase that the equations of contention need.
    pub fn demands(&self) -> Demands<'_> {
        Demands {
            cycles_per_instruction: self.cycles_per_instruction,
            lines: &self.lines,
            demand: self.demand.as_ref(),
            misses_in_flight: self.misses_in_flight,
            written_per_line: self.written_per_line,
        }
    }

    /// Lines that no prefetcher fetched; see [`Demands::demand_at`].
    pub fn demand_at(&self, bytes: f64) -> f64 {
        self.demands().demand_at(bytes)
    }
}
