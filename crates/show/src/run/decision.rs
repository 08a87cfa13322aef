//! A decision and its outcome: what was wanted for a thread or for pages, by which rule, what the
//! governor said, and what happened.
//!
//! [`Decision`] is what the model keeps. [`ThreadDecision`] and [`PageDecision`] are the same while the
//! line is being read: they borrow from it, so that a reader pays only for what it keeps.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use numaherd_herd::governor::{Stolen, Undone};
use numaherd_herd::ledger::{PagingTick, Placing};
use numaherd_herd::{Guard, Line, Refusal};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{
    AffinityOrder, AffinityResult, Outcome, PageOrder, PageOutcome, Placement, ProcessId, Release,
    Snapshot, Thread, ThreadId,
};
use serde::{Serialize, Serializer};

/// The most decisions that are kept.
const MOST_LOGGED: usize = 2_000;

/// What came of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionOutcome {
    /// The thread had to leave its CPU, or pages were ordered to move.
    Moved,
    /// A move of the thread was undone.
    Undone,
    /// The thread was held where it had to wait, and was given to an idle node.
    Stolen,
    /// A dry run would have carried it out.
    Planned,
    /// The kernel refused.
    Failed,
    /// The governor refused.
    Refused(Guard),
    /// It waits for bandwidth.
    Waiting,
}

/// What a decision is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Subject {
    /// A thread was to leave its CPU.
    Thread {
        /// The CPU it was on.
        from: CpuId,
        /// The node of that CPU.
        from_node: Option<NodeId>,
        /// The CPU it was given; `None` for the kernel's choice.
        to: Option<CpuId>,
        /// The node of that CPU.
        to_node: Option<NodeId>,
    },
    /// Pages were to move to a node.
    Pages {
        /// The node.
        to: NodeId,
        /// Base pages moved, as read back.
        moved: u64,
        /// Base pages that were to move and did not.
        left: u64,
    },
}

/// A decision and its outcome. A thread that is refused the same in one interval after another is one
/// decision; so are the pages of a process that go to one node between two snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Counts up by one from decision to decision of a run.
    pub number: u64,
    /// When, in ns since the world began.
    pub time_ns: u64,
    /// The thread, or the one for which pages were to move.
    pub thread: ThreadId,
    /// Its name then; empty where it was not seen.
    pub thread_name: String,
    /// Its process, where that is known.
    pub process: Option<ProcessId>,
    /// The process's name, or that of the virtual machine that it runs; empty where it was not seen.
    pub process_name: String,
    /// What was to happen.
    pub subject: Subject,
    /// What came of it.
    pub outcome: DecisionOutcome,
    /// The rule that decided; empty where the governor decided by itself.
    pub rule: String,
    /// Why, in one sentence.
    pub why: String,
    /// What else was considered and why it lost; may be empty.
    pub instead_of: String,
    /// What the governor or the kernel said to it; empty where it was simply done.
    pub answer: String,
}

impl Decision {
    /// Whether something is elsewhere because of it, or would be but for the dry run.
    pub fn is_move(&self) -> bool {
        match self.outcome {
            DecisionOutcome::Planned => true,
            DecisionOutcome::Moved | DecisionOutcome::Undone | DecisionOutcome::Stolen => {
                !matches!(self.subject, Subject::Pages { moved: 0, .. })
            }
            _ => false,
        }
    }

    /// Why, or for one that failed, the error.
    pub fn reason(&self) -> &str {
        match self.outcome {
            DecisionOutcome::Failed => &self.answer,
            _ => &self.why,
        }
    }
}

/// The form that `status` has always had; only decisions about threads are in it.
impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'d> {
            time_ns: u64,
            thread: ThreadId,
            thread_name: &'d str,
            process: Option<ProcessId>,
            process_name: &'d str,
            did: DecisionOutcome,
            from: Option<CpuId>,
            to: Option<CpuId>,
            from_node: Option<NodeId>,
            to_node: Option<NodeId>,
            rule: &'d str,
            why: &'d str,
            instead_of: &'d str,
        }
        let (from, from_node, to, to_node) = match self.subject {
            Subject::Thread {
                from,
                from_node,
                to,
                to_node,
            } => (Some(from), from_node, to, to_node),
            Subject::Pages { to, .. } => (None, None, None, Some(to)),
        };
        Form {
            time_ns: self.time_ns,
            thread: self.thread,
            thread_name: &self.thread_name,
            process: self.process,
            process_name: &self.process_name,
            did: self.outcome,
            from,
            to,
            from_node,
            to_node,
            rule: &self.rule,
            why: self.reason(),
            instead_of: &self.instead_of,
        }
        .serialize(serializer)
    }
}

