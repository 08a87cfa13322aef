//! The paging half of a herd: the policy's paging with its half of the governor, and what it learns
//! and says.
//!
//! It runs in one of three ways: in the placement's loop, once an interval, if the world has no
//! [`Pager`](numaherd_world::Pager); in a thread of its own at the paging cadence ([`thread`]); or in
//! the loop at the paging cadence, if the pager is in step with the world's time ([`in_step`]). All
//! three go through [`PagingHalf::round`]; [`place`] holds the one in use.

pub(crate) mod in_step;
pub(crate) mod place;
pub(crate) mod thread;

use std::sync::Arc;
use std::time::Duration;

use numaherd_policy::{PlacedThread, Random};
use numaherd_topology::Topology;
use numaherd_world::{Notice, PageOrder, PageOutcome, ProcessId, Sample, Sharing, Snapshot};

use crate::governor::{GovernedPages, PageGovernor};
use crate::groups::Pagings;
use crate::ledger::PagingTick;
use crate::settings::Settings;

/// What the placement tells the paging, once an interval.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) threads: Vec<PlacedThread>,
    /// The pages to move together with the threads.
    pub(crate) pages: Vec<PageOrder>,
    /// See [`numaherd_policy::Place::rations`].
    pub(crate) rations: Vec<(ProcessId, u64)>,
    pub(crate) snapshot: Arc<Snapshot>,
}

/// What a pager has seen since the last round.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) samples: Vec<Sample>,
    pub(crate) notices: Vec<Notice>,
}

impl Observed {
    /// When the latest of it was, in ns since the world began.
    fn latest_ns(&self) -> u64 {
        let sample = self.samples.last().map_or(0, |sample| sample.time_ns);
        let notice = self.notices.last().map_or(0, |notice| notice.time_ns);
        sample.max(notice)
    }
}

/// What is to change from now on.
pub(crate) struct PagingChange {
    /// Another policy's paging; `None` keeps the one in charge.
    pub(crate) paging: Option<Pagings>,
    /// Other random numbers; `None` goes on with those in use.
    pub(crate) random: Option<Random>,
    pub(crate) settings: Settings,
}

/// What the paging tells the placement.
#[derive(Debug)]
pub(crate) enum News {
    /// Something was wanted or done.
    Tick { time_ns: u64, tick: PagingTick },
    /// How much threads shared pages, as it found out.
    Shared(Vec<(ProcessId, Sharing)>),
    /// Paging has ended, and why.
    Ended(String),
    /// A stop has waited so long for pages being moved, and waits no longer.
    LeftBehind { waited: Duration },
}

impl News {
    /// What became of orders.
    pub(crate) fn outcomes(&self) -> &[PageOutcome] {
        match self {
            Self::Tick { tick, .. } => &tick.outcomes,
            Self::Shared(_) | Self::Ended(_) | Self::LeftBehind { .. } => &[],
        }
    }
}

/// The paging half of a policy with its half of the governor.
pub(crate) struct PagingHalf {
    paging: Pagings,
    governor: PageGovernor,
    topology: Arc<Topology>,
    random: Random,
    dry_run: bool,
    /// Samples since the last round that was recorded.
    samples: u64,
    /// Of these, samples of accesses that left the core's node.
    remote: u64,
    /// Notices since the last round that was recorded.
    notices: u64,
}

impl PagingHalf {
    /// Nothing seen yet.
    pub(crate) fn new(
        mut paging: Pagings,
        settings: &Settings,
        topology: Arc<Topology>,
        random: Random,
    ) -> Self {
        paging.runs_on(&topology);
        Self {
            paging,
            governor: PageGovernor::new(&settings.limits, &topology),
            topology,
            random,
            dry_run: settings.dry_run,
            samples: 0,
            remote: 0,
            notices: 0,
        }
    }

    /// Makes a change. If the paging is replaced, its orders that wait for bandwidth are refused.
    pub(crate) fn change(&mut self, change: PagingChange) -> Option<News> {
        self.governor.set_limits(&change.settings.limits);
        self.dry_run = change.settings.dry_run;
        if let Some(random) = change.random {
            self.random = random;
        }
        self.paging = change.paging?;
        self.paging.runs_on(&self.topology);
        let refusals = self.governor.refuse_waiting();
        (!refusals.is_empty()).then(|| News::Tick {
            time_ns: self.governor.now_ns(),
            tick: PagingTick {
                refusals,
                carried_out: !self.dry_run,
                ..PagingTick::default()
            },
        })
    }

