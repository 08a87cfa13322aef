//! Builds a checked [`Topology`] from a reader's findings.
//!
//! A reader fills [`Parts`] with its source's content and nothing more; [`Topology::new`] checks it
//! and derives cores and memory domains by the same rule for all sources.
//!
//! The rule: a memory domain is the CPUs of a node that share a last-level cache. A CPU's
//! last-level cache is its data cache of the highest level, if that is 3 or more, or 2 and shared
//! by several cores. If a CPU has none (for instance because a virtual machine hides its L3), its
//! domain is its node. A cache that spans nodes (sub-NUMA clustering) makes one domain per node.

mod check;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{CoreId, CpuId, DomainId, NodeId, PackageId};
use crate::set::CpuSet;
use crate::topology::{Cache, CacheKind, Core, Cpu, Domain, Invalid, Node, Timing, Topology};

/// More nodes than this count as a mistake, so that no file can demand matrices of gigabytes. (The
/// kernel's own limit, `MAX_NUMNODES`, is 1024.)
pub(crate) const LARGEST_NODES: u32 = 8192;

/// One CPU as a reader found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPart {
    /// The kernel's number.
    pub id: CpuId,
    /// Whether it is online.
    pub online: bool,
    /// Its package, where known.
    pub package: Option<PackageId>,
    /// The CPUs of its core, itself included; empty where the source does not say.
    pub siblings: CpuSet,
    /// Relative computing power, 1024 for the strongest; `None` where the source does not say.
    pub capacity: Option<u32>,
}

/// A reader's findings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// The machine's name.
    pub name: String,
    /// The nodes, in any order, with their CPUs.
    pub nodes: Vec<Node>,
    /// The CPUs, in any order.
    pub cpus: Vec<CpuPart>,
    /// The caches, in any order.
    pub caches: Vec<Cache>,
    /// SLIT rows in the order of ascending node number; empty where the source has none
    /// (then 10 for local and 20 for all else, the kernel's own default).
    pub distances: Vec<Vec<u32>>,
    /// Latencies and bandwidths in the order of ascending node number.
    pub timing: Timing,
}

impl Topology {
    /// Checks what a reader found and derives cores and memory domains.
    ///
    /// # Errors
    /// [`Invalid`] names the first impossibility.
    pub fn new(parts: Parts) -> Result<Self, Invalid> {
        let Parts {
            name,
            mut nodes,
            mut cpus,
            mut caches,
            distances,
            timing,
        } = parts;
        nodes.sort_by_key(|node| node.id);
        cpus.sort_by_key(|cpu| cpu.id);
        caches.sort_by_key(|cache| (cache.level, cache.cpus.first(), cache.kind as u8));
        if let Some(twice) = nodes.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(Invalid::NodeTwice(twice[0].id));
        }
        if let Some(twice) = cpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(Invalid::CpuTwice(twice[0].id));
        }
        check::sizes(&nodes, &cpus)?;
        let cpu_at = positions(cpus.iter().map(|cpu| cpu.id.index()));
        let node_at = positions(nodes.iter().map(|node| node.id.index()));
        check::names(&nodes, &cpus, &caches, &cpu_at)?;
        check::nodes_and_cpus(&nodes, &cpus)?;
        check::caches(&caches)?;
        let node_of = node_of_each_cpu(&nodes, &cpus, &caches, &cpu_at)?;
        let core_of = core_of_each_cpu(&cpus, &cpu_at);
        let domain_of = domain_of_each_cpu(&cpus, &caches, &node_of, &core_of, &cpu_at);
        check::cores(&cpus, &cpu_at, &core_of, &node_of, &domain_of)?;
        let cores = cores(&cpus, &core_of, &domain_of);
        let domains = domains(&cpus, &cores, &node_of, &domain_of);
        let cpus = cpus
            .into_iter()
            .enumerate()
            .map(|(i, cpu)| Cpu {
                id: cpu.id,
                online: cpu.online,
                core: core_of[i],
                package: cpu.package,
                node: node_of[i],
                domain: domain_of[i],
                capacity: cpu.capacity.unwrap_or(1024),
            })
            .collect();
        let distances = check::distances(distances, &nodes)?;
        check::timing(&timing, nodes.len())?;
        Ok(Self {
            name,
            nodes,
            cpus,
            cores,
            domains,
            caches,
            distances,
            timing,
            cpu_at,
            node_at,
        })
    }
}

