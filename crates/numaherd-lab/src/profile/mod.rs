//! `numaherd profile`: runs a program alone, with memory near and far, and records what it demands
//! of a machine.
//!
//! In the lab, or on this machine (`--here`), the program runs at least three times:
//!
//! | memory | last-level cache | gives |
//! |---|---|---|
//! | local | the machine's | cycles and lines per instruction |
//! | the nearest other node's | the machine's | NUMA penalty (N-MASS §3.2), lines in flight |
//! | local | smaller (the lab alone) | lines against cache |
//!
//! In the lab a guest is booted for each size of the cache; the runs of one size share it, and the
//! lab's own report of it adds what perf events of other machines do not show: accesses to the
//! cache, prefetches apart, and write-backs. The rules for the figures are in `derive`.

mod assemble;
mod bound;
mod derive;
mod guests;
mod here;
mod measured;
mod nodes;
mod once;
mod report;
mod tally;
mod text;

use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::cli::Profile as Options;
use crate::lab;
use assemble::Run;
use bound::numactl_missing;
use numaherd::exit::{Exit, OrExit, ended};
use numaherd::print;
pub use once::run as run_once;
use text::{NO_LATENCIES, Profile};

/// Measures a program and prints its table; writes its profile where one is asked for.
///
/// # Errors
/// The program is not there, fails or runs too shortly; the lab is not set up; this machine has one
/// node or no counters; a file cannot be written.
pub fn profile(options: &Options) -> Result<()> {
    let program = Path::new(&options.program[0]);
    if !lab::is_here(program) {
        let on_path = match lab::is_named(program) {
            true => "",
            false => " on the PATH",
        };
        return Err(ended!(
            Usage,
            "there is no program {}{on_path}: give one of this machine's programs",
            program.display()
        ));
    }
    if options.here && options.machine.is_none() && options.output.is_some() {
        return Err(ended(Exit::Usage, NO_LATENCIES));
    }
    if !lab::is_here(Path::new("numactl")) {
        let error = std::io::ErrorKind::NotFound.into();
        return Err(ended(Exit::NotSetUp, numactl_missing(&error)));
    }
    let (profile, runs) = if options.here {
        here::here(options)?
    } else {
        guests::in_lab(options)?
    };
    if let Some(path) = &options.output {
        let text = profile.to_toml().or_exit(Exit::Usage)?;
        print::file(path, &text)?;
    }
    let printed = Printed {
        schema: 1,
        profile: &profile,
        runs: &runs,
    };
    print::shown(options.json, &printed, || profile.table())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    /// Version of this form.
    schema: u32,
    profile: &'a Profile,
    /// Every run, in the order they were made in.
    runs: &'a [Run],
}
