//! The level by its rules, the installation by its files, and the text about a captured machine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use numaherd_herd::journal::{Journal, SavedAffinity};
use numaherd_host::{MOVING, PLACING};
use numaherd_world::{Kinship, ProcessId, ThreadId};
use tempfile::TempDir;

use super::*;
use crate::run::machine_lock::holders;

/// A machine of so many nodes and memory domains, on which these signals are measured.
fn machine(nodes: usize, domains: usize, measured: &[Signal]) -> Machine {
    let signals = Signal::ALL.map(|signal| SignalReport {
        signal,
        state: if measured.contains(&signal) {
            SignalState::Measured {
                source: "a counter".to_owned(),
                caveat: None,
            }
        } else {
            SignalState::Missing {
                reason: "no counter".to_owned(),
                remedy: "another machine".to_owned(),
            }
        },
    });
    Machine {
        kernel: None,
        processor: String::new(),
        virtual_machine: false,
        shape: String::new(),
        nodes,
        domains,
        signals: signals.to_vec(),
        events: None,
        abilities: Vec::new(),
        others: Vec::new(),
    }
}

const ALL: [Signal; 5] = [
    Signal::CpuUse,
    Signal::MissRate,
    Signal::LocalRemote,
    Signal::MemorySamples,
    Signal::Residency,
];

fn bad(subject: &str) -> Finding {
    Finding {
        subject: subject.to_owned(),
        verdict: Verdict::Bad,
        found: "found".to_owned(),
        remedy: None,
    }
}

#[track_caller]
fn check(machine: &Machine, level: Level, because: &str) {
    let (found, why) = level::of(machine);
    assert_eq!(found, level, "{why:?}");
    assert!(why.iter().any(|one| one.contains(because)), "{why:?}");
}

#[test]
fn the_level_is_the_first_whose_rule_holds() {
    let full = machine(4, 4, &ALL);
    assert_eq!(level::of(&full), (Level::Full, vec![]));

    let without = |signal| {
        let mut measured = ALL.to_vec();
        measured.retain(|one| *one != signal);
        machine(4, 4, &measured)
    };
    check(
        &without(Signal::MemorySamples),
        Level::Good,
        "memory samples",
    );
    check(&without(Signal::MissRate), Level::Coarse, "no counters");
    check(
        &machine(4, 4, &[Signal::CpuUse]),
        Level::ObserveOnly,
        "where pages are",
    );
    check(
        &machine(1, 2, &ALL),
        Level::PlacementOnly,
        "one memory node",
    );
    check(
        &machine(1, 2, &[Signal::Residency]),
        Level::ObserveOnly,
        "no counters",
    );
    check(
        &machine(1, 1, &ALL),
        Level::ObserveOnly,
        "one memory domain",
    );
}

#[test]
fn what_stands_in_the_way_lowers_it() {
    let mut refused = machine(4, 4, &ALL);
    refused.abilities.push(bad(PLACING));
    check(&refused, Level::Nothing, "sched_setaffinity");

    let mut stuck = machine(4, 4, &ALL);
    stuck.abilities.push(bad(MOVING));
    check(&stuck, Level::PlacementOnly, "move_pages");

    let mut balanced = machine(4, 4, &ALL);
    balanced.others.push(bad("kernel NUMA balancing"));
    check(&balanced, Level::Good, "kernel NUMA balancing");

    let mut alone = machine(4, 4, &ALL);
    alone.abilities.push(bad("CAP_SYS_NICE"));
    check(&alone, Level::Good, "CAP_SYS_NICE");

    let mut uncertain = machine(4, 4, &ALL);
    uncertain.signals[1].state = SignalState::Measured {
        source: "a counter".to_owned(),
        caveat: Some("user space alone".to_owned()),
    };
    check(&uncertain, Level::Good, "user space alone");
}

/// A captured tree: two nodes of two CPUs, no counters, and these files.
fn tree(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let node = "sys/devices/system/node";
    let usual = [
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("proc/sys/kernel/osrelease", "6.12.0-test\n"),
        ("proc/sys/kernel/random/boot_id", "this-boot\n"),
        ("proc/self/numa_maps", ""),
        (
            "proc/self/status",
            "Name:\tnumaherd\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
        ),
        (
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Test\n",
        ),
    ];
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (path, text) in usual.iter().chain(files) {
        write(path, text);
    }
    for (number, cpus) in [(0, "0-1\n"), (1, "2-3\n")] {
        let meminfo = format!("Node {number} MemTotal: 8000 kB\nNode {number} MemFree: 4000 kB\n");
        write(&format!("{node}/node{number}/meminfo"), &meminfo);
        write(&format!("{node}/node{number}/cpulist"), cpus);
        let distances = if number == 0 { "10 20\n" } else { "20 10\n" };
        write(&format!("{node}/node{number}/distance"), distances);
    }
    write(&format!("{node}/online"), "0-1\n");
    for cpu in 0..4 {
        write(
            &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_id"),
            &format!("{cpu}\n"),
        );
    }
    folder
}

#[test]
fn a_person_reads_what_there_is_what_is_missing_and_what_to_do() {
    let tree = tree(&[
        ("proc/sys/kernel/numa_balancing", "1\n"),
        ("proc/70/comm", "irqbalance\n"),
        ("etc/numaherd/numaherd.toml", "policy = \"homeward\"\n"),
        ("usr/lib/systemd/system/numaherd.service", "[Service]\n"),
        ("run/numaherd/journal", &journal("this-boot", 1, false)),
    ]);
    let report = report(tree.path(), None).unwrap();
    let place = tree.path().to_str().unwrap();
    insta::assert_snapshot!("captured", text(&report).replace(place, ""));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["numaherd-doctor"], SCHEMA);
    assert_eq!(json["accuracy"]["level"], "coarse");
    assert_eq!(json["accuracy"]["policy"], "adaptive");
}

