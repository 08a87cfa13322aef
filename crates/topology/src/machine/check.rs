//! What a machine file's figures must hold to, beyond being of the right type.

use super::{CacheSpec, Machine, SharedBy, TlbLevelSpec, TlbSpec};
use crate::parts::LARGEST_NODES;
use crate::set::LARGEST_PARSED;

/// A key with a figure that cannot be.
#[derive(Debug)]
pub(super) struct Wrong {
    /// Dotted, with an index for tables in a list: `cache[1].ways`.
    pub key: String,
    pub why: String,
}

type Checked = Result<(), Wrong>;

fn wrong(key: impl Into<String>, why: impl Into<String>) -> Checked {
    Err(Wrong {
        key: key.into(),
        why: why.into(),
    })
}

fn positive(key: impl Into<String>, value: Option<f64>) -> Checked {
    match value {
        Some(value) if !(value.is_finite() && value > 0.0) => {
            wrong(key, format!("{value} is not a positive number"))
        }
        _ => Ok(()),
    }
}

fn matrix(key: &str, rows: Option<&Vec<Vec<f64>>>, nodes: usize) -> Checked {
    let Some(rows) = rows else { return Ok(()) };
    square(key, rows, nodes)?;
    rows.iter()
        .flatten()
        .try_for_each(|&value| positive(key, Some(value)))
}

fn square<T>(key: &str, rows: &[Vec<T>], nodes: usize) -> Checked {
    if rows.len() != nodes {
        return wrong(key, format!("{} rows for {nodes} nodes", rows.len()));
    }
    match rows.iter().position(|row| row.len() != nodes) {
        Some(at) => wrong(
            key,
            format!("row {at} has {} entries for {nodes} nodes", rows[at].len()),
        ),
        None => Ok(()),
    }
}

impl Machine {
    /// Checks the figures; [`Machine::parse`] does so itself, a machine built in code may want it.
    pub(super) fn check(&self) -> Checked {
        if self.name.trim().is_empty() {
            return wrong("name", "a machine needs a name");
        }
        if self.source.trim().is_empty() {
            return wrong(
                "source",
                "give the source of the figures, even if it is \"my own choice\"",
            );
        }
        self.check_shape()?;
        for (index, cache) in self.caches.iter().enumerate() {
            self.check_cache(index, cache)?;
        }
        self.check_memory()?;
        self.tlb.as_ref().map_or(Ok(()), check_tlb)?;
        self.check_core()
    }

    fn check_shape(&self) -> Checked {
        let shape = &self.shape;
        for (key, value) in [
            ("shape.nodes", shape.nodes),
            ("shape.domains_per_node", shape.domains_per_node),
            ("shape.cores_per_domain", shape.cores_per_domain),
            ("shape.threads_per_core", shape.threads_per_core),
            ("shape.nodes_per_package", shape.nodes_per_package),
        ] {
            if value == 0 {
                return wrong(key, "0 where at least 1 is needed");
            }
        }
        if shape.nodes > LARGEST_NODES {
            return wrong(
                "shape.nodes",
                format!(
                    "{} nodes; more than {LARGEST_NODES} are taken for a mistake",
                    shape.nodes
                ),
            );
        }
        let mut memory_only = shape.memory_only_nodes.clone();
        memory_only.sort_unstable();
        memory_only.dedup();
        if memory_only.len() != shape.memory_only_nodes.len() {
            return wrong("shape.memory_only_nodes", "a node is listed twice");
        }
        if let Some(&node) = memory_only.last().filter(|&&node| node >= shape.nodes) {
            return wrong(
                "shape.memory_only_nodes",
                format!("node {node} is not in 0-{}", shape.nodes - 1),
            );
        }
        let with_cores = shape.nodes as usize - memory_only.len();
        if with_cores == 0 {
            return wrong("shape.memory_only_nodes", "no node is left with cores");
        }
        if !with_cores.is_multiple_of(shape.nodes_per_package as usize) {
            return wrong(
                "shape.nodes_per_package",
                format!(
                    "{with_cores} nodes with cores cannot be divided into packages of {}",
                    shape.nodes_per_package
                ),
            );
        }
        let cpus = u64::from(shape.domains_per_node)
            .saturating_mul(shape.cores_per_domain.into())
            .saturating_mul(shape.threads_per_core.into())
            .saturating_mul(with_cores as u64);
        if cpus > LARGEST_PARSED.into() {
            return wrong(
                "shape",
                format!("{cpus} CPUs; more than {LARGEST_PARSED} are taken for a mistake"),
            );
        }
        if shape.memory_per_node_mib == 0 || shape.memory_per_node_mib > u64::MAX >> 20 {
            return wrong(
                "shape.memory_per_node_mib",
                format!("{} MiB cannot be", shape.memory_per_node_mib),
            );
        }
        Ok(())
    }

