//! The one model of a run: everything that people are shown is a function of it.
//!
//! [`RunModel::take`] reads a ledger's lines one after the other, from a file or from a herd that runs.
//! The model joins a placing with its outcome, counts intervals, follows requests, and keeps the state of
//! nodes, processes and threads, the latest decisions, and sums since the start. Nothing asks the loop.
//!
//! Memory is bounded by the latest snapshot, which is shared with its line, so a clone is cheap (`top`
//! keeps some as checkpoints); of threads and processes that have ended only their part in the sums
//! stays. A reader that needs more of the past brings a [`History`], which is told of each interval and
//! each decision as the model sees them.
//!
//! Lines may be lost on the way ([`RunModel::lost`]): sums then stay too small, and the present state is
//! marked incomplete until the next snapshot.
//!
//! The serialized form is the state that `ctl status --json` and the live server give out. Figures that
//! were not measured are `None`. Times are the machine's own, in ns since it began to be watched; rates
//! and shares are of the latest interval.

pub(crate) mod content;
pub(crate) mod decision;
mod decisions;
pub(crate) mod history;
mod interval;
mod lateness;
pub(crate) mod sums;
mod tracks;
pub(crate) mod traffic;
pub(crate) mod work;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::ledger::{Asked, Controlled, Start};
use numaherd_herd::{Ending, Line, Record, Settings, Summary, Totals};
use numaherd_policy::classes::{Class, Classed};
use numaherd_policy::losses::Losses;
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{ProcessId, Snapshot, ThreadId};
use serde::Serialize;

use crate::guests::Guest;
use crate::words::{cut, nanoseconds};
pub use content::Content;
pub use decision::{Decision, DecisionLog, DecisionOutcome, Subject};
pub(crate) use history::History;
pub use lateness::{LATENESS_BOUNDS_S, Lateness};
pub use sums::{GroupSums, MOST_GROUPS, MOST_RULES, NO_GROUP, OTHER_GROUPS, RuleSums, Sums};
pub use tracks::Tracks;
use traffic::Traffic;
pub(crate) use work::{Work, add, sum};

/// The most decisions that are kept for display, and the most notices.
pub const MOST_KEPT: usize = 50;

/// A run as far as it has been read.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunModel {
    /// The machine; `None` before the first line.
    pub machine: Option<Machine>,
    /// The policy that decides now.
    pub policy: String,
    /// Whether nothing is carried out.
    pub dry_run: bool,
    /// Whether the loop was asked to decide and carry out nothing for now.
    pub paused: bool,
    /// Why it ended, once it has.
    pub ended: Option<Ending>,
    /// Whether the present state is that of the latest interval: not before the first snapshot, nor
    /// after lines were lost.
    pub is_complete: bool,
    /// End of the latest interval.
    pub time_ns: u64,
    /// Length of the latest interval, or of the several that were recorded as one.
    pub interval_ns: u64,
    /// How often threads are to be placed.
    pub cadence_ns: Option<u64>,
    /// How late the loop's intervals were.
    pub lateness: Lateness,
    /// The latest placing that wanted or moved anything.
    pub last_placing: Option<LastPlacing>,
    /// The whole machine in the latest interval.
    pub now: Now,
    /// What the machine lost when it was looked at last; `None` where the ledger does not say.
    pub losses: Option<Losses>,
    /// The nodes that are online, ascending.
    pub nodes: Vec<Node>,
    /// The processes of the latest snapshot, in its order.
    pub processes: Tracks<ProcessId, Process>,
    /// The latest decisions about threads that were carried out or tried, the latest last; at most
    /// [`MOST_KEPT`].
    pub decisions: VecDeque<Arc<Decision>>,
    /// Notices and answered requests, the latest last; at most [`MOST_KEPT`].
    pub notices: VecDeque<Sentence>,
    /// What could not be seen in the latest interval though it usually can.
    pub gaps: Vec<String>,
    /// Sums since the start, or since the first line that was read.
    pub totals: Totals,
    /// Further sums.
    pub more: Sums,
    /// The threads of the latest snapshot, in its order; too many to be written with the rest.
    #[serde(skip)]
    pub threads: Tracks<ThreadId, Thread>,
    /// All decisions of late, refused ones and those about pages too.
    #[serde(skip)]
    pub log: DecisionLog,
    #[serde(skip)]
    start: Option<Arc<Start>>,
    /// The start with what was asked since.
    #[serde(skip)]
    current: Option<Arc<Start>>,
    #[serde(skip)]
    end: Option<Arc<Summary>>,
    #[serde(skip)]
    latest: Option<Arc<Line>>,
    /// Number and time of the latest line.
    #[serde(skip)]
    at: (u64, u64),
    /// A placing whose outcome may be the next line.
    #[serde(skip)]
    pending: Option<Arc<Line>>,
    /// Whether no line was lost, and no cadence changed, since the latest snapshot.
    #[serde(skip)]
    is_unbroken: bool,
    #[serde(skip)]
    pub(crate) traffic: Option<Traffic>,
    #[serde(skip)]
    line_bytes: Option<u64>,
    /// All threads in the latest interval.
    #[serde(skip)]
    pub(crate) work: Work,
    /// Since the latest snapshot, the decision about the pages of each process and node, refused or not.
    #[serde(skip)]
    paged: BTreeMap<(ProcessId, NodeId, bool), u64>,
    #[serde(skip)]
    waiting: decision::WaitingOrders,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its name in its topology.
    pub name: String,
    /// Nodes that are online.
    pub nodes: usize,
    /// CPUs that are online.
    pub cpus: usize,
}

