//! `/proc/PID/cgroup` and `/proc/self/mountinfo`.
//!
//! Holds: no bytes make either reader panic; a thread is within each cgroup that it is in, and
//! within the root; what was read can be written and reads back the same.
//!
//! Reader: crates/host/src/proc/cgroup.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_host::proc::cgroup::{Cgroups, mounts, parse};

numaherd_fuzz::target!(|text: &[u8]| {
    let cgroups = parse(text);
    let all = || {
        cgroups
            .unified
            .iter()
            .chain(&cgroups.cpuset)
            .chain(&cgroups.others)
    };
    assert!(all().all(|own| cgroups.within(own)));
    assert_eq!(
        cgroups.within("/"),
        all().any(|own| own.is_empty() || own.starts_with('/'))
    );
    assert_eq!(parse(written(&cgroups).as_bytes()), cgroups);
    let _ = mounts(text);
});

fn written(cgroups: &Cgroups) -> String {
    let unified = cgroups.unified.iter().map(|path| format!("0::{path}"));
    let cpuset = cgroups.cpuset.iter().map(|path| format!("1:cpuset:{path}"));
    let others = cgroups.others.iter().map(|path| format!("2:memory:{path}"));
    let lines: Vec<String> = unified.chain(cpuset).chain(others).collect();
    lines.join("\n")
}
