//! Each node in an interval: CPUs in use, lines that its cores fetched, and lines that its memory
//! controller served.
//!
//! Counters tell that a line came from another node, not from which. On a machine of two nodes with
//! memory there is only one other. On larger machines remote lines are assigned to the other nodes in
//! proportion to the pages that the thread's process has there. This is an estimate, and views say so.
//! Where the pages are not known the lines stay unassigned, and views give their share.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Residency, Thread};

use super::work::share;

/// A node in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeTraffic {
    /// CPUs in use by the threads that ran there.
    pub(crate) cpus: f64,
    /// Lines that its cores fetched, where counted.
    pub(crate) lines: f64,
    /// Of the lines whose node was counted, those that its cores fetched from its own memory, and all.
    pub(crate) local: f64,
    pub(crate) known: f64,
    /// Lines that its controller served.
    pub(crate) served: f64,
    /// Cycles with a request to the uncore outstanding, and such requests.
    pub(crate) busy_cycles: f64,
    pub(crate) requests: f64,
}

/// All nodes that are online, ascending.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) ids: Vec<NodeId>,
    pub(crate) now: Vec<NodeTraffic>,
    /// Places of the nodes that have memory.
    pub(crate) with_memory: Vec<usize>,
    /// Whether lines were counted at all, and whether by node, since the machine is watched.
    pub(crate) is_counted: bool,
    pub(crate) is_assigned: bool,
    /// Lines assigned to a controller since the start, those of them that were estimated, and lines
    /// that could not be assigned.
    pub(crate) assigned: f64,
    pub(crate) estimated: f64,
    pub(crate) unassigned: f64,
}

impl Traffic {
    pub(crate) fn new(topology: &Topology) -> Self {
        let online = topology.nodes().iter().filter(|node| node.online);
        let with_memory = online.clone().enumerate();
        let with_memory = with_memory.filter(|(_, node)| node.memory_bytes > 0);
        let ids: Vec<NodeId> = online.clone().map(|node| node.id).collect();
        Self {
            now: vec![NodeTraffic::default(); ids.len()],
            with_memory: with_memory.map(|(place, _)| place).collect(),
            ids,
            ..Self::default()
        }
    }

    /// The place of a node.
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.ids.binary_search(&node).ok()
    }

    /// Adds a thread that ran on the node at this place.
    pub(crate) fn add(&mut self, place: usize, thread: &Thread, pages: Option<&Residency>) {
        self.now[place].cpus += share(thread.cpu_share);
        let Some(counts) = &thread.counts else {
            return;
        };
        self.is_counted = true;
        self.now[place].lines += counts.lines as f64;
        if let (Some(busy), Some(requests)) = (counts.uncore_busy_cycles, counts.uncore_requests) {
            self.now[place].busy_cycles += busy as f64;
            self.now[place].requests += requests as f64;
        }
        if let Some((local, remote)) = counts.local.zip(counts.remote) {
            let (local, remote) = (local as f64, remote as f64);
            self.is_assigned = true;
            self.now[place].local += local;
            self.now[place].known += local + remote;
            self.now[place].served += local;
            self.assigned += local;
            self.assign(place, remote, pages);
        }
    }

    /// Assigns the lines that this node's cores fetched from other nodes.
    fn assign(&mut self, place: usize, remote: f64, pages: Option<&Residency>) {
        if remote == 0.0 {
            return;
        }
        let mut others = self.with_memory.iter().filter(|&&other| other != place);
        if let (Some(&only), None) = (others.next(), others.next()) {
            self.now[only].served += remote;
            self.assigned += remote;
            return;
        }
        let own = self.ids[place];
        let elsewhere = pages.iter().flat_map(|residency| &residency.pages);
        let elsewhere = elsewhere.filter(|(node, _)| *node != own);
        let all: f64 = elsewhere.clone().map(|&(_, pages)| pages as f64).sum();
        if all <= 0.0 {
            self.unassigned += remote;
            return;
        }
        for &(node, pages) in elsewhere {
            let share = remote * pages as f64 / all;
            match self.place(node) {
                Some(other) => {
                    self.now[other].served += share;
                    self.assigned += share;
                    self.estimated += share;
                }
                None => self.unassigned += share,
            }
        }
    }

    /// The imbalance of the controllers in this interval, in percent.
    pub(crate) fn imbalance(&self) -> Option<f64> {
        let served = self.with_memory.iter().map(|&place| self.now[place].served);
        imbalance(served).filter(|_| self.is_assigned)
    }

    /// Begins the next interval.
    pub(crate) fn clear(&mut self) {
        self.now.fill(NodeTraffic::default());
    }
}

/// Standard deviation of lines served over all controllers, in percent of their mean (Dashti et al.,
/// "Traffic Management", ASPLOS 2013, section 2); `None` where nothing was served, or by one alone.
pub(crate) fn imbalance(served: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let number = served.clone().count() as f64;
    let mean = served.clone().sum::<f64>() / number;
    if number < 2.0 || mean.is_nan() || mean <= 0.0 {
        return None;
    }
    let variance = served.map(|one| (one - mean).powi(2)).sum::<f64>() / number;
    Some(variance.sqrt() / mean * 100.0).filter(|imbalance| imbalance.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_load_has_no_imbalance_and_all_on_one_of_four_has_the_most() {
        assert_eq!(imbalance([5.0, 5.0].into_iter()), Some(0.0));
        let all_on_one = imbalance([8.0, 0.0, 0.0, 0.0].into_iter()).unwrap();
        assert!((all_on_one - 3f64.sqrt() * 100.0).abs() < 1e-9);
        assert_eq!(imbalance([0.0, 0.0].into_iter()), None);
        assert_eq!(imbalance([7.0].into_iter()), None);
    }
}
