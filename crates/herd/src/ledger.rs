//! The ledger: an append-only record of what was seen, wanted, refused and done.
//!
//! All that people see is drawn from it, live or later. Format, with every field, in `docs/ledger.md`: JSON lines, each
//! sealed with a sum; a header line, then [`Line`]s with consecutive sequence numbers. A snapshot is written as its
//! changes since the one before (`changes`), and whole from time to time. [`Writer`] bounds its size; [`Reader`] reads
//! up to the damage.

mod changes;
mod control;
mod follow;
mod reader;
mod sound;
mod text;
mod trial;
mod watch;
mod writer;

use std::borrow::Cow;

use numaherd_policy::losses::Losses;
use numaherd_topology::Topology;
use numaherd_world::{
    AffinityOrder, Outcome, PageOrder, PageOutcome, Plan, SignalReport, Snapshot,
};
use serde::{Deserialize, Serialize};

use crate::governor::{Refusal, Stolen, Undone};
use crate::sealed::seal;
use crate::settings::Settings;
use crate::summary::Summary;

pub use control::{Asked, Changed, Controlled};
pub use follow::{Follow, Next, Place};
pub use reader::{Ledger, Reader, earlier_part};
pub use trial::{Design, Pair, Side, Trial, TrialEnd, TrialPlan};
pub use watch::Watched;
pub use writer::Writer;

/// The version of the format that is written, and the latest that is read. All snapshots of version 1 are whole.
pub const VERSION: u64 = 2;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Version of the format.
    #[serde(rename = "numaherd-ledger")]
    pub version: u64,
    /// The program that wrote it, with its version.
    pub program: String,
    /// When it was begun, in ms since 1970 (UTC), if the program said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_unix_ms: Option<u64>,
}

/// A record with its place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Consecutive from line to line, from 0; `record` in the file.
    #[serde(rename = "record")]
    pub sequence: u64,
    /// The world's time in ns, of the latest snapshot or page tick; `at_ns` in the file.
    #[serde(rename = "at_ns")]
    pub time_ns: u64,
    /// What is recorded.
    #[serde(flatten)]
    pub record: Record,
}

impl Header {
    /// The header's line in a ledger, sealed, with its line feed.
    pub fn sealed(&self) -> Vec<u8> {
        seal(self)
    }
}

impl Line {
    /// A line from its JSON, without a check of its sum: first its place and kind, then the members of that kind. The
    /// line stands by itself: changes of a previous snapshot are [`Record::Unknown`] here.
    ///
    /// # Errors
    /// What is wrong with the JSON.
    pub fn read(text: &[u8]) -> serde_json::Result<Self> {
        let head: Head<'_> = serde_json::from_slice(text)?;
        let record = Record::read(&head.kind, text)?;
        Ok(head.line(record))
    }

    /// The line as in a ledger, sealed, with its line feed: for programs that pass a ledger on.
    pub fn sealed(&self) -> Vec<u8> {
        seal(self)
    }
}

/// What every line begins with.
#[derive(Serialize, Deserialize)]
struct Head<'l> {
    record: u64,
    at_ns: u64,
    #[serde(borrow)]
    kind: Cow<'l, str>,
}

impl Head<'_> {
    /// The line with this head.
    fn line(&self, record: Record) -> Line {
        Line {
            sequence: self.record,
            time_ns: self.at_ns,
            record,
        }
    }
}

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "lines are handled one at a time, and a box would be one more thing to look through"
)]
pub enum Record {
    /// How it began.
    Start(Start),
    /// What was seen in an interval, or in several in which nothing was decided
    /// ([`Settings::record_interval_ms`]).
    Snapshot(Snapshot),
    /// What the machine lost in the interval of the snapshot before it.
    Losses(Losses),
    /// What the placement wanted, and what the governor made of it.
    Placing(Placing),
    /// What became of the orders.
    Outcome(Outcome),
    /// What the paging wanted, what the governor made of that and what came of it.
    Paging(PagingTick),
    /// What a person should know.
    Notice(Notice),
    /// What the running herd was asked, and what came of it.
    Control(Controlled),
    /// What a trial says of itself.
    Trial(Trial),
    /// The ledger cannot be written any more, and the run goes on without: only watchers see it.
    LedgerEnded {
        /// What was tried, why it failed, what to do.
        error: String,
    },
    /// How it ended.
    End(Summary),
    /// A kind that a later program wrote.
    Unknown,
}

