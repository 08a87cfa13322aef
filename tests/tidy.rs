//! The invariants of the architecture (ARCHITECTURE.md), as tests.
//!
//! Who may depend on whom, where unsafe code and I/O may be, that no path of a live machine is
//! fixed in a reader, and what must never be in the tree.

use std::collections::BTreeMap;
use std::process::Command;

use numaherd_tests::{files, production, root, shown};
use serde_json::Value;

/// Each crate with the crates of ours that it may use: those below it in the picture. The prefix
/// `numaherd-` is left out.
const MAY_USE: &[(&str, &str)] = &[
    ("files", ""),
    ("quantity", ""),
    ("topology", "files quantity"),
    ("world", "files topology"),
    ("hardware", "topology"),
    ("contention", ""),
    ("policy", "files topology world hardware contention"),
    ("model", "files topology world contention"),
    ("trace", "topology world hardware"),
    ("host", "files quantity topology world"),
    ("lab-launcher", "topology hardware lab-guest"),
    ("lab-plugin", "hardware trace"),
    ("lab-guest", ""),
    ("herd", "files topology world policy"),
    ("show", "quantity topology world policy herd"),
    (
        "experiment",
        "files quantity topology world hardware policy model trace herd",
    ),
    (
        "numaherd",
        "files quantity topology world policy host model herd show",
    ),
    (
        "lab",
        "files quantity topology world hardware policy host model trace herd show experiment lab-launcher numaherd",
    ),
    ("testing", "topology world trace herd"),
    ("nri", ""),
    ("numaherd-nri", "nri files topology policy"),
    ("menagerie", "quantity topology"),
    ("tests", ""),
    (FUZZ, ""),
];

/// The crate that makes things up for tests: no program may contain it.
const FOR_TESTS: &str = "testing";

/// The crate of the fuzz targets: it is a test of all others.
const FUZZ: &str = "fuzz";

/// Crates that decide or describe: nothing in them may reach the operating system.
const PURE: &[&str] = &[
    "numaherd-files",
    "numaherd-quantity",
    "numaherd-contention",
    "numaherd-topology",
    "numaherd-world",
    "numaherd-policy",
    "numaherd-hardware",
    "numaherd-model",
    "numaherd-trace",
];

/// What root runs holds none of these: experiments, charts, traces and QEMU are `numaherd-lab`'s.
const NOT_IN_THE_DAEMON: &[&str] = &[
    "rayon",
    "numaherd-trace",
    "numaherd-experiment",
    "numaherd-lab-launcher",
];

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo can be run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata failed: {told}");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string in cargo's metadata")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list in cargo's metadata")
}

#[test]
fn dependencies_point_downwards() {
    let metadata = metadata();
    let allowed: BTreeMap<_, Vec<_>> = MAY_USE
        .iter()
        .map(|(name, may_use)| (*name, may_use.split(' ').collect()))
        .collect();
    for package in list(&metadata["packages"]) {
        if !package["source"].is_null() {
            continue;
        }
        let name = bare(text(&package["name"]));
        let may_use = allowed.get(name).unwrap_or_else(|| {
            panic!("{name} is in no picture: add it to ARCHITECTURE.md and here")
        });
        for dependency in list(&package["dependencies"]) {
            let used = bare(text(&dependency["name"]));
            let is_test_only = dependency["kind"] == "dev" || name == FUZZ;
            if !is_test_only {
                assert_ne!(used, FOR_TESTS, "{name}: tests alone may use {FOR_TESTS}");
            }
            if allowed.contains_key(used) && !is_test_only {
                assert!(may_use.contains(&used), "{name} may not use {used}");
            }
        }
    }
}

/// A crate's name as in [`MAY_USE`], where the plugin keeps its prefix beside the crate of the protocol.
fn bare(name: &str) -> &str {
    match name {
        "numaherd-nri" => name,
        _ => name.strip_prefix("numaherd-").unwrap_or(name),
    }
}

