//! The invariants of the architecture (ARCHITECTURE.md), as tests.
//!
//! Who may depend on whom, where unsafe code and I/O may be, that no path of a live machine is
//! fixed in a reader, and what must never be in the tree.

use std::collections::BTreeMap;
use std::process::Command;

use numaherd_tests::{files, root, shown};
use serde_json::Value;

/// Each crate with the crates of ours that it may use: those below it in the picture.
const MAY_USE: &[(&str, &[&str])] = &[
    ("numaherd-files", &[]),
    ("numaherd-quantity", &[]),
    (
        "numaherd-topology",
        &["numaherd-files", "numaherd-quantity"],
    ),
    ("numaherd-world", &["numaherd-files", "numaherd-topology"]),
    ("numaherd-hardware", &["numaherd-topology"]),
    (
        "numaherd-policy",
        &[
            "numaherd-files",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-hardware",
        ],
    ),
    (
        "numaherd-model",
        &["numaherd-files", "numaherd-topology", "numaherd-world"],
    ),
    (
        "numaherd-trace",
        &["numaherd-topology", "numaherd-world", "numaherd-hardware"],
    ),
    (
        "numaherd-host",
        &[
            "numaherd-files",
            "numaherd-quantity",
            "numaherd-topology",
            "numaherd-world",
        ],
    ),
    (
        "numaherd-lab-launcher",
        &[
            "numaherd-topology",
            "numaherd-hardware",
            "numaherd-lab-guest",
        ],
    ),
    (
        "numaherd-lab-plugin",
        &["numaherd-hardware", "numaherd-trace"],
    ),
    ("numaherd-lab-guest", &[]),
    (
        "numaherd-herd",
        &[
            "numaherd-files",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-policy",
        ],
    ),
    (
        "numaherd-show",
        &[
            "numaherd-quantity",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-policy",
            "numaherd-herd",
        ],
    ),
    (
        "numaherd-experiment",
        &[
            "numaherd-files",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-policy",
            "numaherd-model",
            "numaherd-herd",
        ],
    ),
    (
        "numaherd",
        &[
            "numaherd-files",
            "numaherd-quantity",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-policy",
            "numaherd-host",
            "numaherd-model",
            "numaherd-herd",
            "numaherd-show",
        ],
    ),
    (
        "numaherd-lab",
        &[
            "numaherd-files",
            "numaherd-quantity",
            "numaherd-topology",
            "numaherd-world",
            "numaherd-hardware",
            "numaherd-policy",
            "numaherd-host",
            "numaherd-model",
            "numaherd-trace",
            "numaherd-herd",
            "numaherd-show",
            "numaherd-experiment",
            "numaherd-lab-launcher",
            "numaherd",
        ],
    ),
    ("numaherd-testing", &["numaherd-topology", "numaherd-world"]),
    ("menagerie", &["numaherd-quantity"]),
    ("numaherd-tests", &[]),
];

/// The crate that makes things up for tests: no program may contain it.
const FOR_TESTS: &str = "numaherd-testing";

/// Crates that decide or describe: nothing in them may reach the operating system.
const PURE: &[&str] = &[
    "numaherd-files",
    "numaherd-quantity",
    "numaherd-topology",
    "numaherd-world",
    "numaherd-policy",
    "numaherd-hardware",
    "numaherd-model",
    "numaherd-trace",
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
    let allowed: BTreeMap<_, _> = MAY_USE.iter().copied().collect();
    for package in list(&metadata["packages"]) {
        if !package["source"].is_null() {
            continue;
        }
        let name = text(&package["name"]);
        let may_use = allowed.get(name).unwrap_or_else(|| {
            panic!("{name} is in no picture: add it to ARCHITECTURE.md and here")
        });
        for dependency in list(&package["dependencies"]) {
            let used = text(&dependency["name"]);
            let is_test_only = dependency["kind"] == "dev";
            if !is_test_only {
                assert_ne!(used, FOR_TESTS, "{name}: tests alone may use {FOR_TESTS}");
            }
            if allowed.contains_key(used) && !is_test_only {
                assert!(may_use.contains(&used), "{name} may not use {used}");
            }
        }
    }
}

#[test]
fn what_decides_does_not_reach_the_operating_system() {
    for name in PURE {
        let output = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--prefix",
                "none",
                "--package",
                name,
            ])
            .args(["--edges", "normal", "--target", "x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .expect("cargo can be run");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cargo tree failed: {told}");
        let tree = String::from_utf8(output.stdout).expect("crate names are UTF-8");
        for forbidden in ["libc", "rustix", "nix"] {
            let found = tree
                .lines()
                .any(|line| line.split(' ').next() == Some(forbidden));
            assert!(
                !found,
                "{name} reaches {forbidden}: see `cargo tree -p {name} -e normal -i {forbidden}`"
            );
        }
    }
}

/// Lines of a Rust file that are code: no comments, and nothing from `#[cfg(test)]` on.
fn code(path: &std::path::Path) -> Vec<(usize, String)> {
    let source = std::fs::read_to_string(path).expect("sources are UTF-8");
    source
        .lines()
        .enumerate()
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect()
}

fn assert_absent(folder: &str, words: &[&str], allowed: &[&str], why: &str) {
    for path in files(folder, &[".rs"]) {
        let name = shown(&path);
        if allowed.iter().any(|part| name.starts_with(part)) {
            continue;
        }
        for (line, text) in code(&path) {
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
    // The program's unsafe code is in host::sys and the plugin. The menagerie and the guest's
    // first process are programs of their own and have one file each for what no crate offers.
    let rooms = [
        "crates/host/src/sys",
        "crates/lab/plugin/src/",
        "crates/lab/guest/src/sys.rs",
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
fn a_file_over_600_lines_has_a_reason() {
    const REASONS: &[(&str, &str)] = &[(
        "crates/herd/tests/it/run.rs",
        "statements about the one loop, each on its own",
    )];
    for folder in ["crates", "menagerie", "tests"] {
        for path in files(folder, &[".rs", ".c", ".sh"]) {
            let name = shown(&path);
            let source = std::fs::read_to_string(&path).expect("sources are UTF-8");
            // A file's own tests, at its end, make it no harder to read.
            let tests = source.lines().position(|line| line == "#[cfg(test)]");
            let lines = tests.unwrap_or_else(|| source.lines().count());
            let has_reason = REASONS.iter().any(|(file, _)| *file == name);
            assert!(
                lines <= 600 || has_reason,
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
