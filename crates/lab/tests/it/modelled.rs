//! A guest with a model: what its perf counts, how its time runs, against what is known.
//!
//! The guest's side is `programs/walk.c`, which follows random cycles through more memory than the
//! caches hold: every access is a miss, and none begins before the one before it has its data. So
//! the number of misses is known, and so is the time: the configured latency of each access. The
//! prefetcher is off, or it would fetch some lines of a random walk by chance.
//!
//! These need `make setup` and the plugin (`cargo build --profile lab -p numaherd-lab-plugin`).

use std::path::Path;
use std::time::Duration;

use numaherd_lab_launcher::{Command, Ending, Guest};

use crate::walked::{Said, boot, build, said, square};

/// Lines in a walk: 4 MiB, twice the preset's last-level cache.
const LINES: u64 = 65_536;
/// Times that a walk goes round while it is counted.
const ROUNDS: u64 = 2;
/// Accesses of such a walk, each of which is a miss.
const ACCESSES: u64 = LINES * ROUNDS;
/// Times that a walk goes round while it is timed: the guest's clock goes in steps of a fifth of a
/// millisecond or so, which is to be far below 1 %.
const TIMED_ROUNDS: u64 = 8;
/// Misses beyond those of the walk that are let pass: of the loop's own surroundings, and what an
/// interrupt's way back touches.
const STRAYS: u64 = 150;

/// Runs a walk of threads, each given as the CPU it walks on and the CPU whose node holds its
/// memory.
fn walk(
    guest: &Guest,
    program: &Path,
    rounds: u64,
    period: u64,
    threads: &[(u32, u32)],
) -> Vec<Said> {
    let numbers = [LINES, rounds, period].into_iter();
    let places = threads
        .iter()
        .flat_map(|&(cpu, home)| [u64::from(cpu), u64::from(home)]);
    let words = [program.display().to_string()]
        .into_iter()
        .chain(numbers.chain(places).map(|number| number.to_string()));
    said(guest, words)
}

/// That `value` is `expected`, or up to `surplus` more.
#[track_caller]
fn check_count(said: &Said, name: &str, expected: u64, surplus: u64) {
    let value = said[name];
    assert!(
        (expected..=expected + surplus).contains(&value),
        "{name} is {value}, not {expected} (and up to {surplus} more): {said:?}"
    );
}

/// Every miss of the walk is counted, once, by whatever name it is asked for, and as what it is.
fn check_counts(said: &Said, accesses: u64, remote: bool) {
    check_count(said, "misses", accesses, STRAYS);
    // Counters are switched on one after another, with a few instructions in between.
    for (generic, own, surplus) in [
        ("generic_misses", "misses", 20),
        ("generic_remote", "remote", 20),
        ("generic_instructions", "user_instructions", 1000),
    ] {
        assert!(
            said[generic].abs_diff(said[own]) <= surplus,
            "{generic} against {own}: {said:?}"
        );
    }
    let (most, few) = if remote {
        ("remote", "local")
    } else {
        ("local", "remote")
    };
    check_count(said, most, accesses, STRAYS);
    check_count(said, few, 0, STRAYS);
}

/// An access takes the configured latency, within 1 %.
fn check_latency(said: &Said, accesses: u64, latency_ns: f64) {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let measured = said["ns"] as f64 / accesses as f64;
    assert!(
        (measured / latency_ns - 1.0).abs() < 0.01,
        "an access took {measured:.2} ns, {latency_ns} are configured: {said:?}"
    );
}

/// Every sample is of its own thread, CPU and memory, later than the one before, and as long as
/// an access is.
fn check_samples(said: &Said, period: u64, remote: bool, least_ns: u64) {
    check_count(said, "samples", ACCESSES / period, 2);
    let samples = said["samples"];
    for wrong in [
        "wrong_thread",
        "wrong_cpu",
        "others",
        "not_later",
        "too_early",
        "too_late",
    ] {
        assert_eq!(said[wrong], 0, "{wrong}: {said:?}");
    }
    // A stray miss may be the one in a hundred that is sampled.
    assert!(said["outside"] <= 3, "{said:?}");
    let expected = if remote { samples } else { 0 };
    assert!(said["remote_samples"].abs_diff(expected) <= 3, "{said:?}");
    assert!(said["least_weight"] >= least_ns.min(90), "{said:?}");
    assert!(said["weight"] >= (samples - 3) * least_ns, "{said:?}");
}

