//! The objects of an hwloc XML file as the parts of a machine; the rules are in [`super::xml`].

use std::collections::BTreeMap;

use numaherd_files::shortened;
use roxmltree::Node as Element;

use super::bitmap;
use super::xml::XmlFile;
use super::{Memory, dealt};
use crate::error::ReadError;
use crate::id::{CpuId, NodeId, PackageId};
use crate::parts::{CpuPart, LARGEST_NODES, Parts};
use crate::set::{CpuSet, IdSet, LARGEST_PARSED, NodeSet};
use crate::topology::{Cache, CacheKind, Node, Timing};

const MIB: f64 = (1 << 20) as f64;

/// What the operating system's latency matrix is marked with: from the system, and latencies.
const FROM_OS: u64 = 1;
const MEANS_LATENCY: u64 = 4;

const FULL_CAPACITY: u64 = 1024;

/// No honest file nests objects deeper.
const DEEPEST: usize = 64;

pub(super) fn parts(file: &XmlFile<'_>, root: Element<'_, '_>) -> Result<Parts, ReadError> {
    let mut found = Found::default();
    for object in root.descendants().filter(|e| e.has_tag_name("object")) {
        found.add(file, object)?;
    }
    let online: CpuSet = found.cpus.iter().map(|cpu| cpu.id).collect();
    let hidden = found.complete_cpus.difference(&online);
    let mut cpus = found.cpus;
    cpus.extend(hidden.iter().map(|id| CpuPart {
        id,
        online: false,
        package: None,
        siblings: CpuSet::new(),
        capacity: None,
    }));
    // A core or cache names only CPUs that have an object.
    for set in cpus.iter_mut().map(|cpu| &mut cpu.siblings) {
        *set = set.intersection(&online);
    }
    for cache in &mut found.caches {
        cache.cpus = cache.cpus.intersection(&online);
    }
    found.caches.retain(|cache| !cache.cpus.is_empty());
    set_capacities(file, root, &mut cpus)?;
    let mut nodes = dealt(found.memories, &online);
    let there: NodeSet = nodes.iter().map(|node| node.id).collect();
    nodes.extend(
        found
            .complete_nodes
            .difference(&there)
            .iter()
            .map(|id| Node {
                id,
                online: false,
                cpus: CpuSet::new(),
                memory_bytes: 0,
            }),
    );
    nodes.sort_by_key(|node| node.id);
    if nodes.len() > LARGEST_NODES as usize {
        let why = format!("{} nodes are taken for a mistake", nodes.len());
        return Err(file.wrong(root, why));
    }
    let distances = distances(file, root, &nodes, &found.node_names)?;
    let timing = timing(file, root, &nodes, &found.node_names)?;
    Ok(Parts {
        name: name(file, root),
        nodes,
        cpus,
        caches: found.caches,
        distances,
        timing,
    })
}

/// The machine's name: its host's, where the file has it, else the file's.
fn name(file: &XmlFile<'_>, root: Element<'_, '_>) -> String {
    let host = root
        .descendants()
        .find(|e| e.has_tag_name("info") && e.attribute("name") == Some("HostName"))
        .and_then(|info| info.attribute("value"));
    match host {
        Some(host) if !host.is_empty() => host.to_owned(),
        _ => file.path.display().to_string(),
    }
}

/// What the objects say, before offline CPUs and nodes are told from those that are there.
#[derive(Default)]
struct Found {
    cpus: Vec<CpuPart>,
    caches: Vec<Cache>,
    memories: Vec<Memory>,
    /// The node of each global index (`gp_index`), by which some matrices name nodes.
    node_names: BTreeMap<u64, NodeId>,
    complete_cpus: CpuSet,
    complete_nodes: NodeSet,
}

