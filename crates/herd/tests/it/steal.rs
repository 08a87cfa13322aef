//! The suspended steal: a held thread that waits is given to an idle node when it must be, and only then.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_herd::governor::{Cause, Governed, ThreadChange, ThreadGovernor};
use numaherd_herd::settings::{AffinityScope, Limits, Steal, StealWhen};
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{Snapshot, Thread, Unmanaged};
use proptest::prelude::*;

use crate::fake::{cpus, machine, place, plan_of, snapshot, thread, tid};
use crate::threads::carry_out;

/// Nodes are left to the kernel; no limit of moves is in the way.
fn limits() -> Limits {
    Limits {
        scope: Some(AffinityScope::Node),
        moves_per_second: 1e9,
        moves_per_interval: u32::MAX,
        bounce_limit: u32::MAX,
        ..Limits::default()
    }
}

/// A machine whose CPUs are shared out evenly among the threads of each node, under a governor whose
/// policy wants nothing more once threads are held.
struct Shared {
    topology: Arc<Topology>,
    governor: ThreadGovernor,
    threads: Vec<Thread>,
    /// What each thread would use, were there room.
    demands: Vec<f64>,
    /// A tenth of a second, unless set: as long as it takes to see that a node is idle.
    interval_ns: u64,
    now_ns: u64,
}

impl Shared {
    /// Threads on CPUs, each with what it would use; the held ones are held to the node they are on.
    fn new(topology: Arc<Topology>, limits: &Limits, threads: &[(u32, f64, bool)]) -> Self {
        let governor = ThreadGovernor::new(limits, &topology);
        let numbered = (1..).zip(threads);
        let all = numbered.map(|(n, &(cpu, ..))| thread(n, n, cpu, &topology));
        let mut shared = Self {
            threads: all.collect(),
            demands: threads.iter().map(|&(_, demand, _)| demand).collect(),
            topology,
            governor,
            interval_ns: 100_000_000,
            now_ns: 0,
        };
        let held: Vec<usize> = (0..threads.len()).filter(|&at| threads[at].2).collect();
        shared.hold(&held);
        shared
    }

    fn hold(&mut self, held: &[usize]) {
        let seen = self.seen();
        let placements: Vec<_> = held
            .iter()
            .map(|&at| place(&self.threads[at], self.threads[at].cpu.0))
            .collect();
        let governed = self.governor.govern(&seen, &plan_of(&placements));
        carry_out(&mut self.governor, &seen, &governed, &mut self.threads);
    }

    fn node(&self, thread: &Thread) -> NodeId {
        self.topology.node_of(thread.place()).unwrap()
    }

    fn demand_of(&self, node: NodeId) -> f64 {
        let there = self.threads.iter().zip(&self.demands);
        let there = there.filter(|(thread, _)| self.node(thread) == node);
        there.map(|(_, demand)| demand).sum()
    }

    fn cpus_of(&self, node: NodeId) -> f64 {
        let cpus = self.topology.cpus().iter();
        cpus.filter(|cpu| cpu.node == node).count() as f64
    }

    /// An interval passes: each node's CPUs are shared out in proportion to what is wanted.
    fn seen(&mut self) -> Snapshot {
        self.now_ns += self.interval_ns;
        for at in 0..self.threads.len() {
            let node = self.node(&self.threads[at]);
            let got = (self.cpus_of(node) / self.demand_of(node)).min(1.0);
            self.threads[at].cpu_share = self.demands[at] * got;
            self.threads[at].wait_share = self.demands[at] * (1.0 - got);
        }
        Snapshot {
            interval_ns: self.interval_ns,
            ..snapshot(&self.topology, self.now_ns as f64 / 1e9, &self.threads)
        }
    }

    fn interval(&mut self) -> Governed {
        let seen = self.seen();
        let governed = self.governor.govern(&seen, &plan_of(&[]));
        carry_out(&mut self.governor, &seen, &governed, &mut self.threads);
        governed
    }

