use super::*;

const PAGES: u64 = 12 * SCAN_PAGES;

fn scan() -> Scan {
    Scan::new(5.0, PAGES, 2, true)
}

fn user(node: usize, share: f64, is_settled: bool) -> User {
    let id = ThreadId { tid: 1, born: 0 };
    User {
        id,
        index: 0,
        node,
        share,
        is_settled,
    }
}

#[test]
fn in_the_first_pass_every_fault_moves_its_page() {
    let users = [user(0, 0.25, false), user(1, 0.75, false)];
    assert_eq!(scan().share_moved(&users, 0, 1), 0.75);
    assert_eq!(scan().share_moved(&users, 1, 0), 0.25);
}

#[test]
fn later_a_page_moves_at_two_faults_from_one_node() {
    let mut scan = scan();
    scan.passes = 1;
    let alone = [user(1, 1.0, true)];
    assert_eq!(scan.share_moved(&alone, 0, 1), 1.0);
    let new = [user(1, 1.0, false)];
    assert_eq!(
        scan.share_moved(&new, 0, 1),
        0.0,
        "the last was from elsewhere"
    );
    // Two threads on node 1: one of them twice in a row, or one after the other where the process is there far
    // more.
    let users = [user(0, 0.5, true), user(1, 0.25, true), user(1, 0.25, true)];
    assert_eq!(scan.share_moved(&users, 0, 1), 0.125);
    (scan.on, scan.of) = (vec![100.0, 301.0], vec![100.0, 301.0]);
    assert_eq!(scan.share_moved(&users, 0, 1), 0.25);
    // Where the pages already are outweighs this at three to four.
    (scan.on, scan.of) = (vec![100.0, 100.0], vec![400.0, 300.0]);
    assert_eq!(
        scan.share_moved(&users, 0, 1),
        0.125,
        "as much as outweighs it"
    );
    scan.of[0] = 401.0;
    assert_eq!(scan.share_moved(&users, 0, 1), 0.25);
}

#[test]
fn scans_come_more_seldom_the_more_faults_are_local_or_private() {
    let after = |local: f64, private: f64, period_ns: f64| {
        let mut scan = scan();
        (scan.faults, scan.local, scan.private) = (100.0, local, private);
        scan.period_ns = period_ns;
        scan.adapt(PAGES);
        scan.period_ns
    };
    let ms = 1e6;
    assert_eq!(
        shortest_ns(PAGES),
        100.0 * ms,
        "a twelfth of a second is less than is allowed"
    );
    assert_eq!(shortest_ns(2 * SCAN_PAGES), 500.0 * ms);
    assert_eq!(after(0.0, 100.0, 1000.0 * ms), 1300.0 * ms);
    assert_eq!(after(0.0, 75.0, 1000.0 * ms), 1100.0 * ms);
    assert_eq!(after(95.0, 0.0, 1000.0 * ms), 1200.0 * ms);
    assert_eq!(after(40.0, 25.0, 1000.0 * ms), 700.0 * ms);
    assert_eq!(
        after(0.0, 0.0, 120.0 * ms),
        100.0 * ms,
        "no less than the shortest"
    );
    assert_eq!(
        after(100.0, 100.0, 4500.0 * ms),
        5000.0 * ms,
        "no pass longer than 60 s"
    );
}

#[test]
fn pages_are_taken_from_the_first_run_on() {
    let mut runs: VecDeque<_> = [0..10, 20..25].into();
    let mut taken = |pages| -> Vec<(u64, u64)> {
        let taken = take(&mut runs, pages).into_iter();
        taken.map(|run| (run.start, run.end)).collect()
    };
    assert_eq!(taken(4), [(0, 4)]);
    assert_eq!(taken(8), [(4, 10), (20, 22)]);
    assert_eq!(taken(8), [(22, 25)]);
    assert_eq!(taken(8), []);
}
