//! The text of other tools as traces: `valgrind --tool=lackey --trace-mem=yes` and `perf script`.
//!
//! Holds: no text makes the readers panic; what they make of it is a whole trace with the events
//! that they said; lines are not more than the text has, nor bad lines more than lines.
//!
//! Reader: crates/trace/src/import.rs crates/trace/src/import
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_trace::Trace;
use numaherd_trace::import::{Format, import};
use numaherd_trace::info::info;

numaherd_fuzz::target!(|text: &[u8]| {
    let (bytes, imported) = match import(text, Vec::new()) {
        Ok(read) => read,
        Err(error) => {
            assert_eq!(Format::of(text), None, "{error}");
            return;
        }
    };
    let lines = text.split(|&byte| byte == b'\n').count() as u64;
    assert!(imported.lines <= lines && imported.bad_lines <= imported.lines);
    let trace = Trace::from_bytes(bytes).expect("what was written is a trace");
    assert_eq!(trace.damage(), None);
    let counted = info(&trace).expect("memory can be read");
    assert_eq!(counted.damage, None);
    assert_eq!(counted.total.accesses(), imported.events);
    let samples: u64 = imported.sampled.iter().map(|event| event.samples).sum();
    assert!(imported.format == Format::Lackey || samples == imported.events);
});
