//! What a herd and its machine are like now, folded from ledger lines alone.
//!
//! A [`Status`] takes in a run line by line ([`Status::fold`]) and holds what there is to say of it at
//! that moment: the latest interval by node, process and thread, the latest decisions, and sums since
//! the start. The live page, the metrics and `ctl status` are drawn from it; nothing asks the
//! loop. Its memory is bounded by what the latest snapshot holds, however long the run: of threads and
//! processes that have ended nothing is kept but their part in the sums.
//!
//! Whoever feeds it may have had to drop lines ([`Status::lost`]): then sums are too small for good, and
//! what is *now* is marked incomplete until the next snapshot.
//!
//! Figures that were not measured are `None`. All times are the machine's own, in ns from when it began
//! to be watched; rates and shares are of the latest interval.

mod fold;
mod lateness;
mod text;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use numaherd_herd::ledger::{Placing, Start};
use numaherd_herd::{Ending, Settings};
use numaherd_policy::classes::Class;
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{ProcessId, ThreadId};
use serde::Serialize;

use crate::dealt::Dealt;
use crate::deeds::Did;
use crate::guests::Guest;
use crate::totals::Totals;
pub use lateness::{LATENESS_BOUNDS_S, Lateness};
pub use text::text;

/// Most decisions that are kept, and most notices.
pub const MOST_KEPT: usize = 50;

/// Most rules that are told apart; those beyond are one, [`OTHER_RULES`].
pub const MOST_RULES: usize = 64;

/// The name under which rules are counted that there is no room for.
pub const OTHER_RULES: &str = "other rules";

/// Most groups of the configuration that are told apart; those beyond are one, [`OTHER_GROUPS`].
pub const MOST_GROUPS: usize = 64;

/// The name under which groups are shown that there is no room for.
pub const OTHER_GROUPS: &str = "other groups";

/// The name under which processes are shown that belong to no group.
pub const NO_GROUP: &str = "no group";

/// What a herd and its machine are like now.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// What it runs on; `None` before the first line.
    pub machine: Option<Machine>,
    /// The policy that decides now.
    pub policy: String,
    /// Whether nothing is carried out.
    pub dry_run: bool,
    /// Whether the loop was told to decide and carry out nothing for now.
    pub paused: bool,
    /// Why it ended, once it has.
    pub ended: Option<Ending>,
    /// Whether all that is shown as now is: not so before the first snapshot, nor since lines were lost.
    pub is_complete: bool,
    /// End of the latest interval.
    pub time_ns: u64,
    /// Length of the latest interval, or of the several that were recorded as one.
    pub interval_ns: u64,
    /// How often threads are to be placed.
    pub cadence_ns: Option<u64>,
    /// How late the loop's intervals were.
    pub lateness: Lateness,
    /// The latest time that anything was decided for threads.
    pub last_placing: Option<LastPlacing>,
    /// The whole machine in the latest interval.
    pub now: Now,
    /// The nodes that are online, ascending.
    pub nodes: Vec<NodeStatus>,
    /// The processes of the latest snapshot, ascending.
    pub processes: Vec<ProcessStatus>,
    /// The threads of the latest snapshot, ascending; too many to be written with the rest.
    #[serde(skip)]
    pub threads: Vec<ThreadStatus>,
    /// The latest decisions, the latest last; at most [`MOST_KEPT`].
    pub decisions: VecDeque<Decision>,
    /// What a person should know, the latest last; at most [`MOST_KEPT`].
    pub notices: VecDeque<Said>,
    /// What could not be seen in the latest interval though it usually can.
    pub gaps: Vec<String>,
    /// Sums since the start, or since the first line that was taken in.
    pub totals: Totals,
    /// Sums that [`Totals`] does not have.
    pub more: MoreTotals,
    #[serde(skip)]
    fold: Fold,
}