impl Found {
    fn add(&mut self, file: &XmlFile<'_>, object: Element<'_, '_>) -> Result<(), ReadError> {
        let Some(kind) = object.attribute("type") else {
            return Err(file.wrong(object, "an object without a type"));
        };
        match kind {
            "Machine" => {
                // Without end: "all there could be". Then the objects alone tell what there is.
                let cpus = bitmap_of::<CpuId>(file, object, "complete_cpuset")?;
                self.complete_cpus = cpus
                    .filter(|b| !b.infinite)
                    .map_or_else(CpuSet::new, |b| b.finite);
                let nodes = bitmap_of::<NodeId>(file, object, "complete_nodeset")?;
                self.complete_nodes = nodes
                    .filter(|b| !b.infinite)
                    .map_or_else(NodeSet::new, |b| b.finite);
            }
            "PU" => self.cpus.push(cpu(file, object)?),
            "NUMANode" => {
                let id = NodeId(os_index(file, object)?);
                if let Some(global) = number(file, object, "gp_index")? {
                    self.node_names.insert(global, id);
                }
                self.memories.push(Memory {
                    id,
                    bytes: number(file, object, "local_memory")?.unwrap_or(0),
                    near: finite(file, object, "cpuset")?,
                });
            }
            _ => {
                if let Some((level, data)) = cache_type(kind) {
                    self.caches.push(cache(file, object, level, data)?);
                }
            }
        }
        Ok(())
    }
}

fn cpu(file: &XmlFile<'_>, object: Element<'_, '_>) -> Result<CpuPart, ReadError> {
    let id = CpuId(os_index(file, object)?);
    let within = |kind| {
        object
            .ancestors()
            .take(DEEPEST)
            .find(|e| e.attribute("type") == Some(kind))
    };
    let mut siblings = match within("Core") {
        Some(core) => finite(file, core, "cpuset")?,
        None => CpuSet::new(),
    };
    siblings.insert(id);
    let package = match within("Package") {
        // A package need not have a number.
        Some(package) if package.has_attribute("os_index") => {
            Some(PackageId(os_index(file, package)?))
        }
        _ => None,
    };
    Ok(CpuPart {
        id,
        online: true,
        package,
        siblings,
        capacity: None,
    })
}

/// `L3Cache`, `L1iCache`: level, and whether it holds instructions alone.
fn cache_type(kind: &str) -> Option<(u8, bool)> {
    let rest = kind.strip_prefix('L')?;
    let level = rest.chars().next()?.to_digit(10)?;
    let level = u8::try_from(level).ok()?;
    match &rest[1..] {
        "Cache" => Some((level, false)),
        "iCache" => Some((level, true)),
        _ => None,
    }
}

fn cache(
    file: &XmlFile<'_>,
    object: Element<'_, '_>,
    level: u8,
    instruction: bool,
) -> Result<Cache, ReadError> {
    let kind = match number::<u8>(file, object, "cache_type")? {
        _ if instruction => CacheKind::Instruction,
        Some(1) => CacheKind::Data,
        _ => CacheKind::Unified,
    };
    // hwloc writes 0 for what it does not know, and -1 for fully associative.
    let known = |value: u32| (value > 0).then_some(value);
    let ways = match object.attribute("cache_associativity") {
        Some("-1") => Some(0),
        _ => number(file, object, "cache_associativity")?.and_then(known),
    };
    Ok(Cache {
        level,
        kind,
        size_bytes: number(file, object, "cache_size")?.filter(|&bytes: &u64| bytes > 0),
        line_bytes: number(file, object, "cache_linesize")?.and_then(known),
        ways,
        cpus: finite(file, object, "cpuset")?,
    })
}

