//! `/proc/PID/maps`.
//!
//! Holds: no bytes make the reader panic, ranges are never empty, and what was read can be written
//! and reads back the same.
//!
//! Reader: crates/host/src/proc/maps.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc;

use std::fmt::Write as _;

numaherd_fuzz::target!(|text: &[u8]| {
    let mappings = proc::maps::parse(text);
    let mut written = String::new();
    for mapping in &mappings {
        assert!(mapping.start < mapping.end);
        let read = if mapping.movable { 'r' } else { '-' };
        let shared = if mapping.shared { 's' } else { 'p' };
        let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
        writeln!(
            written,
            "{start:08x}-{end:08x} {read}w-{shared} {offset:08x} 00:00 0 "
        )
        .expect("a string can be written");
    }
    assert_eq!(proc::maps::parse(written.as_bytes()), mappings);
});