/// What perf counted for a thread in its whole life is what the plugin counted for it, but for the
/// instructions before its counters are on and after they are read.
fn check_against_report(said: &Said, report: &serde_json::Value) {
    let threads = report["threads"]
        .as_array()
        .expect("the report lists threads");
    let own: Vec<_> = threads
        .iter()
        .filter(|entry| entry["tid"] == said["tid"])
        .collect();
    assert_eq!(own.len(), 1, "thread {} in {threads:?}", said["tid"]);
    for (name, life, surplus) in [
        ("llc_miss", "life_misses", 200),
        ("user_instructions", "life_user_instructions", 10_000),
    ] {
        let plugin = own[0][name].as_u64().expect("a count");
        let perf = said[life];
        assert!(
            (perf..=perf + surplus).contains(&plugin),
            "{name}: perf {perf}, plugin {plugin}"
        );
    }
}

#[test]
fn counts_times_and_samples_are_those_of_the_model() {
    let machine = square();
    let program = build("walk");
    let guest = boot(&machine);
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));

    // CPU 0 is on node 0, CPU 2 on node 1, CPU 6 on node 3: no hop, one, two.
    for (home, latency_ns) in [(0, 90.0), (2, 150.0), (6, 210.0)] {
        // The kernel may interrupt a walk; the shortest of three was left alone.
        let walks =
            [(); 3].map(|()| walk(&guest, &program, TIMED_ROUNDS, 0, &[(0, home)]).remove(0));
        for said in &walks {
            check_counts(said, LINES * TIMED_ROUNDS, home != 0);
        }
        let shortest = walks.iter().min_by_key(|said| said["ns"]).expect("three");
        check_latency(shortest, LINES * TIMED_ROUNDS, latency_ns);
    }

    let period = 100;
    let threads = [(0, 0), (2, 6), (5, 0)];
    let mut all = walk(&guest, &program, ROUNDS, period, &threads);
    for (said, (latency_ns, remote)) in all.iter().zip([(90, false), (150, true), (150, true)]) {
        check_samples(said, period, remote, latency_ns);
    }

    // Two threads share CPU 4, one with its memory near, one far: each has its own counts.
    let shared = walk(&guest, &program, ROUNDS, period, &[(4, 4), (4, 2)]);
    for (said, remote) in shared.iter().zip([false, true]) {
        check_count(said, "misses", ACCESSES, ACCESSES / 100);
        check_count(
            said,
            if remote { "remote" } else { "local" },
            ACCESSES,
            ACCESSES / 100,
        );
        assert_eq!(said["wrong_thread"], 0, "{said:?}");
    }
    all.extend(shared);

    guest.stop_model().unwrap_or_else(|error| panic!("{error}"));
    let report = guest
        .stop()
        .expect("it stops")
        .report
        .expect("there is a model");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    for said in &all {
        check_against_report(said, &report);
    }
}

#[test]
fn with_the_gate_closed_nothing_is_counted() {
    let machine = square();
    let guest = boot(&machine);
    let said = walk(&guest, &build("walk"), ROUNDS, 0, &[(0, 0)]);
    assert_eq!((said[0]["misses"], said[0]["user_instructions"]), (0, 0));
    guest.stop().expect("it stops");
}

/// Every move of the gate drops all that QEMU has translated, and only vCPUs that run code are stopped for it.
#[test]
fn the_gate_moves_while_cpus_fall_asleep_and_wake() {
    let guest = boot(&square());
    let sleepers = "for cpu in 0 1 2 3 4 5 6 7; do \
                    taskset -c $cpu sh -c 'while :; do sleep 0.0001; done' & done";
    let sleepers = Command::inherited(["sh", "-c", sleepers]).expect("here");
    let output = guest.output(&sleepers, Some(Duration::from_secs(60)));
    assert_eq!(output.expect("they start").ending, Ending::Exited(0));
    for _ in 0..10 {
        guest.start_model().expect("the gate opens");
        guest.stop_model().expect("the gate closes");
    }
}
