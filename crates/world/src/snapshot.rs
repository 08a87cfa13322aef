//! A snapshot: what a world saw over one interval of the placement cadence.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, NodeId, NodeSet};
use serde::{Deserialize, Serialize};

use crate::machine::{Tag, VirtualMachine};
use crate::notice::Sharing;
use crate::unmanaged::Unmanaged;

/// A thread. The number alone is not enough: the kernel uses it again after the thread has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadId {
    /// The kernel's thread number.
    pub tid: u32,
    /// When it started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub born: u64,
}

/// A process. Its start distinguishes it from later ones of the same number.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ProcessId {
    /// The kernel's process number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub born: u64,
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.tid)
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)
    }
}

/// What one thread did in the interval, by hardware counters.
///
/// Where the counters were shared with others (multiplexed), the counts are scaled up to the whole
/// interval and `counted_share` says how much of it was really counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions retired.
    pub instructions: u64,
    /// Core cycles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Cache lines fetched from memory, prefetches included where the machine can tell.
    pub lines: u64,
    /// Of those, lines from the node of the core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<u64>,
    /// Of those, lines from other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<u64>,
    /// Core cycles in which at least one request to the uncore was outstanding (BRM §3.1: t').
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncore_busy_cycles: Option<u64>,
    /// Requests to the uncore (BRM §3.1: λ).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncore_requests: Option<u64>,
    /// Share of the thread's running time in which the counters counted, 0 to 1.
    pub counted_share: f64,
}

impl Counts {
    /// Lines fetched from memory per 1000 instructions; `None` when nothing ran.
    pub fn miss_rate(&self) -> Option<f64> {
        (self.instructions > 0).then(|| self.lines as f64 * 1000.0 / self.instructions as f64)
    }

    /// Share of lines that came from the core's own node; `None` where it is not known.
    pub fn local_access_ratio(&self) -> Option<f64> {
        let (local, remote) = (self.local?, self.remote?);
        let all = local.saturating_add(remote);
        (all > 0).then(|| local as f64 / all as f64)
    }

    /// The uncore penalty in core cycles per request, P = t' / λ (BRM §3.1); `None` where it is not
    /// measured or nothing was requested.
    pub fn uncore_penalty(&self) -> Option<f64> {
        let (busy, requests) = (self.uncore_busy_cycles?, self.uncore_requests?);
        (requests > 0).then(|| busy as f64 / requests as f64)
    }
}

/// A thread as it was in the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Which thread.
    pub id: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// The kernel's short name for it (`comm`).
    pub name: String,
    /// The CPU it last ran on.
    pub cpu: CpuId,
    /// The core that was last given to it by order, if any; it may have strayed within its mask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned: Option<CpuId>,
    /// Its affinity mask as it is now.
    pub affinity: Arc<CpuSet>,
    /// The CPUs that its cgroup's cpuset lets it have: no order may go beyond them.
    pub cpuset: Arc<CpuSet>,
    /// Share of one CPU that it used in the interval, 0 to 1.
    pub cpu_share: f64,
    /// Share of the interval in which it could have run but waited for a CPU, 0 to 1; 0 where that is
    /// not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wait_share: f64,
    /// Who says that it is, or is not, sensitive to the node it runs on; `None` where nothing says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<Tag>,
    /// Counters, where the machine has them and the thread ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Why it must be left alone; `None` for a thread that may be steered. Policies count such threads
    /// as being there but never place them.
    #[serde(default, alias = "hands_off", skip_serializing_if = "Option::is_none")]
    pub unmanaged: Option<Unmanaged>,
}

fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

fn is_none(number: &u64) -> bool {
    *number == 0
}

impl Thread {
    /// The CPU that the thread is on for a policy's purposes: the one given to it, or else the one
    /// it last ran on.
    pub fn place(&self) -> CpuId {
        self.assigned.unwrap_or(self.cpu)
    }
}

/// What holds a page: a process alone, memory that several have, or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// A process's own: heap, stacks, anonymous memory, and its copies of a file's pages that it wrote to.
    Private,
    /// Made to be shared: anonymous `MAP_SHARED`, System V, POSIX (`/dev/shm`), `memfd`, shared huge pages. And what a fork
    /// has left to parent and children, until one of them writes to it.
    Shared,
    /// Pages of files: programs, libraries, and data that are mapped.
    File,
}

