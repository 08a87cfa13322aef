//! Windows, orders that stand, and the ping-pong guard.

use super::*;
use crate::policy::{Paging, Random};
use numaherd_testing::Scene;
use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::CpuId;
use numaherd_world::{PageOrder, PageOutcome, Pages, Process, Residency};
use proptest::prelude::*;
use rand::SeedableRng;

const K: u64 = 4096;
const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

/// Two nodes of two CPUs; thread N of process 1 is placed on node N.
struct Bench {
    scene: Scene,
    window: Driven<Window, Windows>,
}

impl Bench {
    fn new() -> Self {
        let mut bench = Self {
            scene: Scene::uniform(2, 2),
            window: Window::paging(&Settings::default()),
        };
        bench.settle(&[(0, 0), (1, 1)]);
        bench
    }

    fn settle(&mut self, threads: &[(u32, u32)]) {
        let placed: Vec<PlacedThread> = threads
            .iter()
            .map(|&(tid, node)| PlacedThread {
                thread: numaherd_testing::tid(tid),
                process: Scene::process(1),
                node: NodeId(node),
                moved_from: None,
            })
            .collect();
        assert_eq!(self.window.placed(&placed, &self.scene.snapshot), []);
    }

    fn orders(&mut self, samples: &[Sample]) -> Vec<(u64, u64, u32)> {
        let mut random = Random::seed_from_u64(0);
        let orders = self
            .window
            .sampled(samples, &self.scene.topology, &mut random);
        let told = |order: PageOrder| match order.pages {
            Pages::Window { first, count } => (first, count, order.to.0),
            Pages::All | Pages::OfKind { .. } => panic!("a window never orders everything"),
        };
        orders.into_iter().map(told).collect()
    }
}

/// Thread `tid`, on its own node, reads a page that is on the other node.
fn remote(tid: u32, page: u64, time_ns: u64) -> Sample {
    Sample {
        time_ns,
        thread: numaherd_testing::tid(tid),
        process: Scene::process(1),
        address: page * 4096 + 8,
        cpu: CpuId(tid * 2),
        latency: Some(300),
        source: MemorySource::RemoteMemory,
        node: Some(NodeId(1 - tid)),
        store: false,
    }
}

#[test]
fn a_remote_access_brings_k_pages_centred_on_it() {
    let mut bench = Bench::new();
    let page = 1_000_000;
    assert_eq!(bench.orders(&[remote(1, page, 0)]), [(page - 2048, K, 1)]);
}

#[test]
fn the_reason_names_address_latency_and_nodes() {
    let mut bench = Bench::new();
    let mut random = Random::seed_from_u64(0);
    let samples = [remote(1, 0x7f00, 0)];
    let orders = bench
        .window
        .sampled(&samples, &bench.scene.topology, &mut random);
    assert_eq!(
        orders[0].why,
        "thread 1 on node 1 read address 0x7f00008 on node 0, latency 300; 4096 of 4096 pages \
         around it"
    );
    assert_eq!(orders[0].rule, "window: around a remote access");
}

#[test]
fn no_window_reaches_below_the_first_page() {
    let mut bench = Bench::new();
    assert_eq!(bench.orders(&[remote(1, 100, 0)]), [(0, 100 + 2048, 1)]);
}

#[test]
fn local_cached_and_unknown_accesses_and_strangers_order_nothing() {
    let mut bench = Bench::new();
    let base = remote(1, 1_000_000, 0);
    let local = Sample {
        node: Some(NodeId(1)),
        source: MemorySource::LocalMemory,
        ..base
    };
    let cached = Sample {
        source: MemorySource::Cache,
        ..base
    };
    let unknown = Sample {
        source: MemorySource::Unknown,
        node: None,
        ..base
    };
    let before_it_moved = Sample {
        node: None,
        cpu: CpuId(0),
        ..base
    };
    let stranger = Sample {
        thread: numaherd_testing::tid(9),
        ..base
    };
    let samples = [local, cached, unknown, before_it_moved, stranger];
    assert_eq!(bench.orders(&samples), []);
    let without_node = Sample { node: None, ..base };
    assert_eq!(bench.orders(&[without_node]).len(), 1);
}

#[test]
fn an_order_stands_for_a_second() {
    let mut bench = Bench::new();
    let page = 1_000_000;
    assert_eq!(
        bench
            .orders(&[remote(1, page, 0), remote(1, page + 7, MS)])
            .len(),
        1
    );
    assert_eq!(bench.orders(&[remote(1, page + 2047, 999 * MS)]), []);
    assert_eq!(bench.orders(&[remote(1, page, S)]).len(), 1);
}

