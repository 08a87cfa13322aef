use numaherd_testing::Scene;
use numaherd_world::{PageFailure, PageOrder, Pages, Residency};
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
    let placed = |thread: &Thread| PlacedThread {
        thread: thread.id,
        process: thread.process,
        node: NodeId(thread.cpu.0),
        moved_from: None,
    };
    threads.map(placed).collect()
}

/// The orders that accesses (thread, page) lead to, all pages being on node 0.
fn orders(scene: &Scene, accesses: &[(u32, u64)]) -> Vec<PageOrder> {
    orders_where(scene, accesses, |_| 0)
}

/// The same where each page is on the node that is given for the thread.
fn orders_where(
    scene: &Scene,
    accesses: &[(u32, u64)],
    home: impl Fn(u32) -> u32,
) -> Vec<PageOrder> {
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(scene), &scene.snapshot);
    let one_by_one = accesses.chunks(1);
    one_by_one
        .flat_map(|access| batch(&mut paging, scene, access, &home))
        .collect()
}

/// The orders that a batch of accesses leads to.
fn batch(
    paging: &mut Driven<ByUse, Blocks>,
    scene: &Scene,
    accesses: &[(u32, u64)],
    home: impl Fn(u32) -> u32,
) -> Vec<PageOrder> {
    let sample = |&(thread, page): &(u32, u64)| scene.access(thread, thread, page, home(thread), 1);
    let samples: Vec<_> = accesses.iter().map(sample).collect();
    paging.sampled(&samples, &scene.topology, &mut Random::seed_from_u64(1))
}

#[test]
fn what_one_node_uses_goes_there() {
    let orders = orders(&scene(), &[(2, 700); 9]);
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].to, NodeId(2));
    let first = BLOCK_PAGES;
    let count = BLOCK_PAGES;
    assert_eq!(orders[0].pages, Pages::Window { first, count });
    assert_eq!(orders[0].rule, "by-use: private");
}

#[test]
fn a_block_stays_while_most_of_its_accesses_are_local() {
    let moves = |remote: usize| {
        let scene = scene();
        let mut paging = ByUse::paging(&Settings::default());
        paging.placed(&placed(&scene), &scene.snapshot);
        let mut access = |home: u32| batch(&mut paging, &scene, &[(2, 700)], |_| home).len();
        let homes = (0..8).map(|nth| if nth < remote { 0 } else { 2 });
        homes.rev().map(&mut access).sum::<usize>() > 0
    };
    assert!(!moves(0) && !moves(2));
    assert!(moves(3));
}

#[test]
fn memory_stays_while_a_busy_thread_of_its_process_is_not_placed() {
    for (share, orders) in [(0.5, 0), (0.05, 1)] {
        let mut scene = scene();
        let placed = placed(&scene);
        scene.thread(1, 100.0, 0);
        scene.snapshot.threads.last_mut().unwrap().cpu_share = share;
        let mut paging = ByUse::paging(&Settings::default());
        paging.placed(&placed, &scene.snapshot);
        let samples: Vec<_> = (1..10)
            .map(|time_ns| scene.access(2, 2, 700, 0, time_ns))
            .collect();
        let random = &mut Random::seed_from_u64(1);
        assert_eq!(
            paging.sampled(&samples, &scene.topology, random).len(),
            orders
        );
    }
}

#[test]
fn what_its_user_gave_a_place_stays() {
    let mut scene = scene();
    scene.home(1, "spread", 0);
    scene.snapshot.processes[0].memory_policy = Some("interleave:0-3".into());
    assert_eq!(orders(&scene, &[(2, 700); 9]), []);
}

#[test]
fn what_all_use_of_large_memory_goes_to_nodes_in_turn() {
    let of_block = |block: u64| (0..8).map(move |thread| (thread % 4, block * BLOCK_PAGES + 7));
    let accesses: Vec<_> = (1..5).flat_map(of_block).collect();
    let orders = orders(&scene(), &accesses);
    assert!(orders.iter().any(is_at_large));
    // Block 1 was the only one that was known. Block 4 is the turn of node 0, where it is already.
    assert_eq!(blocks_to(&orders), [2, 3]);
}