    /// Whether samples or notices could lead to an order now.
    pub(crate) fn listens(&self) -> bool {
        self.paging.listens()
    }

    /// Whether orders wait for bandwidth: the next round may then carry them out even if nothing new
    /// is known.
    pub(crate) fn has_waiting(&self) -> bool {
        self.governor.has_waiting()
    }

    /// How much threads shared pages since the last call, as the policy found out; `None` for nothing.
    pub(crate) fn shared(&mut self) -> Option<News> {
        let shared = self.paging.shared();
        (!shared.is_empty()).then_some(News::Shared(shared))
    }

    /// One round, `passed` after the one before: takes in what is placed and what was seen since,
    /// governs what the policy then wants, has `apply` carry it out and tells the policy the outcomes.
    /// `None` if nothing is worth recording.
    pub(crate) fn round(
        &mut self,
        passed: Duration,
        told: impl IntoIterator<Item = Placed>,
        seen: &Observed,
        apply: impl FnOnce(&[PageOrder]) -> Vec<PageOutcome>,
    ) -> Option<News> {
        let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
        let now_ns = self.governor.now_ns().saturating_add(passed);
        self.governor.advance(now_ns.max(seen.latest_ns()));
        let mut plan: Vec<PageOrder> = Vec::new();
        for told in told {
            plan.extend(told.pages);
            self.paging.rationed(&told.rations);
            plan.extend(self.paging.placed(&told.threads, &told.snapshot));
            self.governor.see(told.snapshot);
        }
        let Observed { samples, notices } = seen;
        if !samples.is_empty() {
            plan.extend(
                self.paging
                    .sampled(samples, &self.topology, &mut self.random),
            );
        }
        if !notices.is_empty() {
            plan.extend(self.paging.noticed(notices, &self.topology));
        }
        self.notices += notices.len() as u64;
        self.samples += samples.len() as u64;
        self.remote += samples.iter().filter(|s| s.source.is_remote()).count() as u64;
        if plan.is_empty() && !self.has_waiting() {
            return None;
        }
        let tick = self.carry_out(plan, apply);
        (!tick.is_empty()).then(|| News::Tick {
            time_ns: self.governor.now_ns(),
            tick: PagingTick {
                samples: std::mem::take(&mut self.samples),
                remote: std::mem::take(&mut self.remote),
                notices: std::mem::take(&mut self.notices),
                ..tick
            },
        })
    }

    /// Governs a plan, has it carried out and tells the paging the outcomes.
    fn carry_out(
        &mut self,
        plan: Vec<PageOrder>,
        apply: impl FnOnce(&[PageOrder]) -> Vec<PageOutcome>,
    ) -> PagingTick {
        let governed = self.governor.govern(&plan);
        let mut tick = PagingTick {
            carried_out: !self.dry_run,
            ordered_pages: self.governor.pages_in(&governed.orders),
            ..PagingTick::default()
        };
        let mut told = not_tried(&plan, &governed);
        if !self.dry_run && !governed.orders.is_empty() {
            tick.outcomes = apply(&governed.orders);
            self.governor.carried_out(&governed.orders, &tick.outcomes);
            told.extend(tick.outcomes.iter().cloned());
        }
        if !told.is_empty() {
            self.paging.moved(&told);
        }
        tick.plan = plan;
        tick.waiting = governed.waiting;
        tick.refusals = governed.refusals;
        tick
    }
}

/// The policy's view of orders refused for lack of bandwidth: nothing was tried.
fn not_tried(plan: &[PageOrder], governed: &GovernedPages) -> Vec<PageOutcome> {
    governed
        .refusals
        .iter()
        .filter(|refusal| refusal.guard.is_for_bandwidth())
        .filter_map(|refusal| Some((refusal, plan.get(refusal.entry?)?)))
        .map(|(refusal, order)| PageOutcome::not_tried(order, refusal.why.clone()))
        .collect()
}
