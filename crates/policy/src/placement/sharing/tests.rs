//! Threads that share go together, and stay where they are while the pattern does.

use super::*;
use crate::policy::Place;
use crate::stage::Staged;
use numaherd_testing::{Scene, Shape};
use numaherd_world::{Placement, Sharing, Unmanaged};
use proptest::prelude::*;
use rand::SeedableRng;
use std::sync::Arc;

fn id(tid: u32) -> ThreadId {
    numaherd_testing::tid(tid)
}

/// Says that threads of a process shared so much in the interval.
fn share(scene: &mut Scene, process: u32, pairs: &[(u32, u32, u64)]) {
    scene.home(process, "p", 0);
    let cells = pairs.iter().map(|&(one, other, n)| (id(one), id(other), n));
    let sharing = Some(Arc::new(Sharing::of(cells)));
    let at = scene
        .snapshot
        .processes
        .iter()
        .position(|p| p.id == Scene::process(process));
    scene.snapshot.processes[at.unwrap()].sharing = sharing;
}

fn plan(policy: &mut Staged<BySharing>, scene: &Scene) -> Vec<Placement> {
    let mut random = Random::seed_from_u64(0);
    policy.place(&scene.snapshot, &scene.topology, &mut random)
}

/// Places until no thread is to move. Returns how many were named in each interval before.
fn settle(policy: &mut Staged<BySharing>, scene: &mut Scene) -> Vec<usize> {
    let mut named = Vec::new();
    loop {
        let plan = plan(policy, scene);
        if plan.is_empty() {
            return named;
        }
        scene.carry_out(&plan);
        named.push(plan.len());
        assert!(named.len() < 10, "it never settles: {named:?}");
    }
}

fn on_stage(rule: BySharing) -> Staged<BySharing> {
    Staged::new(&Settings::default(), rule)
}

fn ipm() -> Staged<BySharing> {
    on_stage(BySharing::ipm(&Settings::default()))
}

/// Which of these threads are on one node, of nodes of so many CPUs.
fn together(scene: &Scene, cpus_per_node: u32) -> Vec<Vec<u32>> {
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (tid, cpu) in (0..).zip(scene.places()) {
        nodes.entry(cpu / cpus_per_node).or_default().push(tid);
    }
    let mut groups: Vec<_> = nodes.into_values().collect();
    groups.sort_unstable();
    groups
}

/// Two nodes of two CPUs; threads 0 to 3 of process 1 on the CPUs of their numbers.
fn four() -> Scene {
    let mut scene = Scene::uniform(2, 2);
    for cpu in 0..4 {
        scene.thread(1, 1.0, cpu);
    }
    scene
}

#[test]
fn partners_come_together_with_as_few_moves_as_can_be() {
    let mut scene = four();
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100)]);
    let mut policy = ipm();
    let plan = plan(&mut policy, &scene);
    // All are held where they are to be; two of them move.
    assert_eq!(plan.len(), 4);
    assert_eq!(plan.iter().filter(|p| p.from != p.to).count(), 2);
    let moved = plan.iter().find(|p| p.from != p.to).unwrap();
    assert_eq!(moved.rule, "ipm: map by sharing");
    assert!(
        moved
            .why
            .starts_with("100 % of what it shares it shares with thread "),
        "{}",
        moved.why
    );
    assert_eq!(
        moved.instead_of,
        "where threads are now: sharing times distance 400, mapped 200"
    );
    scene.carry_out(&plan);
    assert_eq!(together(&scene, 2), [[0, 3], [1, 2]]);
}

#[test]
fn nothing_shared_nothing_asked() {
    let mut scene = four();
    assert_eq!(plan(&mut ipm(), &scene), []);
    share(&mut scene, 1, &[]);
    assert_eq!(plan(&mut ipm(), &scene), []);
}

#[test]
fn while_the_pattern_stays_so_do_threads_and_when_it_changes_they_follow() {
    let mut scene = four();
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100)]);
    let mut policy = ipm();
    settle(&mut policy, &mut scene);
    let before = scene.places();
    share(&mut scene, 1, &[(0, 3, 70), (1, 2, 90), (0, 1, 9)]);
    assert_eq!(settle(&mut policy, &mut scene), [0; 0]);
    assert_eq!(scene.places(), before);
    // A new pattern outweighs the old one, which fades, within a few intervals.
    share(&mut scene, 1, &[(0, 1, 200), (2, 3, 200)]);
    let followed = (1..10).find(|_| {
        let plan = plan(&mut policy, &scene);
        scene.carry_out(&plan);
        together(&scene, 2) == [[0, 1], [2, 3]]
    });
    assert!(
        followed.is_some_and(|intervals| intervals <= 4),
        "{followed:?}"
    );
}

#[test]
fn a_plan_that_was_not_carried_out_is_made_again() {
    let mut scene = four();
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100)]);
    let mut policy = ipm();
    let first = plan(&mut policy, &scene);
    let again = plan(&mut policy, &scene);
    let targets =
        |plan: &[Placement]| -> Vec<_> { plan.iter().map(|p| (p.thread, p.to)).collect() };
    assert_eq!(targets(&first), targets(&again));
}

