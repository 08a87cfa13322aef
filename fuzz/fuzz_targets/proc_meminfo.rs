//! `meminfo`, of the machine and of a node.
//!
//! Holds: no bytes make the reader panic, and what was read can be written and reads back the same.
//!
//! Reader: crates/host/src/proc/meminfo.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc::meminfo::parse;

numaherd_fuzz::target!(|text: &[u8]| {
    let Some((total, free)) = parse(text) else {
        return;
    };
    let (total_kib, free_kib) = (total / 1024, free / 1024);
    let machine = format!("MemTotal: {total_kib} kB\nMemFree: {free_kib} kB\n");
    assert_eq!(parse(machine.as_bytes()), Some((total, free)));
    let node = format!("Node 3 MemTotal: {total_kib} kB\nNode 3 MemFree: {free_kib} kB\n");
    assert_eq!(parse(node.as_bytes()), Some((total, free)));
});
