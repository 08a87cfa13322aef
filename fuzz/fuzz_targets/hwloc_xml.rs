//! hwloc XML (`lstopo --of xml`), of versions 2 and 3.
//!
//! Holds: no text makes the reader panic, and a topology that was read survives JSON.
//!
//! Reader: crates/topology/src/hwloc/xml.rs crates/topology/src/hwloc/objects.rs crates/topology/src/hwloc/bitmap.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;

use numaherd_topology::{Topology, hwloc};

numaherd_fuzz::target!(|text: &str| {
    match hwloc::xml(text, Path::new("fuzz.xml")) {
        Ok(topology) => {
            let json = serde_json::to_string(&topology).expect("a topology can be written");
            let again: Topology = serde_json::from_str(&json).expect("and read back");
            assert_eq!(again, topology);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
