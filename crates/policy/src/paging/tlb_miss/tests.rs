//! Misses with and without history.

use super::*;
use crate::paging::bench::Bench;
use crate::paging::driver::Driven;
use crate::policy::Paging;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn history() -> Bench<Driven<TlbMissHistory>> {
    Bench::new(Driven::new(TlbMissHistory::new(&Settings::default())))
}

#[test]
fn a_page_goes_to_who_missed_on_it_last_and_stays_with_who_has_it() {
    let mut bench = Bench::new(Driven::new(TlbMiss));
    // Threads 0 and 1 are on node 0, threads 2 and 3 on node 1.
    let misses = [
        (2, 5, 0),
        (0, 6, 0),
        (2, 7, 0),
        (1, 7, 0),
        (0, 8, 0),
        (3, 8, 0),
    ];
    assert_eq!(bench.on(&misses), [(5, 1, 1), (8, 1, 1)]);
}

#[test]
fn without_history_every_other_miss_moves_a_page_to_and_fro() {
    let mut bench = Bench::new(Driven::new(TlbMiss));
    let moves: Vec<u32> = (0..10)
        .flat_map(|round| bench.on(&[(if round % 2 == 0 { 2 } else { 0 }, 5, round % 2)]))
        .map(|(_, _, to)| to)
        .collect();
    assert_eq!(moves, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
}

#[test]
fn with_history_it_stays() {
    let mut bench = history();
    for round in 0..100 {
        let who = if round % 2 == 0 { 2 } else { 0 };
        assert_eq!(bench.on(&[(who, 5, 0)]), []);
    }
    // And goes where all misses come from by now.
    let moves = (0..1000).find(|_| !bench.on(&[(2, 5, 0)]).is_empty());
    assert!(moves.is_some_and(|misses| misses > 3), "{moves:?}");
    assert!(bench.paging.needs().finds_sharing);
    assert_eq!(bench.paging.shared().len(), 1);
}

proptest! {
    /// Exactly the pages whose last miss came from another node than their own are ordered there.
    #[test]
    fn the_last_miss_of_a_call_decides(misses in prop::collection::vec((0u32..4, 0u64..10), 0..60)) {
        let mut bench = Bench::new(Driven::new(TlbMiss));
        let home = |page: u64| (page % 2) as u32;
        let accesses: Vec<_> = misses.iter().map(|&(tid, page)| (tid, page, home(page))).collect();
        let mut expected = BTreeMap::new();
        for &(tid, page, _) in &accesses {
            expected.insert(page, tid / 2);
        }
        expected.retain(|&page, to| *to != home(page));
        let mut found = BTreeMap::new();
        for (first, count, to) in bench.on(&accesses) {
            found.extend((first..first + count).map(|page| (page, to)));
        }
        prop_assert_eq!(found, expected);
    }
}