/// What came of a placing.
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

/// The whole machine in an interval.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Node {
    /// Which node.
    pub id: NodeId,
    /// CPUs that are online.
    pub cpus: u64,
    /// CPUs in use by the threads seen.
    pub cpus_used: f64,
    /// Threads that last ran there.
    pub threads: u64,
    /// Memory in bytes; `None` for a node without memory.
    pub memory_bytes: Option<u64>,
    /// Free memory in bytes, as the kernel counts it; `None` where no snapshot said.
    pub free_bytes: Option<u64>,
    /// Base pages that the processes seen have there.
    pub pages: u64,
    /// Of the lines that its cores fetched, the share from its own memory.
    pub local_access_ratio: Option<f64>,
    /// Lines per second that its cores fetched.
    pub fetched_per_s: Option<f64>,
    /// Lines per second that its memory controller served. On machines of more than two nodes, lines
    /// for other nodes are assigned by where the process's pages are: an estimate.
    pub served_per_s: Option<f64>,
    /// That as a share of the controller's bandwidth, where the bandwidth is known.
    pub controller_load: Option<f64>,
    /// Sums since the start.
    pub sums: NodeSums,
}

/// Sums of a node since the start.
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
    /// Lines that its controller served, as [`Node::served_per_s`].
    pub served_lines: f64,
}

/// A process in the latest interval.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Which process.
    pub id: ProcessId,
    /// The name of its first thread.
    pub name: String,
    /// The group of the configuration that it belongs to.
    pub group: Option<Arc<str>>,
    /// The virtual machine that it runs, where it does.
    pub guest: Option<Arc<Guest>>,
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
    /// Its class by DINO's own borders and its miss rate in this interval alone.
    pub class: Option<Class>,
    /// CPUs in use by its threads.
    pub cpus_used: f64,
    /// Lines fetched from memory per 1000 instructions.
    pub miss_rate: Option<f64>,
    /// Share of lines that came from the core's own node.
    pub local_access_ratio: Option<f64>,
    /// Times that one of its threads had to leave its CPU.
    pub thread_moves: u64,
    /// Its base pages moved.
    pub pages_moved: u64,
    /// The latest decision about one of its threads.
    pub last: Option<Arc<Decision>>,
    /// The latest decision that moved one of its threads or pages, or would have in a dry run.
    #[serde(skip)]
    pub last_move: Option<Arc<Decision>>,
    /// CPUs that its threads waited for.
    #[serde(skip)]
    pub cpus_waited: f64,
    /// Its class by the votes of ten intervals, as DINO reckons it.
    #[serde(skip)]
    pub classed: Classed,
    /// Its threads in the latest interval.
    #[serde(skip)]
    pub(crate) work: Work,
}

