//! Runs kernels in the program's own tests, without a command line.

use super::{Class, Name, Terms, Verification, run};
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

/// Calls `use_terms` with the parameters of a kernel of `class` for `threads`.
pub fn with_terms<T>(class: Class, threads: usize, use_terms: impl FnOnce(&Terms<'_>) -> T) -> T {
    with_terms_of(Name::Cg, class, threads, use_terms)
}

fn with_terms_of<T>(
    kernel: Name,
    class: Class,
    threads: usize,
    use_terms: impl FnOnce(&Terms<'_>) -> T,
) -> T {
    let machine = Machine::at(Path::new("/"));
    use_terms(&Terms {
        kernel,
        class,
        threads,
        seed: 1,
        placement: &placement(&machine),
        machine: &machine,
        bytes: Cell::new(0),
    })
}

/// Runs `kernel` with `threads` for `iterations`, or for those of its class.
pub fn compute(
    kernel: Name,
    class: Class,
    threads: usize,
    iterations: Option<u64>,
    stop: &Stop,
) -> (Outcome, Verification) {
    let gate = StartSignal::new(None, None).unwrap();
    let (outcome, told) = with_terms_of(kernel, class, threads, |terms| {
        run(terms, iterations, &gate, stop).unwrap()
    });
    (outcome, told.verification)
}
