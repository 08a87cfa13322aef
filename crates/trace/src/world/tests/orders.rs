//! What orders do: threads and pages that are moved, and what that costs.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, NodeId};
use numaherd_world::{
    AffinityOrder, AffinityResult, NewPages, Orders, PageFailure, PageOrder, Pages, World,
};

use super::{given, pager, process, thread, to_the_end, walk, world};
use crate::Event;
use crate::world::Options;

fn to_cpu(number: u32, cpu: u32) -> AffinityOrder {
    AffinityOrder {
        thread: thread(number),
        core: Some(CpuId(cpu)),
        cpus: Arc::new([CpuId(cpu)].into_iter().collect::<CpuSet>()),
    }
}

fn to_node(pages: Pages, node: u32) -> PageOrder {
    PageOrder {
        process: process(),
        thread: thread(0),
        pages,
        to: NodeId(node),
        rule: "test".into(),
        why: String::new(),
    }
}

#[test]
fn pages_are_where_they_were_touched_first_or_given() {
    let first = to_the_end(world(vec![walk(0, 8, 1)], given(&[4], &[])));
    assert_eq!((first.lines.local, first.lines.remote), (512, 0));
    assert_eq!((first.pages.right, first.remote_access_share), (8, 0.0));
    let nodes: Vec<(u64, u32)> = (0..8).map(|page| (page, 1)).collect();
    let given = to_the_end(world(vec![walk(0, 8, 1)], given(&[4], &nodes)));
    assert_eq!((given.lines.local, given.lines.remote), (0, 512));
    assert_eq!((given.pages.right, given.remote_access_share), (0, 1.0));
    assert!(given.seconds > first.seconds);
    // Node 1 and node 2 are two links apart.
    assert_eq!(given.interchip_bytes, 512 * 64);
    assert_eq!(given.link_bytes, 2 * 512 * 64);
}

#[test]
fn new_pages_go_where_the_rule_says() {
    let by_node = |rule, seed| {
        let options = Options {
            seed,
            ..given(&[0], &[])
        };
        let mut world = world(vec![[walk(0, 64, 1), walk(0, 64, 9)].concat()], options);
        world.place_new_pages(rule).unwrap();
        world.run_for(Duration::from_millis(12));
        let snapshot = world.observe().unwrap();
        let residency = snapshot.processes[0].residency.clone().unwrap();
        (0..4)
            .map(|node| residency.on(NodeId(node)))
            .collect::<Vec<_>>()
    };
    assert_eq!(by_node(NewPages::FirstTouch, 1), [64, 0, 0, 0]);
    assert_eq!(by_node(NewPages::Interleave, 1), [16, 16, 16, 16]);
    let random = by_node(NewPages::Random, 1);
    assert!(random.iter().all(|&pages| pages > 4), "{random:?}");
    assert_eq!(random, by_node(NewPages::Random, 1));
    assert_ne!(random, by_node(NewPages::Random, 2));
}

#[test]
fn a_moved_page_is_local_from_then_on_and_its_move_is_paid_for() {
    let run = |page_move_ns, moves: bool| {
        let nodes: Vec<(u64, u32)> = (0..16).map(|page| (page, 3)).collect();
        let mut options = given(&[0], &nodes);
        (options.page_move_ns, options.dilation) = (page_move_ns, 1);
        let mut world = world(vec![walk(0, 16, 400)], options);
        let mut pager = pager(&mut world);
        pager.run_for(Duration::from_micros(100));
        if moves {
            let window = Pages::Window {
                first: 0,
                count: 20,
            };
            let outcomes = pager.apply(&[to_node(window, 0)]);
            assert_eq!(outcomes[0].moved, 16);
            assert_eq!(outcomes[0].failed[&PageFailure::NotThere], 4);
            assert_eq!(outcomes[0].took_ns, 16 * page_move_ns);
            let again = pager.apply(&[to_node(Pages::All, 0)]);
            assert_eq!((again[0].moved, again[0].already_there), (0, 16));
        }
        to_the_end(world)
    };
    let (stayed, moved, free) = (run(2000, false), run(2000, true), run(0, true));
    assert_eq!((stayed.pages.right, stayed.pages.moved), (0, 0));
    assert_eq!((moved.pages.right, moved.pages.moved), (16, 16));
    assert_eq!(stayed.remote_access_share, 1.0);
    assert!(moved.remote_access_share < 0.5 && moved.pages.right_by_time > 0.5);
    let paid_ns = (moved.seconds - free.seconds) * 1e9;
    assert!(
        (30_000.0..=32_001.0).contains(&paid_ns),
        "{paid_ns} of 16 x 2000"
    );
}

