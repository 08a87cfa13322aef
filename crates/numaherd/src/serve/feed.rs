//! From the loop to watchers: lines go through a bounded queue to a separate thread, which keeps the model of the run
//! and hands the lines to watchers.
//!
//! The loop is never held up. It puts a shared line into the queue; if the queue is full, the line is
//! dropped and counted, and the state is incomplete until the next snapshot. What waits is bounded by
//! weight, not by number: a snapshot of 5,000 threads is a megabyte, a tick of paging a few hundred bytes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use numaherd_herd::ledger::{Header, VERSION};
use numaherd_herd::{Line, Record};
use numaherd_show::run::RunModel;

use crate::ledger::{PROGRAM, now_ms};
use crate::lock;

/// The most that waiting lines weigh together. A thread of a snapshot weighs 1: some 300 bytes.
const MOST_WAITING: usize = 1 << 16;

/// What any line weighs in addition.
const LEAST_WEIGHT: usize = 8;

/// How many lines a watcher may be behind before it is dropped: five seconds of paging at its usual cadence, after
/// which a client that takes nothing is cut off anyway. All watchers share them.
pub const MOST_BEHIND: usize = 512;

/// Most watchers at once.
pub const MOST_WATCHERS: usize = 16;

/// A line as a watcher gets it, shared by all of them.
pub type Sealed = Arc<[u8]>;

/// The loop's end of the queue.
#[derive(Debug)]
pub struct Feeder {
    queue: Sender<Waiting>,
    weight: Arc<AtomicUsize>,
    /// Dropped since the last line that is in the queue.
    lost: u64,
}

/// The other end, which a thread takes lines from.
#[derive(Debug)]
pub struct Fed {
    queue: Receiver<Waiting>,
    weight: Arc<AtomicUsize>,
    feed: Arc<Feed>,
}

/// What is made of the lines, for all clients.
#[derive(Debug)]
pub struct Feed {
    drawn: Mutex<Drawn>,
    /// Watchers that were dropped for being slow.
    pub watchers_dropped: AtomicU64,
    header: Vec<u8>,
}

#[derive(Debug)]
struct Waiting {
    /// Lines that were dropped before it.
    lost: u64,
    weight: usize,
    line: Arc<Line>,
}

/// What the thread makes of the lines.
#[derive(Debug, Default)]
struct Drawn {
    run: RunModel,
    heard: Option<Instant>,
    watchers: Vec<tokio::sync::mpsc::Sender<Sealed>>,
}

/// What a new watcher receives.
pub struct Watching {
    /// Its first lines: the header, the start with all later changes, the latest snapshot.
    pub first: Vec<Vec<u8>>,
    /// The lines from then on; it ends when the herd has ended or the watcher was too slow.
    pub lines: tokio::sync::mpsc::Receiver<Sealed>,
}

/// A queue, and what is made of its lines.
pub fn feed() -> (Feeder, Fed, Arc<Feed>) {
    let (sender, receiver) = bounded(MOST_WAITING / LEAST_WEIGHT);
    let weight = Arc::new(AtomicUsize::new(0));
    let feed = Feed::new();
    let feeder = Feeder {
        queue: sender,
        weight: weight.clone(),
        lost: 0,
    };
    let fed = Fed {
        queue: receiver,
        weight,
        feed: feed.clone(),
    };
    (feeder, fed, feed)
}

impl Feeder {
    /// Takes a line from the loop without waiting; drops it if too much waits.
    pub fn put(&mut self, line: &Arc<Line>) {
        let weight = weight(line);
        let waiting = self.weight.load(Ordering::Relaxed);
        if self.queue.is_full() || waiting > 0 && waiting + weight > MOST_WAITING {
            self.lost += 1;
            return;
        }
        self.weight.fetch_add(weight, Ordering::Relaxed);
        let waiting = Waiting {
            lost: self.lost,
            weight,
            line: line.clone(),
        };
        match self.queue.try_send(waiting) {
            Ok(()) => self.lost = 0,
            Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => {
                self.weight.fetch_sub(back.weight, Ordering::Relaxed);
                self.lost += 1;
            }
        }
    }
}

impl Fed {
    /// Takes lines in until the loop's end of the queue is dropped.
    pub fn take_in(self) {
        for waiting in &self.queue {
            self.weight.fetch_sub(waiting.weight, Ordering::Relaxed);
            self.feed.take(waiting.lost, &waiting.line);
        }
        // Nothing more will come.
        lock(&self.feed.drawn).watchers.clear();
    }
}

impl Feed {
    fn new() -> Arc<Self> {
        let header = Header {
            version: VERSION,
            program: PROGRAM.to_owned(),
            begun_unix_ms: now_ms(),
        };
        Arc::new(Self {
            drawn: Mutex::default(),
            watchers_dropped: AtomicU64::new(0),
            header: header.sealed(),
        })
    }

