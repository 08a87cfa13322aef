//! The boxes of nodes, and their arrangement side by side.

use std::collections::BTreeMap;
use std::fmt::Write;

use numaherd_quantity::{bytes, counted, noun};

use crate::id::{CoreId, CpuId};
use crate::set::{CpuSet, NodeSet};
use crate::topology::{Cache, CacheKind, Domain, Node, Topology};

/// Up to this number of cores, each is drawn.
const DRAWN_CORES: usize = 16;

/// A title and lines, without the frame.
pub(super) struct Box {
    title: String,
    lines: Vec<String>,
}

/// The properties that nodes must have in common to share a box.
pub(super) fn build(topology: &Topology, node: &Node) -> String {
    let mut text = bytes(node.memory_bytes);
    for domain in domains(topology, node) {
        let caches: Vec<String> = shared_caches(topology, domain).map(name).collect();
        let cores = domain.cores.len();
        let _ = write!(
            text,
            "; {cores} cores, {} CPUs, {}",
            domain.cpus.len(),
            caches.join(", ")
        );
        for core in &domain.cores {
            let _ = write!(text, " {}", topology.capacity_of(*core));
        }
    }
    text
}

/// The box of `node`, which stands for all of `alike`.
pub(super) fn draw(topology: &Topology, node: &Node, alike: &[&Node], columns: usize) -> Box {
    // The frame takes four columns.
    let inner = columns.saturating_sub(4).max(20);
    let ids: NodeSet = alike.iter().map(|node| node.id).collect();
    let title = match alike {
        [one] => format!("node {}{}", one.id, packages(topology, one)),
        _ => format!("nodes {ids}, {} alike", alike.len()),
    };
    let mut lines = vec![memory(topology, node)];
    if alike.len() > 1 {
        let cpus: usize = alike.iter().map(|node| node.cpus.len()).sum();
        let each = node.cpus.len();
        lines.push(format!("{} in all, {each} in each", counted(cpus, "CPU")));
        if each > 0 {
            lines.push(format!("node {}{}:", node.id, packages(topology, node)));
        }
    }
    // The private caches are shown once if they are the same in all domains.
    let of_domains: Vec<String> = domains(topology, node)
        .map(|domain| private(topology, domain))
        .collect();
    let same_everywhere = of_domains.windows(2).all(|pair| pair[0] == pair[1]);
    for domain in domains(topology, node) {
        lines.push(String::new());
        let shared =
            shared_caches(topology, domain).map(|cache| with_reach(topology, domain, cache));
        let title = format!(
            "domain {}: {} {}",
            domain.id,
            noun(domain.cpus.len(), "CPU"),
            domain.cpus
        );
        lines.extend(wrapped(std::iter::once(title).chain(shared), " · ", inner));
        lines.extend(cores(topology, domain, inner));
        let own = private(topology, domain);
        if !own.is_empty() && !same_everywhere {
            lines.push(own);
        }
    }
    if let (true, Some(own)) = (
        same_everywhere,
        of_domains.first().filter(|own| !own.is_empty()),
    ) {
        if of_domains.len() > 1 {
            lines.push(String::new());
        }
        lines.push(own.clone());
    }
    if node.cpus.is_empty() {
        lines.push("no CPUs".to_owned());
    }
    Box { title, lines }
}

fn domains<'a>(topology: &'a Topology, node: &Node) -> impl Iterator<Item = &'a Domain> {
    let id = node.id;
    topology
        .domains()
        .iter()
        .filter(move |domain| domain.node == id)
}

fn packages(topology: &Topology, node: &Node) -> String {
    let package = |cpu| topology.cpu(cpu).and_then(|cpu| cpu.package);
    match node.cpus.first().and_then(package) {
        Some(package) => format!(" · package {package}"),
        None => String::new(),
    }
}

fn memory(topology: &Topology, node: &Node) -> String {
    if node.memory_bytes == 0 {
        return "no memory".to_owned();
    }
    let at = topology.node_index(node.id);
    match (at, &topology.timing().node_gb_per_s) {
        (Some(at), Some(gb)) => format!("{} · {:.1} GB/s", bytes(node.memory_bytes), gb[at]),
        _ => bytes(node.memory_bytes),
    }
}

/// The caches of a domain that several of its cores share, farthest first.
fn shared_caches<'t>(topology: &'t Topology, domain: &Domain) -> impl Iterator<Item = &'t Cache> {
    let reaches = |cache: &&Cache| cache.cpus.intersects(&domain.cpus);
    let caches = topology.caches().iter().rev().filter(reaches);
    caches.filter(|cache| !is_private(topology, cache))
}

