//! The lines of CPUs in `/proc/stat`.
//!
//! Holds: no bytes make the reader panic; idle time is a part of all time, and what was read can be
//! written and reads back the same.
//!
//! Reader: crates/host/src/proc/cpu_times.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc::cpu_times::parse;

numaherd_fuzz::target!(|text: &[u8]| {
    let times = parse(text);
    let written: String = times
        .iter()
        .map(|(cpu, time)| format!("cpu{cpu} {} 0 0 {}\n", time.all - time.idle, time.idle))
        .collect();
    assert_eq!(parse(written.as_bytes()), times);
});
