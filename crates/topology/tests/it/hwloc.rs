//! hwloc's synthetic strings and XML: against `lstopo`'s own XML of the same strings, and refused
//! where they are wrong.

use std::path::Path;

use numaherd_topology::{CacheKind, CpuId, NodeId, Topology, hwloc};
use proptest::prelude::*;

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.xml"));
    std::fs::read_to_string(path).unwrap()
}

fn xml(text: &str) -> Result<Topology, String> {
    hwloc::xml(text, Path::new("some.xml")).map_err(|error| error.to_string())
}

fn synthetic(text: &str) -> Topology {
    hwloc::synthetic(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Node and CPUs of each node, core or domain, in one line.
fn nodes(topology: &Topology) -> String {
    let nodes = topology.nodes().iter();
    let text: Vec<String> = nodes.map(|n| format!("{}:{}", n.id, n.cpus)).collect();
    text.join(" ")
}

fn domains(topology: &Topology) -> String {
    let domains = topology.domains().iter();
    let text: Vec<String> = domains.map(|d| format!("{}:{}", d.node, d.cpus)).collect();
    text.join(" ")
}

/// `lstopo` 2.9 wrote these files from the strings they name.
#[test]
fn a_string_and_lstopos_xml_of_it_are_the_same_machine() {
    for name in ["snc", "hbm"] {
        let text = fixture(name);
        let (_, rest) = text.split_once("SyntheticDescription\" value=\"").unwrap();
        let (description, _) = rest.split_once('"').unwrap();
        let (by_string, by_xml) = (synthetic(description), xml(&text).unwrap());
        assert_eq!(by_string.nodes(), by_xml.nodes(), "{name}");
        assert_eq!(by_string.cpus(), by_xml.cpus(), "{name}");
        assert_eq!(by_string.cores(), by_xml.cores(), "{name}");
        assert_eq!(by_string.domains(), by_xml.domains(), "{name}");
        let caches = |topology: &Topology| -> Vec<_> {
            let caches = topology.caches().iter();
            caches
                .map(|c| (c.level, c.kind, c.size_bytes, c.cpus.clone()))
                .collect()
        };
        assert_eq!(caches(&by_string), caches(&by_xml), "{name}");
    }
}

#[test]
fn sub_numa_clusters_share_their_packages_cache() {
    let machine = xml(&fixture("snc")).unwrap();
    assert_eq!(
        nodes(&machine),
        "0:0-1,8-9 1:4-5,12-13 2:2-3,10-11 3:6-7,14-15"
    );
    assert_eq!(machine.caches().len(), 2);
    assert_eq!(machine.domains().len(), 4);
    let package = |cpu| machine.cpu(CpuId(cpu)).unwrap().package.unwrap().0;
    assert_eq!([package(0), package(4)], [1, 0]);
}

#[test]
fn memory_beside_a_nodes_own_has_no_cpus() {
    let machine = xml(&fixture("hbm")).unwrap();
    assert_eq!(nodes(&machine), "0:0-3 1:4-7 2: 3:");
    assert_eq!(domains(&machine), "0:0-1 0:2-3 1:4-5 1:6-7");
    assert_eq!(machine.nodes()[2].memory_bytes, 1 << 30);
    // The matrix lists the nodes as 0 2 1 3.
    let distance = |a, b| machine.distance(NodeId(a), NodeId(b)).unwrap();
    assert_eq!(
        [distance(0, 1), distance(0, 2), distance(2, 3)],
        [13, 21, 13]
    );
}

#[test]
fn version_3_is_read_with_kinds_attributes_and_what_is_offline() {
    let machine = xml(&fixture("version3")).unwrap();
    assert_eq!(machine.name(), "desk");
    assert_eq!(nodes(&machine), "0:0-4 1: 4:");
    assert!(!machine.node(NodeId(4)).unwrap().online);
    assert_eq!(machine.online_cpus().to_string(), "0-4");
    assert!(!machine.cpu(CpuId(5)).unwrap().online);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), Some(17));
    assert_eq!(machine.distance(NodeId(0), NodeId(4)), Some(255));
    let capacity = |cpu| machine.cpu(CpuId(cpu)).unwrap().capacity;
    assert_eq!([capacity(0), capacity(4)], [1024, 640]);
    let caches: Vec<_> = machine
        .caches()
        .iter()
        .map(|c| (c.level, c.kind, c.ways))
        .collect();
    assert_eq!(
        caches,
        [
            (1, CacheKind::Data, None),
            (1, CacheKind::Instruction, Some(8)),
            (2, CacheKind::Unified, Some(0)),
            (2, CacheKind::Unified, Some(16)),
            (3, CacheKind::Unified, Some(12)),
        ]
    );
    // The offline node has no figures, so no figure is complete.
    assert_eq!(machine.timing().node_gb_per_s, None);
    let online = fixture("version3").replace("0x00000013", "0x00000003");
    let machine = xml(&online).unwrap();
    let bandwidth = machine.timing().node_gb_per_s.as_ref().unwrap();
    assert_eq!(bandwidth[1], 20_000.0 * 1_048_576.0 / 1e9);
    assert_eq!(machine.timing().latency_ns, None);
}

