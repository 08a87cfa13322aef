use numaherd_testing::{Scene, Shape};
use numaherd_topology::{NodeSet, Parts, Timing};
use numaherd_world::{Counts, Extent, MemorySource, NodeState, PageFailure, Unmanaged};
use proptest::prelude::*;
use rand::SeedableRng;

use super::*;

const MIB: u64 = 1 << 20;
const BLOCK_BYTES: u64 = 2 * MIB;
const SECOND_NS: u64 = 1_000_000_000;
/// Pages of process 1 begin here.
const FIRST: u64 = 1000;

/// A machine of 1 GiB nodes: 0 has two CPUs, 1 has none; its processes, with the node of each of their blocks.
struct Machine {
    scene: Scene,
    paging: Tiered,
    /// The node of each block of each process.
    blocks: BTreeMap<(u32, u64), u32>,
    free: [u64; 2],
    /// Bytes of old files on node 0.
    old_files: u64,
    /// The share of what node 0 can give that its first thread reads.
    load: f64,
}

impl Machine {
    fn new(free_blocks: [u64; 2]) -> Self {
        Self::timed(free_blocks, Timing::default())
    }

    fn timed(free_blocks: [u64; 2], timing: Timing) -> Self {
        let shape = Shape {
            nodes: vec![vec![2], vec![]],
            siblings: 1,
            offline: Vec::new(),
        };
        let mut scene = Scene::new(&shape);
        let parts = Parts {
            timing,
            ..Parts::from(scene.topology)
        };
        scene.topology = Topology::new(parts).unwrap();
        scene.snapshot.time_ns = SECOND_NS;
        let mut paging = Tiered::new(&Settings::default());
        paging.runs_on(&Arc::new(scene.topology.clone()));
        Self {
            scene,
            paging,
            blocks: BTreeMap::new(),
            free: free_blocks.map(|blocks| blocks * BLOCK_BYTES),
            old_files: 0,
            load: 0.0,
        }
    }

    /// A process of one thread, which uses so much of a CPU, with so many blocks on each node.
    fn process(&mut self, number: u32, cpu_share: f64, blocks: [u64; 2]) {
        self.scene.home(number, "made", 0);
        self.scene.thread(number, 1.0, 0).cpu_share = cpu_share;
        let nodes = [0, 1].into_iter().flat_map(|node| {
            std::iter::repeat_n(node, usize::try_from(blocks[node as usize]).unwrap())
        });
        let numbered = (FIRST..).zip(nodes);
        self.blocks
            .extend(numbered.map(|(block, node)| ((number, block), node)));
    }

    /// An interval of so many seconds, after which orders are carried out; where the blocks went.
    fn interval(&mut self, seconds: u64) -> Vec<(u64, u32)> {
        let orders = self.orders(seconds);
        self.carry_out(&orders)
    }

    fn orders(&mut self, seconds: u64) -> Vec<PageOrder> {
        let snapshot = &mut self.scene.snapshot;
        snapshot.interval_ns = seconds * SECOND_NS;
        snapshot.time_ns += snapshot.interval_ns;
        snapshot.nodes = (0..2)
            .map(|node| NodeState {
                id: NodeId(node),
                total_bytes: 1024 * MIB,
                free_bytes: self.free[node as usize],
                old_file_bytes: if node == 0 { self.old_files } else { 0 },
                busy_cpus: None,
            })
            .collect();
        let gb_per_s = self.scene.topology.timing().node_gb_per_s.as_ref();
        snapshot.threads[0].counts = gb_per_s.map(|gb_per_s| Counts {
            local: Some((self.load * gb_per_s[0] * snapshot.interval_ns as f64 / 64.0) as u64),
            remote: Some(0),
            ..Counts::default()
        });
        for process in &mut snapshot.processes {
            let own = self
                .blocks
                .iter()
                .filter(|((of, _), _)| *of == process.id.pid);
            let own: Vec<_> = own.map(|(&(_, block), &node)| (block, node)).collect();
            let on = |node| {
                let blocks = own.iter().filter(|&&(_, on)| on == node).count() as u64;
                (NodeId(node), blocks * BLOCK_PAGES)
            };
            let pages = vec![on(0), on(1)];
            process.residency.as_mut().unwrap().pages = pages.clone();
            let (first, last) = (own[0].0, own[own.len() - 1].0);
            process.extents = Arc::new([Extent {
                pages: first * BLOCK_PAGES..(last + 1) * BLOCK_PAGES,
                on: pages,
            }]);
        }
        self.paging.placed(&[], &self.scene.snapshot)
    }