    /// The kernel takes a thread that it may, and that waits, to the node that has most room for it.
    fn balance(&mut self) {
        for at in 0..self.threads.len() {
            let thread = &self.threads[at];
            let free = |cpu: CpuId| {
                let node = self.topology.node_of(cpu).unwrap();
                self.cpus_of(node) - self.demand_of(node)
            };
            let mine = thread.affinity.iter();
            let best = mine.max_by(|&a, &b| free(a).total_cmp(&free(b)));
            let best = best.filter(|&best| free(best) >= self.demands[at]);
            if let (Some(best), None) = (best, thread.assigned)
                && thread.wait_share > 0.0
            {
                self.threads[at].cpu = best;
            }
        }
    }

    fn waiting(&self) -> f64 {
        self.threads.iter().map(|thread| thread.wait_share).sum()
    }

    fn cpu_of(&self, number: u32) -> CpuId {
        let thread = self.threads.iter().find(|t| t.id == tid(number));
        thread.unwrap().place()
    }
}

/// Three threads want a CPU of node 0's two whole; node 1 has nothing to do.
fn crowded(limits: &Limits) -> Shared {
    let threads = [(0, 1.0, true), (1, 1.0, true), (0, 1.0, true)];
    Shared::new(machine(2, 2), limits, &threads)
}

/// Who is given where in each of so many intervals.
fn stolen(shared: &mut Shared, intervals: usize) -> Vec<Vec<(u32, u32)>> {
    let mut stolen = Vec::new();
    for _ in 0..intervals {
        let governed = shared.interval();
        let back = |change: &&ThreadChange| change.cause == Cause::GiveBack;
        let given_back = governed.changes.iter().filter(back).count();
        assert_eq!(governed.stolen.len() + given_back, governed.changes.len());
        let pairs = governed.stolen.iter().map(|s| (s.thread.tid, s.to.0));
        stolen.push(pairs.collect());
    }
    stolen
}

#[test]
fn a_held_thread_that_waits_is_given_to_the_idle_node() {
    let mut shared = crowded(&limits());
    let governed = shared.interval();
    assert_eq!(
        governed.stolen[0].why,
        "it waited 33 % of the time; threads wait for 1.0 more CPUs than 0-1, to which it is held, \
         have, while of 2-3 2.0 CPUs are free and no thread waits that the kernel could take there"
    );
    assert_eq!(*governed.changes[0].order.cpus, cpus("2-3"), "held there");
    assert_eq!(shared.cpu_of(1), CpuId(2));
    assert_eq!(stolen(&mut shared, 20).concat(), [], "and stays");
    assert_eq!(shared.waiting(), 0.0);
}

#[test]
fn one_is_given_to_each_idle_node_at_once_and_no_more() {
    let threads: Vec<(u32, f64, bool)> = (0..6).map(|n| (n % 2, 1.0, true)).collect();
    let mut shared = Shared::new(machine(3, 2), &limits(), &threads);
    let by_interval = stolen(&mut shared, 6);
    assert_eq!(by_interval[0], [(1, 2), (2, 4)]);
    // What the places have had is seen anew first: the next tenth of a second is the second look.
    assert_eq!(by_interval[1], [(3, 3), (4, 5)]);
    assert_eq!(by_interval[2..].concat(), []);
}

#[test]
fn a_blip_is_not_enough() {
    let mut shared = crowded(&limits());
    shared.interval_ns = 10_000_000;
    shared.demands = vec![0.5; 3];
    assert_eq!(stolen(&mut shared, 100).concat(), []);
    shared.demands = vec![1.0; 3];
    let by_interval = stolen(&mut shared, 10);
    // The mean over the latest 100 ms is above half a CPU once one has waited for 70 ms.
    let first = by_interval.iter().position(|given| !given.is_empty());
    assert_eq!(first, Some(6));
}

