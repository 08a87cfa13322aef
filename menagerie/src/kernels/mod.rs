//! Kernels: real multithreaded computations, whose threads share memory as those of programs do.
//!
//! The NAS kernels are written after the problem definitions of the NAS Parallel Benchmarks
//! (Bailey et al., RNR-94-007, with the sizes and verification values of NPB 3). Which thread first
//! touches a page, and which threads later meet on it, are as in the OpenMP versions: that is what
//! page migration depends on.
//!
//! A kernel is made on the main thread, which allocates but touches nothing; the team sets up its
//! data together, is released, and computes. Only the computation is timed.

mod bt;
mod cfd;
mod cg;
mod ep;
mod field;
mod ft;
mod grid;
mod is;
mod lu;
mod mg;
mod nas_random;
mod pipeline;
mod sp;
mod stencil;
mod team;
#[cfg(test)]
mod trial;
mod ua;
mod verification;

use crate::error::Error;
use crate::machine::Machine;
use crate::memory::{Placement, check_class, whole_pages};
use crate::migrations;
use crate::start_signal::StartSignal;
use crate::stop::Stop;
use crate::sys::Region;
use crate::threads::{self, Measured, Outcome, Party, Work};
use crate::workload::Detail;
use clap::ValueEnum;
use field::{Array, WholeArray};
use serde::Serialize;
use std::cell::Cell;
use std::time::Instant;
use team::{Member, Stopped, Team};
pub use verification::{Check, Verdict, Verification};

/// The kernels there are. Each line: its name, what it is, and how it is made.
const TABLE: &[Entry] = &[
    Entry {
        name: "bt",
        about: "Synthetic flow, block systems along each axis: planes, then planes across",
        make: bt::Bt::make,
    },
    Entry {
        name: "cg",
        about: "Conjugate gradients: rows of one's own, a vector gathered from all",
        make: cg::Cg::make,
    },
    Entry {
        name: "ep",
        about: "Random pairs, counted: a buffer for each thread, nothing shared",
        make: ep::Ep::make,
    },
    Entry {
        name: "ft",
        about: "Fourier transforms of a box: planes, then planes across, all to all",
        make: ft::Ft::make,
    },
    Entry {
        name: "grid",
        about: "Particles in cells: neighbours write under mutexes, as in fluidanimate",
        make: grid::Grid::make,
    },
    Entry {
        name: "is",
        about: "Ranks of keys: what one thread scatters another counts",
        make: is::Is::make,
    },
    Entry {
        name: "lu",
        about: "Synthetic flow, sweeps over all points: threads follow each other plane by plane",
        make: lu::Lu::make,
    },
    Entry {
        name: "mg",
        about: "Multigrid: planes of cubes from fine to coarse, neighbours meet in two planes",
        make: mg::Mg::make,
    },
    Entry {
        name: "pipeline",
        about: "Stages with threads of their own that hand on buffers, as in ferret and dedup",
        make: pipeline::Pipeline::make,
    },
    Entry {
        name: "sp",
        about: "Synthetic flow, scalar systems along each axis: planes, then planes across",
        make: sp::Sp::make,
    },
    Entry {
        name: "stencil",
        about: "Elastic waves on a staggered grid: slabs, neighbours read two planes",
        make: stencil::Stencil::make,
    },
    Entry {
        name: "ua",
        about: "Heat on elements of a mesh that changes: accesses by index, partners that change",
        make: ua::Ua::make,
    },
];

/// A line of the table.
#[derive(Debug)]
pub struct Entry {
    /// The word for it on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    make: fn(&Terms<'_>) -> Result<Box<dyn Kernel>, Error>,
}

/// A computation by a team of threads.
pub trait Kernel: Sync {
    /// What is computed, in a few words: its sizes.
    fn problem(&self) -> String;

    /// Iterations that the class prescribes.
    fn iterations(&self) -> u64;

    /// A member's part of setting up. All members do it at once, and it is not timed. Who touches
    /// a page here for the first time gets it.
    ///
    /// # Errors
    ///
    /// Where the run shall end.
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped>;

    /// A member's part of the computation. All members do it at once.
    ///
    /// # Errors
    ///
    /// Where the run shall end.
    fn run(&self, member: &Member<'_>) -> Result<(), Stopped>;

    /// The results, once all members are done with all `iterations`.
    fn results(&self, iterations: u64) -> Vec<Check>;
}

/// Problem sizes of the NAS benchmarks, from a sample to a supercomputer of 1998.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Class {
    /// Sample: a test, under a second
    S,
    /// Workstation of 1994
    W,
    /// Small
    A,
    /// About four times A
    B,
    /// About four times B
    C,
}

impl Class {
    /// The value for this class among those for S, W, A, B and C.
    pub fn of<T: Copy>(self, values: [T; 5]) -> T {
        values[self as usize]
    }
}

/// What a kernel is made for.
pub struct Terms<'t> {
    /// Its size.
    pub class: Class,
    /// Threads of the team.
    pub threads: usize,
    /// Seed of random choices that the problem's definition leaves open. The NAS benchmarks have
    /// theirs.
    pub seed: u64,
    name: &'t str,
    placement: &'t Placement,
    machine: &'t Machine,
    /// Bytes handed out so far.
    bytes: Cell<usize>,
}