/// The latest decisions.
#[derive(Clone, Debug, Default)]
pub struct DecisionLog {
    latest: VecDeque<Arc<Decision>>,
    number: u64,
}

impl DecisionLog {
    /// The latest, oldest first.
    pub fn latest(&self) -> impl DoubleEndedIterator<Item = &Arc<Decision>> + ExactSizeIterator {
        self.latest.iter()
    }

    /// How many there were in all.
    pub fn number(&self) -> u64 {
        self.number
    }

    fn place(&self, number: u64) -> Option<usize> {
        let first = self.number - self.latest.len() as u64;
        usize::try_from(number.checked_sub(first)?).ok()
    }

    /// The decision of this number, if it is still kept.
    pub fn get(&self, number: u64) -> Option<&Arc<Decision>> {
        self.latest.get(self.place(number)?)
    }

    /// Adds a decision under the next number.
    pub(super) fn add(&mut self, mut decision: Decision) -> Arc<Decision> {
        decision.number = self.number;
        self.number += 1;
        if self.latest.len() == MOST_LOGGED {
            self.latest.pop_front();
        }
        let decision = Arc::new(decision);
        self.latest.push_back(decision.clone());
        decision
    }

    /// Changes the decision of this number, if it is still kept.
    pub(super) fn change(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Decision),
    ) -> Option<Arc<Decision>> {
        let at = self.place(number)?;
        let decision = self.latest.get_mut(at)?;
        change(Arc::make_mut(decision));
        Some(decision.clone())
    }
}

/// What one entry of a plan, or one order, came to: a placing joined with its outcome.
#[derive(Clone, Copy, Debug)]
pub struct ThreadDecision<'l> {
    /// The number of the record that holds it, and of its outcome's.
    pub(crate) record: u64,
    pub(crate) outcome_record: Option<u64>,
    pub(crate) time_ns: u64,
    pub(crate) thread: ThreadId,
    pub(crate) placing: &'l Placing,
    /// The snapshot that it was drawn from, where that is recorded, and the thread in it.
    pub(crate) snapshot: Option<&'l Snapshot>,
    pub(crate) seen: Option<&'l Thread>,
    /// What the plan wanted of the thread: a core, or that it gets its own affinity back.
    pub(crate) placement: Option<&'l Placement>,
    pub(crate) release: Option<&'l Release>,
    pub(crate) refusal: Option<&'l Refusal>,
    pub(crate) order: Option<&'l AffinityOrder>,
    pub(crate) undone: Option<&'l Undone>,
    pub(crate) stolen: Option<&'l Stolen>,
    /// `None` where nothing was carried out, or the ledger ends before it says.
    pub(crate) result: Option<&'l AffinityResult>,
    /// The CPU that it was on.
    pub(crate) was_on: Option<CpuId>,
}