#[test]
fn costs_of_the_loop_are_divided_by_the_dilation() {
    let run = |dilation, page_move_ns| {
        let nodes: Vec<(u64, u32)> = (0..16).map(|page| (page, 3)).collect();
        let mut options = given(&[0], &nodes);
        (options.dilation, options.page_move_ns) = (dilation, page_move_ns);
        let mut world = world(vec![walk(0, 16, 400)], options);
        let mut pager = pager(&mut world);
        pager.run_for(Duration::from_micros(50 * dilation));
        pager.apply(&[to_node(Pages::All, 0)]);
        to_the_end(world).seconds
    };
    assert_eq!(run(1, 1000), run(10, 10_000));
    assert!(run(1, 1000) > run(10, 1000));
}

#[test]
fn orders_for_what_is_not_there_say_so() {
    let mut world = world(vec![walk(0, 1, 1000)], given(&[0], &[]));
    world.run_for(Duration::from_micros(64));
    let mut gone = to_cpu(7, 1);
    gone.thread.born = 7;
    let nowhere = AffinityOrder {
        cpus: Arc::new([CpuId(99)].into_iter().collect()),
        ..to_cpu(0, 1)
    };
    let mut other = to_node(Pages::All, 0);
    other.process.pid += 1;
    let orders = Orders {
        affinities: vec![gone, nowhere],
        pages: vec![other, to_node(Pages::All, 9)],
    };
    let outcome = world.apply(&orders);
    assert_eq!(outcome.affinities[0].result, AffinityResult::Gone);
    assert!(matches!(
        outcome.affinities[1].result,
        AffinityResult::Failed { .. }
    ));
    assert!(outcome.pages.iter().all(|page| page.error.is_some()));
}

#[test]
fn threads_that_swap_cores_swap_them() {
    let events = vec![
        [vec![Event::wake(1, 0)], walk(0, 8, 100)].concat(),
        walk(100, 8, 100),
    ];
    let mut world = world(events, given(&[0, 6], &[]));
    world.run_for(Duration::from_micros(640));
    world.observe().unwrap();
    let orders = Orders {
        affinities: vec![to_cpu(0, 6), to_cpu(1, 0)],
        pages: Vec::new(),
    };
    let outcome = world.apply(&orders);
    assert!(
        outcome
            .affinities
            .iter()
            .all(|one| one.result == AffinityResult::Done)
    );
    assert_eq!(
        world.affinity_of(thread(0)),
        Some([CpuId(6)].into_iter().collect())
    );
    world.run_for(Duration::from_micros(6400));
    let snapshot = world.observe().unwrap();
    let place = |number| snapshot.thread(thread(number)).unwrap().place();
    assert_eq!((place(0), place(1)), (CpuId(6), CpuId(0)));
    assert!(snapshot.threads.iter().all(|thread| thread.cpu_share > 0.9));
    let figures = to_the_end(world);
    assert_eq!(figures.thread_moves, 2);
    assert!(figures.lines.remote > 0, "their pages stayed behind");
}

#[test]
fn an_idle_core_takes_a_thread_that_waits_within_its_mask() {
    let share = |cpus: &[u32]| {
        let events = vec![
            [vec![Event::wake(1, 0)], walk(0, 2, 200)].concat(),
            walk(8, 2, 200),
        ];
        let mut world = world(events, given(&[0, 0], &[]));
        world.run_for(Duration::from_nanos(640));
        let cpus: CpuSet = cpus.iter().map(|&cpu| CpuId(cpu)).collect();
        let order = AffinityOrder {
            cpus: Arc::new(cpus),
            ..to_cpu(1, 0)
        };
        world.apply(&Orders {
            affinities: vec![order],
            pages: Vec::new(),
        });
        world.run_for(Duration::from_micros(640));
        world.observe().unwrap().thread(thread(1)).unwrap().cpu
    };
    assert_eq!(share(&[0]), CpuId(0));
    assert_eq!(share(&[0, 5, 1]), CpuId(1), "the nearest");
}