impl TryFrom<Parts> for Topology {
    type Error = Invalid;

    fn try_from(parts: Parts) -> Result<Self, Invalid> {
        Self::new(parts)
    }
}

impl From<Topology> for Parts {
    fn from(topology: Topology) -> Self {
        let siblings = |cpu: &Cpu| topology.cores[cpu.core.index()].cpus.clone();
        let cpus = topology.cpus.iter().map(|cpu| CpuPart {
            id: cpu.id,
            online: cpu.online,
            package: cpu.package,
            siblings: siblings(cpu),
            capacity: Some(cpu.capacity),
        });
        Self {
            cpus: cpus.collect(),
            name: topology.name,
            nodes: topology.nodes,
            caches: topology.caches,
            distances: topology.distances.rows,
            timing: topology.timing,
        }
    }
}

/// The computing power of the strongest core.
const FULL_CAPACITY: u64 = 1024;

/// Sets the computing power of the online CPUs from a source's `values`, scaled so that `strongest` becomes 1024.
pub(crate) fn set_capacities(cpus: &mut [CpuPart], values: &[u64], strongest: u64) {
    for (cpu, &value) in cpus.iter_mut().filter(|cpu| cpu.online).zip(values) {
        let scaled = u128::from(value) * u128::from(FULL_CAPACITY) / u128::from(strongest.max(1));
        cpu.capacity = Some(u32::try_from(scaled).unwrap_or(u32::MAX).max(1));
    }
}

/// A matrix of `size` rows and columns.
pub(crate) fn square<T>(size: usize, entry: impl Fn(usize, usize) -> T) -> Vec<Vec<T>> {
    let row = |from| (0..size).map(|to| entry(from, to)).collect();
    (0..size).map(row).collect()
}

fn dense<T: From<u32>>(index: usize) -> T {
    T::from(u32::try_from(index).expect("there are no more cores than CPU numbers, which are u32"))
}

fn positions(ids: impl Iterator<Item = usize>) -> Vec<Option<u32>> {
    let mut at = Vec::new();
    for (position, id) in ids.enumerate() {
        if at.len() <= id {
            at.resize(id + 1, None);
        }
        at[id] = Some(dense(position));
    }
    at
}

fn position(at: &[Option<u32>], cpu: CpuId) -> Option<usize> {
    at.get(cpu.index()).copied().flatten().map(|p| p as usize)
}

fn node_of_each_cpu(
    nodes: &[Node],
    cpus: &[CpuPart],
    caches: &[Cache],
    cpu_at: &[Option<u32>],
) -> Result<Vec<NodeId>, Invalid> {
    let mut node_of: Vec<Option<NodeId>> = vec![None; cpus.len()];
    for node in nodes {
        for cpu in node.cpus.iter() {
            let at = position(cpu_at, cpu).expect("checked by names");
            if let Some(first) = node_of[at].replace(node.id) {
                return Err(Invalid::CpuInTwoNodes {
                    cpu,
                    first,
                    second: node.id,
                });
            }
        }
    }
    // The kernel removes offline CPUs from their node's list, but (seen in Linux 6.12) not from
    // their caches' lists. Such a CPU belongs to the node of the CPUs with which it shares its
    // smallest cache. Without such a cache, it belongs to the lowest node that has CPUs, until it
    // comes online and the machine is read again.
    let fallback = nodes.iter().find(|node| !node.cpus.is_empty());
    let fallback = fallback.map(|node| node.id);
    let beside = |cpu: CpuId| {
        let shared = caches.iter().filter(|cache| cache.cpus.contains(cpu));
        let node = |cache: &Cache| {
            let mut ats = cache.cpus.iter().filter_map(|cpu| position(cpu_at, cpu));
            ats.find_map(|at| node_of[at])
        };
        let nodes = shared.filter_map(|cache| Some((cache.cpus.len(), node(cache)?)));
        nodes.min_by_key(|&(width, _)| width).map(|(_, node)| node)
    };
    let node = |(at, cpu): (usize, &CpuPart)| match node_of[at] {
        None if !cpu.online => beside(cpu.id).or(fallback),
        node => node,
    };
    let named = |(at, cpu)| node((at, cpu)).ok_or(Invalid::CpuWithoutNode(cpu.id));
    cpus.iter().enumerate().map(named).collect()
}

