//! Threads that are not watched keep CPUs busy.

use numaherd_topology::NodeId;

use super::*;

/// A thread on node 3 and its memory, of more pages than its credit moves, on node 0, where others keep so many CPUs busy.
fn beside(others: f64) -> Scene {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 1 << 24);
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(NodeId(0), 1 << 24)],
        kinds: None,
    });
    let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    keep_busy(&mut scene, others);
    scene
}

/// Others keep so many CPUs of node 0 busy, beside the threads that are watched.
fn keep_busy(scene: &mut Scene, others: f64) {
    let snapshot = &mut scene.snapshot;
    for node in &mut snapshot.nodes {
        let here = snapshot
            .threads
            .iter()
            .filter(|thread| thread.place().0 / 2 == node.id.0);
        let watched: f64 = here.map(|thread| thread.cpu_share).sum();
        let busy = watched + if node.id.0 == 0 { others } else { 0.0 };
        node.busy_cpus = Some(busy);
    }
}

/// The node of the thread after two looks.
fn goes_to(scene: &mut Scene, adaptive: &mut Staged<Adaptive>, others: f64) -> u32 {
    for _ in 0..2 {
        look(adaptive, scene, 1);
        let thread = &mut scene.snapshot.threads[0];
        thread.cpu = thread.place();
        keep_busy(scene, others);
    }
    scene.snapshot.threads[0].place().0 / 2
}

#[test]
fn no_thread_goes_where_others_keep_all_cpus_busy() {
    let after = |others| goes_to(&mut beside(others), &mut adaptive(), others);
    assert_eq!(after(0.0), 0);
    assert_eq!(after(1.0), 0);
    assert_eq!(after(2.0), 3);
}

#[test]
fn a_thread_is_let_go_where_others_come() {
    let (mut scene, mut adaptive) = (beside(0.0), adaptive());
    assert_eq!(goes_to(&mut scene, &mut adaptive, 0.0), 0);
    assert!(scene.snapshot.threads[0].assigned.is_some());
    keep_busy(&mut scene, 2.0);
    goes_to(&mut scene, &mut adaptive, 2.0);
    assert_eq!(scene.snapshot.threads[0].assigned, None);
}