#[test]
fn where_the_kernels_capacity_is_missing_the_clocks_tell_cores_apart() {
    let text = fixture("version3").replace("LinuxCapacity", "Unknown");
    let machine = xml(&text).unwrap();
    let capacity = |cpu| machine.cpu(CpuId(cpu)).unwrap().capacity;
    assert_eq!([capacity(0), capacity(4)], [1024, 819]);
}

#[test]
fn strings_say_where_numbers_go() {
    let machine = synthetic("pack:2 core:2 pu:2(indexes=core)");
    assert_eq!(machine.cores()[1].cpus.to_string(), "1,5");
    let machine = synthetic("pack:2 core:2 pu:2(indexes=core:pack)");
    assert_eq!(machine.cores()[1].cpus.to_string(), "1,5");
    assert_eq!(machine.cpu(CpuId(1)).unwrap().package.unwrap().0, 0);
    let machine = synthetic("pack:2(indexes=3,5) core:2 pu:2(indexes=pack:core)");
    assert_eq!(machine.cpu(CpuId(1)).unwrap().package.unwrap().0, 5);
    assert_eq!(machine.cores()[0].cpus.to_string(), "0,4");
    let machine =
        synthetic("PACK:2 NumaNode:1(memory=3kB indexes=5,9) L2u:1 Core:2 PU:2(indexes=4*2:1*4)");
    assert_eq!(nodes(&machine), "5:0,2,4,6 9:1,3,5,7");
    assert_eq!(machine.nodes()[0].memory_bytes, 3000);
    // Attached nodes are numbered as hwloc leaves their objects: the machine's own last.
    let machine = synthetic("[numa(memory=2GiB)] pack:2 [numa] core:1 pu:2");
    assert_eq!(nodes(&machine), "0:0-1 1:2-3 2:");
    assert_eq!(machine.nodes()[2].memory_bytes, 2 << 30);
}

#[test]
fn strings_of_any_size_are_read() {
    for (text, node_count, cpus, domain_count) in [
        ("pu:1", 1, 1, 1),
        ("numa:4 core:2 pu:1", 4, 8, 4),
        ("pack:2 [numa] l3:1 core:4 pu:2", 2, 16, 2),
        ("pack:12 numa:2 l3:1 core:8 pu:2", 24, 384, 24),
        (
            "pack:32 numa:2 l3:4 l2:8 core:1 pu:2(indexes=core)",
            64,
            4096,
            256,
        ),
    ] {
        let machine = synthetic(text);
        let counts = (
            machine.nodes().len(),
            machine.cpus().len(),
            machine.domains().len(),
        );
        assert_eq!(counts, (node_count, cpus, domain_count), "{text}");
    }
}

#[test]
fn a_wrong_string_is_refused_with_the_position() {
    let strings = [
        "",
        "2 3 2",
        "pack:2 core:2",
        "pack:2 foo:1 pu:1",
        "pack:2, pu:1",
        "pack:0 pu:1",
        "pack:-1 pu:1",
        "pack:2 pu:2 pu:1",
        "pack:2 pack:2 pu:1",
        "p:2 pu:1",
        "machine:1 pu:1",
        "l6:1 pu:1",
        "pack:2 [core] pu:1",
        "pack:2 [numa pu:1",
        "numa:2 [numa] pu:1",
        "numa:2 core:1(memory=1GB) pu:1",
        "numa:2(memory=0) pu:1",
        "numa:2(memory=1.5GB) pu:1",
        "numa:2(memory=1XB) pu:1",
        "numa:2(memory=99999999999TB) pu:1",
        "numa:2(memory=1GB memory=2GB) pu:1",
        "numa:2(memory=1GB,size=1) pu:1",
        "numa:2(color=red) pu:1",
        "numa:2(indexes=1) pu:1",
        "numa:2(indexes=1,1) pu:1",
        "numa:2(indexes=0,4000000) pu:1",
        "numa:2(indexes=2*3) pu:1",
        "numa:2 core:2 pu:2(indexes=4*2:2*2:2*2)",
        "numa:2 core:2 pu:2(indexes=0*8)",
        "numa:2(indexes=core) core:2 pu:2",
        "numa:2(indexes=pack) core:2 pu:2",
        "pack:2 [numa(indexes=0,1)] [numa(indexes=2,3)] pu:1",
        "pack:99999 core:99999 pu:1",
        "pack:99999999999999999999 pu:1",
        "numa:10000 pu:1",
        "numa:18446744073709551615(memory=16777216TiB) pu:1",
    ];
    let told = |text: &&str| hwloc::synthetic(text).unwrap_err().to_string();
    insta::assert_snapshot!(strings.iter().map(told).collect::<Vec<_>>().join("\n"));
}