#[test]
fn after_a_steal_the_nodes_are_looked_at_anew_for_a_while() {
    let threads: Vec<(u32, f64, bool)> = (0..4).map(|n| (n % 2, 1.0, true)).collect();
    let mut shared = Shared::new(machine(2, 2), &limits(), &threads);
    shared.interval_ns = 10_000_000;
    let by_interval = stolen(&mut shared, 30);
    let given = (0..30).filter(|&at| !by_interval[at].is_empty());
    assert_eq!(given.collect::<Vec<usize>>(), [0, 10]);
}

#[test]
fn nothing_is_given_when_nothing_waits() {
    let threads = [(0, 1.0, true), (1, 1.0, true), (2, 0.5, true)];
    let mut shared = Shared::new(machine(2, 2), &limits(), &threads);
    assert_eq!(stolen(&mut shared, 20).concat(), []);
}

#[test]
fn nothing_is_given_while_another_waits_that_the_kernel_can_take() {
    let mut threads = vec![(0, 1.0, true), (1, 1.0, true), (0, 1.0, true)];
    threads.push((1, 1.0, false));
    let mut shared = Shared::new(machine(2, 2), &limits(), &threads);
    assert_eq!(stolen(&mut shared, 20).concat(), [], "suspended");
    // Once that one is where it has a CPU, a held one is given the other.
    shared.balance();
    assert_eq!(stolen(&mut shared, 20).concat(), [(1, 2)]);
}

#[test]
fn nothing_is_given_to_a_node_without_a_whole_cpu() {
    let mut threads = vec![(0, 1.0, true), (1, 1.0, true), (0, 1.0, true)];
    threads.push((2, 1.0, true));
    threads.push((3, 0.2, true));
    let mut shared = Shared::new(machine(2, 2), &limits(), &threads);
    assert_eq!(stolen(&mut shared, 20).concat(), []);
}

#[test]
fn a_thread_that_may_not_be_there_is_not_given_and_the_next_one_is() {
    let bound = |change: fn(&mut Thread)| {
        let mut shared = crowded(&limits());
        change(&mut shared.threads[0]);
        change(&mut shared.threads[1]);
        stolen(&mut shared, 10).concat()
    };
    let cpuset = |thread: &mut Thread| thread.cpuset = Arc::new(cpus("0-1"));
    assert_eq!(bound(cpuset), [(3, 2)]);
    let hands_off = |thread: &mut Thread| thread.unmanaged = Some(Unmanaged::other("real-time"));
    assert_eq!(
        bound(hands_off),
        [],
        "given back, so that the kernel can take it there"
    );
    let pinned = |thread: &mut Thread| thread.affinity = Arc::new(cpus("0"));
    assert_eq!(bound(pinned), [(3, 2)], "by its user");

    let only_node_0 = Limits {
        cpus: Some(cpus("0-1")),
        ..limits()
    };
    assert_eq!(stolen(&mut crowded(&only_node_0), 10).concat(), []);
    let nobody_may_move = Limits {
        moves_per_interval: 0,
        ..limits()
    };
    assert_eq!(stolen(&mut crowded(&nobody_may_move), 10).concat(), []);
}

#[test]
fn where_the_policy_balances_itself_nothing_is_given_unless_that_is_set() {
    let given = |scope, when| {
        let steal = Steal {
            when,
            ..Steal::default()
        };
        let limits = Limits {
            scope: Some(scope),
            steal,
            ..limits()
        };
        stolen(&mut crowded(&limits), 10).concat().len()
    };
    assert_eq!(given(AffinityScope::Node, StealWhen::Node), 1);
    assert_eq!(given(AffinityScope::Domain, StealWhen::Node), 0);
    assert_eq!(given(AffinityScope::Domain, StealWhen::Always), 1);
    assert_eq!(given(AffinityScope::Node, StealWhen::Never), 0);
}

