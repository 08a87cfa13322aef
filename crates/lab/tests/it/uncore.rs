//! The uncore penalty as the host's counters see it on a real kernel, against what the model is known
//! to do: in a chase one request is outstanding at a time, for as long as an access takes, so that the
//! penalty is the latency of the memory in cycles.
//!
//! This program itself runs in the guest and watches `programs/walk.c` there. These need `make setup`
//! and the plugin (`cargo build --profile lab -p numaherd-lab-plugin`).

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use numaherd_host::{EventTable, Host, HostOptions, Selection, Verdict, doctor};
use numaherd_lab_launcher::{Command, Guest};
use numaherd_topology::sysfs;
use numaherd_world::{Counts, Progress, Signal, World};

use crate::walked;

/// Lines in a walk: 4 MiB, twice the preset's last-level cache.
const LINES: &str = "65536";
/// Times that a walk goes round, for a quarter of a second or so: what comes before it is little of that.
const ROUNDS: &str = "24";
/// Latencies in ns of local memory and of the next node's; a cycle is a nanosecond.
const LOCAL: f64 = 90.0;
const REMOTE: f64 = 150.0;

/// Not a test by itself: watches a walk in the guest as `numaherd run` would, every 10 ms, and prints
/// what its threads counted; the walk's command is in the environment.
#[test]
#[ignore = "run in the guest by the test below"]
fn watch() {
    let words = env::var("WALK").expect("the test below sets it");
    let mut words = words.split(' ');
    let mut walk = process::Command::new(words.next().expect("a program"))
        .args(words)
        .stdout(process::Stdio::null())
        .spawn()
        .expect("the walk can be started");
    let topology = Arc::new(sysfs::read(Path::new("/")).expect("a machine"));
    let options = HostOptions::new(Selection::Child { pid: walk.id() });
    let mut host = Host::new(options, topology).expect("a kernel");
    host.attend(&[Signal::UncorePenalty]);
    let mut counted: BTreeMap<&str, u64> = BTreeMap::new();
    while host.run_for(Duration::from_millis(10)) == Progress::Ran {
        let snapshot = host.observe().expect("a snapshot");
        for counts in snapshot.threads.iter().filter_map(|thread| thread.counts) {
            let Counts {
                uncore_busy_cycles: Some(busy),
                uncore_requests: Some(requests),
                ..
            } = counts
            else {
                continue;
            };
            for (name, count) in [
                ("intervals", 1),
                ("busy", busy),
                ("requests", requests),
                ("cycles", counts.cycles.unwrap_or(0)),
                ("lines", counts.lines),
                ("remote", counts.remote.unwrap_or(0)),
            ] {
                *counted.entry(name).or_default() += count;
            }
        }
    }
    assert!(walk.wait().expect("it has ended").success());
    let json = serde_json::to_string(&counted).expect("serializable");
    println!("counted {json}");
}

/// Not a test by itself: what the doctor says of the events in the guest.
#[test]
#[ignore = "run in the guest by the test below"]
fn look() {
    let topology = sysfs::read(Path::new("/")).expect("a machine");
    let report = doctor(Path::new("/"), &topology, EventTable::built_in());
    let check = report.events.expect("some set is for every machine");
    println!("looked {}", serde_json::to_string(&check).expect("ours"));
}

/// Runs one of the functions above in the guest and gives what it printed after `word`.
fn in_guest(guest: &Guest, function: &str, word: &str, walk: Option<&str>) -> serde_json::Value {
    let this = env::current_exe().expect("this program");
    let mut words = vec!["env".into()];
    words.extend(walk.map(|walk| format!("WALK={walk}").into()));
    words.push(this.into_os_string());
    let arguments = ["--ignored", "--exact", "--nocapture", function];
    words.extend(arguments.map(Into::into));
    let command = Command::inherited(words).expect("here");
    let output = guest
        .output(&command, Some(Duration::from_secs(240)))
        .unwrap_or_else(|error| panic!("{error}"));
    let said = String::from_utf8_lossy(&output.stdout);
    let line = said.lines().find_map(|line| line.split_once(word));
    let (_, json) = line.unwrap_or_else(|| {
        panic!("{said}{}", String::from_utf8_lossy(&output.stderr));
    });
    serde_json::from_str(json).expect("ours")
}

#[test]
fn the_penalty_is_the_latency_of_the_memory_in_cycles() {
    let walk = walked::build("watched-walk");
    let guest = walked::boot(&walked::square());
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));
    // CPU 0 is on node 0; CPU 2 on node 1, one hop away.
    let [local, remote] = [0, 2].map(|home| {
        let command = format!("{} {LINES} {ROUNDS} 0 0 {home}", walk.display());
        let said = in_guest(&guest, "uncore::watch", "counted ", Some(&command));
        let of = |name: &str| said[name].as_u64().unwrap_or_else(|| panic!("{said}"));
        // The two groups are read one after the other, so that they differ by some of the last ones.
        let hundredth = of("lines") / 100;
        assert!(of("busy") <= of("cycles") + of("cycles") / 100, "{said}");
        assert!(of("requests").abs_diff(of("lines")) < hundredth, "{said}");
        if home == 2 {
            assert!(of("remote") * 10 > of("lines") * 8, "{said}");
        }
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let penalty = of("busy") as f64 / of("requests") as f64;
        eprintln!("home of CPU {home}: {penalty:.1} cycles a request: {said}");
        penalty
    });
    assert!((local / LOCAL - 1.0).abs() < 0.1, "{local}");
    assert!((remote / REMOTE - 1.0).abs() < 0.1, "{remote}");

    let check = in_guest(&guest, "uncore::look", "looked ", None);
    assert_eq!(check["set"], "the lab's modelled hardware", "{check}");
    let findings = check["findings"].as_array().expect("findings");
    let good = serde_json::to_value(Verdict::Good).expect("serializable");
    assert!(
        findings.iter().all(|finding| finding["verdict"] == good),
        "{check:#}"
    );
    // What is counted is the walk alone, every line of which is fetched.
    let said = findings[1]["found"].as_str().expect("text");
    let words: Vec<&str> = said.split(' ').collect();
    let [counted, walked] = [words[1], words[6]].map(|n| n.parse::<u64>().expect("a number"));
    assert!(counted.abs_diff(walked) < walked / 20, "{said}");
    let last = findings.last().expect("the penalty");
    assert_eq!(last["subject"], "uncore penalty", "{check:#}");
    guest.stop().expect("it stops");
}
