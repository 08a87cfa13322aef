//! The kernel's list syntax (`0-3,8,16-31:2/4`), as read from sysfs, procfs and the command line.
//!
//! Holds: no text makes the reader panic, and a set prints as a list that reads back as the same
//! set and prints the same.
//!
//! Reader: crates/topology/src/set.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_topology::CpuSet;

numaherd_fuzz::target!(|text: &str| {
    let Ok(set) = text.parse::<CpuSet>() else {
        return;
    };
    let printed = set.to_string();
    let again: CpuSet = printed.parse().expect("what is printed can be read");
    assert_eq!(again, set);
    assert_eq!(again.to_string(), printed);
    assert_eq!(set.iter().count(), set.len());
    assert_eq!(set.iter().next(), set.first());
    assert_eq!(set.iter().last(), set.last());
    assert_eq!(set.is_empty(), printed.is_empty());
});