#[test]
fn wrong_xml_is_refused_with_its_line() {
    let good = fixture("hbm");
    let change = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        xml(&good.replacen(from, to, 1)).unwrap_err()
    };
    let cases = [
        change("version=\"2.0\"", "version=\"1.0\""),
        change(" version=\"2.0\"", ""),
        change("version=\"2.0\"", "version=\"4.0\""),
        change("</topology>", ""),
        xml("").unwrap_err(),
        xml("<html/>").unwrap_err(),
        xml("<topology version=\"2.0\"/>").unwrap_err(),
        change("type=\"PU\" os_index=\"3\"", "type=\"PU\" os_index=\"2\""),
        change("type=\"PU\" os_index=\"3\"", "type=\"PU\" os_index=\"-3\""),
        change(
            "type=\"PU\" os_index=\"3\"",
            "type=\"PU\" os_index=\"3000000\"",
        ),
        change("type=\"PU\" os_index=\"3\"", "type=\"PU\""),
        change("type=\"PU\"", ""),
        change("local_memory=\"8589934592\"", "local_memory=\"lots\""),
        change(
            "cpuset=\"0x0000000f\" complete_cpuset=\"0x0000000f\" nodeset=\"0x00000001\"",
            "cpuset=\"0-3\"",
        ),
        change(
            "type=\"NUMANode\" os_index=\"0\" cpuset=\"0x0000000f\"",
            "type=\"NUMANode\" os_index=\"0\" cpuset=\"0xf...f\"",
        ),
        change(
            "type=\"NUMANode\" os_index=\"1\" cpuset=\"0x000000f0\"",
            "type=\"NUMANode\" os_index=\"0\" cpuset=\"0x000000f0\"",
        ),
        change("0 2 1 3 </indexes>", "0 2 1 7 </indexes>"),
        change("0 2 1 3 </indexes>", "0 2 1 </indexes>"),
        change("10 21 13 24", "10 0 13 24"),
        change("10 21 13 24", "10 -21 13 24"),
        change("10 21 13 24", "10 21 13"),
    ];
    insta::assert_snapshot!(cases.join("\n"));
}

#[test]
fn external_and_exploding_entities_are_not_followed() {
    let outer = r#"<!DOCTYPE topology [<!ENTITY host SYSTEM "file:///etc/hostname">]>
        <topology version="2.0"><info name="HostName" value="&host;"/></topology>"#;
    let error = xml(outer).unwrap_err();
    assert!(error.contains("not well-formed XML"), "{error}");
    let mut entities = String::from("<!ENTITY a0 \"aaaaaaaaaa\">");
    for n in 1..12 {
        let before = format!("&a{};", n - 1).repeat(10);
        entities += &format!("<!ENTITY a{n} \"{before}\">");
    }
    let bomb =
        format!("<!DOCTYPE topology [{entities}]><topology version=\"2.0\">&a11;</topology>");
    let error = xml(&bomb).unwrap_err();
    assert!(error.contains("not well-formed XML"), "{error}");
}

#[test]
fn deep_nesting_is_refused_without_overflow() {
    let depth = 100_000;
    let open = "<object type=\"Group\">".repeat(depth);
    let close = "</object>".repeat(depth);
    assert!(
        xml(&format!(
            "<topology version=\"2.0\">{open}{close}</topology>"
        ))
        .is_err()
    );
}

#[test]
fn a_missing_xml_file_is_named() {
    let error = hwloc::read_xml(Path::new("/nowhere/machine.xml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read /nowhere/machine.xml: "),
        "{error}"
    );
}

proptest! {
    #[test]
    fn no_string_makes_the_reader_panic(
        text in "((pack|numa|l3|core|pu|\\[numa|\\]|group):?[0-9]{0,3}(\\((memory|size|indexes)=[0-9a-z*:,]{0,9}\\))? ?){0,6}|.{0,40}",
    ) {
        let _ = hwloc::synthetic(&text);
    }

    #[test]
    fn no_xml_makes_the_reader_panic(
        at in any::<prop::sample::Index>(),
        length in 0usize..40,
        instead in "[0-9a-fx\"<>/=, .-]{0,12}|.{0,12}",
    ) {
        let mut text: Vec<char> = fixture("version3").chars().collect();
        let start = at.index(text.len());
        let end = (start + length).min(text.len());
        text.splice(start..end, instead.chars());
        let _ = xml(&text.into_iter().collect::<String>());
    }

    #[test]
    fn interleavings_number_every_cpu_once(packs in 1u32..5, cores in 1u32..5, threads in 1u32..5, way in 0usize..6) {
        let ways = ["core", "pack", "core:pack", "pack:core", "pack:pu", "pu"];
        let text = format!("pack:{packs} core:{cores} pu:{threads}(indexes={})", ways[way]);
        let machine = synthetic(&text);
        let count = (packs * cores * threads) as usize;
        prop_assert_eq!(machine.cpus().len(), count);
        prop_assert!(machine.cpus().iter().enumerate().all(|(at, cpu)| cpu.id.index() == at));
    }
}
