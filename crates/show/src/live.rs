//! What happens, a line for each interval in which something does, while a run is under way.
//!
//! Drawn from the same records as all else, as they are recorded. A line is given as soon as what
//! became of an interval's orders is known; pages, which move all the time, are summed up to then.

use std::collections::BTreeMap;

use numaherd_herd::ledger::{PagingTick, Placing, Start};
use numaherd_herd::{Guard, Line, Record, Refusal};
use numaherd_topology::CpuId;
use numaherd_world::{AffinityResult, Outcome, PageFailure, Snapshot, ThreadId};

use crate::summary::failures;
use crate::totals::{add, sum};
use crate::words::{at, count, counted, listed, percent};

/// Most threads that a line names.
const MOST_NAMED: usize = 4;

/// A thread as the latest snapshot has it.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    cpu: CpuId,
}

/// Turns records into lines as they come.
#[derive(Debug, Default)]
pub struct Live {
    threads: BTreeMap<ThreadId, Known>,
    local_access_ratio: Option<f64>,
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

    /// What is to be shown now that this was recorded, without a line feed; `None` for nothing.
    pub fn line(&mut self, line: &Line) -> Option<String> {
        let said = match &line.record {
            Record::Start(start) => return Some(begins(start)),
            Record::Notice(notice) => Some(format!("note: {}", notice.text)),
            Record::Snapshot(snapshot) => {
                self.saw(snapshot);
                None
            }
            Record::Paging(tick) => {
                self.paged(tick);
                None
            }
            Record::Placing(placing) if placing.carried_out && !placing.affinities.is_empty() => {
                self.placing = Some(placing.clone());
                None
            }
            Record::Placing(placing) => self.interval(placing, None),
            Record::Outcome(outcome) => {
                let placing = self.placing.take().unwrap_or_default();
                self.interval(&placing, Some(outcome))
            }
            Record::End(_) => self.interval(&Placing::default(), None),
            Record::Unknown => None,
        };
        said.map(|said| format!("{:>9}  {said}", at(line.time_ns)))
    }

    fn saw(&mut self, snapshot: &Snapshot) {
        self.threads.clear();
        let (mut local, mut all) = (0, 0);
        for thread in &snapshot.threads {
            let known = Known {
                name: thread.name.clone(),
                cpu: thread.cpu,
            };
            self.threads.insert(thread.id, known);
            let counts = thread.counts.as_ref();
            if let Some((near, far)) = counts.and_then(|c| Some((c.local?, c.remote?))) {
                add(&mut local, near);
                add(&mut all, near.saturating_add(far));
            }
        }
        self.local_access_ratio = (all > 0).then(|| local as f64 / all as f64);
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

    /// The line of an interval, if anything happened in it.
    fn interval(&mut self, placing: &Placing, outcome: Option<&Outcome>) -> Option<String> {
        self.refused(&placing.refusals);
        let mut said = self.threads_said(placing, outcome);
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
        if said.is_empty() {
            return None;
        }
        if let Some(local) = self.local_access_ratio {
            said.push(format!("{} local", percent(local)));
        }
        Some(said.join("; "))
    }

    fn threads_said(&self, placing: &Placing, outcome: Option<&Outcome>) -> Vec<String> {
        let (mut moved, mut undone, mut held, mut back) = (Vec::new(), Vec::new(), 0, 0);
        let (mut gone, mut failed) = (0, Vec::new());
        for (place, order) in placing.affinities.iter().enumerate() {
            let result = outcome.and_then(|outcome| outcome.affinities.get(place));
            match result.map(|outcome| &outcome.result) {
                Some(AffinityResult::Gone) => gone += 1,
                Some(AffinityResult::Failed { .. }) => failed.push(self.shown(order.thread)),
                Some(AffinityResult::Done | AffinityResult::Narrowed { .. }) | None => {
                    let known = self.threads.get(&order.thread);
                    let leaves = known.filter(|known| !order.cpus.contains(known.cpu));
                    let from =
                        |known: &Known| format!("{} {}", self.shown(order.thread), known.cpu);
                    let is_undo = placing.undone.iter().any(|u| u.thread == order.thread);
                    match (is_undo, order.core, leaves) {
                        (true, _, _) => undone.push(self.shown(order.thread)),
                        (_, None, _) => back += 1,
                        (_, Some(core), Some(known)) => {
                            moved.push(format!("{}>{core}", from(known)));
                        }
                        (_, Some(_), None) => held += 1,
                    }
                }
            }
        }
        let would = if placing.carried_out {
            ""
        } else {
            "would have "
        };
        let mut said = Vec::new();
        let mut named = |verb: &str, threads: &[String]| {
            if !threads.is_empty() {
                let number = counted(threads.len() as u64, "thread");
                said.push(format!("{would}{verb} {number} ({})", some(threads)));
            }
        };
        named("moved", &moved);
        named("undone a move of", &undone);
        named("failed to set", &failed);
        let mut numbered = |verb: &str, number: u64| {
            if number > 0 {
                said.push(format!("{would}{verb} {}", counted(number, "thread")));
            }
        };
        numbered("held", held);
        numbered("given back", back);
        numbered("came too late for", gone);
        said
    }

    fn shown(&self, thread: ThreadId) -> String {
        match self.threads.get(&thread) {
            Some(known) => format!("{} {}", known.name, thread.tid),
            None => thread.tid.to_string(),
        }
    }
}

/// The first few of these, and how many more there are.
fn some(items: &[String]) -> String {
    match items.len() {
        many if many > MOST_NAMED => {
            let more = many - MOST_NAMED;
            format!("{} and {more} more", items[..MOST_NAMED].join(", "))
        }
        _ => listed(items),
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
