//! `/proc/PID/task/TID/stat`.
//!
//! Holds: no bytes make the reader panic; the name is found whatever is in it, and the fields that
//! are used can be written as a stat file that reads back the same.
//!
//! Reader: crates/host/src/proc/stat.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc;

numaherd_fuzz::target!(|text: &[u8]| {
    let Some(stat) = proc::stat::parse(text) else {
        return;
    };
    let _ = (stat.has_ended(), stat.unmanaged());
    let mut written = b"1 (".to_vec();
    written.extend_from_slice(stat.name);
    written.extend_from_slice(b") ");
    written.push(stat.state);
    written.extend_from_slice(
        format!(
            " {} {} {} 0 0 {} 0 0 0 0 {} 0 0 0 20 0 {} 0 {}{} {} {} {} 0\n",
            stat.parent,
            stat.group,
            stat.session,
            stat.flags,
            stat.ran_ticks,
            stat.threads,
            stat.born,
            " 0".repeat(16),
            stat.cpu,
            stat.realtime_priority,
            stat.class,
        )
        .as_bytes(),
    );
    // A state that splits fields, or a name that holds the end of another, is not the kernel's.
    if stat.state.is_ascii_alphabetic() {
        assert_eq!(proc::stat::parse(&written), Some(stat));
    }
});
