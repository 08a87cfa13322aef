//! Oracle: the layout that would cost least, told by a world that can be asked.
//!
//! Problem: how good a policy is shows only beside the best that could be had. Rule: of all layouts
//! of the threads, or of as many as may be tried, that of the lowest cost ([`crate::cost_model`]);
//! memory stays where it is. Only modelled worlds can be asked.
//!
//! Which layouts ([`layouts`]): those that load cores and CPUs evenly, as every placement here does;
//! of layouts that differ only in which of a domain's like cores runs which thread, one. Where there
//! are no more of them than may be tried (20,000 unless set otherwise), all are tried, and the
//! answer is the best there is. Beyond that, and for more than 64 threads, a local search ([`search`]): from where the threads are,
//! from DI's layout, maximum-local's and n-mass's, moving one thread or swapping two while that
//! lowers the cost. It is never worse than its starts. How far it is from the best nobody knows,
//! unless the world knows a cost that no layout can be below: then the plan names it. The plan says
//! which of the two it was and how many layouts were tried.
//!
//! Layouts of equal cost: where the threads are wins, else the first found. The cost of moving is
//! not part of it; threads are placed anew only when something changed ([`crate::changes`]). Pools
//! of threads with CPUs of their own are laid out one after the other ([`crate::pools`]), each with
//! those before it where they have been put and those after it where they are. Threads that sleep,
//! or were never counted, are left to the kernel. A world that cannot tell a single layout's cost
//! leaves the threads where they are.
//!
//! Terms: a *layout* gives every thread a CPU; its *cost* is what the modelled world says that it comes
//! to, in a unit of its own. Source: the yardstick of the papers (DINO 3.3.1: best of all placements; IPM
//! 5.2: oracle); the local search is chosen here.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more than its
//! slots; no layout that was tried costs less; equal input gives equal output.

pub mod layouts;
pub mod search;

use std::sync::Arc;

use numaherd_files::settings;
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{Signal, ThreadId};

use crate::changes::LastSeats;
use crate::cost_model::CostModel;
use crate::penalty::PenaltySettings;
use crate::placement::di;
use crate::placement::n_mass::{self, processors::Item};
use crate::placement::slots::{At, PoolSlots};
use crate::policy::{Needs, Random};
use crate::pools::Pool;
use crate::reason::{Figure, Reason, Words};
use crate::rules::Rule;
use crate::settings::{NMassSettings, Settings};
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
use layouts::Space;
use search::Found;

/// The rules that plans name.
pub const RULES: &[Rule] = &[BEST, BEST_FOUND];
const BEST: Rule = Rule {
    name: "oracle: best of all",
    source: "baseline of the papers",
    what: "No layout of the threads would cost less: all were tried.",
};
const BEST_FOUND: Rule = Rule {
    name: "oracle: best found",
    source: "baseline of the papers; local search chosen here",
    what: "Of the layouts that were tried none would cost less; there are more than may be tried.",
};

const WORDING: Wording = Wording {
    rules: [BEST, BEST_FOUND],
    costs: "the layout costs",
    tried: "layouts",
};

settings! {
    /// How long `oracle` searches for the best layout; it runs in modelled worlds only.
    #[derive(Copy)]
    pub struct OracleSettings {
        /// How many layouts are tried at most; if there are no more than that, all are.
        layouts: usize = 20_000, unit: "layouts", range: 1.0..=f64::MAX, source: "chosen here";
        /// Threads are placed anew when a miss rate changes by more than this.
        changed_by: f64 = 0.2, unit: "share of a miss rate", range: 0.0..=f64::MAX, source: "as N-MASS 3.4";
    }
}

/// See the top of this file.
#[derive(Clone)]
pub struct Oracle {
    cost_model: Arc<dyn CostModel>,
    settings: OracleSettings,
    n_mass: NMassSettings,
    penalties: PenaltySettings,
    last: LastSeats,
}

impl Oracle {
    /// Nothing seen yet.
    pub fn new(settings: &Settings, cost_model: Arc<dyn CostModel>) -> Self {
        Self {
            cost_model,
            settings: settings.oracle,
            n_mass: settings.n_mass,
            penalties: settings.penalty.clone(),
            last: LastSeats::new(settings.oracle.changed_by),
        }
    }
}

