//! Threads that take lines from each other's caches.

use super::*;

/// Threads of one process on these CPUs that read nothing from memory, and take so long for each of 20 requests per 1000
/// instructions.
pub(crate) fn share(scene: &mut Scene, number: u32, cpus: &[u32], each_ns: f64) {
    scene.home(number, "pair", cpus[0] / 2);
    for &cpu in cpus {
        let counts = counts(each_ns);
        scene.thread(number, 0.0, cpu).counts = Some(counts);
    }
}

/// The counts of 100 ms: 1 ns an instruction, and what its requests take.
fn counts(each_ns: f64) -> Counts {
    let instructions = (100e6 / (1.0 + 0.02 * each_ns)) as u64;
    Counts {
        instructions,
        cycles: Some(100_000_000),
        lines: 0,
        local: Some(0),
        remote: Some(0),
        uncore_busy_cycles: Some((instructions as f64 * 0.02 * each_ns) as u64),
        uncore_requests: Some(instructions / 50),
        counted_share: 1.0,
    }
}

/// Where the threads are after so many looks, of which each process's threads wait 100 ns for each other's lines while they
/// are on different nodes.
fn after(scene: &mut Scene, looks: usize) -> Vec<u32> {
    let mut adaptive = Staged::new(&Settings::default(), Adaptive::new(&Settings::default()));
    for _ in 0..looks {
        look(&mut adaptive, scene, 1);
        let nodes: Vec<_> = (scene.snapshot.threads.iter())
            .map(|thread| (thread.process, thread.cpu.0 / 2))
            .collect();
        for thread in &mut scene.snapshot.threads {
            let node = thread.cpu.0 / 2;
            let others = nodes
                .iter()
                .filter(|(process, _)| *process == thread.process);
            let is_apart = others.clone().any(|&(_, on)| on != node);
            let shares = others.count() > 1;
            if shares {
                thread.counts = Some(counts(if is_apart { 100.0 } else { 14.0 }));
            }
        }
    }
    scene.places().iter().map(|cpu| cpu / 2).collect()
}

#[test]
fn pairs_that_share_across_nodes_are_brought_together_and_stay_so() {
    let mut scene = scene();
    share(&mut scene, 1, &[0, 2], 100.0);
    share(&mut scene, 2, &[4, 6], 100.0);
    for (number, cpu) in [1, 3, 5, 7].into_iter().enumerate() {
        program(&mut scene, 3 + number as u32, cpu, 0.0, 0);
    }
    let nodes = after(&mut scene, 40);
    assert_eq!(nodes[0], nodes[1], "{nodes:?}");
    assert_eq!(nodes[2], nodes[3], "{nodes:?}");
}
