//! Where candidates may go: the nodes and CPUs of each, and how much these are used.

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{Snapshot, Thread};

use crate::busy::wanted;
use crate::pools::Pool;
use crate::stage::Stage;

/// What a thread may use. Nodes are by their place in the topology.
#[derive(Clone, Debug, Default)]
pub struct AllowedCpus {
    /// All CPUs.
    pub all: CpuSet,
    /// The nodes of these CPUs, ascending.
    pub nodes: Vec<usize>,
    /// The CPUs of each of these.
    cpus: Vec<Vec<CpuId>>,
}

impl AllowedCpus {
    fn new(all: CpuSet, topology: &Topology) -> Self {
        let mut by_node: Vec<Vec<CpuId>> = vec![Vec::new(); topology.nodes().len()];
        for cpu in all.iter() {
            let node = topology.node_of(cpu);
            if let Some(node) = node.and_then(|node| topology.node_index(node)) {
                by_node[node].push(cpu);
            }
        }
        let own = by_node.into_iter().enumerate();
        let (nodes, cpus) = own.filter(|(_, cpus)| !cpus.is_empty()).unzip();
        Self { all, nodes, cpus }
    }

    /// How many nodes it may use besides the one that it is on; 1 if there are none, because times
    /// are multiplied by it.
    pub fn others(&self) -> u64 {
        self.nodes.len().saturating_sub(1).max(1) as u64
    }

    /// The CPUs of a node, ascending; none if it is not one of [`Self::nodes`].
    pub fn cpus_of(&self, node: usize) -> impl Iterator<Item = CpuId> + '_ {
        let at = self.nodes.binary_search(&node);
        at.into_iter().flat_map(|at| self.cpus[at].iter().copied())
    }
}

/// What each thread of a snapshot may use.
#[derive(Debug)]
pub struct Allowed {
    pools: Vec<AllowedCpus>,
    /// The place in `pools` for each thread; `None` for one that may not be placed or has no CPU.
    of: Vec<Option<usize>>,
}

impl Allowed {
    /// What the threads of a stage may use.
    pub fn new(stage: &Stage<'_>) -> Self {
        let mut of = vec![None; stage.snapshot.threads.len()];
        for (place, pool) in stage.pools.iter().enumerate() {
            pool.threads.iter().for_each(|&at| of[at] = Some(place));
        }
        let cpus = |pool: &Pool| AllowedCpus::new(pool.cpus.clone(), stage.topology);
        let pools = stage.pools.iter().map(cpus).collect();
        Self { pools, of }
    }

    /// What a thread may use, by its place in the snapshot.
    pub fn of(&self, at: usize) -> Option<&AllowedCpus> {
        self.of[at].map(|place| &self.pools[place])
    }
}

/// How much each CPU is used and waited for. Computed when first asked for: in most intervals no
/// thread moves.
pub struct Loads<'a> {
    snapshot: &'a Snapshot,
    topology: &'a Topology,
    /// In CPUs, by CPU number.
    of_cpus: Vec<f64>,
}

impl<'a> Loads<'a> {
    /// The loads of a snapshot.
    pub fn new(snapshot: &'a Snapshot, topology: &'a Topology) -> Self {
        Self {
            snapshot,
            topology,
            of_cpus: Vec::new(),
        }
    }

    /// The CPU that is used least: itself, then its core; the first of several.
    ///
    /// # Panics
    /// If there are no CPUs.
    pub fn least(&mut self, cpus: impl Iterator<Item = CpuId>) -> CpuId {
        self.find_out();
        let load = |cpu: CpuId| {
            let core = self.topology.cpu(cpu).map(|cpu| cpu.core);
            let siblings = core.map(|core| self.topology.cores()[core.index()].cpus.iter());
            let of_core: f64 = siblings.into_iter().flatten().map(|cpu| self.of(cpu)).sum();
            (self.of(cpu), of_core)
        };
        let (least, _) = cpus
            .map(|cpu| (cpu, load(cpu)))
            .min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
            .expect("there are CPUs, and so has each of its nodes");
        least
    }

    /// Notes that the thread uses that CPU from now on.
    pub fn moves(&mut self, thread: &Thread, to: CpuId) {
        if !self.of_cpus.is_empty() {
            self.put(thread.cpu, -wanted(thread));
            self.put(to, wanted(thread));
        }
    }

    fn find_out(&mut self) {
        if self.of_cpus.is_empty() {
            let last = self.topology.cpus().last();
            self.of_cpus = vec![0.0; last.map_or(0, |cpu| cpu.id.index()) + 1];
            for thread in &self.snapshot.threads {
                self.put(thread.cpu, wanted(thread));
            }
        }
    }

    fn of(&self, cpu: CpuId) -> f64 {
        self.of_cpus.get(cpu.index()).copied().unwrap_or_default()
    }

    fn put(&mut self, cpu: CpuId, load: f64) {
        if let Some(of) = self.of_cpus.get_mut(cpu.index()) {
            *of += load;
        }
    }
}