impl PlacementRule for Oracle {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate, Signal::Residency])
    }

    fn seat(&mut self, stage: &Stage<'_>, random: &mut Random) -> Vec<Seat> {
        let (cost_model, most) = (&self.cost_model, self.settings.layouts);
        let (penalties, n_mass) = (&self.penalties, &self.n_mass);
        let anew = || {
            // The threads of earlier pools, where they are put.
            let mut placed: Vec<(ThreadId, CpuId)> = Vec::new();
            stage.pool_by_pool(|pool, slots| {
                let starts = starts(
                    &slots,
                    stage.topology,
                    &items(stage, pool, penalties),
                    n_mass,
                );
                let ids: Vec<ThreadId> =
                    (pool.busy.iter().map(|&thread| stage.thread(thread).id)).collect();
                let space = Space::new(&slots, stage.topology, ids.len());
                let cost = |layout: &[At]| {
                    let own = ids.iter().copied().zip(slots.cpus(layout));
                    let all: Vec<_> = placed.iter().copied().chain(own).collect();
                    cost_model.cost(&all).filter(|cost| !cost.is_nan())
                };
                let found = search::search(&space, &slots, &starts, most, cost, random)?;
                let cpus = slots.cpus(&found.layout);
                let least = cost_model.least(&ids);
                placed.extend(ids.into_iter().zip(cpus.iter().copied()));
                let why = move |at: usize| {
                    let from = slots.sits[at].map(|sits| slots.cpu(sits));
                    because(WORDING, &found, least, from)
                };
                Some((cpus, why))
            })
        };
        self.last
            .seats(stage, |thread| stage.miss_rate(thread), anew)
    }
}

/// The threads of a pool as N-MASS sees them.
pub(super) fn items(stage: &Stage<'_>, pool: &Pool, penalties: &PenaltySettings) -> Vec<Item> {
    let item = |&thread: &usize| {
        let here = stage.topology.node_of(stage.thread(thread).place());
        let miss_rate = stage.miss_rate(thread);
        Item {
            home: stage.home(thread).or(here).unwrap_or(NodeId(0)),
            miss_rate,
            penalty: penalties.of(stage.process_name(thread), miss_rate),
        }
    };
    pool.busy.iter().map(item).collect()
}

/// Where a local search starts besides where the threads are: DI's layout, maximum-local's and
/// n-mass's.
pub(super) fn starts(
    slots: &PoolSlots,
    topology: &Topology,
    items: &[Item],
    settings: &NMassSettings,
) -> Vec<Vec<At>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| items[b].miss_rate.total_cmp(&items[a].miss_rate));
    let mut starts = vec![di::deal(slots, &order, di::Deal::OneWay)];
    for refined in [None, Some(settings)] {
        starts.push(n_mass::lay_out(slots, topology, items, refined));
    }
    starts
}

/// How a search over layouts words what it found.
#[derive(Clone, Copy)]
pub(super) struct Wording {
    /// The rule where all were tried, and where not.
    pub(super) rules: [Rule; 2],
    /// What has a cost: `the layout costs`.
    pub(super) costs: &'static str,
    /// What was tried, each with a cost: `layouts`.
    pub(super) tried: &'static str,
}

/// Why a thread gets its seat in the layout that was found. `from` is its CPU, where it may stay there.
pub(super) fn because(
    of: Wording,
    found: &Found,
    least: Option<f64>,
    from: Option<CpuId>,
) -> Reason {
    let cost = |cost| Figure::Measured(cost, 4);
    let [best, best_found] = of.rules;
    let costs = words!(
        "{costs} {cost}, the least of ",
        costs = of.costs.to_owned(),
        cost = cost(found.cost),
    );
    let (tried, what) = (found.tried, of.tried.to_owned());
    let (rule, why) = if found.all {
        (best, costs.and(words!("all {tried} {what}", tried, what)))
    } else {
        let tried = words!(
            "{tried} {what} tried by local search, which ended ",
            tried,
            what
        );
        let ended = match found.exhausted {
            true => words!("when no more may be tried"),
            false => words!("where no change lowers it"),
        };
        let bound = match least {
            Some(least) => words!("; none can cost less than {least}", least = cost(least)),
            None => words!("; how much less another would cost is not known"),
        };
        (best_found, costs.and(tried).and(ended).and(bound))
    };
    let instead_of = |from: CpuId| -> Words {
        match found.before {
            None => words!("CPU {from}: part of a layout whose cost is not known", from),
            Some(before) => words!(
                "CPU {from}: part of a layout of cost {before}",
                from,
                before = cost(before)
            ),
        }
    };
    rule.because(why).instead_of(from.map(instead_of))
}

#[cfg(test)]
mod tests;
