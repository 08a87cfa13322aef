//! What the equations know of a machine.

/// The figures of a machine that the equations need.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How many nodes there are.
    pub nodes: usize,
    /// Idle latency in ns from the cores of each node to the memory of each: row `core * nodes + memory`.
    pub latency_ns: Vec<f64>,
    /// The controllers, one a node, in their order; then the links, each direction; then the last-level
    /// caches, one a domain, where their bandwidth is known.
    pub channels: Vec<Channel>,
    /// The first of the last-level caches' channels; `None`: they are never a bottleneck.
    pub caches: Option<usize>,
    /// The links that a line takes from each node to each, as channels: row `from * nodes + to`.
    pub ways: Vec<Vec<u32>>,
    /// Whether every read of a line from memory probes all nodes' caches.
    pub broadcast_probes: bool,
    /// Bytes of the last-level cache of each domain.
    pub llc_bytes: Vec<f64>,
    /// Latency in ns of a hit there.
    pub llc_ns: f64,
    /// Bytes of a core's own caches that come on top of the last-level cache.
    pub private_bytes: f64,
    /// Bytes of the last of a core's own caches: what misses it asks the uncore.
    pub own_bytes: f64,
    /// Latency in ns of a hit there.
    pub own_ns: f64,
    /// Cache lines that a core has in flight at most, over a longer time.
    pub in_flight: f64,
    /// Clock in GHz.
    pub clock_ghz: f64,
    /// What two SMT siblings get done together, as a multiple of what one does alone: from 1 (each half as
    /// much) to 2 (siblings are cores of their own, and share nothing).
    pub smt_throughput: f64,
    /// Share of a controller's capacity that is lost per share of writes among its lines, where it turns its
    /// bus from reads to writes and back; 0: none.
    pub write_turnaround: f64,
    /// Whether a thread's lines wait for lines of its own as they do for those of others.
    pub own_lines_wait: bool,
    /// ns that a core takes for one cycle of the core that profiles were measured on.
    pub ns_per_reference_cycle: f64,
}

/// A memory controller, one direction of a link, or the way into a last-level cache.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Lines per ns that it can carry.
    pub capacity: f64,
    /// The idle time in ns that the wait in front of it is a multiple of.
    pub service_ns: f64,
}

impl Figures {
    /// Idle latency in ns from the cores of a node to the memory of another.
    pub fn latency_ns(&self, core: usize, memory: usize) -> f64 {
        self.latency_ns[core * self.nodes + memory]
    }

    /// The way into a domain's last-level cache, as a channel.
    pub(crate) fn cache_channel(&self, domain: usize) -> Option<u32> {
        self.caches.map(|first| (first + domain) as u32)
    }

    /// Whether there is contention for a channel.
    pub(crate) fn counts(&self, channel: usize, factors: Factors) -> bool {
        if channel < self.nodes {
            factors.controllers
        } else if self.caches.is_some_and(|first| channel >= first) {
            factors.cache
        } else {
            factors.links
        }
    }

    /// The links that a line takes from one node to another, as channels.
    pub fn way(&self, from: usize, to: usize) -> &[u32] {
        &self.ways[from * self.nodes + to]
    }
}

/// Where a CPU is: places of its domain and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its memory domain.
    pub domain: usize,
    /// Its node.
    pub node: usize,
}

/// A hardware thread of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The core's place.
    pub core: usize,
    /// The CPU: threads on one CPU take turns, and so are no siblings of each other.
    pub cpu: usize,
}

/// Which contention there is; all of it on a real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Threads take cache from each other, and wait for each other at its door.
    pub cache: bool,
    /// Lines wait for each other at controllers.
    pub controllers: bool,
    /// Lines wait for each other on links.
    pub links: bool,
}

impl Factors {
    /// All of them.
    pub const ALL: Self = Self {
        cache: true,
        controllers: true,
        links: true,
    };
    /// None: each thread as if alone, where it is.
    pub const NONE: Self = Self {
        cache: false,
        controllers: false,
        links: false,
    };
}
