//! A guest with a model, and the program that walks through its memory (`programs/walk.c`).

use std::path::PathBuf;

use numaherd_lab_launcher::{Guest, KernelFiles, Options, machine};
use numaherd_topology::Machine;

use crate::programs;

/// The preset `lab-4x2` without its prefetcher, which would fetch some lines of a random walk by chance.
pub fn square() -> Machine {
    let mut machine = Machine::preset("lab-4x2").expect("a preset");
    machine.core.prefetch_lines = Some(0);
    machine
}

/// Boots a guest after a machine.
pub fn boot(machine: &Machine) -> Guest {
    let start = || {
        let files = KernelFiles::find(None)?;
        let model = Some(machine::model(machine, None)?);
        let shape = machine::shape(machine, Some(384))?;
        Guest::start(&Options {
            model,
            ..Options::new(shape, files)
        })
    };
    start().unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles the walk, under a name of its own.
pub fn build(name: &str) -> PathBuf {
    programs::build("walk", name)
}
