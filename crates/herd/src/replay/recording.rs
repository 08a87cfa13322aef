//! A ledger as intervals: what was seen in each, what was decided on it, what came of that.
//!
//! A ledger has them as lines that follow each other: snapshot, placing, outcome. Where a quick cadence
//! is recorded thinned ([`crate::Settings::record_interval_ms`]) there are snapshots without a decision
//! and decisions whose snapshot was not recorded; the latter cannot be replayed and are counted.

use std::path::Path;
use std::sync::Arc;

use numaherd_topology::{CpuId, Topology};
use numaherd_world::{AffinityOrder, AffinityResult, Outcome, Snapshot, Thread, ThreadId};

use crate::error::HerdError;
use crate::ledger::{Header, Placing, Reader, Record, Start};

/// One interval of a recorded run.
#[derive(Clone, Debug)]
pub struct Interval {
    /// What was seen.
    pub snapshot: Arc<Snapshot>,
    /// What was decided on it; `None` where nothing of that is recorded.
    pub placing: Option<Placing>,
    /// What became of the affinity orders; empty in a dry run.
    pub outcome: Outcome,
}

impl Interval {
    /// Where the recorded policy wanted each thread once it had seen the interval: the core it named, or
    /// else where the thread was. In the order of the snapshot's threads.
    pub fn wanted(&self) -> Vec<CpuId> {
        let mut named: Vec<(ThreadId, CpuId)> = match &self.placing {
            Some(placing) => placing
                .plan
                .placements
                .iter()
                .map(|p| (p.thread, p.to))
                .collect(),
            None => Vec::new(),
        };
        places(&self.snapshot, &mut named)
    }

    /// Where the recorded run had each thread once its orders had been carried out. In the order of the
    /// snapshot's threads.
    pub fn had(&self) -> Vec<CpuId> {
        let mut given: Vec<(ThreadId, CpuId)> = self
            .taken()
            .map(|(order, _)| {
                let left = self.snapshot.thread(order.thread).map(|thread| thread.cpu);
                (order.thread, order.core.or(left))
            })
            .filter_map(|(thread, core)| Some((thread, core?)))
            .collect();
        places(&self.snapshot, &mut given)
    }

    /// The orders that took effect, with what became of them.
    pub(super) fn taken(&self) -> impl Iterator<Item = (&AffinityOrder, &AffinityResult)> {
        self.results().filter(|(_, result)| {
            matches!(
                result,
                AffinityResult::Done | AffinityResult::Narrowed { .. }
            )
        })
    }

    /// The orders with what became of each.
    pub(super) fn results(&self) -> impl Iterator<Item = (&AffinityOrder, &AffinityResult)> {
        let orders = self.placing.iter().flat_map(|placing| &placing.affinities);
        let outcomes = &self.outcome.affinities;
        orders
            .zip(outcomes)
            .filter(|(order, outcome)| order.thread == outcome.thread)
            .map(|(order, outcome)| (order, &outcome.result))
    }
}

/// Where each thread of a snapshot is, with some of them elsewhere.
pub(super) fn places(snapshot: &Snapshot, elsewhere: &mut [(ThreadId, CpuId)]) -> Vec<CpuId> {
    elsewhere.sort_by_key(|&(thread, _)| thread);
    let place = |thread: &Thread| {
        let at = elsewhere.binary_search_by_key(&thread.id, |&(id, _)| id);
        at.map_or_else(|_| thread.place(), |at| elsewhere[at].1)
    };
    snapshot.threads.iter().map(place).collect()
}

/// A ledger being read as [`Interval`]s, up to the damage if there is any.
#[derive(Debug)]
pub struct Recording {
    reader: Reader,
    topology: Arc<Topology>,
    start: Start,
    /// Its lines are not all read yet.
    begun: Option<Interval>,
    damage: Option<String>,
    unseen: u64,
    page_orders: u64,
    ended: bool,
}

impl Recording {
    /// Opens a ledger.
    ///
    /// # Errors
    /// As [`Reader::open`], and [`HerdError::NotOurs`] when the ledger does not begin with a start.
    pub fn open(path: &Path) -> Result<Self, HerdError> {
        Self::of(Reader::open(path)?, path)
    }

    /// An opened ledger, whose first record comes next. `path` is for messages.
    ///
    /// # Errors
    /// As [`Recording::open`].
    pub fn of(mut reader: Reader, path: &Path) -> Result<Self, HerdError> {
        match reader.next().transpose()?.map(|line| line.record) {
            Some(Record::Start(start)) => Ok(Self {
                reader,
                topology: Arc::new(start.topology.clone()),
                start,
                begun: None,
                damage: None,
                unseen: 0,
                page_orders: 0,
                ended: false,
            }),
            _ => Err(HerdError::NotOurs {
                path: path.to_owned(),
                what: "recording",
                why: "the ledger does not begin with a start record, so the machine is not known"
                    .to_owned(),
            }),
        }
    }

    /// The ledger's first line.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// How the recorded run began.
    pub fn start(&self) -> &Start {
        &self.start
    }

    /// The machine.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// What ended the recording, if not its end.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Decisions so far whose snapshot was not recorded: nobody can be asked about them.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Page orders of the recorded policy so far. What they were decided on (samples, notices) is not
    /// in a ledger.
    pub fn page_orders(&self) -> u64 {
        self.page_orders
    }

    /// Takes in a record; the interval before it, when it begins another.
    fn take(&mut self, record: Record) -> Option<Interval> {
        match record {
            Record::Snapshot(snapshot) => self.begun.replace(Interval {
                snapshot: Arc::new(snapshot),
                placing: None,
                outcome: Outcome::default(),
            }),
            Record::Placing(placing) => {
                match &mut self.begun {
                    Some(begun) if begun.snapshot.sequence == placing.snapshot => {
                        // A second one is the giving back at the end.
                        begun.placing.get_or_insert(placing);
                    }
                    _ => self.unseen += u64::from(!placing.plan.is_empty()),
                }
                None
            }
            Record::Outcome(outcome) => {
                if let Some(begun) = &mut self.begun
                    && begun.placing.is_some()
                    && begun.outcome.affinities.is_empty()
                {
                    begun.outcome = outcome;
                }
                None
            }
            Record::Paging(tick) => {
                self.page_orders += tick.plan.len() as u64;
                None
            }
            _ => None,
        }
    }
}

impl Iterator for Recording {
    type Item = Interval;

    fn next(&mut self) -> Option<Interval> {
        while !self.ended {
            match self.reader.next() {
                Some(Ok(line)) => {
                    if let Some(interval) = self.take(line.record) {
                        return Some(interval);
                    }
                }
                Some(Err(error)) => {
                    self.damage = Some(error.to_string());
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
        self.begun.take()
    }
}
