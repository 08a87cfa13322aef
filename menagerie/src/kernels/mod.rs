//! Kernels: real multithreaded computations, whose threads share memory like those of programs.
//!
//! The NAS kernels implement the problem definitions of the NAS Parallel Benchmarks (Bailey et al.,
//! RNR-94-007, with the sizes and verification values of NPB 3). Page migration depends on the
//! thread that first touches a page and on those that later use it, so these are as in the OpenMP
//! versions.
//!
//! The main thread makes a kernel: it allocates memory but touches none. The team sets up the data
//! together, is released, and computes. Only the computation is timed.

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
use crate::options::name_of;
use crate::start_signal::StartSignal;
use crate::stop::Stop;
use crate::sys::Region;
use crate::threads::{self, Outcome, Party};
use clap::ValueEnum;
use field::{Array, WholeArray};
use serde::Serialize;
use std::cell::Cell;
use std::sync::OnceLock;
use team::{Member, Stopped, Team};
pub use verification::{Check, Verdict, Verification};

/// The published results of runs.
const PUBLISHED: &str = include_str!("published.txt");

/// The kernels there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Synthetic flow, block systems along each axis: planes, then planes across
    Bt,
    /// Conjugate gradients: rows of one's own, a vector gathered from all
    Cg,
    /// Random pairs, counted: a buffer for each thread, nothing shared
    Ep,
    /// Fourier transforms of a box: planes, then planes across, all to all
    Ft,
    /// Particles in cells: neighbours write under mutexes, as in fluidanimate
    Grid,
    /// Ranks of keys: what one thread scatters another counts
    Is,
    /// Synthetic flow, sweeps over all points: threads follow each other plane by plane
    Lu,
    /// Multigrid: planes of cubes from fine to coarse, neighbours meet in two planes
    Mg,
    /// Stages with threads of their own that hand on buffers, as in ferret and dedup
    Pipeline,
    /// Synthetic flow, scalar systems along each axis: planes, then planes across
    Sp,
    /// Elastic waves on a staggered grid: slabs, neighbours read two planes
    Stencil,
    /// Heat on elements of a mesh that changes: accesses by index, partners that change
    Ua,
}

impl Name {
    /// The problem of a class, with its memory.
    fn problem(self, terms: &Terms<'_>) -> Result<Problem, Error> {
        match self {
            Name::Bt => bt::problem(terms),
            Name::Cg => cg::problem(terms),
            Name::Ep => ep::problem(terms),
            Name::Ft => ft::problem(terms),
            Name::Grid => grid::problem(terms),
            Name::Is => is::problem(terms),
            Name::Lu => lu::problem(terms),
            Name::Mg => mg::problem(terms),
            Name::Pipeline => pipeline::problem(terms),
            Name::Sp => sp::problem(terms),
            Name::Stencil => stencil::problem(terms),
            Name::Ua => ua::problem(terms),
        }
    }
}

/// A kernel with its class's sizes and iterations.
struct Problem {
    /// Its sizes, as text.
    sizes: String,
    /// Iterations that the class prescribes.
    iterations: u64,
    kernel: Box<dyn Kernel>,
}

impl Problem {
    fn new(sizes: String, iterations: u64, kernel: impl Kernel + 'static) -> Result<Self, Error> {
        let kernel = Box::new(kernel);
        Ok(Problem {
            sizes,
            iterations,
            kernel,
        })
    }
}

