//! Orders: what the governor lets through; and outcomes: what became of them, verified.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, NodeId};
use serde::{Deserialize, Serialize};

use crate::plan::{PageOrder, Pages};
use crate::snapshot::{ProcessId, ThreadId};

/// A thread's new affinity mask.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AffinityOrder {
    /// Which thread.
    pub thread: ThreadId,
    /// The core that the plan named, which becomes [`crate::Thread::assigned`]; `None` gives the
    /// thread back to the kernel (restore).
    pub core: Option<CpuId>,
    /// The CPUs it may run on from now on.
    pub cpus: Arc<CpuSet>,
}

/// What a world is to carry out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Orders {
    /// Masks to set.
    pub affinities: Vec<AffinityOrder>,
    /// Pages to move, in batches that keep within the pause target.
    pub pages: Vec<PageOrder>,
}

/// What became of one affinity order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum AffinityResult {
    /// Set, and read back equal.
    Done,
    /// The thread has ended (or its number belongs to another thread now); nothing was touched.
    Gone,
    /// The kernel keeps it to fewer CPUs than ordered (its cpuset has changed).
    Narrowed {
        /// The mask that holds now.
        now: CpuSet,
    },
    /// The kernel refused.
    Failed {
        /// What was tried, why it failed, what to do.
        error: String,
    },
}

/// What became of one affinity order, with its thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffinityOutcome {
    /// Which thread.
    pub thread: ThreadId,
    /// What became of it.
    #[serde(flatten)]
    pub result: AffinityResult,
}

/// Why a page is not where it was ordered to be: the kernel's status for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageFailure {
    /// Not resident (`ENOENT`): never touched, swapped out, or unmapped.
    NotThere,
    /// Shared with other processes (`EACCES`): moving it would touch what was not selected.
    Shared,
    /// In use just then: by the kernel (`EBUSY`), or by its program where only unused pages were to move.
    Busy,
    /// The target node is full (`ENOMEM`).
    NodeFull,
    /// The zero page or a mapping of no memory (`EFAULT`), or a device's (`EIO`, `EINVAL`).
    Unmovable,
    /// Any other status.
    Other,
}

/// What became of one page order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageOutcome {
    /// Whose pages.
    pub process: ProcessId,
    /// For which thread.
    pub thread: ThreadId,
    /// Which.
    pub pages: Pages,
    /// Where to.
    pub to: NodeId,
    /// Base pages that were elsewhere and are on `to` now, as read back.
    pub moved: u64,
    /// Base pages that were there already.
    pub already_there: u64,
    /// Base pages that are not there, by the kernel's status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<PageFailure, u64>,
    /// Base pages that were not tried (cancelled, process gone, budget used up).
    #[serde(default)]
    pub not_tried: u64,
    /// Time the calls took in ns.
    pub took_ns: u64,
    /// Longest single batch in ns: the pause a thread can have seen.
    pub longest_batch_ns: u64,
    /// What stopped the order, if something did: what was tried, why it failed, what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl PageOutcome {
    /// The outcome of an order before anything is done about it.
    pub fn begun(order: &PageOrder) -> Self {
        Self {
            process: order.process,
            thread: order.thread,
            pages: order.pages,
            to: order.to,
            moved: 0,
            already_there: 0,
            failed: BTreeMap::new(),
            not_tried: 0,
            took_ns: 0,
            longest_batch_ns: 0,
            error: None,
        }
    }

    /// The outcome of an order that is not carried out, and why: none of the pages that it names is
    /// tried.
    pub fn not_tried(order: &PageOrder, why: String) -> Self {
        Self {
            not_tried: match order.pages {
                Pages::Window { count, .. } => count,
                Pages::All | Pages::OfKind { .. } => 0,
            },
            error: Some(why),
            ..Self::begun(order)
        }
    }
}

/// What became of orders.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// In the order of [`Orders::affinities`].
    pub affinities: Vec<AffinityOutcome>,
    /// In the order of [`Orders::pages`].
    pub pages: Vec<PageOutcome>,
}
