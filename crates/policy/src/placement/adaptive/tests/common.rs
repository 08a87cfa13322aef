//! What counts as memory that processes have in common.

use super::*;

/// Pages of a small static program as they were found in the lab, with its code on all nodes.
#[test]
fn code_is_not_taken_for_memory_in_common() {
    let common = |file: bool| {
        let mut scene = scene();
        program(&mut scene, 1, 4, 100.0, 634);
        let on = |pages: [u64; 4]| (0..).map(numaherd_topology::NodeId).zip(pages).collect();
        let mapped = Mapped {
            pages: on([466, 141, 482, 51]),
            again: true,
            ..Mapped::default()
        };
        let (file, shared) = match file {
            true => (mapped, Mapped::default()),
            false => (Mapped::default(), mapped),
        };
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: on([539, 177, 1002, 56]),
            kinds: Some(MemoryKinds { shared, file }),
        });
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        Estimator::default().observe(&stage).threads[0].common
    };
    assert_eq!(common(true), 0.0);
    assert!(common(false) > 0.6);
}

#[test]
fn what_a_cache_holds_is_not_taken_for_memory_in_common() {
    // A thread on node 2 has its own memory on node 0, and half of its lines are local.
    for (pages, common) in [(1, 0.0), (600, 0.5)] {
        let mut scene = scene();
        program(&mut scene, 1, 4, 100.0, 4000);
        let on = |node, pages| vec![(numaherd_topology::NodeId(node), pages)];
        let shared = Mapped {
            pages: on(2, pages),
            again: true,
            ..Mapped::default()
        };
        scene.snapshot.processes[0].residency = Some(Residency {
            pages: [on(0, 4000), on(2, pages)].concat(),
            kinds: Some(MemoryKinds {
                shared,
                file: Mapped::default(),
            }),
        });
        let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
        let half = counts.lines / 2;
        (counts.local, counts.remote) = (Some(half), Some(half));
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let found = Estimator::default().observe(&stage).threads[0].common;
        assert!((found - common).abs() < 0.01, "{pages} pages: {found}");
    }
}
