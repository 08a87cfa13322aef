//! `/proc/PID/status`.
//!
//! Holds: no bytes make the reader panic, and what was read can be written as a status file that
//! reads back the same.
//!
//! Reader: crates/host/src/proc/status.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc::status::{Status, parse};

numaherd_fuzz::target!(|text: &[u8]| {
    let status = parse(text);
    assert_eq!(parse(written(&status).as_bytes()), status);
});

fn written(status: &Status) -> String {
    let mut lines = Vec::new();
    lines.extend(status.user.map(|uid| format!("Uid:\t0\t{uid}\t0\t0")));
    lines.extend(
        status
            .capabilities
            .map(|set| format!("CapEff:\t{set:016x}")),
    );
    lines.extend(status.seccomp.map(|mode| format!("Seccomp:\t{mode}")));
    let cpus = status.cpus.as_ref();
    lines.extend(cpus.map(|cpus| format!("Cpus_allowed_list:\t{cpus}")));
    let nodes = status.nodes.as_ref();
    lines.extend(nodes.map(|nodes| format!("Mems_allowed_list:\t{nodes}")));
    lines.join("\n")
}
