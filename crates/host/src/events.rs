//! Which events count instructions, cycles, lines from memory, where those came from, and requests
//! to the uncore: one set per kind of machine, the best one first. Data only; [`crate::event_choice`]
//! tries them in order.
//!
//! The sets are files: `data/events/*.toml` are built in, and a user's own file of the same form is
//! tried before them ([`EventTable::before`]).
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
//! An event is a code of the processor (`event`, and where they are needed `umask`, `cmask`, `edge`,
//! `inv`, `config1`), one that the kernel names for all processors (`kernel = "cache-misses"`), or
//! one that a PMU names in sysfs (`pmu = "lab", name = "llc_miss"`). `counters` are the only ones
//! that can count it, for messages: the kernel knows them itself.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use numaherd_files::{Document, read as files};

use crate::error::HostError;
use crate::proc::cpuinfo::Processor;

mod kernel;
mod read;
#[cfg(test)]
mod tests;

/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 20;

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../data/events/", $name, ".toml")))),*]
    };
}

/// Name and text of each built-in file, in the order in which they are tried; a test holds this list
/// and the folder equal.
const FILES: &[(&str, &str)] = embedded!["lab", "intel", "amd", "arm", "generic"];

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// One that the kernel names for every machine, or a code of the processor.
    Coded {
        name: String,
        /// `enum perf_type_id`.
        kind: u32,
        config: u64,
        config1: u64,
        /// The only counters that can count it; all where empty.
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

    /// The only counters that can count it; empty where any can.
    pub(crate) fn counters(&self) -> &[u32] {
        match self {
            Self::Coded { counters, .. } => counters,
            Self::Named { .. } => &[],
        }
    }
}

/// How lines are told apart by where they came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// An event for each.
    Each { local: Event, remote: Event },
    /// An event for both together and one for the remote ones.
    All { both: Event, remote: Event },
}

impl Split {
    /// Its events: local or both, then remote.
    pub(crate) fn events(&self) -> [&Event; 2] {
        match self {
            Self::Each { local, remote } => [local, remote],
            Self::All { both, remote } => [both, remote],
        }
    }
}

/// What the uncore penalty is counted with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Uncore {
    /// These events, together in one group.
    Counted {
        /// Cycles with at least one request outstanding.
        busy_cycles: Event,
        /// Requests: the sum of these.
        requests: Vec<Event>,
        /// How far the two are what they should be.
        caveat: Option<String>,
    },
    /// Nothing.
    Missing { reason: String, remedy: String },
}

/// Where a set applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Where this PMU is in sysfs.
    Pmu(String),
    /// These models of a vendor's family.
    Models {
        vendor: String,
        family: u32,
        models: Vec<RangeInclusive<u32>>,
    },
    /// These parts of an Arm implementer.
    Parts { implementer: u32, parts: Vec<u32> },
    /// Everywhere.
    Any,
}

impl Machine {
    /// Whether a processor is of it; a PMU is not asked for.
    pub(crate) fn is(&self, processor: &Processor) -> bool {
        match self {
            Self::Pmu(_) => false,
            Self::Models {
                vendor,
                family,
                models,
            } => {
                processor.vendor == *vendor
                    && processor.family == *family
                    && models.iter().any(|range| range.contains(&processor.model))
            }
            Self::Parts { implementer, parts } => {
                processor.implementer == Some(*implementer) && parts.contains(&processor.part)
            }
            Self::Any => true,
        }
    }
}

/// What an event of a set is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Instructions,
    Cycles,
    Lines,
    Prefetches,
    Local,
    Remote,
    Both,
    BusyCycles,
    Requests,
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
    pub(crate) machine: Machine,
    pub(crate) source: String,
    pub(crate) instructions: Event,
    pub(crate) cycles: Event,
    /// Lines from memory: the sum of these.
    pub(crate) lines: Vec<Event>,
    /// Added to the sum where it can be opened.
    pub(crate) prefetches: Option<Event>,
    pub(crate) split: Option<Split>,
    /// What the lines miss.
    pub(crate) caveat: Option<String>,
    /// What local and remote miss.
    pub(crate) split_caveat: Option<String>,
    pub(crate) uncore: Uncore,
}

impl CounterSet {
    /// Its events and what each is for.
    pub(crate) fn events(&self) -> Vec<(Role, &Event)> {
        let mut all = vec![(Role::Instructions, &self.instructions)];
        all.extend(self.lines.iter().map(|event| (Role::Lines, event)));
        all.extend(
            self.prefetches
                .iter()
                .map(|event| (Role::Prefetches, event)),
        );
        match &self.split {
            Some(Split::Each { local, remote }) => {
                all.extend([(Role::Local, local), (Role::Remote, remote)]);
            }
            Some(Split::All { both, remote }) => {
                all.extend([(Role::Both, both), (Role::Remote, remote)]);
            }
            None => {}
        }
        all.push((Role::Cycles, &self.cycles));
        if let Uncore::Counted {
            busy_cycles,
            requests,
            ..
        } = &self.uncore
        {
            all.push((Role::BusyCycles, busy_cycles));
            all.extend(requests.iter().map(|event| (Role::Requests, event)));
        }
        all
    }
}

/// Sets of events by kind of machine, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTable {
    sets: Vec<Arc<CounterSet>>,
}

impl EventTable {
    /// The sets that Numaherd carries with it: every file of `data/events/`.
    pub fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<EventTable> = LazyLock::new(|| {
            let files = FILES.iter().map(|(name, text)| {
                let path = format!("data/events/{name}.toml");
                match EventTable::parse(text, Path::new(&path)) {
                    Ok(table) => table.sets,
                    Err(error) => unreachable!("a test reads every one of them: {error}"),
                }
            });
            EventTable {
                sets: files.flatten().collect(),
            }
        });
        &BUILT_IN
    }

    /// Reads a user's file.
    ///
    /// # Errors
    /// As [`EventTable::parse`], and where the file cannot be read.
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
            sets: sets.into_iter().map(Arc::new).collect(),
        })
    }

    /// These sets, and `others` after them.
    #[must_use]
    pub fn before(mut self, others: &Self) -> Self {
        self.sets.extend(others.sets.iter().cloned());
        self
    }

    /// The names of the sets, in the order in which they are tried.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sets.iter().map(|set| set.name.as_str())
    }

    pub(crate) fn sets(&self) -> &[Arc<CounterSet>] {
        &self.sets
    }
}

impl Default for EventTable {
    /// The built-in sets.
    fn default() -> Self {
        Self::built_in().clone()
    }
}
