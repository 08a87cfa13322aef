// SPDX-License-Identifier: GPL-2.0-or-later
//! The unit with processes, pages and readers. Two cores on each of two nodes.

use super::*;
use numaherd_hardware::{Tlb, TlbLevel, TlbManagement};

const PAGE: u64 = 4096;

fn machine() -> Config {
    Config {
        tlb: Some(Tlb {
            page_bytes: PAGE,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: TlbLevel {
                entries: 4,
                ways: 4,
                hit_ns: 0.0,
            },
            l2: None,
        }),
        ..Config::of_equal_nodes(2, vec![vec![100.0; 2]; 2], 10.0)
    }
}

fn unit() -> Unit {
    let config = IpmConfig {
        cr_shift: 0,
        threads: 4,
        eviction_cycles: 1,
        ..IpmConfig::of_paper()
    };
    Unit::new(config, &machine()).unwrap()
}

/// A thread keeps the page of an address, which is on `home`, in entry 0 of a core's TLB for a time.
fn reside(
    unit: &mut Unit,
    core: usize,
    thread: (u32, u32),
    address: u64,
    home: usize,
    from: u64,
    to: u64,
) {
    let space = unit.run(core, thread);
    let page = unit.numbering().page(space, address);
    let other = unit.numbering().page(space, 77 << 30);
    let fill = |page, evicted| Fill {
        page,
        entry: 0,
        evicted,
    };
    unit.miss(core, &fill(page, None), Some(home), from, from);
    unit.miss(core, &fill(other, Some(page)), Some(home), to, to);
}

fn records(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut rest = bytes;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (kind, bytes) = (word(8), word(12) as usize);
        records.push((kind, rest[16..bytes].to_vec()));
        rest = &rest[bytes..];
    }
    records
}

/// All that there is to read.
fn all(unit: &mut Unit) -> Vec<(u32, Vec<u8>)> {
    records(&unit.read(protocol::LONGEST).unwrap())
}

fn words(bytes: &[u8]) -> Vec<u32> {
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect()
}

/// The records of kind 2 that a request for the sharing yields, as words.
fn sharing(unit: &mut Unit) -> Vec<Vec<u32>> {
    unit.ask_for_sharing(9);
    let told = all(unit);
    assert_eq!(told[0].0, 3, "counts come first");
    let rest = told[1..].iter().filter(|(kind, _)| *kind == 2);
    rest.map(|(_, fields)| words(fields)).collect()
}

#[test]
fn threads_that_use_the_same_page_are_told_with_their_affinity() {
    let mut unit = unit();
    reside(&mut unit, 0, (11, 10), 5 * PAGE, 0, 0, 100);
    reside(&mut unit, 1, (12, 10), 5 * PAGE, 0, 100, 150);
    // The same address of another process is another page.
    reside(&mut unit, 1, (20, 20), 5 * PAGE, 0, 200, 300);
    let told = sharing(&mut unit);
    // Process, flags, threads, pairs, time; a pair's threads and affinity.
    assert_eq!(told[0], [10, 3, 2, 1, 9, 0, 11, 12, 50, 0]);
    assert_eq!(told[1], [20, 3, 1, 0, 9, 0]);

    unit.end_thread((12, 10));
    assert_eq!(sharing(&mut unit)[0], [10, 3, 1, 0, 9, 0]);
    unit.end_thread((11, 10));
    assert_eq!(
        sharing(&mut unit),
        [[20, 3, 1, 0, 9, 0]],
        "a process ends with its last thread"
    );
}

#[test]
fn a_page_that_another_node_uses_is_told_until_it_is_there() {
    let mut unit = unit();
    let thread = (11, 10);
    reside(&mut unit, 2, thread, 5 * PAGE, 0, 0, 1000);
    reside(&mut unit, 2, thread, 5 * PAGE, 0, 2000, 3000);
    let told = all(&mut unit);
    assert_eq!(told.len(), 1, "found twice, told once");
    assert_eq!(told[0].0, 1);
    // Process, thread, from, to; address, bytes of a page, the time it was found last.
    let expected = [10, 11, 0, 1, 5 * PAGE as u32, 0, PAGE as u32, 0, 3000, 0];
    assert_eq!(words(&told[0].1), expected);
    assert!(all(&mut unit).is_empty());

    reside(&mut unit, 2, thread, 5 * PAGE, 0, 4000, 5000);
    let space = unit.run(2, thread);
    let page = unit.numbering().page(space, 5 * PAGE);
    unit.moved(2, page, None, Some(1));
    assert!(all(&mut unit).is_empty(), "it has been moved meanwhile");
    reside(&mut unit, 2, thread, 5 * PAGE, 1, 6000, 7000);
    assert!(all(&mut unit).is_empty(), "and is where it belongs");
}

#[test]
fn what_a_process_leaves_behind_is_told_to_nobody() {
    let mut unit = unit();
    reside(&mut unit, 2, (11, 10), 5 * PAGE, 0, 0, 1000);
    unit.end_process(10);
    assert!(all(&mut unit).is_empty());
    assert!(unit.homes.is_empty() && unit.owners.is_empty());
    // exec: the same process id, and no earlier history.
    reside(&mut unit, 2, (10, 10), 6 * PAGE, 1, 2000, 3000);
    assert_eq!(sharing(&mut unit), [[10, 3, 1, 0, 9, 0]]);
}

#[test]
fn a_reader_without_room_loses_nothing() {
    let mut unit = unit();
    for page in 1..4 {
        reside(
            &mut unit,
            2,
            (11, 10),
            page * PAGE,
            0,
            page * 10_000,
            page * 10_000 + 1000,
        );
    }
    assert_eq!(unit.read(55), None);
    unit.ask_for_sharing(0);
    assert_eq!(
        records(&unit.read(56).unwrap())[0].0,
        1,
        "the one held back comes first"
    );
    let kinds =
        |bytes: &[u8]| -> Vec<u32> { records(bytes).iter().map(|record| record.0).collect() };
    assert_eq!(kinds(&unit.read(120).unwrap()), [3, 2]);
    assert_eq!(kinds(&unit.read(120).unwrap()), [1, 1]);
    assert!(all(&mut unit).is_empty());
}

#[test]
fn a_vcpu_sees_that_a_page_has_moved_when_it_uses_it_again() {
    let mut frames = Frames::new(8);
    assert!(!frames.moved(1, 5 * PAGE + 8, 100 * PAGE + 8));
    assert!(!frames.moved(1, 5 * PAGE + 64, 100 * PAGE + 64));
    assert!(
        !frames.moved(2, 5 * PAGE, 200 * PAGE),
        "of another address space"
    );
    assert!(!frames.moved(1, 5 * PAGE, 100 * PAGE));
    assert!(frames.moved(1, 5 * PAGE, 101 * PAGE));
    assert!(!frames.moved(1, 5 * PAGE, 101 * PAGE));
    // Enough others in a row take its place.
    for page in 6..6 + 32 {
        assert!(!frames.moved(1, page * PAGE, page * PAGE));
    }
    assert!(!frames.moved(1, 5 * PAGE, 102 * PAGE));
}

#[test]
fn pages_of_address_spaces_are_kept_apart_for_any_size() {
    for page_bytes in [64, 4096, 16384, 1 << 21] {
        let numbering = Numbering::new(page_bytes);
        let address = (1 << 47) - page_bytes;
        for space in [0, 1, 12345] {
            let page = numbering.page(space, address + page_bytes - 1);
            assert_eq!(numbering.place(page), (space, address));
        }
    }
}
