//! The lines of a run while it lasts: one for each interval in which something happens.
//!
//! A line comes as soon as the outcome of an interval's orders is known; pages, which move all the time, are summed up
//! to that moment. If threads are placed more often than once a second, a line covers a second. A virtual machine has a
//! row of its own when it is first seen, and whenever its CPUs have gone to other nodes, its agent is heard or cut off,
//! or its candidates change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use itertools::Itertools as _;
use numaherd_herd::ledger::Start;
use numaherd_herd::{Guard, Line, Record, Refusal};
use numaherd_world::{AffinityResult, PageFailure, ProcessId, Snapshot, ThreadId};

use crate::guards::each_refused;
use crate::guests::Guest;
use crate::losses;
use crate::requests::sentence;
use crate::run::decision::{PageDecision, ThreadDecision};
use crate::run::{DecisionOutcome, History, RunModel, Work, add, sum};
use crate::summary::failures;
use crate::words::{at, count, counted, listed, percent, short};

/// The least time between lines; a single interval may be longer.
const LEAST_NS: u64 = 1_000_000_000;

/// The most threads that a line names.
const MOST_NAMED: usize = 4;

/// Turns records into lines as they come.
#[derive(Debug, Default)]
pub struct Live {
    run: RunModel,
    /// What happened since the latest line.
    since: Since,
    /// When the latest line was given, in ns since the world began.
    told_ns: u64,
    /// Virtual machines as they were last shown, and when.
    guests: BTreeMap<ProcessId, Arc<Guest>>,
    rows_ns: u64,
}

impl Live {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What to show after this record: one line or several, without the last line feed; `None` for nothing.
    pub fn line(&mut self, line: &Arc<Line>) -> Option<String> {
        self.run.take_with(line, &mut self.since);
        let text = match &line.record {
            Record::Start(start) => return Some(begins(start)),
            Record::Notice(notice) => Some(format!("note: {}", notice.text)),
            Record::Control(controlled) => Some(sentence(controlled)),
            Record::Snapshot(snapshot) => self.rows(snapshot),
            Record::Placing(_) if self.run.is_pending() => None,
            Record::Placing(_) | Record::Outcome(_) => {
                let is_early = line.time_ns < self.told_ns.saturating_add(LEAST_NS);
                match self.is_quick() && is_early {
                    true => None,
                    false => self.interval(line.time_ns),
                }
            }
            Record::End(_) => self.interval(line.time_ns),
            _ => None,
        }?;
        let timed = |text: &str| format!("{:>9}  {text}", at(line.time_ns));
        Some(text.lines().map(timed).join("\n"))
    }

    /// Whether there are more intervals than lines.
    fn is_quick(&self) -> bool {
        let cadence = self.run.cadence_ns;
        cadence.is_some_and(|cadence| cadence < LEAST_NS)
    }

    /// The rows of virtual machines that are new or have changed.
    fn rows(&mut self, snapshot: &Snapshot) -> Option<String> {
        if self.is_quick() && snapshot.time_ns < self.rows_ns.saturating_add(LEAST_NS) {
            return None;
        }
        let mut rows = Vec::new();
        for process in self.run.processes.iter() {
            let Some(guest) = &process.guest else {
                continue;
            };
            let known = self.guests.get(&process.id);
            if known.is_none_or(|known| !known.is_as(guest)) {
                rows.push(format!("{}: {}", guest.name, guest.row()));
                self.guests.insert(process.id, guest.clone());
            }
        }
        self.guests
            .retain(|&process, _| snapshot.process(process).is_some());
        if rows.is_empty() {
            return None;
        }
        self.rows_ns = snapshot.time_ns;
        Some(rows.join("\n"))
    }

    /// The line of an interval, or of what happened since the latest line, if anything did.
    fn interval(&mut self, time_ns: u64) -> Option<String> {
        self.told_ns = time_ns;
        let since = std::mem::take(&mut self.since);
        let mut parts = since.parts();
        if parts.is_empty() {
            return None;
        }
        let work = match self.is_quick() {
            true => &since.work,
            false => &self.run.work,
        };
        let local = work.counted.local_access_ratio();
        parts.extend(local.map(|local| format!("{} local", percent(local))));
        let penalty = work.counted.uncore_penalty();
        parts.extend(penalty.map(|cycles| format!("uncore penalty {} cycles", short(cycles))));
        parts.extend(self.run.losses.as_ref().and_then(losses::brief));
        Some(parts.join("; "))
    }
}

/// What happened since the latest line; each thread has the text by which it is shown.
#[derive(Clone, Debug, Default)]
struct Since {
    dry_run: bool,
    moved: Vec<(ThreadId, String)>,
    undone: Vec<(ThreadId, String)>,
    stolen: Vec<(ThreadId, String)>,
    failed: Vec<(ThreadId, String)>,
    held: u64,
    released: u64,
    gone: u64,
    pages_moved: u64,
    planned_page_orders: u64,
    pages_failed: BTreeMap<PageFailure, u64>,
    page_errors: u64,
    refusals: BTreeMap<Guard, u64>,
    work: Work,
}

impl History for Since {
    fn interval(&mut self, run: &RunModel, _: &Snapshot) {
        self.work.add(&run.work);
    }

