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
