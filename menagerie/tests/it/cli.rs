//! The program as its users meet it: messages, exit codes, reports, signals and starting together.

use serde_json::Value;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const MENAGERIE: &str = env!("CARGO_BIN_EXE_menagerie");

fn menagerie(arguments: &str) -> Command {
    let mut command = Command::new(MENAGERIE);
    command.args(arguments.split_whitespace());
    command
}

/// The report of a run with `arguments`, which must succeed.
fn report(arguments: &str) -> Value {
    let output = menagerie(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until `path` is there, without a clock: the program's end, which would make waiting
/// endless, is noticed.
fn wait_for(path: &Path, child: &mut Child) {
    while !path.exists() {
        assert!(
            child.try_wait().unwrap().is_none(),
            "ended before it was ready"
        );
        std::thread::yield_now();
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", name, &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn messages_and_exit_codes() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd");
}

/// What each kind is asked to do here is little: the tests see to the figures' agreement.
const RUNS: [(&str, u64); 17] = [
    ("chase --working-set 64k --rounds 3", 3 * 1024),
    (
        "chase --working-set 64k --compute 2 --thp off --operations 100",
        100,
    ),
    ("stream --working-set 64k --rounds 2 --thp on", 2 * 1024),
    (
        "stream --working-set 192k --rounds 2 --kernel triad",
        2 * 1024,
    ),
    (
        "stream --working-set 128k --rounds 2 --kernel scale",
        2 * 1024,
    ),
    ("compute --rounds 2", 2_000_000),
    ("update --working-set 64k --rounds 2", 2 * 1024),
    (
        "phases --working-set 64k --levels 100,10,0 --phase-operations 50 --rounds 2",
        300,
    ),
    (
        "phases --working-set 64k --access update --phase-instructions 10000 --operations 77",
        77,
    ),
    (
        "share --working-set 64k --write-percent 10 --rounds 2",
        2 * 1024,
    ),
    (
        "share --working-set 64k --shared-memory menagerie-runs --rounds 2",
        2 * 1024,
    ),
    // Two lists of 64 entries; 8 words.
    (
        "micro --working-set 8k --sharing-size 64 --rounds 3",
        3 * 72,
    ),
    (
        "micro --working-set 0 --sharing-size 4k --rounds 5",
        5 * 512,
    ),
    (
        "micro --working-set 8k --sharing-size 0 --operations 100",
        100,
    ),
    (
        "micro --working-set 1m --memory interleave --rounds 1",
        8192 + 16384,
    ),
    ("pair --working-set 64k --operations 50", 50),
    (
        "pair --working-set 64k --operations 50 --via futex --think 10",
        50,
    ),
];

#[test]
fn every_kind_does_what_it_is_told_and_its_figures_agree() {
    for (arguments, operations) in RUNS {
        let report = report(&format!("{arguments} --threads 2"));
        let threads = report["threads"].as_array().unwrap();
        assert_eq!(threads.len(), 2, "{arguments}");
        assert_eq!(report["complete"], true, "{arguments}");
        assert_eq!(report["operations"], 2 * operations, "{arguments}");
        for thread in threads {
            let figure = |name: &str| thread[name].as_f64().unwrap();
            assert_eq!(thread["operations"], operations, "{arguments}");
            assert!(
                figure("seconds") <= report["seconds"].as_f64().unwrap(),
                "{arguments}"
            );
            let from_time = figure("ns_per_operation") * operations as f64 / 1e9;
            assert!(
                (from_time / figure("seconds") - 1.0).abs() < 1e-6,
                "{arguments}"
            );
            let from_rate = operations as f64 / figure("rate");
            assert!(
                (from_rate / figure("seconds") - 1.0).abs() < 1e-6,
                "{arguments}"
            );
        }
        assert_ne!(threads[0]["tid"], threads[1]["tid"], "{arguments}");
    }
}

#[test]
fn a_length_of_time_is_kept() {
    let report = report("compute --seconds 0.01");
    assert!(report["seconds"].as_f64().unwrap() >= 0.01);
    assert_eq!(report["complete"], true);
}

/// Where a container forbids binding, the program must at least say that this is why.
#[test]
fn memory_can_be_given_a_home() {
    let has_memory = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    let node: String = has_memory
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    for kind in [
        "chase --rounds 1",
        "share --rounds 1",
        "micro --rounds 1",
        "pair --processes --operations 3",
    ] {
        let arguments = format!("{kind} --working-set 1m --home {node} --json");
        let output = menagerie(&arguments).output().unwrap();
        if output.status.success() {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["parameters"]["home"].to_string(), node);
        } else {
            assert!(
                stderr(&output).contains("seccomp profile forbids mbind"),
                "{arguments}"
            );
            assert_eq!(output.status.code(), Some(1));
        }
    }
}

/// The paper's measure is the mean of the threads' run times.
#[test]
fn the_micro_benchmark_checks_its_sums_and_tells_the_mean_run_time() {
    let report = report("micro --working-set 64k --sharing-size 1k --rounds 4 --threads 3");
    let threads = report["threads"].as_array().unwrap();
    let of_all = |name: &'static str| {
        threads
            .iter()
            .map(move |thread| thread[name].as_f64().unwrap())
    };
    let micro = &report["micro"];
    let mean = of_all("seconds").sum::<f64>() / 3.0;
    assert!((micro["mean_seconds"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    assert_eq!(micro["entries"], 64 * 1024 / 3 / 64);
    assert_eq!(
        (&micro["shared_words"], &micro["wrong_words"]),
        (&128.into(), &0.into())
    );
    assert!(of_all("added").all(|added| added == 4.0 * 128.0));
    assert!(of_all("wrong_passes").all(|wrong| wrong == 0.0));
}

/// A program that has set up and waits for its release.
struct Waiting {
    child: Child,
    directory: tempfile::TempDir,
    tids: Vec<String>,
}

impl Waiting {
    fn start(arguments: &str) -> Waiting {
        let directory = tempfile::tempdir().unwrap();
        let (ready, go) = (directory.path().join("ready"), directory.path().join("go"));
        assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
        let mut child = menagerie(arguments)
            .arg("--json")
            .arg("--ready-file")
            .arg(&ready)
            .arg("--go-file")
            .arg(&go)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&ready, &mut child);
        let text = std::fs::read_to_string(&ready).unwrap();
        let mut ids = text.lines().map(str::to_owned);
        assert_eq!(ids.next(), Some(child.id().to_string()));
        Waiting {
            tids: ids.collect(),
            child,
            directory,
        }
    }

    /// The CPUs that each measured thread may run on.
    fn affinities(&self) -> Vec<String> {
        let of = |tid| allowed_cpus(&format!("/proc/{}/task/{tid}/status", self.child.id()));
        self.tids.iter().map(of).collect()
    }

    fn release(self) -> Output {
        let go = self.directory.path().join("go");
        drop(OpenOptions::new().write(true).open(go).unwrap());
        self.child.wait_with_output().unwrap()
    }
}

/// The CPUs in a thread's status file, in the kernel's list syntax.
fn allowed_cpus(status: &str) -> String {
    let status = std::fs::read_to_string(status).unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .unwrap();
    list.trim().to_owned()
}

#[test]
fn threads_are_free_after_set_up_unless_pinned() {
    let allowed = allowed_cpus("/proc/self/status");
    let cpu: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    for (arguments, expected) in [
        (format!("--start-cpu {cpu}"), &allowed),
        ("--start-cpu any".to_owned(), &allowed),
        (format!("--cpus {cpu}"), &cpu),
    ] {
        for kind in [
            "chase --working-set 64k",
            "share --working-set 64k",
            "micro --working-set 64k",
            "compute",
            "pair",
        ] {
            let line = format!("{kind} --operations 1 --threads 2 {arguments}");
            let waiting = Waiting::start(&line);
            assert_eq!(waiting.affinities(), [expected.as_str(); 2], "{line}");
            assert!(waiting.release().status.success(), "{line}");
        }
    }
}

#[test]
fn a_serving_process_is_free_or_pinned_like_its_client() {
    let allowed = allowed_cpus("/proc/self/status");
    let cpu: String = allowed.chars().take_while(char::is_ascii_digit).collect();
    for (arguments, expected) in [
        (format!("--start-cpu {cpu}"), &allowed),
        (format!("--cpus {cpu}"), &cpu),
    ] {
        let line = format!("pair --processes --working-set 64k --operations 1 {arguments}");
        let waiting = Waiting::start(&line);
        let (pid, tid) = (waiting.child.id(), &waiting.tids[0]);
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap();
        let server = children.trim();
        assert_eq!(
            &allowed_cpus(&format!("/proc/{server}/status")),
            expected,
            "{line}"
        );
        assert!(waiting.release().status.success(), "{line}");
    }
}

#[test]
fn threads_that_the_kernel_refuses_are_a_failure_with_advice() {
    // Those of a kernel wait for each other before they are released. A thread takes so much of the
    // address space that the first one refused leaves enough for all else.
    for arguments in [
        "compute --threads 10000 --rounds 1",
        "kernel ep --threads 10000",
    ] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", MENAGERIE])
            .args(arguments.split_whitespace())
            .env("RUST_MIN_STACK", "100000000")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert!(stderr(&output).starts_with("menagerie: could not start thread "));
        assert!(stderr(&output).ends_with(
            "; lower --threads, or raise the limit (ulimit -u, pids.max of the cgroup)\n"
        ));
    }
}

#[test]
fn the_server_of_a_pair_may_be_a_process() {
    let report = report("pair --processes --working-set 64k --operations 20 --threads 2");
    let threads = report["threads"].as_array().unwrap();
    for thread in threads {
        assert_ne!(thread["server_pid"], report["pid"]);
        assert_eq!(
            thread["server_pid"], thread["server_tid"],
            "its main thread serves"
        );
        assert!(thread["latency_ns"]["mean"].as_f64().unwrap() > 0.0);
    }
    assert_ne!(threads[0]["server_pid"], threads[1]["server_pid"]);
}

#[test]
fn a_server_process_that_cannot_set_up_fails_the_run() {
    // The server alone is short of addresses: the client maps nothing of that size.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", MENAGERIE])
        .args("pair --processes --working-set 512MiB --operations 1".split_whitespace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("could not map 512 MiB of memory"),
        "{}",
        stderr(&output)
    );
    assert!(
        stderr(&output).contains("wait for a server: exit status: 1"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn addresses_that_the_kernel_refuses_are_a_failure_with_advice() {
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 400000; exec \"$0\" \"$@\"", MENAGERIE])
        .args("chase --working-set 512MiB --rounds 1".split_whitespace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "menagerie: could not map 512 MiB of memory: Cannot allocate memory (os error 12); \
         lower --working-set or --class, or raise the limit (ulimit -v, vm.overcommit_memory)\n"
    );
}

#[test]
fn a_signal_ends_a_run_and_the_result_so_far_is_told() {
    for (name, number, kind) in [
        ("TERM", 15, "chase --working-set 64k"),
        ("INT", 2, "compute"),
        (
            "TERM",
            15,
            "phases --working-set 64k --levels 0.001 --phase-operations 1000000",
        ),
        ("TERM", 15, "pair --working-set 64k --processes"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let mut child = menagerie(kind)
            .args([
                "--operations",
                "18446744073709551615",
                "--json",
                "--ready-file",
            ])
            .arg(&ready)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&ready, &mut child);
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + number), "{kind}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["complete"], false, "{kind}");
    }
}

#[test]
fn a_signal_before_the_release_ends_the_run_too() {
    let waiting = Waiting::start("compute --rounds 1");
    signal(&waiting.child, "TERM");
    let output = waiting.child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["complete"], &report["operations"]),
        (&false.into(), &0.into())
    );
}

#[test]
fn several_are_released_together() {
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let mut children = Vec::new();
    for index in 0..3 {
        let ready = directory.path().join(format!("ready-{index}"));
        let mut child = menagerie("chase --working-set 64k --rounds 1 --threads 2 --ready-file")
            .arg(&ready)
            .arg("--go-file")
            .arg(&go)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        wait_for(&ready, &mut child);
        children.push(child);
    }
    for child in &mut children {
        assert!(
            child.try_wait().unwrap().is_none(),
            "started before its release"
        );
    }
    drop(OpenOptions::new().write(true).open(&go).unwrap());
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(
            table.starts_with("chase: 2 threads, working set 64 KiB\n"),
            "{table}"
        );
    }
}

#[test]
fn the_parameters_are_told_with_their_defaults() {
    let report = report("phases --working-set 1000 --phase-operations 5 --rounds 1 --levels 9,0");
    insta::assert_snapshot!(serde_json::to_string_pretty(&report["parameters"]).unwrap());
}
