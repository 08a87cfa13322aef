//! A world that replays snapshots.

use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::Topology;
use numaherd_world::{Orders, Outcome, Pager, Progress, SignalReport, Snapshot, World, WorldError};

/// A world that shows one snapshot in each interval and ends after the last. Orders do not change it: use a dry run.
#[derive(Debug)]
pub struct Played<I> {
    topology: Arc<Topology>,
    signals: Vec<SignalReport>,
    snapshots: I,
    next: Option<Snapshot>,
}

impl<I: Iterator<Item = Snapshot>> Played<I> {
    /// A world with these snapshots of a machine that measures these signals.
    pub fn new(topology: Topology, signals: Vec<SignalReport>, snapshots: I) -> Self {
        Self {
            topology: Arc::new(topology),
            signals,
            snapshots,
            next: None,
        }
    }
}

impl<I: Iterator<Item = Snapshot>> World for Played<I> {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn run_for(&mut self, _: Duration) -> Progress {
        self.next = self.snapshots.next();
        match self.next {
            Some(_) => Progress::Ran,
            None => Progress::Ended,
        }
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        self.next.clone().ok_or_else(|| WorldError {
            world: "the recording".to_owned(),
            reason: "it has no more snapshots".to_owned(),
        })
    }

    fn apply(&mut self, _: &Orders) -> Outcome {
        Outcome::default()
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        None
    }
}
