//! The lines of CPUs in `/proc/stat`.
//!
//! Holds: no bytes make the reader panic; idle time is a part of all time, and what was read can be
//! written and reads back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

use numaherd_host::proc::cpu_times::parse;

fuzz_target!(|text: &[u8]| {
    let times = parse(text);
    let written: String = times
        .iter()
        .map(|(cpu, time)| format!("cpu{cpu} {} 0 0 {}\n", time.all - time.idle, time.idle))
        .collect();
    assert_eq!(parse(written.as_bytes()), times);
});
