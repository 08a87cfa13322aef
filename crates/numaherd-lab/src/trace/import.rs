//! `numaherd trace import`: the text of other tools as a trace.

use std::fs::File;
use std::io::{self, BufRead, BufReader};

use anyhow::{Context, Result};
use numaherd_quantity::{count, counted};
use numaherd_trace::import::{Format, Imported, import as read};

use crate::cli::TraceImport;
use numaherd::exit::ended;
use numaherd::print;

/// Reads the text and writes the trace.
///
/// # Errors
/// The text cannot be read or is of no known tool, or the trace cannot be written.
pub fn import(options: &TraceImport) -> Result<()> {
    let text: Box<dyn BufRead> = if options.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&options.file)
            .map_err(|why| ended!(Usage, "cannot open {}: {why}", options.file.display()))?;
        Box::new(BufReader::with_capacity(1 << 20, file))
    };
    let output = options.output.display();
    let file = File::create(&options.output).with_context(|| format!("cannot create {output}"))?;
    let read = read(text, file);
    let (file, imported) = match read {
        Ok(done) => done,
        Err(error) => {
            // The unfinished file is not a trace.
            let _ = std::fs::remove_file(&options.output);
            return Err(ended!(Usage, "{}: {error}", options.file.display()));
        }
    };
    drop(file);
    print::shown(options.json, &imported, || said(&imported))
}

/// What was imported and what could not be.
pub fn said(imported: &Imported) -> String {
    let mut text = format!(
        "{}: {}, {}",
        imported.format.name(),
        counted(imported.lines, "line"),
        counted(imported.events, "event")
    );
    match imported.format {
        Format::Lackey => text += "; all threads as one\n",
        Format::PerfScript => text += "; sizes and instructions are not known\n",
    }
    for sampled in &imported.sampled {
        let rate = sampled.one_in().map_or_else(
            || "at an unknown rate".to_owned(),
            |one_in| format!("one in {}", count(one_in.round() as u64)),
        );
        let samples = counted(sampled.samples, "sample");
        text += &format!("  {}: {samples}, {rate}\n", sampled.event);
    }
    if imported.without_address > 0 {
        let without = counted(imported.without_address, "sample");
        text += &format!("  left out, since without an address: {without}\n");
    }
    if imported.bad_lines > 0 {
        let bad = counted(imported.bad_lines, "line");
        text += &format!("  left out, since not to be read: {bad}, the first:\n");
    }
    for bad in &imported.bad_examples {
        text += &format!("    line {}: {}\n", bad.line, bad.text);
    }
    text
}

#[cfg(test)]
mod tests {
    use numaherd_trace::import::{BadLine, Sampled};

    use super::*;

    #[test]
    fn what_was_left_out_is_said() {
        let imported = Imported {
            format: Format::PerfScript,
            lines: 12_345,
            events: 12_000,
            bad_lines: 3,
            bad_examples: vec![BadLine {
                line: 17,
                text: "so goes the program".to_owned(),
            }],
            without_address: 342,
            sampled: vec![
                Sampled {
                    event: "cpu/mem-loads,ldlat=30/P".to_owned(),
                    samples: 10_000,
                    happened: Some(40_000_000),
                },
                Sampled {
                    event: "ibs_op//".to_owned(),
                    samples: 2000,
                    happened: None,
                },
            ],
        };
        insta::assert_snapshot!(said(&imported), @r"
        perf script: 12,345 lines, 12,000 events; sizes and instructions are not known
          cpu/mem-loads,ldlat=30/P: 10,000 samples, one in 4,000
          ibs_op//: 2,000 samples, at an unknown rate
          left out, since without an address: 342 samples
          left out, since not to be read: 3 lines, the first:
            line 17: so goes the program
        ");
        let lackey = Imported {
            format: Format::Lackey,
            bad_lines: 0,
            bad_examples: Vec::new(),
            without_address: 0,
            sampled: Vec::new(),
            ..imported
        };
        insta::assert_snapshot!(
            said(&lackey),
            @"valgrind --tool=lackey --trace-mem=yes: 12,345 lines, 12,000 events; all threads as one"
        );
    }
}
