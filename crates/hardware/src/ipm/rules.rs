//! Tests of each rule of the unit, with exact figures.

use super::*;
use crate::{Tlb, TlbLevel, TlbManagement};

/// Accessors for tests.
impl Ipm {
    /// A page's affinity to each node; None without a history.
    pub(super) fn affinity(&self, page: Page) -> Option<&[u32]> {
        Some(self.histories.pages.get(page)?.1)
    }

    /// The last threads that used a page, the latest first; None without a history.
    pub(super) fn sharers(&self, page: Page) -> Option<Vec<u32>> {
        let (sharers, _) = self.histories.pages.get(page)?;
        let known = sharers.iter().copied();
        Some(known.filter(|&sharer| sharer != u32::MAX).collect())
    }

    /// Pages that have a history.
    pub(super) fn pages(&self) -> usize {
        self.histories.pages.len()
    }

    /// Threads of an application that have started and not ended, by number.
    pub(super) fn threads(&self, application: Application) -> Vec<Thread> {
        let room = self
            .histories
            .matrix(application)
            .map_or(0, SharingMatrix::threads);
        let thread = |number| Thread {
            application,
            number,
        };
        let threads = (0..room as u32).map(thread);
        threads
            .filter(|&thread| self.histories.is_running(thread))
            .collect()
    }
}

/// Two cores on each of two nodes, four TLB entries each; page numbers below 100 are on node 0,
/// others on node 1. Time stamps are in cycles, an eviction takes 10.
fn machine() -> Config {
    let level = TlbLevel {
        entries: 4,
        ways: 4,
        hit_ns: 0.0,
    };
    Config {
        tlb: Some(Tlb {
            page_bytes: 4096,
            managed_by: TlbManagement::Hardware,
            miss_ns: 0.0,
            l1: level,
            l2: None,
        }),
        ..Config::of_equal_nodes(2, vec![vec![100.0; 2]; 2], 10.0)
    }
}

fn config() -> IpmConfig {
    IpmConfig {
        cr_shift: 0,
        cr_aging: 7,
        cr_mig: 2,
        threads: 4,
        eviction_cycles: 10,
        ..IpmConfig::of_paper()
    }
}

fn unit(config: IpmConfig) -> (Ipm, Application) {
    let mut ipm = Ipm::new(config, &machine()).unwrap();
    let application = ipm.start_application();
    (ipm, application)
}

/// A unit whose pass runs every 1000 cycles, over entries that have been there for `resident_cycles`.
fn unit_with_pass(resident_cycles: u64) -> (Ipm, Application) {
    unit(IpmConfig {
        pass: Some(PeriodicPass {
            every_cycles: 1000,
            resident_cycles,
        }),
        ..config()
    })
}

fn node_of(page: Page) -> Option<usize> {
    Some(usize::from(page.number() >= 100))
}

/// A miss that fills entry 0 of a core with `page`, evicting `evicted`.
fn miss(ipm: &mut Ipm, core: usize, page: u64, evicted: Option<u64>, tsc: u64) -> Eviction {
    let fill = Fill {
        page: Page::new(page),
        entry: 0,
        evicted: evicted.map(Page::new),
    };
    ipm.tlb_miss(core, &fill, tsc, node_of)
}

/// `thread` keeps `page` in entry 0 of a core from one time to another.
fn reside(ipm: &mut Ipm, core: usize, thread: Thread, page: u64, from: u64, to: u64) -> Eviction {
    ipm.run(core, Some(thread));
    miss(ipm, core, page, None, from);
    ipm.run(core, None);
    miss(ipm, core, 7777, Some(page), to)
}

#[test]
fn one_eviction_at_a_time_and_what_comes_meanwhile_is_dropped() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    ipm.run(1, Some(thread));
    assert_eq!(miss(&mut ipm, 0, 1, None, 0), Eviction::None);
    assert_eq!(miss(&mut ipm, 1, 6, None, 0), Eviction::None);
    assert_eq!(miss(&mut ipm, 0, 2, Some(1), 100), Eviction::Handled(None));
    assert_eq!(miss(&mut ipm, 0, 3, Some(2), 109), Eviction::Dropped);
    // Each core has its own.
    assert_eq!(miss(&mut ipm, 1, 5, Some(6), 105), Eviction::Handled(None));
    assert_eq!(miss(&mut ipm, 0, 4, Some(3), 110), Eviction::Handled(None));
    let counts = ipm.counts();
    assert_eq!((counts.misses, counts.evictions, counts.dropped), (6, 4, 1));
    assert_eq!(ipm.affinity(Page::new(1)), Some([227, 127].as_slice()));
    assert_eq!(ipm.affinity(Page::new(2)), None, "its eviction was dropped");
    // The dropped eviction's entry held page 3 from cycle 109 on; 127 + 1 cycle.
    assert_eq!(ipm.affinity(Page::new(3)), Some([128, 127].as_slice()));
}

