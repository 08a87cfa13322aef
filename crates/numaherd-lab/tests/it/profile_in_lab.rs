//! `numaherd profile` in the lab, against what its hardware model is known to do.
//!
//! The program is a chase with 16 iterations of a compute loop after each hop: 68 instructions of
//! 4 ns, of which 8 (the reorder window) run while the line is on its way, which takes 180 ns from
//! local memory and 300 ns from the next node. So a hop takes 420 and 540 ns; everything else
//! (clock look-ups, interrupts) is below 2 %.
//!
//! Needs the lab (`make setup` and `make build`); without it the tests fail and say so.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const HOP_NS: f64 = 420.0;
const REMOTE_HOP_NS: f64 = 540.0;
const LINES_PER_1000: f64 = 1000.0 / 68.0;

fn numaherd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_numaherd-lab"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    command
}

/// The static menagerie that `make build` made.
pub fn menagerie() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_numaherd-lab"));
    let built = "x86_64-unknown-linux-gnu/release/menagerie";
    let found = program
        .ancestors()
        .map(|folder| folder.join(built))
        .find(|path| path.is_file());
    found.expect("the menagerie is built; run `make build`")
}

fn chase() -> Vec<String> {
    let program = menagerie().display().to_string();
    let words = "chase --compute 16 --working-set 8MiB --rounds 12";
    std::iter::once(program)
        .chain(words.split(' ').map(str::to_owned))
        .collect()
}

#[track_caller]
fn succeeded(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}\n{said}",
            String::from_utf8_lossy(&output.stdout)
        )
    })
}

#[track_caller]
fn assert_near(value: &Value, expected: f64, tolerance: f64, what: &str) {
    let value = value
        .as_f64()
        .unwrap_or_else(|| panic!("{what} is {value}"));
    assert!(
        (value / expected - 1.0).abs() <= tolerance,
        "{what} is {value}, not {expected} within {tolerance}"
    );
}

/// What is known of the chase, whoever counted it.
#[track_caller]
fn assert_chase(profile: &Value) {
    let local = &profile["local"];
    assert_near(
        &local["cycles_per_instruction"],
        HOP_NS / 68.0,
        0.02,
        "local CPI",
    );
    assert_near(&local["lines"], LINES_PER_1000, 0.02, "lines");
    assert_near(
        &profile["numa_penalty"],
        REMOTE_HOP_NS / HOP_NS,
        0.02,
        "NUMA penalty",
    );
    assert_near(
        &profile["wait"]["misses_in_flight"],
        1.0,
        0.1,
        "lines in flight",
    );
    assert_eq!(profile["threads"], 1);
    let footprint = profile["footprint_bytes"].as_u64().unwrap() >> 20;
    assert!((8..12).contains(&footprint), "{footprint} MiB");
}

#[test]
fn a_chase_in_the_lab_is_what_the_model_says() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("chase.toml");
    let output = numaherd()
        .args([
            "profile", "--json", "--waits", "--name", "chase-16", "--repeat", "1",
        ])
        .args(["--cache-sizes", "512KiB", "--limit", "3m", "-o"])
        .arg(&file)
        .arg("--")
        .args(chase())
        .output()
        .expect("the program can be started");
    let printed = succeeded(&output);
    let profile = &printed["profile"];
    assert_chase(profile);
    // A chase reads, and visits every line before it comes back to one: no cache below 8 MiB helps.
    assert_near(
        &profile["cache_accesses"],
        LINES_PER_1000,
        0.02,
        "cache accesses",
    );
    assert!(
        profile["written_per_line"].as_f64().unwrap() < 0.01,
        "{profile}"
    );
    assert_eq!(printed["runs"].as_array().unwrap().len(), 3);
    for point in profile["points"].as_array().unwrap() {
        assert_near(&point["lines"], LINES_PER_1000, 0.02, "lines");
        assert_near(&point["demand"], LINES_PER_1000, 0.02, "lines on demand");
    }
    let text = std::fs::read_to_string(&file).unwrap();
    let written: toml::Table = text.parse().unwrap();
    assert_eq!(written["program"][0]["name"].as_str(), Some("chase-16"));
}

/// The guest is a machine of several nodes with counters: `--here` works in it, and refuses what it
/// refuses anywhere. One boot serves all.
#[test]
fn a_guest_is_a_machine_to_measure_on() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.sh");
    let text = r#"
"$NUMAHERD" profile --here -- false; echo "false ended with $?" >&2
"$NUMAHERD" profile --here -- sleep 0.3; echo "sleep ended with $?" >&2
exec "$NUMAHERD" profile --here --machine lab-4x2-half --json --waits --repeat 1 -- "$@"
"#;
    std::fs::write(&script, text).unwrap();
    let output = numaherd()
        .args([
            "lab",
            "run",
            "--machine",
            "lab-4x2-half",
            "--limit",
            "5m",
            "--",
            "sh",
        ])
        .arg(&script)
        .args(chase())
        .env("NUMAHERD", env!("CARGO_BIN_EXE_numaherd-lab"))
        .output()
        .expect("the program can be started");
    let printed = succeeded(&output);
    assert_chase(&printed["profile"]);
    assert!(
        printed["profile"]["written_per_line"].is_null(),
        "perf events do not tell it"
    );
    let said = String::from_utf8_lossy(&output.stderr);
    for part in [
        "false failed (exit status: 1), so nothing was measured",
        "false ended with 1",
        "sleep ran too shortly to be measured",
        "sleep ended with 1",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}
