//! A guest with a model, the program that walks through its memory (`programs/walk.c`), and what such programs say.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use numaherd_lab_launcher::{Command, Ending, Guest, KernelFiles, Model, Options, machine};
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
    boot_with(machine, |_| {})
}

/// Boots a guest after a machine, with its model changed.
pub fn boot_with(machine: &Machine, change: impl FnOnce(&mut Model)) -> Guest {
    let start = || {
        let files = KernelFiles::find(None)?;
        let mut model = machine::model(machine, None)?;
        change(&mut model);
        let shape = machine::shape(machine, Some(384))?;
        Guest::start(&Options {
            model: Some(model),
            ..Options::new(shape, files)
        })
    };
    start().unwrap_or_else(|error| panic!("{error}"))
}

/// Compiles the walk, under a name of its own.
pub fn build(name: &str) -> PathBuf {
    programs::build("walk", name)
}

/// A line of what a program said: names with their values.
pub type Said = HashMap<String, u64>;

/// Runs a program of `programs` in the guest; what it said, line by line.
pub fn said(guest: &Guest, words: impl IntoIterator<Item = String>) -> Vec<Said> {
    let command = Command::inherited(words).expect("here");
    let output = guest
        .output(&command, Some(Duration::from_secs(120)))
        .unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.ending,
        Ending::Exited(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let pairs = words.chunks_exact(2);
        pairs
            .map(|pair| (pair[0].to_owned(), pair[1].parse().expect("a number")))
            .collect()
    };
    text.lines().map(line).collect()
}
