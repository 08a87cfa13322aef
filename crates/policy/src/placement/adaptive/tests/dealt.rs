//! Memory that is dealt before samples show who uses what.

use super::super::action::{Follow, Ordered};
use super::*;
use crate::placement::adaptive::search::Balanced;

#[test]
fn memory_on_one_node_is_dealt_where_no_more_becomes_remote_by_chance() {
    for (pages, cpus, lines, is_dealt) in [
        ([4000, 0, 0, 0], [2, 6], 100.0, true),
        ([4000, 0, 0, 0], [0, 6], 100.0, true),
        ([2900, 1100, 0, 0], [2, 6], 100.0, false),
        ([1000, 0, 0, 0], [2, 6], 100.0, false),
        ([4000, 0, 0, 0], [2, 6], 1.0, false),
    ] {
        let mut scene = scene();
        two_threads_far_from_their_memory(&mut scene, lines);
        for (thread, cpu) in scene.snapshot.threads.iter_mut().zip(cpus) {
            thread.cpu = CpuId(cpu);
            thread.cpuset = Arc::new([CpuId(cpu)].into_iter().collect());
        }
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: (0..).map(numaherd_topology::NodeId).zip(pages).collect(),
            kinds: None,
        });
        let rules = look(&mut adaptive(), &mut scene, 3);
        let dealt = "adaptive: memory dealt".to_owned();
        assert_eq!(
            rules.contains(&dealt),
            is_dealt,
            "{cpus:?}, {lines}: {rules:?}"
        );
    }
}

/// Two threads of one process that changed places, and what was done about its memory.
fn put_back(ordered: Ordered) -> usize {
    let mut scene = scene();
    two_threads_far_from_their_memory(&mut scene, 100.0);
    let all: Vec<CpuId> = (0..8).map(CpuId).collect();
    for thread in &mut scene.snapshot.threads {
        thread.cpuset = Arc::new(all.iter().copied().collect());
    }
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    let picture = Arc::new(Estimator::default().observe(&stage));
    let balanced = Balanced::of(&stage, &picture);
    let credit = [f64::INFINITY];
    let mut layout = search::best(&stage, &picture, Vec::new(), &credit, balanced, 1);
    layout.cpus = picture.now();
    layout.memory = vec![FOLLOWS];
    let mut action = Action::new(
        Arc::clone(&picture),
        layout,
        Vec::new(),
        0.1,
        Past::default(),
    );
    let from = [CpuId(6), CpuId(2)];
    action.moved = (picture.threads.iter().zip(from))
        .map(|(load, from)| (load.id, from))
        .collect();
    let owner = &picture.processes[0];
    action.followed = vec![Follow::new(owner, FOLLOWS, None, ordered)];
    let mut rule = Adaptive::new(&Settings::default());
    rule.undo(&stage, &picture, action, "").len()
}

#[test]
fn threads_stay_beside_memory_that_has_followed_them_as_they_use_it() {
    assert_eq!(put_back(Ordered::Dealt), 2);
    assert_eq!(put_back(Ordered::AsUsed(None)), 0);
}
