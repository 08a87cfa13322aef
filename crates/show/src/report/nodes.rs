//! What each node had to do over time: CPUs in use, lines that its cores fetched, and lines that its
//! memory controller served, as [`Dealt`] deals them out.

use numaherd_topology::{NodeId, Topology};
use numaherd_world::{Residency, Snapshot, Thread};

use super::columns::{Clock, Columns, Spread};
use crate::dealt::{Dealt, imbalance};

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

/// All nodes.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) tracks: Vec<NodeTrack>,
    /// The interval that is being read, and what was dealt out until now.
    pub(super) dealt: Dealt,
    /// Of the lines served by each controller, in percent.
    pub(super) imbalance: Columns<Spread>,
}

impl Nodes {
    pub(super) fn new(topology: &Topology, clock: &Clock) -> Self {
        let dealt = Dealt::new(topology);
        let track = |(place, &id): (usize, &NodeId)| NodeTrack {
            id,
            cpus: Columns::new(clock),
            fetched: Columns::new(clock),
            served: Columns::new(clock),
            penalty: Columns::new(clock),
            served_lines: 0.0,
            has_memory: dealt.with_memory.contains(&place),
        };
        Self {
            tracks: dealt.ids.iter().enumerate().map(track).collect(),
            dealt,
            imbalance: Columns::new(clock),
        }
    }

    /// The place of a node.
    pub(super) fn place(&self, node: NodeId) -> Option<usize> {
        self.dealt.place(node)
    }

    /// Takes in what a thread did on the node of this place.
    pub(super) fn worked(&mut self, place: usize, thread: &Thread, pages: Option<&Residency>) {
        self.dealt.worked(place, thread, pages);
    }

    /// Ends an interval.
    pub(super) fn interval(&mut self, clock: &Clock, snapshot: &Snapshot, span: (u64, u64)) {
        let seconds = snapshot.interval_ns as f64 / 1e9;
        let (begin, end) = span;
        for (track, now) in self.tracks.iter_mut().zip(&self.dealt.now) {
            let put = |columns: &mut Columns<Spread>, figure: f64| {
                columns.put(clock, begin, end, |ns| Spread::of(figure, ns));
            };
            put(&mut track.cpus, now.cpus);
            if self.dealt.is_counted && seconds > 0.0 {
                put(&mut track.fetched, now.lines / seconds);
            }
            if self.dealt.is_dealt && seconds > 0.0 && track.has_memory {
                put(&mut track.served, now.served / seconds);
                track.served_lines += now.served;
            }
            if now.requests > 0.0 {
                put(&mut track.penalty, now.busy_cycles / now.requests);
            }
        }
        if let Some(imbalance) = self.dealt.imbalance() {
            let cell = |ns| Spread::of(imbalance, ns);
            self.imbalance.put(clock, begin, end, cell);
        }
        self.dealt.clear();
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
        let served = self.dealt.with_memory.iter();
        imbalance(served.map(|&place| self.tracks[place].served_lines))
    }
}
