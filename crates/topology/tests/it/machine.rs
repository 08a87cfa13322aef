//! Machine files: what shape they expand to, and what is refused, with file, line and key.

use std::path::Path;

use numaherd_topology::{CacheKind, CpuId, CpuSet, Machine, NodeId, SharedBy};

const SOCKETS: &str = r#"
name = "two-sockets"
description = "Two packages of two clusters with two domains each, and a node of memory alone"
source = "made up for this test"

[shape]
nodes = 5
domains_per_node = [2, 2, 2, 2, 0]
cores_per_domain = 2
threads_per_core = 2
nodes_per_package = 2
memory_per_node_mib = 64

[[cache]]
level = 1
kind = "data"
size_kib = 32
ways = 8
shared_by = "core"

[[cache]]
level = 3
kind = "unified"
size_kib = 1024
shared_by = "domain"
latency_ns = 20

[memory]
node_gb_per_s = 50
link_gb_per_s = 20

[core]
clock_ghz = 2.0
"#;

fn parse(text: &str) -> Result<Machine, String> {
    Machine::parse(text, Path::new("my.toml")).map_err(|error| error.to_string())
}

#[test]
fn cores_come_first_then_their_siblings() {
    let topology = parse(SOCKETS).unwrap().topology().unwrap();
    assert_eq!(topology.cpus().len(), 32);
    assert_eq!(topology.cores().len(), 16);
    assert_eq!(topology.domains().len(), 8);
    assert_eq!(topology.cores()[0].cpus.to_string(), "0,16");
    assert_eq!(topology.domains()[1].cpus.to_string(), "2-3,18-19");
    assert_eq!(topology.nodes()[1].cpus.to_string(), "4-7,20-23");
    assert!(topology.nodes()[4].cpus.is_empty());
    assert_eq!(topology.nodes()[4].memory_bytes, 64 << 20);
    let package = |cpu| topology.cpu(CpuId(cpu)).unwrap().package.unwrap().0;
    assert_eq!(
        [package(0), package(7), package(8), package(24)],
        [0, 0, 1, 1]
    );
    assert_eq!(topology.distance(NodeId(0), NodeId(4)), Some(20));
    let l1 = topology
        .caches()
        .iter()
        .filter(|c| c.kind == CacheKind::Data);
    assert_eq!(l1.count(), 16);
    let links = topology.timing().link_gb_per_s.as_ref().unwrap();
    assert_eq!(links[0][..2], [50.0, 20.0]);
}

#[test]
fn siblings_may_be_numbered_one_after_the_other() {
    let adjacent = "threads_per_core = 2\nsibling_numbers = \"adjacent\"";
    let text = SOCKETS.replace("threads_per_core = 2", adjacent);
    let topology = parse(&text).unwrap().topology().unwrap();
    let shown =
        |sets: Vec<&CpuSet>| -> Vec<String> { sets.into_iter().map(ToString::to_string).collect() };
    let cores = shown(topology.cores().iter().map(|core| &core.cpus).collect());
    assert_eq!(cores[..3], ["0-1", "2-3", "4-5"]);
    let nodes = shown(topology.nodes().iter().map(|node| &node.cpus).collect());
    assert_eq!(nodes, ["0-7", "8-15", "16-23", "24-31", ""]);
    let package = |cpu| topology.cpu(CpuId(cpu)).unwrap().package.unwrap().0;
    assert_eq!([0, 15, 16, 31].map(package), [0, 0, 1, 1]);
}

#[test]
fn nodes_may_differ_in_all_that_they_have() {
    let text = SOCKETS
        .replace("[2, 2, 2, 2, 0]", "[0, 3, 1, 1, 2]")
        .replace("mib = 64", "mib = [64, 0, 128, 64, 32]")
        .replace("node_gb_per_s = 50", "node_gb_per_s = [50, 1, 40, 30, 20]");
    let topology = parse(&text).unwrap().topology().unwrap();
    let nodes = topology.nodes().iter();
    let nodes: Vec<_> = nodes
        .map(|node| (node.cpus.to_string(), node.memory_bytes >> 20))
        .collect();
    let expected = [
        ("", 64),
        ("0-5,14-19", 0),
        ("6-7,20-21", 128),
        ("8-9,22-23", 64),
        ("10-13,24-27", 32),
    ];
    assert_eq!(nodes, expected.map(|(cpus, mib)| (cpus.to_owned(), mib)));
    // Nodes 1 and 2, and 3 and 4, for node 0 has no cores.
    let package = |cpu| topology.cpu(CpuId(cpu)).unwrap().package.unwrap().0;
    let packages = [5, 7, 8, 27].map(package);
    assert_eq!(packages, [0, 0, 1, 1]);
    let near = |node| {
        [
            topology.memory_near(NodeId(node)).0,
            topology.cpus_near(NodeId(node)).0,
        ]
    };
    assert_eq!(
        [near(0), near(1), near(2), near(9)],
        [[0, 1], [0, 1], [2, 2], [9, 9]]
    );
    let timing = topology.timing();
    let own = timing.node_gb_per_s.as_ref().unwrap();
    assert_eq!(own[..], [50.0, 1.0, 40.0, 30.0, 20.0]);
    assert_eq!(
        timing.link_gb_per_s.as_ref().unwrap()[2][..3],
        [20.0, 20.0, 40.0]
    );
}

