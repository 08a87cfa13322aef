//! Whom and what is to be explained, and how decisions are named.
//!
//! A decision's name is the number of the ledger's record that holds it, written `#412`: the same
//! wherever it is shown, and what `--decision` takes. All that one interval decided is in one record.
//! The numbers of the snapshot that a placing was drawn from, and of the outcome after it, name it too.

use numaherd_herd::Record;
use numaherd_herd::ledger::{Ledger, Line};
use serde::Serialize;

use crate::error::ShowError;
use crate::words::at;

/// Whom and what to explain; everything when nothing is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// This process only.
    pub pid: Option<u32>,
    /// This thread only.
    pub tid: Option<u32>,
    /// Processes or threads of this name only.
    pub name: Option<String>,
    /// The decisions of this record only.
    pub decision: Option<u64>,
    /// Decisions from this time on only, in ns since the world began.
    pub from_ns: Option<u64>,
    /// Decisions up to this time only.
    pub to_ns: Option<u64>,
}

impl Choice {
    /// The same with the decisions around a point in time: those of the interval that it is in and of
    /// one on either side.
    #[must_use]
    pub fn around(self, ledger: &Ledger, at_ns: u64) -> Self {
        let interval = ledger.lines.iter().find_map(|line| match &line.record {
            Record::Start(start) => Some(start.settings.placement_interval(u64::MAX)),
            _ => None,
        });
        let side = interval.map_or(1_000_000_000, |interval| {
            u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX)
        });
        Self {
            from_ns: Some(at_ns.saturating_sub(side)),
            to_ns: Some(at_ns.saturating_add(side)),
            ..self
        }
    }

    /// Whether some of the threads are chosen.
    pub(super) fn is_of_threads(&self) -> bool {
        self.pid.is_some() || self.tid.is_some() || self.name.is_some()
    }

    /// Whether some of the decisions are chosen.
    pub(super) fn is_of_decisions(&self) -> bool {
        self.decision.is_some() || self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// Whether a decision is among those that are chosen.
    pub(super) fn takes(&self, record: u64, time_ns: u64) -> bool {
        self.decision.is_none_or(|decision| decision == record)
            && self.from_ns.is_none_or(|from| time_ns >= from)
            && self.to_ns.is_none_or(|to| time_ns <= to)
    }

    /// The same with the decision's own number, where that of its snapshot or outcome was given.
    ///
    /// # Errors
    /// [`ShowError::NoSuchDecision`], [`ShowError::NothingThen`].
    pub(super) fn resolved(mut self, ledger: &Ledger) -> Result<Self, ShowError> {
        if let Some(record) = self.decision {
            self.decision = Some(decision_of(ledger, record)?);
        }
        let any = || {
            let mut decisions = decisions(ledger);
            decisions.any(|line| self.takes(line.sequence, line.time_ns))
        };
        if self.is_of_decisions() && !any() {
            let (from, to) = (self.from_ns.unwrap_or(0), self.to_ns);
            return Err(ShowError::NothingThen {
                when: match to {
                    Some(to) => format!("between {} and {}", at(from), at(to)),
                    None => format!("from {} on", at(from)),
                },
                known: nearest(ledger, |line| line.time_ns < from),
            });
        }
        Ok(self)
    }
}

/// The lines that hold decisions.
fn decisions(ledger: &Ledger) -> impl Iterator<Item = &Line> {
    ledger.lines.iter().filter(|line| match &line.record {
        Record::Placing(placing) => {
            !placing.plan.placements.is_empty() || !placing.affinities.is_empty()
        }
        Record::Paging(tick) => {
            !tick.plan.is_empty() || !tick.refusals.is_empty() || !tick.outcomes.is_empty()
        }
        _ => false,
    })
}

fn decision_of(ledger: &Ledger, record: u64) -> Result<u64, ShowError> {
    let refused = |why: String| {
        Err(ShowError::NoSuchDecision {
            record,
            why,
            known: nearest(ledger, |line| line.sequence < record),
        })
    };
    // The start of a later part is numbered as the record after it.
    let here = |line: &&Line| line.sequence == record && !matches!(line.record, Record::Start(_));
    let Some(line) = ledger.lines.iter().find(here) else {
        let numbers = || ledger.lines.iter().map(|line| line.sequence);
        return refused(match (numbers().min(), numbers().max()) {
            (Some(first), Some(last)) if !(first..=last).contains(&record) => {
                format!("the ledger holds the records #{first} to #{last}")
            }
            _ => "it is no record that this program knows".to_owned(),
        });
    };
    let found = match &line.record {
        Record::Snapshot(snapshot) => {
            let of_it = |line: &&Line| matches!(&line.record, Record::Placing(placing) if placing.snapshot == snapshot.sequence);
            decisions(ledger).find(of_it)
        }
        Record::Outcome(_) => decisions(ledger)
            .take_while(|earlier| earlier.sequence < record)
            .last(),
        _ => decisions(ledger).find(|decision| decision.sequence == record),
    };
    match found {
        Some(line) => Ok(line.sequence),
        None => refused(format!("it is {}, and decided nothing", kind(&line.record))),
    }
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Start(_) => "the start",
        Record::Snapshot(_) => "a snapshot from which nothing was decided",
        Record::Placing(_) => "a placing",
        Record::Outcome(_) => "an outcome",
        Record::Paging(_) => "a look at the pages",
        Record::Notice(_) => "a notice",
        Record::Control(_) => "something that was asked of the herd",
        Record::End(_) => "the end",
        Record::Unknown => "of a later program",
    }
}

/// The decisions on either side, as a phrase.
fn nearest(ledger: &Ledger, is_before: impl Fn(&Line) -> bool) -> String {
    let before = decisions(ledger).take_while(|line| is_before(line)).last();
    let after = decisions(ledger).find(|line| !is_before(line));
    let name = |line: &Line| format!("#{} at {}", line.sequence, at(line.time_ns));
    match (before.map(name), after.map(name)) {
        (None, None) => "it holds no decision at all".to_owned(),
        (Some(one), None) | (None, Some(one)) => format!("the nearest is {one}"),
        (Some(before), Some(after)) => format!("the nearest are {before} and {after}"),
    }
}
