//! Each thread and process that was ever observed, in memory that does not grow with its lifetime.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use numaherd_topology::NodeId;
use numaherd_world::{Process, ProcessId, Thread, ThreadId, VirtualMachine};

use super::columns::{Clock, Columns, Spread, Stay};
use crate::reading::Homes;
use crate::run::Work;
use crate::run::work::share;

/// How many intervals *at the end* covers.
pub(super) const LAST: usize = 10;

/// A thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadTrack {
    pub(super) process: ProcessId,
    pub(super) name: String,
    pub(super) stays: Columns<Stay>,
    /// How long it was found on each node, by the node's index in the machine's list, in ns.
    pub(super) on_ns: BTreeMap<u16, u64>,
    pub(super) cpu_seconds: f64,
    /// Times that it had to leave its CPU by order.
    pub(super) moves: u64,
}

impl ThreadTrack {
    pub(super) fn new(thread: &Thread) -> Self {
        Self {
            process: thread.process,
            name: thread.name.clone(),
            ..Self::default()
        }
    }

    /// Takes in an interval, in which it was on the node with this index in the machine's list.
    pub(super) fn saw(
        &mut self,
        clock: &Clock,
        thread: &Thread,
        node: Option<u16>,
        span: (u64, u64),
    ) {
        if self.name != thread.name {
            self.name.clone_from(&thread.name);
        }
        let length_ns = span.1.saturating_sub(span.0);
        self.cpu_seconds += share(thread.cpu_share) * length_ns as f64 / 1e9;
        if let Some(node) = node {
            self.stays.put(clock, span, |_| Stay::On(node));
            let on_ns = self.on_ns.entry(node).or_default();
            *on_ns = on_ns.saturating_add(length_ns);
        }
    }
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTrack {
    pub(super) name: String,
    pub(super) machine: Option<Arc<VirtualMachine>>,
    pub(super) homes: Option<Homes>,
    /// The beginning of the first interval in which it was there and the end of the last, in ns.
    pub(super) seen_ns: (u64, u64),
    pub(super) threads: u64,
    pub(super) thread_moves: u64,
    pub(super) pages_moved: u64,
    pub(super) local: Columns<Spread>,
    pub(super) all: Work,
    /// Its work before the first of its threads or pages moved, with the number of intervals.
    pub(super) before: (Work, u64),
    /// Its work since then, with the number of intervals.
    pub(super) after: (Work, u64),
    /// The last [`LAST`] intervals.
    last: VecDeque<Work>,
    /// How much pairs of its threads shared, over the run.
    pub(super) sharing: BTreeMap<(ThreadId, ThreadId), u64>,
}

impl ProcessTrack {
    pub(super) fn new(span: (u64, u64)) -> Self {
        Self {
            seen_ns: span,
            ..Self::default()
        }
    }

    /// Takes in the process as a snapshot shows it.
    pub(super) fn saw(&mut self, process: &Process) {
        if self.name != process.name {
            self.name.clone_from(&process.name);
        }
        if process.machine.is_some() {
            self.machine.clone_from(&process.machine);
        }
        if let Some(residency) = &process.residency {
            Homes::note(&mut self.homes, residency);
        }
        if let Some(sharing) = &process.sharing {
            for &(one, other, amount) in &sharing.pairs {
                let sum = self.sharing.entry((one, other)).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
    }

    /// Takes in what its threads did in an interval.
    pub(super) fn interval(&mut self, clock: &Clock, now: &Work, span: (u64, u64)) {
        self.seen_ns.1 = span.1;
        self.all.add(now);
        let side = if self.is_moved() {
            &mut self.after
        } else {
            &mut self.before
        };
        side.0.add(now);
        side.1 += 1;
        if self.last.len() == LAST {
            self.last.pop_front();
        }
        self.last.push_back(*now);
        if let Some(local) = now.counted.local_access_ratio() {
            self.local.put(clock, span, |ns| Spread::of(local, ns));
        }
    }

    /// Whether one of its threads or pages was moved.
    pub(super) fn is_moved(&self) -> bool {
        self.thread_moves > 0 || self.pages_moved > 0
    }

    /// The work of the last intervals since the first move, and their number.
    pub(super) fn at_the_end(&self) -> (Work, u64) {
        let mut work = Work::default();
        let most = usize::try_from(self.after.1).unwrap_or(usize::MAX);
        let last = self.last.iter().rev().take(most.min(LAST));
        let intervals = last.clone().count() as u64;
        last.for_each(|one| work.add(one));
        (work, intervals)
    }

    /// The node that held most of its memory when that was last read.
    pub(super) fn home(&self) -> Option<NodeId> {
        self.homes.as_ref()?.last.home()
    }
}
