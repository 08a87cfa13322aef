//! Nodes: their numbers, CPUs and memory, the SLIT, and the figures of HMAT.

use super::cpus::Listed;
use super::tree::Tree;
use crate::error::ReadError;
use crate::id::NodeId;
use crate::parts::LARGEST_NODES;
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Node, Timing};

const NODE: &str = "sys/devices/system/node";

/// The kernel's own figure for a node that cannot be reached (`LOCAL_DISTANCE` is 10).
const UNREACHABLE: u32 = 255;
const LOCAL: u32 = 10;

/// What a captured tree must hold for each node.
const CAPTURE_HINT: &str = "a captured tree needs it for every online node";

type Nodes = (Vec<Node>, Vec<Vec<u32>>, Timing);

pub(super) fn read(tree: &Tree<'_>, cpus: &Listed) -> Result<Nodes, ReadError> {
    if !tree.is_directory(NODE) {
        return without_numa(tree, cpus);
    }
    let online = online_nodes(tree)?;
    let possible: Option<NodeSet> = tree.list(&format!("{NODE}/possible"))?;
    let has_memory: Option<NodeSet> = tree.list(&format!("{NODE}/has_memory"))?;
    let mut all = possible.unwrap_or_default();
    all.extend_from(&online);
    if all.len() > LARGEST_NODES as usize {
        let why = format!("{} nodes are taken for a mistake", all.len());
        return Err(tree.wrong(&format!("{NODE}/possible"), &all.to_string(), why));
    }
    let mut nodes = Vec::with_capacity(all.len());
    for id in all.iter() {
        if !online.contains(id) {
            nodes.push(Node {
                id,
                ..Node::default()
            });
            continue;
        }
        let may_lack_memory = has_memory.as_ref().is_some_and(|with| !with.contains(id));
        let memory_bytes = match memory(tree, id)? {
            None if !may_lack_memory => {
                return Err(tree.missing(&format!("{NODE}/node{id}/meminfo"), CAPTURE_HINT));
            }
            bytes => bytes.unwrap_or(0),
        };
        nodes.push(Node {
            id,
            online: true,
            cpus: cpus_of(tree, id, cpus)?,
            memory_bytes,
        });
    }
    let distances = distances(tree, &nodes, &online)?;
    let timing = timing(tree, &nodes)?;
    Ok((nodes, distances, timing))
}

fn without_numa(tree: &Tree<'_>, cpus: &Listed) -> Result<Nodes, ReadError> {
    let file = "proc/meminfo";
    let text = tree.required(
        file,
        "the kernel shows no NUMA nodes, so the machine's memory must be read here",
    )?;
    let node = Node {
        id: NodeId(0),
        online: true,
        cpus: cpus.online.clone(),
        memory_bytes: memory_total(tree, file, &text)?,
    };
    Ok((vec![node], Vec::new(), Timing::default()))
}

fn online_nodes(tree: &Tree<'_>) -> Result<NodeSet, ReadError> {
    if let Some(online) = tree.list(&format!("{NODE}/online"))? {
        return Ok(online);
    }
    Ok(tree
        .numbered(NODE, "node")
        .into_iter()
        .map(NodeId)
        .collect())
}

fn cpus_of(tree: &Tree<'_>, node: NodeId, listed: &Listed) -> Result<CpuSet, ReadError> {
    let file = format!("{NODE}/node{node}/cpulist");
    let cpus: CpuSet = tree.required_list(&file, CAPTURE_HINT)?;
    if let Some(cpu) = cpus.difference(&listed.present).first() {
        let why = format!(
            "the machine has no CPU {cpu} (its CPUs are {})",
            listed.present
        );
        return Err(tree.wrong(&file, &cpus.to_string(), why));
    }
    // Leaves out a CPU that went offline between the two reads, as the kernel does.
    Ok(cpus.intersection(&listed.online))
}

/// The memory of a node in bytes; `None` where its file is missing.
fn memory(tree: &Tree<'_>, node: NodeId) -> Result<Option<u64>, ReadError> {
    let file = format!("{NODE}/node{node}/meminfo");
    let text = tree.text(&file)?;
    text.map(|text| memory_total(tree, &file, &text))
        .transpose()
}

