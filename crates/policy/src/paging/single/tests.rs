//! Wishes made into orders.

use super::*;
use crate::paging::bench::told;
use crate::rules::Rule;
use crate::words;
use numaherd_testing::Scene;
use numaherd_world::{PageFailure, Unmanaged};
use proptest::prelude::*;

const RULE: Rule = Rule {
    name: "test",
    source: "test",
    what: "test",
};

/// Two nodes; process 1 with threads 0 and 1, process 2 with thread 2.
fn scene() -> Scene {
    let mut scene = Scene::uniform(2, 2);
    for (process, cpu) in [(1, 0), (1, 1), (2, 2)] {
        scene.thread(process, 1.0, cpu);
        scene.home(process, "p", 0);
    }
    scene
}

fn seen(scene: &Scene) -> SinglePages {
    let mut pages = SinglePages::default();
    pages.see(&[], &scene.snapshot);
    pages
}

fn wish(process: u32, tid: u32, page: u64, to: u32) -> Wish<'static> {
    Wish {
        process: Scene::process(process),
        thread: numaherd_testing::tid(tid),
        page,
        to: NodeId(to),
        stays: false,
        time_ns: 0,
        sample: None,
    }
}

fn ordered(
    pages: &mut SinglePages,
    scene: &Scene,
    now_ns: u64,
    wishes: &[Wish<'_>],
) -> Vec<PageOrder> {
    let reason = |_: &Wish<'_>, pages| RULE.because(words!("{pages}", pages = pages));
    pages.orders(wishes.to_vec(), &scene.topology, now_ns, &reason)
}

#[test]
fn neighbours_become_one_order_and_the_last_wish_for_a_page_counts() {
    let scene = scene();
    let wishes = [
        wish(1, 0, 7, 0),
        wish(1, 1, 6, 1),
        wish(1, 0, 9, 1),
        wish(2, 2, 8, 1),
        wish(1, 0, 7, 1),
        wish(1, 0, 10, 0),
    ];
    let orders = ordered(&mut seen(&scene), &scene, 0, &wishes);
    assert_eq!(told(&orders), [(6, 2, 1), (9, 1, 1), (10, 1, 0), (8, 1, 1)]);
    assert_eq!(orders[0].thread.tid, 1);
    assert_eq!(orders[0].why, "pages 0x6 to 0x7");
    assert_eq!(orders[3].process, Scene::process(2));
}

#[test]
fn an_order_stands_for_a_second_and_another_ends_it() {
    let scene = scene();
    let mut pages = seen(&scene);
    let mut on = |now_ns, to| told(&ordered(&mut pages, &scene, now_ns, &[wish(1, 0, 5, to)]));
    assert_eq!(on(0, 1), [(5, 1, 1)]);
    assert_eq!(on(STANDS_NS - 1, 1), []);
    assert_eq!(on(STANDS_NS - 1, 0), [(5, 1, 0)], "elsewhere at once");
    assert_eq!(on(STANDS_NS, 1), [(5, 1, 1)], "and back");
    assert_eq!(
        on(2 * STANDS_NS - 1, 1),
        [],
        "the first order's age is not this one's"
    );
    assert_eq!(on(2 * STANDS_NS, 1), [(5, 1, 1)]);
}

#[test]
fn what_did_not_go_may_be_ordered_again_at_once() {
    let scene = scene();
    let mut pages = seen(&scene);
    let wishes: Vec<Wish<'_>> = (10..14).map(|page| wish(1, 0, page, 1)).collect();
    let outcome = |order: &PageOrder, failed, not_tried| PageOutcome {
        failed,
        not_tried,
        ..PageOutcome::begun(order)
    };
    let busy = BTreeMap::from([(PageFailure::Busy, 1)]);
    for (failed, not_tried, again) in [
        (busy, 0, true),
        (BTreeMap::new(), 4, true),
        (BTreeMap::new(), 0, false),
    ] {
        let orders = ordered(&mut pages, &scene, 0, &wishes);
        assert_eq!(told(&orders), [(10, 4, 1)]);
        pages.moved(&[outcome(&orders[0], failed, not_tried)]);
        let next = ordered(&mut pages, &scene, 0, &wishes);
        assert_eq!(!next.is_empty(), again);
        pages.moved(&[outcome(&orders[0], BTreeMap::new(), 4)]);
    }
}

#[test]
fn a_thread_that_cannot_be_named_is_stood_in_for() {
    let mut scene = scene();
    scene.snapshot.threads[0].unmanaged = Some(Unmanaged::other("real-time"));
    let mut pages = seen(&scene);
    let orders = ordered(
        &mut pages,
        &scene,
        0,
        &[wish(1, 0, 5, 1), wish(1, 77, 7, 1)],
    );
    let threads: Vec<u32> = orders.iter().map(|order| order.thread.tid).collect();
    assert_eq!(threads, [1, 1]);
    scene.snapshot.threads[1].unmanaged = Some(Unmanaged::other("real-time"));
    let mut pages = seen(&scene);
    assert_eq!(ordered(&mut pages, &scene, 0, &[wish(1, 1, 5, 1)]), []);
}

#[test]
fn nothing_for_unknown_processes_or_nodes_that_cannot_be_had() {
    let mut scene = scene();
    scene.snapshot.processes[1].allowed_nodes = Arc::new([NodeId(0)].into_iter().collect());
    let mut pages = seen(&scene);
    let wishes = [wish(9, 0, 5, 1), wish(2, 2, 5, 1), wish(1, 0, 5, 7)];
    assert_eq!(ordered(&mut pages, &scene, 0, &wishes), []);
    // What was refused does not stand.
    scene.snapshot.processes[1].allowed_nodes = Arc::new(scene.topology.memory_nodes());
    pages.see(&[], &scene.snapshot);
    assert_eq!(told(&ordered(&mut pages, &scene, 0, &wishes)), [(5, 1, 1)]);
}

proptest! {
    /// Every order is for wishes, no page is in two of one call, and each page goes where its last wish
    /// says.
    #[test]
    fn orders_are_wishes(wished in prop::collection::vec((1u32..4, 0u64..30, 0u32..3), 0..80)) {
        let scene = scene();
        let wishes: Vec<Wish<'_>> = wished.iter().map(|&(process, page, to)| wish(process, 0, page, to)).collect();
        let mut last = BTreeMap::new();
        for wish in &wishes {
            last.insert((wish.process, wish.page), wish.to);
        }
        last.retain(|(process, _), to| process.pid < 3 && to.0 < 2);
        let mut found = BTreeMap::new();
        for order in ordered(&mut seen(&scene), &scene, 0, &wishes) {
            let Pages::Window { first, count } = order.pages else { panic!("single pages") };
            for page in first..first + count {
                prop_assert_eq!(found.insert((order.process, page), order.to), None);
            }
        }
        prop_assert_eq!(found, last);
    }
}
