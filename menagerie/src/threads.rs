//! The threads of a run: all set up, then all start to work at the same moment, each until its own
//! length is done.

use crate::error::Error;
use crate::migrations;
use crate::start_signal::StartSignal;
use crate::stop::Stop;
use crate::workload::{Detail, Workload};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

/// The length of a thread's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Passes, as the workload defines them.
    Rounds(u64),
    /// Operations.
    Operations(u64),
    /// As many operations as fit.
    Time(Duration),
}

/// What a thread has done, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The kernel's thread id.
    pub tid: u32,
    /// Operations done.
    pub operations: u64,
    /// Start of the work.
    pub start: Instant,
    /// End of the work.
    pub end: Instant,
    /// Whether it reached its length.
    pub complete: bool,
    /// How often the kernel moved the thread to another CPU meanwhile, if it reports that.
    pub migrations: Option<u64>,
    /// The workload's own figures.
    pub detail: Detail,
}

impl Work {
    /// Time taken.
    pub fn seconds(&self) -> f64 {
        (self.end - self.start).as_secs_f64()
    }
}

/// What all threads have done.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// One entry per thread, in order.
    pub works: Vec<Work>,
    /// From the first thread's start to the last one's end.
    pub seconds: f64,
    /// Whether every thread reached its length.
    pub complete: bool,
}

/// Runs `count` threads, each with the workload that `make` sets up in it. After the release, each calls `begin` first.
pub fn run<W: Workload>(
    count: usize,
    length: Length,
    gate: &StartSignal,
    stop: &Stop,
    make: impl Fn(usize) -> Result<W, Error> + Sync,
    begin: impl Fn() -> Result<(), Error> + Sync,
) -> Result<Outcome, Error> {
    let party = Party {
        count,
        name: "member",
        gate,
        stop,
        abandon: &|| {},
    };
    together(&party, make, |workload| {
        begin()?;
        measure(workload, length, stop)
    })
}

/// Threads that set up, are released together and work.
pub struct Party<'p> {
    /// Number of threads.
    pub count: usize,
    /// Their name; each adds a hyphen and its number.
    pub name: &'static str,
    /// The signal between set-up and work.
    pub gate: &'p StartSignal,
    /// Ends the run early.
    pub stop: &'p Stop,
    /// Called when a thread's set-up has failed, to release threads whose set-up waits for it.
    pub abandon: &'p dyn Fn(),
}

/// Runs the threads of `party`: first `make` in each and, once all are done, `work`.
pub fn together<W>(
    party: &Party<'_>,
    make: impl Fn(usize) -> Result<W, Error> + Sync,
    work: impl Fn(W) -> Result<Work, Error> + Sync,
) -> Result<Outcome, Error> {
    // Whether to work; threads wait for it after their set-up.
    let release = OnceLock::new();
    let (ready, readies) = mpsc::channel();
    std::thread::scope(|scope| {
        let start = |index| {
            let (ready, make, work, release) = (ready.clone(), &make, &work, &release);
            std::thread::Builder::new()
                .name(format!("{}-{index}", party.name))
                .spawn_scoped(scope, move || match set_up(|| make(index), index, ready) {
                    Some(workload) if *release.wait() => work(workload).map(Some),
                    _ => Ok(None),
                })
                .map_err(|source| Error::Thread { index, source })
        };
        let mut threads = Vec::new();
        let started =
            (0..party.count).try_for_each(|index| start(index).map(|thread| threads.push(thread)));
        // The receiver ends only when all senders are dropped, including this one.
        drop(ready);
        let passed = started
            .and_then(|()| all_ready(party.count, &readies))
            .inspect_err(|_| (party.abandon)())
            .and_then(|tids| party.gate.pass(&tids, party.stop));
        // No other thread sets it.
        let _ = release.set(passed.is_ok());
        let works: Result<Vec<_>, Error> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .collect();
        passed?;
        Ok(summary(works?.into_iter().flatten().collect()))
    })
}

/// A thread's report after set-up: its number in the run, and its id or its failure.
type Ready = (usize, Result<u32, Error>);

/// Sets up and reports it. Returns the workload, unless that failed.
fn set_up<W>(
    make: impl FnOnce() -> Result<W, Error>,
    index: usize,
    ready: mpsc::Sender<Ready>,
) -> Option<W> {
    let (workload, report) = match make() {
        Ok(workload) => (Some(workload), Ok(tid())),
        Err(error) => (None, Err(error)),
    };
    // If the run has failed already, there is no receiver; the release then says so.
    let _ = ready.send((index, report));
    workload
}

/// The calling thread's id.
fn tid() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

/// The thread ids once all have set up, or the first failure.
fn all_ready(count: usize, readies: &mpsc::Receiver<Ready>) -> Result<Vec<u32>, Error> {
    let mut tids = vec![0; count];
    for (index, ready) in readies.iter().take(count) {
        tids[index] = ready?;
    }
    Ok(tids)
}

/// Times `work` in the calling thread. `work` returns the operations done, and whether it reached
/// its length.
pub fn measured(work: impl FnOnce() -> (u64, bool)) -> Work {
    let migrations = migrations::so_far();
    let start = Instant::now();
    let (operations, complete) = work();
    Work {
        tid: tid(),
        operations,
        start,
        end: Instant::now(),
        complete,
        migrations: migrations.and_then(|before| migrations::so_far()?.checked_sub(before)),
        detail: Detail::None {},
    }
}