#[test]
fn the_lowest_bits_of_the_time_stamp_are_discarded() {
    let (mut ipm, application) = unit(IpmConfig {
        cr_shift: 4,
        ..config()
    });
    let thread = ipm.start_thread(application);
    reside(&mut ipm, 0, thread, 1, 31, 64);
    // 64 / 16 - 31 / 16, each rounded down.
    assert_eq!(
        ipm.affinity(Page::new(1)),
        Some([127 + 4 - 1, 127].as_slice())
    );
}

#[test]
fn time_stamps_may_wrap_round() {
    let (mut ipm, application) = unit(IpmConfig {
        time_stamp_bits: 8,
        ..config()
    });
    let thread = ipm.start_thread(application);
    reside(&mut ipm, 0, thread, 1, 250, 260);
    assert_eq!(ipm.affinity(Page::new(1)), Some([137, 127].as_slice()));
}

#[test]
fn four_reads_and_four_writes_an_eviction_with_two_sharers() {
    let (mut ipm, application) = unit(config());
    let threads = [(); 3].map(|()| ipm.start_thread(application));
    for (at, thread) in threads.into_iter().enumerate() {
        reside(
            &mut ipm,
            0,
            thread,
            1,
            at as u64 * 100,
            at as u64 * 100 + 50,
        );
    }
    let counts = *ipm.counts();
    reside(&mut ipm, 0, threads[2], 1, 1000, 1050);
    assert_eq!(ipm.counts().memory_reads - counts.memory_reads, 4);
    // And one for the miss that brought the page in.
    assert_eq!(ipm.counts().memory_writes - counts.memory_writes, 4 + 1);
}

#[test]
fn a_page_of_two_nodes_stays_until_one_uses_it_much_more() {
    let (mut ipm, application) = unit(config());
    let [one, other] = [(); 2].map(|()| ipm.start_thread(application));
    // Core 2 is on node 1. Page 5 is on node 0. 127 + 300 is no more than 4 * (127 + 10).
    reside(&mut ipm, 0, one, 5, 0, 10);
    assert_eq!(
        reside(&mut ipm, 2, other, 5, 0, 300),
        Eviction::Handled(None)
    );
    let moves = Notification {
        page: Page::new(5),
        from: 0,
        to: 1,
    };
    let second = reside(&mut ipm, 2, other, 5, 1000, 1200);
    assert_eq!(second, Eviction::Handled(Some(moves)));
    assert_eq!(ipm.counts().notifications, 1);
    // 137 and 427 aged by a 128th, rounded down, twice the former.
    assert_eq!(
        ipm.affinity(Page::new(5)),
        Some([135, 424 + 200].as_slice())
    );
}

#[test]
fn a_page_without_a_node_is_moved_nowhere() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    ipm.run(2, Some(thread));
    miss(&mut ipm, 2, 1, None, 0);
    let fill = Fill {
        page: Page::new(2),
        entry: 0,
        evicted: Some(Page::new(1)),
    };
    let eviction = ipm.tlb_miss(2, &fill, 60_000, |_| None);
    assert_eq!(eviction, Eviction::Handled(None));
    assert_eq!(ipm.affinity(Page::new(1)), Some([127, 60_127].as_slice()));
}

#[test]
fn counters_of_16_bits_saturate() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    reside(&mut ipm, 0, thread, 1, 0, 1 << 40);
    assert_eq!(ipm.affinity(Page::new(1)), Some([0xffff, 127].as_slice()));
}

#[test]
fn what_nobody_watches_is_not_seen() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    miss(&mut ipm, 0, 1, None, 0);
    ipm.run(0, Some(thread));
    assert_eq!(miss(&mut ipm, 0, 2, Some(1), 100), Eviction::None);
    ipm.run(0, None);
    assert_eq!(miss(&mut ipm, 0, 3, Some(2), 200), Eviction::Handled(None));
    assert_eq!(ipm.pages(), 1);
}

#[test]
fn what_was_invalidated_is_not_counted() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    miss(&mut ipm, 0, 1, None, 0);
    ipm.invalidated(0, 0);
    assert_eq!(miss(&mut ipm, 0, 2, None, 100), Eviction::None);
    // Nor without a report to the unit.
    assert_eq!(miss(&mut ipm, 0, 3, None, 200), Eviction::None);
    ipm.flushed(0);
    assert!(ipm.table.get(0).is_none());
    assert_eq!((ipm.pages(), ipm.counts().evictions), (0, 0));
}