#[test]
fn a_number_that_another_thread_got_has_no_past() {
    let mut scene = four();
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100)]);
    let mut policy = ipm();
    settle(&mut policy, &mut scene);
    // Thread 3 ends; a new one with its number, born later, shares with 1.
    scene.snapshot.threads[3].id.born += 1;
    let new = scene.snapshot.threads[3].id;
    let cells = [(id(1), new, 1000)];
    scene.snapshot.processes[0].sharing = Some(Arc::new(Sharing::of(cells)));
    plan(&mut policy, &scene);
    let shared = policy.rule.pairs.among(&[id(0), id(1), id(2), new]);
    assert_eq!((shared.between(3, 0), shared.between(3, 1)), (0, 1000));
}

#[test]
fn sleepers_take_no_place_whatever_is_left_in_their_tlbs() {
    let mut scene = four();
    for sleeper in 0..4 {
        scene.thread(1, 1.0, 0).cpu_share = 0.0;
        assert_eq!(
            scene.snapshot.threads[4 + sleeper].id,
            id(4 + sleeper as u32)
        );
    }
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100)]);
    let mut policy = ipm();
    let named: Vec<u32> = plan(&mut policy, &scene)
        .iter()
        .map(|p| p.thread.tid)
        .collect();
    assert_eq!(named, [0, 1, 2, 3]);
    share(&mut scene, 1, &[(0, 3, 100), (1, 2, 100), (4, 0, 100)]);
    let named: Vec<u32> = plan(&mut policy, &scene)
        .iter()
        .map(|p| p.thread.tid)
        .collect();
    assert!(!named.contains(&4), "{named:?}");
    // One that runs a little would take a CPU from one that is busy all the time.
    scene.snapshot.threads[4].cpu_share = 0.2;
    let named: Vec<u32> = plan(&mut policy, &scene)
        .iter()
        .map(|p| p.thread.tid)
        .collect();
    assert!(!named.contains(&4), "{named:?}");
}

#[test]
fn one_that_runs_a_little_and_shares_is_mapped_where_there_is_room() {
    let mut scene = Scene::uniform(2, 4);
    for cpu in 0..5 {
        scene.thread(1, 1.0, cpu);
    }
    scene.snapshot.threads[4].cpu_share = 0.2;
    share(&mut scene, 1, &[(0, 4, 100), (0, 1, 100), (2, 3, 100)]);
    settle(&mut ipm(), &mut scene);
    let node = |thread: usize| scene.topology.node_of(CpuId(scene.places()[thread]));
    assert_eq!(node(0), node(4));
}

#[test]
fn where_all_share_alike_nobody_is_moved_for_another_grouping_as_good() {
    let mut scene = Scene::uniform(2, 2);
    for cpu in 0..4 {
        scene.thread(1, 1.0, cpu);
    }
    let all = |one, rest| {
        [
            (0, 1, rest),
            (0, 2, rest),
            (0, 3, one),
            (1, 2, one),
            (1, 3, rest),
            (2, 3, rest),
        ]
    };
    let mut policy = ipm();
    let before = scene.places();
    share(&mut scene, 1, &all(104, 100));
    settle(&mut policy, &mut scene);
    assert_eq!(scene.places(), before, "4 % more is noise");
    share(&mut scene, 1, &all(4000, 100));
    settle(&mut policy, &mut scene);
    assert_ne!(scene.places(), before, "40 times as much is not");
}

#[test]
fn a_wider_pool_goes_around_a_narrower_and_around_what_is_held() {
    let mut scene = Scene::uniform(2, 4);
    for cpu in 0..4 {
        scene.thread(1, 1.0, cpu);
    }
    // Process 2 has CPUs 0 and 1 alone; thread 6 must be left alone on CPU 7.
    let narrow: Arc<CpuSet> = Arc::new([CpuId(0), CpuId(1)].into_iter().collect());
    for cpu in 0..2 {
        scene.thread(2, 1.0, cpu).cpuset = narrow.clone();
    }
    scene.thread(3, 1.0, 7).unmanaged = Some(Unmanaged::other("real-time"));
    share(&mut scene, 1, &[(0, 1, 100), (2, 3, 100)]);
    share(&mut scene, 2, &[(4, 5, 100)]);
    settle(&mut ipm(), &mut scene);
    let places = scene.places();
    let mut narrow = places[4..6].to_vec();
    narrow.sort_unstable();
    assert_eq!(narrow, [0, 1]);
    assert!(
        places[..4].iter().all(|&cpu| cpu > 1 && cpu != 7),
        "{places:?}"
    );
    let node = |tid: usize| places[tid] / 4;
    assert_eq!((node(0), node(2)), (node(1), node(3)));
}