    fn take(&self, lost: u64, line: &Arc<Line>) {
        let mut drawn = lock(&self.drawn);
        drawn.run.lost(lost);
        drawn.run.take(line);
        drawn.heard = Some(Instant::now());
        if drawn.watchers.is_empty() {
            return;
        }
        let sealed: Sealed = line.sealed().into();
        let before = drawn.watchers.len();
        let mut gone = 0;
        drawn
            .watchers
            .retain(|watcher| match watcher.try_send(sealed.clone()) {
                Ok(()) => true,
                Err(tokio::sync::mpsc::error::TrySendError::Closed(_)) => {
                    gone += 1;
                    false
                }
                Err(tokio::sync::mpsc::error::TrySendError::Full(_)) => false,
            });
        let slow = before - drawn.watchers.len() - gone;
        self.watchers_dropped
            .fetch_add(slow as u64, Ordering::Relaxed);
    }

    /// A new watcher; `None` where there are too many, or the herd has not begun.
    pub fn watch(&self) -> Option<Watching> {
        let mut drawn = lock(&self.drawn);
        drawn.watchers.retain(|watcher| !watcher.is_closed());
        if drawn.watchers.len() >= MOST_WATCHERS {
            return None;
        }
        let start = drawn.run.current()?.clone();
        let (sequence, time_ns) = drawn.run.at();
        let snapshot = drawn.run.latest().cloned();
        let (sender, lines) = tokio::sync::mpsc::channel(MOST_BEHIND);
        drawn.watchers.push(sender);
        drop(drawn);
        let start = Line {
            sequence,
            time_ns,
            record: Record::Start(start),
        };
        let mut first = vec![self.header.clone(), start.sealed()];
        first.extend(snapshot.map(|snapshot| snapshot.sealed()));
        Some(Watching { first, lines })
    }

    /// How many watchers are streaming.
    pub fn watchers(&self) -> usize {
        let drawn = lock(&self.drawn);
        drawn.watchers.iter().filter(|w| !w.is_closed()).count()
    }

    /// Looks at the run, and at when the latest line came.
    pub fn look<T>(&self, look: impl FnOnce(&RunModel, Option<Instant>) -> T) -> T {
        let drawn = lock(&self.drawn);
        look(&drawn.run, drawn.heard)
    }
}

fn weight(line: &Line) -> usize {
    LEAST_WEIGHT
        + match &line.record {
            Record::Start(start) => start.topology.cpus().len(),
            Record::Snapshot(snapshot) => snapshot.threads.len() + snapshot.processes.len(),
            Record::Placing(placing) => {
                placing.plan.placements.len() + placing.affinities.len() + placing.refusals.len()
            }
            Record::Outcome(outcome) => outcome.affinities.len() + outcome.pages.len(),
            Record::Paging(tick) => tick.plan.len() + tick.refusals.len() + tick.outcomes.len(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_herd::ledger::Notice;
    use numaherd_testing::ledger::{first_line, start};

    fn line(sequence: u64) -> Arc<Line> {
        Arc::new(Line {
            sequence,
            time_ns: 0,
            record: Record::Notice(Notice {
                text: "so".to_owned(),
            }),
        })
    }

    #[test]
    fn what_waits_is_bounded_and_what_is_dropped_is_counted() {
        let (mut feeder, fed, feed) = feed();
        let most = MOST_WAITING / LEAST_WEIGHT;
        for sequence in 0..3 * most as u64 {
            feeder.put(&line(sequence));
        }
        assert_eq!((fed.queue.len(), feeder.lost), (most, 2 * most as u64));
        let weight = fed.weight.clone();
        let first = fed.queue.recv().unwrap();
        weight.fetch_sub(first.weight, Ordering::Relaxed);
        feeder.put(&line(3 * most as u64));
        drop(feeder);
        fed.take_in();
        let (lines, lost) = feed.look(|run, _| (run.more.lines, run.more.lines_lost));
        assert_eq!((lines, lost), (most as u64, 2 * most as u64));
        assert_eq!(weight.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_watcher_that_does_not_read_is_dropped_and_others_are_not() {
        let (_, _, feed) = feed();
        assert!(feed.watch().is_none(), "the herd has not begun");
        let topology = numaherd_topology::Machine::preset("lab-4x2").unwrap();
        let start = start(&topology.topology().unwrap(), "dino");
        let begins = first_line(Record::Start(start));
        feed.take(0, &Arc::new(begins));
        let slow = feed.watch().unwrap();
        let mut quick = feed.watch().unwrap();
        assert_eq!((quick.first.len(), feed.watchers()), (2, 2));
        for sequence in 1..=MOST_BEHIND as u64 + 1 {
            feed.take(0, &line(sequence));
            assert!(quick.lines.try_recv().is_ok());
        }
        assert_eq!(feed.watchers(), 1);
        assert_eq!(feed.watchers_dropped.load(Ordering::Relaxed), 1);
        drop((slow, quick));
        assert_eq!(feed.watchers(), 0);
    }
}
