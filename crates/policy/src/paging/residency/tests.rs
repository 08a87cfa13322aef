//! Notices, samples in their place, and the guard.

use super::*;
use crate::paging::bench::Bench;
use crate::paging::driver::Driven;
use crate::policy::Paging;
use numaherd_testing::Scene;
use numaherd_topology::NodeId;
use numaherd_world::Notice;
use proptest::prelude::*;

fn bench(toml: &str) -> Bench<Driven<IntensePages>> {
    {
        let settings = Settings::parse(toml).unwrap();
        Bench::new(Driven::guarded(&settings, IntensePages::new(&settings)))
    }
}

fn notice(page: u64, to: u32, time_ns: u64) -> Notice {
    Notice {
        time_ns,
        thread: numaherd_testing::tid(2),
        process: Scene::process(1),
        page,
        from: NodeId(1 - to),
        to: NodeId(to),
    }
}

#[test]
fn every_notice_is_an_order_and_neighbours_are_one() {
    let mut bench = bench("");
    let notices = [7, 3, 8, 4].map(|page| notice(page, 1, 0));
    assert_eq!(bench.on_notices(&notices), [(3, 2, 1), (7, 2, 1)]);
    assert_eq!(bench.on_notices(&notices), [], "they are on their way");
}

#[test]
fn a_page_that_goes_to_and_fro_is_frozen_and_its_neighbour_is_not() {
    let mut bench = bench("[paging]\nbounce_limit = 3");
    let mut to = |round: u32| {
        let time_ns = u64::from(round) * 1_000_000;
        bench.on_notices(&[notice(5, round % 2, time_ns)])
    };
    let ordered: Vec<usize> = (0..8).map(|round| to(round).len()).collect();
    assert_eq!(ordered, [1, 1, 1, 1, 0, 0, 0, 0], "three bounces");
    assert_eq!(bench.on_notices(&[notice(6, 1, 9_000_000)]), [(6, 1, 1)]);
    // After a minute it gets another chance.
    let thawed = notice(5, 1, 62_000_000_000);
    assert_eq!(bench.on_notices(&[thawed]), [(5, 1, 1)]);
}

#[test]
fn with_residency_samples_say_nothing_and_with_samples_notices_do() {
    let mut residency = bench("");
    assert_eq!(residency.paging.needs().signals, [Signal::TlbResidency]);
    assert_eq!(residency.on(&[(2, 5, 0); 20]), []);
    assert_eq!(residency.paging.needs().caveat, None);
    assert!(!residency.paging.needs().finds_sharing);
    assert_eq!(residency.paging.shared(), []);

    let mut samples = bench("[ipm]\nevidence = \"samples\"");
    assert_eq!(samples.paging.needs().signals, [Signal::MemorySamples]);
    assert!(samples.paging.needs().caveat.is_some());
    assert_eq!(samples.on_notices(&[notice(5, 1, 0)]), []);
    assert_eq!(samples.on(&[(2, 5, 0); 3]), []);
    assert_eq!(samples.on(&[(3, 5, 0)]), [(5, 1, 1)]);
    assert!(samples.paging.needs().finds_sharing);
    let sharing = samples.paging.shared();
    assert_eq!(sharing.len(), 1);
    let [two, three] = [2, 3].map(numaherd_testing::tid);
    assert_eq!(sharing[0].1.pairs, [(two, three, 2 * 128)]);
}

proptest! {
    /// Every order is for noticed pages, to the node that a notice of the call named.
    #[test]
    fn orders_are_for_notices(
        noticed in prop::collection::vec((0u64..20, 0u32..2, 0u64..3_000_000_000), 0..100),
        lots in 1usize..5,
    ) {
        let mut bench = bench("");
        let mut notices: Vec<Notice> = noticed.iter().map(|&(page, to, time_ns)| notice(page, to, time_ns)).collect();
        notices.sort_by_key(|notice| notice.time_ns);
        for lot in notices.chunks(notices.len().div_ceil(lots).max(1)) {
            let mut seen = std::collections::BTreeSet::new();
            for (first, count, to) in bench.on_notices(lot) {
                for page in first..first + count {
                    prop_assert!(seen.insert(page));
                    prop_assert!(lot.iter().any(|n| (n.page, n.to.0) == (page, to)));
                }
            }
        }
    }
}
