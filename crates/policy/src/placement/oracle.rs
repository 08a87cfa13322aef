//! Oracle: the layout that would cost least, told by a world that can be asked.
//!
//! Problem: how good a policy is shows only beside the best that could be had. Rule: of all layouts
//! of the threads, or of as many as may be tried, that of the lowest cost ([`crate::foresight`]);
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

use std::borrow::Cow;
use std::sync::Arc;

use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{Placement, Signal, Snapshot, ThreadId};

use crate::busy::Busy;
use crate::changes::{LastPlaced, Mark, Situation};
use crate::classes::Classes;
use crate::foresight::Foresight;
use crate::memory::PerThread;
use crate::penalty::PenaltySettings;
use crate::placement::di;
use crate::placement::n_mass::{self, processors::Item};
use crate::placement::slots::{At, Ground};
use crate::policy::{Place, Random};
use crate::pools::{Pool, Taken, pools};
use crate::rules::Rule;
use crate::settings::{NMassSettings, OracleSettings, Settings};
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

/// See the top of this file.
#[derive(Clone)]
pub struct Oracle {
    foresight: Arc<dyn Foresight>,
    settings: OracleSettings,
    n_mass: NMassSettings,
    penalties: PenaltySettings,
    classes: Classes,
    busy: Busy,
    homes: PerThread<Option<NodeId>>,
    last: LastPlaced,
}

impl Oracle {
    /// Nothing seen yet.
    pub fn new(settings: &Settings, foresight: Arc<dyn Foresight>) -> Self {
        Self {
            foresight,
            settings: settings.oracle,
            n_mass: settings.n_mass,
            penalties: settings.penalty.clone(),
            classes: Classes::new(settings.classes.rule()),
            busy: Busy::new(settings.placement.least_cpu_share),
            homes: PerThread::default(),
            last: LastPlaced::new(settings.oracle.changed_by),
        }
    }
}

impl Place for Oracle {
    fn needs(&self) -> &[Signal] {
        &[Signal::CpuUse, Signal::MissRate, Signal::Residency]
    }

    fn place(
        &mut self,
        snapshot: &Snapshot,
        topology: &Topology,
        random: &mut Random,
    ) -> Vec<Placement> {
        let homes = self.homes.line_up(&snapshot.threads);
        n_mass::remember_homes(homes, snapshot);
        let classed = self.classes.observe(&snapshot.threads);
        let mut pools = pools(snapshot, topology);
        let hands_off = self.busy.keep_busy(snapshot, &mut pools);
        for pool in &mut pools {
            let counted = |&index: &usize| classed[index].class().is_some();
            pool.threads.retain(counted);
        }
        pools.retain(|pool| !pool.threads.is_empty());
        let mark = |index: usize| Mark {
            thread: snapshot.threads[index].id,
            miss_rate: classed[index].miss_rate().unwrap_or_default(),
            home: homes[index],
        };
        let situation = Situation::new(snapshot, &pools, &hands_off, mark);
        if !self.last.is_outdated(&situation) {
            return self.last.still_wanted(snapshot);
        }

        let mut taken = Taken::default();
        for index in hands_off {
            taken.hold(snapshot.threads[index].place(), classed[index].class());
        }
        let mut placements = Vec::new();
        let mut settled: Vec<(ThreadId, CpuId)> = Vec::new();
        for pool in &pools {
            let ground = Ground::new(snapshot, topology, pool, &taken);
            let items: Vec<Item> = pool
                .threads
                .iter()
                .map(|&index| {
                    let thread = &snapshot.threads[index];
                    let here = topology.node_of(thread.place()).unwrap_or(NodeId(0));
                    let process = snapshot.process(thread.process);
                    let name = process.map_or(&thread.name, |process| &process.name);
                    let miss_rate = mark(index).miss_rate;
                    Item {
                        home: homes[index].unwrap_or(here),
                        miss_rate,
                        penalty: self.penalties.of(name, miss_rate),
                    }
                })
                .collect();
            let starts = starts(&ground, topology, &items, &self.n_mass);
            let ids: Vec<ThreadId> = (pool.threads.iter())
                .map(|&index| snapshot.threads[index].id)
                .collect();
            let space = Space::new(&ground, topology, pool.threads.len());
            let cost = |layout: &[At]| {
                let own = ids
                    .iter()
                    .zip(layout)
                    .map(|(&id, &at)| (id, ground.cpu(at)));
                let all: Vec<_> = settled.iter().copied().chain(own).collect();
                self.foresight.cost(&all).filter(|cost| !cost.is_nan())
            };
            let found = search::search(
                &space,
                &ground,
                &starts,
                self.settings.layouts,
                cost,
                random,
            );
            let Some(found) = found else {
                // What cannot be told now may be told in the next interval.
                return Vec::new();
            };
            let told = Told {
                snapshot,
                pool,
                ground: &ground,
                found: &found,
                least: self.foresight.least(&ids),
            };
            for (at, &index) in pool.threads.iter().enumerate() {
                let cpu = ground.cpu(found.layout[at]);
                taken.hold(cpu, classed[index].class());
                settled.push((snapshot.threads[index].id, cpu));
                placements.extend(told.placement(at));
            }
        }
        placements.sort_unstable_by_key(|placement| placement.thread);
        self.last.place(situation, placements)
    }
}

