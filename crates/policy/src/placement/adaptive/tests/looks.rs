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
    assert_eq!(looks_after(true), [100, 400, 1600]);
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
    assert_eq!([next(0..3), next(0..0)], [100, 400]);
    assert_eq!(next(3..4), 1600, "one of four is new");
    assert_eq!(next(4..8), 100, "half of them are");
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