/// What is needed to take in the next line.
#[derive(Clone, Debug, Default)]
struct Fold {
    topology: Option<Arc<Topology>>,
    settings: Settings,
    line_bytes: Option<u64>,
    dealt: Option<Dealt>,
    /// A placing whose outcome may be the next line.
    pending: Option<(u64, Placing)>,
    /// Sequence of the latest snapshot, and whether no line was lost since.
    sequence: Option<u64>,
    is_unbroken: bool,
    page_bytes: u64,
    threads: BTreeMap<ThreadId, Kept>,
    processes: BTreeMap<ProcessId, Kept>,
}

/// What is kept of a thread or process over intervals, while it lives.
#[derive(Clone, Debug, Default)]
struct Kept {
    moves: u64,
    pages_moved: u64,
    last: Option<Arc<Decision>>,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its name, as its topology has it.
    pub name: String,
    /// Nodes that are online.
    pub nodes: usize,
    /// CPUs that are online.
    pub cpus: usize,
}

/// What was made of a plan, the latest that wanted anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LastPlacing {
    /// When.
    pub time_ns: u64,
    /// Threads that the policy named.
    pub wanted: u64,
    /// Entries refused.
    pub refused: u64,
    /// Threads that had to leave their CPU.
    pub moved: u64,
}

/// Figures of the whole machine in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Now {
    /// Threads seen.
    pub threads: u64,
    /// Of these, threads that must be left alone.
    pub hands_off: u64,
    /// CPUs in use by the threads seen.
    pub cpus_used: f64,
    /// Share of lines that came from the core's own node.
    pub local_access_ratio: Option<f64>,
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Uncore penalty in cycles per request.
    pub uncore_penalty: Option<f64>,
    /// Imbalance of the memory controllers: standard deviation of the lines served, as a share of
    /// their mean.
    pub controller_imbalance: Option<f64>,
}

/// A node in the latest interval, with sums since the start.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Which node.
    pub id: NodeId,
    /// CPUs that are online.
    pub cpus: u64,
    /// CPUs in use by the threads seen.
    pub cpus_used: f64,
    /// Threads that last ran there.
    pub threads: u64,
    /// Memory in bytes; `None` for a node without memory, or one that was not seen.
    pub memory_bytes: Option<u64>,
    /// Free memory in bytes, as the kernel counts it.
    pub free_bytes: Option<u64>,
    /// Base pages that the processes seen have there.
    pub pages: u64,
    /// Of the lines that its cores fetched, the share from its own memory.
    pub local_access_ratio: Option<f64>,
    /// Lines per second that its cores fetched.
    pub fetched_per_s: Option<f64>,
    /// Lines per second that its memory controller served. On machines of more than two nodes lines
    /// from other nodes are dealt out by where the process's pages are: an estimate.
    pub served_per_s: Option<f64>,
    /// What that is of the controller's bandwidth, where the machine's is known.
    pub controller_load: Option<f64>,
    /// Sums since the start.
    pub sums: NodeSums,
}

/// What a node did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NodeSums {
    /// Seconds of CPU time of the threads seen there.
    pub cpu_s: f64,
    /// Lines that its cores fetched, where counted.
    pub lines: f64,
    /// Of the lines whose node was counted, those from its own memory.
    pub local_lines: f64,
    /// Of the lines whose node was counted, those from other nodes.
    pub remote_lines: f64,
    /// Lines that its controller served, as [`NodeStatus::served_per_s`].
    pub served_lines: f64,
}