fn measure(mut workload: impl Workload, length: Length, stop: &Stop) -> Result<Work, Error> {
    let goal = match length {
        Length::Rounds(rounds) => rounds.saturating_mul(workload.round()),
        Length::Operations(operations) => operations,
        Length::Time(_) => u64::MAX,
    };
    let mut failed = None;
    let mut work = measured(|| {
        let deadline = match length {
            Length::Time(duration) => Instant::now().checked_add(duration),
            _ => None,
        };
        let mut operations = 0;
        let complete = loop {
            if operations == goal || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break true;
            }
            if stop.wanted() {
                break false;
            }
            let batch = workload.batch().min(goal - operations);
            if let Err(error) = workload.run(batch) {
                // One thread's failure fails the run: the others need not continue.
                stop.end();
                failed = Some(error);
                break false;
            }
            operations += batch;
        };
        (operations, complete)
    });
    work.detail = workload.detail();
    failed.map_or(Ok(work), Err)
}

fn summary(works: Vec<Work>) -> Outcome {
    let start = works.iter().map(|work| work.start).min();
    let end = works.iter().map(|work| work.end).max();
    let span = start.zip(end).map(|(start, end)| end - start);
    Outcome {
        seconds: span.unwrap_or_default().as_secs_f64(),
        complete: works.iter().all(|work| work.complete),
        works,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Counts its operations, and may fail.
    struct Counted<'c> {
        total: &'c AtomicU64,
        fails_at: u64,
        done: u64,
    }

    /// The `begin` of threads that may run anywhere.
    fn free() -> Result<(), Error> {
        Ok(())
    }

    impl Workload for Counted<'_> {
        fn run(&mut self, operations: u64) -> Result<(), Error> {
            self.total.fetch_add(operations, Ordering::Relaxed);
            self.done += operations;
            if self.done >= self.fails_at {
                Err(failure())
            } else {
                Ok(())
            }
        }

        fn batch(&self) -> u64 {
            10
        }

        fn round(&self) -> u64 {
            7
        }
    }

    fn failure() -> Error {
        Error::TooLarge { count: 1, each: 1 }
    }

    fn gate() -> StartSignal {
        StartSignal::new(None, None).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_thread_does_its_length_exactly(count in 1usize..6, rounds in 0u64..20) {
            let total = AtomicU64::new(0);
            let make = |_| Ok(Counted { total: &total, fails_at: u64::MAX, done: 0 });
            let outcome = run(count, Length::Rounds(rounds), &gate(), &Stop::new(), make, free).unwrap();
            prop_assert!(outcome.complete);
            prop_assert_eq!(outcome.works.len(), count);
            prop_assert!(outcome.works.iter().all(|work| work.operations == 7 * rounds));
            prop_assert_eq!(total.load(Ordering::Relaxed), count as u64 * 7 * rounds);
            for work in &outcome.works {
                prop_assert!(work.seconds() <= outcome.seconds);
            }
        }
    }

    #[test]
    fn a_run_that_is_stopped_tells_what_it_has_done() {
        let total = AtomicU64::new(0);
        let stop = Stop::new();
        stop.end();
        let make = |_| {
            Ok(Counted {
                total: &total,
                fails_at: u64::MAX,
                done: 0,
            })
        };
        let outcome = run(2, Length::Operations(1000), &gate(), &stop, make, free).unwrap();
        assert!(!outcome.complete);
        assert_eq!(
            outcome
                .works
                .iter()
                .map(|work| work.operations)
                .sum::<u64>(),
            0
        );
    }

    #[test]
    fn one_set_up_that_fails_lets_nobody_start() {
        let total = AtomicU64::new(0);
        let make = |index| match index {
            1 => Err(failure()),
            _ => Ok(Counted {
                total: &total,
                fails_at: u64::MAX,
                done: 0,
            }),
        };
        let result = run(
            3,
            Length::Operations(1000),
            &gate(),
            &Stop::new(),
            make,
            free,
        );
        assert!(matches!(result, Err(Error::TooLarge { .. })));
        assert_eq!(total.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_thread_that_fails_ends_the_others() {
        let total = AtomicU64::new(0);
        let make = |index| {
            let fails_at = if index == 0 { 50 } else { u64::MAX };
            Ok(Counted {
                total: &total,
                fails_at,
                done: 0,
            })
        };
        // The other thread's work would take centuries.
        let result = run(
            2,
            Length::Operations(u64::MAX),
            &gate(),
            &Stop::new(),
            make,
            free,
        );
        assert!(matches!(result, Err(Error::TooLarge { .. })));
    }

    #[test]
    fn no_time_is_no_work() {
        let total = AtomicU64::new(0);
        let make = |_| {
            Ok(Counted {
                total: &total,
                fails_at: u64::MAX,
                done: 0,
            })
        };
        let length = Length::Time(Duration::ZERO);
        let outcome = run(1, length, &gate(), &Stop::new(), make, free).unwrap();
        assert_eq!((outcome.complete, outcome.works[0].operations), (true, 0));
    }
}