fn cores(cpus: &[CpuPart], core_of: &[CoreId], domain_of: &[DomainId]) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    for (at, cpu) in cpus.iter().enumerate() {
        // Cores are numbered in the order of their lowest CPU, so a new one is always the next.
        if cores.len() == core_of[at].index() {
            cores.push(Core {
                id: core_of[at],
                cpus: CpuSet::new(),
                domain: domain_of[at],
            });
        }
        cores[core_of[at].index()].cpus.insert(cpu.id);
    }
    cores
}

fn domains(
    cpus: &[CpuPart],
    cores: &[Core],
    node_of: &[NodeId],
    domain_of: &[DomainId],
) -> Vec<Domain> {
    let mut domains: Vec<Domain> = Vec::new();
    for (at, cpu) in cpus.iter().enumerate() {
        if domains.len() == domain_of[at].index() {
            domains.push(Domain {
                id: domain_of[at],
                node: node_of[at],
                cpus: CpuSet::new(),
                cores: Vec::new(),
            });
        }
        domains[domain_of[at].index()].cpus.insert(cpu.id);
    }
    for core in cores {
        domains[core.domain.index()].cores.push(core.id);
    }
    domains
}

fn core_of_each_cpu(cpus: &[CpuPart], cpu_at: &[Option<u32>]) -> Vec<CoreId> {
    let mut core_of: Vec<Option<CoreId>> = vec![None; cpus.len()];
    let mut next = 0;
    for at in 0..cpus.len() {
        if core_of[at].is_some() {
            continue;
        }
        let core = CoreId(next);
        next += 1;
        core_of[at] = Some(core);
        for sibling in cpus[at].siblings.iter() {
            let at = position(cpu_at, sibling).expect("checked by names");
            core_of[at].get_or_insert(core);
        }
    }
    let visited = |core: Option<CoreId>| core.expect("every CPU was visited");
    core_of.into_iter().map(visited).collect()
}

fn domain_of_each_cpu(
    cpus: &[CpuPart],
    caches: &[Cache],
    node_of: &[NodeId],
    core_of: &[CoreId],
    cpu_at: &[Option<u32>],
) -> Vec<DomainId> {
    let mut last_level: Vec<Option<usize>> = vec![None; cpus.len()];
    // Caches are sorted by level, so a later one is of a higher level and replaces the earlier.
    for (index, cache) in caches.iter().enumerate() {
        if cache.kind == CacheKind::Instruction {
            continue;
        }
        let ats = cache.cpus.iter().filter_map(|cpu| position(cpu_at, cpu));
        let ats: Vec<usize> = ats.collect();
        let shared = ats.iter().any(|&at| core_of[at] != core_of[ats[0]]);
        if cache.level >= 3 || (cache.level == 2 && shared) {
            for at in ats {
                last_level[at] = Some(index);
            }
        }
    }
    // An offline CPU's caches are unknown: it belongs to the first domain of its node.
    let mut first_of_node: BTreeMap<NodeId, Option<usize>> = BTreeMap::new();
    for at in (0..cpus.len()).filter(|&at| cpus[at].online) {
        first_of_node.entry(node_of[at]).or_insert(last_level[at]);
    }
    for (at, cpu) in cpus.iter().enumerate().filter(|(_, cpu)| !cpu.online) {
        if last_level[at].is_none() && cpu.siblings.len() <= 1 {
            last_level[at] = first_of_node.get(&node_of[at]).copied().flatten();
        }
    }
    let mut domains: BTreeMap<(NodeId, Option<usize>), DomainId> = BTreeMap::new();
    (0..cpus.len())
        .map(|at| {
            let next = dense(domains.len());
            *domains.entry((node_of[at], last_level[at])).or_insert(next)
        })
        .collect()
}
