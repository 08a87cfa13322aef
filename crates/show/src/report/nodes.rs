//! What each node had to do in an interval: threads that ran on it, lines that its cores fetched, and
//! lines that its memory controller served.
//!
//! Counters say of a remote line that it came from another node, not from which. On a machine of two
//! nodes with memory there is but one other. On larger ones remote lines are dealt out to the other
//! nodes in proportion to the pages that the thread's process has there: an estimate, and said to be
//! one; where the pages are not known the lines are left unassigned, and their share is said.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Residency, Snapshot, Thread};

use super::columns::{Clock, Columns, Spread};

/// A node over time.
#[derive(Clone, Debug)]
pub(super) struct NodeTrack {
    pub(super) id: NodeId,
    /// CPUs in use by threads that ran there.
    pub(super) cpus: Columns<Spread>,
    /// Lines per second that its cores fetched.
    pub(super) fetched: Columns<Spread>,
    /// Lines per second that its controller served.
    pub(super) served: Columns<Spread>,
    /// Uncore penalty of the threads there, in cycles per request.
    pub(super) penalty: Columns<Spread>,
    /// Lines that its controller served in all.
    pub(super) served_lines: f64,
    pub(super) has_memory: bool,
}

/// A node in the interval that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Now {
    cpus: f64,
    lines: f64,
    served: f64,
    busy_cycles: f64,
    requests: f64,
}

/// All nodes.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) tracks: Vec<NodeTrack>,
    now: Vec<Now>,
    /// Places of the nodes that have memory.
    with_memory: Vec<usize>,
    /// Whether lines were counted at all, and whether by node.
    is_counted: bool,
    is_dealt: bool,
    /// Lines that were assigned to a controller, by guess among them, and those that were not.
    pub(super) assigned: f64,
    pub(super) guessed: f64,
    pub(super) unassigned: f64,
    /// Standard deviation of lines served over all controllers, in percent of their mean (Dashti et
    /// al., "Traffic Management", ASPLOS 2013, section 2).
    pub(super) imbalance: Columns<Spread>,
}

impl Nodes {
    pub(super) fn new(topology: &Topology, clock: &Clock) -> Self {
        let tracks: Vec<NodeTrack> = topology
            .nodes()
            .iter()
            .filter(|node| node.online)
            .map(|node| NodeTrack {
                id: node.id,
                cpus: Columns::new(clock),
                fetched: Columns::new(clock),
                served: Columns::new(clock),
                penalty: Columns::new(clock),
                served_lines: 0.0,
                has_memory: node.memory_bytes > 0,
            })
            .collect();
        let with_memory = |(place, node): (usize, &NodeTrack)| node.has_memory.then_some(place);
        Self {
            now: vec![Now::default(); tracks.len()],
            with_memory: tracks.iter().enumerate().filter_map(with_memory).collect(),
            tracks,
            is_counted: false,
            is_dealt: false,
            assigned: 0.0,
            guessed: 0.0,
            unassigned: 0.0,
            imbalance: Columns::new(clock),
        }
    }

    /// The place of a node.
    pub(super) fn place(&self, node: NodeId) -> Option<usize> {
        self.tracks.binary_search_by_key(&node, |node| node.id).ok()
    }

    /// Takes in what a thread did on the node of this place.
    pub(super) fn worked(&mut self, place: usize, thread: &Thread, pages: Option<&Residency>) {
        self.now[place].cpus += thread.cpu_share.clamp(0.0, 1.0);
        let Some(counts) = &thread.counts else {
            return;
        };
        self.is_counted = true;
        self.now[place].lines += counts.lines as f64;
        if let (Some(busy), Some(requests)) = (counts.uncore_busy_cycles, counts.uncore_requests) {
            self.now[place].busy_cycles += busy as f64;
            self.now[place].requests += requests as f64;
        }
        if let (Some(local), Some(remote)) = (counts.local, counts.remote) {
            self.is_dealt = true;
            self.now[place].served += local as f64;
            self.assigned += local as f64;
            self.deal(place, remote as f64, pages);
        }
    }

    /// Deals out lines from other nodes than that of this place.
    fn deal(&mut self, place: usize, remote: f64, pages: Option<&Residency>) {
        if remote == 0.0 {
            return;
        }
        let mut others = self.with_memory.iter().filter(|&&other| other != place);
        if let (Some(&only), None) = (others.next(), others.next()) {
            self.now[only].served += remote;
            self.assigned += remote;
            return;
        }
        let own = self.tracks[place].id;
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
                    self.guessed += share;
                }
                None => self.unassigned += share,
            }
        }
    }

    /// Ends an interval.
    pub(super) fn interval(&mut self, clock: &Clock, snapshot: &Snapshot, span: (u64, u64)) {
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let (begin, end) = span;
        for (track, now) in self.tracks.iter_mut().zip(&self.now) {
            let put = |columns: &mut Columns<Spread>, figure: f64| {
                columns.put(clock, begin, end, |ns| Spread::of(figure, ns));
            };
            put(&mut track.cpus, now.cpus);
            if self.is_counted && seconds > 0.0 {
                put(&mut track.fetched, now.lines / seconds);
            }
            if self.is_dealt && seconds > 0.0 && track.has_memory {
                put(&mut track.served, now.served / seconds);
                track.served_lines += now.served;
            }
            if now.requests > 0.0 {
                put(&mut track.penalty, now.busy_cycles / now.requests);
            }
        }
        let served = self.with_memory.iter().map(|&place| self.now[place].served);
        if let Some(imbalance) = imbalance(served).filter(|_| self.is_dealt) {
            let cell = |ns| Spread::of(imbalance, ns);
            self.imbalance.put(clock, begin, end, cell);
        }
        self.now.fill(Now::default());
    }

    pub(super) fn coarsen(&mut self, shift: u32) {
        self.imbalance.coarsen(shift);
        for node in &mut self.tracks {
            node.cpus.coarsen(shift);
            node.fetched.coarsen(shift);
            node.served.coarsen(shift);
            node.penalty.coarsen(shift);
        }
    }

    /// The imbalance over the whole run.
    pub(super) fn whole_imbalance(&self) -> Option<f64> {
        let served = self.with_memory.iter();
        imbalance(served.map(|&place| self.tracks[place].served_lines))
    }
}

/// Standard deviation in percent of the mean; `None` where nothing was served, or by one alone.
fn imbalance(served: impl Iterator<Item = f64> + Clone) -> Option<f64> {
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
    fn balance_is_none_and_all_on_one_of_four_is_the_most() {
        assert_eq!(imbalance([5.0, 5.0].into_iter()), Some(0.0));
        let all_on_one = imbalance([8.0, 0.0, 0.0, 0.0].into_iter()).unwrap();
        assert!((all_on_one - 3f64.sqrt() * 100.0).abs() < 1e-9);
        assert_eq!(imbalance([0.0, 0.0].into_iter()), None);
        assert_eq!(imbalance([7.0].into_iter()), None);
    }
}