#[test]
fn with_more_threads_than_cpus_sharers_share_cpus() {
    let mut scene = Scene::uniform(2, 2);
    for tid in 0..8 {
        scene.thread(1, 1.0, tid % 4).cpu_share = 0.5;
    }
    share(&mut scene, 1, &[(0, 5, 9), (1, 4, 9), (2, 7, 9), (3, 6, 9)]);
    settle(&mut ipm(), &mut scene);
    let places = scene.places();
    for (one, other) in [(0, 5), (1, 4), (2, 7), (3, 6)] {
        assert_eq!(places[one], places[other]);
    }
}

#[test]
fn kmaf_waits_for_four_threads_and_maps_at_every_call() {
    let mut scene = four();
    scene.snapshot.threads.truncate(3);
    share(&mut scene, 1, &[(0, 2, 100)]);
    let mut policy = on_stage(BySharing::kmaf(&Settings::default()));
    assert_eq!(plan(&mut policy, &scene), []);
    scene.thread(1, 1.0, 3);
    assert_eq!(plan(&mut policy, &scene).len(), 4);
    settle(&mut policy, &mut scene);
    // Half as much again of another pattern would leave IPM's where it is.
    share(&mut scene, 1, &[(0, 1, 1000), (2, 3, 1000)]);
    plan(&mut policy, &scene);
    assert_eq!(settle(&mut policy, &mut scene).len(), 1);
    assert_eq!(together(&scene, 2), [[0, 1], [2, 3]]);
}

#[test]
fn the_mappers_can_be_chosen() {
    // A chain numbered from its middle: EagerMap leaves both ends to the last group.
    let mut scene = Scene::uniform(3, 4);
    for cpu in 0..12 {
        scene.thread(1, 1.0, cpu);
    }
    let chain: Vec<u32> = (0..12).map(|at| (at + 6) % 12).collect();
    let pairs: Vec<_> = chain
        .windows(2)
        .map(|pair| (pair[0], pair[1], 100))
        .collect();
    share(&mut scene, 1, &pairs);
    let mapped = |mapper: &str| {
        let settings = Settings::parse(&format!("[ipm]\nmapper = \"{mapper}\"")).unwrap();
        let mut scene = scene.clone();
        settle(&mut on_stage(BySharing::ipm(&settings)), &mut scene);
        let node = |tid: u32| scene.places()[tid as usize] / 4;
        pairs
            .iter()
            .filter(|&&(one, other, _)| node(one) != node(other))
            .count()
    };
    assert_eq!(
        (mapped("eager"), mapped("refined"), mapped("exact")),
        (3, 2, 2)
    );
}

fn shapes() -> impl Strategy<Value = Shape> {
    let node = prop::collection::vec(1u32..5, 1..3);
    let nodes = prop::collection::vec(node, 1..4);
    (nodes, 1u32..3).prop_map(|(nodes, siblings)| Shape {
        nodes,
        siblings,
        offline: vec![],
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whichever threads share whatever: CPUs named are allowed, each thread is named once, and when
    /// the pattern stays and orders are carried out, it settles at once.
    #[test]
    fn plans_are_allowed_and_settle(
        shape in shapes(),
        threads in prop::collection::vec((1u32..4, any::<prop::sample::Index>(), 0usize..3, any::<bool>()), 1..24),
        shared in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1u64..1000), 0..40),
        kmaf: bool,
    ) {
        let mut scene = Scene::new(&shape);
        let cpus: Vec<CpuId> = scene.topology.cpus().iter().map(|cpu| cpu.id).collect();
        for &(process, cpu, cpuset, busy) in &threads {
            let set: CpuSet = match cpuset {
                0 => cpus.iter().copied().collect(),
                1 => cpus[..cpus.len().div_ceil(2)].iter().copied().collect(),
                _ => cpus[cpus.len() / 2..].iter().copied().collect(),
            };
            let thread = scene.thread(process, 1.0, cpu.get(&cpus).0);
            thread.cpuset = Arc::new(set);
            thread.cpu_share = if busy { 1.0 } else { 0.0 };
        }
        for process in 1..4 {
            let of: Vec<u32> = (0..).zip(&threads).filter(|(_, t)| t.0 == process).map(|(tid, _)| tid).collect();
            if of.is_empty() {
                continue;
            }
            let pairs: Vec<_> = shared.iter().map(|(a, b, n)| (*a.get(&of), *b.get(&of), *n)).collect();
            share(&mut scene, process, &pairs);
        }
        let settings = Settings::default();
        let rule = if kmaf { BySharing::kmaf(&settings) } else { BySharing::ipm(&settings) };
        let mut policy = on_stage(rule);
        let first = plan(&mut policy, &scene);
        for placement in &first {
            let thread = scene.snapshot.thread(placement.thread).unwrap();
            prop_assert!(thread.cpuset.contains(placement.to));
            prop_assert!(scene.snapshot.online.contains(placement.to));
            prop_assert_eq!(placement.from, thread.place());
        }
        prop_assert!(first.is_sorted_by(|a, b| a.thread < b.thread));
        scene.carry_out(&first);
        prop_assert_eq!(plan(&mut policy, &scene), vec![]);
    }
}
