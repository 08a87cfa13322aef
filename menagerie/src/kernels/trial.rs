//! Kernels in the program's own tests: without a command line.

use super::{Class, Run, Terms, Verification, all, run};
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
        name: "trial",
        placement: &placement(&machine),
        machine: &machine,
        bytes: Cell::new(0),
    };
    use_terms(&terms)
}

/// Runs the kernel `name` with `threads` for `iterations`, or for those of its class.
pub fn compute(
    name: &str,
    class: Class,
    threads: usize,
    iterations: Option<u64>,
    stop: &Stop,
) -> (Outcome, Verification) {
    let machine = Machine::at(Path::new("/"));
    let entry = all().iter().find(|entry| entry.name == name).unwrap();
    let of_kernel = Run {
        entry,
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
