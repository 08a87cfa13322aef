//! The objects of an hwloc XML file as the parts of a machine; the rules are in [`super::xml`].

use std::collections::BTreeMap;
use std::str::FromStr;

use numaherd_files::shortened;

use super::bitmap::{self, Bitmap};
use super::xml::Tag;
use super::{Memory, dealt};
use crate::error::ReadError;
use crate::id::{CpuId, NodeId, PackageId};
use crate::parts::{CpuPart, LARGEST_NODES, Parts, set_capacities, square};
use crate::set::{CpuSet, Id, IdSet, LARGEST_PARSED, NodeSet};
use crate::topology::{Cache, CacheKind, Node, Timing};

const MIB: f64 = (1 << 20) as f64;
/// Flags of the operating system's latency matrix: from the system, and latencies.
const FROM_OS: u64 = 1;
const MEANS_LATENCY: u64 = 4;
/// No real file nests objects deeper.
const DEEPEST: usize = 64;

pub(super) fn parts(root: Tag<'_>) -> Result<Parts, ReadError> {
    let mut found = Found::default();
    for object in root.descendants("object") {
        found.add(object)?;
    }
    let online: CpuSet = found.cpus.iter().map(|cpu| cpu.id).collect();
    let hidden = found.complete_cpus.difference(&online);
    let mut cpus = found.cpus;
    cpus.extend(hidden.iter().map(|id| CpuPart {
        id,
        ..CpuPart::default()
    }));
    // A core or cache names only CPUs that have an object.
    for set in cpus.iter_mut().map(|cpu| &mut cpu.siblings) {
        *set = set.intersection(&online);
    }
    for cache in &mut found.caches {
        cache.cpus = cache.cpus.intersection(&online);
    }
    found.caches.retain(|cache| !cache.cpus.is_empty());
    capacities(root, &mut cpus)?;
    let mut nodes = dealt(found.memories, &online);
    let there: NodeSet = nodes.iter().map(|node| node.id).collect();
    let hidden = found.complete_nodes.difference(&there);
    nodes.extend(hidden.iter().map(|id| Node {
        id,
        ..Node::default()
    }));
    nodes.sort_by_key(|node| node.id);
    if nodes.len() > LARGEST_NODES as usize {
        return Err(root.wrong(format!("{} nodes are taken for a mistake", nodes.len())));
    }
    let matrices = Matrices {
        root,
        nodes: &nodes,
        names: &found.node_names,
    };
    Ok(Parts {
        name: name(root),
        distances: matrices.distances()?,
        timing: matrices.timing()?,
        nodes,
        cpus,
        caches: found.caches,
    })
}

/// The machine's name: the host's, if the file gives it, else the file's.
fn name(root: Tag<'_>) -> String {
    let host = root
        .descendants("info")
        .find(|info| info.attribute("name") == Some("HostName"))
        .and_then(|info| info.attribute("value"));
    match host {
        Some(host) if !host.is_empty() => host.to_owned(),
        _ => root.path.display().to_string(),
    }
}

/// The data of the objects, before offline CPUs and nodes are determined.
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
    fn add(&mut self, object: Tag<'_>) -> Result<(), ReadError> {
        let Some(kind) = object.attribute("type") else {
            return Err(object.wrong("an object without a type"));
        };
        match kind {
            "Machine" => {
                self.complete_cpus = if_finite(object.bitmap("complete_cpuset")?);
                self.complete_nodes = if_finite(object.bitmap("complete_nodeset")?);
            }
            "PU" => self.cpus.push(cpu(object)?),
            "NUMANode" => {
                let id = NodeId(object.os_index()?);
                if let Some(global) = object.number("gp_index")? {
                    self.node_names.insert(global, id);
                }
                self.memories.push(Memory {
                    id,
                    bytes: object.number("local_memory")?.unwrap_or(0),
                    near: object.finite("cpuset")?,
                });
            }
            _ => self.caches.extend(cache(object, kind)?),
        }
        Ok(())
    }
}

/// A set of all possible numbers; empty if it has no end: then only objects count.
fn if_finite<T: Id>(bitmap: Option<Bitmap<T>>) -> IdSet<T> {
    let finite = bitmap.filter(|bitmap| !bitmap.infinite);
    finite.map_or_else(IdSet::new, |bitmap| bitmap.finite)
}

