//! The kinds of storm. Each is a function that does to a machine what may happen to one, kills a herd or ends it, and
//! has restored what is owed; then every thread is looked at.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

use rand::Rng;

use crate::calls;
use crate::herd::Herd;
use crate::lab::{self, Lab};
use crate::machine::{Machine, ran};

/// One of them.
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// What it does, for the table.
    pub what: &'static str,
    /// What was found before, where that is known.
    pub before: &'static str,
    /// Tries in each round.
    pub share: u64,
    /// The guest that it needs, if it does; all tries of a round are made in one.
    pub lab: Option<Lab>,
    /// Does it; kills happen at the call of this number, where that is how it kills.
    pub storm: fn(&mut Machine, Option<u64>),
}

/// All of them.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "run-killed-at-call",
        what: "a run is killed where it enters its Nth system call, for all N",
        before: "256 of 258 kills left threads bound, 1,879 in all",
        share: 25,
        lab: None,
        storm: run_killed_at_call,
    },
    Kind {
        name: "release-killed-at-call",
        what: "`release` is killed where it enters its Nth system call, then another one runs",
        before: "",
        share: 10,
        lab: None,
        storm: release_killed_at_call,
    },
    Kind {
        name: "killed",
        what: "a run is killed at any time, among forks and threads",
        before: "256 of 258 kills left threads bound, 1,879 in all",
        share: 15,
        lab: None,
        storm: |machine, _| {
            let ways = ["fork", "daemon", "exec", "threads"];
            let (one, other) = (machine.one_of(&ways), machine.one_of(&ways));
            among(machine, &[one, other], 1.0);
        },
    },
    Kind {
        name: "ended",
        what: "a run is asked to end, among forks and threads",
        before: "5 of 21 ends (`--user`) and 3 of 12 (`--pid`) left threads bound",
        share: 40,
        lab: None,
        storm: |machine, _| {
            let ways = ["fork", "threads"];
            let (one, other) = (machine.one_of(&ways), machine.one_of(&ways));
            among(machine, &[one, other], 0.0);
        },
    },
    Kind {
        name: "daemons",
        what: "a run is killed or asked to end, among processes whose parents end at once",
        before: "11 of 12 ends left threads bound",
        share: 10,
        lab: None,
        storm: |machine, _| among(machine, &["daemon", "work"], 0.5),
    },
    Kind {
        name: "chains",
        what: "the same, among processes each of which starts the next one and ends",
        before: "",
        share: 10,
        lab: None,
        storm: |machine, _| among(machine, &["hop", "work"], 0.5),
    },
    Kind {
        name: "exec",
        what: "the same, among programs that put another in their place",
        before: "",
        share: 10,
        lab: None,
        storm: |machine, _| among(machine, &["exec", "exec"], 0.5),
    },
    Kind {
        name: "numbers-used-again",
        what: "the same, where numbers of processes are used again at once",
        before: "4 of 8,319 and 7 of 7,552 threads of others were bound",
        share: 10,
        lab: None,
        storm: numbers_used_again,
    },
    Kind {
        name: "outside-selection",
        what: "the same, where what is started is not selected, beside pinned threads of users",
        before: "9 of 15 ends left threads bound",
        share: 10,
        lab: None,
        storm: outside_selection,
    },
    Kind {
        name: "two-herds",
        what: "two herds with journals of their own, one killed or both ended",
        before: "threads left with the other's masks",
        share: 10,
        lab: None,
        storm: two_herds,
    },
    Kind {
        name: "disk-full",
        what: "the journal's disk is full, before the start or since, or read-only",
        before: "`release` gave nothing back",
        share: 10,
        lab: None,
        storm: disk_full,
    },
    Kind {
        name: "hostile",
        what: "a tenant forks as fast as it can and sets the herd's own masks, beside pinned threads of others",
        before: "",
        share: 10,
        lab: None,
        storm: hostile,
    },
    Kind {
        name: "cpusets",
        what: "a cpuset is narrowed and widened before, while and after a herd runs; in the lab",
        before: "5 of 5 threads stayed bound",
        share: 5,
        lab: Some(Lab::RealTime),
        storm: lab::cpusets,
    },
    Kind {
        name: "cpusets-meanwhile",
        what: "the same, all the time, while herds are killed or asked to end and affinities are restored; in the lab",
        before: "not tried",
        share: 5,
        lab: Some(Lab::RealTime),
        storm: lab::cpusets_meanwhile,
    },
    Kind {
        name: "hot-plug",
        what: "CPUs go offline and come back before, while and after a herd runs; in the lab",
        before: "3 of 5 threads stayed bound",
        share: 5,
        lab: Some(Lab::RealTime),
        storm: lab::hot_plug,
    },
    Kind {
        name: "clocks",
        what: "the clock jumps by hours and years, to and fro; in the lab",
        before: "not tried",
        share: 5,
        lab: Some(Lab::RealTime),
        storm: lab::clocks,
    },
    Kind {
        name: "full-nodes",
        what: "memory is moved to a full node, where the kernel refuses it, and a herd is killed or asked to end; in the lab",
        before: "not tried",
        share: 5,
        lab: Some(Lab::Small),
        storm: lab::full_nodes,
    },
    Kind {
        name: "sampling",
        what: "policies that count and sample (dino, brm, adaptive, sampled) are killed or asked to end; in the lab",
        before: "not tried",
        share: 5,
        lab: Some(Lab::Modelled),
        storm: lab::sampling,
    },
];