/// Too little memory to be dealt at once.
fn small(pages: u64) -> Scene {
    let mut scene = scene();
    scene.home(1, "small", 0);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), pages)],
        kinds: None,
    });
    scene
}

/// Where blocks on these nodes, which these threads use in turn, are ordered to.
fn used_by(scene: &Scene, threads: &[u32], lie: &[u32]) -> Vec<u32> {
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(scene), &scene.snapshot);
    let mut orders = Vec::new();
    for thread in (0..8).map(|turn| threads[turn % threads.len()]) {
        for (block, &home) in lie.iter().enumerate() {
            let page = 4 * block as u64 * BLOCK_PAGES;
            orders.extend(batch(&mut paging, scene, &[(thread, page)], |_| home));
        }
    }
    blocks_to(&orders)
}

#[test]
fn what_all_use_of_little_memory_goes_where_fewer_blocks_are() {
    let of_all = |lie: &[u32]| used_by(&small(1), &[0, 1, 2, 3], lie);
    assert_eq!(of_all(&[0, 0, 0]), [1, 2]);
    assert_eq!(of_all(&[0, 0, 1]), [2]);
    // Blocks in turn would all be the first node's: every fourth.
    assert!(of_all(&[3, 1, 2]).is_empty());
}

#[test]
fn what_two_of_four_nodes_use_goes_to_both_alike_while_that_keeps_controllers_even() {
    let of_two = |lie: &[u32]| used_by(&scene(), &[2, 3], lie);
    // Blocks in turn would all be one node's: every fourth.
    assert_eq!(of_two(&[0, 0, 0, 0]), [2, 3, 2]);
    assert_eq!(of_two(&[2, 2, 2, 2]), [3, 3]);
    // They lie with their users alike, or all nodes have as many.
    assert!(of_two(&[2, 3, 2, 3]).is_empty());
    assert!(of_two(&[0, 1, 2, 3]).is_empty());
}

#[test]
fn blocks_of_unknown_homes_go_to_their_users_in_turn() {
    let (nodes, users) = ([0, 1, 2, 3].map(NodeId), [2, 3].map(NodeId));
    let mut tally = Tally::default();
    let to = [(); 4].map(|()| {
        let mut block = Block {
            accesses: users.map(|user| (user, 4)).into(),
            ..Block::default()
        };
        let to = tally.among(&users, &block, &nodes).unwrap();
        tally.lies(&mut block, to);
        to.0
    });
    assert_eq!(to, [2, 3, 2, 3]);
}

#[test]
fn a_process_on_one_node_is_left_to_the_placement() {
    let mut scene = scene();
    for thread in &mut scene.snapshot.threads {
        thread.cpu = numaherd_topology::CpuId(1);
    }
    assert_eq!(orders(&scene, &[(1, 700); 9]), []);
}

/// Whether an order is for all memory of a process.
fn is_at_large(order: &PageOrder) -> bool {
    matches!(order.pages, Pages::OfKind { .. })
}

/// Where blocks are ordered, one after the other.
fn blocks_to(orders: &[PageOrder]) -> Vec<u32> {
    let blocks = orders.iter().filter(|order| !is_at_large(order));
    blocks.map(|order| order.to.0).collect()
}

/// Accesses to blocks 1 to 12 in turn, so many each; `thread` is given the block and the round.
fn in_turn(rounds: u32, thread: impl Fn(u64, u32) -> u32) -> Vec<(u32, u64)> {
    let thread = &thread;
    let round = |round| (1..13).map(move |block| (thread(block, round), block * BLOCK_PAGES));
    (0..rounds).flat_map(round).collect()
}

#[test]
fn blocks_that_are_all_shared_or_all_private_are_ordered_before_their_eighth_access() {
    // 32 pairs are seen with the third access to block 10, whose order gives way to those for all memory.
    let shared = in_turn(4, |block, round| (block as u32 + round) % 4);
    let to = blocks_to(&orders(&scene(), &shared));
    assert_eq!(to, [3, 1, 2, 3, 1, 2, 3, 1, 2]);
    let private = in_turn(4, |block, _| block as u32 % 2 + 1);
    let orders = orders(&scene(), &private);
    assert_eq!(orders.len(), 12);
    for order in orders {
        assert_eq!(order.rule, "by-use: private");
        let Pages::Window { first, .. } = order.pages else {
            panic!("a block");
        };
        assert_eq!(u64::from(order.to.0), first / BLOCK_PAGES % 2 + 1);
    }
}

