//! The costs of the place that a thread was to leave and of the one that it was to get, in figures.
//!
//! Policies name the alternative in a sentence; few of them calculate costs. The figures here come from the snapshot
//! that the decision was drawn from. They are the same for every policy, with all other threads where the plan puts
//! them:
//!
//! * *pressure*: the sum of the miss rates of the other threads on the same last-level cache
//!   (N-MASS §3.3), of those that ran for a tenth of the time or more;
//! * *remote pages*: the share of the process's pages on other nodes;
//! * *slowdown*: cycles per instruction over those with all memory local, by N-MASS's regression of the NUMA penalty on
//!   the miss rate (§4.5), for the share of pages that is remote: `1 + remote pages x (penalty - 1)`. The regression
//!   was fitted to penalties of up to 1.46 and is meaningless far beyond them. So a penalty is at most the ratio of the
//!   distance of the remote pages to that of local ones, by the firmware's distances.
//!
//! This is a prediction; [`Followed`](super::Followed) has the outcome.

use std::collections::BTreeMap;

use numaherd_policy::penalty::PenaltySettings;
use numaherd_topology::{CpuId, NodeId, Topology};
use numaherd_world::{Placement, Residency, Snapshot, Thread, ThreadId};
use serde::Serialize;

use crate::run::work::LEAST_SHARE;

/// The costs of the place that was, or would have been, left, and of the one that was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// What staying would have cost.
    pub staying: Cost,
    /// What going was predicted to cost.
    pub going: Cost,
}

/// What a place costs a thread; the head of this file defines the figures.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The CPU; for pages, that of the thread that they are moved for.
    pub cpu: CpuId,
    /// Other threads that run on the same last-level cache.
    pub neighbours: u64,
    /// The sum of their miss rates, in lines per 1000 instructions.
    pub pressure: f64,
    /// Share of the process's pages on other nodes, 0 to 1; `None` if they were not read.
    pub remote_pages: Option<f64>,
    /// Cycles per instruction over those with all memory local; `None` if pages were not read or misses not counted.
    pub slowdown: Option<f64>,
}

/// What runs on each last-level cache, with all threads where the plan puts them.
#[derive(Debug)]
pub(super) struct Layout {
    /// Threads and the sum of their miss rates, by the cache's domain.
    pressed: Vec<(u64, f64)>,
    planned: BTreeMap<ThreadId, CpuId>,
}

/// The machine, and what was seen of it.
type Scene<'s> = (&'s Topology, &'s Snapshot);

impl Layout {
    /// The layout that a plan makes of what was seen.
    pub(super) fn of<'p>(
        (topology, snapshot): Scene<'_>,
        plan: impl Iterator<Item = &'p Placement>,
    ) -> Self {
        let mut layout = Self {
            pressed: vec![(0, 0.0); topology.domains().len()],
            planned: plan.map(|entry| (entry.thread, entry.to)).collect(),
        };
        for thread in &snapshot.threads {
            let place = layout.domain(topology, layout.place(thread));
            if let (Some(rate), Some(domain)) = (pressing(thread), place) {
                let (threads, pressure) = &mut layout.pressed[domain];
                *threads += 1;
                *pressure += rate;
            }
        }
        layout
    }

    fn place(&self, thread: &Thread) -> CpuId {
        let planned = self.planned.get(&thread.id).copied();
        planned.unwrap_or(thread.place())
    }

    fn domain(&self, topology: &Topology, cpu: CpuId) -> Option<usize> {
        let domain = topology.domain_of(cpu)?.id.index();
        (domain < self.pressed.len()).then_some(domain)
    }

    /// What a place would cost a thread if `less_remote`, a share of its process's pages, were no longer remote.
    fn cost(
        &self,
        (topology, snapshot): Scene<'_>,
        thread: &Thread,
        cpu: CpuId,
        less_remote: f64,
    ) -> Option<Cost> {
        let domain = self.domain(topology, cpu)?;
        let (mut neighbours, mut pressure) = self.pressed[domain];
        if let Some(own) =
            pressing(thread).filter(|_| self.domain(topology, self.place(thread)) == Some(domain))
        {
            neighbours -= 1;
            pressure = if neighbours == 0 {
                0.0
            } else {
                (pressure - own).max(0.0)
            };
        }
        let process = snapshot.process(thread.process);
        let residency = process.and_then(|process| process.residency.as_ref());
        let node = topology.node_of(cpu);
        let remote = residency
            .zip(node)
            .and_then(|(residency, node)| remote_share(residency, node))
            .map(|remote| (remote - less_remote).max(0.0));
        let rate = thread.counts.as_ref().and_then(|counts| counts.miss_rate());
        let farther = residency
            .zip(node)
            .and_then(|(residency, node)| farther(topology, residency, node))
            .unwrap_or(f64::INFINITY);
        let slowdown = remote
            .zip(rate)
            .zip(process)
            .map(|((remote, rate), process)| {
                let penalty = PenaltySettings::default().of(&process.name, rate);
                1.0 + remote * (penalty.min(farther) - 1.0)
            });
        Some(Cost {
            cpu,
            neighbours,
            pressure,
            remote_pages: remote,
            slowdown,
        })
    }

    /// The costs for a thread that is to move.
    pub(super) fn of_move(&self, scene: Scene<'_>, placement: &Placement) -> Option<Alternative> {
        let thread = scene.1.thread(placement.thread)?;
        Some(Alternative {
            staying: self.cost(scene, thread, placement.from, 0.0)?,
            going: self.cost(scene, thread, placement.to, 0.0)?,
        })
    }

    /// The costs for pages that are to follow a thread: `pages` of them, or all.
    pub(super) fn of_pages(
        &self,
        scene: Scene<'_>,
        thread: ThreadId,
        to: NodeId,
        pages: Option<u64>,
    ) -> Option<Alternative> {
        let (topology, snapshot) = scene;
        let thread = snapshot.thread(thread)?;
        let cpu = thread.place();
        if topology.node_of(cpu) != Some(to) {
            return None;
        }
        let process = snapshot.process(thread.process)?;
        let all = process.residency.as_ref()?.total();
        let less = match pages {
            Some(pages) if all > 0 => pages as f64 / all as f64,
            _ => 1.0,
        };
        Some(Alternative {
            staying: self.cost(scene, thread, cpu, 0.0)?,
            going: self.cost(scene, thread, cpu, less)?,
        })
    }
}

/// The ratio of the distance of the remote pages to that of local ones; `None` if nothing is remote, or distances are
/// not known.
fn farther(topology: &Topology, residency: &Residency, node: NodeId) -> Option<f64> {
    let local = f64::from(topology.distance(node, node)?);
    let (mut pages, mut way) = (0.0, 0.0);
    for &(at, count) in residency.pages.iter().filter(|(at, _)| *at != node) {
        pages += count as f64;
        way += count as f64 * f64::from(topology.distance(node, at)?);
    }
    (pages > 0.0 && local > 0.0).then(|| (way / pages / local).max(1.0))
}

/// The miss rate of a thread that runs enough to put pressure on its cache.
fn pressing(thread: &Thread) -> Option<f64> {
    let counts = thread.counts.as_ref()?;
    let rate = counts.miss_rate()?;
    (thread.cpu_share >= LEAST_SHARE).then_some(rate)
}

/// Share of the pages that are not on a node; `None` where there are none.
pub(super) fn remote_share(residency: &Residency, node: NodeId) -> Option<f64> {
    let all = residency.total();
    (all > 0).then(|| 1.0 - residency.on(node) as f64 / all as f64)
}
