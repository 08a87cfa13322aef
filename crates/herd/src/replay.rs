//! Replay: a recorded ledger is seen again, interval by interval, and other policies are asked what
//! they would have decided.
//!
//! * [`Recording`] reads a ledger as intervals, each with what was decided in it and what came of it;
//! * [`Candidate`] is a policy that is shown them, without a machine;
//! * [`Replay`] is a recording as a world of the one loop, for whoever wants the whole loop run again,
//!   dry: nothing can be changed in a recording, and orders that are given all the same fail with that
//!   sentence.

mod candidate;
mod carried;
mod recording;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::Topology;
use numaherd_world::{
    AffinityOutcome, AffinityResult, Orders, Outcome, PageOutcome, Pager, Progress, SignalReport,
    Snapshot, World, WorldError,
};

use crate::error::HerdError;
use crate::ledger::{Reader, Start};

pub use candidate::{Basis, Candidate, Decided, Wants};
pub use recording::{Interval, Recording};

/// What is said of an order to a recording.
const NO_CHANGE: &str = "a recording cannot be changed; replay it as a dry run";

/// A recorded run, as a world.
#[derive(Debug)]
pub struct Replay {
    recording: Recording,
    topology: Arc<Topology>,
    next: Option<Arc<Snapshot>>,
}

impl Replay {
    /// Opens a ledger.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn open(path: &Path) -> Result<Self, HerdError> {
        Ok(Self::from(Recording::open(path)?))
    }

    /// A replay of an opened ledger, whose first record comes next. `path` is for messages.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of(reader: Reader, path: &Path) -> Result<Self, HerdError> {
        Ok(Self::from(Recording::of(reader, path)?))
    }

    /// How the recorded run began.
    pub fn start(&self) -> &Start {
        self.recording.start()
    }

    /// What ended the recording, if not its end.
    pub fn damage(&self) -> Option<&str> {
        self.recording.damage()
    }
}

impl From<Recording> for Replay {
    fn from(recording: Recording) -> Self {
        Self {
            topology: recording.topology().clone(),
            recording,
            next: None,
        }
    }
}

impl World for Replay {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.recording.start().signals
    }

    fn run_for(&mut self, _interval: Duration) -> Progress {
        self.next = self.recording.next().map(|interval| interval.snapshot);
        if self.next.is_some() {
            Progress::Ran
        } else {
            Progress::Ended
        }
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let snapshot = self.next.as_deref().cloned();
        snapshot.ok_or_else(|| WorldError {
            world: "the recording".to_owned(),
            reason: self
                .damage()
                .unwrap_or("it has no more snapshots")
                .to_owned(),
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
            error: Some(NO_CHANGE.to_owned()),
            ..PageOutcome::begun(order)
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
