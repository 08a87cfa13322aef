//! Which events count instructions, cycles, lines from memory, their origin, and requests to the uncore: one set per
//! kind of machine, the best one first. Data only; [`crate::event_choice`] tries them in order.
//!
//! The sets are files: `data/events/*.toml` are built in, and a user's file of the same form is tried before them
//! ([`EventTable::before`]).
//!
//! ```toml
//! [[set]]
//! name = "Example 3000"
//! vendor = "GenuineIntel"        # as in /proc/cpuinfo; or "AuthenticAMD"
//! family = 6
//! models = [0x2c, [0x8f, 0x91]]  # single ones and ranges
//! # implementer = 0x41           # or an Arm processor
//! # parts = [0xd0c]
//! # pmu = "lab"                  # or wherever sysfs has a PMU of this name
//! # everywhere = true            # or any machine; the last set of a file
//! source = "where the codes are from"
//! lines = [{ name = "llc.miss", event = 0x2e, umask = 0x41 }]  # their sum: lines from memory
//! # prefetches = …               # added to it where it can be opened
//! # instructions = …, cycles = … # the kernel's own when left out
//! # caveat = "what lines miss"
//!
//! [set.split]                    # left out where local and remote cannot be told apart
//! local = { name = "local", event = 0xd3, umask = 0x01 }  # or: both = …, for lines of either kind
//! remote = { name = "remote", event = 0xd3, umask = 0x02 }
//!
//! [set.uncore]                   # the uncore penalty: the first divided by the sum of the others
//! busy_cycles = { name = "busy", event = 0x60, umask = 0x07, cmask = 1, counters = [0] }
//! requests = [{ name = "requests", event = 0xb0, umask = 0x07 }]
//! # missing = "why there is none", remedy = "what would help"
//! ```
//!
//! An event is a code of the processor (`event`, with `umask`, `cmask`, `edge`, `inv`, `config1` as needed), one that
//! the kernel names for all processors (`kernel = "cache-misses"`), or one that a PMU names in sysfs (`pmu = "lab",
//! name = "llc_miss"`). `counters` lists the only ones that can count it, for messages: the kernel knows them itself.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use numaherd_files::{Document, read as files};

use crate::error::HostError;
use crate::perf_errors::Refusal;
use crate::proc::cpuinfo::Processor;

mod kernel;
mod read;
#[cfg(test)]
mod tests;

/// The largest accepted file, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../data/events/", $name, ".toml")))),*]
    };
}

/// Name and text of each built-in file, in the order of trial; a test holds this list and the folder equal.
const FILES: &[(&str, &str)] = embedded!["lab", "intel", "amd", "arm", "generic"];

/// The sets of a built-in file. It is parsed only when no earlier set can be used: parsing all takes longer than the
/// rest of a start.
fn built_in(file: usize) -> &'static [Arc<CounterSet>] {
    static SETS: [OnceLock<Vec<Arc<CounterSet>>>; FILES.len()] =
        [const { OnceLock::new() }; FILES.len()];
    SETS[file].get_or_init(|| {
        let (name, text) = FILES[file];
        let path = format!("data/events/{name}.toml");
        match EventTable::parse(text, Path::new(&path)) {
            Ok(table) => table.own,
            Err(error) => unreachable!("a test reads every one of them: {error}"),
        }
    })
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// One that the kernel names for every machine, or a code of the processor.
    Coded {
        name: String,
        /// `enum perf_type_id`.
        kind: u32,
        config: u64,
        config1: u64,
        /// The only counters that can count it; empty for all.
        counters: Vec<u32>,
    },
    /// One that a PMU names in sysfs.
    Named { pmu: String, event: String },
}

impl Event {
    /// As people write it.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Coded { name, .. } => name.clone(),
            Self::Named { pmu, event } => format!("{pmu}/{event}/"),
        }
    }

    /// The only counters that can count it; empty if any can.
    pub(crate) fn counters(&self) -> &[u32] {
        match self {
            Self::Coded { counters, .. } => counters,
            Self::Named { .. } => &[],
        }
    }
}

/// The maker of the processors of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Of a vendor's family, as x86 numbers its models.
    X86 { vendor: String, family: u32 },
    /// An Arm implementer, who numbers its parts.
    Arm { implementer: u32 },
}

/// Where a set applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AppliesTo {
    /// Where this PMU is in sysfs.
    Pmu(String),
    /// These models or parts of a maker.
    Models {
        maker: Maker,
        models: Vec<RangeInclusive<u32>>,
    },
    /// Everywhere.
    Any,
}