#[test]
fn pages_that_stay_in_the_tlb_are_found_by_the_periodic_pass() {
    let (mut ipm, application) = unit_with_pass(600);
    let (one, other) = (ipm.start_thread(application), ipm.start_thread(application));
    let mut moves = Vec::new();
    // Page 5, on node 0, stays in core 2's TLB (node 1); page 6 has come to core 0 just now.
    ipm.run(2, Some(one));
    miss(&mut ipm, 2, 5, None, 400);
    ipm.run(0, Some(other));
    miss(&mut ipm, 0, 6, None, 401);
    ipm.pass_over_infrequently_evicted(999, node_of, |n| moves.push(n));
    assert_eq!(
        (ipm.counts().infrequent, ipm.pages()),
        (0, 0),
        "it is not time yet"
    );
    ipm.pass_over_infrequently_evicted(1000, node_of, |n| moves.push(n));
    assert_eq!(ipm.counts().infrequent, 1);
    assert_eq!(
        ipm.affinity(Page::new(5)),
        Some([127, 127 + 600].as_slice())
    );
    let to_node_1 = Notification {
        page: Page::new(5),
        from: 0,
        to: 1,
    };
    assert_eq!(moves, [to_node_1]);
    // The next is due a thousand cycles on. No time counts twice: 1000 to 2000 now.
    ipm.pass_over_infrequently_evicted(1999, node_of, |n| moves.push(n));
    assert_eq!(ipm.counts().infrequent, 1);
    ipm.pass_over_infrequently_evicted(2000, |_| None, |n| moves.push(n));
    assert_eq!(ipm.counts().infrequent, 3);
    assert_eq!(
        ipm.affinity(Page::new(5)),
        Some([127, 722 + 1000].as_slice())
    );
    assert_eq!(
        ipm.affinity(Page::new(6)),
        Some([127 + 1599, 127].as_slice())
    );
    // The pass does not keep the unit busy, and an eviction afterwards counts from the pass on.
    assert_eq!(miss(&mut ipm, 0, 7, Some(6), 2001), Eviction::Handled(None));
    assert_eq!(ipm.affinity(Page::new(6)), Some([1713 + 1, 127].as_slice()));
    assert_eq!(moves.len(), 1);
}

#[test]
fn the_pass_credits_what_a_thread_left_behind_to_where_it_runs_now() {
    let (mut ipm, application) = unit_with_pass(0);
    let (moved, stays) = (ipm.start_thread(application), ipm.start_thread(application));
    ipm.run(0, Some(moved));
    miss(&mut ipm, 0, 1, None, 500);
    ipm.run(1, Some(stays));
    miss(&mut ipm, 1, 2, None, 500);
    // To a core of node 1, where it falls asleep.
    ipm.run(2, Some(moved));
    ipm.run(2, None);
    ipm.pass_over_infrequently_evicted(1000, node_of, |_| ());
    let affinity = |page| ipm.affinity(Page::new(page)).map(<[u32]>::to_vec);
    assert_eq!(affinity(1), Some(vec![127, 127 + 500]));
    assert_eq!(affinity(2), Some(vec![127 + 500, 127]));
}

#[test]
fn a_core_behind_the_pass_has_held_its_pages_for_no_time_since() {
    let (mut ipm, application) = unit_with_pass(0);
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    miss(&mut ipm, 0, 1, None, 900);
    ipm.pass_over_infrequently_evicted(1000, node_of, |_| ());
    assert_eq!(miss(&mut ipm, 0, 2, Some(1), 950), Eviction::Handled(None));
    assert_eq!(ipm.affinity(Page::new(1)), Some([226, 127].as_slice()));
}

#[test]
fn without_a_pass_configured_there_is_none() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    ipm.run(0, Some(thread));
    miss(&mut ipm, 0, 1, None, 0);
    ipm.pass_over_infrequently_evicted(1 << 50, node_of, |n| panic!("{n:?}"));
    assert_eq!((ipm.counts().infrequent, ipm.pages()), (0, 0));
}

