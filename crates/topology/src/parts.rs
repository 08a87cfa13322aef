//! From what a reader found to a checked [`Topology`].
//!
//! A reader fills [`Parts`] with what its source says and nothing more; [`Topology::new`] checks it
//! and derives cores and memory domains by one rule for all sources.
//!
//! The rule of memory domains: the CPUs of a node that share a last-level cache. A last-level cache
//! is the cache of the highest level that holds data, if it is of level 3 or more, or of level 2 and
//! shared by several cores; where a CPU has none (a virtual machine that hides its L3, say), its
//! domain is its node. A cache that spans nodes (sub-NUMA clustering) makes one domain per node.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::{CoreId, CpuId, DomainId, NodeId, PackageId};
use crate::set::CpuSet;
use crate::topology::{
    Cache, CacheKind, Core, Cpu, Distances, Domain, Invalid, Node, Timing, Topology,
};

/// One CPU as a reader found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// What a reader found.
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
    /// [`Invalid`] names the first thing that cannot be.
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
        let cpu_at = positions(cpus.iter().map(|cpu| cpu.id.index()));
        let node_at = positions(nodes.iter().map(|node| node.id.index()));
        check_names(&nodes, &cpus, &caches, &cpu_at)?;
        if !cpus.iter().any(|cpu| cpu.online) {
            return Err(Invalid::NoCpu);
        }
        if !nodes
            .iter()
            .any(|node| node.online && node.memory_bytes > 0)
        {
            return Err(Invalid::NoMemory);
        }
        let node_of = node_of_each_cpu(&nodes, &cpus, &cpu_at)?;
        let core_of = core_of_each_cpu(&cpus, &cpu_at);
        let domain_of = domain_of_each_cpu(&cpus, &caches, &node_of, &core_of, &cpu_at);
        let domain_count = domain_of.iter().map(|d| d.index() + 1).max().unwrap_or(0);
        let core_count = core_of.iter().map(|c| c.index() + 1).max().unwrap_or(0);

        let mut cores: Vec<Core> = (0..core_count)
            .map(|i| Core {
                id: dense(i),
                cpus: CpuSet::new(),
                domain: DomainId(0),
            })
            .collect();
        let mut domains: Vec<Domain> = (0..domain_count)
            .map(|i| Domain {
                id: dense(i),
                node: NodeId(0),
                cpus: CpuSet::new(),
                cores: Vec::new(),
            })
            .collect();
        for (i, cpu) in cpus.iter().enumerate() {
            let core = &mut cores[core_of[i].index()];
            core.cpus.insert(cpu.id);
            core.domain = domain_of[i];
            let domain = &mut domains[domain_of[i].index()];
            domain.node = node_of[i];
            domain.cpus.insert(cpu.id);
            if domain.cores.last() != Some(&core_of[i]) && !domain.cores.contains(&core_of[i]) {
                domain.cores.push(core_of[i]);
            }
        }
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
        let distances = checked_distances(distances, nodes.len())?;
        check_timing(&timing, nodes.len())?;
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

fn check_names(
    nodes: &[Node],
    cpus: &[CpuPart],
    caches: &[Cache],
    cpu_at: &[Option<u32>],
) -> Result<(), Invalid> {
    let known = |what: &dyn Fn() -> String, set: &CpuSet| match set
        .iter()
        .find(|&cpu| position(cpu_at, cpu).is_none())
    {
        Some(cpu) => Err(Invalid::UnknownCpu { what: what(), cpu }),
        None => Ok(()),
    };
    for node in nodes {
        known(&|| format!("node {}", node.id), &node.cpus)?;
    }
    for cpu in cpus {
        known(&|| format!("the core of CPU {}", cpu.id), &cpu.siblings)?;
    }
    for cache in caches {
        known(&|| format!("a level {} cache", cache.level), &cache.cpus)?;
    }
    Ok(())
}

