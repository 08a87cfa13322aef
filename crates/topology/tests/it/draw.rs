//! What people and programs are shown of a machine, and how `read_any` tells what it is given.

use std::fs;

use numaherd_topology::{Machine, Topology, draw, hwloc, read_any, sysfs};
use proptest::prelude::*;

use crate::tree;

fn preset(name: &str) -> Topology {
    Machine::preset(name).unwrap().topology().unwrap()
}

fn fixture(name: &str) -> Topology {
    let root = tree::unpack(&tree::text(name));
    let topology = sysfs::read(root.path()).unwrap();
    // The name would be that of the directory.
    let text = serde_json::to_string(&topology).unwrap();
    let text = text.replace(topology.name(), name);
    serde_json::from_str(&text).unwrap()
}

fn synthetic(text: &str) -> Topology {
    hwloc::synthetic(text).unwrap()
}

#[test]
fn one_node_is_one_box() {
    insta::assert_snapshot!(draw(&fixture("epyc"), 80));
}

#[test]
fn four_nodes_stand_side_by_side_with_their_matrices() {
    insta::assert_snapshot!(draw(&preset("lab-4x2"), 80));
}

#[test]
fn unusual_machines_are_drawn() {
    let drawn = [
        "memoryless",
        "cxl",
        "offline",
        "snc2",
        "big-little",
        "hybrid",
    ]
    .map(|name| draw(&fixture(name), 80));
    insta::assert_snapshot!(drawn.join("\n"));
}

#[test]
fn sixty_four_nodes_and_4096_cpus_fit_a_screen() {
    let text =
        "pack:32 numa:2(memory=64GiB) l3:4(size=32MiB) core:8 l2:1(size=1MiB) pu:2(indexes=core)";
    let drawn = draw(&synthetic(text), 80);
    assert!(drawn.lines().count() < 40);
    insta::assert_snapshot!(drawn);
}

#[test]
fn sixteen_nodes_fold_into_a_line_per_distance() {
    insta::assert_snapshot!(draw(&preset("lab-16x2"), 80));
}

#[test]
fn programs_get_everything_by_name() {
    let machine = fixture("offline");
    let view = machine.view();
    insta::assert_snapshot!(serde_json::to_string_pretty(&view).unwrap());
}

#[test]
fn a_topology_is_written_as_its_parts_and_checked_when_read() {
    for topology in [preset("lab-4x2"), fixture("offline"), fixture("hybrid")] {
        let text = serde_json::to_string(&topology).unwrap();
        assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), topology);
    }
    let text = serde_json::to_string(&preset("lab-4x2")).unwrap();
    let lie = text.replacen("\"0-1\"", "\"0-2\"", 1);
    assert_ne!(lie, text);
    let error = serde_json::from_str::<Topology>(&lie)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("CPU 2 is in node 0 and in node 1"),
        "{error}"
    );
}

#[test]
fn any_words_find_their_reader() {
    assert_eq!(read_any("lab-4x2").unwrap(), preset("lab-4x2"));
    assert_eq!(read_any("numa:4 core:2 pu:1").unwrap().nodes().len(), 4);
    let directory = tree::unpack(&tree::text("cxl"));
    let root = directory.path().to_str().unwrap();
    assert_eq!(read_any(root).unwrap().nodes().len(), 3);
    let file = format!("{root}/mine.toml");
    let text = include_str!("../../../../data/machines/lab-2x4.toml");
    fs::write(&file, text.replace("lab-2x4", "mine")).unwrap();
    assert_eq!(read_any(&file).unwrap().name(), "mine");
    assert_eq!(Machine::find(&file).unwrap().name, "mine");
    assert_eq!(Machine::find("lab-8x2").unwrap().shape.nodes, 8);
    let xml = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/hbm.xml");
    assert_eq!(read_any(xml).unwrap().nodes().len(), 4);
}

#[test]
fn words_that_fit_no_reader_are_answered_with_what_was_tried() {
    let told = |spec: &str| read_any(spec).unwrap_err().to_string();
    let error = told("lab-5x5");
    assert!(error.starts_with("cannot identify \"lab-5x5\": there is no such directory or file"));
    assert!(
        error.contains("lab-4x2") && error.contains("\"numa:4 core:2 pu:1\""),
        "{error}"
    );
    assert!(told("nowhere.toml").starts_with("cannot read nowhere.toml: "));
    assert!(told("nowhere.xml").starts_with("cannot read nowhere.xml: "));
    assert!(told("numa:4 core:2").contains("at character 14: the last level must be pu"));
    let directory = tree::unpack("some.txt = text");
    let file = directory.path().join("some.txt");
    assert!(told(file.to_str().unwrap()).contains("must end in .xml (hwloc) or .toml"));
    let error = Machine::find("lab-5x5").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no preset \"lab-5x5\"; the presets are "),
        "{error}"
    );
    assert!(
        Machine::find("no.toml")
            .unwrap_err()
            .to_string()
            .starts_with("cannot read no.toml")
    );
}

proptest! {
    #[test]
    fn any_machine_is_drawn_within_its_columns(
        packs in 1u32..5, nodes in 1u32..5, caches in 1u32..4, cores in 1u32..20, threads in 1u32..4,
        columns in 60usize..160,
    ) {
        let text = format!("pack:{packs} numa:{nodes} l3:{caches} core:{cores} pu:{threads}");
        let topology = synthetic(&text);
        let drawn = draw(&topology, columns);
        // The first line carries the name.
        for line in drawn.lines().skip(1) {
            prop_assert!(line.chars().count() <= columns, "{} > {columns}: {line}", line.chars().count());
        }
    }
}
