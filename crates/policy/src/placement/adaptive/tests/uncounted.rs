//! Machines on which nothing is counted: what is done there cannot be verified, so little is.

use rand::Rng;

use super::*;

/// How often a vCPU moves to another node, and how often others do, in 60 intervals of a second. It is far from its
/// memory or beside it, and eleven others want eight CPUs beside it: the kernel moves those from CPU to CPU, and a
/// third of them rest at any time.
fn moves_on_an_overloaded_machine(seed: u64, cpu: u32) -> (usize, usize) {
    let mut scene = scene();
    scene.snapshot.interval_ns = 1_000_000_000;
    for number in 0..12 {
        let on = if number == 0 { cpu } else { number % 8 };
        program(&mut scene, number + 1, on, 100.0, 4000);
    }
    scene.snapshot.processes[0].residency = Some(Residency {
        pages: vec![(numaherd_topology::NodeId(0), 4000)],
        kinds: None,
    });
    let mut kernel = Random::seed_from_u64(seed);
    let mut adaptive = adaptive();
    let mut moves = (0, 0);
    for _ in 0..60 {
        let threads = &mut scene.snapshot.threads;
        let mut running = vec![true; threads.len()];
        for (thread, runs) in threads.iter_mut().zip(&mut running).skip(1) {
            *runs = kernel.random_bool(2.0 / 3.0);
            if thread.assigned.is_none() {
                thread.cpu = CpuId(kernel.random_range(0..8));
            }
        }
        let nodes: Vec<u32> = threads.iter().map(|thread| thread.cpu.0 / 2).collect();
        for (at, thread) in threads.iter_mut().enumerate() {
            let there = (0..nodes.len()).filter(|&of| nodes[of] == nodes[at] && running[of]);
            let share = (2.0 / there.count() as f64).min(1.0);
            let (used, waited) = if running[at] {
                (share, 1.0 - share)
            } else {
                (0.05, 0.0)
            };
            (thread.cpu_share, thread.wait_share) = (used, waited);
            thread.counts = None;
        }
        look(&mut adaptive, &mut scene, 1);
        let places = scene.places();
        let moved = |at: &usize| places[*at] / 2 != nodes[*at];
        moves.0 += usize::from(moved(&0));
        moves.1 += (1..nodes.len()).filter(moved).count();
    }
    moves
}

#[test]
fn on_an_overloaded_machine_a_vcpu_moves_once_or_twice_a_minute() {
    let all: Vec<(usize, usize)> = (0..8)
        .map(|seed| moves_on_an_overloaded_machine(seed, 2 * (seed as u32 % 4)))
        .collect();
    assert!(
        all.iter()
            .all(|&(of_vcpu, of_others)| of_vcpu <= 2 && of_others <= 8),
        "{all:?}"
    );
}