/// A process in the latest interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessStatus {
    /// Which process.
    pub id: ProcessId,
    /// The name of its first thread.
    pub name: String,
    /// The group of the configuration that it belongs to.
    pub group: Option<Arc<str>>,
    /// The virtual machine that it runs, where it does.
    pub guest: Option<Guest>,
    /// Threads seen.
    pub threads: u64,
    /// Of these, threads that must be left alone.
    pub hands_off: u64,
    /// How many of its threads last ran on each node, ascending, nodes without any left out.
    pub threads_on: Vec<(NodeId, u64)>,
    /// Its base pages by node, where that could be read.
    pub pages_on: Option<Vec<(NodeId, u64)>>,
    /// The node that holds most of its pages.
    pub home: Option<NodeId>,
    /// Its class by DINO's own borders and its miss rate in this interval, without the votes by which
    /// a policy changes a class.
    pub class: Option<Class>,
    /// CPUs in use by its threads.
    pub cpus_used: f64,
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Share of lines that came from the core's own node.
    pub local_access_ratio: Option<f64>,
    /// Times that one of its threads had to leave its CPU, since it is watched.
    pub thread_moves: u64,
    /// Its base pages moved, since it is watched.
    pub pages_moved: u64,
    /// The latest decision for one of its threads.
    pub last: Option<Arc<Decision>>,
}

/// A thread in the latest interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadStatus {
    /// Which thread.
    pub id: ThreadId,
    /// Of which process.
    pub process: ProcessId,
    /// Its name.
    pub name: String,
    /// The CPU it last ran on.
    pub cpu: CpuId,
    /// The core that was given to it by order.
    pub assigned: Option<CpuId>,
    /// The node of the CPU that it last ran on.
    pub node: Option<NodeId>,
    /// Share of one CPU that it used.
    pub cpu_share: f64,
    /// Share of the interval in which it waited for a CPU.
    pub wait_share: f64,
    /// Its class by DINO's own borders and its miss rate in this interval.
    pub class: Option<Class>,
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Share of lines that came from the core's own node.
    pub local_access_ratio: Option<f64>,
    /// Why it must be left alone.
    pub hands_off: Option<String>,
    /// Times that it had to leave its CPU, since it is watched.
    pub moves: u64,
    /// The latest decision for it.
    pub last: Option<Arc<Decision>>,
}

/// Something that was decided for a thread and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// When.
    pub time_ns: u64,
    /// For which thread.
    pub thread: ThreadId,
    /// Its name.
    pub thread_name: String,
    /// Of which process.
    pub process: ProcessId,
    /// The process's name, or that of the virtual machine that it runs.
    pub process_name: String,
    /// What was done.
    pub did: Did,
    /// The CPU it was on.
    pub from: CpuId,
    /// The CPU it was given; `None`: the kernel's choice.
    pub to: Option<CpuId>,
    /// The node it was on.
    pub from_node: Option<NodeId>,
    /// The node it was given.
    pub to_node: Option<NodeId>,
    /// The rule that decided; empty for what the governor does by itself.
    pub rule: String,
    /// Why, in one sentence.
    pub why: String,
    /// What else was considered and why it lost; may be empty.
    pub instead_of: String,
}

/// A sentence and when it was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Said {
    /// When.
    pub time_ns: u64,
    /// What.
    pub text: String,
}

/// Sums since the start that [`Totals`] does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MoreTotals {
    /// Lines taken in.
    pub lines: u64,
    /// Lines that were dropped before they got here.
    pub lines_lost: u64,
    /// By rule: threads that it wanted elsewhere, and times that a thread had to leave its CPU for it.
    pub rules: BTreeMap<String, RuleSums>,
    /// Thread orders that the kernel refused.
    pub failed_orders: u64,
    /// Pages moved, by where from and where to. `None` where it cannot be told where they came from.
    #[serde(serialize_with = "fold::as_list")]
    pub page_flows: BTreeMap<(Option<NodeId>, NodeId), u64>,
    /// Page orders that something stopped.
    pub page_errors: u64,
    /// Pages that were ordered to move and not tried.
    pub pages_not_tried: u64,
    /// Time that moves of pages took.
    pub pages_ns: u64,
    /// Longest single batch of pages: the pause that a thread can have seen.
    pub longest_batch_ns: u64,
    /// Memory samples.
    pub samples: u64,
    /// Of these, accesses that left the core's node.
    pub samples_remote: u64,
    /// What was done to processes, by the group that they belong to ([`NO_GROUP`] for the rest).
    pub groups: BTreeMap<String, GroupSums>,
    /// Notices, of which the latest are in [`Status::notices`].
    pub notices: u64,
    /// Requests to the loop, by what was asked (`pause`, `resume`, `change`) and whether it was done.
    #[serde(serialize_with = "fold::requests_as_list")]
    pub requests: BTreeMap<(&'static str, bool), u64>,
    /// Whether the ledger could not be written any more.
    pub ledger_ended: bool,
}

