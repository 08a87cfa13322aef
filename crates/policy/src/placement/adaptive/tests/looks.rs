//! When it looks again.

use super::{adaptive, look, program, scene};
use crate::policy::Place;

#[test]
fn looks_are_rarer_where_nothing_is_to_be_gained() {
    let looks_after = |counted: bool| {
        let mut scene = scene();
        for (number, cpu) in [(1, 0), (2, 2)] {
            program(&mut scene, number, cpu, 0.1, 400);
        }
        for thread in scene.snapshot.threads.iter_mut().filter(|_| !counted) {
            thread.counts = None;
        }
        let mut adaptive = adaptive();
        [(); 3].map(|()| {
            look(&mut adaptive, &mut scene, 1);
            adaptive.next_look().unwrap().as_millis()
        })
    };
    assert_eq!(looks_after(true), [50, 200, 800]);
    assert_eq!(looks_after(false), [50, 100, 200], "nothing shows it");
}

#[test]
fn only_many_new_threads_make_looks_frequent_again() {
    let mut scene = scene();
    let mut adaptive = adaptive();
    let mut next = |new: std::ops::Range<u32>| {
        for number in new {
            program(&mut scene, number, number % 8, 0.1, 400);
        }
        look(&mut adaptive, &mut scene, 1);
        adaptive.next_look().unwrap().as_millis()
    };
    assert_eq!([next(0..3), next(0..0)], [50, 200]);
    assert_eq!(next(3..4), 800, "one of four is new");
    assert_eq!(next(4..8), 50, "half of them are");
    for number in 0..8 {
        // They sleep, and are no longer new when they wake.
        scene.snapshot.threads[number].cpu_share = 0.0;
    }
    look(&mut adaptive, &mut scene, 1);
    for number in 0..8 {
        scene.snapshot.threads[number].cpu_share = 1.0;
    }
    look(&mut adaptive, &mut scene, 1);
    assert!(adaptive.next_look().unwrap().as_millis() >= 400);
}

#[test]
fn threads_that_a_running_process_has_just_made_are_looked_at_soon() {
    let next_after = |of_the_process: bool| {
        let mut scene = scene();
        program(&mut scene, 1, 0, 0.1, 400);
        let mut adaptive = adaptive();
        look(&mut adaptive, &mut scene, 3);
        for number in 2..4 {
            program(&mut scene, number, number, 0.1, 400);
            let thread = scene.snapshot.threads.last_mut().unwrap();
            (thread.counts, thread.cpu_share, thread.wait_share) = (None, 0.0, 0.0);
            if of_the_process {
                thread.process = numaherd_testing::Scene::process(1);
            }
        }
        look(&mut adaptive, &mut scene, 1);
        adaptive.next_look().unwrap().as_millis()
    };
    assert_eq!(next_after(true), 50);
    assert!(next_after(false) > 1000, "they may never do anything");
}

#[test]
fn threads_of_which_a_late_look_shows_much_are_judged_at_once() {
    let decides_after = |late_ms: u64| {
        let mut scene = scene();
        for (number, cpu) in [(1, 0), (2, 1)] {
            program(&mut scene, number, cpu, 100.0, 400);
        }
        let counted = std::mem::take(&mut scene.snapshot.threads);
        for thread in &counted {
            let mut thread = thread.clone();
            (thread.counts, thread.cpu_share) = (None, 0.0);
            scene.snapshot.threads.push(thread);
        }
        let mut adaptive = adaptive();
        look(&mut adaptive, &mut scene, 1);
        scene.snapshot.threads = counted;
        scene.snapshot.interval_ns = late_ms * 1_000_000;
        (1..).find(|_| !look(&mut adaptive, &mut scene, 1).is_empty())
    };
    assert_eq!(decides_after(74), Some(2));
    assert_eq!(decides_after(75), Some(1));
}
