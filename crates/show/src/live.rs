//! The lines of a run while it goes on: one for each interval in which something happens.
//!
//! A line is given as soon as the outcome of an interval's orders is known; pages, which move all the
//! time, are summed up to then. Where threads are placed more often than once a second, a line covers a
//! second. A virtual machine has a row of its own when it is first seen, and whenever its CPUs have gone
//! to other nodes, its agent is heard or cut off, or its candidates change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use numaherd_herd::ledger::Start;
use numaherd_herd::{Line, Record, Totals};
use numaherd_world::{AffinityResult, ProcessId, Snapshot, ThreadId};

use crate::guests::Guest;
use crate::requests::sentence;
use crate::run::decision::ThreadDecision;
use crate::run::{History, RunModel, sum};
use crate::summary::failures;
use crate::words::{at, count, counted, listed, percent, short};

/// Lines follow each other by at least this, but for single intervals that are longer.
const LEAST_NS: u64 = 1_000_000_000;

/// The most threads that a line names.
const MOST_NAMED: usize = 4;

/// Turns records into lines as they come.
#[derive(Debug, Default)]
pub struct Live {
    run: RunModel,
    /// What happened to threads since the latest line.
    threads: Threads,
    /// When the latest line was given, in ns since the world began, and the sums up to then.
    told_ns: u64,
    told: Sums,
    /// Virtual machines as they were last shown, and when.
    guests: BTreeMap<ProcessId, Arc<Guest>>,
    rows_ns: u64,
}

/// The sums whose growth a line tells.
#[derive(Clone, Debug, Default)]
struct Sums {
    totals: Totals,
    page_errors: u64,
    planned_page_orders: u64,
}

impl Live {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is to be shown after this record, one line or several, without the last line feed; `None`
    /// for nothing.
    pub fn line(&mut self, line: &Arc<Line>) -> Option<String> {
        let mut last = None;
        if let Record::End(_) = line.record {
            // Before the sums become those of the last record.
            self.run.finish(&mut self.threads);
            last = self.interval(line.time_ns, true);
        }
        self.run.take_with(line, &mut self.threads);
        let text = match &line.record {
            Record::Start(start) => return Some(begins(start)),
            Record::Notice(notice) => Some(format!("note: {}", notice.text)),
            Record::Control(controlled) => Some(sentence(controlled)),
            Record::Snapshot(snapshot) => self.rows(snapshot),
            Record::Placing(_) if !self.run.is_pending() => self.interval(line.time_ns, false),
            Record::Outcome(_) => self.interval(line.time_ns, false),
            Record::End(_) => last,
            _ => None,
        }?;
        let timed = |text: &str| format!("{:>9}  {text}", at(line.time_ns));
        Some(text.lines().map(timed).collect::<Vec<_>>().join("\n"))
    }

    /// Whether there are more intervals than lines.
    fn is_quick(&self) -> bool {
        self.run
            .cadence_ns
            .is_some_and(|cadence| cadence < LEAST_NS)
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
    fn interval(&mut self, time_ns: u64, is_last: bool) -> Option<String> {
        let is_early = time_ns < self.told_ns.saturating_add(LEAST_NS);
        if self.is_quick() && is_early && !is_last {
            return None;
        }
        self.told_ns = time_ns;
        let now = Sums {
            totals: self.run.totals.clone(),
            page_errors: self.run.more.page_errors,
            planned_page_orders: self.run.more.planned_page_orders,
        };
        let growth = now.since(&std::mem::replace(&mut self.told, now.clone()));
        let mut parts = std::mem::take(&mut self.threads).parts();
        parts.extend(growth.parts());
        if parts.is_empty() {
            return None;
        }
        let (local, penalty) = match self.is_quick() {
            true => (
                growth.totals.local_access_ratio(),
                growth.totals.uncore_penalty(),
            ),
            false => (self.run.now.local_access_ratio, self.run.now.uncore_penalty),
        };
        parts.extend(local.map(|local| format!("{} local", percent(local))));
        parts.extend(penalty.map(|cycles| format!("uncore penalty {} cycles", short(cycles))));
        Some(parts.join("; "))
    }
}

impl Sums {
    /// How much has been added since some time ago.
    fn since(&self, before: &Self) -> Self {
        let (now, then) = (&self.totals, &before.totals);
        let totals = Totals {
            pages_moved: now.pages_moved.saturating_sub(then.pages_moved),
            pages_failed: growth(&now.pages_failed, &then.pages_failed),
            refusals: growth(&now.refusals, &then.refusals),
            local: now.local.saturating_sub(then.local),
            remote: now.remote.saturating_sub(then.remote),
            uncore_busy_cycles: now
                .uncore_busy_cycles
                .saturating_sub(then.uncore_busy_cycles),
            uncore_requests: now.uncore_requests.saturating_sub(then.uncore_requests),
            ..Totals::default()
        };
        Self {
            totals,
            page_errors: self.page_errors.saturating_sub(before.page_errors),
            planned_page_orders: self
                .planned_page_orders
                .saturating_sub(before.planned_page_orders),
        }
    }