fn cpu(object: Tag<'_>) -> Result<CpuPart, ReadError> {
    let id = CpuId(object.os_index()?);
    let within = |kind| {
        let mut around = object.element.ancestors().take(DEEPEST);
        let found = around.find(|element| element.attribute("type") == Some(kind));
        found.map(|element| Tag { element, ..object })
    };
    let mut siblings = match within("Core") {
        Some(core) => core.finite("cpuset")?,
        None => CpuSet::new(),
    };
    siblings.insert(id);
    // A package need not have a number.
    let package = within("Package").filter(|package| package.attribute("os_index").is_some());
    let package = package.map(|package| package.os_index()).transpose()?;
    Ok(CpuPart {
        id,
        online: true,
        package: package.map(PackageId),
        siblings,
        capacity: None,
    })
}

/// An object of type `L3Cache`, `L1iCache` or the like; `None` if it is no cache.
fn cache(object: Tag<'_>, kind: &str) -> Result<Option<Cache>, ReadError> {
    let level = kind.strip_prefix('L').and_then(|rest| rest.chars().next());
    let level = level.and_then(|level| level.to_digit(10));
    let Some(level) = level.and_then(|level| u8::try_from(level).ok()) else {
        return Ok(None);
    };
    let kind = match (&kind[2..], object.number::<u8>("cache_type")?) {
        ("iCache", _) => CacheKind::Instruction,
        ("Cache", Some(1)) => CacheKind::Data,
        ("Cache", _) => CacheKind::Unified,
        _ => return Ok(None),
    };
    // hwloc writes 0 for unknown values, and -1 for fully associative.
    let known = |value: &u32| *value > 0;
    let ways = match object.attribute("cache_associativity") {
        Some("-1") => Some(0),
        _ => object.number("cache_associativity")?.filter(known),
    };
    Ok(Some(Cache {
        level,
        kind,
        size_bytes: object
            .number("cache_size")?
            .filter(|&bytes: &u64| bytes > 0),
        line_bytes: object.number("cache_linesize")?.filter(known),
        ways,
        cpus: object.finite("cpuset")?,
    }))
}

/// Fills in each CPU's computing power from the first source that has it for every online CPU.
fn capacities(root: Tag<'_>, cpus: &mut [CpuPart]) -> Result<(), ReadError> {
    for source in ["LinuxCapacity", "FrequencyMaxMHz"] {
        let mut of_kind: Vec<(CpuSet, u64)> = Vec::new();
        for kind in root.children("cpukind") {
            let mut infos = kind.children("info");
            if let Some(info) = infos.find(|info| info.attribute("name") == Some(source))
                && let Some(value) = info.number("value")?
            {
                of_kind.push((kind.finite("cpuset")?, value));
            }
        }
        let strongest = of_kind.iter().map(|&(_, value)| value).max().unwrap_or(0);
        let value_of = |cpu: &CpuPart| {
            let kind = of_kind.iter().find(|(cpus, _)| cpus.contains(cpu.id));
            kind.map(|&(_, value)| value)
        };
        let online = cpus.iter().filter(|cpu| cpu.online);
        let values = online.map(value_of).collect::<Option<Vec<u64>>>();
        if let Some(values) = values.filter(|_| strongest > 0) {
            set_capacities(cpus, &values, strongest);
            return Ok(());
        }
    }
    Ok(())
}

/// The matrices between nodes.
struct Matrices<'f> {
    root: Tag<'f>,
    nodes: &'f [Node],
    names: &'f BTreeMap<u64, NodeId>,
}

