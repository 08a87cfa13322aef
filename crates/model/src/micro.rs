//! The micro-benchmark of BRM §2.2 (Fig 3) as a program, from first principles.
//!
//! Each thread has a list of its own, whose entries of 64 bytes are linked at random. In each loop, it goes through the
//! list once, one entry per step; then it adds 1, atomically, to each word of an area that all threads share, from the
//! first word to the last. (As printed, the inner loop steps on for each word of an entry. Read literally, a thread
//! would go through the list seven times per loop; the paper says that the thread accesses its data once.)
//!
//! | phase | is modelled as |
//! |---|---|
//! | list | one load at a time, which depends on the one before: 1 miss in flight, no prefetches |
//! | | a cache that holds `c` of the `W` bytes of a cyclic list misses `1 - c / W` of the accesses: no cache can do better, since each entry is used again only after all others (Belady); least-recently-used replacement, which keeps nothing of a list that is too long, does worse |
//! | | the walk that finds the page of an entry, on machines whose file has TLBs ([`Hardware::walk_ns`]) |
//! | area | [`SharedWrites`]: threads that are there at the same time take the line from each other at every word; a thread that is alone takes it once for its eight words |
//!
//! The share of misses is a choice: for a list of 16 MiB in 12 MiB of cache it is a quarter, which makes remote memory
//! cost 26 % more than local memory on the paper's machine, where it measured 26 % (Fig 4a). With random replacement
//! (`m = 1 - exp(-m W / c)`) it would be 38 %, with least-recently-used 54 %.
//!
//! Everything else (who holds how much of a last-level cache, waits at controllers and links, which threads are in the
//! shared area at the same time, and what their lines cost within a socket and across) results from running the model.
//! The area's own room in the last-level cache is left out.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::CpuId;
use numaherd_world::{Progress, World};

use crate::error::ModelError;
use crate::hardware::Hardware;
use crate::job::{Job, Placement, Until};
use crate::program::{Curve, LINE_BYTES, Phase, Program, SharedWrites};
use crate::world::{Model, Options};

/// Instructions of a step along the list: load a word and the pointer, count, compare, branch.
const STEP_INSTRUCTIONS: f64 = 5.0;
/// Instructions of an atomic add to a word: add, count, compare, branch.
const WRITE_INSTRUCTIONS: f64 = 4.0;
/// Cycles of an atomic add to a line that the core has for itself, on Nehalem and Westmere (recalled).
const WRITE_CYCLES: f64 = 20.0;
/// Bytes of a word.
const WORD_BYTES: f64 = 8.0;
/// The smallest list that counts: one entry.
const LEAST_LIST_BYTES: f64 = LINE_BYTES;

/// What the micro-benchmark is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Micro {
    /// Threads, at least 1.
    pub threads: u32,
    /// Bytes of all threads' lists together; 0 for none.
    pub working_set_bytes: u64,
    /// Bytes of the area that all threads write; 0 for none.
    pub shared_bytes: u64,
    /// How often each thread goes through both; the paper's figure is 1000.
    pub loops: u32,
}

/// The result of a run with bound threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Mean run time of the threads in seconds: the paper's measure.
    pub seconds: f64,
    /// Uncore penalty in core cycles per request; `None` where nothing was requested.
    pub uncore_penalty: Option<f64>,
    /// Lines from memory per 1000 instructions.
    pub miss_rate: f64,
}

impl Micro {
    /// The benchmark as a program, with figures for that machine.
    ///
    /// # Errors
    /// [`ModelError::Jobs`] for no thread, no loop or nothing to do.
    pub fn program(&self, hardware: &Hardware) -> Result<Program, ModelError> {
        let list_bytes = self.working_set_bytes as f64 / f64::from(self.threads.max(1));
        let mut each = Vec::new();
        if list_bytes >= LEAST_LIST_BYTES {
            each.push(list(hardware, list_bytes)?);
        }
        if self.shared_bytes as f64 >= WORD_BYTES {
            each.push(area(hardware, self.shared_bytes as f64)?);
        }
        if each.is_empty() || self.threads == 0 || self.loops == 0 {
            return Err(ModelError::Jobs {
                reason: format!(
                    "the micro-benchmark has nothing to do with {} threads, {} loops, {} bytes of \
                     lists and {} shared bytes",
                    self.threads, self.loops, self.working_set_bytes, self.shared_bytes
                ),
            });
        }
        let phases = each.len() * self.loops as usize;
        Ok(Program {
            name: "micro".to_owned(),
            about: "BRM's micro-benchmark: private random lists, shared words".to_owned(),
            source: "BRM §2.2, Fig 3; figures derived, see the model's documentation".to_owned(),
            threads: self.threads,
            footprint_bytes: (self.working_set_bytes + self.shared_bytes).max(4096),
            hot: None,
            shared_accesses: 0.0,
            shared_written: 0.0,
            numa_penalty: None,
            request_instructions: None,
            repeat: false,
            phases: each.into_iter().cycle().take(phases).collect(),
        })
    }

    /// Runs the benchmark once with its threads bound to these CPUs, one after the other and round again.
    ///
    /// # Errors
    /// As [`Micro::program`] and [`Model::new`].
    pub fn bound(
        &self,
        hardware: &Hardware,
        cpus: Vec<CpuId>,
        memory: Placement,
    ) -> Result<Outcome, ModelError> {
        let job = Job {
            memory,
            ..Job::new(Arc::new(self.program(hardware)?)).on(cpus)
        };
        let clock_ghz = hardware.figures.clock_ghz;
        let until = Until::Completions(1);
        let mut model = Model::new(hardware.clone(), vec![job], until, Options::default())?;
        while model.run_for(Duration::from_secs(3600)) == Progress::Ran {}
        let work = model.work()[0];
        Ok(Outcome {
            seconds: model.completions()[0].thread_s,
            uncore_penalty: work.uncore_penalty_ns().map(|ns| ns * clock_ghz),
            miss_rate: work.miss_rate().unwrap_or(0.0),
        })
    }
}

/// One pass through a list.
fn list(hardware: &Hardware, bytes: f64) -> Result<Phase, ModelError> {
    let steps = (bytes / LINE_BYTES).floor();
    let near = (hardware.figures.own_bytes / bytes).min(1.0);
    let step_ns = near * hardware.figures.own_ns
        + (1.0 - near) * hardware.figures.llc_ns
        + hardware.walk_ns(bytes);
    Ok(Phase::new(
        steps * STEP_INSTRUCTIONS,
        cycles(hardware, step_ns / STEP_INSTRUCTIONS),
        Curve::new(1000.0 / STEP_INSTRUCTIONS, &[(bytes, 0.0)], bytes)?,
    ))
}

/// One pass over the shared area.
fn area(hardware: &Hardware, bytes: f64) -> Result<Phase, ModelError> {
    let words = (bytes / WORD_BYTES).floor();
    let write_ns = WRITE_CYCLES / hardware.figures.clock_ghz;
    let writes = 1000.0 / WRITE_INSTRUCTIONS;
    let lines = (bytes / LINE_BYTES).ceil() / words;
    Ok(Phase {
        shared_writes: Some(SharedWrites {
            lines: writes * lines,
            writes,
        }),
        ..Phase::new(
            words * WRITE_INSTRUCTIONS,
            cycles(hardware, write_ns / WRITE_INSTRUCTIONS),
            Curve::new(0.0, &[(bytes, 0.0)], bytes)?,
        )
    })
}

/// The cycles of the reference core that take `ns` on this machine.
fn cycles(hardware: &Hardware, ns: f64) -> f64 {
    ns / hardware.figures.ns_per_reference_cycle
}