/// Name and size of a cache, with its CPUs if they are not exactly those of the domain.
fn with_reach(topology: &Topology, domain: &Domain, cache: &Cache) -> String {
    let is_online = |&cpu: &CpuId| topology.cpu(cpu).is_some_and(|cpu| cpu.online);
    let online: CpuSet = domain.cpus.iter().filter(is_online).collect();
    let name = name(cache);
    match cache.cpus == domain.cpus || cache.cpus == online {
        true => name,
        false if domain.cpus.is_subset(&cache.cpus) => format!("{name} with other nodes"),
        false => format!("{name} for CPUs {}", cache.cpus),
    }
}

fn is_private(topology: &Topology, cache: &Cache) -> bool {
    let mut cores = cache
        .cpus
        .iter()
        .filter_map(|cpu| topology.cpu(cpu))
        .map(|cpu| cpu.core);
    let first = cores.next();
    let last_level = cache.level >= 3;
    !last_level && cores.all(|core| Some(core) == first)
}

fn name(cache: &Cache) -> String {
    let kind = match cache.kind {
        CacheKind::Data => "d",
        CacheKind::Instruction => "i",
        CacheKind::Unified => "",
    };
    match cache.size_bytes {
        Some(size) => format!("L{}{kind} {}", cache.level, bytes(size)),
        None => format!("L{}{kind}", cache.level),
    }
}

/// The caches of the domain's cores, nearest first, each size once.
fn private(topology: &Topology, domain: &Domain) -> String {
    let mut names: Vec<String> = Vec::new();
    for cache in topology.caches() {
        if cache.cpus.is_subset(&domain.cpus) && is_private(topology, cache) {
            let name = name(cache);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    match names.is_empty() {
        true => String::new(),
        false => format!("{} per core", names.join(", ")),
    }
}

/// The cores of a domain, by computing power: each as `[0 8]`, or many as a line.
fn cores(topology: &Topology, domain: &Domain, inner: usize) -> Vec<String> {
    let mut kinds: BTreeMap<std::cmp::Reverse<u32>, Vec<CoreId>> = BTreeMap::new();
    for &core in &domain.cores {
        let capacity = topology.capacity_of(core);
        kinds
            .entry(std::cmp::Reverse(capacity))
            .or_default()
            .push(core);
    }
    let several = kinds.len() > 1 || kinds.keys().any(|capacity| capacity.0 != 1024);
    let mut lines = Vec::new();
    for (capacity, cores) in kinds {
        if several {
            lines.push(format!("capacity {}:", capacity.0));
        }
        let cpus = |core: &CoreId| &topology.cores()[core.index()].cpus;
        if cores.len() <= DRAWN_CORES {
            let drawn = cores.iter().map(|core| bracket(cpus(core)));
            lines.extend(wrapped(drawn, " ", inner));
        } else {
            let threads = cores.iter().map(|core| cpus(core).len()).max().unwrap_or(1);
            let with = if threads > 1 {
                format!(" of {threads} CPUs")
            } else {
                String::new()
            };
            lines.push(format!("{}{with}", counted(cores.len(), "core")));
        }
    }
    lines
}

fn bracket(cpus: &CpuSet) -> String {
    let cpus: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    format!("[{}]", cpus.join(" "))
}

/// Items in lines of at most `inner` columns, as far as each item allows.
pub(super) fn wrapped(
    items: impl Iterator<Item = String>,
    between: &str,
    inner: usize,
) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if width(line) + width(between) + width(&item) <= inner => {
                line.push_str(between);
                line.push_str(&item);
            }
            _ => lines.push(item),
        }
    }
    lines
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Frames the boxes, all of one width, and puts as many side by side as fit.
pub(super) fn arrange(text: &mut String, boxes: &[Box], columns: usize) {
    let widths = boxes.iter().flat_map(|b| {
        b.lines
            .iter()
            .map(|l| width(l))
            .chain([width(&b.title) + 2])
    });
    let inner = widths.max().unwrap_or(0);
    let outer = inner + 4;
    let across = ((columns + 1) / (outer + 1)).max(1);
    for row in boxes.chunks(across) {
        let height = row.iter().map(|b| b.lines.len()).max().unwrap_or(0);
        let framed: Vec<Vec<String>> = row.iter().map(|b| frame(b, inner, height)).collect();
        for line in 0..height + 2 {
            let across: Vec<&str> = framed.iter().map(|lines| lines[line].as_str()).collect();
            let _ = writeln!(text, "{}", across.join(" "));
        }
    }
}

fn frame(one: &Box, inner: usize, height: usize) -> Vec<String> {
    let rest = "─".repeat(inner - 1 - width(&one.title));
    let mut lines = vec![format!("┌─ {} {rest}┐", one.title)];
    for at in 0..height {
        let line = one.lines.get(at).map_or("", String::as_str);
        lines.push(format!("│ {line}{} │", " ".repeat(inner - width(line))));
    }
    lines.push(format!("└{}┘", "─".repeat(inner + 2)));
    lines
}
