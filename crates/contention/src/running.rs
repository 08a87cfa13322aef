//! What the equations know of a thread, and what they answer.

use std::borrow::Cow;

use crate::{Curve, Lane, Seat};

/// What a thread asks of a machine: figures of a program's profile, or estimates from counters.
#[derive(Clone, Copy, Debug)]
pub struct Demands<'a> {
    /// Cycles of the reference core per instruction while the last-level cache answers all.
    pub cycles_per_instruction: f64,
    /// Lines read from memory per 1000 instructions against bytes of cache held.
    pub lines: &'a Curve,
    /// The same without lines that a prefetcher fetched, where known.
    pub demand: Option<&'a Curve>,
    /// Lines in flight, on average, while it waits for memory; at least 1.
    pub misses_in_flight: f64,
    /// Lines written back to memory per line read.
    pub written_per_line: f64,
}

impl Demands<'_> {
    /// Lines that no prefetcher fetched, per 1000 instructions with `bytes` of cache: at most all
    /// lines, and all of them where nothing is known of prefetching.
    pub fn demand_at(&self, bytes: f64) -> f64 {
        let lines = self.lines.at(bytes);
        self.demand
            .map_or(lines, |demand| demand.at(bytes).min(lines))
    }
}

/// One thread that runs, or several that are alike.
#[derive(Clone, Debug)]
pub struct Running<'a> {
    /// What it does.
    pub demands: Demands<'a>,
    /// Where it runs.
    pub seat: Seat,
    /// Share of the time that it has a CPU, 0 to 1.
    pub cpu_share: f64,
    /// How many of its profile's lines it reads just now; 1 on average.
    pub intensity: f64,
    /// Nodes and the share of its lines that each answers; the shares add up to 1.
    pub memory: Cow<'a, [(usize, f64)]>,
    /// Nodes and the share of its written lines that each takes, where those are not the nodes it reads from: a thread
    /// that copies reads here and writes there.
    pub writes_to: Option<Vec<(usize, f64)>>,
    /// The hardware thread that it has; `None`: a core of its own.
    pub lane: Option<Lane>,
    /// Busy hardware threads beside it on its core, on average, where it is not known which: any thread of its domain
    /// that also has `siblings`.
    pub siblings: f64,
    /// Lines that other threads wrote last.
    pub transfers: Vec<Transfers>,
    /// How many threads do just the same there.
    pub alike: f64,
    /// Wait in ns of each of [`Self::transfers`] for threads that want the same line.
    pub queue_ns: f64,
}

impl<'a> Running<'a> {
    /// A thread that does as its profile says and shares no lines.
    pub fn new(
        demands: Demands<'a>,
        seat: Seat,
        cpu_share: f64,
        memory: impl Into<Cow<'a, [(usize, f64)]>>,
    ) -> Self {
        Self {
            demands,
            seat,
            cpu_share,
            intensity: 1.0,
            memory: memory.into(),
            writes_to: None,
            lane: None,
            siblings: 0.0,
            transfers: Vec::new(),
            alike: 1.0,
            queue_ns: 0.0,
        }
    }
}

/// Lines that come from other cores' caches of one node.
#[derive(Clone, Copy, Debug)]
pub struct Transfers {
    /// Place of the node.
    pub node: usize,
    /// Per 1000 instructions.
    pub lines: f64,
    /// Latency of one without any wait.
    pub idle_ns: f64,
    /// Of that, what the base cycles hold already.
    pub in_base_ns: f64,
}

/// How one thread goes on. Lines are per 1000 of its instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Time for 1000 instructions on a CPU, in ns.
    pub ns: f64,
    /// Of that, waiting in queues of controllers.
    pub controller_ns: f64,
    /// Of that, waiting in queues of links.
    pub link_ns: f64,
    /// Of that, waiting at the door of the last-level cache.
    pub cache_ns: f64,
    /// Of that, what remote memory costs more than local memory when idle.
    pub remote_ns: f64,
    /// Bytes of cache it holds.
    pub held_bytes: f64,
    /// Lines read from memory, prefetched ones counted.
    pub lines: f64,
    /// Of those, from other nodes.
    pub remote_lines: f64,
    /// Mean latency of a line from memory, in ns.
    pub latency_ns: f64,
    /// Requests that leave the core's own caches, prefetches not counted.
    pub requests: f64,
    /// Time with at least one of them outstanding, in ns for 1000 instructions.
    pub requested_ns: f64,
    /// Time for 1000 instructions that goes to lines which other threads wrote last, in ns.
    pub sharing_ns: f64,
}
