//! Memory that follows its use to several nodes.

use super::*;

#[test]
fn what_has_followed_once_and_is_still_far_is_taken_to_be_shared() {
    let mut scene = scene();
    two_threads_far_from_their_memory(&mut scene, 100.0);
    let stage = Stage::of_all(&scene.snapshot, &scene.topology);
    let mut picture = Estimator::default().observe(&stage);
    let would_lose = |picture: &Picture| picture.lost(&picture.now(), &[FOLLOWS])[0];
    let before = would_lose(&picture);
    picture.processes[0].is_told = true;
    assert!(would_lose(&picture) > before);
    let mut adaptive = adaptive();
    look(&mut adaptive, &mut scene, 10);
    let process = scene.snapshot.threads[0].process;
    assert!(adaptive.rule.told.contains(&process));
}

/// The memory would go to the nodes of the others alone.
#[test]
fn memory_stays_where_one_of_its_threads_is_not_busy_enough_to_be_held() {
    let followed = |cpu_share: f64| {
        let mut scene = scene();
        two_threads_far_from_their_memory(&mut scene, 100.0);
        scene.snapshot.threads[1].cpu_share = cpu_share;
        let mut adaptive = adaptive();
        look(&mut adaptive, &mut scene, 10);
        !adaptive.rule.told.is_empty()
    };
    assert!(followed(1.0) && !followed(0.7));
}

/// As the first thread of a parallel program does once it has set up.
#[test]
fn memory_follows_the_threads_that_run_while_one_sleeps() {
    let followed = |cpu_share: f64| {
        let mut scene = scene();
        two_threads_far_from_their_memory(&mut scene, 100.0);
        let mut first = scene.snapshot.threads[0].clone();
        first.id.tid += 2;
        (first.cpu, first.cpu_share) = (CpuId(0), 0.3);
        scene.snapshot.threads.push(first);
        let mut adaptive = adaptive();
        look(&mut adaptive, &mut scene, 1);
        scene.snapshot.threads[2].cpu_share = cpu_share;
        look(&mut adaptive, &mut scene, 10);
        !adaptive.rule.told.is_empty()
    };
    assert!(followed(0.0) && !followed(0.3));
}

/// Whether the memory of two threads on these CPUs follows them, beside so many others that do not wait for memory.
fn follows_beside(cpus: [u32; 2], others: u32) -> bool {
    let mut scene = scene();
    two_threads_far_from_their_memory(&mut scene, 1.0);
    for (thread, cpu) in scene.snapshot.threads.iter_mut().zip(cpus) {
        thread.cpu = CpuId(cpu);
        thread.cpuset = Arc::new([CpuId(cpu)].into_iter().collect());
    }
    for (number, cpu) in (2..).zip([1, 4, 5]).take(others as usize) {
        program(&mut scene, number, cpu, 0.0, 100);
    }
    !look(&mut adaptive(), &mut scene, 10).is_empty()
}

#[test]
fn memory_that_cannot_be_put_back_must_gain_twice_as_much() {
    let (one_node, two_nodes) = ([2, 3], [2, 6]);
    assert!(follows_beside(one_node, 0) && follows_beside(two_nodes, 0));
    assert!(follows_beside(one_node, 3) && !follows_beside(two_nodes, 3));
}

#[test]
fn memory_of_a_virtual_machine_follows_its_vcpus_whatever_its_other_threads_did() {
    for vcpus in [1, 2] {
        let mut scene = scene();
        two_threads_far_from_their_memory(&mut scene, 100.0);
        let machine = numaherd_testing::virtual_machine("vm", &scene.snapshot.threads[..vcpus]);
        scene.snapshot.processes[0].machine = Some(machine);
        scene.snapshot.threads[1].cpu_share = 0.7;
        let rules = look(&mut adaptive(), &mut scene, 10);
        let follows = rules.contains(&"adaptive: memory follows".to_owned());
        assert_eq!(follows, vcpus == 1, "{rules:?}");
    }
}
