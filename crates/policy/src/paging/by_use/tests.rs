use numaherd_testing::Scene;
use numaherd_world::PageOrder;
use proptest::prelude::*;
use rand::SeedableRng;

use super::*;
use crate::policy::{Paging, Random};

/// Four threads of process 1, one on each node.
fn scene() -> Scene {
    let mut scene = Scene::uniform(4, 1);
    for cpu in 0..4 {
        scene.thread(1, 100.0, cpu);
    }
    scene
}

fn placed(scene: &Scene) -> Vec<PlacedThread> {
    let threads = scene.snapshot.threads.iter();
    let placed = |thread: &numaherd_world::Thread| PlacedThread {
        thread: thread.id,
        process: thread.process,
        node: NodeId(thread.cpu.0),
        moved_from: None,
    };
    threads.map(placed).collect()
}

/// The orders that accesses (thread, page) lead to, all pages being on node 0.
fn orders(scene: &Scene, accesses: &[(u32, u64)]) -> Vec<PageOrder> {
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(scene), &scene.snapshot);
    let samples: Vec<_> = (accesses.iter().zip(1..))
        .map(|(&(thread, page), time_ns)| scene.access(thread, thread, page, 0, time_ns))
        .collect();
    paging.sampled(&samples, &scene.topology, &mut Random::seed_from_u64(1))
}

#[test]
fn what_one_node_uses_goes_there() {
    let orders = orders(&scene(), &[(2, 700); 9]);
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].to, NodeId(2));
    let first = BLOCK;
    let count = BLOCK;
    assert_eq!(orders[0].pages, Pages::Window { first, count });
    assert_eq!(orders[0].rule, "by-use: private");
}

#[test]
fn what_all_use_is_spread_block_by_block() {
    let of_block = |block: u64| (0..8).map(move |thread| (thread % 4, block * BLOCK + 7));
    let accesses: Vec<_> = (1..5).flat_map(of_block).collect();
    let to: Vec<u32> = orders(&scene(), &accesses)
        .iter()
        .map(|order| order.to.0)
        .collect();
    // Block 4 is the turn of node 0, where it is already.
    assert_eq!(to, [1, 2, 3]);
}

#[test]
fn a_process_on_one_node_is_left_to_the_placement() {
    let mut scene = scene();
    for thread in &mut scene.snapshot.threads {
        thread.cpu = numaherd_topology::CpuId(1);
    }
    assert_eq!(orders(&scene, &[(1, 700); 9]), []);
}

proptest! {
    #[test]
    fn a_block_is_ordered_once_and_to_a_node_of_the_process(
        accesses in proptest::collection::vec((0u32..4, 0u64..4096), 0..300),
    ) {
        let orders = orders(&scene(), &accesses);
        let mut seen = std::collections::BTreeSet::new();
        for order in orders {
            let Pages::Window { first, count } = order.pages else {
                panic!("a block");
            };
            prop_assert_eq!((first % BLOCK, count), (0, BLOCK));
            prop_assert!(seen.insert(first));
            prop_assert!(order.to.0 < 4);
        }
    }
}