#[test]
fn all_memory_of_a_process_that_counts_as_shared_is_dealt_once_as_its_blocks_are() {
    let mut scene = scene();
    // Two of five threads on node 1.
    scene.thread(1, 100.0, 1);
    let orders = orders(
        &scene,
        &in_turn(6, |block, round| (block as u32 + round) % 4),
    );
    let (all, blocks): (Vec<_>, Vec<_>) = orders.iter().partition(|order| is_at_large(order));
    let to: Vec<u32> = all.iter().map(|order| order.to.0).collect();
    assert_eq!(to, [0, 1, 2, 3]);
    for order in &blocks {
        let Pages::Window { first, .. } = order.pages else {
            panic!("a block");
        };
        let takes =
            |all: &&PageOrder| matches!(all.pages, Pages::OfKind { part, .. } if part.takes(first));
        let same = all.iter().copied().find(takes);
        assert_eq!(same.map(|all| all.to), Some(order.to));
    }
    assert!(!blocks.is_empty());
}

#[test]
fn memory_is_not_dealt_by_samples_of_a_moment_where_most_lines_of_the_interval_were_local() {
    for (local, dealt) in [(25, true), (90, false)] {
        let mut scene = scene();
        for thread in &mut scene.snapshot.threads {
            let counts = thread.counts.as_mut().unwrap();
            (counts.local, counts.remote) = (Some(local), Some(100 - local));
        }
        let shared = |rounds| in_turn(rounds, |block, round| (block as u32 + round) % 4);
        let at_large = orders(&scene, &shared(6)).iter().any(is_at_large);
        assert_eq!(at_large, dealt, "{local} %");
        // Nor are blocks by their own accesses.
        let mut small = small(1);
        small.snapshot.threads.clone_from(&scene.snapshot.threads);
        let blocks = used_by(&small, &[0, 1, 2, 3], &[0, 0, 0]);
        assert_eq!(blocks.is_empty(), !dealt, "{local} %");
    }
}

#[test]
fn memory_is_not_dealt_again_when_a_thread_was_not_placed_for_a_while() {
    let mut scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    let shared = in_turn(6, |block, round| (block as u32 + round) % 4);
    let placed = placed(&scene);
    let mut dealt = |placed: &[PlacedThread], scene: &Scene| {
        paging.placed(placed, &scene.snapshot);
        let orders = batch(&mut paging, scene, &shared, |_| 0);
        orders.iter().any(is_at_large)
    };
    assert!(dealt(&placed, &scene));
    // A fifth is busy, and has not been placed yet.
    let id = scene.thread(1, 100.0, 1).id;
    assert!(!dealt(&placed, &scene));
    let fifth = PlacedThread {
        thread: id,
        ..placed[1]
    };
    let all: Vec<PlacedThread> = placed.iter().copied().chain([fifth]).collect();
    assert!(!dealt(&all, &scene));
}

#[test]
fn a_block_that_is_seen_late_stays_where_it_was_dealt_though_a_thread_has_ended() {
    let mut scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    let mut placed = placed(&scene);
    paging.placed(&placed, &scene.snapshot);
    let shared = in_turn(6, |block, round| (block as u32 + round) % 4);
    assert!(
        batch(&mut paging, &scene, &shared, |_| 0)
            .iter()
            .any(is_at_large)
    );
    placed.truncate(3);
    scene.snapshot.threads.truncate(3);
    paging.placed(&placed, &scene.snapshot);
    let mut to = |block| {
        blocks_to(&batch(
            &mut paging,
            &scene,
            &[(0, block * BLOCK_PAGES)],
            |_| 3,
        ))
    };
    // As in four turns; that of node 3 is in three turns now.
    assert_eq!([to(21), to(22), to(23)], [[1], [2], [2]]);
}

