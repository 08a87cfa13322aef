//! Topologies in JSON: what `numaherd topology --json` prints, and a part of every ledger.
//!
//! Holds: no text makes the reader panic or take memory that the text does not account for; a
//! topology that was read can be written and read back the same, and printed the same again.
//!
//! Reader: crates/topology/src/topology.rs crates/topology/src/parts.rs crates/topology/src/parts
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_topology::Topology;

numaherd_fuzz::target!(|text: &str| {
    let topology: Topology = match serde_json::from_str(text) {
        Ok(topology) => topology,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let written = serde_json::to_string(&topology).expect("a topology can be written");
    let again: Topology = serde_json::from_str(&written).expect("what is written can be read");
    assert_eq!(again, topology);
    assert_eq!(serde_json::to_string(&again).expect("again"), written);
});
