//! What there is to see at one moment: folded from a ledger's lines, one after the other.
//!
//! A snapshot says how things are; what is decided from it follows in the lines after it, and belongs
//! to the same moment. Classes are DINO's, by its rule and the paper's borders
//! ([`ClassRule::PAPER`]), whatever policy runs: of a thread by its miss rate, of a process by that of
//! all its threads together.
//!
//! [`crate::status::Status`] is what is said of a run that goes on, to programs and pages: names and
//! figures by value, and sums. This is what is looked back through: the snapshot itself is shared, not
//! copied, so that a copy of a state costs little, and every refusal is kept for a while. Both deal out
//! lines, read deeds and add up totals by the same code.

mod decided;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use numaherd_herd::ledger::Start;
use numaherd_herd::{Line, Record, Summary};
use numaherd_policy::classes::{Class, ClassRule, Classed};
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{Counts, Process, ProcessId, Snapshot, Thread, ThreadId};

use super::acts::{Act, Acts, Came};
use super::tracks::Tracks;
use crate::dealt::Dealt;
use crate::totals::{Totals, add};

/// Notices that are kept.
const MOST_NOTICES: usize = 100;

/// What is known of a thread beyond the snapshot.
#[derive(Clone, Debug, Default)]
pub struct ThreadTrack {
    classed: Classed,
    /// The place of its node in [`State::nodes`].
    pub node: Option<usize>,
    /// The place of its process in the snapshot.
    pub process: Option<usize>,
    /// Its last move.
    pub last: Option<Arc<Act>>,
    /// What it was refused last, until it moves.
    refused: Option<(Came, Option<CpuId>)>,
}

impl ThreadTrack {
    /// How hard it is on memory; `None` until it was counted.
    pub fn class(&self) -> Option<Class> {
        self.classed.class()
    }
}

/// What is known of a process beyond the snapshot, and what its threads come to.
#[derive(Clone, Debug, Default)]
pub struct ProcessTrack {
    classed: Classed,
    /// The last move of its threads or pages.
    pub last: Option<Arc<Act>>,
    /// Its threads.
    pub threads: u32,
    /// CPUs in use by them.
    pub cpus: f64,
    /// CPUs that they waited for.
    pub waited: f64,
    /// What was counted of them.
    pub counts: Option<Counts>,
    /// Lines whose node was counted, local and all.
    known: (u64, u64),
}

impl ProcessTrack {
    /// How hard it is on memory; `None` until it was counted.
    pub fn class(&self) -> Option<Class> {
        self.classed.class()
    }

    /// Share of lines that came from the core's own node, over threads of which this is counted.
    pub fn local_access_ratio(&self) -> Option<f64> {
        let (local, all) = self.known;
        (all > 0).then(|| local as f64 / all as f64)
    }

    fn begin(&mut self) {
        self.threads = 0;
        self.cpus = 0.0;
        self.waited = 0.0;
        self.counts = None;
        self.known = (0, 0);
    }

    fn took_part(&mut self, thread: &Thread) {
        self.threads += 1;
        self.cpus += share(thread.cpu_share);
        self.waited += share(thread.wait_share);
        let Some(counts) = &thread.counts else {
            return;
        };
        let sum = self.counts.get_or_insert_default();
        add(&mut sum.instructions, counts.instructions);
        add(&mut sum.lines, counts.lines);
        if let (Some(local), Some(remote)) = (counts.local, counts.remote) {
            add(&mut self.known.0, local);
            add(&mut self.known.1, local.saturating_add(remote));
        }
    }
}

/// A share as it should be: 0 to 1.
pub(super) fn share(share: f64) -> f64 {
    if share.is_finite() {
        share.clamp(0.0, 1.0)
    } else {
        0.0
    }
}

/// A node at this moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeNow {
    /// Which node.
    pub id: NodeId,
    /// CPUs that are online.
    pub cpus: usize,
    /// CPUs in use by the threads that are watched.
    pub busy: f64,
    /// Memory in bytes; 0 for a node without.
    pub total_bytes: u64,
    /// Free memory in bytes, where a snapshot said.
    pub free_bytes: Option<u64>,
    /// Lines per second that its memory controller served, where lines are counted by node.
    pub served_per_s: Option<f64>,
    /// What of its bandwidth that is, where both are known.
    pub load: Option<f64>,
    /// Share of the lines that its cores fetched which came from its own memory, where counted.
    pub local: Option<f64>,
}