impl Terms<'_> {
    /// Memory of `bytes`, not there yet: the first touch of a page places it. With a home, all
    /// there, on the home.
    fn memory(&self, bytes: usize) -> Result<Region, Error> {
        let bytes = whole_pages(bytes.max(1));
        let all = self.bytes.get().saturating_add(bytes);
        check_class(self.machine, self.placement.home, self.name, all)?;
        self.bytes.set(all);
        match self.placement.home {
            Some(_) => self.placement.memory(bytes),
            None => self.placement.addresses(bytes),
        }
    }
}

/// What a kernel's run has to tell beyond times.
#[derive(Debug, Serialize)]
pub struct Told {
    /// Its sizes.
    pub problem: String,
    /// Bytes of memory that its threads share.
    pub bytes: usize,
    /// Iterations asked for.
    pub iterations: u64,
    /// Whether the results are right.
    pub verification: Verification,
}

/// Which kernel to run, and how.
pub struct Run<'r> {
    /// The line of the table.
    pub entry: &'static Entry,
    /// Problem size.
    pub class: Class,
    /// Threads of the team.
    pub threads: usize,
    /// Iterations, if not those of the class.
    pub iterations: Option<u64>,
    /// Seed.
    pub seed: u64,
    /// Where threads and memory are.
    pub placement: &'r Placement,
    /// What is between set-up and computation.
    pub gate: &'r StartSignal,
}

/// All kernels.
pub fn all() -> &'static [Entry] {
    TABLE
}

/// Runs a kernel.
///
/// # Errors
///
/// Where memory or threads are not to be had.
pub fn run(run: &Run<'_>, machine: &Machine, stop: &Stop) -> Result<(Outcome, Told), Error> {
    let terms = Terms {
        class: run.class,
        threads: run.threads,
        seed: run.seed,
        name: run.entry.name,
        placement: run.placement,
        machine,
        bytes: Cell::new(0),
    };
    let kernel = (run.entry.make)(&terms)?;
    let iterations = run.iterations.unwrap_or(kernel.iterations());
    let outcome = compute(kernel.as_ref(), run, iterations, stop)?;
    let verification = if outcome.complete {
        Verification::new(kernel.results(iterations), iterations, kernel.iterations())
    } else {
        Verification::ended_early()
    };
    let told = Told {
        problem: kernel.problem(),
        bytes: terms.bytes.get(),
        iterations,
        verification,
    };
    Ok((outcome, told))
}

/// Sets `kernel` up and computes it with a team of threads.
fn compute(
    kernel: &dyn Kernel,
    run: &Run<'_>,
    iterations: u64,
    stop: &Stop,
) -> Result<Outcome, Error> {
    let team = Team::new(run.threads, stop);
    let party = Party {
        count: run.threads,
        name: "kernel",
        gate: run.gate,
        stop,
        abandon: &|| team.abandon(),
    };
    let make = |index| {
        let member = team.member(index, iterations);
        // Its own end is found again at the first barrier of the computation.
        let set_up = || {
            let _ = kernel.set_up(&member).and_then(|()| member.wait());
            Ok(())
        };
        run.placement.settle_beside_memory(index, set_up)?;
        Ok(member)
    };
    threads::together(&party, make, |member| {
        let migrations = migrations::so_far();
        let start = Instant::now();
        let complete = member.wait().and_then(|()| kernel.run(&member)).is_ok();
        let end = Instant::now();
        let work = Work {
            tid: threads::tid(),
            operations: member.done(),
            seconds: (end - start).as_secs_f64(),
            migrations: migrations.and_then(|before| migrations::so_far()?.checked_sub(before)),
            detail: Detail::None {},
        };
        Ok(Measured {
            work,
            start,
            end,
            complete,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_computes_what_it_should_with_any_number_of_threads() {
        for entry in all() {
            for threads in [1, 3, 7] {
                let (outcome, verification) =
                    trial::compute(entry.name, Class::S, threads, None, &Stop::new());
                let word = format!("{}, {threads} threads: {}", entry.name, verification.text());
                assert_eq!(verification.verdict, Verdict::Verified, "{word}");
                assert!(outcome.complete);
            }
        }
    }

    #[test]
    fn the_same_team_gets_the_same_digits() {
        // Particles of the grid get their neighbours' additions in the order in which these come.
        for entry in all().iter().filter(|entry| entry.name != "grid") {
            let digits = || {
                let (_, verification) =
                    trial::compute(entry.name, Class::S, 3, Some(2), &Stop::new());
                let bits = |check: &Check| check.value.to_bits();
                verification.checks.iter().map(bits).collect::<Vec<_>>()
            };
            assert_eq!(digits(), digits(), "{}", entry.name);
        }
    }

    #[test]
    fn a_run_that_is_stopped_ends_and_says_so() {
        for entry in all() {
            let stop = Stop::new();
            stop.end();
            let (outcome, verification) = trial::compute(entry.name, Class::S, 3, None, &stop);
            assert!(!outcome.complete, "{}", entry.name);
            assert_eq!(verification.verdict, Verdict::NotVerified);
        }
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(all().is_sorted_by(|left, right| left.name < right.name));
    }
}
