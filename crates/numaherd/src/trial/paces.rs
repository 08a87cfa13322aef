//! How far the selected threads have come, by their instructions: each thread beside itself.
//!
//! A sum of instructions mostly measures threads that compute: they execute many times as many as threads that wait
//! for memory, and memory is what a policy is about. So a thread's instructions of an interval count as the CPU time,
//! in seconds, that it has needed for as many so far. A thread at its average speed counts for the time that it runs,
//! and at twice that speed for twice the time.
//!
//! Property: what an interval counts follows from that interval and earlier ones alone, whichever side had them, so that
//! a policy without an effect gains nothing.

use std::collections::HashMap;

use numaherd_world::{Snapshot, ThreadId};

/// The paces of threads, and how far they have come.
#[derive(Debug, Default)]
pub struct Paces {
    threads: HashMap<ThreadId, Pace>,
    /// In seconds of CPU time at the threads' own average speeds.
    pub progress_s: f64,
}

/// What a thread has executed so far, and in how much CPU time.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    instructions: f64,
    cpu_s: f64,
}

impl Paces {
    /// Takes in an interval. Threads that are not counted in it, or did not run, add nothing.
    pub fn take(&mut self, snapshot: &Snapshot) {
        let interval_s = snapshot.interval_ns as f64 / 1e9;
        self.threads
            .retain(|&thread, _| snapshot.thread(thread).is_some());
        for thread in &snapshot.threads {
            let cpu_s = thread.cpu_share * interval_s;
            let counted = thread.counts.map(|counts| counts.instructions as f64);
            let Some(instructions) = counted.filter(|&counted| counted > 0.0 && cpu_s > 0.0) else {
                continue;
            };
            let pace = self.threads.entry(thread.id).or_default();
            pace.instructions += instructions;
            pace.cpu_s += cpu_s;
            self.progress_s += instructions * pace.cpu_s / pace.instructions;
        }
    }
}

#[cfg(test)]
mod tests {
    use numaherd_testing::Scene;
    use numaherd_world::Counts;

    use super::*;

    /// Progress of an interval of a second in which these threads ran all the time, at these instructions per second.
    fn interval(paces: &mut Paces, speeds: &[f64]) -> f64 {
        let mut scene = Scene::uniform(1, speeds.len() as u32);
        for (number, &speed) in speeds.iter().enumerate() {
            let thread = scene.thread(1, 0.0, number as u32);
            thread.cpu_share = 1.0;
            thread.counts = (speed > 0.0).then(|| Counts {
                instructions: (speed * 1e6) as u64,
                ..Counts::default()
            });
        }
        scene.snapshot.interval_ns = 1_000_000_000;
        let before = paces.progress_s;
        paces.take(&scene.snapshot);
        paces.progress_s - before
    }

    #[test]
    fn a_thread_that_waits_counts_as_much_as_one_that_computes() {
        let mut paces = Paces::default();
        // One computes at the same speed throughout; the other is twice as fast in every second interval.
        let both = |paces: &mut Paces| [interval(paces, &[1e4, 1.0]), interval(paces, &[1e4, 2.0])];
        for _ in 0..50 {
            both(&mut paces);
        }
        let [slow, fast] = both(&mut paces);
        // The second is at 2/3 and 4/3 of its average.
        assert!((slow - 5.0 / 3.0).abs() < 0.01, "{slow}");
        assert!((fast - 7.0 / 3.0).abs() < 0.01, "{fast}");
    }

    #[test]
    fn a_thread_at_its_own_speed_counts_as_much_as_it_runs() {
        let mut paces = Paces::default();
        assert_eq!(interval(&mut paces, &[3.0, 7.0]), 2.0);
        assert_eq!(interval(&mut paces, &[3.0, 7.0, 5.0]), 3.0, "a new one");
        assert_eq!(interval(&mut paces, &[3.0, 0.0]), 1.0, "one uncounted");
    }
}
