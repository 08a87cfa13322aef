//! `numaherd trace`: recorded memory accesses, and what can be learned from them.

mod import;
mod info;
mod record;
pub mod simulate;
mod sra;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use numaherd_trace::import::open;

use crate::cli::Trace;
use numaherd::exit::ended;
use numaherd::print;

/// Carries out the command.
///
/// # Errors
/// A file cannot be read or written, or is unusable; the message says which and why.
pub fn trace(command: &Trace) -> Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Trace::Record(options) => record::record(options),
        Trace::Info(options) => info::info(options).map(done),
        Trace::Import(options) => import::import(options).map(done),
        Trace::Sra(options) => sra::sra(options).map(done),
        Trace::Simulate(options) => simulate::simulate(options).map(done),
    }
}

/// Opens a trace, or imports a text as one and reports that on standard error.
///
/// # Errors
/// The file is neither, or cannot be read.
fn opened(path: &Path) -> Result<numaherd_trace::Trace> {
    let (trace, imported) =
        open(path).map_err(|error| ended!(Usage, "{}: {error}", path.display()))?;
    if let Some(imported) = imported {
        print::aside(&import::said(&imported));
    }
    Ok(trace)
}
