//! The kernel's rule, case by case.

use super::*;
use crate::paging::bench::Bench;
use crate::paging::driver::Driven;
use proptest::prelude::*;

fn bench() -> Bench<Driven<NumaBalancing>> {
    Bench::new(Driven::new(NumaBalancing::default()))
}

#[test]
fn a_first_fault_moves_a_page() {
    assert_eq!(bench().on(&[(2, 5, 0), (0, 6, 0)]), [(5, 1, 1)]);
}

#[test]
fn a_page_that_two_nodes_use_in_turns_stays_where_it_is() {
    let mut bench = bench();
    assert_eq!(bench.on(&[(0, 5, 0)]), []);
    for _ in 0..20 {
        assert_eq!(bench.on(&[(2, 5, 0)]), []);
        bench.later();
        assert_eq!(bench.on(&[(0, 5, 0)]), []);
    }
}

#[test]
fn a_thread_that_faults_twice_in_a_row_draws_the_page() {
    let mut bench = bench();
    assert_eq!(bench.on(&[(0, 5, 0), (2, 5, 0)]), []);
    assert_eq!(bench.on(&[(2, 5, 0)]), [(5, 1, 1)]);
}

#[test]
fn two_threads_of_a_node_draw_it_when_the_process_runs_there_far_more() {
    // Threads 2 and 3 of node 1 fault on page 5 of node 0 in turns.
    let shared = [(0, 5, 0), (2, 5, 0), (3, 5, 0)];
    let mut rarely = bench();
    for page in 100..120 {
        rarely.on(&[(0, page, 0), (1, page + 100, 1), (1, page + 100, 1)]);
    }
    assert_eq!(rarely.on(&shared), []);
    let mut mostly = bench();
    for page in 100..120 {
        mostly.on(&[(2, page, 1), (3, page, 1)]);
    }
    assert_eq!(mostly.on(&shared), [(5, 1, 1)]);
}

#[test]
fn what_is_long_ago_counts_less() {
    let mut group = Group::default();
    group.on.insert(NodeId(0), 8);
    group.pages_of.insert(NodeId(0), 8);
    group.on.insert(NodeId(1), 10);
    group.pages_of.insert(NodeId(1), 10);
    assert!(!group.should_move(NodeId(0), NodeId(1)));
    for _ in 0..4 {
        group.fade();
    }
    *group.on.entry(NodeId(1)).or_default() += 1;
    assert!(group.should_move(NodeId(0), NodeId(1)));
}

#[test]
fn a_process_that_ended_is_forgotten() {
    let mut bench = bench();
    bench.on(&[(0, 5, 0)]);
    bench.scene.snapshot.processes.clear();
    bench.interval();
    assert!(bench.paging.rule.last.is_empty() && bench.paging.rule.groups.is_empty());
}

proptest! {
    /// A page is only ever ordered to the node of a thread that faulted on it in that call, and unless
    /// it is its first fault, only where the fault before was from that node too.
    #[test]
    fn two_in_a_row(faults in prop::collection::vec((0u32..4, 0u64..4), 1..80)) {
        let mut bench = bench();
        let mut before: HashMap<u64, u32> = HashMap::new();
        for &(tid, page) in &faults {
            bench.later();
            let orders = bench.on(&[(tid, page, 0)]);
            let last = before.insert(page, tid / 2);
            for order in orders {
                prop_assert_eq!(order, (page, 1, tid / 2));
                prop_assert!(last.is_none_or(|node| node == tid / 2));
            }
        }
    }
}