/// The order by which the placement deals a part of the memory of process 1.
fn dealt_to(scene: &Scene, node: u32, part: Part) -> PageOrder {
    let kind = MemoryKind::Private;
    PageOrder {
        pages: Pages::OfKind { kind, part },
        ..numaherd_testing::all_pages(&scene.snapshot.threads[0], node)
    }
}

#[test]
fn memory_that_the_placement_has_dealt_is_not_dealt_again() {
    let scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(&scene), &scene.snapshot);
    // Two of five parts to node 0.
    let parts = Part::dealt(&[2, 1, 1, 1]);
    let dealt = |(node, &part): (u32, &Part)| dealt_to(&scene, node, part);
    let mut outcomes: Vec<_> = (0..4)
        .zip(&parts)
        .map(|part| numaherd_testing::moved(&dealt(part), 700))
        .collect();
    let shared = in_turn(12, |block, round| (block as u32 + round) % 4);
    // An eighth of a part may be elsewhere.
    outcomes[3].failed.insert(PageFailure::Busy, 100);
    outcomes[3].failed.insert(PageFailure::NotThere, 10_000);
    let orders_after = |outcomes: &[PageOutcome]| {
        let mut paging = paging.clone();
        paging.moved(outcomes);
        batch(&mut paging, &scene, &shared, |_| 0)
    };
    let orders = orders_after(&outcomes);
    assert!(!orders.iter().any(is_at_large));
    // Blocks 1, 5, 6, 10 and 11 are those of node 0, where all are.
    assert_eq!(blocks_to(&orders).len(), 12 - 5);
    // On the node where all was before, nothing had to be tried.
    outcomes[0].moved = 0;
    assert!(!orders_after(&outcomes).iter().any(is_at_large));
    // Where more is, or a part was refused, all is dealt.
    outcomes[3].not_tried = 1;
    assert!(orders_after(&outcomes).iter().any(is_at_large));
    let refused = PageOutcome::not_tried(&dealt((3, &parts[3])), "no".to_owned());
    outcomes[3] = refused;
    assert!(orders_after(&outcomes).iter().any(is_at_large));
}

/// Where a block on node 3 that node 1 uses belongs, if each node has so many blocks that are used as much.
fn beside(blocks: u32, at_large_ns: Option<u64>) -> u32 {
    let nodes = [0, 1, 2, 3].map(NodeId);
    let tally = Tally {
        at_large_ns,
        on: nodes.map(|node| (node, blocks * 32)).into(),
        ..Tally::default()
    };
    let block = Block {
        accesses: [(NodeId(1), 32)].into(),
        home: Some(NodeId(3)),
        counted: 32,
        ..Block::default()
    };
    tally.beside(NodeId(1), &block, &nodes).0
}

#[test]
fn what_one_node_uses_of_dealt_memory_goes_there_while_that_keeps_it_even() {
    assert_eq!([beside(3, None), beside(3, Some(0))], [1, 3]);
    assert_eq!([beside(7, Some(0)), beside(8, Some(0))], [3, 1]);
}

#[test]
fn what_was_seen_before_it_was_dealt_counts_where_it_is_then() {
    let scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(&scene), &scene.snapshot);
    let seen: Vec<_> = (0..6).map(|block| (1, block * BLOCK_PAGES)).collect();
    assert_eq!(batch(&mut paging, &scene, &seen, |_| 0), []);
    let on = |paging: &Driven<ByUse, Blocks>| {
        let tally = &paging.rule.tallies[&scene.snapshot.threads[0].process];
        let on = tally.on.iter().map(|(node, &accesses)| (node.0, accesses));
        on.collect::<Vec<_>>()
    };
    assert_eq!(on(&paging), [(0, 6)]);
    let outcome = |(node, part)| numaherd_testing::moved(&dealt_to(&scene, node, part), 700);
    let outcomes: Vec<_> = (0..4).zip(Part::dealt(&[1; 4])).map(outcome).collect();
    paging.moved(&outcomes);
    assert_eq!(on(&paging), [(0, 2), (1, 2), (2, 1), (3, 1)]);
}

