//! Memory that is dealt before samples show who uses what.

use super::*;

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
