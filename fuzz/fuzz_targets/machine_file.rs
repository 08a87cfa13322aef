//! Machine files (TOML): a user's own file as well as the presets.
//!
//! Holds: no text makes the reader panic; a machine that was read can be written and read back the
//! same; and what [`Machine::parse`] accepts is a topology, as its documentation promises. The
//! topology in turn survives JSON, and where the machine has all figures that the contention model needs,
//! those that the model makes of them are figures.
//!
//! Reader: crates/topology/src/machine
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;

use numaherd_model::Hardware;
use numaherd_topology::{Machine, Topology};

/// CPUs and nodes above which a machine is read but not expanded, to keep a run fast: a machine
/// may have a million CPUs, and expanding that is slow without being wrong.
const LARGEST_EXPANDED: u64 = 512;

numaherd_fuzz::changes_figures!();

numaherd_fuzz::target!(|text: &str| {
    let path = Path::new("fuzz.toml");
    let machine = match Machine::parse(text, path) {
        Ok(machine) => machine,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let written = toml::to_string(&machine).expect("a machine can be written");
    let again = Machine::parse(&written, path).expect("what is written can be read");
    assert_eq!(again, machine);

    let shape = &machine.shape;
    let domains = shape.domains_per_node.list(shape.nodes as usize);
    let cpus = domains
        .into_iter()
        .fold(0u64, |all, domains| all.saturating_add(domains.into()))
        .saturating_mul(shape.cores_per_domain.into())
        .saturating_mul(shape.threads_per_core.into());
    if cpus > LARGEST_EXPANDED || u64::from(shape.nodes) > LARGEST_EXPANDED {
        return;
    }
    match machine.topology() {
        Ok(topology) => {
            let json = serde_json::to_string(&topology).expect("a topology can be written");
            let again: Topology = serde_json::from_str(&json).expect("and read back");
            assert_eq!(again, topology);
        }
        Err(error) => panic!("the reader accepted what is no topology: {error}"),
    }
    match Hardware::of(&machine) {
        Ok(hardware) => figures(&hardware),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

fn figures(hardware: &Hardware) {
    let above_0 = [
        hardware.figures.clock_ghz,
        hardware.figures.in_flight,
        hardware.figures.llc_ns,
        hardware.figures.ns_per_reference_cycle,
    ];
    assert!(above_0.iter().all(|figure| *figure > 0.0), "{above_0:?}");
    for domain in 0..hardware.topology().domains().len() {
        assert!(hardware.figures.llc_bytes[domain] > 0.0);
    }
    assert!(hardware.figures.private_bytes >= 0.0);
    assert!(hardware.figures.channels.len() >= hardware.figures.nodes);
    for core in 0..hardware.figures.nodes {
        for memory in 0..hardware.figures.nodes {
            assert!(hardware.figures.latency_ns(core, memory) > 0.0);
        }
    }
}