impl Matrices<'_> {
    /// The SLIT, if the file has it: a row for every node; offline nodes are unreachable.
    fn distances(&self) -> Result<Vec<Vec<u32>>, ReadError> {
        for matrix in self.root.children("distances2") {
            let kind: u64 = matrix.number("kind")?.unwrap_or(0);
            let of_nodes = matrix.attribute("type") == Some("NUMANode");
            if of_nodes && kind & FROM_OS != 0 && kind & MEANS_LATENCY != 0 {
                return self.slit(matrix);
            }
        }
        Ok(Vec::new())
    }

    fn slit(&self, matrix: Tag<'_>) -> Result<Vec<Vec<u32>>, ReadError> {
        let nodes = self.nodes;
        let by_number = matrix.attribute("indexing") == Some("os");
        let place = |index: u64| {
            let id = match by_number {
                true => u32::try_from(index).ok().map(NodeId),
                false => self.names.get(&index).copied(),
            };
            let is_it = |node: &Node| Some(node.id) == id && node.online;
            nodes.iter().position(is_it).ok_or_else(|| {
                matrix.wrong(format!(
                    "the distances name a node {index} that is not there"
                ))
            })
        };
        let places = matrix.values("indexes")?.into_iter().map(place);
        let places: Vec<usize> = places.collect::<Result<_, _>>()?;
        let entries = matrix.values::<u32>("u64values")?;
        let online = nodes.iter().filter(|node| node.online).count();
        if places.len() != online || entries.len() != online * online {
            return Err(matrix.wrong(format!(
                "{} distances between {} nodes, where {online} nodes need {}",
                entries.len(),
                places.len(),
                online * online
            )));
        }
        let mut rows = square(nodes.len(), |from, to| if from == to { 10 } else { 255 });
        for (entry, &distance) in entries.iter().enumerate() {
            rows[places[entry / online]][places[entry % online]] = distance;
        }
        Ok(rows)
    }

    fn timing(&self) -> Result<Timing, ReadError> {
        let latency = self.attribute(["ReadLatency", "Latency"])?;
        let bandwidth = self.attribute(["ReadBandwidth", "Bandwidth"])?;
        let rows = latency.into_iter().map(|row| row.into_iter().collect());
        // A node's bandwidth is the highest that any node's CPUs reach.
        let best = |to: usize| {
            let column = bandwidth.iter().filter_map(|row| row[to]);
            column.reduce(f64::max).map(|mib| mib * MIB / 1e9)
        };
        Ok(Timing {
            latency_ns: rows.collect(),
            node_gb_per_s: (0..self.nodes.len()).map(best).collect(),
            link_gb_per_s: None,
        })
    }

    /// A memory attribute from the CPUs of a row's node to a column's, under the first of the names that has values.
    fn attribute(&self, wanted: [&str; 2]) -> Result<Vec<Vec<Option<f64>>>, ReadError> {
        let mut rows = square(self.nodes.len(), |_, _| None);
        for name in wanted {
            let named = self.root.children("memattr");
            let named = named.filter(|tag| tag.attribute("name") == Some(name));
            for value in named.flat_map(|tag| tag.children("memattr_value")) {
                let target = value.number("target_obj_gp_index")?;
                let target = target.and_then(|global: u64| self.names.get(&global));
                let amount: Option<u32> = value.number("value")?;
                let (Some(target), Some(amount)) = (target, amount.filter(|&amount| amount > 0))
                else {
                    continue;
                };
                let near = value.finite("initiator_cpuset")?;
                let to = self.nodes.iter().position(|node| node.id == *target);
                for (row, from) in rows.iter_mut().zip(self.nodes) {
                    let is_near = !from.cpus.is_empty() && from.cpus.is_subset(&near);
                    if let Some(to) = to.filter(|_| is_near) {
                        row[to] = Some(f64::from(amount));
                    }
                }
            }
            if rows.iter().flatten().any(Option::is_some) {
                break;
            }
        }
        Ok(rows)
    }
}

impl Tag<'_> {
    fn os_index(self) -> Result<u32, ReadError> {
        match self.number::<u32>("os_index")? {
            Some(number) if number <= LARGEST_PARSED => Ok(number),
            Some(number) => Err(self.wrong(format!("os_index {number} is taken for a mistake"))),
            None => Err(self.wrong("the object has no os_index")),
        }
    }

    fn number<T: FromStr>(self, attribute: &str) -> Result<Option<T>, ReadError> {
        let Some(text) = self.attribute(attribute) else {
            return Ok(None);
        };
        let number = text.trim().parse().map_err(|_| {
            let text = shortened(text);
            self.wrong(format!("{attribute} is {text:?}, not a number that fits"))
        });
        number.map(Some)
    }

    fn bitmap<T: Id>(self, attribute: &str) -> Result<Option<Bitmap<T>>, ReadError> {
        let Some(text) = self.attribute(attribute) else {
            return Ok(None);
        };
        let bitmap = bitmap::parse(text).map_err(|why| {
            let text = shortened(text);
            self.wrong(format!("{attribute} is {text:?}: {why}"))
        });
        bitmap.map(Some)
    }

    /// A set that must have an end; empty if the attribute is missing.
    fn finite<T: Id>(self, attribute: &str) -> Result<IdSet<T>, ReadError> {
        match self.bitmap(attribute)? {
            Some(bitmap) if bitmap.infinite => Err(self.wrong(format!("{attribute} has no end"))),
            bitmap => Ok(bitmap.map_or_else(IdSet::new, |bitmap| bitmap.finite)),
        }
    }

    /// The numbers in all child elements of that name.
    fn values<T: FromStr>(self, name: &str) -> Result<Vec<T>, ReadError> {
        let mut values = Vec::new();
        for child in self.children(name) {
            for word in child.element.text().unwrap_or("").split_whitespace() {
                values.push(word.parse().map_err(|_| {
                    let word = shortened(word);
                    child.wrong(format!("{word:?} in <{name}> is not a number that fits"))
                })?);
            }
        }
        Ok(values)
    }
}