/// Has tenants at work, beside one whose user has set its affinity.
pub fn tenants(machine: &mut Machine, ways: &[&str]) {
    for way in ways {
        machine.tenant(way);
    }
    let pinned = machine.one_of(&["work", "fork"]);
    machine.pinned_tenant(pinned);
}

/// Lets the tenants go on for a while.
fn a_while(machine: &mut Machine) {
    let most = machine.one_of(&[2, 10, 40]);
    let more = machine.random.random_range(1..=most);
    machine.go_on(more);
}

fn herd(machine: &mut Machine) -> Herd {
    let selection = machine.selection();
    let words: Vec<&str> = selection.iter().map(String::as_str).collect();
    let herd = machine.herd(&words);
    machine.placed(&herd);
    herd
}

/// Kills a herd and has restored what it owes, or with the rest of the chance ends it.
pub fn over(machine: &mut Machine, herd: Herd, chance_of_kill: f64) {
    a_while(machine);
    if machine.random.random_bool(chance_of_kill) {
        machine.kill(herd);
        if machine.random.random_bool(0.5) {
            a_while(machine);
        }
        machine.restore();
    } else {
        machine.end(herd);
    }
}

/// A herd among tenants of such ways.
fn among(machine: &mut Machine, ways: &[&str], chance_of_kill: f64) {
    tenants(machine, ways);
    let herd = herd(machine);
    over(machine, herd, chance_of_kill);
}

fn run_killed_at_call(machine: &mut Machine, at: Option<u64>) {
    let way = machine.one_of(&["fork", "daemon", "exec", "threads"]);
    tenants(machine, &[way]);
    let mut command = machine.command(&["--policy", "random", "--scope", "core", "--for", "60ms"]);
    command.args(machine.selection());
    let traced = calls::run(calls::start(&command), at);
    machine.seen.calls = traced.calls;
    machine.seen.memory_kib = traced.memory_kib;
    if traced.was_killed() {
        machine.was_killed();
        machine.restore();
    } else {
        machine.has_ended(traced.status.success(), "");
    }
}

fn release_killed_at_call(machine: &mut Machine, at: Option<u64>) {
    let way = machine.one_of(&["fork", "daemon", "exec", "threads"]);
    tenants(machine, &[way]);
    let herd = herd(machine);
    a_while(machine);
    machine.kill(herd);
    let command = machine.release_command();
    let traced = calls::run(calls::start(&command), at);
    machine.seen.calls = traced.calls;
    if traced.was_killed() {
        machine.was_killed();
        machine.release();
    } else if !traced.status.success() {
        machine.found("a release that was traced failed".to_owned());
    }
}

