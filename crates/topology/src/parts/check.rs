//! What a description must hold to be that of a machine: the checks of [`super::Topology::new`].

use std::collections::HashMap;

use super::{CpuPart, LARGEST_NODES, position};
use crate::id::{CoreId, CpuId, DomainId, NodeId};
use crate::set::{CpuSet, LARGEST_PARSED};
use crate::topology::{Cache, CacheKind, Distances, Invalid, Node, Timing};

pub(super) fn names(
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

fn impossible(what: String, value: impl ToString, reason: &'static str) -> Invalid {
    Invalid::Impossible {
        what,
        value: value.to_string(),
        reason,
    }
}

/// Numbers are small enough to be looked up by index. Both lists are sorted.
pub(super) fn sizes(nodes: &[Node], cpus: &[CpuPart]) -> Result<(), Invalid> {
    const REASON: &str = "so large a number is taken for a mistake";
    if let Some(cpu) = cpus.last().filter(|cpu| cpu.id.0 > LARGEST_PARSED) {
        return Err(impossible("a CPU's number".to_owned(), cpu.id, REASON));
    }
    if let Some(node) = nodes.last().filter(|node| node.id.0 > LARGEST_PARSED) {
        return Err(impossible("a node's number".to_owned(), node.id, REASON));
    }
    if nodes.len() > LARGEST_NODES as usize {
        return Err(impossible(
            "the number of nodes".to_owned(),
            nodes.len(),
            REASON,
        ));
    }
    Ok(())
}

/// There is something to run on and memory to run in, and the sum of it is a number.
pub(super) fn nodes_and_cpus(nodes: &[Node], cpus: &[CpuPart]) -> Result<(), Invalid> {
    if !cpus.iter().any(|cpu| cpu.online) {
        return Err(Invalid::NoCpu);
    }
    if !nodes
        .iter()
        .any(|node| node.online && node.memory_bytes > 0)
    {
        return Err(Invalid::NoMemory);
    }
    let mut total: u64 = 0;
    for node in nodes {
        total = total.checked_add(node.memory_bytes).ok_or_else(|| {
            let what = format!("the memory of node {} in bytes", node.id);
            impossible(
                what,
                node.memory_bytes,
                "with the other nodes' it is more than 2^64",
            )
        })?;
    }
    for cpu in cpus {
        if let Some(capacity) = cpu
            .capacity
            .filter(|capacity| !(1..=1024).contains(capacity))
        {
            let what = format!("the capacity of CPU {}", cpu.id);
            return Err(impossible(
                what,
                capacity,
                "it is 1 to 1024, the strongest core's",
            ));
        }
    }
    Ok(())
}

/// Caches have a size, and no CPU has two of one level and kind.
pub(super) fn caches(caches: &[Cache]) -> Result<(), Invalid> {
    let mut owner: HashMap<(u8, CacheKind, CpuId), &CpuSet> = HashMap::new();
    for cache in caches {
        let what = |figure: &str| {
            let level = cache.level;
            format!(
                "the {figure} of the level {level} cache of CPUs {}",
                cache.cpus
            )
        };
        if cache.level == 0 {
            return Err(impossible(what("level"), 0, "levels count from 1"));
        }
        if cache.cpus.is_empty() {
            return Err(impossible(what("list of CPUs"), "empty", "some CPU has it"));
        }
        if cache.size_bytes == Some(0) {
            return Err(impossible(what("size"), 0, "a cache cannot be empty"));
        }
        if cache.line_bytes == Some(0) {
            return Err(impossible(what("line size"), 0, "a line cannot be empty"));
        }
        for cpu in cache.cpus.iter() {
            if let Some(other) = owner.insert((cache.level, cache.kind, cpu), &cache.cpus) {
                return Err(Invalid::CacheTwice {
                    cpu,
                    level: cache.level,
                    first: other.to_string(),
                    second: cache.cpus.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// The CPUs of a core all name each other, and all are in one node and one domain.
pub(super) fn cores(
    cpus: &[CpuPart],
    cpu_at: &[Option<u32>],
    core_of: &[CoreId],
    node_of: &[NodeId],
    domain_of: &[DomainId],
) -> Result<(), Invalid> {
    let mut first_of: Vec<Option<usize>> = vec![None; cpus.len()];
    for (at, cpu) in cpus.iter().enumerate() {
        let torn = |other: usize, reason| Invalid::TornCore {
            first: cpus[other].id,
            second: cpu.id,
            reason,
        };
        for sibling in cpu.siblings.iter() {
            let other = position(cpu_at, sibling).expect("checked by names");
            if core_of[other] != core_of[at] {
                return Err(torn(
                    other,
                    "one names the other, but not the other way round",
                ));
            }
        }
        let first = *first_of[core_of[at].index()].get_or_insert(at);
        let said = |cpu: &CpuPart| !cpu.siblings.is_empty();
        if said(&cpus[first]) && said(cpu) && cpus[first].siblings != cpu.siblings {
            return Err(torn(
                first,
                "one names the other, but not the other way round",
            ));
        }
        if node_of[first] != node_of[at] {
            return Err(torn(first, "they are in different nodes"));
        }
        if domain_of[first] != domain_of[at] {
            return Err(torn(first, "they do not share a last-level cache"));
        }
    }
    Ok(())
}

/// The SLIT as the kernel would accept it, or the kernel's default where there is none.
pub(super) fn distances(rows: Vec<Vec<u32>>, nodes: &[Node]) -> Result<Distances, Invalid> {
    if rows.is_empty() {
        let row = |from| {
            (0..nodes.len())
                .map(|to| if from == to { 10 } else { 20 })
                .collect()
        };
        return Ok(Distances {
            rows: (0..nodes.len()).map(row).collect(),
        });
    }
    matrix("the distance matrix", &rows, nodes.len())?;
    for (from, row) in nodes.iter().zip(&rows) {
        // The kernel refuses a SLIT whose local distance is not 10 or whose others are below it;
        // 255 means unreachable. A wrong table must not make a remote node look local.
        for (to, &distance) in nodes.iter().zip(row) {
            let what = || format!("the distance from node {} to node {}", from.id, to.id);
            if from.id == to.id && distance != 10 {
                return Err(impossible(
                    what(),
                    distance,
                    "a node's distance to itself is 10",
                ));
            }
            if !(10..=255).contains(&distance) {
                return Err(impossible(what(), distance, "a distance is 10 to 255"));
            }
        }
    }
    Ok(Distances { rows })
}

pub(super) fn timing(timing: &Timing, nodes: usize) -> Result<(), Invalid> {
    let positive = |what: &str, value: f64| {
        if value.is_finite() && value > 0.0 {
            return Ok(());
        }
        Err(impossible(
            what.to_owned(),
            value,
            "it must be a positive number",
        ))
    };
    if let Some(rows) = &timing.latency_ns {
        matrix("the latency matrix", rows, nodes)?;
        rows.iter()
            .flatten()
            .try_for_each(|&ns| positive("a latency in ns", ns))?;
    }
    if let Some(row) = &timing.node_gb_per_s {
        row_length("the node bandwidths", row.len(), nodes)?;
        row.iter()
            .try_for_each(|&gb| positive("a node bandwidth in GB/s", gb))?;
    }
    if let Some(rows) = &timing.link_gb_per_s {
        matrix("the link bandwidth matrix", rows, nodes)?;
        rows.iter()
            .flatten()
            .try_for_each(|&gb| positive("a link bandwidth in GB/s", gb))?;
    }
    Ok(())
}

fn matrix<T>(what: &str, rows: &[Vec<T>], nodes: usize) -> Result<(), Invalid> {
    row_length(what, rows.len(), nodes)?;
    let check_row =
        |(i, row): (usize, &Vec<T>)| row_length(&format!("{what}, row {i},"), row.len(), nodes);
    rows.iter().enumerate().try_for_each(check_row)
}

fn row_length(what: &str, found: usize, nodes: usize) -> Result<(), Invalid> {
    if found == nodes {
        return Ok(());
    }
    Err(Invalid::WrongMatrix {
        what: what.to_owned(),
        found,
        nodes,
    })
}
