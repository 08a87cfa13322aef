//! Sysfs trees: those of unusual machines, those that lie, and those of any size.

use std::fs;
use std::path::Path;

use numaherd_topology::{CacheKind, CpuId, CpuSet, Machine, NodeId, Parts, Topology, sysfs};
use proptest::prelude::*;

use crate::tree;

fn fixture(name: &str) -> Topology {
    let root = tree::unpack(&tree::text(name));
    sysfs::read(root.path()).unwrap_or_else(|error| panic!("{error}"))
}

/// Node and CPUs of each memory domain.
fn domains(topology: &Topology) -> Vec<(u32, String)> {
    let domains = topology.domains().iter();
    domains.map(|d| (d.node.0, d.cpus.to_string())).collect()
}

fn expected(domains: &[(u32, &str)]) -> Vec<(u32, String)> {
    let owned = |&(node, cpus): &(u32, &str)| (node, cpus.to_owned());
    domains.iter().map(owned).collect()
}

#[test]
fn what_a_kernel_really_shows_is_read() {
    let machine = fixture("captured");
    assert_eq!(machine.nodes().len(), 3);
    assert_eq!(machine.online_cpus().to_string(), "0-2,4-7");
    assert_eq!(machine.nodes()[0].cpus.to_string(), "0-2");
    // The L3's list still names the offline CPU.
    assert_eq!(domains(&machine), expected(&[(0, "0-3"), (1, "4-7")]));
    assert_eq!(machine.cores()[0].cpus.to_string(), "0-1");
    assert_eq!(machine.distance(NodeId(2), NodeId(1)), Some(17));
    assert_eq!(machine.caches().len(), 7 * 3 + 2);
    let package = |cpu| machine.cpu(CpuId(cpu)).unwrap().package.unwrap().0;
    assert_eq!([package(2), package(4)], [0, 1]);
    // HMAT's 25 GiB/s; its latencies name the nearest initiators alone.
    let bandwidth = machine.timing().node_gb_per_s.as_ref().unwrap();
    assert_eq!(bandwidth[2], 25_600.0 * 1_048_576.0 / 1e9);
    assert_eq!(machine.timing().latency_ns, None);
}

#[test]
fn an_offline_cpu_counts_to_the_node_whose_cache_names_it() {
    let text = tree::text("captured")
        .replace("cpu/online = 0-2,4-7", "cpu/online = 0-3,4-6")
        .replace("node0/cpulist = 0-2", "node0/cpulist = 0-3")
        .replace("node1/cpulist = 4-7", "node1/cpulist = 4-6")
        .replace(
            "cpu{6-7}/topology/core_cpus_list = 6-7",
            "cpu{6}/topology/core_cpus_list = 6",
        );
    let root = tree::unpack(&text);
    let machine = sysfs::read(root.path()).unwrap();
    assert!(!machine.cpu(CpuId(7)).unwrap().online);
    assert_eq!(machine.node_of(CpuId(7)), Some(NodeId(1)));
    assert_eq!(machine.domain_of(CpuId(7)).unwrap().cpus.to_string(), "4-7");
}

#[test]
fn a_node_without_memory_keeps_its_cpus() {
    let machine = fixture("memoryless");
    assert_eq!(machine.memory_nodes().to_string(), "0");
    assert_eq!(machine.nodes()[0].memory_bytes, 16_316_412 << 10);
    assert_eq!(machine.nodes()[1].memory_bytes, 0);
    assert_eq!(domains(&machine), expected(&[(0, "0-1"), (1, "2-3")]));
    assert_eq!(machine.caches()[0].size_bytes, Some(8 << 20));
}