impl AppliesTo {
    /// Whether a processor is of it; a PMU is not asked for.
    pub(crate) fn is(&self, processor: &Processor) -> bool {
        let (maker, models) = match self {
            Self::Pmu(_) => return false,
            Self::Any => return true,
            Self::Models { maker, models } => (maker, models),
        };
        let model = match maker {
            Maker::X86 { vendor, family } => (processor.vendor == *vendor
                && processor.family == *family)
                .then_some(processor.model),
            Maker::Arm { implementer } => {
                (processor.implementer == Some(*implementer)).then_some(processor.part)
            }
        };
        model.is_some_and(|model| models.iter().any(|range| range.contains(&model)))
    }
}

/// What an event of a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Instructions,
    Cycles,
    /// Lines from memory: the sum of all events with this role.
    Lines,
    /// Added to the lines if it can be opened.
    Prefetches,
    Local,
    Remote,
    /// Local and remote lines together.
    Both,
    /// Cycles with at least one request to the uncore outstanding.
    BusyCycles,
    /// Requests to the uncore: the sum of all events with this role.
    Requests,
}

impl Role {
    /// Whether it belongs to the group of the uncore penalty, not to the group that every thread gets.
    pub(crate) fn is_of_uncore(self) -> bool {
        matches!(self, Self::BusyCycles | Self::Requests)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Instructions => "instructions",
            Self::Cycles => "cycles",
            Self::Lines => "lines",
            Self::Prefetches => "prefetches",
            Self::Local => "local lines",
            Self::Remote => "remote lines",
            Self::Both => "local and remote lines",
            Self::BusyCycles => "busy cycles",
            Self::Requests => "requests",
        })
    }
}

/// The events of one kind of machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CounterSet {
    pub(crate) name: String,
    pub(crate) machine: AppliesTo,
    pub(crate) source: String,
    /// Its events, in the order in which they are opened: instructions, lines, prefetches, local or
    /// both, remote, cycles, busy cycles, requests.
    pub(crate) events: Vec<(Role, Event)>,
    /// What the lines miss.
    pub(crate) caveat: Option<String>,
    /// What local and remote miss.
    pub(crate) split_caveat: Option<String>,
    /// What busy cycles and requests miss; or why the uncore penalty cannot be counted.
    pub(crate) uncore: Result<Option<String>, Refusal>,
}

impl CounterSet {
    /// The labels of the events with a role.
    pub(crate) fn labels(&self, role: Role) -> Vec<String> {
        let events = self.events.iter().filter(|(of, _)| *of == role);
        events.map(|(_, event)| event.label()).collect()
    }
}

/// Sets of events by kind of machine, in the order of trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTable {
    /// Those of users' files.
    own: Vec<Arc<CounterSet>>,
    /// Whether the built-in ones follow.
    has_built_in: bool,
}

impl EventTable {
    /// The sets built into Numaherd: every file of `data/events/`.
    pub fn built_in() -> &'static Self {
        static BUILT_IN: EventTable = EventTable {
            own: Vec::new(),
            has_built_in: true,
        };
        &BUILT_IN
    }

    /// Reads a user's file.
    ///
    /// # Errors
    /// As [`EventTable::parse`], and when the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, HostError> {
        Self::parse(&files::text(path, LARGEST_FILE)?, path)
    }

    /// The sets of a file's text; `path` is what errors call the file.
    ///
    /// # Errors
    /// [`HostError::Events`] names the line and says what is wrong with it.
    pub fn parse(text: &str, path: &Path) -> Result<Self, HostError> {
        let file = path.display().to_string();
        let sets = read::sets(Document::new(text, &file))?;
        Ok(Self {
            own: sets.into_iter().map(Arc::new).collect(),
            has_built_in: false,
        })
    }

    /// These sets, and `others` after them.
    #[must_use]
    pub fn before(mut self, others: &Self) -> Self {
        self.own.extend(others.own.iter().cloned());
        self.has_built_in |= others.has_built_in;
        self
    }

    /// The names of the sets, in the order of trial.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets().map(|set| set.name.as_str())
    }

    pub(crate) fn sets(&self) -> impl Iterator<Item = &Arc<CounterSet>> {
        let files = 0..if self.has_built_in { FILES.len() } else { 0 };
        let built_in = files.flat_map(|file| -> &[_] { built_in(file) });
        self.own.iter().chain(built_in)
    }
}

impl Default for EventTable {
    /// The built-in sets.
    fn default() -> Self {
        Self::built_in().clone()
    }
}