impl Record {
    /// The record that a line of this kind holds.
    fn read(kind: &str, text: &[u8]) -> serde_json::Result<Self> {
        // One struct per kind, each read in place. A serde enum tagged by kind keeps a line's members until it knows
        // the kind: a ledger then takes half as long again to read, and the reader of every kind is compiled twice.
        #[derive(Deserialize)]
        struct LedgerEnded {
            error: String,
        }
        Ok(match kind {
            "start" => Self::Start(serde_json::from_slice(text)?),
            "snapshot" => Self::Snapshot(serde_json::from_slice(text)?),
            "losses" => Self::Losses(serde_json::from_slice(text)?),
            "placing" => Self::Placing(serde_json::from_slice(text)?),
            "outcome" => Self::Outcome(serde_json::from_slice(text)?),
            "paging" => Self::Paging(serde_json::from_slice(text)?),
            "notice" => Self::Notice(serde_json::from_slice(text)?),
            "control" => Self::Control(serde_json::from_slice(text)?),
            "trial" => Self::Trial(serde_json::from_slice(text)?),
            "ledger-ended" => {
                let LedgerEnded { error } = serde_json::from_slice(text)?;
                Self::LedgerEnded { error }
            }
            "end" => Self::End(serde_json::from_slice(text)?),
            _ => Self::Unknown,
        })
    }
}

/// How a run began; at the head of a ledger's later part, how it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The machine.
    pub topology: Topology,
    /// What could be measured.
    pub signals: Vec<SignalReport>,
    /// The settings, as used.
    pub settings: Settings,
    /// The policy's name.
    pub policy: String,
    /// Where the policy's random numbers started.
    pub seed: u64,
    /// Whether a pager looked after pages at a cadence of its own.
    pub pager: bool,
    /// Whether nothing is decided until it is resumed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
}

impl Start {
    /// Takes in a later request: then it says what holds now.
    pub fn follow(&mut self, controlled: &Controlled) {
        let changed = controlled.changed();
        if let Some(paused) = changed.paused {
            self.paused = paused;
        }
        if let Some(policy) = changed.policy {
            policy.clone_into(&mut self.policy);
        }
        if let Some(settings) = changed.settings {
            self.settings = settings.clone();
            self.seed = settings.seed;
        }
    }
}

/// What the placement wanted, and what the governor made of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placing {
    /// [`Snapshot::sequence`] of the snapshot it is drawn from, which is not recorded where there is too much to
    /// record; for the giving back at the end, that of the last one recorded.
    pub snapshot: u64,
    /// What the placement wanted.
    pub plan: Plan,
    /// What the governor let through.
    pub affinities: Vec<AffinityOrder>,
    /// What it refused; each entry of the plan is in an order or here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// Moves that had made things worse; their orders are among `affinities`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<Undone>,
    /// Threads given to idle nodes; their orders are among `affinities`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stolen: Vec<Stolen>,
    /// False in a dry run.
    pub carried_out: bool,
}

/// What the paging wanted, what the governor made of that and what came of it. Written only if there was any of this.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PagingTick {
    /// Samples since the last recorded tick.
    pub samples: u64,
    /// Of these, samples of accesses that left the core's node.
    pub remote: u64,
    /// Notices of a unit at the TLBs since the last recorded tick.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub notices: u64,
    /// What the paging wanted.
    pub plan: Vec<PageOrder>,
    /// Entries of the plan that wait for bandwidth.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<usize>,
    /// What the governor refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    /// Base pages in the orders it let through, earlier waiting orders included: a window's length, and for a whole
    /// process the pages seen on other nodes. Processes of unknown residency do not count.
    pub ordered_pages: u64,
    /// What became of what it let through, in order; empty in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<PageOutcome>,
    /// False in a dry run.
    pub carried_out: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl PagingTick {
    /// Whether it says nothing worth a record.
    pub(crate) fn is_empty(&self) -> bool {
        self.plan.is_empty()
            && self.refusals.is_empty()
            && self.outcomes.is_empty()
            && self.ordered_pages == 0
    }
}

/// What a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// One or more sentences.
    pub text: String,
}