    fn carry_out(&mut self, orders: &[PageOrder]) -> Vec<(u64, u32)> {
        let mut went = Vec::new();
        for order in orders {
            let Pages::Window { first, count } = order.pages else {
                panic!("{order:?}");
            };
            for block in first / BLOCK_PAGES..(first + count) / BLOCK_PAGES {
                let node = self.blocks.get_mut(&(order.process.pid, block)).unwrap();
                self.free[*node as usize] += BLOCK_BYTES;
                self.free[order.to.0 as usize] -= BLOCK_BYTES;
                *node = order.to.0;
                went.push((block - FIRST, order.to.0));
            }
            let moved = PageOutcome {
                moved: count,
                ..PageOutcome::begun(order)
            };
            self.paging.moved(&[moved]);
        }
        went
    }

    /// So many accesses of a process to each of these blocks, which take so long.
    fn use_blocks(&mut self, process: u32, blocks: &[u64], times: u64, latency: u64) {
        let at = self
            .scene
            .snapshot
            .threads
            .iter()
            .position(|thread| thread.process.pid == process);
        let thread = u32::try_from(at.unwrap()).unwrap();
        for &block in blocks {
            let block = FIRST + block;
            let home = self.blocks[&(process, block)];
            let samples: Vec<Sample> = (0..times)
                .map(|time| Sample {
                    store: time == 0,
                    latency: Some(latency),
                    source: match home {
                        0 => MemorySource::LocalMemory,
                        _ => MemorySource::RemoteMemory,
                    },
                    ..self
                        .scene
                        .access(thread, 0, block * BLOCK_PAGES + time, home, 1)
                })
                .collect();
            let random = &mut Random::seed_from_u64(1);
            let orders = self.paging.sampled(&samples, &self.scene.topology, random);
            assert_eq!(orders, []);
        }
    }
}

/// 10 % of 512 blocks, rounded up: what is kept free.
const KEPT: u64 = 52;

