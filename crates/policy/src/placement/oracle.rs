//! Oracle: the layout of threads that would cost least, according to the world's cost model.
//!
//! Problem: to judge a policy, one must know the best possible result. Rule: of all layouts of the threads,
//! or of as many as may be tried, choose the one with the lowest cost ([`crate::cost_model`]); memory stays
//! where it is. Only modelled worlds have a cost model.
//!
//! Which layouts ([`layouts`]): those that load cores and CPUs evenly, as every placement here does. Layouts
//! that differ only in which of a domain's like cores runs which thread count as one. If there are no more
//! layouts than may be tried (20,000 by default), all are tried, and the result is the best possible one.
//! If there are more, or more than 64 threads, a local search ([`search`]) starts from the current layout and
//! from those of DI, maximum-local and n-mass, and moves one thread or swaps two while that lowers the cost.
//! Its result is never worse than its starts, but its distance from the best is unknown. If the world knows a
//! cost that no layout can be below, the plan states it. The plan also states whether all layouts were tried,
//! and how many.
//!
//! Of layouts with equal cost, the current one wins, otherwise the first found. The cost of moving is not
//! counted; threads are placed again only when something changed ([`crate::changes`]). Pools of threads with
//! CPUs of their own are laid out one after the other ([`crate::pools`]); for each pool, the earlier ones
//! count where they were put, the later ones where they are. Idle threads, and threads that were never
//! counted, are left to the kernel. If the world cannot predict the cost of any layout, the threads stay
//! where they are.
//!
//! Terms: a *layout* gives every thread a CPU; its *cost* is what the modelled world predicts for it, in a
//! unit of its own. Source: the yardstick of the papers (DINO 3.3.1: best of all placements; IPM 5.2:
//! oracle); the local search is chosen here.
//!
//! Properties: every placed thread has one CPU, online and in its cpuset; no CPU has more threads than slots;
//! no layout that was tried costs less; equal input gives equal output.

pub mod layouts;
pub mod search;

use std::sync::Arc;

use numaherd_files::settings;
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{PageOrder, Signal};

use crate::changes::LastSeats;
use crate::cost_model::CostModel;
use crate::penalty::PenaltySettings;
use crate::placement::di;
use crate::placement::joint_oracle::{self, Before, PairSearch};
use crate::placement::n_mass::{self, processors::Item};
use crate::placement::slots::{At, PoolSlots};
use crate::policy::{Needs, Random};
use crate::pools::Pool;
use crate::reason::{Figure, Reason, Words};
use crate::rules::Rule;
use crate::settings::{NMassSettings, Settings};
use crate::stage::{PlacementRule, Seat, Stage};
use crate::words;
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

/// What is searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// A layout; memory stays.
    Layout,
    /// A layout with homes of memory ([`super::joint_oracle`]).
    Pair,
}

/// See the top of this file.
#[derive(Clone)]
pub struct Oracle {
    wanted: Wanted,
    cost_model: Arc<dyn CostModel>,
    settings: OracleSettings,
    n_mass: NMassSettings,
    penalties: PenaltySettings,
    last: LastSeats,
    pages: Vec<PageOrder>,
}

impl Oracle {
    /// One that looks for layouts, and has seen nothing yet.
    pub fn new(settings: &Settings, cost_model: Arc<dyn CostModel>) -> Self {
        Self::of(Wanted::Layout, settings, cost_model)
    }

    /// One that looks for layouts with homes of memory, and has seen nothing yet.
    pub fn joint(settings: &Settings, cost_model: Arc<dyn CostModel>) -> Self {
        Self::of(Wanted::Pair, settings, cost_model)
    }

    fn of(wanted: Wanted, settings: &Settings, cost_model: Arc<dyn CostModel>) -> Self {
        Self {
            wanted,
            cost_model,
            settings: settings.oracle,
            n_mass: settings.n_mass,
            penalties: settings.penalty.clone(),
            last: LastSeats::new(settings.oracle.changed_by),
            pages: Vec::new(),
        }
    }
}

impl PlacementRule for Oracle {
    fn needs(&self) -> Needs<'_> {
        Needs::of(&[Signal::CpuUse, Signal::MissRate, Signal::Residency])
    }

    fn seat(&mut self, stage: &Stage<'_>, random: &mut Random) -> Vec<Seat> {
        let (cost_model, most) = (&*self.cost_model, self.settings.layouts);
        let (penalties, n_mass) = (&self.penalties, &self.n_mass);
        let (parts, wording) = match self.wanted {
            Wanted::Layout => (Vec::new(), WORDING),
            Wanted::Pair => (cost_model.parts(), joint_oracle::WORDING),
        };
        let mut pages = Vec::new();
        let anew = || {
            let mut before = Before::of(parts);
            stage.pool_by_pool(|pool, slots| {
                let items = items(stage, pool, penalties);
                let starts = starts(&slots, stage.topology, &items, n_mass);
                let search = PairSearch::new(stage, pool, &slots, &before, cost_model, most);
                let (found, homes) = search.search(&starts, random)?;
                let cpus = slots.cpus(&found.layout);
                let ids = search.ids.clone();
                let least = match self.wanted {
                    Wanted::Layout => cost_model.least(&ids),
                    Wanted::Pair => cost_model.joint_least(&ids),
                };
                pages.extend(search.orders(&homes, &found));
                before.homes = homes;
                let placed = ids.into_iter().zip(cpus.iter().copied());
                before.placed.extend(placed);
                let cpu_of = |sits: &Option<At>| sits.map(|at| slots.cpu(at));
                let sits: Vec<Option<CpuId>> = slots.sits.iter().map(cpu_of).collect();
                let why = move |at: usize| because(wording, &found, least, sits[at]);
                Some((cpus, why))
            })
        };
        let seats = self
            .last
            .seats(stage, |thread| stage.miss_rate(thread), anew);
        self.pages = pages;
        seats
    }

    fn pages(&mut self) -> Vec<PageOrder> {
        std::mem::take(&mut self.pages)
    }
}

/// The threads of a pool as N-MASS sees them.
fn items(stage: &Stage<'_>, pool: &Pool, penalties: &PenaltySettings) -> Vec<Item> {
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

/// Where a local search starts, besides the present layout: DI's layout, maximum-local's and n-mass's.
fn starts(
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

/// Why a thread gets its seat in the layout that was found. `from` is its present CPU, if it may stay there.
fn because(of: Wording, found: &Found, least: Option<f64>, from: Option<CpuId>) -> Reason {
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
