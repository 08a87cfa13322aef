//! What happens, a line for each interval in which something does, while a run is under way.
//!
//! Drawn from the same records as all else, as they are recorded. A line is given as soon as what
//! became of an interval's orders is known; pages, which move all the time, are summed up to then. Where
//! threads are placed more often than once a second, a line tells of a second.
//!
//! A virtual machine has a row of its own when it is first seen, and whenever its CPUs have gone to
//! other nodes, its agent is heard or cut off, or its candidates change.

mod acts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::ledger::{PagingTick, Placing, Start};
use numaherd_herd::{Guard, Line, Record, Refusal};
use numaherd_topology::{CpuId, Topology};
use numaherd_world::{Outcome, PageFailure, ProcessId, Snapshot, ThreadId};

use crate::controlled::sentence;
use crate::guests::Guest;
use crate::summary::failures;
use crate::totals::{add, sum};
use crate::words::{at, count, counted, percent, short};
use acts::Acts;

/// Lines follow each other by at least this, but for single intervals that are longer.
const LEAST_NS: u64 = 1_000_000_000;

/// A thread as the latest snapshot has it.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    cpu: CpuId,
}

/// Of the accesses that were counted, how many were local, and what the uncore took.
#[derive(Clone, Copy, Debug, Default)]
struct Accesses {
    local: u64,
    all: u64,
    uncore_busy_cycles: u64,
    uncore_requests: u64,
}

/// Turns records into lines as they come.
#[derive(Debug, Default)]
pub struct Live {
    topology: Option<Arc<Topology>>,
    /// Whether there are more intervals than lines.
    quick: bool,
    /// When the last line was given, in ns since the world began.
    said_ns: u64,
    threads: BTreeMap<ThreadId, Known>,
    /// Virtual machines as they were last shown.
    guests: BTreeMap<ProcessId, Guest>,
    /// When rows of them were last given, in ns since the world began.
    rows_ns: u64,
    accesses: Accesses,
    acts: Acts,
    pages_moved: u64,
    pages_wanted: u64,
    pages_failed: BTreeMap<PageFailure, u64>,
    page_errors: u64,
    refusals: BTreeMap<Guard, u64>,
    /// A placing whose outcome is the next record.
    placing: Option<Placing>,
}