/// The test fails where the crate's program or library contains one of these crates.
fn assert_unreached(package: &str, forbidden: &[&str]) {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--edges", "normal", "--target", "x86_64-unknown-linux-gnu"])
        .args(["--package", package])
        .current_dir(root())
        .output()
        .expect("cargo can be run");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree failed: {told}");
    let tree = String::from_utf8(output.stdout).expect("crate names are UTF-8");
    for name in tree.lines().filter_map(|line| line.split(' ').next()) {
        assert!(
            !forbidden.contains(&name),
            "{package} reaches {name}: see `cargo tree -p {package} -e normal -i {name}`"
        );
    }
}

#[test]
fn what_decides_does_not_reach_the_operating_system() {
    for name in PURE {
        assert_unreached(name, &["libc", "rustix", "nix"]);
    }
}

#[test]
fn the_daemon_carries_no_laboratory() {
    assert_unreached("numaherd", NOT_IN_THE_DAEMON);
}

#[test]
fn items_of_tests_alone_are_left_out() {
    let source = "\
a
#[cfg(test)]
use b::{c, d};
e
    #[cfg(test)]
    #[allow(f)]
    fn g() {
        h;
    }
i
#[cfg(test)]
mod j;
#[cfg(test)]
use k::{
    l,
};
m
#[cfg(test)]
mod n {
    o
}
p";
    let kept: Vec<_> = production(source)
        .into_iter()
        .map(|(_, line)| line)
        .collect();
    assert_eq!(kept, ["a", "e", "i", "m", "p"]);
}

fn assert_absent(folder: &str, words: &[&str], allowed: &[&str], why: &str) {
    for path in files(folder, &[".rs"]) {
        let name = shown(&path);
        if allowed.iter().any(|part| name.starts_with(part)) {
            continue;
        }
        let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
        for (line, text) in production(&source) {
            if text.trim_start().starts_with("//") {
                continue;
            }
            // Figures say where they are from by names that are no paths: /proc/PID/…
            let text = text.replace("\"/proc/PID", "\"");
            for word in words {
                assert!(
                    !text.contains(word),
                    "{name}:{line}: {word:?} is not allowed: {why}"
                );
            }
        }
    }
}

#[test]
fn policies_and_values_do_no_io_and_read_no_clock() {
    let effects = [
        "std::fs",
        "std::net",
        "std::process",
        "std::thread",
        "std::env",
        "std::io",
        "SystemTime",
        "Instant",
        "println!",
        "eprintln!",
        "rand::rng()",
        "thread_rng",
    ];
    let why = "what decides is a pure function of what was observed";
    assert_absent("crates/contention/src", &effects, &[], why);
    assert_absent("crates/policy/src", &effects, &[], why);
    assert_absent("crates/world/src", &effects, &[], why);
    // Its test that several threads may share a machine needs threads.
    assert_absent(
        "crates/hardware/src",
        &effects,
        &["crates/hardware/src/known_sequences/"],
        "the model is a pure function of accesses",
    );
}

#[test]
fn topology_reads_files_and_does_nothing_else() {
    let effects = [
        "std::net",
        "std::process",
        "std::thread",
        "std::env",
        "SystemTime",
        "Instant",
    ];
    assert_absent(
        "crates/topology/src",
        &effects,
        &[],
        "its readers take a root and read files",
    );
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    // The program's unsafe code is in host::sys and the plugin. The menagerie, the guest's first
    // process and the storm are programs of their own and have one file each for what no crate offers.
    let rooms = [
        "crates/host/src/sys",
        "crates/lab/plugin/src/",
        "crates/lab/guest/src/interrupts.rs",
        "crates/numaherd/tests/storm/sys.rs",
        "menagerie/src/sys.rs",
        "tests/tidy.rs",
    ];
    for folder in ["crates", "menagerie", "tests"] {
        let why = "unsafe code is in host::sys and the lab's plugin alone";
        assert_absent(
            folder,
            &["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"],
            &rooms,
            why,
        );
    }
}

#[test]
fn no_reader_has_the_live_machine_built_in() {
    // A path of the live machine may be a default in the program, never in a library.
    for folder in ["crates/host/src", "crates/herd/src", "crates/topology/src"] {
        let why = "readers take their root as a parameter";
        assert_absent(
            folder,
            &["\"/proc", "\"/sys/", "\"/run/"],
            &["crates/host/src/sys"],
            why,
        );
    }
}

