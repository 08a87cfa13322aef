//! Threads that are away from their memory.

use super::*;

#[test]
fn a_thread_goes_back_to_its_memory_or_its_memory_goes_to_it_where_it_may_not() {
    for may_go in [true, false] {
        let rules = far_from_its_memory(may_go);
        let expected: &[_] = match may_go {
            true => &["adaptive: fewer lost cores"],
            false => &["adaptive: hold", "adaptive: memory follows"],
        };
        assert_eq!(rules, expected);
    }
}

fn far_from_its_memory(may_go: bool) -> Vec<String> {
    let mut scene = scene();
    program(&mut scene, 1, 6, 100.0, 4000);
    if !may_go {
        scene.snapshot.threads[0].cpuset = Arc::new([6, 7].map(CpuId).into_iter().collect());
    }
    memory_is_on(&mut scene, 0, 4000);
    look(&mut adaptive(), &mut scene, 3)
}

/// The last program's memory is on another node than its thread.
fn memory_is_on(scene: &mut Scene, node: u32, pages: u64) {
    let process = scene.snapshot.processes.last_mut().unwrap();
    process.residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(node), pages)],
        kinds: None,
    });
    let thread = scene.snapshot.threads.last_mut().unwrap();
    let counts = thread.counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
}

#[test]
fn what_gains_only_where_caches_help_keeps_nobody_from_what_gains_in_any_case() {
    let mut scene = scene();
    // Two share a cache and would have one each if one of them left its memory.
    for (number, cpu) in [(1, 0), (2, 1)] {
        program(&mut scene, number, cpu, 20.0, 480);
        let process = scene.snapshot.processes.last_mut().unwrap();
        process.memory_policy = Some("bind:0".into());
    }
    // A third is away from its memory.
    program(&mut scene, 3, 6, 20.0, 100_000);
    memory_is_on(&mut scene, 2, 100_000);
    let rules = look(&mut adaptive(), &mut scene, 3);
    let expected = [
        "adaptive: hold",
        "adaptive: hold",
        "adaptive: fewer lost cores",
    ];
    assert_eq!(rules, expected);
    let nodes: Vec<u32> = scene.places().iter().map(|cpu| cpu / 2).collect();
    assert_eq!(nodes, [0, 0, 2]);
}