impl MemoryKind {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Private, Self::Shared, Self::File];
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::File => "file",
        })
    }
}

/// On which nodes a process's pages are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    /// Resident base pages by node, ascending by node; nodes without any are left out.
    pub pages: Vec<(NodeId, u64)>,
    /// Those of them that are not private; `None` where kinds were not told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<MemoryKinds>,
}

/// The pages of a process that are not private, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryKinds {
    /// In shared memory.
    #[serde(default, skip_serializing_if = "Mapped::is_empty")]
    pub shared: Mapped,
    /// Of files.
    #[serde(default, skip_serializing_if = "Mapped::is_empty")]
    pub file: Mapped,
}

/// Pages that more than one process may have mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapped {
    /// Base pages by node, as [`Residency::pages`].
    pub pages: Vec<(NodeId, u64)>,
    /// Whether any of them is mapped more than once, like pages that other processes map too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// If so, the pages by node in mappings without any such page, as [`Residency::pages`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alone: Vec<(NodeId, u64)>,
    /// How many of the pages are those of the process's program and its libraries.
    #[serde(default, skip_serializing_if = "is_none")]
    pub programs: u64,
}

impl Mapped {
    /// The pages on a node that are in mappings that other processes have, too.
    pub fn of_others_on(&self, node: NodeId) -> u64 {
        match self.again {
            true => on(&self.pages, node).saturating_sub(on(&self.alone, node)),
            false => 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

fn on(pages: &[(NodeId, u64)], node: NodeId) -> u64 {
    let mut found = pages.iter().filter(|&&(on, _)| on == node);
    found.next().map_or(0, |&(_, pages)| pages)
}

impl Residency {
    /// The pages of a kind by node, as [`Self::pages`]; `None` where kinds were not told apart.
    pub fn of_kind(&self, kind: MemoryKind) -> Option<Self> {
        let MemoryKinds { shared, file } = self.kinds.as_ref()?;
        let pages = match kind {
            MemoryKind::Private => {
                let others = |node| on(&shared.pages, node).saturating_add(on(&file.pages, node));
                let own =
                    |&(node, pages): &(NodeId, u64)| (node, pages.saturating_sub(others(node)));
                let own = self.pages.iter().map(own);
                own.filter(|&(_, pages)| pages > 0).collect()
            }
            MemoryKind::Shared => shared.pages.clone(),
            MemoryKind::File => file.pages.clone(),
        };
        Some(Self { pages, kinds: None })
    }

    /// All resident pages.
    pub fn total(&self) -> u64 {
        let pages = self.pages.iter().map(|&(_, pages)| pages);
        pages.fold(0, u64::saturating_add)
    }

    /// The pages on one node.
    pub fn on(&self, node: NodeId) -> u64 {
        on(&self.pages, node)
    }

    /// The node that holds most of the pages; the lowest of several.
    pub fn home(&self) -> Option<NodeId> {
        let most = self
            .pages
            .iter()
            .map(|&(_, pages)| pages)
            .max()
            .filter(|&pages| pages > 0)?;
        self.pages
            .iter()
            .find(|&&(_, pages)| pages == most)
            .map(|&(node, _)| node)
    }
}

/// A mapping of private memory that can be moved, of at least a block ([`crate::BLOCK_PAGES`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The numbers of its base pages, resident or not.
    pub pages: Range<u64>,
    /// Resident base pages by node, ascending by node.
    pub on: Vec<(NodeId, u64)>,
}

/// A process as it was at the end of the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Which process.
    pub id: ProcessId,
    /// The name of its first thread.
    pub name: String,
    /// The nodes that its cgroup's cpuset lets it have memory on.
    pub allowed_nodes: Arc<NodeSet>,
    /// Where its pages are, where that could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residency: Option<Residency>,
    /// The memory policy that its user gave its memory or a part of it, as `/proc/PID/numa_maps` has it (`interleave:0-3`,
    /// `bind:1`): its pages are left where they are. `None` for the kernel's own rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_policy: Option<Arc<str>>,
    /// How much its threads shared pages in the interval, where that is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Arc<Sharing>>,
    /// Where in its address space it has much private memory; only on machines with memory apart from CPUs. Ledgers leave
    /// it out.
    #[serde(skip)]
    pub extents: Arc<[Extent]>,
    /// The virtual machine that it runs, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Arc<VirtualMachine>>,
    /// The group of the configuration that it belongs to, by name; `None` for the rest. Groups are
    /// steered each by a policy of its own, or by none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Arc<str>>,
}

/// A node as it was at the end of the interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Which node.
    pub id: NodeId,
    /// Memory in bytes.
    pub total_bytes: u64,
    /// Free memory in bytes, as the kernel counts it.
    pub free_bytes: u64,
    /// Memory in bytes of files that have not been used for long, which the kernel gives up before it is short; 0 where
    /// that is not known.
    #[serde(default, skip_serializing_if = "is_none")]
    pub old_file_bytes: u64,
    /// How many of its CPUs all threads of the machine kept busy on average, including threads that are not watched; `None`
    /// where all are watched, or that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_cpus: Option<f64>,
}