impl Live {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What is to be shown now that this was recorded, one line or several, without the last line feed;
    /// `None` for nothing.
    pub fn line(&mut self, line: &Line) -> Option<String> {
        let time_ns = line.time_ns;
        let said = match &line.record {
            Record::Start(start) => {
                self.topology = Some(Arc::new(start.topology.clone()));
                let usual = start.settings.placement_interval(u64::MAX);
                self.quick = usual < Duration::from_nanos(LEAST_NS);
                return Some(begins(start));
            }
            Record::Notice(notice) => Some(format!("note: {}", notice.text)),
            Record::Snapshot(snapshot) => self.saw(snapshot),
            Record::Paging(tick) => {
                self.paged(tick);
                None
            }
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.placing = Some(placing.clone());
                None
            }
            Record::Placing(placing) => self.interval(placing, None, time_ns),
            Record::Outcome(outcome) => {
                let placing = self.placing.take().unwrap_or_default();
                self.interval(&placing, Some(outcome), time_ns)
            }
            Record::End(_) => {
                self.quick = false;
                self.interval(&Placing::default(), None, time_ns)
            }
            Record::Control(controlled) => Some(sentence(controlled)),
            Record::Unknown => None,
        }?;
        let timed = |said: &str| format!("{:>9}  {said}", at(time_ns));
        Some(said.lines().map(timed).collect::<Vec<_>>().join("\n"))
    }

    /// Takes in a snapshot; the rows of virtual machines that are new or have changed.
    fn saw(&mut self, snapshot: &Snapshot) -> Option<String> {
        self.threads.clear();
        if !self.quick {
            self.accesses = Accesses::default();
        }
        for thread in &snapshot.threads {
            let machine = snapshot
                .process(thread.process)
                .and_then(|process| process.machine.as_ref());
            let vcpu = machine.and_then(|machine| {
                let vcpu = machine.vcpu_of(thread.id)?;
                Some(format!("{} vCPU {vcpu}", machine.name))
            });
            let known = Known {
                name: vcpu.unwrap_or_else(|| thread.name.clone()),
                cpu: thread.cpu,
            };
            self.threads.insert(thread.id, known);
            let Some(counts) = &thread.counts else {
                continue;
            };
            let sums = &mut self.accesses;
            if let Some((near, far)) = counts.local.zip(counts.remote) {
                add(&mut sums.local, near);
                add(&mut sums.all, near.saturating_add(far));
            }
            let uncore = counts.uncore_busy_cycles.zip(counts.uncore_requests);
            if let Some((busy, requests)) = uncore {
                add(&mut sums.uncore_busy_cycles, busy);
                add(&mut sums.uncore_requests, requests);
            }
        }
        let due = !self.quick || snapshot.time_ns >= self.rows_ns.saturating_add(LEAST_NS);
        let rows = if due { self.rows(snapshot) } else { None };
        if rows.is_some() {
            self.rows_ns = snapshot.time_ns;
        }
        rows
    }

    fn rows(&mut self, snapshot: &Snapshot) -> Option<String> {
        let mut rows = Vec::new();
        for process in &snapshot.processes {
            let guest = Guest::of(process, snapshot, self.topology.as_deref());
            let Some(guest) = guest else { continue };
            let known = self.guests.get(&process.id);
            if known.is_none_or(|known| !known.is_as(&guest)) {
                rows.push(format!("{}: {}", guest.name, guest.row()));
                self.guests.insert(process.id, guest);
            }
        }
        self.guests
            .retain(|&process, _| snapshot.process(process).is_some());
        (!rows.is_empty()).then(|| rows.join("\n"))
    }

    fn paged(&mut self, tick: &PagingTick) {
        for outcome in &tick.outcomes {
            add(&mut self.pages_moved, outcome.moved);
            self.page_errors += u64::from(outcome.error.is_some());
            for (&failure, &pages) in &outcome.failed {
                add(self.pages_failed.entry(failure).or_default(), pages);
            }
        }
        if !tick.carried_out {
            let refused = tick.refusals.iter().filter(|r| r.entry.is_some()).count();
            let ordered = tick.plan.len().saturating_sub(refused + tick.waiting.len());
            self.pages_wanted += ordered as u64;
        }
        self.refused(&tick.refusals);
    }

    fn refused(&mut self, refusals: &[Refusal]) {
        for refusal in refusals {
            *self.refusals.entry(refusal.guard).or_default() += 1;
        }
    }

    /// The line of an interval, or of what happened since the last line, if anything did.
    fn interval(
        &mut self,
        placing: &Placing,
        outcome: Option<&Outcome>,
        time_ns: u64,
    ) -> Option<String> {
        self.refused(&placing.refusals);
        self.acts.add(placing, outcome, &self.threads);
        if self.quick && time_ns < self.said_ns.saturating_add(LEAST_NS) {
            return None;
        }
        self.said_ns = time_ns;
        let mut said = std::mem::take(&mut self.acts).said();
        if self.pages_moved > 0 {
            said.push(format!("{} moved", counted(self.pages_moved, "page")));
        }
        if self.pages_wanted > 0 {
            said.push(format!(
                "would send {}",
                counted(self.pages_wanted, "page order")
            ));
        }
        if !self.pages_failed.is_empty() {
            let failed = sum(self.pages_failed.values().copied());
            let why = failures(&self.pages_failed);
            said.push(format!("{} not moved: {why}", counted(failed, "page")));
        }
        if self.page_errors > 0 {
            said.push(format!(
                "{} stopped short",
                counted(self.page_errors, "page order")
            ));
        }
        if !self.refusals.is_empty() {
            let each: Vec<String> = self
                .refusals
                .iter()
                .map(|(guard, &times)| format!("{guard} {}", count(times)))
                .collect();
            said.push(format!("refused: {}", each.join(", ")));
        }
        self.pages_moved = 0;
        self.pages_wanted = 0;
        self.page_errors = 0;
        self.pages_failed.clear();
        self.refusals.clear();
        let accesses = self.accesses;
        if self.quick {
            self.accesses = Accesses::default();
        }
        if said.is_empty() {
            return None;
        }
        if accesses.all > 0 {
            let local = accesses.local as f64 / accesses.all as f64;
            said.push(format!("{} local", percent(local)));
        }
        if accesses.uncore_requests > 0 {
            let penalty = accesses.uncore_busy_cycles as f64 / accesses.uncore_requests as f64;
            said.push(format!("uncore penalty {} cycles", short(penalty)));
        }
        Some(said.join("; "))
    }
}

fn begins(start: &Start) -> String {
    let topology = &start.topology;
    let dry_run = if start.settings.dry_run {
        "; dry run: nothing is carried out"
    } else {
        ""
    };
    format!(
        "{} on {} ({}, {}){dry_run}",
        start.policy,
        topology.name(),
        counted(topology.nodes().len() as u64, "node"),
        counted(topology.online_cpus().len() as u64, "CPU"),
    )
}
