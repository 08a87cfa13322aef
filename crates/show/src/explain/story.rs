//! A thread's story while the ledger is read: what was seen of the thread, and its decisions, folded.

use std::collections::BTreeMap;

use numaherd_herd::Guard;
use numaherd_policy::classes::ClassRule;
use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{ProcessId, Thread, ThreadId};

use super::followed::{Around, followed};
use super::{Decision, Happened, Ran, Range, ThreadStory, Verdict, Wanted};
use crate::run::{Work, add};
use crate::words::left_alone;

/// A thread in one interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// When it ended.
    pub(super) time_ns: u64,
    /// How long it was.
    pub(super) length_ns: u64,
    pub(super) cpu: CpuId,
    pub(super) work: Work,
}

/// What decisions must agree in to be folded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Likeness {
    moves_before: usize,
    wanted: Wanted,
    rule: Option<String>,
    verdict: Option<Option<Guard>>,
    happened: Option<u8>,
}

/// A thread's story so far.
#[derive(Debug, Default)]
pub(super) struct Track {
    pub(super) process: Option<ProcessId>,
    name: String,
    hands_off: Option<String>,
    intervals: Vec<Interval>,
    /// When moves of it were carried out or undone, ascending.
    moved_at: Vec<u64>,
    moves: u64,
    pages_moved: u64,
    refusals: BTreeMap<Guard, u64>,
    decisions: Vec<Decision>,
    places: BTreeMap<Likeness, usize>,
}

impl Track {
    /// Takes in an interval.
    pub(super) fn saw(&mut self, thread: &Thread, time_ns: u64, length_ns: u64) {
        self.process = Some(thread.process);
        if self.name != thread.name {
            self.name.clone_from(&thread.name);
        }
        self.hands_off = thread.unmanaged.as_ref().map(left_alone);
        self.intervals.push(Interval {
            time_ns,
            length_ns,
            cpu: thread.cpu,
            work: Work::of(thread.counts.as_ref(), thread.cpu_share, length_ns),
        });
    }

    /// Whether anything was wanted of it.
    pub(super) fn has_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// The kernel's short name for it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How people are shown it.
    pub(super) fn shown(&self, id: ThreadId) -> String {
        match self.name.as_str() {
            "" => id.tid.to_string(),
            name => format!("{} ({name})", id.tid),
        }
    }

    /// Adds a decision, folding it into one that it agrees with. `left` says whether the thread had to leave its CPU by
    /// it. A decision that is not chosen counts, but is not shown.
    pub(super) fn decided(&mut self, decision: Decision, left: bool, is_chosen: bool) {
        if let Verdict::Refused { guard, .. } = &decision.governor {
            *self.refusals.entry(*guard).or_default() += 1;
        }
        if let Some(Happened::Pages(pages)) = &decision.happened {
            add(&mut self.pages_moved, pages.moved);
        }
        let at = decision.first_ns;
        let undone = matches!(decision.wanted, Wanted::Undo { .. }) && decision.is_done();
        if is_chosen {
            let likeness = self.likeness(&decision);
            let place = *self.places.entry(likeness).or_insert(self.decisions.len());
            match self.decisions.get_mut(place) {
                Some(earlier) => fold(earlier, decision),
                None => self.decisions.push(decision),
            }
        }
        self.moves += u64::from(left);
        // A thread that is back with the kernel may stay where it is for a while, but is free to go.
        if left || undone {
            self.moved_at.push(at);
        }
    }

    fn likeness(&self, decision: &Decision) -> Likeness {
        Likeness {
            moves_before: self.moved_at.len(),
            wanted: decision.wanted,
            rule: decision.rule.as_ref().map(|rule| rule.name.clone()),
            verdict: match &decision.governor {
                Verdict::Ordered { .. } => Some(None),
                Verdict::Refused { guard, .. } => Some(Some(*guard)),
                Verdict::Waiting => None,
            },
            happened: decision.happened.as_ref().map(|happened| match happened {
                Happened::Done => 0,
                Happened::Gone => 1,
                Happened::Narrowed { .. } => 2,
                Happened::Failed { .. } => 3,
                Happened::Pages(_) => 4,
                Happened::DryRun => 5,
                Happened::NotRecorded => 6,
            }),
        }
    }

    /// The story, once all has been read.
    pub(super) fn finish(mut self, around: &Around<'_>) -> ThreadStory {
        for decision in &mut self.decisions {
            decision.followed = followed(decision, &self.intervals, &self.moved_at, around);
        }
        let rates = self
            .intervals
            .iter()
            .filter_map(|i| i.work.counted.miss_rate());
        let mut classes = BTreeMap::new();
        for rate in rates.clone() {
            *classes.entry(ClassRule::PAPER.class_of(rate)).or_default() += 1;
        }
        ThreadStory {
            tid: around.me.tid,
            miss_rate: range(&self.intervals, rates),
            classes,
            ran: ran(&self.intervals, around.topology),
            name: self.name,
            hands_off: self.hands_off,
            intervals: self.intervals.len() as u64,
            moves: self.moves,
            pages_moved: self.pages_moved,
            refusals: self.refusals,
            decisions: self.decisions,
        }
    }
}

fn fold(into: &mut Decision, later: Decision) {
    into.times += later.times;
    into.last_ns = later.last_ns;
    into.last_record = later.last_record;
    if let (Some(sum), Some(more)) = (&mut into.wanted_pages, later.wanted_pages) {
        add(sum, more);
    }
    let (Some(Happened::Pages(sum)), Some(Happened::Pages(more))) =
        (&mut into.happened, later.happened)
    else {
        return;
    };
    add(&mut sum.moved, more.moved);
    add(&mut sum.already_there, more.already_there);
    add(&mut sum.not_tried, more.not_tried);
    add(&mut sum.took_ns, more.took_ns);
    sum.longest_batch_ns = sum.longest_batch_ns.max(more.longest_batch_ns);
    for (failure, pages) in more.failed {
        add(sum.failed.entry(failure).or_default(), pages);
    }
    if sum.error.is_none() {
        sum.error = more.error;
    }
}

fn range(intervals: &[Interval], rates: impl Iterator<Item = f64> + Clone) -> Option<Range> {
    Some(Range {
        min: rates.clone().fold(f64::INFINITY, f64::min),
        mean: work(intervals).counted.miss_rate()?,
        max: rates.clone().fold(f64::NEG_INFINITY, f64::max),
        intervals: rates.count() as u64,
    })
}

/// The work of some intervals together.
pub(super) fn work(intervals: &[Interval]) -> Work {
    let mut all = Work::default();
    intervals
        .iter()
        .for_each(|interval| all.add(&interval.work));
    all
}

pub(super) fn ran(intervals: &[Interval], topology: Option<&Topology>) -> Vec<Ran> {
    let mut ran: Vec<Ran> = Vec::new();
    for interval in intervals {
        let node = topology.and_then(|topology| topology.node_of(interval.cpu));
        let place = ran.iter().position(|ran| ran.node == node);
        let place = place.unwrap_or_else(|| {
            let cpus = CpuSet::new();
            ran.push(Ran {
                node,
                cpus,
                intervals: 0,
            });
            ran.len() - 1
        });
        ran[place].cpus.insert(interval.cpu);
        ran[place].intervals += 1;
    }
    ran
}