/// What a world saw over one interval. Rates and shares are of this interval alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Counts up by one with each snapshot of a run, from 0.
    pub sequence: u64,
    /// End of the interval, in ns since the world began.
    pub time_ns: u64,
    /// Length of the interval in ns.
    pub interval_ns: u64,
    /// Bytes of a base page.
    pub page_bytes: u64,
    /// The CPUs that are online now.
    pub online: CpuSet,
    /// The threads, ascending by [`ThreadId`].
    pub threads: Vec<Thread>,
    /// Their processes, ascending by [`ProcessId`].
    pub processes: Vec<Process>,
    /// The nodes, ascending.
    pub nodes: Vec<NodeState>,
    /// What could not be seen in this interval though it usually can, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

impl Snapshot {
    /// The thread of that id.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        let at = self
            .threads
            .binary_search_by_key(&id, |thread| thread.id)
            .ok()?;
        Some(&self.threads[at])
    }

    /// The process of that id.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        let at = self
            .processes
            .binary_search_by_key(&id, |process| process.id)
            .ok()?;
        Some(&self.processes[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_gone_mad_are_held_at_the_end_of_their_range() {
        let counts = Counts {
            local: Some(u64::MAX),
            remote: Some(u64::MAX),
            ..Counts::default()
        };
        assert_eq!(counts.local_access_ratio(), Some(1.0));
        let residency = Residency {
            pages: vec![(NodeId(0), u64::MAX), (NodeId(1), 1)],
            kinds: None,
        };
        assert_eq!(residency.total(), u64::MAX);
    }

    #[test]
    fn what_is_neither_shared_nor_of_a_file_is_private() {
        let mapped = |pages: &[(NodeId, u64)]| Mapped {
            pages: pages.to_vec(),
            again: true,
            ..Mapped::default()
        };
        let mut residency = Residency {
            pages: vec![(NodeId(0), 10), (NodeId(1), 5), (NodeId(3), 4)],
            kinds: None,
        };
        assert_eq!(
            residency.of_kind(MemoryKind::Private),
            None,
            "not told apart"
        );
        residency.kinds = Some(MemoryKinds {
            shared: mapped(&[(NodeId(0), 6), (NodeId(3), 4)]),
            // More than there are: a ledger may say anything.
            file: mapped(&[(NodeId(1), 7)]),
        });
        let of = |kind| residency.of_kind(kind).unwrap().pages;
        assert_eq!(of(MemoryKind::Private), [(NodeId(0), 4)]);
        assert_eq!(of(MemoryKind::Shared), [(NodeId(0), 6), (NodeId(3), 4)]);
        assert_eq!(of(MemoryKind::File), [(NodeId(1), 7)]);
    }

    #[test]
    fn a_ledger_that_does_not_tell_kinds_apart_is_read() {
        let older: Residency = serde_json::from_str("{\"pages\":[[0,7]]}").unwrap();
        assert_eq!(older.kinds, None);
        let newer: Residency = serde_json::from_str("{\"pages\":[[0,7]],\"kinds\":{}}").unwrap();
        assert_eq!(newer.of_kind(MemoryKind::Private).unwrap().total(), 7);
    }
}
