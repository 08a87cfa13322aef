//! The IPM unit of a guest's machine, with real threads, pages and page moves: what a program reads
//! from `/dev/numaherd_ipm`.
//!
//! These need `make setup` and the plugin (`cargo build --profile lab -p numaherd-lab-plugin`).

use std::collections::BTreeSet;
use std::time::Duration;

use numaherd_hardware::IpmConfig;
use numaherd_lab_launcher::{Command, Ending, RunOptions};
use numaherd_topology::Machine;

use crate::programs;

/// Pages of an array: twice what a TLB of the preset holds.
const PAGES: u64 = 1024;
const PAGE_BYTES: u64 = 4096;

/// CPUs 0 to 3 of the preset are on node 0, the others on node 1. Residency is counted finely, few
/// evictions are dropped though nothing is done but evict, and a page should move as soon as another
/// node uses it twice as much.
fn options() -> RunOptions {
    let machine = Machine::preset("lab-2x4").expect("a preset");
    let mut options = RunOptions::new(machine, Command::inherited::<&str>([]).expect("here"));
    options.memory_mib = Some(512);
    options.numa_balancing = Some(false);
    options.ipm = Some(IpmConfig {
        cr_shift: 8,
        cr_mig: 1,
        eviction_cycles: 10,
        threads: 4,
        ..IpmConfig::of_paper()
    });
    options
}

/// Lines that begin with a word, as the numbers after it.
fn lines(text: &str, word: &str) -> Vec<Vec<u64>> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(word));
    let numbers = |line: &str| -> Vec<u64> {
        let words = line.split_whitespace();
        words.map(|word| word.parse().expect("a number")).collect()
    };
    lines.map(numbers).collect()
}

/// Pages of an array that are to be moved from node 0 to node 1; nothing else is asked for.
fn to_move(text: &str, array: u64) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    for notification in lines(text, "notification") {
        let [_, _, from, to, address, page_bytes, _] = notification[..] else {
            panic!("{notification:?}");
        };
        if (array..array + PAGES * PAGE_BYTES).contains(&address) {
            assert_eq!(
                (from, to, page_bytes),
                (0, 1, PAGE_BYTES),
                "{notification:?}"
            );
            assert!(pages.insert(address), "{address:#x} is told twice");
        }
    }
    pages
}

#[test]
fn who_shares_pages_and_where_they_belong_is_told_until_they_are_there() {
    let guest = options().boot().unwrap_or_else(|error| panic!("{error}"));
    guest
        .start_model()
        .unwrap_or_else(|error| panic!("{error}"));
    let program = programs::build("share", "share").display().to_string();
    // Two threads on node 1 share the first array, two on node 0 have one for each.
    let words = format!("{program} {PAGES} 20 1 1 2 2 4 0 5 0");
    let command = Command::inherited(words.split(' ')).expect("here");
    let output = guest
        .output(&command, Some(Duration::from_secs(120)))
        .unwrap_or_else(|error| panic!("{error}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.ending, Ending::Exited(0), "{said}");

    let arrays: Vec<u64> = lines(&text, "array").iter().map(|line| line[0]).collect();
    let threads: Vec<u64> = lines(&text, "thread").iter().map(|line| line[0]).collect();
    let (before, after) = text
        .split_once("before\n")
        .and_then(|(_, rest)| rest.split_once("after\n"))
        .expect("both parts");

    check_sharing(before, &threads);
    let told = to_move(before, arrays[0]).len() as u64;
    assert!(
        told * 10 >= PAGES * 9,
        "{told} of {PAGES} pages are to move"
    );
    for &array in &arrays[1..] {
        assert!(
            to_move(before, array).is_empty(),
            "its thread is where it is"
        );
    }
    // All arrays have gone to node 1 by then.
    assert!(
        to_move(after, arrays[0]).is_empty(),
        "it is where it belongs"
    );
    guest.stop().expect("it stops");
}

/// The two that walk through the same array share by far the most; the others only what all threads
/// of a program do.
fn check_sharing(told: &str, threads: &[u64]) {
    let pairs = lines(told, "sharing");
    let affinity = |one: u64, other: u64| -> u64 {
        let both = BTreeSet::from([one, other]);
        let of_both = pairs
            .iter()
            .filter(|pair| BTreeSet::from([pair[1], pair[2]]) == both);
        of_both.map(|pair| pair[3]).sum()
    };
    let together = affinity(threads[2], threads[3]);
    for (one, other) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3)] {
        let apart = affinity(threads[one], threads[other]);
        assert!(
            together > 100 * apart,
            "{together} together, {apart} of {one} and {other}"
        );
    }
    let counts = lines(told, "counts");
    let [misses, evictions, dropped] = counts[0][..] else {
        panic!("{counts:?}");
    };
    assert!(misses > evictions && evictions > dropped && evictions > 3 * 8 * PAGES);
}

#[test]
fn without_a_unit_there_is_no_device() {
    let mut options = options();
    options.ipm = None;
    let guest = options.boot().unwrap_or_else(|error| panic!("{error}"));
    let command = Command::inherited(["test", "!", "-e", "/dev/numaherd_ipm"]).expect("here");
    let output = guest
        .output(&command, None)
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(output.ending, Ending::Exited(0));
    guest.stop().expect("it stops");
}
