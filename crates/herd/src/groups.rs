//! The policies of a run: what each sees of the machine, when it is asked, and how their plans are
//! joined.
//!
//! Rule: a policy that steers everything is asked as it is. Where groups have policies of their own,
//! each placement sees the whole machine: its own threads can be steered, and all others are unmanaged.
//! Those press on caches and hold CPUs, and it works with what they leave. The groups are asked in their
//! order, the rest last. Each sees the threads of the groups before it where their plans want them, so
//! that no two plans take the same core. Page orders, samples, notices and outcomes go only to the
//! paging of their process's group.
//!
//! Cadence: a group whose placement decides less often than the quickest sees the intervals in between
//! as one ([`Snapshot::with_later`]). It is asked when they add up to its own interval, to the nearest;
//! first after [`FIRST`].
//!
//! Properties: no part names another's threads; the plan of one part that has all processes is its
//! policy's own plan; what a slow part is shown sums to what happened.
//!
//! Source: chosen here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use numaherd_policy::groups::{Part, Scope};
use numaherd_policy::losses::Losses;
use numaherd_policy::{Paging, Place, PlacedThread, Random};
use numaherd_topology::Topology;
use numaherd_world::{
    Notice, PageOrder, PageOutcome, Placement, Plan, ProcessId, Sample, Sharing, Snapshot,
    Unmanaged,
};

/// When a part with a longer interval is asked for the first time: threads that suffer need not wait for
/// a whole interval.
const FIRST: Duration = Duration::from_millis(500);