#[test]
fn a_thread_that_goes_to_and_fro_by_the_policys_doing_is_frozen() {
    let limits = Limits {
        bounce_limit: 4,
        ..limits()
    };
    let mut shared = crowded(&limits);
    let mut moves = 0;
    for _ in 0..40 {
        moves += shared.interval().stolen.len();
        // The policy takes it back each time.
        let seen = shared.seen();
        let away = shared.threads.iter().filter(|t| t.place().0 >= 2);
        let back: Vec<_> = away.map(|thread| place(thread, 0)).collect();
        let governed = shared.governor.govern(&seen, &plan_of(&back));
        moves += governed.changes.len();
        carry_out(&mut shared.governor, &seen, &governed, &mut shared.threads);
    }
    assert!(moves <= 4 * 3, "{moves} moves of three threads");
}

fn some_threads() -> impl Strategy<Value = Vec<(u32, f64, bool)>> {
    proptest::collection::vec((0u32..9, 0.05..1.0f64, any::<bool>()), 1..16)
}

proptest! {
    #[test]
    fn waiting_never_grows_and_nobody_goes_to_and_fro(
        threads in some_threads(),
        cpusets in proptest::collection::vec(1u8..8, 16),
    ) {
        let mut shared = Shared::new(machine(3, 3), &limits(), &threads);
        for (thread, nodes) in shared.threads.iter_mut().zip(&cpusets) {
            let node = thread.cpu.0 / 3;
            let may = |cpu: &CpuId| cpu.0 / 3 == node || nodes >> (cpu.0 / 3) & 1 == 1;
            thread.cpuset = Arc::new((0..9).map(CpuId).filter(may).collect());
            thread.affinity = Arc::new(thread.affinity.intersection(&thread.cpuset));
        }
        shared.seen();
        let mut before = shared.waiting();
        let mut given: BTreeMap<u32, u32> = BTreeMap::new();
        for _ in 0..40 {
            let governed = shared.interval();
            for stolen in &governed.stolen {
                *given.entry(stolen.thread.tid).or_default() += 1;
                let thread = shared.threads.iter().find(|t| t.id == stolen.thread).unwrap();
                prop_assert!(thread.cpuset.contains(stolen.to));
            }
            shared.seen();
            prop_assert!(shared.waiting() <= before + 1e-9, "{} after {before}", shared.waiting());
            before = shared.waiting();
            shared.balance();
            shared.seen();
            prop_assert!(shared.waiting() <= before + 1e-9);
            before = shared.waiting();
        }
        prop_assert!(given.values().all(|&times| times == 1), "{given:?}");
        prop_assert_eq!(left_stranded(&shared), None);
    }
}

/// A held thread that still waits though a node has a whole CPU for it and the kernel can take nobody.
fn left_stranded(shared: &Shared) -> Option<(u32, NodeId)> {
    let nodes = shared.topology.nodes().iter().map(|node| node.id);
    let waits = |thread: &&Thread| thread.wait_share >= 0.1;
    let reaches =
        |thread: &Thread, cpus: &numaherd_topology::CpuSet| thread.affinity.intersects(cpus);
    for node in nodes {
        let here = &shared.topology.node(node).unwrap().cpus;
        let idle = shared.cpus_of(node) - shared.demand_of(node) >= 0.9;
        let elsewhere = |thread: &&Thread| shared.node(thread) != node;
        let mut others = shared.threads.iter().filter(waits).filter(elsewhere);
        if !idle || others.clone().any(|thread| reaches(thread, here)) {
            continue;
        }
        let stranded = others.find(|thread| {
            let crowd = shared.node(thread);
            let waiting = shared.demand_of(crowd) - shared.cpus_of(crowd);
            thread.assigned.is_some() && waiting >= 0.5 && thread.cpuset.intersects(here)
        });
        if let Some(thread) = stranded {
            return Some((thread.id.tid, node));
        }
    }
    None
}