    fn check_cache(&self, index: usize, cache: &CacheSpec) -> Checked {
        let key = |name: &str| format!("cache[{index}].{name}");
        let sharing = |by: SharedBy| match by {
            SharedBy::Core => 0,
            SharedBy::Domain => 1,
            SharedBy::Package => 2,
        };
        if cache.level == 0 {
            return wrong(key("level"), "levels count from 1");
        }
        if cache.line_bytes == 0 || !cache.line_bytes.is_power_of_two() {
            return wrong(
                key("line_bytes"),
                format!("{} is not a power of two", cache.line_bytes),
            );
        }
        let Some(bytes) = cache.size_kib.checked_mul(1024).filter(|&bytes| bytes > 0) else {
            return wrong(key("size_kib"), format!("{} KiB cannot be", cache.size_kib));
        };
        let lines = bytes / u64::from(cache.line_bytes);
        if lines == 0 || !bytes.is_multiple_of(u64::from(cache.line_bytes)) {
            return wrong(key("size_kib"), "is not a whole number of lines");
        }
        if cache.ways > 0 && !lines.is_multiple_of(u64::from(cache.ways)) {
            return wrong(
                key("ways"),
                format!("{lines} lines cannot be divided into {} ways", cache.ways),
            );
        }
        positive(key("latency_ns"), cache.latency_ns)?;
        for nearer in &self.caches[..index] {
            if nearer.level > cache.level {
                return wrong(key("level"), "caches are listed nearest first");
            }
            if nearer.level == cache.level && nearer.kind == cache.kind {
                return wrong(
                    key("level"),
                    format!("a second {:?} cache of level {}", cache.kind, cache.level),
                );
            }
            if sharing(nearer.shared_by) > sharing(cache.shared_by) {
                return wrong(key("shared_by"), "a nearer cache is shared by more cores");
            }
        }
        Ok(())
    }

    fn check_memory(&self) -> Checked {
        let nodes = self.shape.nodes as usize;
        let memory = &self.memory;
        if let Some(rows) = &memory.distance {
            square("memory.distance", rows, nodes)?;
            for (from, row) in rows.iter().enumerate() {
                for (to, &distance) in row.iter().enumerate() {
                    let fits = if from == to { 10..=10 } else { 10..=255 };
                    if !fits.contains(&distance) {
                        let why = format!(
                            "{distance} from node {from} to {to}; it is 10 on the diagonal and 10 \
                             to 255 elsewhere"
                        );
                        return wrong("memory.distance", why);
                    }
                }
            }
        }
        matrix("memory.latency_ns", memory.latency_ns.as_ref(), nodes)?;
        let modified = memory.modified_line_ns.as_ref();
        matrix("memory.modified_line_ns", modified, nodes)?;
        positive("memory.node_gb_per_s", memory.node_gb_per_s)?;
        positive(
            "memory.node_sustained_gb_per_s",
            memory.node_sustained_gb_per_s,
        )?;
        positive("memory.link_gb_per_s", memory.link_gb_per_s)?;
        let links = memory.link_matrix_gb_per_s.as_ref();
        matrix("memory.link_matrix_gb_per_s", links, nodes)?;
        if links.is_some() && memory.link_gb_per_s.is_some() {
            return wrong(
                "memory.link_gb_per_s",
                "give either this or link_matrix_gb_per_s, not both",
            );
        }
        Ok(())
    }

    fn check_core(&self) -> Checked {
        positive("core.ns_per_instruction", self.core.ns_per_instruction)?;
        positive("core.clock_ghz", self.core.clock_ghz)?;
        positive("core.cycles_scale", self.core.cycles_scale)?;
        for (key, value) in [
            ("core.misses_in_flight", self.core.misses_in_flight),
            ("core.reorder_window", self.core.reorder_window),
        ] {
            if value == Some(0) {
                return wrong(key, "0 where at least 1 is needed");
            }
        }
        Ok(())
    }
}

fn check_tlb(tlb: &TlbSpec) -> Checked {
    if !tlb.page_kib.is_power_of_two() || tlb.page_kib > u64::MAX >> 10 {
        let why = format!("{} is not a power of two", tlb.page_kib);
        return wrong("tlb.page_kib", why);
    }
    if !(tlb.miss_ns.is_finite() && tlb.miss_ns >= 0.0) {
        return wrong("tlb.miss_ns", format!("{} is not 0 or more", tlb.miss_ns));
    }
    check_tlb_level("tlb.l1", &tlb.l1)?;
    if tlb.l1.latency_ns.is_some() {
        return wrong(
            "tlb.l1.latency_ns",
            "it is part of the instruction: leave it out",
        );
    }
    let Some(l2) = &tlb.l2 else { return Ok(()) };
    check_tlb_level("tlb.l2", l2)?;
    if l2.entries < tlb.l1.entries {
        let why =
            "the second level contains the entries of the first, so it needs at least as many";
        return wrong("tlb.l2.entries", why);
    }
    Ok(())
}

fn check_tlb_level(level: &str, spec: &TlbLevelSpec) -> Checked {
    let (entries, ways) = (spec.entries, spec.ways);
    if entries == 0 || ways == 0 || !entries.is_multiple_of(ways) {
        let why = format!("{entries} entries are not a multiple of {ways} ways");
        return wrong(format!("{level}.entries"), why);
    }
    positive(format!("{level}.latency_ns"), spec.latency_ns)
}