#[test]
fn a_node_without_cpus_has_memory_distances_and_bandwidth() {
    let machine = fixture("cxl");
    assert_eq!(machine.memory_nodes().to_string(), "0-2");
    assert!(machine.nodes()[2].cpus.is_empty());
    assert_eq!(machine.distance(NodeId(1), NodeId(2)), Some(24));
    assert_eq!(domains(&machine), expected(&[(0, "0-3"), (1, "4-7")]));
    assert_eq!(machine.cores()[1].cpus.to_string(), "2-3");
    assert_eq!(machine.caches()[0].size_bytes, Some(32 << 20));
    assert_eq!(
        (machine.caches()[0].ways, machine.caches()[0].line_bytes),
        (Some(16), Some(64))
    );
    let bandwidth = machine.timing().node_gb_per_s.as_ref().unwrap();
    assert_eq!(bandwidth[2], 25_000.0 * 1_048_576.0 / 1e9);
    // HMAT as the kernel shows it names the nearest initiators alone: no whole matrix.
    assert_eq!(machine.timing().latency_ns, None);
}

#[test]
fn sparse_and_offline_nodes_have_their_own_rows() {
    let machine = fixture("offline");
    let nodes: Vec<_> = machine.nodes().iter().map(|n| (n.id.0, n.online)).collect();
    assert_eq!(nodes, [(0, true), (8, false), (16, true)]);
    assert_eq!(machine.distance(NodeId(0), NodeId(16)), Some(40));
    assert_eq!(machine.distance(NodeId(0), NodeId(8)), Some(255));
    assert_eq!(machine.distance(NodeId(8), NodeId(8)), Some(10));
    assert_eq!(machine.memory_nodes().to_string(), "0,16");
    assert_eq!(machine.online_cpus().to_string(), "0-1,4-5");
    assert_eq!(machine.cpus().len(), 6);
    assert_eq!(machine.cpu(CpuId(0)).unwrap().package, None);
    // An offline CPU counts to the first domain until it comes online; it makes none of its own.
    assert_eq!(domains(&machine), expected(&[(0, "0-3"), (16, "4-5")]));
    assert_eq!(machine.nodes()[0].cpus.to_string(), "0-1");
}

#[test]
fn a_cache_that_spans_nodes_makes_a_domain_in_each() {
    let machine = fixture("snc2");
    assert_eq!(machine.caches().len(), 1);
    assert_eq!(
        domains(&machine),
        expected(&[(0, "0-1,4-5"), (1, "2-3,6-7")])
    );
}

#[test]
fn several_caches_in_a_node_make_several_domains() {
    let machine = fixture("epyc");
    let four = [(0, "0-1"), (0, "2-3"), (0, "4-5"), (0, "6-7")];
    assert_eq!(domains(&machine), expected(&four));
    let instruction = |c: &&numaherd_topology::Cache| c.kind == CacheKind::Instruction;
    assert_eq!(machine.caches().iter().filter(instruction).count(), 8);
}

#[test]
fn without_numa_there_is_one_node_with_all_memory() {
    let machine = fixture("big-little");
    assert_eq!(machine.name(), "board");
    assert_eq!(machine.nodes().len(), 1);
    assert_eq!(machine.nodes()[0].memory_bytes, 3_880_324 << 10);
    assert_eq!(domains(&machine), expected(&[(0, "0-3"), (0, "4-5")]));
    let capacity = |cpu| machine.cpu(CpuId(cpu)).unwrap().capacity;
    assert_eq!([capacity(0), capacity(5)], [485, 1024]);
}

#[test]
fn hybrid_cores_are_told_apart_without_cpu_capacity() {
    let machine = fixture("hybrid");
    let capacity = |cpu| machine.cpu(CpuId(cpu)).unwrap().capacity;
    assert_eq!([capacity(0), capacity(7)], [1024, 640]);
    assert_eq!(domains(&machine), expected(&[(0, "0-7")]));
    assert_eq!(machine.cores().len(), 6);
}

