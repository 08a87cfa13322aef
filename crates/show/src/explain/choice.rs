//! What is to be explained, and how decisions are named.
//!
//! A decision is named by the number of the ledger's record that holds it, written `#412`: the same wherever it is
//! shown, and what `--decision` takes. One record holds all decisions of one interval. The numbers of the snapshot
//! before a placing and of the outcome after it also name its decisions.

use numaherd_herd::Record;
use numaherd_herd::ledger::Line;
use serde::Serialize;

use crate::error::ShowError;
use crate::words::{at, nanoseconds};

/// What to explain; everything when nothing is chosen.
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
    /// Decisions around this time only: those of the interval that it is in and of one on either side. It becomes
    /// `from_ns` and `to_ns` once the cadence has been read.
    #[serde(skip)]
    pub at_ns: Option<u64>,
}

impl Choice {
    /// Whether the choice is limited to some threads.
    pub(super) fn is_of_threads(&self) -> bool {
        self.pid.is_some() || self.tid.is_some() || self.name.is_some()
    }

    /// Whether the choice is limited to some decisions.
    pub(super) fn is_of_decisions(&self) -> bool {
        self.decision.is_some() || self.from_ns.is_some() || self.to_ns.is_some()
    }

    /// Replaces `at_ns` with the span of `side_ns` on either side of it.
    fn set_span(&mut self, side_ns: u64) {
        if let Some(at_ns) = self.at_ns.take() {
            self.from_ns = Some(at_ns.saturating_sub(side_ns));
            self.to_ns = Some(at_ns.saturating_add(side_ns));
        }
    }
}

/// A choice while the ledger is read, and whether the ledger holds what was chosen.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) choice: Choice,
    /// Whether the choice names the decision's own record.
    is_resolved: bool,
    /// Whether a chosen decision was found.
    is_found: bool,
    /// The kind of the record that was asked for.
    kind: Option<&'static str>,
    /// Numbers of the first and the last record.
    numbers: Option<(u64, u64)>,
    /// Number and time of each record that holds decisions.
    decisions: Vec<(u64, u64)>,
}

impl Chosen {
    pub(super) fn of(choice: Choice) -> Self {
        Self {
            choice,
            ..Self::default()
        }
    }

    /// Takes in a line, before its decisions.
    pub(super) fn saw(&mut self, line: &Line) {
        let number = line.sequence;
        let first = self.numbers.map_or(number, |(first, _)| first);
        self.numbers = Some((first, number));
        // The start of a later part has the number of the record after it.
        if let Record::Start(start) = &line.record {
            let interval = start.settings.placement_interval(u64::MAX);
            self.choice.set_span(nanoseconds(interval));
        } else if self.choice.decision == Some(number) {
            self.kind = Some(kind(&line.record));
        }
        if holds_decisions(&line.record) {
            self.decisions.push((number, line.time_ns));
        }
    }

    /// Whether a decision with these numbers, its own first, is chosen.
    pub(super) fn takes(&mut self, numbers: [Option<u64>; 3], time_ns: u64) -> bool {
        if let Some(wanted) = self.choice.decision {
            let own = numbers[0];
            let is_named = match self.is_resolved {
                true => own == Some(wanted),
                false => numbers.contains(&Some(wanted)),
            };
            if !is_named {
                return false;
            }
            self.is_resolved = true;
            self.choice.decision = own;
        }
        let is_after = self.choice.from_ns.is_none_or(|from| time_ns >= from);
        let is_chosen = is_after && self.choice.to_ns.is_none_or(|to| time_ns <= to);
        self.is_found |= is_chosen;
        is_chosen
    }

    /// Checks that the ledger holds what was chosen.
    ///
    /// # Errors
    /// [`ShowError::NoSuchDecision`], [`ShowError::NothingThen`].
    pub(super) fn check(&mut self) -> Result<(), ShowError> {
        self.choice.set_span(1_000_000_000);
        if let Some(record) = self.choice.decision.filter(|_| !self.is_resolved) {
            let is_beyond = |(first, last): &(u64, u64)| !(*first..=*last).contains(&record);
            let why = match (self.kind, self.numbers.filter(is_beyond)) {
                (Some(kind), _) => format!("it is {kind}, and decided nothing"),
                (None, Some((first, last))) => {
                    format!("the ledger contains the records #{first} to #{last}")
                }
                (None, None) => "this program does not know that kind of record".to_owned(),
            };
            return Err(ShowError::NoSuchDecision {
                record,
                why,
                known: self.nearest(|(number, _)| number < record),
            });
        }
        if self.choice.is_of_decisions() && !self.is_found {
            let (from, to) = (self.choice.from_ns.unwrap_or(0), self.choice.to_ns);
            return Err(ShowError::NothingThen {
                when: match to {
                    Some(to) => format!("between {} and {}", at(from), at(to)),
                    None => format!("from {} on", at(from)),
                },
                known: self.nearest(|(_, time_ns)| time_ns < from),
            });
        }
        Ok(())
    }

    /// The decisions on either side, as a phrase.
    fn nearest(&self, is_before: impl Fn((u64, u64)) -> bool) -> String {
        let place = self.decisions.partition_point(|&one| is_before(one));
        let name = |&(number, time_ns): &(u64, u64)| format!("#{number} at {}", at(time_ns));
        let before = place.checked_sub(1).map(|place| &self.decisions[place]);
        match (before.map(name), self.decisions.get(place).map(name)) {
            (None, None) => "it contains no decision".to_owned(),
            (Some(one), None) | (None, Some(one)) => format!("the nearest is {one}"),
            (Some(before), Some(after)) => format!("the nearest are {before} and {after}"),
        }
    }
}

fn holds_decisions(record: &Record) -> bool {
    match record {
        Record::Placing(placing) => {
            !placing.plan.placements.is_empty() || !placing.affinities.is_empty()
        }
        Record::Paging(tick) => {
            !tick.plan.is_empty() || !tick.refusals.is_empty() || !tick.outcomes.is_empty()
        }
        _ => false,
    }
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Start(_) => "the start",
        Record::Snapshot(_) => "a snapshot from which nothing was decided",
        Record::Losses(_) => "what the machine lost",
        Record::Placing(_) => "a placing",
        Record::Outcome(_) => "an outcome",
        Record::Paging(_) => "a look at the pages",
        Record::Notice(_) => "a notice",
        Record::Control(_) => "something that was asked of the herd",
        Record::Trial(_) => "a pair of blocks of a trial",
        Record::LedgerEnded { .. } => "the end of the ledger",
        Record::End(_) => "the end",
        Record::Unknown => "of a later program",
    }
}