/// A computation by a team of threads.
trait Kernel: Sync {
    /// A member's part of the set-up. All members call it at the same time, and it is not timed.
    /// The first touch of a page here places it.
    ///
    /// # Errors
    ///
    /// When the run ends early.
    fn set_up(&self, member: &Member<'_>) -> Result<(), Stopped>;

    /// A member's part of the computation. All members call it at the same time. The first member's
    /// results count.
    ///
    /// # Errors
    ///
    /// When the run ends early.
    fn run(&self, member: &Member<'_>) -> Result<Vec<Check>, Stopped>;
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

/// The parameters of a kernel.
pub struct Terms<'t> {
    /// The kernel.
    pub kernel: Name,
    /// Its size.
    pub class: Class,
    /// Threads of the team.
    pub threads: usize,
    /// Seed of random choices that the problem's definition leaves open. The NAS benchmarks define
    /// their own seeds.
    pub seed: u64,
    /// The placement of threads and memory.
    pub placement: &'t Placement,
    /// The machine.
    pub machine: &'t Machine,
    /// Bytes of memory handed out so far.
    pub bytes: Cell<usize>,
}

impl Terms<'_> {
    /// Memory of `bytes`. Without a home, no page is present: the first touch places it. With a
    /// home, all pages are present on it.
    fn memory(&self, bytes: usize) -> Result<Region, Error> {
        let bytes = whole_pages(bytes.max(1));
        let all = self.bytes.get().saturating_add(bytes);
        check_class(
            self.machine,
            self.placement.home,
            &name_of(&self.kernel),
            all,
        )?;
        self.bytes.set(all);
        match self.placement.home {
            Some(_) => self.placement.memory(bytes),
            None => self.placement.addresses(bytes),
        }
    }

    /// The values published under `name` for this kernel and class; empty if there is no such row.
    fn published(&self, name: &str) -> Vec<f64> {
        let (kernel, class) = (name_of(&self.kernel), name_of(&self.class));
        let row = PUBLISHED.lines().find_map(|row| {
            let mut words = row.split_whitespace();
            let key = [words.next()?, words.next()?, words.next()?];
            (key == [&kernel, &class, name]).then_some(words)
        });
        let numbers = row.into_iter().flatten();
        numbers
            .map(|word| word.parse().expect("the table has only numbers"))
            .collect()
    }
}

/// A kernel's results beyond times.
#[derive(Debug, Serialize)]
pub struct KernelReport {
    /// Its sizes.
    pub problem: String,
    /// Bytes of memory that its threads share.
    pub bytes: usize,
    /// Requested iterations.
    pub iterations: u64,
    /// Whether the results are right.
    pub verification: Verification,
}

/// Runs a kernel for `iterations`, or for those of its class. Passes `gate` between set-up and
/// computation.
///
/// # Errors
///
/// If memory or threads are not available.
pub fn run(
    terms: &Terms<'_>,
    iterations: Option<u64>,
    gate: &StartSignal,
    stop: &Stop,
) -> Result<(Outcome, KernelReport), Error> {
    let problem = terms.kernel.problem(terms)?;
    let iterations = iterations.unwrap_or(problem.iterations);
    let (outcome, checks) = compute(problem.kernel.as_ref(), terms, iterations, gate, stop)?;
    let verification = match checks.filter(|_| outcome.complete) {
        Some(checks) => Verification::new(checks, iterations, problem.iterations),
        None => Verification::ended_early(),
    };
    let told = KernelReport {
        problem: problem.sizes,
        bytes: terms.bytes.get(),
        iterations,
        verification,
    };
    Ok((outcome, told))
}

/// Sets `kernel` up and computes it with a team of threads. Returns the results, unless the run ended early.
fn compute(
    kernel: &dyn Kernel,
    terms: &Terms<'_>,
    iterations: u64,
    gate: &StartSignal,
    stop: &Stop,
) -> Result<(Outcome, Option<Vec<Check>>), Error> {
    let team = Team::new(terms.threads, stop);
    let results = OnceLock::new();
    let party = Party {
        count: terms.threads,
        name: "kernel",
        gate,
        stop,
        abandon: &|| team.abandon(),
    };
    let make = |index| {
        let member = team.member(index, iterations);
        // An early end shows again at the first barrier of the computation.
        let set_up = || {
            let _ = kernel.set_up(&member).and_then(|()| member.wait());
            Ok(())
        };
        terms.placement.settle_beside_memory(index, set_up)?;
        Ok(member)
    };
    let outcome = threads::together(&party, make, |member| {
        Ok(threads::measured(|| {
            let result = member.wait().and_then(|()| kernel.run(&member));
            let complete = result.is_ok();
            if let (0, Ok(checks)) = (member.index, result) {
                // No other thread sets them.
                let _ = results.set(checks);
            }
            (member.done(), complete)
        }))
    })?;
    Ok((outcome, results.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_computes_what_it_should_with_any_number_of_threads() {
        for &kernel in Name::value_variants() {
            for threads in [1, 3, 7] {
                let (outcome, verification) =
                    trial::compute(kernel, Class::S, threads, None, &Stop::new());
                let word = format!("{kernel:?}, {threads} threads: {}", verification.text());
                assert_eq!(verification.verdict, Verdict::Verified, "{word}");
                assert!(outcome.complete);
            }
        }
    }

    #[test]
    fn the_same_team_gets_the_same_digits() {
        // In the grid, the order of additions to a particle depends on timing.
        for &kernel in Name::value_variants()
            .iter()
            .filter(|kernel| **kernel != Name::Grid)
        {
            let digits = || {
                let (_, verification) = trial::compute(kernel, Class::S, 3, Some(2), &Stop::new());
                let bits = |check: &Check| check.value.to_bits();
                verification.checks.iter().map(bits).collect::<Vec<_>>()
            };
            assert_eq!(digits(), digits(), "{kernel:?}");
        }
    }

    #[test]
    fn a_run_that_is_stopped_ends_and_says_so() {
        for &kernel in Name::value_variants() {
            let stop = Stop::new();
            stop.end();
            let (outcome, verification) = trial::compute(kernel, Class::S, 3, None, &stop);
            assert!(!outcome.complete, "{kernel:?}");
            assert_eq!(verification.verdict, Verdict::NotVerified);
        }
    }

    #[test]
    fn every_class_has_the_same_rows_of_published_values() {
        let rows = |class: Class| {
            let rows = PUBLISHED.lines().filter(|row| !row.starts_with('#'));
            let mut of_class: Vec<_> = rows
                .map(|row| row.split_whitespace().take(3).collect::<Vec<_>>())
                .filter(|key| key[1] == name_of(&class))
                .map(|key| [key[0], key[2]])
                .collect();
            of_class.sort_unstable();
            of_class
        };
        assert_eq!(rows(Class::S).len(), 17);
        for class in Class::value_variants() {
            assert_eq!(rows(*class), rows(Class::S), "{class:?}");
        }
    }
}