#[test]
fn a_number_that_is_given_out_anew_takes_nothing_over() {
    let (mut ipm, application) = unit(config());
    let [zero, one] = [(); 2].map(|()| ipm.start_thread(application));
    reside(&mut ipm, 0, zero, 1, 0, 100);
    reside(&mut ipm, 0, one, 1, 200, 300);
    reside(&mut ipm, 0, zero, 1, 400, 500);
    ipm.run(1, Some(zero));
    miss(&mut ipm, 1, 2, None, 600);
    let matrix = ipm.histories().matrix(application).unwrap();
    assert_eq!(
        (matrix.row(0), matrix.row(1)),
        ([100, 100, 0, 0].as_slice(), [100, 0, 0, 0].as_slice())
    );

    ipm.end_thread(zero);
    assert_eq!(ipm.threads(application), [one]);
    assert_eq!(
        ipm.histories().matrix(application).unwrap().between(0, 1),
        200,
        "until it is given out"
    );
    assert_eq!(ipm.start_thread(application), zero);
    assert_eq!(ipm.threads(application), [zero, one]);
    let matrix = ipm.histories().matrix(application).unwrap();
    assert_eq!((0..4).map(|other| matrix.between(0, other)).sum::<u64>(), 0);
    assert_eq!(matrix.row(0)[0], 0);
    assert_eq!(ipm.sharers(Page::new(1)), Some(vec![1]));
    // Page 2, brought in by the former thread 0: its residency counts for the node, for no thread.
    ipm.run(1, None);
    assert_eq!(miss(&mut ipm, 1, 3, Some(2), 700), Eviction::Handled(None));
    assert_eq!(ipm.affinity(Page::new(2)), Some([227, 127].as_slice()));
    assert_eq!(ipm.sharers(Page::new(2)), Some(vec![]));
}

#[test]
#[should_panic(expected = "has ended and cannot run on core 0")]
fn an_ended_thread_does_not_run() {
    let (mut ipm, application) = unit(config());
    let thread = ipm.start_thread(application);
    ipm.end_thread(thread);
    ipm.run(0, Some(thread));
}

#[test]
fn more_threads_than_configured_make_room_for_themselves() {
    let (mut ipm, application) = unit(config());
    let threads: Vec<_> = (0..4).map(|_| ipm.start_thread(application)).collect();
    reside(&mut ipm, 0, threads[0], 1, 0, 100);
    reside(&mut ipm, 0, threads[3], 1, 200, 300);
    let room = |ipm: &Ipm| ipm.histories().matrix(application).unwrap().threads();
    assert_eq!(room(&ipm), 4);
    let fifth = ipm.start_thread(application);
    assert_eq!(room(&ipm), 8);
    assert_eq!(ipm.histories().matrix(application).unwrap().row(3)[0], 100);
    reside(&mut ipm, 0, fifth, 1, 400, 500);
    let matrix = ipm.histories().matrix(application).unwrap();
    assert_eq!(matrix.row(4), [100, 0, 0, 100, 0, 0, 0, 0]);
    for _ in 0..1000 {
        ipm.start_thread(application);
    }
    assert_eq!(ipm.histories().matrix(application).unwrap().threads(), 1024);
    assert_eq!(
        ipm.histories().matrix(application).unwrap().between(4, 3),
        100
    );
}

#[test]
fn applications_have_their_own_matrices_and_share_pages_by_node_alone() {
    let (mut ipm, first) = unit(config());
    let second = ipm.start_application();
    let [a, b] = [first, second].map(|application| ipm.start_thread(application));
    let c = ipm.start_thread(second);
    assert_eq!((a.number, b.number, c.number), (0, 0, 1));
    reside(&mut ipm, 0, a, 1, 0, 100);
    reside(&mut ipm, 2, c, 1, 0, 100);
    assert_eq!(ipm.sharers(Page::new(1)), Some(vec![0]));
    assert_eq!(ipm.affinity(Page::new(1)), Some([226, 227].as_slice()));
    reside(&mut ipm, 0, b, 2, 200, 300);
    reside(&mut ipm, 0, c, 2, 400, 500);
    let added = |ipm: &Ipm, application| {
        let matrix = ipm.histories().matrix(application).unwrap();
        (matrix.row(0).to_vec(), matrix.row(1).to_vec())
    };
    assert_eq!(added(&ipm, first), (vec![0; 4], vec![0; 4]));
    assert_eq!(added(&ipm, second), (vec![0; 4], vec![100, 0, 0, 0]));

    ipm.run(1, Some(c));
    miss(&mut ipm, 1, 9, None, 600);
    ipm.end_application(second);
    assert!(ipm.histories().matrix(second).is_none() && ipm.threads(second).is_empty());
    assert_eq!((ipm.pages(), ipm.sharers(Page::new(2))), (1, None));
    assert_eq!(miss(&mut ipm, 1, 10, Some(9), 700), Eviction::None);
    let third = ipm.start_application();
    assert_eq!(added(&ipm, third), (vec![0; 4], vec![0; 4]));
    assert_eq!(ipm.start_thread(third).number, 0);
}

#[test]
fn a_machine_without_tlbs_has_no_unit() {
    let machine = Config {
        tlb: None,
        ..machine()
    };
    assert_eq!(
        Ipm::new(config(), &machine).unwrap_err(),
        HardwareError::NoTlb
    );
}
