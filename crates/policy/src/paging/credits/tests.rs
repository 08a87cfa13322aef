//! Events credited: pages, sharing, threads that come and go.

use super::*;
use numaherd_testing::Scene;
use numaherd_world::Sample;
use proptest::prelude::*;

/// Two nodes of two CPUs; process 1 with a thread on each CPU.
fn scene() -> Scene {
    let mut scene = Scene::uniform(2, 2);
    for cpu in 0..4 {
        scene.thread(1, 1.0, cpu);
    }
    scene.home(1, "p", 0);
    scene
}

fn id(tid: u32) -> ThreadId {
    numaherd_testing::tid(tid)
}

/// Lets threads, each on the CPU of its number, use pages of node 0. Returns which are wished for.
fn credit(credits: &mut Credits, scene: &Scene, used: &[(u32, u64)]) -> Vec<u64> {
    let used = used.iter().copied();
    used.filter(|&(tid, page)| {
        let sample = scene.access(tid, tid, page, 0, 0);
        credit_one(credits, scene, &sample, page).is_some()
    })
    .map(|(_, page)| page)
    .collect()
}

fn credit_one(credits: &mut Credits, scene: &Scene, sample: &Sample, page: u64) -> Option<NodeId> {
    let node = scene.topology.node_of(sample.cpu)?;
    credits.credit(&Access {
        sample,
        page,
        node,
        is_known: true,
        topology: &scene.topology,
    })
}

#[test]
fn four_events_of_another_node_in_a_row_are_intense_use() {
    let scene = scene();
    let mut credits = Credits::new(7, 2);
    assert!(credit(&mut credits, &scene, &[(2, 5); 3]).is_empty());
    assert_eq!(credit(&mut credits, &scene, &[(3, 5)]), [5]);
    // Where the page's own node uses it as much, nothing is.
    let both: Vec<(u32, u64)> = (0..100).flat_map(|_| [(0, 6), (2, 6)]).collect();
    assert!(credit(&mut credits, &scene, &both).is_empty());
}

#[test]
fn who_uses_a_page_shares_with_its_last_two_users_and_is_told_once() {
    let scene = scene();
    let mut credits = Credits::new(7, 2);
    credit(&mut credits, &scene, &[(0, 5), (1, 5), (2, 5), (3, 5)]);
    let sharing = credits.shared();
    assert_eq!(sharing.len(), 1);
    let weight = 128;
    let pairs = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)];
    let expected = pairs.map(|(one, other)| (id(one), id(other), weight));
    assert_eq!(sharing[0].1.pairs, expected);
    assert_eq!(credits.shared(), []);
}

#[test]
fn threads_that_ended_are_forgotten() {
    let mut scene = scene();
    let mut credits = Credits::new(7, 2);
    credit(&mut credits, &scene, &[(0, 5), (1, 5)]);
    scene.snapshot.threads.remove(0);
    credits.keep_only(&scene.snapshot);
    // Thread 9 gets the number of thread 0, and nothing of what it shared.
    let mut new = scene.access(2, 2, 6, 0, 0);
    new.thread = id(9);
    credit_one(&mut credits, &scene, &new, 6);
    assert_eq!(credits.shared(), []);
    credit_one(&mut credits, &scene, &new, 5);
    let sharing = credits.shared();
    assert_eq!(sharing[0].1.pairs, [(id(1), id(9), 128)]);
    scene.snapshot.processes.clear();
    credits.keep_only(&scene.snapshot);
    assert!(credits.processes.is_empty());
}

proptest! {
    /// Sharing is as Eq. 3 to 5 have it: each event adds its weight for each of the page's last two
    /// users.
    #[test]
    fn sharing_is_by_the_last_two(used in prop::collection::vec((0u32..4, 0u64..3), 0..60)) {
        let scene = scene();
        let mut credits = Credits::new(7, 2);
        credit(&mut credits, &scene, &used);
        let mut last: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        let mut cells = Vec::new();
        for &(tid, page) in &used {
            let users = last.entry(page).or_default();
            cells.extend(users.iter().map(|&other| (id(tid), id(other), 128)));
            users.insert(0, tid);
            users.truncate(2);
        }
        let found = credits.shared().pop().map(|(_, sharing)| sharing).unwrap_or_default();
        prop_assert_eq!(found, Sharing::of(cells));
    }
}
