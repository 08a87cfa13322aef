//! Marks, and what takes them.

use super::*;
use crate::paging::bench::Bench;
use crate::paging::driver::Driven;
use crate::policy::Paging;
use numaherd_topology::NodeId;
use numaherd_world::{PageOutcome, Pages};
use proptest::prelude::*;

fn bench() -> Bench<Driven<NextTouch>> {
    Bench::new(Driven::new(NextTouch::default()))
}

/// Thread 2 has come to node 1 from another.
fn moved(bench: &mut Bench<Driven<NextTouch>>, from: u32) {
    let placed = [PlacedThread {
        thread: numaherd_testing::tid(2),
        process: numaherd_testing::Scene::process(1),
        node: NodeId(1),
        moved_from: Some(NodeId(from)),
    }];
    assert_eq!(bench.paging.placed(&placed, &bench.scene.snapshot), []);
}

#[test]
fn the_first_to_touch_a_page_draws_it_once() {
    let mut bench = bench();
    // Page 6 is touched by its own node first.
    assert_eq!(
        bench.on(&[(2, 5, 0), (0, 5, 0), (0, 6, 0), (2, 6, 0)]),
        [(5, 1, 1)]
    );
    bench.later();
    assert_eq!(bench.on(&[(0, 5, 1), (2, 6, 0)]), []);
}

#[test]
fn a_thread_that_was_moved_marks_the_pages_anew() {
    let mut bench = bench();
    assert_eq!(bench.on(&[(0, 5, 0)]), []);
    moved(&mut bench, 1);
    assert_eq!(bench.on(&[(2, 5, 0)]), [], "within its node");
    moved(&mut bench, 0);
    assert_eq!(bench.on(&[(2, 5, 0)]), [(5, 1, 1)]);
}

#[test]
fn a_page_that_was_not_tried_keeps_its_mark() {
    let mut bench = bench();
    assert_eq!(bench.on(&[(2, 5, 0)]), [(5, 1, 1)]);
    bench.paging.moved(&[PageOutcome {
        process: numaherd_testing::Scene::process(1),
        thread: numaherd_testing::tid(2),
        pages: Pages::Window { first: 5, count: 1 },
        to: NodeId(1),
        moved: 0,
        already_there: 0,
        failed: std::collections::BTreeMap::new(),
        not_tried: 1,
        took_ns: 0,
        longest_batch_ns: 0,
        error: None,
    }]);
    assert_eq!(bench.on(&[(3, 5, 0)]), [(5, 1, 1)]);
}

proptest! {
    #[test]
    fn no_page_moves_twice_for_one_marking(touches in prop::collection::vec((0u32..4, 0u64..6), 0..60)) {
        let mut bench = bench();
        let mut first: HashMap<u64, u32> = HashMap::new();
        for &(tid, page) in &touches {
            bench.later();
            let is_first = !first.contains_key(&page);
            let node = *first.entry(page).or_insert(tid / 2);
            let expected = if is_first && node == 1 { vec![(page, 1, 1)] } else { vec![] };
            prop_assert_eq!(bench.on(&[(tid, page, 0)]), expected);
        }
    }
}