#[test]
fn memory_that_is_even_on_the_nodes_stays() {
    // Of 8192 pages, 1024 may be too many on some nodes.
    for (first, stays) in [(3072, true), (3073, false)] {
        let mut scene = small(0);
        let pages = [first, 1706, 1707, 8192 - 3413 - first];
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: (0..4).map(NodeId).zip(pages).collect(),
            kinds: Some(Default::default()),
        });
        let shared = in_turn(12, |block, round| (block as u32 + round) % 4);
        assert_eq!(orders(&scene, &shared).is_empty(), stays, "{first}");
    }
}

#[test]
fn orders_for_all_memory_take_the_place_of_those_for_its_blocks() {
    let scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    paging.placed(&placed(&scene), &scene.snapshot);
    let mut batch = |accesses: Vec<(u32, u64)>| batch(&mut paging, &scene, &accesses, |_| 0);
    // Block 14 is its user's first, then all are dealt, and it is its user's again.
    let own = |times| vec![(1, 14 * BLOCK_PAGES); times];
    assert_eq!(blocks_to(&batch(own(8))), [1]);
    let all = batch(in_turn(8, |block, round| (block as u32 + round) % 4));
    assert!(!all.is_empty() && all.iter().all(is_at_large), "{all:?}");
    // A block whose order did not go out is ordered when it is seen where it was.
    assert_eq!(blocks_to(&batch(vec![(0, 2 * BLOCK_PAGES)])), [2]);
    assert_eq!(batch(own(23)), []);
    assert_eq!(blocks_to(&batch(own(1))), [1]);
}

#[test]
fn memory_of_which_no_access_is_seen_goes_by_the_blocks_that_were_judged() {
    // Each block is of two of the four nodes, but for the first ones, which are of one alone: none, 2 or 5 of 12.
    for (own, is_dealt) in [(0, true), (2, true), (5, false)] {
        let of_two = in_turn(9, |block, round| match block <= own {
            true => 1,
            false => (block as u32 + round % 2) % 4,
        });
        let orders = orders(&scene(), &of_two);
        assert_eq!(orders.iter().any(is_at_large), is_dealt, "{own}");
    }
}

#[test]
fn memory_of_fewer_blocks_than_threads_is_not_dealt() {
    for (pages, is_dealt) in [(4 * BLOCK_PAGES, true), (4 * BLOCK_PAGES - 1, false)] {
        let shared = in_turn(6, |block, round| (block as u32 + round) % 4);
        let orders = orders(&small(pages), &shared);
        assert_eq!(orders.iter().any(is_at_large), is_dealt);
    }
}

#[test]
fn blocks_whose_pages_lie_with_their_users_stay() {
    let shared = in_turn(12, |block, round| (block as u32 + round) % 4);
    assert_eq!(orders_where(&scene(), &shared, |thread| thread), []);
    let home = |thread| if thread > 1 { 0 } else { thread };
    assert_ne!(orders_where(&scene(), &shared, home), []);
}

#[test]
fn some_private_blocks_among_shared_ones_wait_for_their_eighth_access() {
    let mixed = in_turn(7, |block, round| match block % 2 {
        0 => (block as u32 + round) % 4,
        _ => 1,
    });
    assert_eq!(orders(&scene(), &mixed), []);
}

#[test]
fn a_block_that_was_taken_for_shared_goes_to_its_user_after_many_accesses() {
    for (own, expected) in [
        (31, &[(2, "by-use: shared")][..]),
        (32, &[(2, "by-use: shared"), (1, "by-use: private")]),
    ] {
        let mut accesses = in_turn(4, |block, round| (block as u32 + round) % 4);
        // Block 14 is the turn of node 2.
        accesses.extend((0..own).map(|_| (1, 14 * BLOCK_PAGES)));
        let orders = orders(&scene(), &accesses);
        let is_of_14 = |order: &&PageOrder| matches!(order.pages, Pages::Window { first, .. } if first == 14 * BLOCK_PAGES);
        let to: Vec<(u32, &str)> = (orders.iter().filter(is_of_14))
            .map(|order| (order.to.0, &*order.rule))
            .collect();
        assert_eq!(to, expected, "{own} accesses");
    }
}

