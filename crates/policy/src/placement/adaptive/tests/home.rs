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
    let process = &mut scene.snapshot.processes[0];
    process.residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(0), 4000)],
        kinds: None,
    });
    let counts = scene.snapshot.threads[0].counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
    look(&mut adaptive(), &mut scene, 3)
}
