//! A plan: what a policy wants, each decision with its reason and the alternative it beat.

use std::borrow::Cow;
use std::ops::Range;

use numaherd_topology::{CpuId, NodeId};
use serde::{Deserialize, Serialize};

use crate::snapshot::{ProcessId, ThreadId};

numaherd_files::choices! {
    /// How far from its assigned core a thread may run: its affinity scope.
    #[derive(PartialOrd, Ord)]
    pub enum AffinityScope {
        /// To its SMT siblings only.
        Core = "core",
        /// Among the cores that share a last-level cache.
        #[default]
        Domain = "domain",
        /// Within the memory node.
        Node = "node",
    }
}

/// A thread that is to be on another core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Which thread.
    pub thread: ThreadId,
    /// The CPU it was on ([`crate::Thread::place`]).
    pub from: CpuId,
    /// The CPU it is to have.
    pub to: CpuId,
    /// The rule that decided, by its name in the policy (for instance `dino: fill slots`).
    pub rule: Cow<'static, str>,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
    /// What else was considered and why it lost; empty where the rule leaves no choice.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instead_of: String,
}

/// A thread that is to be the kernel's again: it gets its own affinity back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// Which thread.
    pub thread: ThreadId,
    /// The rule that decided, by its name in the policy.
    pub rule: Cow<'static, str>,
    /// Why, in one sentence.
    pub why: String,
}

/// Which pages of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// Everything it has resident.
    All,
    /// `count` base pages from page number `first` (virtual address / page size) on; those that
    /// are not there or not its own are passed over.
    Window {
        /// First page number.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// Memory that can be placed by itself: the pages of a process that all its threads use, or those that
/// one of them uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// Whose it is.
    pub process: ProcessId,
    /// The thread that its pages are moved for: the one that uses them, or any of them.
    pub thread: ThreadId,
    /// Whether all threads of the process use it.
    pub is_shared: bool,
    /// Runs of page numbers; the pages of a run are used alike.
    pub runs: Vec<Range<u64>>,
}

/// Pages that are to be on another node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageOrder {
    /// Whose pages.
    pub process: ProcessId,
    /// For which thread.
    pub thread: ThreadId,
    /// Which.
    pub pages: Pages,
    /// Where to.
    pub to: NodeId,
    /// The rule that decided, by its name in the policy.
    pub rule: Cow<'static, str>,
    /// Why, in one sentence with the figures that counted.
    pub why: String,
}

/// What a policy wants done. Threads and pages that it does not name stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Threads to move; each thread at most once.
    pub placements: Vec<Placement>,
    /// Threads to give back to the kernel; none of them is among the placements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<Release>,
    /// Pages to move.
    pub pages: Vec<PageOrder>,
}

impl Plan {
    /// Whether it asks for nothing.
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty() && self.releases.is_empty() && self.pages.is_empty()
    }
}