/// Parses a line such as `Node 0 MemTotal: 16316412 kB`, or without the node.
fn memory_total(tree: &Tree<'_>, file: &str, text: &str) -> Result<u64, ReadError> {
    let Some(line) = text.lines().find(|line| line.contains("MemTotal:")) else {
        return Err(tree.wrong(file, text, "it has no line MemTotal"));
    };
    let total = line
        .split_once("MemTotal:")
        .and_then(|(_, rest)| rest.trim().strip_suffix("kB"))
        .and_then(|kib| kib.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024));
    total.ok_or_else(|| tree.wrong(file, line, "it is not a size such as MemTotal: 16316412 kB"))
}

/// Rows for all nodes, from rows of only the online ones.
fn distances(
    tree: &Tree<'_>,
    nodes: &[Node],
    online: &NodeSet,
) -> Result<Vec<Vec<u32>>, ReadError> {
    let mut rows = Vec::with_capacity(nodes.len());
    let mut first_missing = None;
    for from in nodes {
        let mut shown = Vec::new();
        let file = format!("{NODE}/node{}/distance", from.id);
        if from.online {
            match tree.text(&file)? {
                Some(text) => shown = distance_row(tree, &file, &text, online.len())?,
                None => {
                    first_missing.get_or_insert(file);
                    continue;
                }
            }
        }
        let mut shown = shown.into_iter();
        let row = nodes.iter().map(|to| match (from.online, to.online) {
            (true, true) => shown.next().expect("a row has an entry per online node"),
            _ if from.id == to.id => LOCAL,
            _ => UNREACHABLE,
        });
        rows.push(row.collect());
    }
    match first_missing {
        None => Ok(rows),
        Some(_) if rows.len() == nodes.len() - online.len() => Ok(Vec::new()),
        Some(file) => Err(ReadError::Io {
            path: tree.path(&file),
            why: "the file is missing, although other nodes have one".to_owned(),
            hint: CAPTURE_HINT,
        }),
    }
}

fn distance_row(
    tree: &Tree<'_>,
    file: &str,
    text: &str,
    online: usize,
) -> Result<Vec<u32>, ReadError> {
    let row: Result<Vec<u32>, _> = text.split_whitespace().map(str::parse).collect();
    match row {
        Err(_) => Err(tree.wrong(file, text, "it is not a row of distances such as 10 20")),
        Ok(row) if row.len() != online => {
            let why = format!("{} distances, but {online} nodes are online", row.len());
            Err(tree.wrong(file, text, why))
        }
        Ok(row) => Ok(row),
    }
}

/// The figures of HMAT, if complete. The kernel shows only the figures from each target's nearest
/// initiators, so the latency matrix is complete only if all initiators are equally near.
fn timing(tree: &Tree<'_>, nodes: &[Node]) -> Result<Timing, ReadError> {
    let mut latency_ns = vec![vec![None; nodes.len()]; nodes.len()];
    let mut node_gb_per_s = Vec::with_capacity(nodes.len());
    for (at, target) in nodes.iter().enumerate() {
        let directory = format!("{NODE}/node{}/access0/initiators", target.id);
        let positive = |value: Option<u32>| value.filter(|&value| value > 0).map(f64::from);
        let mib_per_s = positive(tree.number(&format!("{directory}/read_bandwidth"))?);
        node_gb_per_s.push(mib_per_s.map(|mib| mib * f64::from(1 << 20) / 1e9));
        let Some(ns) = positive(tree.number(&format!("{directory}/read_latency"))?) else {
            continue;
        };
        for initiator in tree.numbered(&directory, "node") {
            if let Some(from) = nodes.iter().position(|node| node.id == NodeId(initiator)) {
                latency_ns[from][at] = Some(ns);
            }
        }
    }
    let rows = latency_ns.into_iter().map(|row| row.into_iter().collect());
    Ok(Timing {
        latency_ns: rows.collect(),
        node_gb_per_s: node_gb_per_s.into_iter().collect(),
        link_gb_per_s: None,
    })
}
