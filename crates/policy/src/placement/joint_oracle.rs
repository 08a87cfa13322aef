//! Joint oracle: the layout of threads and the homes of pages that would together cost least.
//!
//! Problem: `oracle` leaves memory where it is, so a policy that moves pages can beat it, and its cost does
//! not bound such policies. Rule: of all pairs of a layout of the threads and homes of their memory, or of as
//! many as may be tried, choose the pair with the lowest cost ([`crate::cost_model`]). Only the contention
//! model can predict the cost of homes.
//!
//! Which layouts: those of `oracle`. Which homes ([`homes`]): each part of the memory (the pages that all
//! threads of a process use, and those of each thread) stays, or is spread over nodes by weights: quarters, or
//! the next finer fraction that divides evenly among all nodes with memory. If there are no more pairs than
//! may be tried (`oracle.layouts`), all are tried, and the result is the best possible one.
//!
//! If there are more, layouts and homes are searched in turn. Each layout is tried with memory where it is,
//! with memory at its threads, with memory spread evenly, and with the homes found last; then the homes for
//! the best layout are improved part by part. This repeats while it lowers the cost. So the pair never costs
//! more than the layout that `oracle` finds within as many tries, with memory where it is or at its threads.
//! The distance from the best pair is unknown. If the world knows a cost that no pair can be below, the plan
//! states it.
//!
//! Of pairs with equal cost, the one that leaves threads and pages in place wins. The cost of moving is not
//! counted; threads and pages are placed again only when something changed ([`crate::changes`]), for instance
//! a home. Where they change often, it moves so much that leaving all as it is may take less time: as a bound,
//! `numaherd reproduce adaptive` uses the lesser of the joint oracle's time and that of Linux.
//!
//! Pools of threads are treated one after the other, as by `oracle`.
//!
//! Terms: a *home* is the set of nodes that a part of memory is spread over, with their weights. Source: the
//! yardstick is chosen here; published oracles place either threads or pages (DINO 3.3.1; IPM 5.2). Weights
//! instead of one node: BWAP (IPDPS 2020).
//!
//! Properties: no pair that was tried costs less; if all are tried, none does; equal input gives equal output;
//! no order names a part that stays.

pub mod homes;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use numaherd_topology::{CpuId, Topology};
use numaherd_world::{MemoryPart, PageOrder, Pages, ProcessId, ThreadId};

use crate::cost_model::{CostModel, Home};
use crate::placement::oracle::Wording;
use crate::placement::oracle::layouts::Space;
use crate::placement::oracle::search::{self, Found};
use crate::placement::slots::{At, PoolSlots};
use crate::policy::Random;
use crate::pools::Pool;
use crate::rules::Rule;
use crate::stage::Stage;
use homes::Homes;

/// The rules that plans name.
pub const RULES: &[Rule] = &[BEST, BEST_FOUND];
const BEST: Rule = Rule {
    name: "joint-oracle: best of all",
    source: "chosen here",
    what: "No layout of the threads would cost less, wherever their memory were: all were tried.",
};
const BEST_FOUND: Rule = Rule {
    name: "joint-oracle: best found",
    source: "chosen here",
    what: "Of the layouts and homes of memory that were tried none would cost less; there are more than may \
           be tried.",
};

/// How the pair that was found is worded.
pub(super) const WORDING: Wording = Wording {
    rules: [BEST, BEST_FOUND],
    costs: "layout and memory cost",
    tried: "pairs of a layout and homes of memory",
};

/// The memory whose homes are searched, and what earlier pools have been given.
pub(super) struct Before {
    parts: Vec<MemoryPart>,
    pub(super) homes: Vec<Home>,
    pub(super) placed: Vec<(ThreadId, CpuId)>,
}

impl Before {
    /// Nothing given yet: all of the memory stays.
    pub(super) fn of(parts: Vec<MemoryPart>) -> Self {
        Self {
            homes: vec![None; parts.len()],
            placed: Vec::new(),
            parts,
        }
    }
}

/// The search for the pair of least cost for one pool; without parts of memory, for the layout of least cost.
pub(super) struct PairSearch<'a> {
    before: &'a Before,
    cost_model: &'a dyn CostModel,
    topology: &'a Topology,
    slots: &'a PoolSlots,
    space: Space,
    pub(super) ids: Vec<ThreadId>,
    processes: Vec<ProcessId>,
    /// The parts whose home is searched, as places in `before.parts`.
    own: Vec<usize>,
    homes: Homes,
    most: usize,
    tried: Cell<usize>,
}