#[test]
fn kernels_without_sibling_lists_give_cores_by_number() {
    let text = tree::text("snc2")
        .replace(
            "cpu{0,4}/topology/core_cpus_list = 0,4",
            "cpu{0,4}/topology/core_id = 0",
        )
        .replace(
            "cpu{1,5}/topology/core_cpus_list = 1,5",
            "cpu{1,5}/topology/core_id = 1",
        )
        .replace(
            "cpu{2,6}/topology/core_cpus_list = 2,6",
            "cpu{2,6}/topology/core_id = 2",
        )
        .replace(
            "cpu{3,7}/topology/core_cpus_list = 3,7",
            "cpu{3,7}/topology/core_id = 3",
        );
    let root = tree::unpack(&text);
    let machine = sysfs::read(root.path()).unwrap();
    assert_eq!(machine.cores(), fixture("snc2").cores());
}

#[test]
fn this_machine_can_be_read() {
    let machine = sysfs::read(Path::new("/")).unwrap();
    assert!(!machine.online_cpus().is_empty());
}

/// The error for a fixture with one text replaced, without the directory it was unpacked to.
fn lie(name: &str, from: &str, to: &str) -> String {
    let text = tree::text(name);
    assert!(text.contains(from), "{from}");
    let root = tree::unpack(&text.replacen(from, to, 1));
    let error = sysfs::read(root.path())
        .expect_err("the tree lies")
        .to_string();
    let root = root.path().display().to_string();
    error
        .replace(&format!("{root}/"), "")
        .replace(&root, "ROOT")
}

#[test]
fn a_tree_that_lies_is_refused_with_what_and_where() {
    let cases = [
        lie("snc2", "node0/cpulist = 0-1,4-5", "node0/cpulist = 0-2,4-5"),
        lie("snc2", "node0/cpulist = 0-1,4-5", "node0/cpulist = 0-1,4-8"),
        lie("snc2", "node0/cpulist = 0-1,4-5", "node0/cpulist = 0-1,5"),
        lie("snc2", "node0/cpulist = 0-1,4-5", "node0/cpulist = 0-1,-4"),
        lie("snc2", "node0/distance = 10 11", "node0/distance = 10"),
        lie("snc2", "node0/distance = 10 11", "node0/distance = 10 0"),
        lie("snc2", "node0/distance = 10 11", "node0/distance = 11 11"),
        lie("snc2", "node0/distance = 10 11", "node0/distance = 10 -1"),
        lie("snc2", "node0/distance = 10 11", "node0/nothing = 10 11"),
        lie(
            "snc2",
            "node0/meminfo = Node 0 MemTotal:        4194304 kB",
            "node0/meminfo = soon",
        ),
        lie(
            "snc2",
            "MemTotal:        4194304 kB",
            "MemTotal:       -4194304 kB",
        ),
        lie("snc2", "node/online = 0-1", "node/online = 0-2"),
        lie("snc2", "cpu/online = 0-7", "cpu/online = 0-9"),
        lie("snc2", "cpu/online = 0-7", "cpu/elsewhere = 0-9"),
        lie("snc2", "cpu/online = 0-7", "cpu/online ="),
        lie(
            "snc2",
            "cpu{0,4}/topology/core_cpus_list = 0,4",
            "cpu{0,4}/topology/core_cpus_list = 0,2",
        ),
        lie(
            "snc2",
            "cpu{0,4}/topology/core_cpus_list = 0,4",
            "cpu{0,4}/topology/core_cpus_list = 0,4,6",
        ),
        lie(
            "snc2",
            "cpu{0-7}/topology/physical_package_id = 0",
            "cpu{0-7}/topology/physical_package_id = -7",
        ),
        lie("epyc", "size = 32K", "size = 0K"),
        lie("epyc", "size = 32K", "size = -32K"),
        lie(
            "epyc",
            "cpu{0-7}/cache/index0/type = Data",
            "cpu{0-7}/cache/index0/type = Date",
        ),
        lie(
            "epyc",
            "cpu{0-7}/cache/index0/level = 1",
            "cpu{0-7}/cache/index0/level = 300",
        ),
        lie(
            "epyc",
            "cpu{0-1}/cache/index3/shared_cpu_list = 0-1",
            "cpu{0-1}/cache/index3/shared_cpu_list = 0-2",
        ),
        lie(
            "epyc",
            "cpu{0-1}/cache/index3/shared_cpu_list = 0-1",
            "cpu{0-1}/cache/index3/shared_cpu_list = 2-3",
        ),
        lie(
            "memoryless",
            "MemTotal:       16316412 kB",
            "MemTotal: 0 kB",
        ),
        lie("big-little", "cpu_capacity = 485", "cpu_capacity = 0"),
        lie("big-little", "proc/meminfo", "proc/nothing"),
        lie(
            "cxl",
            "cpu/cpu{0-1}/topology/core_cpus_list = 0-1\n",
            "cpu/cpu{0-1,4}/topology/core_cpus_list = 0-1,4\n",
        ),
    ];
    insta::assert_snapshot!(cases.join("\n"));
}

