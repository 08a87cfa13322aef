//! A ledger as [`Interval`]s: what was seen in each, what was decided on it, and the outcome.
//!
//! If a quick cadence is recorded only in part ([`numaherd_herd::Settings::record_interval_ms`]), there are snapshots
//! without a decision, and decisions whose snapshot was not recorded. The latter cannot be replayed; they are counted.

use std::path::Path;
use std::sync::Arc;

use numaherd_herd::HerdError;
use numaherd_herd::ledger::{Placing, Reader, Record, Start};
use numaherd_herd::replay::Interval;
use numaherd_topology::Topology;
use numaherd_world::{Outcome, Snapshot};

use crate::run::decision::PageDecision;
use crate::run::{History, RunModel};

/// A ledger being read as [`Interval`]s, up to the damage if there is any.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
    run: RunModel,
    past: Intervals,
    topology: Arc<Topology>,
    start: Start,
    damage: Option<String>,
}

/// The interval whose lines are not all read yet, and what cannot be replayed.
#[derive(Debug, Default)]
struct Intervals {
    begun: Option<Interval>,
    whole: Option<Interval>,
    unseen: u64,
    page_orders: u64,
}

impl History for Intervals {
    fn interval(&mut self, _: &RunModel, snapshot: &Snapshot) {
        self.whole = self.begun.replace(Interval {
            snapshot: Arc::new(snapshot.clone()),
            placing: None,
            outcome: Outcome::default(),
        });
    }

    fn placed(&mut self, placing: &Placing, outcome: Option<&Outcome>) {
        let begun = self.begun.as_mut();
        match begun.filter(|begun| begun.snapshot.sequence == placing.snapshot) {
            // A second placing is the giving back at the end.
            Some(begun) if begun.placing.is_none() => {
                begun.placing = Some(placing.clone());
                begun.outcome = outcome.cloned().unwrap_or_default();
            }
            Some(_) => {}
            None => self.unseen += u64::from(!placing.plan.is_empty()),
        }
    }

    fn paged(&mut self, _: &RunModel, decision: &PageDecision<'_>) {
        self.page_orders += u64::from(decision.is_planned);
    }
}

impl Recording {
    /// A recording from an opened ledger, whose first record comes next. `path` is for messages.
    ///
    /// # Errors
    /// [`HerdError::NotOurs`] when the ledger does not begin with a start; otherwise as [`Reader`].
    pub fn of(mut reader: Reader, path: &Path) -> Result<Self, HerdError> {
        let first = reader.next().transpose()?.map(Arc::new);
        match first.as_ref().map(|line| (line, &line.record)) {
            Some((line, Record::Start(start))) => {
                let mut run = RunModel::new();
                run.take(line);
                Ok(Self {
                    reader,
                    run,
                    past: Intervals::default(),
                    topology: Arc::new(start.topology.clone()),
                    start: start.clone(),
                    damage: None,
                })
            }
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

    /// The recorded run as far as it has been read.
    pub fn run(&self) -> &RunModel {
        &self.run
    }

    /// The machine.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// What ended the recording, if not its end.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Decisions so far whose snapshot was not recorded, so that no policy can be asked about them.
    pub fn unseen(&self) -> u64 {
        self.past.unseen
    }

    /// Page orders of the recorded policy so far. The samples and notices that led to them are not in a
    /// ledger.
    pub fn page_orders(&self) -> u64 {
        self.past.page_orders
    }
}

impl Iterator for Recording {
    type Item = Interval;

    fn next(&mut self) -> Option<Interval> {
        for line in &mut self.reader {
            match line {
                Ok(line) => self.run.take_with(&Arc::new(line), &mut self.past),
                Err(error) => self.damage = Some(error.to_string()),
            }
            if let Some(whole) = self.past.whole.take() {
                return Some(whole);
            }
        }
        self.run.finish(&mut self.past);
        self.past.begun.take()
    }
}