impl<'l> ThreadDecision<'l> {
    /// What a placing decided, refusals first, then orders in their order. `latest` is the latest
    /// snapshot, which is not always the one that the placing was drawn from.
    pub(super) fn of(
        line: &Line,
        placing: &'l Placing,
        outcome: Option<(u64, &'l Outcome)>,
        latest: Option<&'l Snapshot>,
    ) -> Vec<Self> {
        let snapshot = latest.filter(|snapshot| snapshot.sequence == placing.snapshot);
        let plan = &placing.plan.placements;
        let releases = &placing.plan.releases;
        let of_thread = |thread: ThreadId| Self {
            record: line.sequence,
            outcome_record: outcome.map(|(record, _)| record),
            time_ns: line.time_ns,
            thread,
            placing,
            snapshot,
            seen: snapshot.and_then(|snapshot| snapshot.thread(thread)),
            placement: None,
            release: None,
            refusal: None,
            order: None,
            undone: None,
            stolen: None,
            result: None,
            was_on: None,
        };
        let refused = placing.refusals.iter().map(|refusal| Self {
            placement: refusal.entry.and_then(|entry| plan.get(entry)),
            release: refusal
                .entry
                .and_then(|entry| releases.get(entry.checked_sub(plan.len())?)),
            refusal: Some(refusal),
            ..of_thread(refusal.thread)
        });
        let entries_refused: BTreeSet<usize> =
            placing.refusals.iter().filter_map(|r| r.entry).collect();
        let kept = plan.iter().enumerate();
        let kept: BTreeMap<ThreadId, &Placement> = kept
            .filter(|(entry, _)| !entries_refused.contains(entry))
            .map(|(_, placement)| (placement.thread, placement))
            .collect();
        let ordered = placing.affinities.iter().enumerate().map(|(at, order)| {
            let result = outcome.and_then(|(_, outcome)| outcome.affinities.get(at));
            let result = result.filter(|result| result.thread == order.thread);
            let mut decision = Self {
                placement: kept.get(&order.thread).copied(),
                release: releases.iter().find(|r| r.thread == order.thread),
                order: Some(order),
                undone: placing.undone.iter().find(|u| u.thread == order.thread),
                stolen: placing.stolen.iter().find(|s| s.thread == order.thread),
                result: result.map(|result| &result.result),
                ..of_thread(order.thread)
            };
            decision.was_on = decision.on_cpu();
            decision
        });
        refused.chain(ordered).collect()
    }

    /// The CPU that it was seen on, or, where that snapshot is not recorded, the one that the decision
    /// names.
    fn on_cpu(&self) -> Option<CpuId> {
        if self.snapshot.is_some() {
            return Some(self.seen?.cpu);
        }
        let planned = self.placement.map(|placement| placement.from);
        let stolen = self.stolen.map(|stolen| stolen.from);
        planned.or(stolen).or(self.undone.map(|undone| undone.from))
    }

    /// Whether it gives the thread back to the kernel.
    pub(crate) fn is_release(&self) -> bool {
        let has_reason = self.placement.is_some() || self.undone.is_some() || self.stolen.is_some();
        self.order.is_some() && !has_reason
    }

    /// Whether the CPU that the thread was on is not among those that it may have from now on. A mask
    /// that contains that CPU moves nothing.
    pub(crate) fn leaves(&self) -> bool {
        let cpus = self.order.zip(self.was_on);
        cpus.is_some_and(|(order, cpu)| !order.cpus.contains(cpu))
    }

    /// Whether it was carried out, as read back.
    pub(crate) fn is_done(&self) -> bool {
        matches!(
            self.result,
            Some(AffinityResult::Done | AffinityResult::Narrowed { .. })
        )
    }

    /// Whether the thread had to leave its CPU.
    pub(crate) fn is_move(&self) -> bool {
        self.is_done() && self.leaves() && !self.is_release()
    }

    /// The plan's entry, where the plan decided and not the governor by itself.
    pub(crate) fn by_plan(&self) -> Option<&'l Placement> {
        let by_itself = self.undone.is_some() || self.stolen.is_some();
        self.placement.filter(|_| !by_itself)
    }

    fn error(&self) -> Option<&'l str> {
        match self.result {
            Some(AffinityResult::Failed { error }) => Some(error),
            _ => None,
        }
    }

    /// Why, by whoever decided.
    pub(crate) fn why(&self) -> &'l str {
        let undone = self.undone.map(|undone| undone.why.as_str());
        let stolen = self.stolen.map(|stolen| stolen.why.as_str());
        let planned = self.placement.map(|placement| placement.why.as_str());
        undone.or(stolen).or(planned).unwrap_or_default()
    }

    /// What came of it; `None` where nothing happened to the thread.
    pub(crate) fn outcome(&self) -> Option<DecisionOutcome> {
        if let Some(refusal) = self.refusal {
            return Some(DecisionOutcome::Refused(refusal.guard));
        }
        match self.is_release() {
            true => None,
            _ if !self.placing.carried_out => self.leaves().then_some(DecisionOutcome::Planned),
            _ if self.error().is_some() => Some(DecisionOutcome::Failed),
            _ if !self.is_done() => None,
            _ if self.undone.is_some() => Some(DecisionOutcome::Undone),
            _ if self.stolen.is_some() => Some(DecisionOutcome::Stolen),
            _ => self.leaves().then_some(DecisionOutcome::Moved),
        }
    }

    /// What the governor or the kernel said.
    pub(super) fn answer(&self) -> String {
        match self.refusal {
            Some(refusal) => format!("{}: {}", refusal.guard, refusal.why),
            None => self.error().unwrap_or_default().to_owned(),
        }
    }

    /// The CPUs from and to which the thread was to go.
    pub(super) fn way(&self) -> Option<(CpuId, Option<CpuId>)> {
        match self.order {
            Some(order) => Some((self.was_on?, order.core)),
            None => self.placement.map(|wish| (wish.from, Some(wish.to))),
        }
    }
}