#[test]
fn a_file_that_is_huge_or_no_file_is_refused_without_reading_it() {
    let root = tree::unpack(&tree::text("epyc"));
    let file = root.path().join("sys/devices/system/node/online");
    fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    let error = sysfs::read(root.path()).unwrap_err();
    assert!(
        error.to_string().contains("is larger than 1048576 bytes"),
        "{error}"
    );
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = sysfs::read(root.path()).unwrap_err().to_string();
    assert!(error.contains("it is not a regular file"), "{error}");
    fs::remove_dir(&file).unwrap();
    fs::write(&file, [0xff, 0xfe]).unwrap();
    let error = sysfs::read(root.path()).unwrap_err().to_string();
    assert!(error.contains("it is not text"), "{error}");
}

#[test]
fn a_directory_without_a_tree_is_answered_with_what_a_root_is() {
    let empty = tree::directory();
    let error = sysfs::read(empty.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("the root must be the directory that contains sys (/ for this machine)")
    );
}

/// A machine of so many nodes, domains in each, cores in each and threads in each.
fn machine(nodes: u32, domains: u32, cores: u32, threads: u32) -> Topology {
    let text = format!(
        r#"
        name = "generated"
        description = "generated"
        source = "generated"
        [shape]
        nodes = {nodes}
        domains_per_node = {domains}
        cores_per_domain = {cores}
        threads_per_core = {threads}
        memory_per_node_mib = 512
        [[cache]]
        level = 1
        kind = "data"
        size_kib = 32
        ways = 8
        shared_by = "core"
        [[cache]]
        level = 3
        kind = "unified"
        size_kib = 4096
        shared_by = "domain"
        "#
    );
    let machine = Machine::parse(&text, Path::new("generated")).unwrap();
    machine.topology().unwrap()
}

#[test]
fn trees_of_any_size_are_written_and_read_back() {
    for (nodes, domains, cores, threads) in [
        (1, 1, 1, 1),
        (1, 2, 4, 2),
        (2, 1, 8, 2),
        (4, 1, 2, 1),
        (8, 2, 2, 1),
        (24, 1, 2, 2),
        (64, 4, 8, 2),
    ] {
        let written = machine(nodes, domains, cores, threads);
        let cpus = nodes * domains * cores * threads;
        assert_eq!(written.cpus().len(), cpus as usize);
        let root = tree::directory();
        numaherd_testing::sysfs::write(&written, root.path()).unwrap();
        assert_eq!(sysfs::read(root.path()).unwrap(), written, "{nodes} nodes");
    }
}

/// What can be unusual about a machine: sparse and offline nodes, nodes without memory or without
/// CPUs, CPUs that are offline, cores of several kinds, distances.
#[derive(Clone, Debug)]
struct Oddities {
    node_stride: u32,
    memoryless: Vec<bool>,
    cpuless_offline: (bool, bool),
    offline_cpus: Vec<u32>,
    weak_cpus: Vec<u32>,
    distances: Vec<u32>,
}