#[test]
fn sampling_rests_until_few_of_the_counted_lines_are_local() {
    let mut scene = scene();
    let mut paging = ByUse::paging(&Settings::default());
    let placed = placed(&scene);
    let mut listens_where_local = |local, paging: &mut Driven<ByUse, Blocks>| {
        for thread in &mut scene.snapshot.threads {
            let counts = thread.counts.as_mut().unwrap();
            (counts.local, counts.remote) = (Some(local), Some(100 - local));
        }
        paging.placed(&placed, &scene.snapshot);
        paging.listens()
    };
    assert!(listens_where_local(90, &mut paging));
    let local: Vec<(u32, u64)> = (0..4).cycle().zip(0..200).collect();
    batch(&mut paging, &self::scene(), &local, |thread| thread);
    assert!(!listens_where_local(90, &mut paging));
    assert!(!listens_where_local(76, &mut paging));
    assert!(listens_where_local(74, &mut paging));
}

#[test]
fn sampling_rests_when_all_is_ordered_until_threads_move() {
    let mut scene = scene();
    let first = scene.clone();
    let mut paging = ByUse::paging(&Settings::default());
    let mut placed = placed(&scene);
    paging.placed(&placed, &scene.snapshot);
    let sampled = |paging: &mut Driven<ByUse, Blocks>, rounds| {
        for access in in_turn(rounds, |block, round| (block as u32 + round) % 4).chunks(1) {
            batch(paging, &first, access, |_| 0);
        }
    };
    sampled(&mut paging, 8);
    assert!(paging.listens());
    sampled(&mut paging, 11);
    assert!(!paging.listens());
    paging.placed(&placed, &scene.snapshot);
    assert!(!paging.listens());
    placed[0].node = NodeId(3);
    paging.placed(&placed, &scene.snapshot);
    assert!(paging.listens());
    sampled(&mut paging, 19);
    paging.placed(&placed, &scene.snapshot);
    assert!(!paging.listens());
    scene.snapshot.time_ns += 3600 * 1_000_000_000;
    paging.placed(&placed, &scene.snapshot);
    assert!(paging.listens());
}

proptest! {
    #[test]
    fn a_block_is_ordered_at_most_twice_and_to_a_node_of_the_process(
        accesses in proptest::collection::vec((0u32..4, 0u64..4096), 0..300),
    ) {
        let orders = orders(&scene(), &accesses);
        let mut seen = BTreeMap::new();
        prop_assert!(orders.iter().filter(|order| is_at_large(order)).count() <= 4);
        for order in orders {
            prop_assert!(order.to.0 < 4);
            let Pages::Window { first, count } = order.pages else {
                continue;
            };
            prop_assert_eq!((first % BLOCK_PAGES, count), (0, BLOCK_PAGES));
            let times = seen.entry(first).or_insert(0);
            *times += 1;
            prop_assert!(*times <= 2);
        }
    }
}

#[test]
fn no_more_is_ordered_than_the_placement_gives_out() {
    let scene = scene();
    let process = Scene::process(1);
    let mut paging = ByUse::paging(&Settings::default());
    let told = |paging: &mut Driven<ByUse, Blocks>, rations: &[(ProcessId, u64)]| {
        paging.rationed(rations);
        paging.placed(&placed(&scene), &scene.snapshot);
    };
    let used = |paging: &mut Driven<ByUse, Blocks>, blocks: std::ops::Range<u64>| {
        let accesses: Vec<_> = (0..9)
            .flat_map(|_| blocks.clone().map(|block| (2, block * BLOCK_PAGES)))
            .collect();
        blocks_to(&batch(paging, &scene, &accesses, |_| 0)).len()
    };
    told(&mut paging, &[(process, 2 * BLOCK_PAGES + 1)]);
    assert_eq!(used(&mut paging, 1..5), 2);
    assert!(!paging.listens(), "nothing could come of it");
    told(&mut paging, &[(process, 3 * BLOCK_PAGES)]);
    assert!(paging.listens());
    assert_eq!(used(&mut paging, 1..5), 1);
    told(&mut paging, &[]);
    assert_eq!(used(&mut paging, 1..5), 1);
    assert_eq!(used(&mut paging, 5..8), 3);
}