#[test]
fn overlapping_windows_are_cut() {
    let mut bench = Bench::new();
    let page = 1_000_000;
    let orders = bench.orders(&[remote(1, page, 0), remote(1, page + 3000, 0)]);
    let first_end = page + 2048;
    assert_eq!(
        orders,
        [(page - 2048, K, 1), (first_end, page + 5048 - first_end, 1)]
    );
}

#[test]
fn what_was_not_tried_is_ordered_again() {
    let mut bench = Bench::new();
    let page = 1_000_000;
    let (first, count, to) = bench.orders(&[remote(1, page, 0)])[0];
    bench.window.moved(&[PageOutcome {
        process: Scene::process(1),
        thread: numaherd_testing::tid(1),
        pages: Pages::Window { first, count },
        to: NodeId(to),
        moved: 0,
        already_there: 0,
        failed: BTreeMap::new(),
        not_tried: count,
        took_ns: 0,
        longest_batch_ns: 0,
        error: None,
    }]);
    assert_eq!(bench.orders(&[remote(1, page, MS)]).len(), 1);
}

#[test]
fn shared_pages_bounce_five_times_and_are_then_frozen_until_the_thaw() {
    let mut bench = Bench::new();
    let page = 1_000_000;
    let mut ordered = 0;
    for second in 0..40 {
        let samples = [
            remote(0, page, second * S),
            remote(1, page, second * S + 500 * MS),
        ];
        ordered += bench.orders(&samples).len();
    }
    // The first order, and five that took the pages back.
    assert_eq!(ordered, 6);
    assert_eq!(bench.orders(&[remote(0, page + 1, 41 * S)]), []);
    assert_eq!(bench.orders(&[remote(0, page, 70 * S)]).len(), 1);
}

#[test]
fn threads_side_by_side_do_not_take_each_others_edges() {
    let mut bench = Bench::new();
    let edge = 250 * K;
    let orders = bench.orders(&[remote(0, edge - 10, 0), remote(1, edge + 10, 0)]);
    assert_eq!(orders[1].0, edge);
    // The first did reach over the edge, since the chunk behind it belonged to no node then.
    assert_eq!(orders[0], (edge - 10 - 2048, K, 0));
    // From now on neither does.
    let again = bench.orders(&[remote(0, edge - 20, 2 * S), remote(1, edge + 20, 2 * S)]);
    assert_eq!(again[0], (edge - 20 - 2048, 2048 + 20, 0));
    assert_eq!(again[1], (edge, 20 + 2048, 1));
}

#[test]
fn moves_that_are_far_apart_never_freeze() {
    let mut bench = Bench::new();
    for round in 0..20 {
        let tid = u32::try_from(round % 2).unwrap();
        let orders = bench.orders(&[remote(tid, 1_000_000, round * 61 * S)]);
        assert_eq!(orders.len(), 1, "round {round}");
    }
}

#[test]
fn a_process_that_is_gone_is_forgotten() {
    let mut bench = Bench::new();
    assert_eq!(bench.orders(&[remote(1, 1_000_000, 0)]).len(), 1);
    bench.settle(&[]);
    assert_eq!(bench.orders(&[remote(1, 1_000_000, MS)]), []);
    bench.settle(&[(1, 1)]);
    assert_eq!(bench.orders(&[remote(1, 1_000_000, 2 * MS)]).len(), 1);
}

/// What a snapshot shows of a process that has so many pages on nodes 0 and 1.
fn resident(number: u32, residency: Option<[u64; 2]>) -> Process {
    let pages = |on: [u64; 2]| (0..).map(NodeId).zip(on).collect();
    Process {
        id: Scene::process(number),
        name: format!("p{number}"),
        allowed_nodes: Arc::default(),
        sharing: None,
        machine: None,
        group: None,
        residency: residency.map(|on| Residency {
            pages: pages(on),
            kinds: None,
        }),
        memory_policy: None,
        extents: Arc::default(),
    }
}