    /// The parts of a line about pages and refusals.
    fn parts(&self) -> Vec<String> {
        let totals = &self.totals;
        let mut parts = Vec::new();
        if totals.pages_moved > 0 {
            parts.push(format!("{} moved", counted(totals.pages_moved, "page")));
        }
        if self.planned_page_orders > 0 {
            let orders = counted(self.planned_page_orders, "page order");
            parts.push(format!("would send {orders}"));
        }
        if !totals.pages_failed.is_empty() {
            let failed = counted(sum(totals.pages_failed.values().copied()), "page");
            let why = failures(&totals.pages_failed);
            parts.push(format!("{failed} not moved: {why}"));
        }
        if self.page_errors > 0 {
            let orders = counted(self.page_errors, "page order");
            parts.push(format!("{orders} stopped short"));
        }
        if !totals.refusals.is_empty() {
            let refusals = totals.refusals.iter();
            let each: Vec<String> = refusals
                .map(|(guard, &times)| format!("{guard} {}", count(times)))
                .collect();
            parts.push(format!("refused: {}", each.join(", ")));
        }
        parts
    }
}

/// The counts that have grown, and by how much.
fn growth<K: Copy + Ord>(now: &BTreeMap<K, u64>, then: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let before = |key: &K| then.get(key).copied().unwrap_or(0);
    let grown = now
        .iter()
        .map(|(key, &n)| (*key, n.saturating_sub(before(key))));
    grown.filter(|&(_, more)| more > 0).collect()
}

/// What happened to threads since the latest line, each with how it is shown.
#[derive(Clone, Debug, Default)]
struct Threads {
    dry_run: bool,
    moved: Vec<(ThreadId, String)>,
    undone: Vec<(ThreadId, String)>,
    stolen: Vec<(ThreadId, String)>,
    failed: Vec<(ThreadId, String)>,
    held: u64,
    released: u64,
    gone: u64,
}

impl History for Threads {
    fn decided(&mut self, run: &RunModel, decision: &ThreadDecision<'_>) {
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
}

/// How people are shown a thread: a virtual machine's by its number.
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

impl Threads {
    /// The parts of a line about threads.
    fn parts(self) -> Vec<String> {
        let would = if self.dry_run { "would have " } else { "" };
        let mut parts = Vec::new();
        let mut named = |verb: &str, moves: &[(ThreadId, String)], why: &str| {
            if moves.is_empty() {
                return;
            }
            let threads: BTreeSet<ThreadId> = moves.iter().map(|&(id, _)| id).collect();
            let mut number = counted(threads.len() as u64, "thread");
            if moves.len() > threads.len() {
                number += &format!(" {} times", count(moves.len() as u64));
            }
            parts.push(format!("{would}{verb} {number}{why} ({})", some(moves)));
        };
        named("moved", &self.moved, "");
        named("gave", &self.stolen, " to idle nodes");
        named("undone a move of", &self.undone, "");
        named("failed to set", &self.failed, "");
        let mut numbered = |verb: &str, number: u64| {
            if number > 0 {
                parts.push(format!("{would}{verb} {}", counted(number, "thread")));
            }
        };
        numbered("held", self.held);
        numbered("given back", self.released);
        numbered("came too late for", self.gone);
        parts
    }
}

/// The first few of these, and how many more there are.
fn some(moves: &[(ThreadId, String)]) -> String {
    let shown: Vec<&str> = moves.iter().map(|(_, shown)| shown.as_str()).collect();
    match shown.len().checked_sub(MOST_NAMED).filter(|&more| more > 0) {
        Some(more) => format!("{} and {more} more", shown[..MOST_NAMED].join(", ")),
        None => listed(&shown),
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
        counted(topology.nodes().len() as u64, "node"),
        counted(topology.online_cpus().len() as u64, "CPU"),
    )
}
