//! Counted accesses: most samples, and kMAF.

use super::*;
use crate::paging::bench::Bench;
use crate::paging::driver::Driven;
use crate::policy::Paging;
use proptest::prelude::*;

fn kmaf(toml: &str) -> Bench<Driven<Kmaf>> {
    Bench::new(Driven::new(Kmaf::new(&Settings::parse(toml).unwrap())))
}

fn id(tid: u32) -> ThreadId {
    numaherd_testing::tid(tid)
}

#[test]
fn a_page_goes_to_the_node_with_most_samples_and_a_tie_changes_nothing() {
    let mut bench = Bench::new(Driven::new(Sampled::default()));
    assert_eq!(bench.on(&[(2, 5, 0)]), [(5, 1, 1)]);
    assert_eq!(bench.on(&[(0, 6, 0), (2, 6, 0)]), []);
    assert_eq!(bench.on(&[(3, 6, 0)]), [(6, 1, 1)]);
    // What was sampled long ago counts as much.
    bench.later();
    assert_eq!(bench.on(&[(0, 6, 1)]), []);
    assert_eq!(bench.on(&[(0, 6, 1)]), [(6, 1, 0)]);
}

#[test]
fn kmaf_lets_the_first_fault_pass_and_moves_what_is_exclusive() {
    let mut bench = kmaf("");
    assert_eq!(bench.on(&[(2, 5, 0)]), [], "first touch holds");
    assert_eq!(bench.on(&[(2, 5, 0)]), [(5, 1, 1)]);
    // One fault of the page's own node in four is not nearly nothing.
    assert_eq!(bench.on(&[(0, 6, 0), (2, 6, 0), (2, 6, 0), (3, 6, 0)]), []);
    let mut laxer = kmaf("[kmaf]\nexclusivity = 0.75");
    assert_eq!(
        laxer.on(&[(0, 6, 0), (2, 6, 0), (2, 6, 0), (3, 6, 0)]),
        [(6, 1, 1)]
    );
}

#[test]
fn kmaf_counts_the_last_two_who_faulted_on_a_page() {
    let mut bench = kmaf("");
    bench.on(&[(0, 5, 0), (1, 5, 0), (1, 5, 0), (2, 5, 0), (3, 6, 0)]);
    let sharing = bench.paging.shared();
    assert_eq!(sharing.len(), 1);
    // 1 with 0 twice, since 0 is still the page's last but one; 2 with 1 twice.
    assert_eq!(sharing[0].1.pairs, [(id(0), id(1), 2), (id(1), id(2), 2)]);
    assert_eq!(bench.paging.shared(), []);
}

#[test]
fn processes_that_ended_are_forgotten() {
    let mut bench = Bench::new(Driven::new(Sampled::default()));
    bench.on(&[(2, 5, 0)]);
    bench.scene.snapshot.processes.clear();
    bench.interval();
    assert!(bench.paging.rule.0.0.is_empty());
}

proptest! {
    /// After each call a page that was sampled is ordered to a node with more samples of it than its
    /// own and no fewer than any.
    #[test]
    fn to_the_most(samples in prop::collection::vec((0u32..4, 0u64..4), 0..60)) {
        let mut bench = Bench::new(Driven::new(Sampled::default()));
        let mut counts: HashMap<u64, [u32; 2]> = HashMap::new();
        for &(tid, page) in &samples {
            bench.later();
            let of = counts.entry(page).or_default();
            of[tid as usize / 2] += 1;
            let expected = if of[1] > of[0] { vec![(page, 1, 1)] } else { vec![] };
            prop_assert_eq!(bench.on(&[(tid, page, 0)]), expected);
        }
    }
}
