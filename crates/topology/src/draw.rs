//! Draws a machine as text with a limited number of columns.
//!
//! Each node is a box with its memory domains, their caches, and a bracket per core with its CPUs.
//! The distances and, if known, the latencies follow. On machines with many nodes, equal nodes
//! share a box, and a matrix becomes a line per value; domains with many cores list their CPUs
//! instead of each core. So 64 nodes and 4096 CPUs still fit on a screen.

mod matrix;
mod node;

use std::fmt::Write;

use numaherd_quantity::{bytes, counted, noun};

use crate::set::{CpuSet, NodeSet};
use crate::topology::{Node, Topology};

/// Up to this number of nodes, each has a box of its own and matrices are printed whole.
const UNFOLDED_NODES: usize = 8;

/// Draws the machine in at most `columns` columns (as far as its names and lists allow).
pub fn draw(topology: &Topology, columns: usize) -> String {
    let mut text = summary(topology, columns);
    let (online, offline): (Vec<&Node>, Vec<&Node>) =
        topology.nodes().iter().partition(|node| node.online);
    let boxes: Vec<node::Box> = if online.len() <= UNFOLDED_NODES {
        let one = |node: &&Node| node::draw(topology, node, &[node], columns);
        online.iter().map(one).collect()
    } else {
        let alike = alike(topology, &online);
        let group = |nodes: &Vec<&Node>| node::draw(topology, nodes[0], nodes, columns);
        alike.iter().map(group).collect()
    };
    text.push('\n');
    node::arrange(&mut text, &boxes, columns);
    let nodes: NodeSet = offline.iter().map(|node| node.id).collect();
    let all: CpuSet = topology.cpus().iter().map(|cpu| cpu.id).collect();
    let cpus = all.difference(&topology.online_cpus());
    let away = [
        (nodes.len(), "node", nodes.to_string()),
        (cpus.len(), "CPU", cpus.to_string()),
    ];
    let away: Vec<String> = away
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, list)| format!("{} {list}", noun(*count, what)))
        .collect();
    if !away.is_empty() {
        let _ = writeln!(text, "\noffline: {}", away.join("; "));
    }
    matrix::draw(topology, &mut text, columns, UNFOLDED_NODES);
    text
}

fn summary(topology: &Topology, columns: usize) -> String {
    let nodes = topology.nodes();
    let packages: std::collections::BTreeSet<_> = topology
        .cpus()
        .iter()
        .filter_map(|cpu| cpu.package)
        .collect();
    let mut parts = vec![
        counted(nodes.len(), "node"),
        counted(topology.domains().len(), "memory domain"),
        counted(topology.cores().len(), "core"),
        counted(topology.cpus().len(), "CPU"),
        bytes(nodes.iter().map(|node| node.memory_bytes).sum::<u64>()),
    ];
    if !packages.is_empty() {
        parts.insert(0, counted(packages.len(), "package"));
    }
    let name = topology.name();
    let one_line = format!("{name}: {}", parts.join(", "));
    if one_line.chars().count() <= columns {
        return one_line + "\n";
    }
    let lines = node::wrapped(parts.into_iter(), ", ", columns);
    format!("{name}:\n{}\n", lines.join("\n"))
}

/// Groups equal nodes: those with the same memory and with domains of the same numbers of cores, threads and caches.
fn alike<'a>(topology: &Topology, nodes: &[&'a Node]) -> Vec<Vec<&'a Node>> {
    let mut builds: Vec<(String, Vec<&Node>)> = Vec::new();
    for &node in nodes {
        let build = node::build(topology, node);
        match builds.iter_mut().find(|(other, _)| *other == build) {
            Some((_, alike)) => alike.push(node),
            None => builds.push((build, vec![node])),
        }
    }
    builds.into_iter().map(|(_, alike)| alike).collect()
}