/// What was done to the processes of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GroupSums {
    /// Times that one of their threads had to leave its CPU.
    pub thread_moves: u64,
    /// Their base pages that were moved.
    pub pages_moved: u64,
}

/// A group in the latest interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GroupNow {
    /// Its processes.
    pub processes: u64,
    /// CPUs in use by their threads.
    pub cpus_used: f64,
}

/// What came of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleSums {
    /// Entries of plans.
    pub wanted: u64,
    /// Times that a thread had to leave its CPU for it.
    pub moved: u64,
}

impl Status {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The thread of that id in the latest snapshot.
    pub fn thread(&self, id: ThreadId) -> Option<&ThreadStatus> {
        let at = self.threads.binary_search_by_key(&id, |thread| thread.id);
        at.ok().map(|at| &self.threads[at])
    }

    /// The process of that id in the latest snapshot.
    pub fn process(&self, id: ProcessId) -> Option<&ProcessStatus> {
        let at = self
            .processes
            .binary_search_by_key(&id, |process| process.id);
        at.ok().map(|at| &self.processes[at])
    }

    /// The groups that the latest snapshot's processes belong to.
    pub fn groups_now(&self) -> BTreeMap<&str, GroupNow> {
        let mut groups: BTreeMap<&str, GroupNow> = BTreeMap::new();
        for process in &self.processes {
            let name = process.group.as_deref().unwrap_or(NO_GROUP);
            let is_room = groups.len() < MOST_GROUPS || groups.contains_key(name);
            let group = groups.entry(if is_room { name } else { OTHER_GROUPS });
            let group = group.or_default();
            group.processes += 1;
            group.cpus_used += process.cpus_used;
        }
        groups
    }

    /// The machine as the start record has it.
    pub fn topology(&self) -> Option<&Topology> {
        self.fold.topology.as_deref()
    }

    /// Bytes of a base page; 0 before the first snapshot.
    pub fn page_bytes(&self) -> u64 {
        self.fold.page_bytes
    }

    fn began(&mut self, start: &Start) {
        let topology = &start.topology;
        let online = topology.nodes().iter().filter(|node| node.online);
        self.machine = Some(Machine {
            name: crate::words::cut(topology.name()).to_owned(),
            nodes: online.count(),
            cpus: topology.online_cpus().len(),
        });
        crate::words::cut(&start.policy).clone_into(&mut self.policy);
        self.paused = start.paused;
        self.used(&start.settings);
        self.fold.dealt = Some(Dealt::new(topology));
        self.fold.line_bytes = line_bytes(topology);
        self.fold.topology = Some(Arc::new(topology.clone()));
    }

    /// Takes in the settings that hold from now on.
    fn used(&mut self, settings: &Settings) {
        self.dry_run = settings.dry_run;
        let cadence = settings.placement_interval(u64::MAX).as_nanos();
        self.cadence_ns = u64::try_from(cadence).ok();
        self.fold.settings = settings.clone();
    }
}

/// Bytes of a line of the caches next to memory, where known.
fn line_bytes(topology: &Topology) -> Option<u64> {
    let caches = topology.caches().iter();
    let last = caches.filter(|cache| cache.line_bytes.is_some());
    last.max_by_key(|cache| cache.level)?
        .line_bytes
        .map(u64::from)
}
