//! The kernels as their users meet them: reports, lengths, signals, places.

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const MENAGERIE: &str = env!("CARGO_BIN_EXE_menagerie");

/// The kernels, as the program names them to one who asks for another.
fn kernels() -> Vec<String> {
    let message = stderr(&kernel("none").output().unwrap());
    let (_, names) = message.split_once("[possible values: ").unwrap();
    let (names, _) = names.split_once(']').unwrap();
    names.split(", ").map(str::to_owned).collect()
}

fn kernel(arguments: &str) -> Command {
    let mut command = Command::new(MENAGERIE);
    command.arg("kernel").args(arguments.split_whitespace());
    command
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The report of a run with `arguments`, which must succeed.
fn report(arguments: &str) -> Value {
    let output = kernel(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn wait_for(path: &Path, child: &mut Child) {
    while !path.exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "ended before it was ready");
        std::thread::yield_now();
    }
}

#[test]
fn the_kernels_of_this_file_are_there() {
    let names = kernels();
    for name in ["cg", "ep", "ft", "grid", "is", "mg", "pipeline", "stencil"] {
        assert!(
            names.iter().any(|listed| listed == name),
            "{name}: {names:?}"
        );
    }
}

#[test]
fn every_kernel_tells_what_it_has_done() {
    for name in kernels() {
        let report = report(&format!("{name} --threads 3 --iterations 2"));
        let told = &report["kernel"];
        assert_eq!(report["kind"], name);
        assert_eq!(report["complete"], true, "{name}");
        assert_eq!(told["iterations"], 2, "{name}");
        assert_eq!(report["parameters"]["class"], "S");
        assert!(!told["problem"].as_str().unwrap().is_empty());
        let threads = report["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 3, "{name}");
        let done = threads
            .iter()
            .map(|thread| thread["operations"].as_u64().unwrap());
        assert_eq!(report["operations"], done.clone().sum::<u64>(), "{name}");
        // Those that deal iterations out do two in all; the others' threads do both.
        assert!(done.max().unwrap() <= 2 && report["operations"].as_u64().unwrap() >= 2);
        let verification = &told["verification"];
        for check in verification["checks"].as_array().unwrap() {
            assert!(check["value"].is_number(), "{name}: {check}");
        }
        if verification["verdict"] == "not-verified" {
            let reason = verification["reason"].as_str().unwrap();
            assert!(
                reason.starts_with("the published value is for "),
                "{name}: {reason}"
            );
        } else {
            assert_eq!(verification["verdict"], "verified", "{name}");
        }
    }
}

#[test]
fn the_table_says_what_was_verified() {
    let output = kernel("mg").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = table.lines().take(3).collect();
    assert_eq!(
        lines[..2],
        [
            "mg: 1 thread",
            "class S: 32 x 32 x 32 points, 4 iterations, 1 MiB"
        ]
    );
    // The last digits of the error depend on the compiler.
    let word = "verified: norm 5.307707005735e-5, published 5.307707005734e-5, error ";
    assert!(lines[2].starts_with(word), "{table}");
}

#[test]
fn a_signal_ends_a_kernel_and_the_result_so_far_is_told() {
    for name in kernels() {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let mut child = kernel(&name)
            .args("--iterations 1000000000 --threads 3 --json --ready-file".split_whitespace())
            .arg(&ready)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&ready, &mut child);
        let ids = std::fs::read_to_string(&ready).unwrap();
        assert_eq!(ids.lines().count(), 4, "the process and three threads");
        let tid = ids.lines().nth(3).unwrap();
        let comm = std::fs::read_to_string(format!("/proc/{}/task/{tid}/comm", child.id()));
        assert_eq!(comm.unwrap(), "kernel-2\n");
        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(128 + 15),
            "{name}: {}",
            stderr(&output)
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["complete"], false, "{name}");
        let verification = &report["kernel"]["verification"];
        assert_eq!(verification["reason"], "a signal ended the run", "{name}");
    }
}

/// Where a container forbids binding, the program must at least say that this is why.
#[test]
fn a_kernel_can_be_given_a_home() {
    let has_memory = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    let node: String = has_memory
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let output = kernel("mg --threads 2")
        .args(["--home", &node])
        .output()
        .unwrap();
    if output.status.success() {
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(table.contains("verified: norm"), "{table}");
    } else {
        assert!(stderr(&output).contains("seccomp profile forbids mbind"));
    }
}

#[test]
fn a_thread_may_have_a_cpu_of_its_own() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpu: String = allowed
        .unwrap()
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let report = report(&format!("cg --threads 2 --cpus {cpu}"));
    assert_eq!(report["kernel"]["verification"]["verdict"], "verified");
    assert_eq!(report["parameters"]["cpus"][0].to_string(), cpu);
}

#[test]
fn memory_that_the_kernel_refuses_is_a_failure_with_advice() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", MENAGERIE])
        .args("kernel mg --class A".split_whitespace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.starts_with("menagerie: could not map "),
        "{message}"
    );
    assert!(
        message.contains("lower --working-set or --class"),
        "{message}"
    );
}