/// A thread in the latest interval, beside what the snapshot says.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// The place of its node in [`RunModel::nodes`].
    pub node: Option<usize>,
    /// The place of its process in [`RunModel::processes`].
    pub process: Option<usize>,
    /// Its class by the votes of ten intervals, as DINO reckons it.
    pub classed: Classed,
    /// Times that it had to leave its CPU.
    pub moves: u64,
    /// The latest decision that moved it, or would have in a dry run.
    pub last_move: Option<Arc<Decision>>,
    /// The latest refusal, until it moves.
    refused: Option<(DecisionOutcome, CpuId)>,
}

/// A sentence and when it was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sentence {
    /// When, in ns since the world began.
    pub time_ns: u64,
    /// The sentence.
    pub text: String,
}

/// A group in the latest interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GroupNow {
    /// Its processes.
    pub processes: u64,
    /// CPUs in use by their threads.
    pub cpus_used: f64,
}

impl RunModel {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next line.
    pub fn take(&mut self, line: &Arc<Line>) {
        self.take_with(line, &mut ());
    }

    /// Takes in the next line, and tells a history what it says.
    pub(crate) fn take_with(&mut self, line: &Arc<Line>, history: &mut impl History) {
        history.line(line);
        if let Some(pending) = self.pending.take() {
            let outcome = match &line.record {
                Record::Outcome(outcome) => Some((line.sequence, outcome)),
                _ => None,
            };
            self.placed(&pending, outcome, history);
        }
        self.more.lines = self.more.lines.saturating_add(1);
        match &line.record {
            Record::Start(start) => self.begin(line.sequence, start),
            Record::Snapshot(snapshot) => self.saw(line, snapshot, history),
            Record::Losses(losses) => {
                self.totals.add_losses(losses, self.interval_ns);
                self.lost_by_group(losses);
                self.losses = Some(losses.clone());
                history.lost(self, losses);
            }
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.pending = Some(line.clone());
            }
            Record::Placing(_) => self.placed(line, None, history),
            Record::Paging(tick) => self.paged(line, tick, history),
            Record::Notice(notice) => {
                self.more.notices = self.more.notices.saturating_add(1);
                self.notice(line.time_ns, &notice.text);
                history.noticed(line.time_ns, &notice.text);
            }
            Record::Control(controlled) => self.asked(line, controlled, history),
            Record::LedgerEnded { .. } => self.more.ledger_ended = true,
            Record::End(summary) => {
                self.ended = Some(summary.ending.clone());
                self.totals = summary.totals.clone();
                self.end = Some(Arc::new(summary.clone()));
            }
            Record::Outcome(_) | Record::Trial(_) | Record::Unknown => {}
        }
        self.at = (line.sequence, line.time_ns);
    }

    /// No more lines will come: a placing whose outcome is missing has none.
    pub(crate) fn finish(&mut self, history: &mut impl History) {
        if let Some(pending) = self.pending.take() {
            self.placed(&pending, None, history);
        }
    }

    /// So many lines were dropped before the next that is taken in.
    pub fn lost(&mut self, lines: u64) {
        if lines == 0 {
            return;
        }
        self.more.lines_lost = self.more.lines_lost.saturating_add(lines);
        self.is_complete = false;
        self.is_unbroken = false;
        self.pending = None;
    }

    /// How the run began.
    pub fn start(&self) -> Option<&Start> {
        self.start.as_deref()
    }

    /// How the run began, with what was asked of it since.
    pub fn current(&self) -> Option<&Start> {
        self.current.as_deref()
    }

    /// The machine as the start record describes it.
    pub fn topology(&self) -> Option<&Topology> {
        self.start.as_ref().map(|start| &start.topology)
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<&Summary> {
        self.end.as_deref()
    }

    /// The line of the latest snapshot.
    pub fn latest(&self) -> Option<&Arc<Line>> {
        self.latest.as_ref()
    }

    /// The latest snapshot.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        snapshot_of(self.latest.as_ref()?)
    }

    /// The number of the latest line, and its time in ns since the world began.
    pub fn at(&self) -> (u64, u64) {
        self.at
    }

    /// Whether the next line may be the outcome of the latest placing.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Bytes of a base page; 0 before the first snapshot.
    pub fn page_bytes(&self) -> u64 {
        self.snapshot().map_or(0, |snapshot| snapshot.page_bytes)
    }

    /// The thread of that id in the latest snapshot.
    pub fn thread(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get_by_id(id)
    }

    /// The process of that id in the latest snapshot.
    pub fn process(&self, id: ProcessId) -> Option<&Process> {
        self.processes.get_by_id(id)
    }

    /// The place of a node in [`RunModel::nodes`].
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&node, |node| node.id).ok()
    }

    /// The node of a CPU.
    pub(crate) fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.topology()?.node_of(cpu)
    }

    /// The processes of the latest snapshot, those that use most CPU time first.
    pub(crate) fn busiest(&self) -> Vec<&Process> {
        let mut processes: Vec<&Process> = self.processes.iter().collect();
        processes.sort_by(|a, b| b.cpus_used.total_cmp(&a.cpus_used));
        processes
    }

    /// For how long the loop has said nothing, where that is longer than it should be; `silent` is for
    /// how long no line has come.
    pub(crate) fn overdue(&self, silent: Option<Duration>) -> Option<Duration> {
        let cadence = Duration::from_nanos(self.cadence_ns.unwrap_or(1_000_000_000));
        silent.filter(|&s| self.ended.is_none() && s > cadence * 3 + Duration::from_secs(2))
    }

    /// The groups that the latest snapshot's processes belong to.
    pub fn groups_now(&self) -> BTreeMap<&str, GroupNow> {
        let mut groups: BTreeMap<&str, GroupNow> = BTreeMap::new();
        for process in self.processes.iter() {
            let name = process.group.as_deref().unwrap_or(NO_GROUP);
            let is_room = groups.len() < MOST_GROUPS || groups.contains_key(name);
            let group = groups.entry(if is_room { name } else { OTHER_GROUPS });
            let group = group.or_default();
            group.processes += 1;
            group.cpus_used += process.cpus_used;
        }
        groups
    }

    /// A run begins, unless the ledger was turned over and this is how it goes on.
    fn begin(&mut self, sequence: u64, start: &Start) {
        let topology = &start.topology;
        let is_same = self.topology() == Some(topology);
        if sequence == 0 || !is_same {
            let (lines, lines_lost) = (self.more.lines, self.more.lines_lost);
            *self = Self::default();
            (self.more.lines, self.more.lines_lost) = (lines, lines_lost);
            self.traffic = Some(Traffic::new(topology));
        }
        let online = topology.nodes().iter().filter(|node| node.online);
        self.machine = Some(Machine {
            name: cut(topology.name()).to_owned(),
            nodes: online.count(),
            cpus: topology.online_cpus().len(),
        });
        cut(&start.policy).clone_into(&mut self.policy);
        self.paused = start.paused;
        self.use_settings(&start.settings);
        self.line_bytes = interval::line_bytes(topology);
        self.start = Some(Arc::new(start.clone()));
        self.current = self.start.clone();
        if self.nodes.is_empty() {
            self.nodes = interval::nodes_of(topology);
        }
    }

    fn use_settings(&mut self, settings: &Settings) {
        self.dry_run = settings.dry_run;
        self.cadence_ns = Some(nanoseconds(settings.placement_interval(u64::MAX)));
    }

    fn asked(&mut self, line: &Line, controlled: &Controlled, history: &mut impl History) {
        let word = match controlled.asked {
            Asked::Pause { .. } => "pause",
            Asked::Resume => "resume",
            Asked::Change { .. } => "change",
        };
        let is_done = controlled.refused.is_none();
        *self.more.requests.entry((word, is_done)).or_default() += 1;
        self.notice(line.time_ns, &crate::requests::sentence(controlled));
        history.asked(line, controlled);
        if let Some(current) = &mut self.current {
            Arc::make_mut(current).follow(controlled);
        }
        let changed = controlled.changed();
        self.paused = changed.paused.unwrap_or(self.paused);
        if let Some(policy) = changed.policy {
            cut(policy).clone_into(&mut self.policy);
        }
        if let Some(settings) = changed.settings {
            self.use_settings(settings);
            // The interval that is under way had the cadence of before.
            self.is_unbroken = false;
        }
    }

    fn notice(&mut self, time_ns: u64, text: &str) {
        if self.notices.len() == MOST_KEPT {
            self.notices.pop_front();
        }
        self.notices.push_back(Sentence {
            time_ns,
            text: cut(text).to_owned(),
        });
    }
}

/// The snapshot that a line holds.
fn snapshot_of(line: &Line) -> Option<&Snapshot> {
    match &line.record {
        Record::Snapshot(snapshot) => Some(snapshot),
        _ => None,
    }
}