#[test]
fn it_listens_while_a_settled_thread_may_have_memory_elsewhere() {
    let mut bench = Bench::new();
    let mut listens = |processes: &[Process], threads: &[(u32, u32)]| {
        bench.scene.snapshot.processes = processes.to_vec();
        bench.settle(threads);
        bench.window.listens()
    };
    assert!(!listens(&[], &[]), "nobody is placed");
    assert!(listens(&[], &[(1, 1)]), "nothing is known of its memory");
    assert!(listens(&[resident(1, None)], &[(1, 1)]), "nor here");
    assert!(listens(&[resident(1, Some([1, 500]))], &[(1, 1)]), "a page");
    assert!(!listens(&[resident(1, Some([0, 500]))], &[(1, 1)]));
    let shared = [(0, 0), (1, 1)];
    assert!(listens(&[resident(1, Some([0, 500]))], &shared), "thread 0");
    let someone_else = [resident(1, Some([0, 500])), resident(2, Some([9, 9]))];
    assert!(!listens(&someone_else, &[(1, 1)]));
    assert!(!Window::paging(&Settings::default()).listens(), "at first");
}

proptest! {
    #[test]
    fn where_it_does_not_listen_samples_of_known_pages_bring_no_order(
        residency in proptest::collection::vec([0u64..2, 0u64..2], 3),
        threads in proptest::collection::vec((0u32..3, 0u32..2), 0..4),
        samples in proptest::collection::vec((any::<prop::sample::Index>(), 0u64..9), 1..20),
    ) {
        let mut scene = Scene::uniform(2, 2);
        let on = |process: u32| residency[process as usize];
        scene.snapshot.processes = (0..3).map(|n| resident(n, Some(on(n)))).collect();
        let placed: Vec<PlacedThread> = (0..).zip(&threads).map(|(tid, &(process, node))| PlacedThread {
            thread: numaherd_testing::tid(tid),
            process: Scene::process(process),
            node: NodeId(node),
            moved_from: None,
        }).collect();
        let mut window = Window::paging(&Settings::default());
        window.placed(&placed, &scene.snapshot);
        let sample = |(at, page): (prop::sample::Index, u64)| {
            let thread = at.get(&placed);
            let process = on(thread.process.pid);
            let node = if process[1] > page % 2 { 1 } else { 0 };
            let local = NodeId(node) == thread.node;
            (process[node as usize] > 0).then(|| Sample {
                thread: thread.thread,
                process: thread.process,
                cpu: CpuId(thread.node.0 * 2),
                source: if local { MemorySource::LocalMemory } else { MemorySource::RemoteMemory },
                node: Some(NodeId(node)),
                ..remote(0, page * 10_000, page * MS)
            })
        };
        let samples = if placed.is_empty() { vec![remote(0, 1, 0)] } else {
            samples.into_iter().filter_map(sample).collect()
        };
        let mut random = Random::seed_from_u64(0);
        let orders = window.sampled(&samples, &scene.topology, &mut random);
        prop_assert!(window.listens() || orders.is_empty(), "{:?}", orders);
    }

    #[test]
    fn orders_hold_their_page_keep_their_size_and_never_overlap(
        samples in proptest::collection::vec((0u32..2, 0u64..40_000, 0u64..50), 1..200),
    ) {
        let mut bench = Bench::new();
        let mut now = 0;
        let samples: Vec<Sample> = samples
            .into_iter()
            .map(|(tid, page, wait)| {
                now += wait * MS;
                remote(tid, page, now)
            })
            .collect();
        for batch in samples.chunks(20) {
            let mut bench_before = bench.window.clone();
            let mut random = Random::seed_from_u64(0);
            let orders = bench.window.sampled(batch, &bench.scene.topology, &mut random);
            let again = bench_before.sampled(batch, &bench.scene.topology, &mut random);
            prop_assert_eq!(&orders, &again);
            let mut spans: Vec<(u32, u64, u64)> = Vec::new();
            for order in &orders {
                let Pages::Window { first, count } = order.pages else {
                    panic!("a window never orders everything");
                };
                prop_assert!((1..=K).contains(&count));
                let caused = batch.iter().any(|sample| {
                    let page = sample.address / 4096;
                    sample.thread == order.thread && (first..first + count).contains(&page)
                });
                prop_assert!(caused);
                // A call of less than a second: no order of it can have lapsed.
                if batch.last().unwrap().time_ns - batch[0].time_ns < S {
                    spans.push((order.to.0, first, first + count));
                }
            }
            spans.sort_unstable();
            for pair in spans.windows(2) {
                prop_assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{:?}", pair);
            }
        }
    }
}
