//! `numaherd trial` on this machine: a real process, whose real affinity changes and is restored, and what is said
//! where a trial cannot be.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{mask, wait_until};

/// A process that keeps a CPU busy, ended with the value.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        Self(child)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// The CPUs that it may use.
    fn cpus(&self) -> String {
        mask(self.0.id())
    }

    /// Waits until it may use these CPUs, or others.
    #[track_caller]
    fn await_cpus(&self, are_meant: impl Fn(&str) -> bool) {
        wait_until("its CPUs change", || are_meant(&self.cpus()));
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A folder for journal and configuration: decisions every 20 ms, threads kept on one core.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let configuration = "[herd]\nplacement_interval_ms = 20\nfirst_interval_ms = 20\n\
                             [herd.limits]\nscope = \"core\"\n";
        fs::write(place.path("numaherd.toml"), configuration).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `numaherd trial` of the policy `random` with blocks of 200 ms.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaherd"));
        command
            .arg("trial")
            .arg("--config")
            .arg(self.path("numaherd.toml"))
            .arg("--journal")
            .arg(self.path("journal"))
            .args(["--policy", "random", "--block", "200ms", "--seed", "1"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn trial(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("the program can be started")
    }

    /// What is said of a trial that cannot be, or not go on.
    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.trial(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }
}

#[test]
fn a_trial_that_is_interrupted_restores_affinities_and_says_what_is_known() {
    let (place, busy) = (Place::new(), Busy::start());
    let before = busy.cpus();
    let trial = place
        .command(&["--pid", &busy.pid(), "--time", "1h", "--json"])
        .args(["--progress", "date +%s%N"])
        .spawn()
        .unwrap();
    // A block of the policy, one of Linux, and another of the policy, amidst which it is interrupted.
    busy.await_cpus(|cpus| cpus != before);
    busy.await_cpus(|cpus| cpus == before);
    busy.await_cpus(|cpus| cpus != before);
    kill_process(Pid::from_child(&trial), Signal::INT).unwrap();
    let output = trial.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(busy.cpus(), before, "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["ended"], "interrupted");
    assert_eq!(report["pairs_planned"], 9000);
    assert_eq!(report["progress"]["named"], true);
    assert!(report["threads_moved"].is_u64());
}

#[test]
fn a_complete_trial_has_a_line_per_pair_and_a_report() {
    let (place, busy) = (Place::new(), Busy::start());
    let before = busy.cpus();
    let (ledger, page) = (place.path("trial.ledger"), place.path("page.html"));
    // A counter that rises with time, whoever places threads.
    let counter = "date +%s%N";
    let output = place.trial(&[
        "--ledger",
        ledger.to_str().unwrap(),
        "--pid",
        &busy.pid(),
        "--time",
        "2400ms",
        "--progress",
        counter,
    ]);
    let (out, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}");
    assert_eq!(busy.cpus(), before);
    let pairs: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("pair "))
        .collect();
    assert_eq!(pairs.len(), 6, "{said}");
    assert!(
        pairs[0].starts_with("pair 1 of 6: ") && pairs[5].contains("; so far "),
        "{said}"
    );
    for expected in [
        "(6 pairs), 95 %\n",
        "progress: what `date +%s%N` prints\n",
        "method: 6 of 6 pairs of blocks of 200 ms, of which the first 60 ms do not count, in random order (seed 1); ",
        "carried over: ",
    ] {
        assert!(out.contains(expected), "{expected:?} is not in {out}");
    }
    let mut report = Command::new(env!("CARGO_BIN_EXE_numaherd"));
    let report = report.arg("report").arg(ledger).arg("-o").arg(&page);
    assert!(report.status().unwrap().success());
    let page = fs::read_to_string(page).unwrap();
    for line in out.lines() {
        let said = line.split_once(": ").map_or(line, |(_, said)| said);
        assert!(page.contains(said), "{said:?} is not on the page");
    }
}

#[test]
fn a_program_ends_with_all_that_it_has_started() {
    let place = Place::new();
    let started = place.path("started");
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > \"$0\".new; mv \"$0\".new \"$0\"; wait";
    let trial = place
        .command(&["--time", "1h", "--progress", "date +%s%N", "--"])
        .args(["sh", "-c", script, started.to_str().unwrap()])
        .spawn()
        .unwrap();
    wait_until("the program starts another", || started.exists());
    let other = fs::read_to_string(started).unwrap();
    kill_process(Pid::from_child(&trial), Signal::TERM).unwrap();
    let output = trial.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let stat = format!("/proc/{}/stat", other.trim());
    // Whoever has to may take a while to ask how it ended.
    let has_ended = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    wait_until("what it started has ended", has_ended);
}

#[test]
fn a_program_is_tried_for_as_long_as_it_lasts() {
    let place = Place::new();
    let output = place.trial(&[
        "--against",
        "first-touch",
        "--time",
        "1h",
        "--json",
        "--",
        "sh",
        "-c",
        "date > /dev/null",
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["ended"], &report["shown"]),
        (&"processes-ended".into(), &Value::Null)
    );
}

#[test]
fn a_mistake_is_named_before_anything_begins() {
    let place = Place::new();
    let refused = |arguments: &[&str]| {
        let mut all = vec!["--pid", "1"];
        all.extend(arguments);
        place.refused(&all, 2)
    };
    for (arguments, expected) in [
        (&["--against", "dimo"][..], "did you mean \"dino\"?"),
        (
            &["--against", "random"],
            "a trial of random against itself shows nothing",
        ),
        (
            &["--against", "interleave"],
            "interleave places new pages by a rule",
        ),
        (
            &["--time", "2s"],
            "an interval needs at least 6: --time 3s, or shorter blocks",
        ),
        (
            &["--washout", "10ms"],
            "the first 10 ms of a block do not count, but a policy decides only every 20 ms",
        ),
        (
            &["--washout", "190ms"],
            "at least 40 ms are needed: take longer blocks",
        ),
        (
            &["--prometheus", "https://a/", "up"],
            "\"https://a/\" is no http:// address",
        ),
        (
            &["--prometheus", "http://a/", "rate(up)"],
            "\"rate(up)\" is no metric",
        ),
    ] {
        let said = refused(arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    let unknown = place.refused(&["--pid", "999999999"], 2);
    assert!(unknown.contains("999999999"), "{unknown}");
}

#[test]
fn what_cannot_be_measured_ends_the_trial_and_is_named() {
    let (place, busy) = (Place::new(), Busy::start());
    let failed = |arguments: &[&str]| {
        let pid = busy.pid();
        let mut all = vec!["--pid", &pid];
        all.extend(arguments);
        let said = place.refused(&all, 1);
        assert!(said.contains("numaherd: the trial ended early: "), "{said}");
        said
    };
    let said = failed(&["--progress", "echo soon"]);
    assert!(
        said.contains("`echo soon` printed \"soon\"; it has to print a number"),
        "{said}"
    );
    // It has all that its user has, though the herd has given up what it does not need.
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let said = failed(&[
        "--progress",
        "sed -n 's/^CapEff:[[:space:]]*/has /p' /proc/self/status",
    ]);
    let has = format!("printed \"has {}\"", own.unwrap().trim());
    assert!(said.contains(&has), "{said}");
    let said = failed(&["--progress", "echo 7"]);
    assert!(
        said.contains("there was no progress in 0.1 s, the counter stayed at 7"),
        "{said}"
    );
    let file = place.path("counter");
    let falls = format!("echo x >> {0}; expr 100 - $(wc -l < {0})", file.display());
    let said = failed(&["--progress", &falls]);
    assert!(
        said.contains("the counter of progress fell from 98 to 97"),
        "{said}"
    );
    let said = place.refused(&["--name", "no-such-program"], 1);
    assert!(
        said.contains("no process matches --name no-such-program"),
        "{said}"
    );
}

/// An endpoint that answers so many requests and is gone then; its address.
fn endpoint(requests: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/metrics", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for request in 1..=requests {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let text =
                format!("# TYPE done_total counter\ndone_total{{kind=\"a\"}} {request}\nother 1\n");
            let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{text}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn an_endpoint_counts_until_it_has_gone() {
    let (place, busy) = (Place::new(), Busy::start());
    let gone = endpoint(10);
    let all = [
        "--pid",
        &busy.pid(),
        "--time",
        "1h",
        "--prometheus",
        &gone,
        "done_total",
    ];
    let output = place.trial(&all);
    let (out, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("the trial ended early: cannot read http://127.0.0.1:"),
        "{said}"
    );
    // One reading before the first pair, four in each.
    assert!(
        out.starts_with("no difference could be shown: 2 pairs are too few"),
        "{out}"
    );
    assert!(
        out.contains(&format!("progress: done_total of {gone}\n")),
        "{out}"
    );
    let missing = place.refused(
        &[
            "--pid",
            &busy.pid(),
            "--prometheus",
            &endpoint(1),
            "odd_total",
        ],
        1,
    );
    assert!(missing.contains("has no metric odd_total"), "{missing}");
}