#[test]
fn tests_do_not_sleep() {
    for folder in ["crates", "menagerie", "tests"] {
        for path in files(folder, &[".rs"]) {
            let name = shown(&path);
            if name == "tests/tidy.rs" || !(name.contains("tests") || name.contains("test")) {
                continue;
            }
            let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
            assert!(
                !source.contains("thread::sleep"),
                "{name} sleeps: wait for what it waits for"
            );
        }
    }
}

#[test]
fn a_crate_whose_examples_are_not_run_has_none() {
    for manifest in files("crates", &["Cargo.toml"]) {
        let text = std::fs::read_to_string(&manifest).expect("manifests are UTF-8");
        if !text.contains("doctest = false") {
            continue;
        }
        let folder = manifest.parent().expect("a folder").join("src");
        for path in files(&shown(&folder), &[".rs"]) {
            let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
            let comments = source.lines().map(str::trim_start);
            let comments = comments.filter_map(|line| {
                line.strip_prefix("///")
                    .or_else(|| line.strip_prefix("//!"))
            });
            let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
            // Each other fence closes a block.
            let run = |language: &&str| {
                let kinds = ["rust", "no_run", "should_panic", "compile_fail"];
                language.is_empty() || kinds.iter().any(|kind| language.starts_with(kind))
            };
            let examples = fences.step_by(2).filter(run).count();
            let name = shown(&path);
            assert_eq!(
                examples, 0,
                "{name}: no test runs the example: doctest = false"
            );
        }
    }
}

#[test]
fn gpl_code_says_so_and_nothing_else_is_gpl() {
    for path in files("crates", &[".rs", ".c", ".h"]) {
        let name = shown(&path);
        let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
        let says_gpl = source.contains("SPDX-License-Identifier: GPL-2.0");
        let is_gpl = name.starts_with("crates/lab/plugin/") || name.starts_with("crates/lab/pmu/");
        assert_eq!(
            says_gpl, is_gpl,
            "{name}: the plugin and the PMU module are GPL, the rest is not"
        );
    }
}

#[test]
fn no_file_has_over_600_lines() {
    for folder in ["crates", "menagerie", "tests"] {
        for path in files(folder, &[".rs", ".c", ".sh"]) {
            let name = shown(&path);
            let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
            // A file's own tests make it no harder to read.
            let lines = production(&source).len();
            assert!(
                lines <= 600,
                "{name} has {lines} lines: split it by subject"
            );
        }
    }
}

#[test]
fn no_package_host_or_home_of_a_machine_is_named() {
    // Written in pieces so that this file does not contain them itself.
    let hosts = [
        ["debian", ".org"].concat(),
        ["pypi", ".org"].concat(),
        ["crates.io", "/api"].concat(),
        ["npmjs", ".org"].concat(),
        ["\"/ro", "ot/"].concat(),
        [" /ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
    ];
    let endings = [
        ".rs", ".c", ".h", ".sh", ".md", ".toml", ".yml", "Makefile", "run",
    ];
    for path in files(".", &endings) {
        let Ok(source) = std::fs::read_to_string(&path) else {
            continue;
        };
        for host in &hosts {
            assert!(
                !source.contains(host.as_str()),
                "{} names {host}",
                shown(&path)
            );
        }
    }
}

#[test]
fn a_public_name_means_one_thing_in_few_places() {
    // A newcomer who searches for a type should not find it many times.
    const MOST: usize = 7;
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files("crates", &[".rs"]) {
        let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
        for (at, line) in production(&source) {
            let item = line.trim_start().strip_prefix("pub ");
            let Some((kind, rest)) = item.and_then(|item| item.split_once(' ')) else {
                continue;
            };
            if ["struct", "enum", "trait", "type"].contains(&kind) {
                let end = rest.find(|c: char| !c.is_alphanumeric());
                let name = rest[..end.unwrap_or(rest.len())].to_owned();
                let place = format!("{}:{at}", shown(&path));
                places.entry(name).or_default().push(place);
            }
        }
    }
    for (name, places) in places {
        assert!(
            places.len() <= MOST,
            "{name} is the name of {} public types: {}",
            places.len(),
            places.join(", ")
        );
    }
}