/// The text of a journal in which a thread's mask was changed so many times, and settled or not.
fn journal(boot: &str, changes: usize, settled: bool) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let mut journal = Journal::open(&path, boot, "a test").unwrap();
    let thread = ThreadId { tid: 4, born: 40 };
    let entry = SavedAffinity {
        thread,
        process: ProcessId { pid: 4, born: 40 },
        name: "chase".to_owned(),
        found: "0-3".parse().unwrap(),
        back: "0-3".parse().unwrap(),
        set: "1".parse().unwrap(),
        kin: Kinship::default(),
        since: 0,
    };
    for _ in 0..changes {
        journal.record(std::slice::from_ref(&entry)).unwrap();
    }
    if settled {
        journal.settle(&[thread]).unwrap();
    }
    // A journal that owes nothing is gone.
    fs::read_to_string(&path).unwrap_or_default()
}

#[track_caller]
fn installed(files: &[(&str, &str)], subject: &str, verdict: Verdict, found: &str) {
    let tree = tree(files);
    let lacks = |policy: &str| match policy {
        "dino" => vec![Signal::MissRate],
        _ => vec![],
    };
    let findings = installation::look(tree.path(), lacks, Some("homeward"));
    let one = findings.iter().find(|one| one.subject == subject).unwrap();
    assert_eq!(one.verdict, verdict, "{one:?}");
    assert!(one.found.contains(found), "{one:?}");
}

#[test]
fn the_installation_is_told_by_its_files() {
    let unit = ("usr/lib/systemd/system/numaherd.service", "");
    let enabled = (
        "etc/systemd/system/multi-user.target.wants/numaherd.service",
        "",
    );
    let working = (
        "sys/fs/cgroup/system.slice/numaherd.service/cgroup.procs",
        "12\n",
    );
    installed(&[], "service", Verdict::Good, "not installed");
    installed(&[unit], "service", Verdict::Good, "not enabled");
    installed(&[unit, enabled], "service", Verdict::Bad, "not running");
    installed(&[unit, working], "service", Verdict::Weak, "not enabled");
    installed(
        &[unit, enabled, working],
        "service",
        Verdict::Good,
        "running",
    );

    installed(&[], "configuration", Verdict::Good, "policy adaptive");
    let dino = [("etc/numaherd/numaherd.toml", "policy = \"dino\"\n")];
    let cannot = "policy dino cannot run here";
    installed(&dino, "configuration", Verdict::Bad, cannot);
    let other = [("etc/numaherd/numaherd.toml", "policy = \"homeward\"\n")];
    installed(&other, "configuration", Verdict::Good, "policy homeward");
    let wrong = [("etc/numaherd/numaherd.toml", "polcy = \"dino\"\n")];
    installed(&wrong, "configuration", Verdict::Bad, "polcy");

    installed(&[], "journal", Verdict::Good, "nothing to restore");
    for (text, verdict, found) in [
        (
            journal("this-boot", 2, false),
            Verdict::Bad,
            "left 1 thread placed",
        ),
        (
            journal("this-boot", 1, true),
            Verdict::Good,
            "nothing to restore",
        ),
        (
            journal("another", 1, false),
            Verdict::Good,
            "nothing to restore",
        ),
        ("nonsense".to_owned(), Verdict::Good, "nothing to restore"),
    ] {
        installed(
            &[("run/numaherd/journal", &text)],
            "journal",
            verdict,
            found,
        );
    }
}

#[test]
fn a_lock_is_seen_without_taking_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.lock");
    let file = fs::File::create(&path).unwrap();
    assert!(holders(Path::new("/"), &path).is_empty());
    file.try_lock().unwrap();
    assert_eq!(holders(Path::new("/"), &path), [std::process::id()]);
}

#[test]
fn a_herd_with_a_journal_of_its_own_is_named() {
    let tree = tree(&[
        ("run/numaherd/herds.lock", ""),
        ("run/numaherd/journal.lock", "numaherd run, process 11"),
    ]);
    let word = |name: &str, process: u32| {
        let about = fs::metadata(tree.path().join(name)).unwrap();
        let device = about.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let at = format!("{major:02x}:{minor:02x}:{}", about.ino());
        format!("1: FLOCK  ADVISORY  READ {process} {at} 0 EOF\n")
    };
    let found = |locks: &[String]| {
        fs::create_dir_all(tree.path().join("proc")).unwrap();
        fs::write(tree.path().join("proc/locks"), locks.concat()).unwrap();
        let findings = installation::look(tree.path(), |_| vec![], None);
        let other = findings
            .into_iter()
            .find(|one| one.subject == "another herd");
        other.map(|other| other.found)
    };
    let usual = [
        word("run/numaherd/herds.lock", 11),
        word("run/numaherd/journal.lock", 11),
    ];
    assert_eq!(found(&usual), None);
    let [herds, journal] = usual;
    let other = word("run/numaherd/herds.lock", 12);
    assert_eq!(
        found(&[herds, journal, other]).unwrap(),
        "running with a journal of its own: process 12"
    );
}