    fn decided(&mut self, run: &RunModel, decision: &ThreadDecision<'_>) {
        self.refused(decision.refusal);
        let Some(order) = decision.order else {
            return;
        };
        self.dry_run |= !decision.placing.carried_out;
        let id = decision.thread;
        let shown = || (id, name(run, id));
        match decision.result {
            Some(AffinityResult::Gone) => self.gone += 1,
            Some(AffinityResult::Failed { .. }) => self.failed.push(shown()),
            _ if decision.undone.is_some() => self.undone.push(shown()),
            _ => match (order.core, decision.was_on) {
                (None, _) => self.released += 1,
                (Some(core), Some(from)) if decision.leaves() => {
                    let moves = match decision.stolen {
                        Some(_) => &mut self.stolen,
                        None => &mut self.moved,
                    };
                    moves.push((id, format!("{} {from}>{core}", name(run, id))));
                }
                _ => self.held += 1,
            },
        }
    }

    fn paged(&mut self, _: &RunModel, decision: &PageDecision<'_>) {
        self.refused(decision.refusal);
        let is_planned = decision.outcome() == DecisionOutcome::Planned;
        self.planned_page_orders += u64::from(is_planned);
        let Some(outcome) = decision.outcome else {
            return;
        };
        add(&mut self.pages_moved, outcome.moved);
        self.page_errors += u64::from(outcome.error.is_some());
        for (&failure, &pages) in &outcome.failed {
            add(self.pages_failed.entry(failure).or_default(), pages);
        }
    }
}

impl Since {
    fn refused(&mut self, refusal: Option<&Refusal>) {
        if let Some(refusal) = refusal {
            *self.refusals.entry(refusal.guard).or_default() += 1;
        }
    }

    /// The parts of a line.
    fn parts(&self) -> Vec<String> {
        let would = if self.dry_run { "would have " } else { "" };
        let mut parts = Vec::new();
        let mut named = |verb: &str, moves: &[(ThreadId, String)], why: &str| {
            if moves.is_empty() {
                return;
            }
            let threads: BTreeSet<ThreadId> = moves.iter().map(|&(id, _)| id).collect();
            let mut number = counted(threads.len(), "thread");
            if moves.len() > threads.len() {
                number += &format!(" {} times", count(moves.len()));
            }
            parts.push(format!("{would}{verb} {number}{why} ({})", some(moves)));
        };
        named("moved", &self.moved, "");
        named("gave", &self.stolen, " to idle nodes");
        named("undone a move of", &self.undone, "");
        named("failed to set", &self.failed, "");
        let mut numbered = |number: u64, noun: &str, part: &dyn Fn(String) -> String| {
            if number > 0 {
                parts.push(part(counted(number, noun)));
            }
        };
        let threads = |verb: &'static str| move |threads| format!("{would}{verb} {threads}");
        numbered(self.held, "thread", &threads("held"));
        numbered(self.released, "thread", &threads("given back"));
        numbered(self.gone, "thread", &threads("came too late for"));
        numbered(self.pages_moved, "page", &|pages| format!("{pages} moved"));
        let planned = self.planned_page_orders;
        numbered(planned, "page order", &|orders| {
            format!("would send {orders}")
        });
        let failed = sum(self.pages_failed.values().copied());
        numbered(failed, "page", &|pages| {
            format!("{pages} not moved: {}", failures(&self.pages_failed))
        });
        numbered(self.page_errors, "page order", &|orders| {
            format!("{orders} stopped short")
        });
        if !self.refusals.is_empty() {
            parts.push(format!("refused: {}", each_refused(&self.refusals)));
        }
        parts
    }
}

/// A thread's text for people; that of a virtual machine has the number of the vCPU.
fn name(run: &RunModel, id: ThreadId) -> String {
    let snapshot = run.snapshot();
    let Some(thread) = snapshot.and_then(|snapshot| snapshot.thread(id)) else {
        return id.tid.to_string();
    };
    let process = snapshot.and_then(|snapshot| snapshot.process(thread.process));
    let machine = process.and_then(|process| process.machine.as_ref());
    match machine.and_then(|machine| Some((machine, machine.vcpu_of(id)?))) {
        Some((machine, vcpu)) => format!("{} vCPU {vcpu} {}", machine.name, id.tid),
        None => format!("{} {}", thread.name, id.tid),
    }
}

/// The first few of these, and how many more there are.
fn some(moves: &[(ThreadId, String)]) -> String {
    let mut shown = moves.iter().map(|(_, shown)| shown);
    match moves.len().saturating_sub(MOST_NAMED) {
        0 => listed(shown),
        more => format!(
            "{} and {more} more",
            shown.by_ref().take(MOST_NAMED).join(", ")
        ),
    }
}

fn begins(start: &Start) -> String {
    let topology = &start.topology;
    let dry_run = match start.settings.dry_run {
        true => "; dry run: nothing is carried out",
        false => "",
    };
    format!(
        "{} on {} ({}, {}){dry_run}",
        start.policy,
        topology.name(),
        counted(topology.nodes().len(), "node"),
        counted(topology.online_cpus().len(), "CPU"),
    )
}
