//! Threads that follow one another through the planes of a sweep: each may do a plane once its
//! neighbour has done it. A waiting thread yields its CPU.

use crate::sync::{lock, wait_while};
use std::sync::{Condvar, Mutex};

/// The progress of each thread.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<Stage>,
}

/// A thread's progress, in cache lines that it shares only with the thread that waits for it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stage {
    /// Planes done since the start, over all sweeps.
    done: Mutex<u64>,
    moved: Condvar,
}

impl Pipeline {
    /// For this many threads.
    pub fn new(threads: usize) -> Pipeline {
        Pipeline {
            stages: (0..threads).map(|_| Stage::default()).collect(),
        }
    }

    /// Waits until thread `index` has done `planes`.
    pub fn wait_for(&self, index: usize, planes: u64) {
        let stage = &self.stages[index];
        drop(wait_while(&stage.moved, lock(&stage.done), |done| {
            *done < planes
        }));
    }

    /// The handle by which thread `index` reports its progress, for as long as it takes part.
    pub fn turn(&self, index: usize) -> Turn<'_> {
        Turn {
            stage: &self.stages[index],
        }
    }
}

/// A handle that reports a thread's progress.
#[derive(Debug)]
pub struct Turn<'p> {
    stage: &'p Stage,
}

impl Turn<'_> {
    /// Reports that another plane is done.
    pub fn done(&self) {
        *lock(&self.stage.done) += 1;
        self.stage.moved.notify_all();
    }
}

impl Drop for Turn<'_> {
    /// Releases threads that wait for one that panics; all learn of it at the next barrier.
    fn drop(&mut self) {
        if std::thread::panicking() {
            *lock(&self.stage.done) = u64::MAX;
            self.stage.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_overtakes_who_goes_before() {
        let pipeline = Pipeline::new(4);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for index in 0..4 {
                let (pipeline, order) = (&pipeline, &order);
                scope.spawn(move || {
                    let turn = pipeline.turn(index);
                    for plane in 0..50u64 {
                        if index > 0 {
                            pipeline.wait_for(index - 1, plane + 1);
                        }
                        order.lock().unwrap().push((index, plane));
                        turn.done();
                    }
                });
            }
        });
        let order = order.into_inner().unwrap();
        assert_eq!(order.len(), 200);
        let when = |step| order.iter().position(|&done| done == step);
        for index in 1..4 {
            for plane in 0..50 {
                assert!(when((index - 1, plane)) < when((index, plane)));
            }
        }
    }

    #[test]
    fn one_that_panics_holds_nobody_up() {
        let pipeline = Pipeline::new(2);
        std::thread::scope(|scope| {
            let failed = scope.spawn(|| {
                let _turn = pipeline.turn(0);
                panic!("expected by this test");
            });
            pipeline.wait_for(0, 7);
            assert!(failed.join().is_err());
        });
    }
}
