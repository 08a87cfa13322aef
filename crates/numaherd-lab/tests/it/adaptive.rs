//! Whether `adaptive` can be left on: random mixes of programs on several modelled machines, beside Linux and `dino`.
//!
//! `cargo test -p numaherd-lab --test it adaptive -- --nocapture` prints the table.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::Value;

/// Machines, and how many nodes each has.
const MACHINES: [(&str, usize); 4] = [
    ("xeon-e5520-2s", 2),
    ("xeon-e5-2650-2s", 2),
    ("opteron-8356-4s", 4),
    ("xeon-8180-2s", 2),
];
/// From devils to turtles.
const PROGRAMS: [&str; 12] = [
    "mcf",
    "milc",
    "omnetpp",
    "soplex",
    "lbm",
    "libquantum",
    "leslie3d",
    "sphinx3",
    "gcc",
    "bzip2",
    "namd",
    "povray",
];
const MIXES: usize = 40;

/// A program, and where its memory is: on the node where it starts, on all in turn, or on a certain one.
fn program() -> impl Strategy<Value = (&'static str, Option<Option<usize>>)> {
    let memory = prop_oneof![
        2 => Just(None),
        1 => Just(Some(None)),
        2 => (0..4usize).prop_map(|node| Some(Some(node))),
    ];
    (select(&PROGRAMS[..]), memory)
}

/// Five minutes of some programs whose speeds and counters waver, and whose pages take bandwidth when they move.
fn scenario(machine: &str, nodes: usize, programs: &[(&str, Option<Option<usize>>)]) -> String {
    let mut text = format!(
        "name = \"mix\"\nabout = \"a random mix\"\nmachine = \"{machine}\"\nuntil = {{ seconds = 300 }}\n\
         [model]\nvariation = 0.02\ncounter_noise = 0.02\npage_moves_disturb = true\n"
    );
    for (at, (profile, memory)) in programs.iter().enumerate() {
        let memory = match memory {
            None => "\"first-touch\"".to_owned(),
            Some(None) => "\"interleave\"".to_owned(),
            Some(Some(node)) => (node % nodes).to_string(),
        };
        let _ = write!(
            text,
            "[[program]]\nname = \"{profile}-{at}\"\nprofile = \"{profile}\"\nmemory = {memory}\n"
        );
    }
    text
}

/// The mean slowdown under each policy, against each program alone on the machine.
fn slowdowns(scenario: &str, policies: &[&str]) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.toml");
    fs::write(&file, scenario).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"))
        .arg("simulate")
        .arg(&file)
        .args([
            "--policies",
            &policies.join(","),
            "--repeat",
            "1",
            "--json",
            "-",
        ])
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}\n{scenario}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("--json prints JSON");
    let all = all["policies"].as_array().unwrap().iter();
    all.map(|policy| policy["slowdown"].as_f64().unwrap())
        .collect()
}

#[test]
fn adaptive_is_never_more_than_one_per_cent_behind_linux_and_on_average_ahead_of_dino() {
    let mut runner = TestRunner::deterministic();
    let mix = (select(&MACHINES[..]), vec(program(), 2..9));
    let (mut dino_saves, mut adaptive_saves) = (0.0, 0.0);
    let mut worst = f64::INFINITY;
    for number in 0..MIXES {
        let ((machine, nodes), programs) = mix.new_tree(&mut runner).unwrap().current();
        let scenario = scenario(machine, nodes, &programs);
        let slowdowns = slowdowns(&scenario, &["linux", "dino", "adaptive"]);
        let saves = |policy: usize| (1.0 - slowdowns[policy] / slowdowns[0]) * 100.0;
        println!(
            "{number:2} {machine:16} {:2} programs: dino {:+5.1} %, adaptive {:+5.1} %",
            programs.len(),
            saves(1),
            saves(2)
        );
        worst = worst.min(saves(2));
        assert!(saves(2) >= -1.0, "{scenario}");
        dino_saves += saves(1) / MIXES as f64;
        adaptive_saves += saves(2) / MIXES as f64;
    }
    println!(
        "mean: dino {dino_saves:+.1} %, adaptive {adaptive_saves:+.1} %; adaptive's worst {worst:+.1} %"
    );
    assert!(adaptive_saves > dino_saves, "{adaptive_saves} {dino_saves}");
}