fn node_of_each_cpu(
    nodes: &[Node],
    cpus: &[CpuPart],
    cpu_at: &[Option<u32>],
) -> Result<Vec<NodeId>, Invalid> {
    let mut node_of: Vec<Option<NodeId>> = vec![None; cpus.len()];
    for node in nodes {
        for cpu in node.cpus.iter() {
            let at = position(cpu_at, cpu).expect("checked by check_names");
            if let Some(first) = node_of[at].replace(node.id) {
                return Err(Invalid::CpuInTwoNodes {
                    cpu,
                    first,
                    second: node.id,
                });
            }
        }
    }
    // The kernel keeps offline CPUs out of their node's list. With one node there is no doubt;
    // else they go to the lowest node until they come online and the machine is read again.
    let fallback = nodes.first().map(|node| node.id);
    node_of
        .into_iter()
        .zip(cpus)
        .map(|(node, cpu)| {
            let or_else = if cpu.online { None } else { fallback };
            node.or(or_else).ok_or(Invalid::CpuWithoutNode(cpu.id))
        })
        .collect()
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
            let at = position(cpu_at, sibling).expect("checked by check_names");
            core_of[at].get_or_insert(core);
        }
    }
    core_of
        .into_iter()
        .map(|core| core.expect("every CPU was visited"))
        .collect()
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
        let ats: Vec<usize> = cache
            .cpus
            .iter()
            .filter_map(|cpu| position(cpu_at, cpu))
            .collect();
        let shared = ats.iter().any(|&at| core_of[at] != core_of[ats[0]]);
        if cache.level >= 3 || (cache.level == 2 && shared) {
            for at in ats {
                last_level[at] = Some(index);
            }
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

fn checked_distances(rows: Vec<Vec<u32>>, nodes: usize) -> Result<Distances, Invalid> {
    if rows.is_empty() {
        let row = |from| {
            (0..nodes)
                .map(|to| if from == to { 10 } else { 20 })
                .collect()
        };
        return Ok(Distances {
            rows: (0..nodes).map(row).collect(),
        });
    }
    check_matrix("the distance matrix", &rows, nodes)?;
    for (from, row) in rows.iter().enumerate() {
        // The kernel refuses a SLIT whose local distance is not 10 or whose others are below it;
        // 255 means unreachable. A wrong table must not make a remote node look local.
        for (to, &distance) in row.iter().enumerate() {
            let wrong = |reason| Invalid::Impossible {
                what: format!("the distance from node row {from} to {to}"),
                value: distance.to_string(),
                reason,
            };
            if from == to && distance != 10 {
                return Err(wrong("a node's distance to itself is 10"));
            }
            if from != to && !(10..=255).contains(&distance) {
                return Err(wrong("a distance is at least 10 and at most 255"));
            }
        }
    }
    Ok(Distances { rows })
}

fn check_timing(timing: &Timing, nodes: usize) -> Result<(), Invalid> {
    let positive = |what: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        let reason = "it must be a positive number";
        Err(Invalid::Impossible {
            what: what.to_owned(),
            value: value.to_string(),
            reason,
        })
    };
    if let Some(rows) = &timing.latency_ns {
        check_matrix("the latency matrix", rows, nodes)?;
        rows.iter()
            .flatten()
            .try_for_each(|&ns| positive("a latency in ns", ns))?;
    }
    if let Some(row) = &timing.node_gb_per_s {
        check_row("the node bandwidths", row.len(), nodes)?;
        row.iter()
            .try_for_each(|&gb| positive("a node bandwidth in GB/s", gb))?;
    }
    if let Some(rows) = &timing.link_gb_per_s {
        check_matrix("the link bandwidth matrix", rows, nodes)?;
        rows.iter()
            .flatten()
            .try_for_each(|&gb| positive("a link bandwidth in GB/s", gb))?;
    }
    Ok(())
}

fn check_matrix<T>(what: &str, rows: &[Vec<T>], nodes: usize) -> Result<(), Invalid> {
    check_row(what, rows.len(), nodes)?;
    let check =
        |(i, row): (usize, &Vec<T>)| check_row(&format!("{what}, row {i},"), row.len(), nodes);
    rows.iter().enumerate().try_for_each(check)
}

fn check_row(what: &str, found: usize, nodes: usize) -> Result<(), Invalid> {
    if found == nodes {
        return Ok(());
    }
    Err(Invalid::WrongMatrix {
        what: what.to_owned(),
        found,
        nodes,
    })
}