/// The state of a run at one moment.
#[derive(Clone, Debug, Default)]
pub struct State {
    start: Option<Arc<Start>>,
    dealt: Option<Dealt>,
    /// The line of the latest snapshot.
    latest: Option<Arc<Line>>,
    nodes: Vec<NodeNow>,
    threads: Tracks<ThreadId, ThreadTrack>,
    processes: Tracks<ProcessId, ProcessTrack>,
    /// Threads of each process on each node: a row of nodes for each process.
    spread: Vec<u32>,
    acts: Acts,
    /// Of this moment's page moves: the act of each process and node.
    paged: BTreeMap<(ProcessId, NodeId, bool), u64>,
    /// The line of a placing whose outcome may be the next.
    pending: Option<Arc<Line>>,
    totals: Totals,
    notices: VecDeque<(u64, Arc<str>)>,
    time_ns: u64,
    end: Option<Arc<Summary>>,
}

impl State {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How the run began, with what was asked of it since.
    pub fn start(&self) -> Option<&Start> {
        self.start.as_deref()
    }

    /// The machine.
    pub fn topology(&self) -> Option<&Topology> {
        self.start.as_ref().map(|start| &start.topology)
    }

    /// The latest snapshot.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match &self.latest.as_ref()?.record {
            Record::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        }
    }

    /// The nodes that are online, ascending.
    pub fn nodes(&self) -> &[NodeNow] {
        &self.nodes
    }

    /// One for each thread of the snapshot, in its order.
    pub fn threads(&self) -> &[ThreadTrack] {
        self.threads.all()
    }

    /// One for each process of the snapshot, in its order.
    pub fn processes(&self) -> &[ProcessTrack] {
        self.processes.all()
    }

    /// Threads of the process at this place of the snapshot, on each of [`State::nodes`].
    pub fn spread(&self, process: usize) -> &[u32] {
        let nodes = self.nodes.len();
        let row = process * nodes..(process + 1) * nodes;
        self.spread.get(row).unwrap_or_default()
    }

    /// The place of a node in [`State::nodes`].
    pub fn place(&self, node: NodeId) -> Option<usize> {
        self.nodes.binary_search_by_key(&node, |node| node.id).ok()
    }

    /// The latest decisions.
    pub fn acts(&self) -> &Acts {
        &self.acts
    }

    /// What the run came to until now.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// What a person should know, with its time in ns, oldest first.
    pub fn notices(&self) -> impl DoubleEndedIterator<Item = (u64, &str)> {
        self.notices.iter().map(|(time, text)| (*time, &**text))
    }

    /// The world's time in ns, of the latest line.
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// How it ended, if it has.
    pub fn end(&self) -> Option<&Summary> {
        self.end.as_deref()
    }

    /// Takes in the next line.
    pub fn fold(&mut self, line: &Arc<Line>) {
        if let Some(pending) = self.pending.take()
            && let Record::Placing(placing) = &pending.record
        {
            let outcome = match &line.record {
                Record::Outcome(outcome) => Some(outcome),
                _ => None,
            };
            self.placed(pending.time_ns, placing, outcome);
        }
        match &line.record {
            Record::Start(start) => self.begin(line.sequence, start),
            Record::Snapshot(snapshot) => self.saw(line, snapshot),
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.pending = Some(line.clone());
            }
            Record::Placing(placing) => self.placed(line.time_ns, placing, None),
            Record::Paging(tick) => self.paging(line.time_ns, tick),
            Record::Notice(notice) => self.notice(line.time_ns, &notice.text),
            Record::Control(controlled) => {
                if let Some(start) = &mut self.start {
                    Arc::make_mut(start).follow(controlled);
                }
            }
            Record::End(summary) => {
                self.totals = Totals::from(summary);
                self.end = Some(Arc::new(summary.clone()));
            }
            Record::Outcome(_) | Record::Unknown => {}
        }
        self.time_ns = line.time_ns;
    }

    /// A run begins, unless this is how one goes on whose ledger was turned over.
    fn begin(&mut self, sequence: u64, start: &Start) {
        let same = |known: &Arc<Start>| known.topology == start.topology;
        let goes_on = sequence > 0 && self.start.as_ref().is_some_and(same);
        if !goes_on {
            *self = Self::default();
            self.dealt = Some(Dealt::new(&start.topology));
        }
        self.start = Some(Arc::new(start.clone()));
        self.nodes = self.machine();
    }

    /// The nodes as the machine has them, with nothing observed.
    fn machine(&self) -> Vec<NodeNow> {
        let Some(topology) = self.topology() else {
            return Vec::new();
        };
        let online = topology.online_cpus();
        let nodes = topology.nodes().iter().filter(|node| node.online);
        let now = nodes.map(|node| NodeNow {
            id: node.id,
            cpus: node.cpus.intersection(&online).len(),
            busy: 0.0,
            total_bytes: node.memory_bytes,
            free_bytes: None,
            served_per_s: None,
            load: None,
            local: None,
        });
        now.collect()
    }

    fn saw(&mut self, line: &Arc<Line>, snapshot: &Snapshot) {
        let before = self.snapshot().map(|before| before.sequence);
        self.totals.saw(snapshot, None);
        let passed = before.map_or(1, |before| snapshot.sequence.saturating_sub(before));
        add(&mut self.totals.intervals, passed.saturating_sub(1));
        self.paged.clear();
        self.threads
            .line_up(snapshot.threads.iter().map(|thread| thread.id));
        self.processes
            .line_up(snapshot.processes.iter().map(|process| process.id));
        self.processes
            .all_mut()
            .iter_mut()
            .for_each(ProcessTrack::begin);
        self.spread.clear();
        self.spread
            .resize(snapshot.processes.len() * self.nodes.len(), 0);
        self.observe(snapshot);
        for process in self.processes.all_mut() {
            if let Some(rate) = process.counts.and_then(|counts| counts.miss_rate()) {
                process.classed.observe(rate, &ClassRule::PAPER);
            }
        }
        self.nodes = self.nodes_now(snapshot);
        self.latest = Some(line.clone());
    }

    /// Takes in what each thread did.
    fn observe(&mut self, snapshot: &Snapshot) {
        let nodes = self.nodes.len();
        if let Some(dealt) = &mut self.dealt {
            dealt.clear();
        }
        // Threads of a process are mostly next to each other.
        let mut found: Option<(ProcessId, Option<usize>)> = None;
        for (thread, track) in snapshot.threads.iter().zip(self.threads.all_mut()) {
            if let Some(rate) = thread.counts.and_then(|counts| counts.miss_rate()) {
                track.classed.observe(rate, &ClassRule::PAPER);
            }
            let process = match found {
                Some((id, at)) if id == thread.process => at,
                _ => {
                    let by_id = |process: &Process| process.id.cmp(&thread.process);
                    let at = snapshot.processes.binary_search_by(by_id).ok();
                    found = Some((thread.process, at));
                    at
                }
            };
            track.process = process;
            track.node = None;
            if let (Some(start), Some(dealt)) = (&self.start, &mut self.dealt) {
                let node = start.topology.node_of(thread.cpu);
                track.node = node.and_then(|node| dealt.place(node));
                if let Some(place) = track.node {
                    let process = process.and_then(|at| snapshot.processes.get(at));
                    let pages = process.and_then(|process| process.residency.as_ref());
                    dealt.worked(place, thread, pages);
                }
            }
            let Some(process) = process else {
                continue;
            };
            self.processes.all_mut()[process].took_part(thread);
            if let Some(place) = track.node {
                self.spread[process * nodes + place] += 1;
            }
        }
    }

    fn nodes_now(&self, snapshot: &Snapshot) -> Vec<NodeNow> {
        let (Some(topology), Some(dealt)) = (self.topology(), &self.dealt) else {
            return Vec::new();
        };
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let line_bytes = topology.caches().iter().rev().find_map(|c| c.line_bytes);
        let mut nodes = self.machine();
        for (now, work) in nodes.iter_mut().zip(&dealt.now) {
            if let Some(node) = topology.node(now.id) {
                now.cpus = node.cpus.intersection(&snapshot.online).len();
            }
            now.busy = work.cpus;
            let state = snapshot
                .nodes
                .binary_search_by_key(&now.id, |node| node.id)
                .ok();
            if let Some(state) = state.map(|at| &snapshot.nodes[at]) {
                now.total_bytes = state.total_bytes;
                now.free_bytes = Some(state.free_bytes.min(state.total_bytes));
            }
            if dealt.is_dealt && seconds > 0.0 && now.total_bytes > 0 {
                let per_s = work.served / seconds;
                now.served_per_s = Some(per_s);
                let most = topology.timing().node_gb_per_s.as_ref();
                let most = most.zip(topology.node_index(now.id));
                let most = most.and_then(|(most, at)| most.get(at).copied());
                now.load = most
                    .zip(line_bytes)
                    .map(|(most, bytes)| per_s * f64::from(bytes) / (most * 1e9))
                    .filter(|load| load.is_finite());
            }
            now.local = (work.known > 0.0).then(|| work.local / work.known);
        }
        nodes
    }

    fn notice(&mut self, time_ns: u64, text: &str) {
        if self.notices.len() == MOST_NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back((time_ns, text.into()));
    }
}
