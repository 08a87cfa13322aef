//! The checks of a machine's description in [`super::Topology::new`].

use std::collections::HashMap;

use super::{CpuPart, LARGEST_NODES, position, square};
use crate::figures;
use crate::id::{CoreId, CpuId, DomainId, NodeId};
use crate::set::{CpuSet, LARGEST_PARSED};
use crate::topology::{Cache, CacheKind, Distances, Invalid, Node, Timing};

pub(super) fn names(
    nodes: &[Node],
    cpus: &[CpuPart],
    caches: &[Cache],
    cpu_at: &[Option<u32>],
) -> Result<(), Invalid> {
    let known = |what: &dyn Fn() -> String, set: &CpuSet| {
        let mut unknown = set.iter().filter(|&cpu| position(cpu_at, cpu).is_none());
        match unknown.next() {
            Some(cpu) => Err(Invalid::UnknownCpu { what: what(), cpu }),
            None => Ok(()),
        }
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

/// Refuses a figure unless `is_possible`; `reason` says what it should be.
fn possible(
    is_possible: bool,
    what: impl FnOnce() -> String,
    value: impl ToString,
    reason: &'static str,
) -> Result<(), Invalid> {
    match is_possible {
        true => Ok(()),
        false => Err(Invalid::Impossible {
            what: what(),
            value: value.to_string(),
            reason,
        }),
    }
}

/// Checks that numbers are small enough to be looked up by index. Both lists are sorted.
pub(super) fn sizes(nodes: &[Node], cpus: &[CpuPart]) -> Result<(), Invalid> {
    let sizes = [
        (
            "a CPU's number",
            cpus.last().map(|cpu| cpu.id.0),
            LARGEST_PARSED,
        ),
        (
            "a node's number",
            nodes.last().map(|node| node.id.0),
            LARGEST_PARSED,
        ),
        (
            "the number of nodes",
            u32::try_from(nodes.len()).ok(),
            LARGEST_NODES,
        ),
    ];
    sizes.into_iter().try_for_each(|(what, number, most)| {
        let number = number.unwrap_or(0);
        let reason = "so large a number is taken for a mistake";
        possible(number <= most, || what.to_owned(), number, reason)
    })
}

/// Checks that there are an online CPU and memory, that the memory's sum does not overflow, and the capacities.
pub(super) fn nodes_and_cpus(nodes: &[Node], cpus: &[CpuPart]) -> Result<(), Invalid> {
    if !cpus.iter().any(|cpu| cpu.online) {
        return Err(Invalid::NoCpu);
    }
    if !nodes.iter().any(Node::has_memory) {
        return Err(Invalid::NoMemory);
    }
    let mut total = Some(0_u64);
    for node in nodes {
        let bytes = node.memory_bytes;
        total = total.and_then(|total| total.checked_add(bytes));
        let what = || format!("the memory of node {} in bytes", node.id);
        let reason = "with the other nodes' it is more than 2^64";
        possible(total.is_some(), what, bytes, reason)?;
    }
    for cpu in cpus {
        let capacity = cpu.capacity.unwrap_or(1024);
        let what = || format!("the capacity of CPU {}", cpu.id);
        let reason = "it is 1 to 1024, the strongest core's";
        possible((1..=1024).contains(&capacity), what, capacity, reason)?;
    }
    Ok(())
}

/// Checks that caches have a size, and that no CPU has two of one level and kind.
pub(super) fn caches(caches: &[Cache]) -> Result<(), Invalid> {
    let mut owner: HashMap<(u8, CacheKind, CpuId), &CpuSet> = HashMap::new();
    for cache in caches {
        let level = cache.level;
        let figures = [
            (level > 0, "level", "0", "levels count from 1"),
            (
                !cache.cpus.is_empty(),
                "list of CPUs",
                "empty",
                "some CPU has it",
            ),
            (
                cache.size_bytes != Some(0),
                "size",
                "0",
                "a cache cannot be empty",
            ),
            (
                cache.line_bytes != Some(0),
                "line size",
                "0",
                "a line cannot be empty",
            ),
        ];
        for (is_possible, figure, value, reason) in figures {
            let what = || {
                format!(
                    "the {figure} of the level {level} cache of CPUs {}",
                    cache.cpus
                )
            };
            possible(is_possible, what, value, reason)?;
        }
        for cpu in cache.cpus.iter() {
            if let Some(other) = owner.insert((level, cache.kind, cpu), &cache.cpus) {
                return Err(Invalid::CacheTwice {
                    cpu,
                    level,
                    first: other.to_string(),
                    second: cache.cpus.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// Checks that the CPUs of a core all name each other, and that all are in one node and one domain.
pub(super) fn cores(
    cpus: &[CpuPart],
    cpu_at: &[Option<u32>],
    core_of: &[CoreId],
    node_of: &[NodeId],
    domain_of: &[DomainId],
) -> Result<(), Invalid> {
    let one_way = "one names the other, but not the other way round";
    let mut first_of: Vec<Option<usize>> = vec![None; cpus.len()];
    for (at, cpu) in cpus.iter().enumerate() {
        let whole = |is_whole, other: usize, reason| match is_whole {
            true => Ok(()),
            false => Err(Invalid::TornCore {
                first: cpus[other].id,
                second: cpu.id,
                reason,
            }),
        };
        for sibling in cpu.siblings.iter() {
            let other = position(cpu_at, sibling).expect("checked by names");
            whole(core_of[other] == core_of[at], other, one_way)?;
        }
        let first = *first_of[core_of[at].index()].get_or_insert(at);
        let (own, others) = (&cpu.siblings, &cpus[first].siblings);
        let is_mutual = own.is_empty() || others.is_empty() || own == others;
        whole(is_mutual, first, one_way)?;
        let (same_node, same_domain) = (
            node_of[first] == node_of[at],
            domain_of[first] == domain_of[at],
        );
        whole(same_node, first, "they are in different nodes")?;
        whole(same_domain, first, "they do not share a last-level cache")?;
    }
    Ok(())
}

/// The checked SLIT, or the kernel's default if there is none. Rows and columns are in the order of the nodes.
pub(super) fn distances(rows: Vec<Vec<u32>>, nodes: &[Node]) -> Result<Distances, Invalid> {
    if rows.is_empty() {
        return Ok(Distances {
            rows: square(nodes.len(), |from, to| if from == to { 10 } else { 20 }),
        });
    }
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    figure("the distance matrix", figures::distances(&rows, &ids))?;
    Ok(Distances { rows })
}

pub(super) fn timing(timing: &Timing, nodes: usize) -> Result<(), Invalid> {
    if let Some(rows) = &timing.latency_ns {
        figure("the latency matrix", figures::positives(rows, nodes))?;
    }
    if let Some(row) = &timing.node_gb_per_s {
        figure(
            "the node bandwidths",
            figures::positive_for_each(row, nodes),
        )?;
    }
    if let Some(rows) = &timing.link_gb_per_s {
        figure("the link bandwidth matrix", figures::positives(rows, nodes))?;
    }
    Ok(())
}

/// Turns the result of a figure's check into the description's error.
fn figure(what: &str, checked: Result<(), String>) -> Result<(), Invalid> {
    checked.map_err(|why| Invalid::Figure {
        what: what.to_owned(),
        why,
    })
}
