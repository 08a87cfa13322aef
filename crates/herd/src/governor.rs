//! The governor: everything that keeps users safe, here and nowhere else.
//!
//! It stands between plan and world and has two halves, because on a live machine placement and paging run in separate
//! threads: [`ThreadGovernor`] and [`PageGovernor`]. Each entry of a plan passes a row of guards, each one small
//! function; the first that objects refuses it, with a sentence that is recorded. Every entry is either ordered or
//! refused, exactly once.
//!
//! All time is the world's own (of snapshots, samples and intervals): the governor has no clock, and
//! decides the same on a model, a recording and a live machine.
//!
//! | guard | refuses |
//! |---|---|
//! | unknown-thread, unknown-process, unknown-cpu, unknown-node | what the snapshot lacks (not selected, ended) or the machine lacks |
//! | duplicate | a second order for the same thread; pages ordered to two nodes at once |
//! | hands-off | threads that the world marks as not to be touched: kernel threads, real-time ones |
//! | foreign-affinity | threads with an affinity that is not ours ([`ownership`]) |
//! | offline, cpuset, limits | CPUs that are offline, beyond the cpuset, beyond the user's limits; nodes likewise |
//! | unchanged | what is already so |
//! | bounce | what goes to and fro ([`bounce`]) |
//! | worse | a thread whose move was just undone ([`worse`]) |
//! | rate, bandwidth | moves and page traffic beyond the limits ([`rate`]) |
//! | vm-rate, vm-bandwidth | the same beyond the limits of one virtual machine |
//! | full-node | pages for a node that is nearly full |
//! | superseded | a waiting order for pages of a process when a later one comes, or another policy takes over |
//! | journal | a first change that could not be written down beforehand |
//!
//! It does two things of its own accord, recorded with their reasons: it undoes a move that made things worse
//! ([`worse`]), and gives a thread that waits where it is held to an idle node (the suspended steal of BRM §4.4).

pub mod bounce;
pub mod ownership;
mod pages;
pub mod rate;
mod threads;
pub mod worse;

use std::fmt;

use numaherd_topology::CpuId;
use numaherd_world::{ProcessId, ThreadId};
use serde::{Deserialize, Serialize};

pub use pages::{GovernedPages, PageGovernor};
pub use threads::{Cause, Change as ThreadChange, Done, Governed, ThreadGovernor};

/// Who refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Guard {
    /// The thread is not in the snapshot.
    UnknownThread,
    /// The process is not in the snapshot.
    UnknownProcess,
    /// The machine has no such CPU.
    UnknownCpu,
    /// The machine has no such node, or it has no memory.
    UnknownNode,
    /// The plan names it twice.
    Duplicate,
    /// The world marks the thread as not to be touched.
    HandsOff,
    /// The thread has an affinity that is not ours.
    ForeignAffinity,
    /// The CPU is offline.
    Offline,
    /// The CPU or node is beyond the cpuset.
    Cpuset,
    /// The CPU or node is beyond the user's limits.
    Limits,
    /// It is already so.
    Unchanged,
    /// It goes to and fro.
    Bounce,
    /// A move of it was just undone.
    Worse,
    /// Too many thread moves.
    Rate,
    /// Too much page traffic.
    Bandwidth,
    /// Too many moves of one virtual machine's threads.
    #[serde(alias = "machine-rate")]
    VmRate,
    /// Too much page traffic of one virtual machine.
    #[serde(alias = "machine-bandwidth")]
    VmBandwidth,
    /// The target node is nearly full.
    FullNode,
    /// A later order for the same pages has come, or another policy has taken over.
    Superseded,
    /// The affinity as found could not be written down.
    Journal,
}

impl Guard {
    /// Whether it refuses only until there is bandwidth again.
    pub(crate) fn is_for_bandwidth(self) -> bool {
        matches!(self, Self::Bandwidth | Self::VmBandwidth)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownThread => "unknown thread",
            Self::UnknownProcess => "unknown process",
            Self::UnknownCpu => "unknown CPU",
            Self::UnknownNode => "unknown node",
            Self::Duplicate => "duplicate",
            Self::HandsOff => "hands off",
            Self::ForeignAffinity => "foreign affinity",
            Self::Offline => "offline",
            Self::Cpuset => "cpuset",
            Self::Limits => "limits",
            Self::Unchanged => "unchanged",
            Self::Bounce => "bounce",
            Self::Worse => "worse",
            Self::Rate => "rate",
            Self::Bandwidth => "bandwidth",
            Self::VmRate => "virtual machine's rate",
            Self::VmBandwidth => "virtual machine's bandwidth",
            Self::FullNode => "full node",
            Self::Superseded => "superseded",
            Self::Journal => "journal",
        })
    }
}

/// An entry of a plan that was not let through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which entry: its place in the plan's list of placements, followed by that of releases, or in the
    /// list of page orders; `None` for an order that waited and came from an earlier plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<usize>,
    /// The thread that was to move, or for which pages were to.
    pub thread: ThreadId,
    /// Who refused.
    pub guard: Guard,
    /// Why, in one sentence.
    pub why: String,
}

/// A thread that is put back where it was, because its move had made things worse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undone {
    /// Which thread.
    pub thread: ThreadId,
    /// The core it is taken from.
    pub from: CpuId,
    /// The core that it had before; `None` when it was the kernel's to place.
    pub to: Option<CpuId>,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
}

/// A thread that is given to an idle node, because it has to wait where it is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// Which thread.
    pub thread: ThreadId,
    /// The core that it had been given.
    pub from: CpuId,
    /// The core on the idle node.
    pub to: CpuId,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
}

/// A guard's objection: who and why.
pub(crate) type Objection = (Guard, String);

/// What one guard says.
pub(crate) type Verdict = Result<(), Objection>;

/// Objects unless something holds.
fn unless(holds: bool, guard: Guard, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err((guard, why())) }
}

/// How people are shown a thread: number, process and name.
fn shown(thread: ThreadId, process: ProcessId, name: &str) -> String {
    if thread.tid == process.pid {
        format!("{thread} ({name})")
    } else {
        format!("{thread} ({name}, {process})")
    }
}
