//! From node to node: how much the threads on each node take from the memory of each.
//!
//! If lines are counted by node, the figures are lines per second. Local lines are known. Remote lines are assigned as
//! everywhere in this crate ([`Traffic`]): with two nodes there is only one other node; with more, the estimate goes by
//! where the process's pages are. If lines are not counted, the figures follow from the places of threads and pages, as
//! if every page were used alike: the CPUs in use on one node, times the share of their process's pages on the other.

use crate::run::RunModel;
use crate::run::traffic::Traffic;
use crate::run::work::share;

/// From node to node, at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Heat {
    nodes: usize,
    cells: Vec<f64>,
    /// The source of the figures.
    pub source: HeatSource,
}

/// The source of a heat map's figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeatSource {
    /// Lines per second, as counted by node.
    Lines {
        /// Share of the lines that was assigned by where pages are, 0 to 1: an estimate.
        estimated: f64,
        /// Share of the lines whose source is unknown, 0 to 1; no cell includes them.
        unassigned: f64,
    },
    /// CPUs in use times share of pages.
    Pages,
    /// Neither lines nor pages are known.
    Nothing,
}

impl Heat {
    /// The map of a state.
    pub fn of(state: &RunModel) -> Self {
        let nodes = state.nodes.len();
        let lines = by_lines(state, nodes);
        lines.unwrap_or_else(|| by_pages(state, nodes))
    }

    /// From the threads on the node with index `from` to the memory of the node with index `to`; 0 if there is no such
    /// cell.
    pub fn cell(&self, from: usize, to: usize) -> f64 {
        self.cells
            .get(from * self.nodes + to)
            .copied()
            .unwrap_or_default()
    }

    /// The largest cell.
    pub fn most(&self) -> f64 {
        self.cells.iter().copied().fold(0.0, f64::max)
    }

    /// The same map with each `by` adjacent nodes merged.
    pub fn together(&self, by: usize) -> Self {
        let by = by.max(1);
        let nodes = self.nodes.div_ceil(by);
        let mut cells = vec![0.0; nodes * nodes];
        for from in 0..self.nodes {
            for to in 0..self.nodes {
                cells[from / by * nodes + to / by] += self.cell(from, to);
            }
        }
        Self {
            nodes,
            cells,
            source: self.source,
        }
    }
}

fn by_lines(state: &RunModel, nodes: usize) -> Option<Heat> {
    let snapshot = state.snapshot()?;
    let seconds = snapshot.interval_ns as f64 / 1e9;
    let mut traffic = Traffic::new(state.topology()?);
    let mut cells = Vec::with_capacity(nodes * nodes);
    for from in 0..nodes {
        for (thread, track) in snapshot.threads.iter().zip(state.threads.iter()) {
            if track.node != Some(from) {
                continue;
            }
            let process = track.process.and_then(|at| snapshot.processes.get(at));
            let pages = process.and_then(|process| process.residency.as_ref());
            traffic.add(from, thread, pages);
        }
        cells.extend(traffic.now.iter().map(|node| node.served / seconds));
        traffic.clear();
    }
    let all = traffic.assigned + traffic.unassigned;
    (traffic.is_assigned && all > 0.0 && seconds > 0.0).then(|| Heat {
        nodes,
        cells,
        source: HeatSource::Lines {
            estimated: traffic.estimated / all,
            unassigned: traffic.unassigned / all,
        },
    })
}

fn by_pages(state: &RunModel, nodes: usize) -> Heat {
    let mut cells = vec![0.0; nodes * nodes];
    let mut source = HeatSource::Nothing;
    let threads = state
        .snapshot()
        .map_or(&[][..], |snapshot| &snapshot.threads);
    for (thread, track) in threads.iter().zip(state.threads.iter()) {
        let process = super::columns::process_of(state, track);
        let pages = process.and_then(|process| process.residency.as_ref());
        let (Some(from), Some(pages)) = (track.node, pages) else {
            continue;
        };
        let all = pages.total();
        if all == 0 {
            continue;
        }
        source = HeatSource::Pages;
        for &(node, number) in &pages.pages {
            if let Some(to) = state.place(node) {
                cells[from * nodes + to] += share(thread.cpu_share) * number as f64 / all as f64;
            }
        }
    }
    Heat {
        nodes,
        cells,
        source,
    }
}
