//! hwloc synthetic strings (`pack:2 [numa(memory=1GB)] core:4 pu:2`), as given on the command line.
//!
//! Holds: no text makes the reader panic; what is accepted is a topology of as many CPUs as the
//! string's counts multiply to, and survives JSON.
//!
//! Reader: crates/topology/src/hwloc/synthetic.rs
#![cfg_attr(feature = "fuzz", no_main)]

use numaherd_topology::{Topology, hwloc};

/// CPUs above which a string is passed over: a machine may have a million, and is slow to expand
/// without being wrong.
const MOST_CPUS: usize = 2048;

numaherd_fuzz::target!(|text: &str| {
    let objects = objects(text);
    if objects > MOST_CPUS {
        return false;
    }
    match hwloc::synthetic(text) {
        Ok(topology) => {
            assert_eq!(topology.cpus().len(), objects);
            let json = serde_json::to_string(&topology).expect("a topology can be written");
            let again: Topology = serde_json::from_str(&json).expect("and read back");
            assert_eq!(again, topology);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    true
});

/// The product of all counts, which stand after colons that are not in parentheses.
fn objects(text: &str) -> usize {
    let mut product: usize = 1;
    let mut rest = text;
    while let Some(at) = rest.find([':', '(']) {
        let after = &rest[at + 1..];
        if rest.as_bytes()[at] == b'(' {
            let Some(end) = after.find(')') else { break };
            rest = &after[end + 1..];
            continue;
        }
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let count: usize = after[..digits].parse().unwrap_or(1);
        product = product.saturating_mul(count.max(1));
        rest = &after[digits..];
    }
    product
}