/// What one page order came to: the plan's entry joined with its refusal or outcome. An order that had
/// waited has its outcome in a later tick than its plan.
#[derive(Clone, Copy, Debug)]
pub struct PageDecision<'l> {
    /// The number of the record that holds it.
    pub(crate) record: u64,
    pub(crate) time_ns: u64,
    pub(crate) tick: &'l PagingTick,
    pub(crate) thread: ThreadId,
    pub(crate) process: Option<ProcessId>,
    /// `None` where it had waited and is in an earlier part of the ledger.
    pub(crate) order: Option<&'l PageOrder>,
    /// Whether the order is in this tick's plan.
    pub(crate) is_planned: bool,
    pub(crate) refusal: Option<&'l Refusal>,
    pub(crate) is_waiting: bool,
    pub(crate) outcome: Option<&'l PageOutcome>,
}

/// Orders that wait for bandwidth.
pub(super) type WaitingOrders = BTreeMap<(ProcessId, ThreadId), PageOrder>;

impl<'l> PageDecision<'l> {
    /// What a tick decided: the plan's entries, then what became of orders that had waited before it.
    pub(super) fn of(line: &Line, tick: &'l PagingTick, waited: &'l WaitingOrders) -> Vec<Self> {
        let of_thread = |thread| Self {
            record: line.sequence,
            time_ns: line.time_ns,
            tick,
            thread,
            process: None,
            order: None,
            is_planned: false,
            refusal: None,
            is_waiting: false,
            outcome: None,
        };
        let mut refusals: HashMap<usize, &Refusal> = HashMap::new();
        let mut decisions = Vec::new();
        for refusal in &tick.refusals {
            if let Some(entry) = refusal.entry {
                refusals.insert(entry, refusal);
                continue;
            }
            // A thread is of one process, so its number is enough to find the order.
            let order = waited.values().find(|order| order.thread == refusal.thread);
            decisions.push(Self {
                process: order.map(|order| order.process),
                order,
                refusal: Some(refusal),
                ..of_thread(refusal.thread)
            });
        }
        // Outcomes are in the order of the plan, so the first of them is nearly always the one.
        let mut outcomes: VecDeque<&PageOutcome> = tick.outcomes.iter().collect();
        for (entry, order) in tick.plan.iter().enumerate() {
            let refusal = refusals.get(&entry).copied();
            let is_waiting = refusal.is_none() && tick.waiting.contains(&entry);
            let is_ordered = refusal.is_none() && !is_waiting;
            let place = || outcomes.iter().position(|outcome| is_of(outcome, order));
            let place = is_ordered.then(place).flatten();
            decisions.push(Self {
                process: Some(order.process),
                order: Some(order),
                is_planned: true,
                refusal,
                is_waiting,
                outcome: place.and_then(|place| outcomes.remove(place)),
                ..of_thread(order.thread)
            });
        }
        decisions.extend(outcomes.into_iter().map(|outcome| Self {
            process: Some(outcome.process),
            order: waited.get(&(outcome.process, outcome.thread)),
            outcome: Some(outcome),
            ..of_thread(outcome.thread)
        }));
        decisions
    }

    /// What came of it.
    pub(crate) fn outcome(&self) -> DecisionOutcome {
        match (self.refusal, self.outcome) {
            (Some(refusal), _) => DecisionOutcome::Refused(refusal.guard),
            (None, Some(outcome)) if outcome.error.is_some() && outcome.moved == 0 => {
                DecisionOutcome::Failed
            }
            (None, _) if self.is_waiting => DecisionOutcome::Waiting,
            (None, None) if !self.tick.carried_out => DecisionOutcome::Planned,
            _ => DecisionOutcome::Moved,
        }
    }

    /// The node that the pages were to go to.
    pub(super) fn to(&self) -> Option<NodeId> {
        let ordered = self.order.map(|order| order.to);
        self.outcome.map(|outcome| outcome.to).or(ordered)
    }
}

fn is_of(outcome: &PageOutcome, order: &PageOrder) -> bool {
    (outcome.process, outcome.thread, outcome.pages, outcome.to)
        == (order.process, order.thread, order.pages, order.to)
}