impl<'a> PairSearch<'a> {
    pub(super) fn new(
        stage: &Stage<'a>,
        pool: &Pool,
        slots: &'a PoolSlots,
        before: &'a Before,
        cost_model: &'a dyn CostModel,
        most: usize,
    ) -> Self {
        let threads = || pool.busy.iter().map(|&thread| stage.thread(thread));
        let processes: Vec<ProcessId> = threads().map(|thread| thread.process).collect();
        let is_own = |&at: &usize| {
            let (part, home) = (&before.parts[at], &before.homes[at]);
            home.is_none() && processes.contains(&part.process)
        };
        let own: Vec<usize> = (0..before.parts.len()).filter(is_own).collect();
        let allowed = |&at: &usize| {
            let process = stage.snapshot.process(before.parts[at].process);
            let nodes = stage.topology.nodes().iter();
            let nodes = nodes.filter(|node| node.has_memory());
            let nodes = nodes.map(|node| node.id);
            nodes
                .filter(|&node| process.is_none_or(|known| known.allowed_nodes.contains(node)))
                .collect()
        };
        Self {
            homes: Homes::new(own.iter().map(allowed).collect()),
            space: Space::new(slots, stage.topology, pool.busy.len()),
            ids: threads().map(|thread| thread.id).collect(),
            topology: stage.topology,
            tried: Cell::new(0),
            processes,
            own,
            before,
            cost_model,
            slots,
            most,
        }
    }

    /// The pair of least cost that was tried: the layout, and homes of all parts.
    pub(super) fn search(
        &self,
        starts: &[Vec<At>],
        random: &mut Random,
    ) -> Option<(Found, Vec<Home>)> {
        if self.own.is_empty() {
            let cost = |layout: &[At]| self.cost(layout, &[]);
            let found = search::search(&self.space, self.slots, starts, self.most, cost, random)?;
            return Some((found, self.with(&[])));
        }
        let homes = self.homes.count_up_to(self.most);
        let pairs = homes.and_then(|homes| self.space.count_up_to(self.most / homes.max(1)));
        let (mut found, own) = match pairs {
            Some(_) => self.all(starts, random)?,
            None => self.in_turn(starts, random)?,
        };
        found.all = pairs.is_some();
        found.tried = self.tried.get();
        found.exhausted = found.tried >= self.most;
        Some((found, self.with(&own)))
    }

    /// The orders that take the parts whose homes were searched to these homes.
    pub(super) fn orders(&self, homes: &[Home], found: &Found) -> Vec<PageOrder> {
        let own = self.own.iter();
        own.flat_map(|&part| orders(&self.before.parts[part], &homes[part], found))
            .collect()
    }

    /// Tries every pair.
    fn all(&self, starts: &[Vec<At>], random: &mut Random) -> Option<(Found, Vec<Home>)> {
        let of_layout = |layout: &[At]| {
            let mut best: Option<(f64, Vec<Home>)> = None;
            self.homes.walk(|homes| {
                let cost = self.cost(layout, homes);
                if let Some(cost) = cost
                    && (best.as_ref()).is_none_or(|(least, _)| search::is_lower(cost, *least))
                {
                    best = Some((cost, homes.to_vec()));
                }
            });
            best
        };
        let cost = |layout: &[At]| of_layout(layout).map(|(cost, _)| cost);
        let found = search::search(&self.space, self.slots, starts, self.most, cost, random)?;
        // The present layout was tried once more, which does not count.
        let tried = self.tried.get();
        let (_, homes) = of_layout(&found.layout)?;
        let each = self.tried.get() - tried;
        self.tried.set(found.tried * each);
        Some((found, homes))
    }