/// Where a local search starts besides where the threads are: DI's layout, maximum-local's and
/// n-mass's.
fn starts(
    ground: &Ground,
    topology: &Topology,
    items: &[Item],
    settings: &NMassSettings,
) -> Vec<Vec<At>> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_by(|&a, &b| items[b].miss_rate.total_cmp(&items[a].miss_rate));
    let mut starts = vec![di::deal(ground, &order)];
    for refined in [None, Some(settings)] {
        starts.push(n_mass::lay_out(ground, topology, items, refined));
    }
    starts
}

/// Puts what was found into words.
struct Told<'a> {
    snapshot: &'a Snapshot,
    pool: &'a Pool,
    ground: &'a Ground,
    found: &'a Found,
    least: Option<f64>,
}

impl Told<'_> {
    /// What a plan says of one thread of the pool; `None` where nothing is to be done.
    fn placement(&self, at: usize) -> Option<Placement> {
        let thread = &self.snapshot.threads[self.pool.threads[at]];
        let (from, to) = (thread.place(), self.ground.cpu(self.found.layout[at]));
        if thread.assigned == Some(to) {
            return None;
        }
        let rule = if self.found.all { BEST } else { BEST_FOUND };
        let instead_of = match (self.ground.sits[at], self.found.before) {
            _ if from == to => String::new(),
            (None, _) => format!("CPU {from}: offline, or not allowed to the thread"),
            (Some(_), None) => format!("CPU {from}: part of a layout whose cost cannot be told"),
            (Some(_), Some(before)) => {
                format!("CPU {from}: part of a layout of cost {before:.4}")
            }
        };
        Some(Placement {
            thread: thread.id,
            from,
            to,
            rule: Cow::Borrowed(rule.name),
            why: self.why(),
            instead_of,
        })
    }

    fn why(&self) -> String {
        let found = self.found;
        let cost = format!("the layout costs {:.4}", found.cost);
        if found.all {
            return format!("{cost}, the least of all {} there are", found.tried);
        }
        let optimum = if found.exhausted {
            "when no more may be tried"
        } else {
            "where no move and no swap lowers it"
        };
        let bound = match self.least {
            Some(least) => format!("no layout can cost less than {least:.4}"),
            None => "how much less another would cost is not known".to_owned(),
        };
        format!(
            "{cost}, the least of {} tried by local search, which ended {optimum}; {bound}",
            found.tried
        )
    }
}

#[cfg(test)]
mod tests;