fn set_capacities(
    file: &XmlFile<'_>,
    root: Element<'_, '_>,
    cpus: &mut [CpuPart],
) -> Result<(), ReadError> {
    let kinds: Vec<_> = root
        .children()
        .filter(|e| e.has_tag_name("cpukind"))
        .collect();
    for source in ["LinuxCapacity", "FrequencyMaxMHz"] {
        let mut of_kind: Vec<(CpuSet, u64)> = Vec::new();
        for &kind in &kinds {
            let mut infos = kind.children().filter(|e| e.has_tag_name("info"));
            if let Some(info) = infos.find(|info| info.attribute("name") == Some(source))
                && let Some(value) = number(file, info, "value")?
            {
                of_kind.push((finite(file, kind, "cpuset")?, value));
            }
        }
        let strongest = of_kind.iter().map(|&(_, value)| value).max().unwrap_or(0);
        let value_of = |cpu: &CpuPart| {
            let kind = of_kind.iter().find(|(cpus, _)| cpus.contains(cpu.id));
            kind.map(|&(_, value)| value)
        };
        if strongest == 0
            || !cpus
                .iter()
                .filter(|c| c.online)
                .all(|c| value_of(c).is_some())
        {
            continue;
        }
        for cpu in cpus.iter_mut().filter(|cpu| cpu.online) {
            let value = value_of(cpu).unwrap_or(strongest);
            let scaled = u128::from(value) * u128::from(FULL_CAPACITY) / u128::from(strongest);
            cpu.capacity = Some(u32::try_from(scaled).unwrap_or(u32::MAX).max(1));
        }
        return Ok(());
    }
    Ok(())
}

/// The SLIT, if the file has it: a row for every node, offline ones unreachable.
fn distances(
    file: &XmlFile<'_>,
    root: Element<'_, '_>,
    nodes: &[Node],
    names: &BTreeMap<u64, NodeId>,
) -> Result<Vec<Vec<u32>>, ReadError> {
    for matrix in root.children().filter(|e| e.has_tag_name("distances2")) {
        let kind: u64 = number(file, matrix, "kind")?.unwrap_or(0);
        let of_nodes = matrix.attribute("type") == Some("NUMANode");
        if !of_nodes || kind & FROM_OS == 0 || kind & MEANS_LATENCY == 0 {
            continue;
        }
        let by_number = matrix.attribute("indexing") == Some("os");
        let mut ids = Vec::new();
        for index in values::<u64>(file, matrix, "indexes")? {
            let id = if by_number {
                u32::try_from(index).ok().map(NodeId)
            } else {
                names.get(&index).copied()
            };
            match id.and_then(|id| nodes.iter().position(|n| n.id == id && n.online)) {
                Some(at) => ids.push(at),
                None => {
                    let why = format!("the distances name a node {index} that is not there");
                    return Err(file.wrong(matrix, why));
                }
            }
        }
        let entries = values::<u32>(file, matrix, "u64values")?;
        let online = nodes.iter().filter(|node| node.online).count();
        if ids.len() != online || entries.len() != online * online {
            let why = format!(
                "{} distances between {} nodes, where {online} nodes need {}",
                entries.len(),
                ids.len(),
                online * online
            );
            return Err(file.wrong(matrix, why));
        }
        let mut rows: Vec<Vec<u32>> = (0..nodes.len())
            .map(|from| {
                (0..nodes.len())
                    .map(|to| if from == to { 10 } else { 255 })
                    .collect()
            })
            .collect();
        for (entry, &distance) in entries.iter().enumerate() {
            rows[ids[entry / online]][ids[entry % online]] = distance;
        }
        return Ok(rows);
    }
    Ok(Vec::new())
}

fn timing(
    file: &XmlFile<'_>,
    root: Element<'_, '_>,
    nodes: &[Node],
    names: &BTreeMap<u64, NodeId>,
) -> Result<Timing, ReadError> {
    let latency = attribute(file, root, nodes, names, ["ReadLatency", "Latency"])?;
    let bandwidth = attribute(file, root, nodes, names, ["ReadBandwidth", "Bandwidth"])?;
    let whole = |rows: Vec<Vec<Option<f64>>>| -> Option<Vec<Vec<f64>>> {
        rows.into_iter()
            .map(|row| row.into_iter().collect())
            .collect()
    };
    // A node's own bandwidth is what the CPUs that reach it best see.
    let best = |to: usize| {
        let column = bandwidth.iter().filter_map(|row| row[to]);
        column.reduce(f64::max).map(|mib| mib * MIB / 1e9)
    };
    Ok(Timing {
        latency_ns: whole(latency),
        node_gb_per_s: (0..nodes.len()).map(best).collect(),
        link_gb_per_s: None,
    })
}