#[test]
fn what_rests_goes_while_its_node_is_short_and_no_more_than_is_missing() {
    let mut machine = Machine::new([KEPT - 3, 500]);
    machine.process(1, 0.0, [20, 0]);
    assert_eq!(machine.interval(1), [], "it has only begun to rest");
    assert_eq!(machine.interval(28), []);
    assert_eq!(machine.interval(2), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(machine.interval(60), [], "nothing is missing any more");
    machine.free[0] -= BLOCK_BYTES;
    assert_eq!(machine.interval(1), [(3, 1)]);
}

#[test]
fn memory_with_old_files_is_as_good_as_free() {
    let mut machine = Machine::new([KEPT - 3, 500]);
    machine.old_files = 2 * BLOCK_BYTES;
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    assert_eq!(machine.interval(30), [(0, 1)]);
    machine.old_files = 5 * BLOCK_BYTES;
    assert_eq!(machine.interval(30), []);
}

#[test]
fn neighbours_are_one_order_that_says_why() {
    let mut machine = Machine::new([KEPT - 3, 500]);
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    let orders = machine.orders(30);
    assert_eq!(orders.len(), 1);
    assert_eq!(orders[0].rule, "tiered: cold");
    assert_eq!(
        orders[0].why,
        "node 0 is short of memory, and nobody used 3 blocks for 30 s"
    );
}

#[test]
fn no_more_goes_than_the_node_apart_has_room_for() {
    let mut machine = Machine::new([KEPT - 9, KEPT + 2]);
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    assert_eq!(machine.interval(30).len(), 2);
    assert_eq!(machine.interval(30), []);
}

#[test]
fn a_machine_without_nodes_apart_is_left_alone() {
    let mut machine = Machine::new([0, 500]);
    let two = Arc::new(Shape::uniform(2, 1).topology());
    machine.paging.runs_on(&two);
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    assert_eq!(machine.interval(60), []);
    assert!(!machine.paging.listens());
}

#[test]
fn of_what_runs_nothing_goes_that_samples_do_not_show_to_be_cold() {
    for (times, is_shown) in [(8, true), (7, false), (0, false)] {
        let mut machine = Machine::new([KEPT - 4, 500]);
        machine.process(1, 1.0, [6, 0]);
        assert_eq!(machine.interval(1), []);
        assert!(machine.paging.listens());
        machine.use_blocks(1, &[0, 3, 5], times, 90);
        let went = machine.interval(30);
        let expected = [(1, 1), (2, 1), (4, 1)];
        assert_eq!(
            went,
            if is_shown { &expected[..] } else { &[] },
            "{times} samples each"
        );
    }
}

#[test]
fn loads_alone_show_nothing_of_what_runs() {
    let mut machine = Machine::new([KEPT - 4, 500]);
    machine.process(1, 1.0, [6, 0]);
    machine.interval(1);
    let load = |time| Sample {
        store: false,
        ..machine
            .scene
            .access(0, 0, (FIRST + 1) * BLOCK_PAGES, 0, time)
    };
    let loads: Vec<Sample> = (0..100).map(load).collect();
    machine.paging.sampled(
        &loads,
        &machine.scene.topology,
        &mut Random::seed_from_u64(1),
    );
    assert_eq!(machine.interval(30), []);
}

#[test]
fn samples_of_a_turn_that_was_not_whole_show_nothing() {
    let mut machine = Machine::new([KEPT - 10, 500]);
    machine.process(1, 1.0, [6, 0]);
    machine.interval(1);
    machine.use_blocks(1, &[0], 20, 90);
    assert_eq!(machine.interval(29), []);
    // Not seen for as long as a turn when that is over.
    machine.process(2, 1.0, [6, 0]);
    machine.use_blocks(2, &[0], 20, 90);
    assert_eq!(machine.interval(1).len(), 5, "of process 1");
    machine.use_blocks(2, &[0], 20, 90);
    assert_eq!(machine.interval(29), []);
    assert_eq!(machine.interval(1).len(), 5, "of process 2");
}

#[test]
fn what_is_used_comes_back_while_there_is_room_the_most_used_first() {
    let mut machine = Machine::new([KEPT + 2, 400]);
    machine.process(1, 1.0, [2, 4]);
    machine.interval(1);
    assert!(machine.paging.listens(), "memory is apart");
    machine.use_blocks(1, &[2], 1, 200);
    machine.use_blocks(1, &[3, 4], 2, 200);
    machine.use_blocks(1, &[5], 3, 200);
    assert_eq!(machine.interval(1), [(3, 0), (5, 0)]);
    assert_eq!(machine.interval(1), [], "node 0 is as full as it may be");
}

#[test]
fn cold_memory_makes_room_for_what_is_used() {
    let mut machine = Machine::new([KEPT, 400]);
    machine.process(1, 1.0, [0, 4]);
    machine.process(2, 0.0, [20, 0]);
    machine.interval(1);
    machine.interval(30);
    machine.use_blocks(1, &[1, 2], 5, 200);
    assert_eq!(machine.interval(1), [(0, 1), (1, 1)], "of process 2");
    assert_eq!(machine.interval(1), [(1, 0), (2, 0)]);
    assert_eq!(machine.interval(1), []);
}

#[test]
fn what_came_back_stays_for_twice_as_long_each_time() {
    let mut machine = Machine::new([KEPT, 400]);
    machine.process(1, 0.0, [1, 0]);
    let mut away_at = Vec::new();
    machine.free[0] = 0;
    for second in 0..400 {
        let short = machine.interval(1);
        if short == [(0, 1)] {
            away_at.push(second);
            // It is used as soon as it is away, and there is room for it.
            machine.free[0] = 100 * BLOCK_BYTES;
            machine.use_blocks(1, &[0], 2, 200);
        } else if short == [(0, 0)] {
            machine.free[0] = 0;
        }
    }
    let stayed: Vec<i32> = away_at
        .windows(2)
        .map(|times| times[1] - times[0])
        .collect();
    assert_eq!(stayed, [61, 121], "{away_at:?}");
}

#[test]
fn what_a_user_gave_a_place_and_what_is_fixed_stays() {
    let orders = |change: &dyn Fn(&mut Snapshot)| {
        let mut machine = Machine::new([0, 500]);
        machine.process(1, 0.0, [20, 0]);
        change(&mut machine.scene.snapshot);
        machine.interval(1);
        machine.orders(30).len()
    };
    assert_eq!(orders(&|_| ()), 1);
    assert_eq!(
        orders(&|seen| seen.processes[0].memory_policy = Some("bind:0".into())),
        0
    );
    let only_0: NodeSet = [NodeId(0)].into_iter().collect();
    assert_eq!(
        orders(&|seen| seen.processes[0].allowed_nodes = Arc::new(only_0.clone())),
        0
    );
    assert_eq!(
        orders(&|seen| seen.threads[0].unmanaged = Some(Unmanaged::OtherPolicy)),
        0
    );
    // An affinity says nothing of memory.
    let pinned = Unmanaged::UserAffinity {
        cpus: "0".parse().ok(),
    };
    assert_eq!(
        orders(&|seen| seen.threads[0].unmanaged = Some(pinned.clone())),
        1
    );
}

#[test]
fn what_was_not_tried_is_ordered_again_and_what_is_not_there_is_not() {
    let mut machine = Machine::new([KEPT - 1, 500]);
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    let orders = machine.orders(30);
    machine
        .paging
        .moved(&[PageOutcome::not_tried(&orders[0], "no bandwidth".into())]);
    assert_eq!(machine.orders(1), orders);
    let gone = PageOutcome {
        failed: [(PageFailure::NotThere, BLOCK_PAGES)].into(),
        ..PageOutcome::begun(&orders[0])
    };
    machine.paging.moved(&[gone]);
    assert_eq!(machine.interval(1), [(1, 1)], "another in its place");
    machine.free[0] -= BLOCK_BYTES;
    assert_eq!(machine.interval(1), [(2, 1)]);
    machine.free[0] -= BLOCK_BYTES;
    assert_eq!(machine.interval(30), [(0, 1)], "it may have come by then");
}

/// Latencies of 100 and 200 ns; 3.2 GB/s each.
fn slow() -> Timing {
    Timing {
        latency_ns: Some(vec![vec![100.0, 200.0], vec![200.0, 100.0]]),
        node_gb_per_s: Some(vec![3.2, 3.2]),
        link_gb_per_s: None,
    }
}

/// Node 0 as loaded as `share`, blocks 0 to 7 used 8 to 15 times; accesses take 100 in the first turn and `then` in the
/// second. What goes after that.
fn after_load(timing: Timing, share: f64, then: u64) -> Vec<(u64, u32)> {
    let mut machine = Machine::timed([KEPT + 100, 500], timing);
    machine.process(1, 1.0, [8, 0]);
    machine.load = share;
    machine.interval(1);
    let mut went = Vec::new();
    for latency in [100, then] {
        for block in 0..8 {
            machine.use_blocks(1, &[block], 8 + block, latency);
        }
        went = machine.interval(30);
    }
    went
}

#[test]
fn a_loaded_node_gives_an_eighth_of_its_accesses_away_the_fewest_first() {
    // 184 samples of two turns, of which 23 may go: 16 of block 0.
    assert_eq!(after_load(slow(), 0.9, 250), [(0, 1)]);
    assert_eq!(
        after_load(slow(), 0.9, 190),
        [],
        "node 1 would answer later"
    );
    assert_eq!(after_load(slow(), 0.4, 250), [], "it cannot be the load");
    let silent = Timing {
        latency_ns: None,
        ..slow()
    };
    assert_eq!(
        after_load(silent, 0.9, 250),
        [],
        "nobody knows how node 1 would answer"
    );
}

#[test]
fn what_left_a_loaded_node_comes_back_when_that_is_known_to_answer_sooner() {
    for (apart, near, comes) in [(300, 150, true), (200, 250, false)] {
        let mut machine = Machine::timed([KEPT + 100, 500], slow());
        machine.process(1, 1.0, [8, 0]);
        machine.load = 0.9;
        machine.interval(1);
        for latency in [100, 250] {
            machine.use_blocks(1, &[0], 8, latency);
            machine.use_blocks(1, &[1, 2, 3, 4, 5, 6, 7], 20, latency);
            let went = machine.interval(30);
            assert_eq!(went.len(), usize::from(latency == 250));
        }
        machine.use_blocks(1, &[0], 40, apart);
        machine.use_blocks(1, &[1, 2, 3, 4, 5, 6, 7], 20, near);
        assert_eq!(machine.interval(1), [], "latencies are of a whole turn");
        let back = machine.interval(30);
        assert_eq!(
            back.contains(&(0, 0)),
            comes,
            "{apart} and {near}: {back:?}"
        );
    }
}

#[test]
fn cold_memory_does_not_go_to_memory_that_is_faster() {
    let fast = Timing {
        node_gb_per_s: Some(vec![3.2, 12.8]),
        ..slow()
    };
    let mut machine = Machine::timed([0, 500], fast.clone());
    machine.process(1, 0.0, [20, 0]);
    machine.interval(1);
    assert_eq!(machine.interval(30), []);
    // What loads a controller does.
    assert_eq!(after_load(fast, 0.9, 250), [(0, 1)]);
}

/// What happens in an interval: seconds, how much of node 0 is taken by others in blocks, uses of a block of a process,
/// and their latency.
type Happening = (u64, u64, Vec<(u32, u64, u64)>, u64);

fn happening() -> impl Strategy<Value = Happening> {
    let used = proptest::collection::vec((1u32..4, 0u64..12, 1u64..30), 0..12);
    (1u64..20, 0u64..80, used, 80u64..400)
}

proptest! {
    /// Whatever happens: nodes keep what they are to keep, the orders of an interval name each block once, of processes whose
    /// memory may move alone, and no block goes away more often than its stays near allow.
    #[test]
    fn orders_keep_to_room_owners_and_stays(happenings in proptest::collection::vec(happening(), 1..80)) {
        let mut machine = Machine::timed([100, 60], slow());
        machine.process(1, 1.0, [12, 0]);
        machine.process(2, 0.0, [6, 6]);
        machine.process(3, 0.0, [12, 0]);
        machine.scene.snapshot.processes[2].memory_policy = Some("bind:0".into());
        machine.load = 0.9;
        let mut left: BTreeMap<(ProcessId, u64), Vec<u64>> = BTreeMap::new();
        for (seconds, taken, used, latency) in happenings {
            let before = machine.free[0];
            machine.free[0] = before.saturating_sub(taken * BLOCK_BYTES);
            let taken = before - machine.free[0];
            let orders = machine.orders(seconds);
            let mut named = HashSet::new();
            for order in &orders {
                prop_assert!(order.process.pid != 3, "{order:?}");
                let Pages::Window { first, count } = order.pages else { unreachable!() };
                for block in first / BLOCK_PAGES..(first + count) / BLOCK_PAGES {
                    prop_assert!(named.insert((order.process, block)), "twice: {order:?}");
                    if order.to == NodeId(1) {
                        let left = left.entry((order.process, block)).or_default();
                        left.push(machine.scene.snapshot.time_ns);
                    }
                }
            }
            let free = machine.free;
            machine.carry_out(&orders);
            for (before, after) in free.into_iter().zip(machine.free) {
                prop_assert!(after >= before.min(KEPT * BLOCK_BYTES), "{before} to {after}");
            }
            machine.free[0] += taken;
            for (process, block, times) in used {
                machine.use_blocks(process, &[block], times, latency);
            }
        }
        // It stays for 60 s the first time that it came back, then for 120 s, and so on.
        for times in left.values() {
            for (turn, pair) in times.windows(2).enumerate() {
                let stays_ns = (30 * SECOND_NS) << (turn + 1);
                prop_assert!(pair[1] - pair[0] >= stays_ns, "{times:?}");
            }
        }
    }
}
