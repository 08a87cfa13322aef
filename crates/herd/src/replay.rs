//! A world made of a recorded ledger: what was seen is seen again, interval by interval.
//!
//! A policy can be asked what it would have decided on the same snapshots. Nothing can be changed in
//! a recording, so a replay is run dry; orders that are given all the same fail with that sentence.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::Topology;
use numaherd_world::{
    AffinityOutcome, AffinityResult, Orders, Outcome, PageOutcome, Pager, Progress, SignalReport,
    Snapshot, World, WorldError,
};

use crate::error::HerdError;
use crate::ledger::{Reader, Record, Start};

/// What is said of an order to a recording.
const NO_CHANGE: &str = "a recording cannot be changed; replay it as a dry run";

/// A recorded run, as a world.
#[derive(Debug)]
pub struct Replay {
    reader: Reader,
    topology: Arc<Topology>,
    start: Start,
    next: Option<Snapshot>,
    damage: Option<String>,
}

impl Replay {
    /// Opens a ledger.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`HerdError::NotOurs`] when the ledger does not begin with a start.
    pub fn open(path: &Path) -> Result<Self, HerdError> {
        Self::of(Reader::open(path)?, path)
    }

    /// A replay of an opened ledger, whose first record comes next. `path` is for messages.
    ///
    /// # Errors
    /// As [`Replay::open`].
    pub fn of(mut reader: Reader, path: &Path) -> Result<Self, HerdError> {
        match reader.next().transpose()?.map(|line| line.record) {
            Some(Record::Start(start)) => Ok(Self {
                reader,
                topology: Arc::new(start.topology.clone()),
                start,
                next: None,
                damage: None,
            }),
            _ => Err(HerdError::NotOurs {
                path: path.to_owned(),
                what: "recording",
                why: "the ledger does not begin with a start record, so the machine is not known"
                    .to_owned(),
            }),
        }
    }

    /// How the recorded run began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// What ended the recording, if not its end.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }
}

impl World for Replay {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.start.signals
    }

    fn run_for(&mut self, _interval: Duration) -> Progress {
        self.next = None;
        for line in &mut self.reader {
            match line.map(|line| line.record) {
                Ok(Record::Snapshot(snapshot)) => {
                    self.next = Some(snapshot);
                    return Progress::Ran;
                }
                Ok(_) => {}
                Err(error) => self.damage = Some(error.to_string()),
            }
        }
        Progress::Ended
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        self.next.clone().ok_or_else(|| WorldError {
            world: "the recording".to_owned(),
            reason: self
                .damage
                .clone()
                .unwrap_or_else(|| "it has no further snapshot".to_owned()),
        })
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let affinities = orders.affinities.iter().map(|order| AffinityOutcome {
            thread: order.thread,
            result: AffinityResult::Failed {
                error: NO_CHANGE.to_owned(),
            },
        });
        let pages = orders.pages.iter().map(|order| PageOutcome {
            process: order.process,
            thread: order.thread,
            pages: order.pages,
            to: order.to,
            moved: 0,
            already_there: 0,
            failed: std::collections::BTreeMap::new(),
            not_tried: 0,
            took_ns: 0,
            longest_batch_ns: 0,
            error: Some(NO_CHANGE.to_owned()),
        });
        Outcome {
            affinities: affinities.collect(),
            pages: pages.collect(),
        }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        None
    }
}