    /// Searches layouts and homes in turn.
    fn in_turn(&self, starts: &[Vec<At>], random: &mut Random) -> Option<(Found, Vec<Home>)> {
        let mut starts = starts.to_vec();
        let mut best: Option<(Found, Vec<Home>)> = None;
        let last: RefCell<Option<Vec<Home>>> = RefCell::new(None);
        loop {
            let of_layout = |layout: &[At]| {
                let mut candidates = vec![
                    vec![None; self.own.len()],
                    self.with_threads(layout),
                    self.homes.even(),
                ];
                candidates.extend(last.borrow().clone());
                let mut best: Option<(f64, Vec<Home>)> = None;
                for homes in candidates {
                    if self.tried.get() >= self.most {
                        break;
                    }
                    if let Some(cost) = self.cost(layout, &homes)
                        && (best.as_ref()).is_none_or(|(least, _)| search::is_lower(cost, *least))
                    {
                        best = Some((cost, homes));
                    }
                }
                best
            };
            let known = RefCell::new(Vec::new());
            let cost = |layout: &[At]| {
                let (cost, homes) = of_layout(layout)?;
                let mut known = known.borrow_mut();
                let is_best =
                    |(_, least, _): &(Vec<At>, f64, Vec<Home>)| search::is_lower(cost, *least);
                if known.last().is_none_or(is_best) {
                    known.push((layout.to_vec(), cost, homes));
                }
                Some(cost)
            };
            // A part of the tries is for homes.
            let layouts = (self.most.saturating_sub(self.tried.get()) / 8).max(1);
            let Some(mut found) =
                search::search(&self.space, self.slots, &starts, layouts, cost, random)
            else {
                return best;
            };
            let (_, cost, mut homes) = known.into_inner().pop()?;
            found.cost = cost;
            self.homes.descend(&mut homes, &mut found.cost, |homes| {
                (self.tried.get() < self.most)
                    .then(|| self.cost(&found.layout, homes))
                    .flatten()
            });
            if let Some((before, _)) = &best {
                if !search::is_lower(found.cost, before.cost) {
                    return best;
                }
                found.before = before.before;
            }
            starts = vec![found.layout.clone()];
            *last.borrow_mut() = Some(homes.clone());
            best = Some((found, homes));
        }
    }

    fn cost(&self, layout: &[At], own: &[Home]) -> Option<f64> {
        self.tried.set(self.tried.get() + 1);
        let cpus = self.ids.iter().copied().zip(self.slots.cpus(layout));
        let all: Vec<_> = self.before.placed.iter().copied().chain(cpus).collect();
        let cost = self.cost_model.cost(&all, &self.with(own));
        cost.filter(|cost| !cost.is_nan())
    }

    /// The homes of all parts, with `own` for those that are searched.
    fn with(&self, own: &[Home]) -> Vec<Home> {
        let mut homes = self.before.homes.clone();
        for (&part, home) in self.own.iter().zip(own) {
            homes[part].clone_from(home);
        }
        homes
    }

    /// Memory at the threads of a layout: a thread's own beside it, what several use spread evenly over their
    /// nodes.
    fn with_threads(&self, layout: &[At]) -> Vec<Home> {
        let cpus = self.slots.cpus(layout);
        let node = |at: usize| self.topology.node_of(cpus[at]);
        let home = |&part: &usize| {
            let part = &self.before.parts[part];
            let users = (0..self.ids.len()).filter(|&at| {
                if part.is_shared {
                    self.processes[at] == part.process
                } else {
                    self.ids[at] == part.thread
                }
            });
            let mut nodes: Vec<_> = users.filter_map(node).collect();
            nodes.sort_unstable();
            nodes.dedup();
            (!nodes.is_empty()).then(|| nodes.into_iter().map(|node| (node, 1)).collect())
        };
        self.own.iter().map(home).collect()
    }
}

/// The orders that take a part to its home, run by run: neighbouring pages to each node, in proportion to its
/// weight. The world skips pages that are already there.
fn orders(part: &MemoryPart, home: &Home, found: &Found) -> Vec<PageOrder> {
    let Some(home) = home else {
        return Vec::new();
    };
    let rule = if found.all { BEST } else { BEST_FOUND };
    let all: u64 = home.iter().map(|&(_, weight)| u64::from(weight)).sum();
    let mut orders = Vec::new();
    for run in &part.runs {
        let pages = run.end - run.start;
        let until = |weight: u64| {
            run.start + (u128::from(pages) * u128::from(weight) / u128::from(all)) as u64
        };
        let mut before = 0;
        for &(to, weight) in home {
            let first = until(before);
            before += u64::from(weight);
            let count = until(before) - first;
            if count > 0 {
                orders.push(PageOrder {
                    process: part.process,
                    thread: part.thread,
                    pages: Pages::Window { first, count },
                    to,
                    rule: Cow::Borrowed(rule.name),
                    why: format!(
                        "with {weight} of {all} parts on node {to}, layout and memory cost {:.4}",
                        found.cost
                    ),
                });
            }
        }
    }
    orders
}

#[cfg(test)]
mod tests;
