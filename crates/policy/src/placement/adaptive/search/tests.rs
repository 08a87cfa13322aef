use std::sync::Arc;

use numaherd_testing::Scene;
use numaherd_topology::NodeId;
use numaherd_world::{Residency, ThreadId};

use super::*;
use crate::estimate::Estimator;
use crate::placement::adaptive::tests::{program, scene};

/// The best candidate of a search that begins with such a layout, where memory may be moved at any cost.
fn best_from(scene: &Scene, layout: &[u32]) -> Candidate {
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    let mut picture = Estimator::default().observe(&stage);
    // What several threads use is known to be shared.
    (picture.processes.iter_mut()).for_each(|owner| owner.is_told = true);
    let layout = layout.iter().map(|&cpu| CpuId(cpu)).collect();
    let credit = vec![f64::INFINITY; picture.processes.len()];
    let balanced = Balanced::of(&stage, &picture);
    best(&stage, &picture, vec![layout], &credit, balanced, 256)
}

/// The threads that a layout moves to another of the domains of two CPUs, numbered from 0.
fn moved(scene: &Scene, best: &Candidate) -> Vec<usize> {
    let threads = scene.snapshot.threads.iter().zip(&best.cpus).enumerate();
    let moves = threads.filter(|(_, (thread, cpu))| thread.cpu.0 / 2 != cpu.0 / 2);
    moves.map(|(number, _)| number).collect()
}

/// A thread that loses a part of its time wherever others are: it stays on its CPU, and its memory on the last node.
fn far_reader(scene: &mut Scene, number: u32, cpu: u32) {
    program(scene, number, cpu, 100.0, 4000);
    let process = scene.snapshot.processes.last_mut().unwrap();
    process.memory_policy = Some("bind:3".into());
    process.residency = Some(Residency {
        pages: vec![(NodeId(3), 4000)],
        kinds: None,
    });
    let thread = scene.snapshot.threads.last_mut().unwrap();
    thread.cpuset = Arc::new([CpuId(cpu)].into_iter().collect());
    let counts = thread.counts.as_mut().unwrap();
    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
}

#[test]
fn threads_that_made_room_for_one_that_need_not_move_stay() {
    let mut scene = scene();
    program(&mut scene, 1, 0, 100.0, 400);
    program(&mut scene, 2, 1, 100.0, 400);
    for cpu in 2..8 {
        match cpu {
            5 => far_reader(&mut scene, 6, 5),
            _ => program(&mut scene, cpu + 1, cpu, 0.0, 100),
        }
    }
    let layout = [2, 6, 0, 3, 4, 5, 1, 7];
    assert_eq!(moved(&scene, &best_from(&scene, &layout)).len(), 2);
}

#[test]
fn memory_that_is_spread_over_its_threads_does_not_follow_with_that_of_others() {
    let mut scene = scene();
    let on = |pages: &[(u32, u64)]| {
        let pages = pages.iter().map(|&(node, pages)| (NodeId(node), pages));
        Some(Residency {
            pages: pages.collect(),
            kinds: None,
        })
    };
    program(&mut scene, 1, 6, 100.0, 4000);
    scene.snapshot.processes[0].residency = on(&[(0, 4000)]);
    let far = scene.snapshot.threads[0].counts.as_mut().unwrap();
    (far.local, far.remote) = (Some(0), Some(far.lines));
    // Two threads on two nodes, each with half of its memory: no page need move.
    program(&mut scene, 2, 2, 100.0, 4000);
    scene.snapshot.processes[1].residency = on(&[(1, 2000), (2, 2000)]);
    let mut other = scene.snapshot.threads[1].clone();
    other.id = ThreadId {
        tid: other.id.tid + 1,
        ..other.id
    };
    other.cpu = CpuId(4);
    scene.snapshot.threads.push(other);
    // None may leave its CPU.
    for thread in &mut scene.snapshot.threads {
        thread.cpuset = Arc::new([thread.cpu].into_iter().collect());
    }
    for thread in &mut scene.snapshot.threads[1..] {
        let counts = thread.counts.as_mut().unwrap();
        (counts.local, counts.remote) = (Some(counts.lines / 2), Some(counts.lines / 2));
    }
    let memory = best_from(&scene, &[6, 2, 4]).memory;
    let follows: Vec<bool> = memory.iter().map(|memory| memory.follows > 0).collect();
    assert_eq!(follows, [true, false]);
}
