//! The program on a real kernel with four nodes: what it must leave alone, what it gives back, and
//! what it says when it may not.
//!
//! Needs the lab (`make setup` and `make build`); without it the tests fail and say so.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::profile_in_lab::menagerie;

/// Runs a script in a guest; the program is `$NUMAHERD` in it. `options` are of `lab run`.
fn in_guest(options: &[&str], script: &str) -> String {
    let program = env!("CARGO_BIN_EXE_numaherd-lab");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("script.sh");
    fs::write(&path, script).unwrap();
    let output = Command::new(program)
        .args(["lab", "run"])
        .args(options)
        .args(["--", "sh", "-u"])
        .arg(&path)
        .env("NUMAHERD", Path::new(program).with_file_name("numaherd"))
        .env("MENAGERIE", menagerie())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .expect("the program can be started");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "the script failed: {}\n{told}",
        output.status
    );
    String::from_utf8(output.stdout).unwrap() + &told
}

/// The script ends well in the guest, and says each of these.
#[track_caller]
fn assert_says(options: &[&str], script: &str, lines: &[&str]) {
    let told = in_guest(options, script);
    let not = |line: &&str| line.starts_with("NOT: ");
    assert_eq!(told.lines().find(not), None, "{told}");
    for line in lines {
        assert!(
            told.lines().any(|told| told == *line),
            "missing {line:?} in:\n{told}"
        );
    }
}

#[test]
fn what_was_found_is_given_back_and_what_is_foreign_left_alone() {
    assert_says(
        &["--real-time", "--limit", "4m"],
        include_str!("guest/leaves-as-found.sh"),
        &[
            "after SIGTERM the affinity is as found",
            "after kill -9 the affinity was ours",
            "a second numaherd is refused with 6",
            "after release the affinity is as found",
            "released while all its CPUs were offline, the affinity is as found",
            "a pinned thread was left alone",
            "a dry run changed nothing",
            "a cpuset that forbids the rest was obeyed",
            "without permission dino is refused with 3",
        ],
    );
}

#[test]
fn each_capability_is_for_what_is_refused_without_it_and_nothing_is_half_done() {
    assert_says(
        &["--real-time", "--limit", "4m"],
        include_str!("guest/privileges.sh"),
        &[
            "with the service's three it ran",
            "with the service's three threads were moved",
            "with the service's three pages were moved",
            "without CAP_SYS_NICE others' threads are refused with 4",
            "that it is CAP_SYS_NICE is said",
            "without CAP_SYS_NICE one's own are herded, which is said",
            "without CAP_SYS_NICE nothing was done",
            "without CAP_SYS_PTRACE others' memory is refused with 4",
            "that it is CAP_SYS_PTRACE is said",
            "without CAP_SYS_PTRACE nothing was done",
            "without CAP_SYS_PTRACE threads alone are placed",
            "a later policy that would move pages is refused as well",
            "without CAP_SYS_PTRACE the affinity is given back",
            "without CAP_PERFMON counts are refused with 3",
            "that it is CAP_PERFMON is said",
            "without CAP_PERFMON nothing was done",
            "root's herd keeps five capabilities",
            "nothing that it starts gets any",
            "the program that a run starts has all of root's",
        ],
    );
}

/// The map is a real one and the kernel's, which has no sched_ext: what it says of the scheduler is made up. So this tests
/// that hints get there and are taken back, and not what the scheduler makes of them (docs/operators.md has that, measured).
#[test]
fn hints_are_given_to_threads_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let hints = folder.path().join("hints");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/guest/hints.c");
    let compiled = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .args([&hints, &source])
        .status();
    assert!(
        compiled
            .expect("gcc is installed; run `make setup`")
            .success()
    );
    let script = include_str!("guest/hints.sh");
    assert_says(
        &["--real-time", "--limit", "8m"],
        &format!("HINTS={}\n{script}", hints.display()),
        &[
            "without sched_ext, hints are refused: no sched_ext",
            "beside another scheduler, hints are refused: the sched_ext scheduler lavd runs",
            "nothing was done until then",
            "a placed thread has a hint",
            "its affinity is as found",
            "the thread of another has none",
            "after SIGTERM it prefers no place",
            "after kill -9 it has its hint still",
            "after release it prefers no place",
            "the next run takes hints back that were left",
            "what is no map is refused: cannot open the map of hints",
        ],
    );
}

/// Policies that need counters or single accesses are refused in real time; on the model and on traces,
/// all of them run on such machines (`crates/numaherd/tests/it/uneven.rs`).
#[test]
fn policies_and_views_are_at_home_on_uneven_nodes() {
    assert_says(
        &["--machine", "lab-uneven", "--real-time", "--limit", "10m"],
        include_str!("guest/uneven.sh"),
        &[
            "a node without memory is shown",
            "a node without CPUs is shown",
            "the doctor counts the nodes with memory",
            "ran 7, missing signals for 15",
            "new pages are spread over the nodes with memory",
            "no page is on the node without memory",
            "a run is explained, shown and reported",
        ],
    );
}

#[test]
fn cold_memory_goes_to_a_node_without_cpus_and_comes_back_when_it_is_used() {
    assert_says(
        &["--machine", "lab-uneven", "--limit", "8m"],
        include_str!("guest/tiered.sh"),
        &[
            "before, what is used is apart",
            "of what rests, a part is apart",
            "what its user gave a place stays",
            "what is used is near",
            "tiered: cold",
            "tiered: used",
        ],
    );
}
