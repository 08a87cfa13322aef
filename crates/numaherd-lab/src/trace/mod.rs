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
use numaherd::exit::{Exit, ended};

/// Does what was asked for.
///
/// # Errors
/// A file cannot be read or written, or is none that can be used; the message says which and why.
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

/// Opens a trace or a text that one can be made of; says on standard error what is wrong with it.
///
/// # Errors
/// The file is neither, or cannot be read.
fn opened(path: &Path) -> Result<numaherd_trace::Trace> {
    let (trace, imported) =
        open(path).map_err(|error| ended(Exit::Usage, format!("{}: {error}", path.display())))?;
    if let Some(imported) = imported {
        eprint!("{}", import::said(&imported));
    }
    Ok(trace)
}

/// Counts for people: with a comma between thousands.
fn counted(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<_> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(String::from_utf8_lossy)
        .collect();
    groups.join(",")
}

/// So many of something.
fn of(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", counted(count), if count == 1 { one } else { more })
}

/// Bytes for people.
fn bytes(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (63 - bytes.leading_zeros()) / 10;
    let value = bytes as f64 / (1_u64 << (10 * power)) as f64;
    format!("{value:.1} {}", units[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_bytes_read_well() {
        let counts = [0, 999, 1000, 1_234_567, 10_000_000].map(counted);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567", "10,000,000"]);
        let sizes = [0, 1023, 1024, 1536, 1 << 30, u64::MAX].map(bytes);
        assert_eq!(
            sizes,
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 GiB", "16.0 EiB"]
        );
    }
}
