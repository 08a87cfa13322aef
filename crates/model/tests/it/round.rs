//! The machine of these tests: two nodes of two cores with a cache of 1 MiB each, cycles of 1 ns, round figures
//! throughout.

use std::path::Path;

use numaherd_model::Hardware;
use numaherd_topology::Machine;

/// The machine, with more lines in its tables: of the shape, of the shared cache, of memory; and with more caches.
pub fn hardware(shape: &str, shared: &str, memory: &str, caches: &str) -> Hardware {
    let machine = format!(
        r#"
        name = "round"
        description = "two nodes with round figures"
        source = "made up for tests"
        [shape]
        nodes = 2
        cores_per_domain = 2
        {shape}
        {caches}
        [[cache]]
        level = 3
        kind = "unified"
        size_kib = 1024
        shared_by = "domain"
        latency_ns = 20
        {shared}
        [memory]
        latency_ns = [[100, 200], [200, 100]]
        {memory}
        [core]
        clock_ghz = 1.0
        misses_in_flight = 10
    "#
    );
    Hardware::of(&Machine::parse(&machine, Path::new("round.toml")).unwrap()).unwrap()
}
