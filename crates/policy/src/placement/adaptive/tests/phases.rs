//! Threads that sleep for a while, and what the kernel does meanwhile.

use super::*;

/// Two threads that press on one cache, and six that run on all other CPUs, or sleep.
fn pressed(others: f64) -> Scene {
    let mut scene = scene();
    program(&mut scene, 1, 0, 100.0, 400);
    program(&mut scene, 2, 1, 100.0, 400);
    for number in 3..9 {
        program(&mut scene, number, number - 1, 0.0, 100);
    }
    rest(&mut scene, others);
    scene
}

/// All but the two first threads run for this share of the time.
fn rest(scene: &mut Scene, share: f64) {
    for thread in &mut scene.snapshot.threads[2..] {
        thread.cpu_share = share;
        let counts = thread.counts.as_mut().unwrap();
        counts.instructions = (1e8 * share) as u64;
        counts.cycles = Some(counts.instructions);
    }
}

#[test]
fn the_cpus_of_threads_that_sleep_for_a_moment_are_not_given_to_others() {
    // Of those that were not busy, too, two fill a domain.
    for share in [1.0, 0.6] {
        // No place is better than another.
        let mut scene = pressed(share);
        for thread in &mut scene.snapshot.threads[..2] {
            thread.counts.as_mut().unwrap().lines = 0;
        }
        let mut adaptive = adaptive();
        assert_eq!(look(&mut adaptive, &mut scene, 2), Vec::<String>::new());
        // Six wait for the others, who begin to press on one cache.
        let threads = scene.snapshot.threads.clone();
        scene.snapshot.threads = pressed(0.0).snapshot.threads;
        assert_eq!(scene.snapshot.threads.len(), threads.len());
        assert_eq!(look(&mut adaptive, &mut scene, 3), Vec::<String>::new());
        // They do not come back.
        scene.snapshot.interval_ns *= 300;
        (scene.snapshot.threads.iter_mut()).for_each(|thread| {
            let counts = thread.counts.as_mut().unwrap();
            counts.instructions *= 300;
            counts.lines *= 300;
        });
        let rules = look(&mut adaptive, &mut scene, 2);
        assert!(
            rules.contains(&"adaptive: fewer lost cores".to_owned()),
            "{rules:?}"
        );
    }
}

#[test]
fn a_thread_that_only_made_room_and_was_moved_by_the_kernel_since_is_not_put_back() {
    for moves in [false, true] {
        let mut scene = pressed(1.0);
        let mut adaptive = adaptive();
        let before = scene.places();
        while look(&mut adaptive, &mut scene, 1).is_empty() {}
        let after = scene.places();
        let made_room = (2..8).find(|&at| before[at] != after[at]).unwrap();
        // It is let go, and the kernel moves it.
        look(&mut adaptive, &mut scene, 1);
        assert_eq!(scene.snapshot.threads[made_room].assigned, None);
        if moves {
            let elsewhere = (after[made_room] + 4) % 8;
            scene.snapshot.threads[made_room].cpu = CpuId(elsewhere);
        }
        for thread in &mut scene.snapshot.threads {
            slower(thread.counts.as_mut().unwrap());
        }
        let rules = look(&mut adaptive, &mut scene, 4);
        assert!(rules.contains(&"adaptive: undo".to_owned()), "{rules:?}");
        let is_back = scene.places()[made_room] == before[made_room];
        assert_eq!(is_back, !moves, "{rules:?}");
    }
}

#[test]
fn a_process_is_left_alone_while_most_of_its_threads_sleep() {
    for others in [1.0, 0.0] {
        // Four threads of one process, whose memory is where one of them is.
        let mut scene = scene();
        for (number, cpu) in [(1, 0), (2, 2), (3, 4), (4, 6)] {
            program(&mut scene, number, cpu, 0.0, 4000);
        }
        for thread in &mut scene.snapshot.threads {
            thread.process = Scene::process(1);
        }
        scene.snapshot.processes.truncate(1);
        let mut adaptive = adaptive();
        assert_eq!(look(&mut adaptive, &mut scene, 20), Vec::<String>::new());
        // One reads far memory, while the others run, or sleep.
        for (at, thread) in scene.snapshot.threads.iter_mut().enumerate() {
            let counts = thread.counts.as_mut().unwrap();
            match at {
                3 => {
                    counts.instructions = 10_000_000;
                    counts.lines = 500_000;
                    (counts.local, counts.remote) = (Some(0), Some(counts.lines));
                    counts.uncore_busy_cycles = Some(90_000_000);
                    counts.uncore_requests = Some(counts.lines);
                }
                _ => thread.cpu_share = others,
            }
        }
        let rules = look(&mut adaptive, &mut scene, 3);
        assert_eq!(rules.is_empty(), others == 0.0, "{others}: {rules:?}");
    }
}