/// A memory attribute from the CPUs of a row's node to a column's; the first of the names that the
/// file has values for.
fn attribute(
    file: &XmlFile<'_>,
    root: Element<'_, '_>,
    nodes: &[Node],
    names: &BTreeMap<u64, NodeId>,
    wanted: [&str; 2],
) -> Result<Vec<Vec<Option<f64>>>, ReadError> {
    let mut rows = vec![vec![None; nodes.len()]; nodes.len()];
    for name in wanted {
        let is_it =
            |e: &Element<'_, '_>| e.has_tag_name("memattr") && e.attribute("name") == Some(name);
        let values = root.children().filter(is_it).flat_map(|e| e.children());
        let mut any = false;
        for value in values.filter(|e| e.has_tag_name("memattr_value")) {
            let target = number(file, value, "target_obj_gp_index")?;
            let target = target.and_then(|global: u64| names.get(&global));
            let amount: Option<u32> = number(file, value, "value")?;
            let (Some(target), Some(amount)) = (target, amount.filter(|&amount| amount > 0)) else {
                continue;
            };
            let near = finite(file, value, "initiator_cpuset")?;
            let to = nodes.iter().position(|node| node.id == *target);
            for (row, from) in rows.iter_mut().zip(nodes) {
                if let Some(to) = to.filter(|_| !from.cpus.is_empty() && from.cpus.is_subset(&near))
                {
                    row[to] = Some(f64::from(amount));
                    any = true;
                }
            }
        }
        if any {
            break;
        }
    }
    Ok(rows)
}

fn os_index(file: &XmlFile<'_>, object: Element<'_, '_>) -> Result<u32, ReadError> {
    match number::<u32>(file, object, "os_index")? {
        Some(number) if number <= LARGEST_PARSED => Ok(number),
        Some(number) => {
            Err(file.wrong(object, format!("os_index {number} is taken for a mistake")))
        }
        None => Err(file.wrong(object, "the object has no os_index")),
    }
}

fn number<T: std::str::FromStr>(
    file: &XmlFile<'_>,
    element: Element<'_, '_>,
    attribute: &str,
) -> Result<Option<T>, ReadError> {
    match element.attribute(attribute) {
        None => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => {
                let why = format!(
                    "{attribute} is {:?}, not a number that fits",
                    shortened(text)
                );
                Err(file.wrong(element, why))
            }
        },
    }
}

fn bitmap_of<T>(
    file: &XmlFile<'_>,
    element: Element<'_, '_>,
    attribute: &str,
) -> Result<Option<bitmap::Bitmap<T>>, ReadError>
where
    T: Copy + Into<u32> + From<u32>,
{
    let Some(text) = element.attribute(attribute) else {
        return Ok(None);
    };
    match bitmap::parse(text) {
        Ok(bitmap) => Ok(Some(bitmap)),
        Err(why) => {
            let why = format!("{attribute} is {:?}: {why}", shortened(text));
            Err(file.wrong(element, why))
        }
    }
}

/// A set that must have an end; empty where the attribute is missing.
fn finite<T>(
    file: &XmlFile<'_>,
    element: Element<'_, '_>,
    attribute: &str,
) -> Result<IdSet<T>, ReadError>
where
    T: Copy + Into<u32> + From<u32>,
{
    match bitmap_of(file, element, attribute)? {
        None => Ok(IdSet::new()),
        Some(bitmap) if bitmap.infinite => {
            Err(file.wrong(element, format!("{attribute} has no end")))
        }
        Some(bitmap) => Ok(bitmap.finite),
    }
}

/// The numbers in all child elements of that name.
fn values<T: std::str::FromStr>(
    file: &XmlFile<'_>,
    element: Element<'_, '_>,
    name: &str,
) -> Result<Vec<T>, ReadError> {
    let mut values = Vec::new();
    for child in element.children().filter(|e| e.has_tag_name(name)) {
        for word in child.text().unwrap_or("").split_whitespace() {
            match word.parse() {
                Ok(value) => values.push(value),
                Err(_) => {
                    let why = format!(
                        "{:?} in <{name}> is not a number that fits",
                        shortened(word)
                    );
                    return Err(file.wrong(child, why));
                }
            }
        }
    }
    Ok(values)
}
