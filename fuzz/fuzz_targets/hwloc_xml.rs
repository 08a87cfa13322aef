//! hwloc XML (`lstopo --of xml`), of versions 2 and 3.
//!
//! Holds: no text makes the reader panic, and a topology that was read survives JSON.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use numaherd_topology::{Topology, hwloc};

fuzz_target!(|text: &str| {
    match hwloc::xml(text, Path::new("fuzz.xml")) {
        Ok(topology) => {
            let json = serde_json::to_string(&topology).expect("a topology can be written");
            let again: Topology = serde_json::from_str(&json).expect("and read back");
            assert_eq!(again, topology);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