fn numbers_used_again(machine: &mut Machine, _: Option<u64>) {
    let base = std::process::id() + 100;
    thread::spawn(move || {
        while fs::write("/proc/sys/kernel/ns_last_pid", base.to_string()).is_ok() {
            thread::yield_now();
        }
    });
    // Whom nobody selects: theirs are the numbers that come free, and the other way round.
    machine.tenant("fork");
    machine.tenant("fork");
    let selected = machine.tenant("hop").to_string();
    let placed = machine.tenant("work").to_string();
    let herd = machine.herd(&["--pid", &selected, "--pid", &placed]);
    machine.placed(&herd);
    over(machine, herd, 0.5);
}

fn outside_selection(machine: &mut Machine, _: Option<u64>) {
    let way = machine.one_of(&["daemon", "fork", "exec"]);
    // What this starts is `sh`, which is not selected.
    machine.tenant(way);
    let other = machine.tenant("threads").to_string();
    machine.pinned_tenant("fork");
    let herd = machine.herd(&["--pid", &other]);
    machine.placed(&herd);
    over(machine, herd, 0.3);
}

fn two_herds(machine: &mut Machine, _: Option<u64>) {
    let one = machine.tenant("fork").to_string();
    let other = machine.tenant("daemon").to_string();
    let (first, second) = (PathBuf::from("first"), PathBuf::from("second"));
    machine.journal.clone_from(&first);
    let one = machine.herd(&["--pid", &one]);
    machine.placed(&one);
    machine.journal.clone_from(&second);
    // The second's selection has the first's in it, or not.
    let other = match machine.random.random_bool(0.5) {
        true => machine.herd(&["--pid", &other]),
        false => machine.herd(&[]),
    };
    machine.go_on(40);
    let first_is_killed = machine.random.random_bool(0.5);
    machine.journal.clone_from(&first);
    if first_is_killed {
        machine.kill(one);
    } else {
        machine.end(one);
    }
    machine.go_on(10);
    machine.journal = second;
    machine.end(other);
    machine.journal = first;
    if first_is_killed {
        machine.release();
    }
}

/// Fills the disk that a folder is on.
fn fill(folder: &Path) {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("filler"));
    let mut file = file.expect("an empty file has room");
    while file.write_all(&[1; 512]).is_ok() {}
}

fn disk_full(machine: &mut Machine, _: Option<u64>) {
    fs::create_dir("disk").unwrap();
    assert!(ran(
        "mount",
        &["-t", "tmpfs", "-o", "size=64k", "none", "disk"]
    ));
    let disk = Path::new("disk");
    machine.journal = disk.join("journal");
    tenants(machine, &["fork", "daemon"]);
    let is_full_first = machine.random.random_bool(0.3);
    if is_full_first {
        fill(disk);
    }
    let herd = machine.herd(&[]);
    if is_full_first {
        machine.go_on(40);
    } else {
        machine.placed(&herd);
        a_while(machine);
        fill(disk);
        machine.go_on(20);
    }
    if machine.random.random_bool(0.3) {
        machine.end(herd);
        return;
    }
    machine.kill(herd);
    if machine.random.random_bool(0.5) {
        assert!(ran("mount", &["-o", "remount,ro", "disk"]));
        // It restores all, and fails because the journal cannot be removed.
        let owed = machine.journal.exists();
        let output = crate::machine::output(machine.release_command());
        if output.status.success() == owed {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            machine.found(format!(
                "release on a read-only disk: {}: {said}",
                output.status
            ));
        }
    } else {
        machine.release();
    }
}

fn hostile(machine: &mut Machine, _: Option<u64>) {
    tenants(machine, &["work", "fork"]);
    machine.hostile_tenant();
    machine.hostile_tenant();
    let herd = machine.herd(&["--user", "0"]);
    machine.placed(&herd);
    over(machine, herd, 0.5);
}