fn oddities() -> impl Strategy<Value = Oddities> {
    (
        1u32..9,
        prop::collection::vec(any::<bool>(), 8),
        any::<(bool, bool)>(),
        prop::collection::vec(0u32..64, 0..6),
        prop::collection::vec(0u32..64, 0..6),
        prop::collection::vec(11u32..255, 100),
    )
        .prop_map(
            |(node_stride, memoryless, cpuless_offline, offline_cpus, weak_cpus, distances)| {
                Oddities {
                    node_stride,
                    memoryless,
                    cpuless_offline,
                    offline_cpus,
                    weak_cpus,
                    distances,
                }
            },
        )
}

/// The parts as a kernel would show them with these oddities.
fn odd(topology: Topology, odd: &Oddities) -> Parts {
    let mut parts = Parts::from(topology);
    for (node, &without) in parts.nodes.iter_mut().zip(&odd.memoryless).skip(1) {
        node.memory_bytes *= u64::from(!without);
    }
    let last = parts.nodes.last().unwrap().clone();
    let next = last.id.0 + 1;
    let (cpuless, offline) = odd.cpuless_offline;
    if cpuless {
        parts.nodes.push(numaherd_topology::Node {
            id: NodeId(next),
            cpus: CpuSet::new(),
            memory_bytes: 1 << 30,
            ..last
        });
    }
    if offline {
        parts.nodes.push(numaherd_topology::Node {
            id: NodeId(next + 1),
            online: false,
            cpus: CpuSet::new(),
            memory_bytes: 0,
        });
    }
    for node in &mut parts.nodes {
        node.id = NodeId(node.id.0 * odd.node_stride);
    }
    // CPU 0 stays: some CPU must.
    let gone: CpuSet = odd
        .offline_cpus
        .iter()
        .filter(|&&cpu| cpu > 0)
        .map(|&cpu| CpuId(cpu))
        .collect();
    for cpu in &mut parts.cpus {
        cpu.siblings = cpu.siblings.difference(&gone);
        if odd.weak_cpus.contains(&cpu.id.0) {
            cpu.capacity = Some(512);
        }
        if gone.contains(cpu.id) {
            *cpu = numaherd_topology::CpuPart {
                id: cpu.id,
                online: false,
                package: None,
                siblings: CpuSet::new(),
                capacity: None,
            };
        }
    }
    // The strongest core is the measure of all.
    parts.cpus[0].capacity = Some(1024);
    for node in &mut parts.nodes {
        node.cpus = node.cpus.difference(&gone);
    }
    // A cache whose CPUs are all offline is shown nowhere; others still name the offline ones.
    parts.caches.retain(|cache| !cache.cpus.is_subset(&gone));
    let mut some = odd.distances.iter().copied().cycle();
    let nodes = &parts.nodes;
    let row = |from: &numaherd_topology::Node| -> Vec<u32> {
        let distance = |to: &numaherd_topology::Node| match (from.online, to.online) {
            _ if from.id == to.id => 10,
            (true, true) => some.next().unwrap(),
            _ => 255,
        };
        nodes.iter().map(distance).collect()
    };
    parts.distances = nodes.iter().map(row).collect();
    parts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_reads_back(
        shape in (1u32..6, 1u32..4, 1u32..4, 1u32..4),
        oddities in oddities(),
    ) {
        let (nodes, domains, cores, threads) = shape;
        let parts = odd(machine(nodes, domains, cores, threads), &oddities);
        let written = Topology::new(parts).unwrap();
        let root = tree::directory();
        numaherd_testing::sysfs::write(&written, root.path()).unwrap();
        prop_assert_eq!(sysfs::read(root.path()).unwrap(), written);
    }

    #[test]
    fn no_file_makes_the_reader_panic(
        line in any::<prop::sample::Index>(),
        contents in "[0-9, -]{0,12}|.{0,20}",
    ) {
        let text = tree::text("cxl");
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("sys")).collect();
        let line = lines[line.index(lines.len())];
        let (path, _) = line.split_once(" =").unwrap();
        let changed = text.replacen(line, &format!("{path} = {}", contents.replace('\r', " ")), 1);
        let root = tree::unpack(&changed);
        let _ = sysfs::read(root.path());
    }
}
