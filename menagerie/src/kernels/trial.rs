//! Kernels in the program's own tests: without a command line.

use super::{Class, Name, Run, Terms, Verification, run};
use crate::machine::Machine;
use crate::memory::{Placement, Start};
use crate::start_signal::StartSignal;
use crate::stop::Stop;
use crate::sys::HugePages;
use crate::threads::Outcome;
use std::cell::Cell;
use std::path::Path;

fn placement(machine: &Machine) -> Placement {
    Placement::new(machine, None, Start::Any, &[], HugePages::Default).unwrap()
}

/// Calls `use_terms` with what a kernel of `class` for `threads` is made for.
pub fn with_terms<T>(class: Class, threads: usize, use_terms: impl FnOnce(&Terms<'_>) -> T) -> T {
    let machine = Machine::at(Path::new("/"));
    let terms = Terms {
        class,
        threads,
        seed: 1,
        kernel: Name::Cg,
        placement: &placement(&machine),
        machine: &machine,
        bytes: Cell::new(0),
    };
    use_terms(&terms)
}

/// Runs `kernel` with `threads` for `iterations`, or for those of its class.
pub fn compute(
    kernel: Name,
    class: Class,
    threads: usize,
    iterations: Option<u64>,
    stop: &Stop,
) -> (Outcome, Verification) {
    let machine = Machine::at(Path::new("/"));
    let of_kernel = Run {
        kernel,
        class,
        threads,
        iterations,
        seed: 1,
        placement: &placement(&machine),
        gate: &StartSignal::new(None, None).unwrap(),
    };
    let (outcome, told) = run(&of_kernel, &machine, stop).unwrap();
    (outcome, told.verification)
}