#[test]
fn a_cache_that_spans_nodes_makes_a_domain_in_each() {
    let text = SOCKETS
        .replace("[2, 2, 2, 2, 0]", "[1, 1, 1, 1, 0]")
        .replace("shared_by = \"domain\"", "shared_by = \"package\"");
    let machine = parse(&text).unwrap();
    assert_eq!(machine.caches[1].shared_by, SharedBy::Package);
    let topology = machine.topology().unwrap();
    let shared = topology.caches().last().unwrap();
    assert_eq!(shared.cpus.to_string(), "4-7,12-15");
    let domains: Vec<_> = topology
        .domains()
        .iter()
        .map(|domain| (domain.node.0, domain.cpus.to_string()))
        .collect();
    let expected = [
        (0, "0-1,8-9"),
        (1, "2-3,10-11"),
        (2, "4-5,12-13"),
        (3, "6-7,14-15"),
    ];
    assert_eq!(
        domains,
        expected.map(|(node, cpus)| (node, cpus.to_owned()))
    );
}

#[test]
fn the_labs_square_is_as_its_prototype() {
    let machine = Machine::preset("lab-4x2").unwrap();
    let topology = machine.topology().unwrap();
    let cpus: Vec<_> = topology
        .nodes()
        .iter()
        .map(|n| n.cpus.to_string())
        .collect();
    assert_eq!(cpus, ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(topology.distance(NodeId(0), NodeId(3)), Some(30));
    assert_eq!(topology.distance(NodeId(1), NodeId(2)), Some(30));
    assert_eq!(topology.distance(NodeId(2), NodeId(3)), Some(20));
    let latency = topology.timing().latency_ns.as_ref().unwrap();
    assert_eq!(latency[0], [90.0, 150.0, 150.0, 210.0]);
}

#[test]
fn a_wrong_file_is_refused_with_file_line_and_key() {
    let refused = |from: &str, to: &str| {
        assert!(SOCKETS.contains(from), "{from}");
        parse(&SOCKETS.replacen(from, to, 1)).unwrap_err()
    };
    let told = |from, to, message| assert_eq!(refused(from, to), message);
    told(
        "nodes = 5",
        "nodes = 0",
        "my.toml:7: shape.nodes: 0 where at least 1 is needed",
    );
    told(
        "nodes = 5",
        "nodes = -5",
        "my.toml:7: shape.nodes: invalid value: integer `-5`, expected u32",
    );
    told(
        "nodes = 5",
        "noddes = 5",
        "my.toml:7: shape.noddes: unknown field `noddes`; did you mean `nodes`?",
    );
    let domains = "domains_per_node = [2, 2, 2, 2, 0]";
    told(
        domains,
        "domains_per_node = [2, 2, 2, 2]",
        "my.toml:8: shape.domains_per_node: 4 numbers for 5 nodes",
    );
    told(
        domains,
        "domains_per_node = 0",
        "my.toml:8: shape.domains_per_node: no node has cores",
    );
    told(
        domains,
        "domains_per_node = \"two\"",
        "my.toml:8: shape.domains_per_node: must be a number, or a list of numbers, one for each node",
    );
    told(
        domains,
        "",
        "my.toml:11: shape.nodes_per_package: 5 nodes with cores cannot be divided into packages of 2",
    );
    told(
        "memory_per_node_mib = 64",
        "memory_per_node_mib = [0, 0, 0, 0, 0]",
        "my.toml:12: shape.memory_per_node_mib: no node has memory",
    );
    told(
        "node_gb_per_s = 50",
        "node_gb_per_s = [50, 50]",
        "my.toml:29: memory.node_gb_per_s: 2 numbers for 5 nodes",
    );
    told(
        "cores_per_domain = 2",
        "cores_per_domain = 4000000000",
        "my.toml:6: shape: 64000000000 CPUs; more than 65536 are taken for a mistake",
    );
    told(
        "size_kib = 1024",
        "size_kib = 0",
        "my.toml:24: cache[1].size_kib: 0 KiB cannot be",
    );
    told(
        "ways = 8",
        "ways = 7",
        "my.toml:18: cache[0].ways: 512 lines cannot be divided into 7 ways",
    );
    told(
        "latency_ns = 20",
        "latency_ns = -20",
        "my.toml:26: cache[1].latency_ns: -20 is not a positive number",
    );
    told(
        "latency_ns = 20",
        "latency_ns = 9e300",
        "my.toml:26: cache[1].latency_ns: 9e300; figures below 1e-9 or above 1e9 are taken for mistakes",
    );
    told(
        "node_gb_per_s = 50",
        "distance = [[10, 20], [20, 10]]",
        "my.toml:29: memory.distance: 2 rows for 5 nodes",
    );
    told(
        "clock_ghz = 2.0",
        "smt_throughput = 2.5",
        "my.toml:33: core.smt_throughput: 2.5 is not from 1 (siblings get done no more than one alone) to 2",
    );
    told(
        "clock_ghz = 2.0",
        "clock_ghz = nan",
        "my.toml:33: core.clock_ghz: NaN is not a positive number",
    );
    told(
        "source = \"made up for this test\"",
        "",
        "my.toml:1: missing field `source`",
    );
}

#[test]
fn a_distance_of_zero_is_refused() {
    let text = include_str!("../../../../data/machines/lab-4x2.toml");
    let error = parse(&text.replacen("[10, 20, 20, 30]", "[10, 0, 20, 30]", 1)).unwrap_err();
    assert!(
        error.contains("memory.distance: 0 from node 0 to 1; it is 10 on the diagonal"),
        "{error}"
    );
}

#[test]
fn tlbs_that_cannot_be_are_refused() {
    let text = include_str!("../../../../data/machines/lab-4x2.toml");
    for (from, to, message) in [
        (
            "page_kib = 4",
            "page_kib = 5",
            "tlb.page_kib: 5 is not a power of two",
        ),
        (
            "miss_ns = 80",
            "miss_ns = -1",
            "tlb.miss_ns: -1 is not 0 or more",
        ),
        (
            "{ entries = 64, ways = 4 }",
            "{ entries = 65, ways = 4 }",
            "tlb.l1.entries: 65 entries are not a multiple of 4 ways",
        ),
        (
            "{ entries = 64, ways = 4 }",
            "{ entries = 64, ways = 4, latency_ns = 1 }",
            "tlb.l1.latency_ns: it is part of the instruction: leave it out",
        ),
        (
            "entries = 512",
            "entries = 32",
            "tlb.l2.entries: the second level contains the entries of the first, so it needs at \
             least as many",
        ),
        (
            "\"hardware\"",
            "\"magic\"",
            "unknown variant `magic`, expected `hardware` or `software`",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = parse(&text.replacen(from, to, 1)).unwrap_err();
        assert!(error.ends_with(message), "{error}");
    }
}

#[test]
fn a_machine_file_is_written_and_read_back() {
    for name in Machine::presets() {
        let machine = Machine::preset(name).unwrap();
        let text = toml::to_string(&machine).unwrap();
        assert_eq!(parse(&text).unwrap(), machine);
    }
}

#[test]
fn papers_machines_have_the_figures_that_the_papers_print() {
    let topology = |name: &str| Machine::preset(name).unwrap().topology().unwrap();
    let dino = topology("opteron-8356-4s");
    assert_eq!((dino.nodes().len(), dino.cores().len()), (4, 16));
    assert_eq!(dino.nodes()[0].memory_bytes, 16 << 30);
    // Local access on an outer chip is slower than remote access between the inner ones.
    let latency = dino.timing().latency_ns.as_ref().unwrap();
    assert!(latency[0][0] > latency[1][2]);
    let n_mass = topology("xeon-e5520-2s");
    let latency = n_mass.timing().latency_ns.as_ref().unwrap();
    assert_eq!(latency[0], [50.0, 90.0]);
    let links = n_mass.timing().link_gb_per_s.as_ref().unwrap();
    assert_eq!(links[0][1], 11.72);
    let ipm = topology("itanium-9030-4s");
    assert_eq!((ipm.nodes().len(), ipm.domains().len()), (2, 8));
    let clustered = topology("xeon-8269cy-2s-snc2");
    assert_eq!(
        (clustered.domains().len(), clustered.caches().len()),
        (4, 2)
    );
}
