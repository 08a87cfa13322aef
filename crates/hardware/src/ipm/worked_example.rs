//! The paper's worked example (§4.3, Figs 3 to 5), number for number.
//!
//! Page M misses in the TLB of a core on node 0 at time 164 and evicts page P. Thread 1 brought P
//! in at time 100; P is stored on node 1. Threads 0 and 2 used P before, 2 longer ago than 0.
//! `CR_shift` is 0, `CR_aging` is 1, `CR_mig` is 1.
//!
//! The paper's text does not give the initial counters of Fig. 5; 40 and 60 are chosen here.
//! Everything else is the paper's.

use super::access_table::Entry;
use super::page_history::insert_sharer;
use super::*;
use crate::{Tlb, TlbLevel, TlbManagement};

const NODE_0: usize = 0;
const NODE_1: usize = 1;
/// The TLB entry that P leaves and M takes.
const TLB_ENTRY: usize = 3;

fn page_p() -> Page {
    Page::new(0x50)
}

fn page_m() -> Page {
    Page::new(0x4d)
}

/// The state before the miss, with these counters in P's NUMA Vector.
fn before(numa_vector: [u32; 2]) -> (Ipm, [Thread; 3]) {
    let level = TlbLevel {
        entries: 8,
        ways: 8,
        hit_ns: 0.0,
    };
    let machine = Config {
        tlb: Some(Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: level,
            l2: None,
        }),
        ..Config::of_equal_nodes(1, vec![vec![100.0; 2]; 2], 10.0)
    };
    let config = IpmConfig {
        cr_shift: 0,
        cr_aging: 1,
        cr_mig: 1,
        threads: 3,
        ..IpmConfig::of_paper()
    };
    let mut ipm = Ipm::new(config, &machine).unwrap();
    let application = ipm.start_application();
    let threads = [(); 3].map(|()| ipm.start_thread(application));
    assert_eq!(threads.map(|thread| thread.number), [0, 1, 2]);

    let history = ipm.histories.pages.entry(page_p(), application);
    assert_eq!(history.numa, [1, 1], "Eq. 9 for CR_aging = 1");
    history.numa.copy_from_slice(&numa_vector);
    insert_sharer(history.sharers, 2);
    insert_sharer(history.sharers, 0);

    ipm.run(NODE_0, Some(threads[1]));
    let fill = Fill {
        page: page_p(),
        entry: TLB_ENTRY,
        evicted: None,
    };
    let first = ipm.tlb_miss(NODE_0, &fill, 100, |_| unreachable!("nothing is evicted"));
    assert_eq!(first, Eviction::None);
    (ipm, threads)
}

/// M misses and P is evicted, at time 164.
fn miss(ipm: &mut Ipm) -> Eviction {
    let fill = Fill {
        page: page_m(),
        entry: TLB_ENTRY,
        evicted: Some(page_p()),
    };
    ipm.tlb_miss(NODE_0, &fill, 164, |page| {
        assert_eq!(page, page_p());
        Some(NODE_1)
    })
}

#[test]
fn figure_3_the_residency_is_64_and_the_entry_becomes_page_m() {
    let (mut ipm, threads) = before([40, 60]);
    let of_p = *ipm.table.get(TLB_ENTRY).unwrap();
    assert_eq!(
        (of_p.page, of_p.time_stamp, of_p.thread),
        (page_p(), 100, Some(1))
    );
    assert_eq!(ipm.table.residency(164, &of_p), 164 - 100);
    // CR_tid: the thread that now runs on the core.
    ipm.run(NODE_0, Some(threads[2]));
    miss(&mut ipm);
    let of_m = Entry {
        page: page_m(),
        time_stamp: 164,
        application: threads[2].application,
        thread: Some(2),
    };
    assert_eq!(ipm.table.get(TLB_ENTRY), Some(&of_m));
}

#[test]
fn figure_4_threads_0_and_2_share_with_1_and_2_falls_out_of_the_sharers_vector() {
    let (mut ipm, threads) = before([40, 60]);
    assert_eq!(ipm.sharers(page_p()), Some(vec![0, 2]));
    miss(&mut ipm);
    let matrix = ipm.histories().matrix(threads[0].application).unwrap();
    assert_eq!(matrix.row(0), [0, 0, 0]);
    assert_eq!(matrix.row(1), [64, 0, 64], "cells (1,0) and (1,2)");
    assert_eq!(matrix.row(2), [0, 0, 0]);
    assert_eq!(ipm.sharers(page_p()), Some(vec![1, 0]));
}

#[test]
fn figure_5_node_0_has_more_than_twice_the_counter_of_node_1_so_p_moves_there() {
    let (mut ipm, _) = before([40, 60]);
    let notification = Notification {
        page: page_p(),
        from: NODE_1,
        to: NODE_0,
    };
    assert_eq!(miss(&mut ipm), Eviction::Handled(Some(notification)));
    // Aged to 20 and 30; the residency is added for node 0; 84 > 2 * 30.
    assert_eq!(ipm.affinity(page_p()), Some([20 + 64, 30].as_slice()));
}

#[test]
fn figure_5_with_exactly_twice_the_counter_p_stays() {
    let (mut ipm, _) = before([40, 84]);
    assert_eq!(miss(&mut ipm), Eviction::Handled(None));
    assert_eq!(ipm.affinity(page_p()), Some([84, 42].as_slice()));
}
