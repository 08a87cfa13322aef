//! What samples show of memory: which blocks of a process were used, from where, and how long accesses took.
//!
//! Samples are counted in *turns* of `tiered.cold_after_s`. What is known covers the present turn and the whole turn
//! before it, so a block without samples has had none for at least a turn.

use std::collections::{BTreeMap, HashMap};

use numaherd_topology::{Node, NodeId, Topology};
use numaherd_world::{BLOCK_PAGES, MemorySource, ProcessId, Sample, ThreadId};

/// If the blocks with samples have so many on average, those without are known to be used less (chosen here: an average
/// block has none once in e^8 times).
const ENOUGH_OF_EACH: u64 = 8;
/// From so many sampled latencies on, a node's latency is known (chosen here).
const ENOUGH_LATENCIES: u32 = 32;

/// The accesses of this turn and the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Accesses {
    this: Turn,
    last: Turn,
    /// The shortest mean latency that each node has had in a turn, by its samples.
    shortest: BTreeMap<NodeId, f64>,
    /// Whether a store was ever among them: some machines sample loads alone.
    stores: bool,
}

#[derive(Clone, Debug, Default)]
struct Turn {
    processes: HashMap<ProcessId, HashMap<u64, Used>>,
    latencies: BTreeMap<NodeId, Latencies>,
    /// Whether it is over, and everything was sampled all the time.
    is_whole: bool,
}

/// How a block was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// How often it was sampled.
    pub samples: u64,
    /// Where its page was in the latest sample.
    pub on: NodeId,
    /// The node that the latest sample came from.
    pub by: NodeId,
    /// The thread of the latest sample.
    pub thread: ThreadId,
}

#[derive(Clone, Copy, Debug, Default)]
struct Latencies {
    sum: f64,
    count: u32,
}

impl Latencies {
    fn mean(self) -> Option<f64> {
        (self.count >= ENOUGH_LATENCIES).then(|| self.sum / f64::from(self.count))
    }
}

impl Accesses {
    /// Takes in accesses.
    pub(super) fn take(&mut self, samples: &[Sample], topology: &Topology, page_bytes: u64) {
        for sample in samples {
            self.stores |= sample.store;
            let (Some(by), Some(on)) = (topology.node_of(sample.cpu), sample.node) else {
                continue;
            };
            let is_apart = topology.node(on).is_some_and(Node::is_apart);
            let is_memorys = matches!(
                sample.source,
                MemorySource::LocalMemory | MemorySource::RemoteMemory
            );
            // From another near node, latencies include the way there, which is not the controller's.
            if let Some(latency) = sample.latency
                && is_memorys
                && (by == on || is_apart)
            {
                let of_node = self.this.latencies.entry(on).or_default();
                of_node.sum += latency as f64;
                of_node.count = of_node.count.saturating_add(1);
            }
            let block = sample.address / page_bytes.max(1) / BLOCK_PAGES;
            let process = self.this.processes.entry(sample.process).or_default();
            let used = process.entry(block).or_insert(Used {
                samples: 0,
                on,
                by,
                thread: sample.thread,
            });
            *used = Used {
                samples: used.samples + 1,
                on,
                by,
                thread: sample.thread,
            };
        }
    }

    /// Ends the turn and begins another.
    pub(super) fn turn(&mut self) {
        self.last = Turn {
            is_whole: true,
            ..std::mem::take(&mut self.this)
        };
        for (&node, latencies) in &self.last.latencies {
            if let Some(mean) = latencies.mean() {
                let shortest = self.shortest.entry(node).or_insert(mean);
                *shortest = shortest.min(mean);
            }
        }
    }

    /// Forgets both turns, because nothing is sampled any more.
    pub(super) fn forget(&mut self) {
        (self.this, self.last) = Default::default();
    }

    /// Forgets the accesses of all other processes.
    pub(super) fn keep_only(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        for turn in [&mut self.this, &mut self.last] {
            turn.processes.retain(|&process, _| is_there(process));
        }
    }

    /// The blocks of a process that were used, ascending.
    pub(super) fn of(&self, process: ProcessId) -> BTreeMap<u64, Used> {
        let mut all = BTreeMap::new();
        for turn in [&self.last, &self.this] {
            for (&block, used) in turn.processes.get(&process).into_iter().flatten() {
                let before = all.get(&block).map_or(0, |before: &Used| before.samples);
                let samples = used.samples + before;
                all.insert(block, Used { samples, ..*used });
            }
        }
        all
    }

    /// Whether blocks of a process that are not in `used` have hardly been used: a whole turn was sampled, stores as
    /// well as loads, and the used blocks have enough samples.
    pub(super) fn show_unused(&self, used: &BTreeMap<u64, Used>) -> bool {
        let samples: u64 = used.values().map(|used| used.samples).sum();
        let is_enough = samples >= ENOUGH_OF_EACH * used.len() as u64;
        self.last.is_whole && self.stores && !used.is_empty() && is_enough
    }

    /// Forgets the accesses to a block, because it is on another node now.
    pub(super) fn moved(&mut self, process: ProcessId, block: u64) {
        for turn in [&mut self.this, &mut self.last] {
            if let Some(blocks) = turn.processes.get_mut(&process) {
                blocks.remove(&block);
            }
        }
    }

    /// How long accesses to a node's memory took in the turn before, by their samples; `None` where too few were
    /// sampled.
    pub(super) fn latency(&self, node: NodeId) -> Option<f64> {
        self.last.latencies.get(&node)?.mean()
    }

    /// How long accesses from a near node to a far one would take if nothing else used it: the shortest latency seen of
    /// the near node, times the ratio of the two latencies in the machine's description.
    pub(super) fn idle_latency(
        &self,
        from: NodeId,
        to: NodeId,
        topology: &Topology,
    ) -> Option<f64> {
        let rows = topology.timing().latency_ns.as_ref()?;
        let (near, far) = (topology.node_index(from)?, topology.node_index(to)?);
        let row = rows.get(near)?;
        Some(self.shortest.get(&from)? * row.get(far)? / row.get(near)?)
    }
}