/// The placements of all parts and their pagings.
pub(crate) fn halves(parts: Vec<Part>) -> (Placements, Pagings) {
    let mut placements = Vec::new();
    let mut pagings = Vec::new();
    for part in parts {
        let cadence = part.cadence();
        pagings.push((part.scope.clone(), part.paging));
        placements.push(PlacementOf {
            scope: part.scope,
            placement: part.placement,
            interval_ns: nanoseconds(cadence),
            since: None,
            asked: false,
        });
    }
    let pagings = Pagings {
        parts: pagings,
        part_of: BTreeMap::new(),
    };
    (Placements(placements), pagings)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The placements of a run, the rest's last.
pub(crate) struct Placements(Vec<PlacementOf>);

/// A placement and what it steers.
struct PlacementOf {
    scope: Scope,
    placement: Box<dyn Place>,
    /// How often it decides, in ns.
    interval_ns: u64,
    /// What has happened since it was last asked, if anything.
    since: Option<Snapshot>,
    asked: bool,
}

impl Placements {
    /// The longest that the next interval should be: the shortest that any placement asks for.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        self.0
            .iter()
            .filter_map(|part| part.placement.next_look())
            .min()
    }

    /// What the machine loses, if one placement has all threads and estimated it for the plan.
    pub(crate) fn losses(&mut self) -> Option<Losses> {
        match &mut self.0[..] {
            [only] if only.scope == Scope::All => only.placement.losses(),
            _ => None,
        }
    }

    /// See [`Place::rations`].
    pub(crate) fn rations(&self) -> Vec<(ProcessId, u64)> {
        let parts = self.0.iter();
        parts.flat_map(|part| part.placement.rations()).collect()
    }

    /// See [`Place::moved`].
    pub(crate) fn moved(&mut self, outcomes: &[PageOutcome]) {
        for part in &mut self.0 {
            part.placement.moved(outcomes);
        }
    }

    /// The joint plan of all placements.
    pub(crate) fn plan(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Plan {
        let mut plan = Plan::default();
        for part in &mut self.0 {
            let shown;
            let seen = if part.scope == Scope::All {
                snapshot
            } else {
                let Some(mut turn) = part.turn(snapshot) else {
                    continue;
                };
                mark_others(&mut turn, &part.scope);
                show_wanted(&mut turn, &plan.placements);
                shown = turn;
                &shown
            };
            let placements = part.placement.place(seen, topology, random);
            plan.placements.extend(placements);
            plan.pages.extend(part.placement.pages(seen));
            plan.releases.extend(part.placement.release(seen));
        }
        plan
    }
}

impl PlacementOf {
    /// What to show it now: all that happened since it was last asked; `None` when it is not its turn.
    fn turn(&mut self, snapshot: &Snapshot) -> Option<Snapshot> {
        let since = match self.since.take() {
            Some(since) => since.with_later(snapshot),
            None => snapshot.clone(),
        };
        let next = self.placement.next_look();
        let next = next.or_else(|| (!self.asked).then_some(FIRST));
        let wanted_ns = next.map_or(self.interval_ns, |next| {
            self.interval_ns.min(nanoseconds(next))
        });
        // To the nearest interval.
        if since.interval_ns.saturating_add(snapshot.interval_ns / 2) < wanted_ns {
            self.since = Some(since);
            return None;
        }
        self.asked = true;
        Some(since)
    }
}

/// Marks every thread of other parts' processes as unmanaged. Threads that already are keep their
/// reason.
fn mark_others(snapshot: &mut Snapshot, scope: &Scope) {
    let mut threads = std::mem::take(&mut snapshot.threads);
    for thread in threads.iter_mut().filter(|t| t.unmanaged.is_none()) {
        let process = snapshot.process(thread.process);
        let is_own = match process {
            Some(process) => scope.has(process),
            None => matches!(scope, Scope::Rest(_)),
        };
        if !is_own {
            thread.unmanaged = Some(Unmanaged::OtherPolicy);
        }
    }
    snapshot.threads = threads;
}

/// Shows where other parts' plans want their threads.
fn show_wanted(snapshot: &mut Snapshot, plan: &[Placement]) {
    for placement in plan {
        // Threads ascend in a snapshot.
        let threads = &mut snapshot.threads;
        if let Ok(at) = threads.binary_search_by_key(&placement.thread, |thread| thread.id) {
            threads[at].assigned = Some(placement.to);
        }
    }
}

/// The pagings of a run, the rest's last.
pub(crate) struct Pagings {
    parts: Vec<(Scope, Box<dyn Paging>)>,
    /// Each process's part, as of the latest snapshot; a process without a paging has none.
    part_of: BTreeMap<ProcessId, usize>,
}

impl Pagings {
    /// The paging that looks after every process, if one does.
    fn only(&mut self) -> Option<&mut dyn Paging> {
        match &mut self.parts[..] {
            [(Scope::All, paging)] => Some(&mut **paging),
            _ => None,
        }
    }

    /// Hands each paging the items of its own processes, if any; items of no part's processes are left
    /// out.
    fn deal<T: Clone>(
        &mut self,
        all: &[T],
        process: impl Fn(&T) -> ProcessId,
        mut hand: impl FnMut(&mut dyn Paging, &[T]) -> Vec<PageOrder>,
    ) -> Vec<PageOrder> {
        if let Some(only) = self.only() {
            return hand(only, all);
        }
        let dealt = self.dealt(all, process);
        let mut orders = Vec::new();
        for ((_, paging), own) in self.parts.iter_mut().zip(dealt) {
            if !own.is_empty() {
                orders.extend(hand(&mut **paging, &own));
            }
        }
        orders
    }

    fn dealt<T: Clone>(&self, all: &[T], process: impl Fn(&T) -> ProcessId) -> Vec<Vec<T>> {
        let mut dealt = vec![Vec::new(); self.parts.len()];
        for one in all {
            if let Some(&part) = self.part_of.get(&process(one)) {
                dealt[part].push(one.clone());
            }
        }
        dealt
    }

    /// See [`Paging::placed`].
    pub(crate) fn placed(
        &mut self,
        threads: &[PlacedThread],
        snapshot: &Snapshot,
    ) -> Vec<PageOrder> {
        if let Some(only) = self.only() {
            return only.placed(threads, snapshot);
        }
        let part_of = |process: &numaherd_world::Process| {
            let part = self.parts.iter().position(|(scope, _)| scope.has(process));
            Some((process.id, part?))
        };
        self.part_of = snapshot.processes.iter().filter_map(part_of).collect();
        let dealt = self.dealt(threads, |placed| placed.process);
        let mut orders = Vec::new();
        for ((scope, paging), threads) in self.parts.iter_mut().zip(dealt) {
            let mut seen = snapshot.clone();
            mark_others(&mut seen, scope);
            orders.extend(paging.placed(&threads, &seen));
        }
        orders
    }

    /// See [`Paging::runs_on`].
    pub(crate) fn runs_on(&mut self, machine: &Arc<Topology>) {
        for (_, paging) in &mut self.parts {
            paging.runs_on(machine);
        }
    }

    /// See [`Paging::rationed`].
    pub(crate) fn rationed(&mut self, rations: &[(ProcessId, u64)]) {
        for (_, paging) in &mut self.parts {
            paging.rationed(rations);
        }
    }

    /// See [`Paging::listens`].
    pub(crate) fn listens(&self) -> bool {
        self.parts.iter().any(|(_, paging)| paging.listens())
    }

    /// See [`Paging::sampled`].
    pub(crate) fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<PageOrder> {
        let process = |sample: &Sample| sample.process;
        self.deal(samples, process, |paging, samples| {
            paging.sampled(samples, topology, random)
        })
    }

    /// See [`Paging::noticed`].
    pub(crate) fn noticed(&mut self, notices: &[Notice], topology: &Topology) -> Vec<PageOrder> {
        let process = |notice: &Notice| notice.process;
        self.deal(notices, process, |paging, notices| {
            paging.noticed(notices, topology)
        })
    }

    /// See [`Paging::shared`].
    pub(crate) fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let parts = self.parts.iter_mut();
        parts.flat_map(|(_, paging)| paging.shared()).collect()
    }

    /// See [`Paging::moved`].
    pub(crate) fn moved(&mut self, outcomes: &[PageOutcome]) {
        let process = |outcome: &PageOutcome| outcome.process;
        self.deal(outcomes, process, |paging, outcomes| {
            paging.moved(outcomes);
            Vec::new()
        });
    }
}

#[cfg(test)]
mod tests;