/// The two threads of [`pressed`] read hardly anything, and are as fast.
fn calm(scene: &mut Scene) {
    for thread in &mut scene.snapshot.threads[..2] {
        let counts = thread.counts.as_mut().unwrap();
        (counts.lines, counts.local) = (0, Some(0));
        (counts.uncore_requests, counts.uncore_busy_cycles) = (Some(0), Some(0));
    }
}

#[test]
fn what_would_have_gained_in_the_last_interval_alone_is_not_done_until_it_lasts() {
    let mut scene = pressed(1.0);
    let pressing = scene.snapshot.threads.clone();
    calm(&mut scene);
    let mut adaptive = adaptive();
    assert_eq!(look(&mut adaptive, &mut scene, 80), Vec::<String>::new());
    scene.snapshot.threads = pressing;
    assert_eq!(look(&mut adaptive, &mut scene, 1), Vec::<String>::new());
    let rules = look(&mut adaptive, &mut scene, 40);
    assert!(
        rules.contains(&"adaptive: fewer lost cores".to_owned()),
        "{rules:?}"
    );
}

#[test]
fn what_gains_no_more_than_speeds_differ_by_chance_is_left() {
    for differs in [true, false] {
        let mut scene = pressed(1.0);
        let mut adaptive = adaptive();
        let slow = {
            let mut slow = scene.snapshot.threads.clone();
            for thread in &mut slow {
                slower(thread.counts.as_mut().unwrap());
            }
            slow
        };
        calm(&mut scene);
        look(&mut adaptive, &mut scene, 1);
        scene.snapshot.threads = pressed(1.0).snapshot.threads;
        let mut rules = Vec::new();
        for _ in 0..20 {
            if differs {
                let fast = std::mem::replace(&mut scene.snapshot.threads, slow.clone());
                rules.extend(look(&mut adaptive, &mut scene, 1));
                scene.snapshot.threads = fast;
            }
            rules.extend(look(&mut adaptive, &mut scene, 1));
        }
        assert_eq!(rules.is_empty(), differs, "{rules:?}");
        if differs {
            assert_eq!(withheld(&mut adaptive), Some(Withheld::Fleeting));
        }
    }
}

#[test]
fn threads_that_are_slower_since_they_do_something_else_are_not_put_back() {
    for same in [true, false] {
        let mut scene = pressed(1.0);
        let mut adaptive = adaptive();
        while look(&mut adaptive, &mut scene, 1).is_empty() {}
        for thread in &mut scene.snapshot.threads {
            let counts = thread.counts.as_mut().unwrap();
            match same {
                true => slower(counts),
                false => counts.instructions /= 2,
            }
        }
        let rules = look(&mut adaptive, &mut scene, 15);
        let is_undone = rules.contains(&"adaptive: undo".to_owned());
        assert_eq!(is_undone, same, "{rules:?}");
    }
}

#[test]
fn threads_that_are_slower_since_their_memory_has_grown_are_not_put_back() {
    for (percent, is_judged) in [(125, true), (126, false)] {
        let mut scene = pressed(1.0);
        let mut adaptive = adaptive();
        while look(&mut adaptive, &mut scene, 1).is_empty() {}
        for thread in &mut scene.snapshot.threads {
            slower(thread.counts.as_mut().unwrap());
        }
        for process in &mut scene.snapshot.processes {
            for (_, pages) in &mut process.residency.as_mut().unwrap().pages {
                *pages = *pages * percent / 100;
            }
        }
        let rules = look(&mut adaptive, &mut scene, 15);
        let is_undone = rules.contains(&"adaptive: undo".to_owned());
        assert_eq!(is_undone, is_judged, "{rules:?}");
    }
}

#[test]
fn nothing_is_done_while_the_kernel_is_about_to_move_a_thread_of_a_domain_that_is_short_of_cores() {
    for third in [1.0, 0.0] {
        // Two threads that suffer, far from their memory, and one more on their cores; the other nodes are idle.
        let mut scene = scene();
        for (number, cpu) in [(1, 2), (2, 3), (3, 2)] {
            program(&mut scene, number, cpu, 100.0, 400);
        }
        for (thread, process) in
            (scene.snapshot.threads.iter_mut()).zip(&mut scene.snapshot.processes)
        {
            let counts = thread.counts.as_mut().unwrap();
            (counts.local, counts.remote) = (Some(0), Some(counts.lines));
            process.residency = Some(Residency {
                pages: vec![(numaherd_topology::NodeId(0), 400)],
                kinds: None,
            });
            // They may not go where their memory is.
            thread.cpuset = Arc::new((2..8).map(CpuId).collect());
        }
        scene.snapshot.threads[2].cpu_share = third;
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let picture = Estimator::default().observe(&stage);
        let is_short = cores::are_short(&stage, &picture, &picture.now());
        assert_eq!(is_short, third > 0.0);
        // One of them is the kernel's on no other CPU.
        let cpuset = Arc::new([2, 3].map(CpuId).into_iter().collect());
        for thread in &mut scene.snapshot.threads {
            thread.cpuset = Arc::clone(&cpuset);
        }
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        assert!(!cores::are_short(&stage, &picture, &picture.now()));
    }
}
