//! Checks of a machine file's figures, beyond their types.

use std::ops::RangeInclusive;

use numaherd_files::setting::Wrong;

use super::{CacheSpec, Machine, PerNode, SharedBy, TlbLevelSpec, TlbSpec};
use crate::figures;
use crate::id::NodeId;
use crate::parts::LARGEST_NODES;
use crate::set::LARGEST_PARSED;

type Checked = Result<(), Wrong>;

fn wrong(key: impl Into<String>, why: impl Into<String>) -> Checked {
    Err(Wrong {
        key: key.into(),
        why: why.into(),
    })
}

/// Refuses a key's value unless `is_right`; `why` says what is wrong with it.
fn require<W: Into<String>>(is_right: bool, key: &str, why: impl FnOnce() -> W) -> Checked {
    match is_right {
        true => Ok(()),
        false => wrong(key, why()),
    }
}

/// The range of figures of any kind: times in ns, bandwidths in GB/s, clocks in GHz.
const FIGURES: RangeInclusive<f64> = 1e-9..=1e9;

/// Adds the key to the result of a check.
fn of(key: &str, checked: Result<(), String>) -> Checked {
    checked.or_else(|why| wrong(key, why))
}

fn positive(key: &str, value: Option<f64>) -> Checked {
    let Some(value) = value else { return Ok(()) };
    of(key, figures::positive(value))?;
    require(FIGURES.contains(&value), key, || {
        let (least, most) = (FIGURES.start(), FIGURES.end());
        format!("{value:e}; figures below {least:e} or above {most:e} are taken for mistakes")
    })
}

fn at_least_one(key: &str, value: u32) -> Checked {
    require(value > 0, key, || "0 where at least 1 is needed")
}

/// Refuses a list without exactly one figure for each node.
fn one_for_each<T: Copy>(key: &str, figures: &PerNode<T>, nodes: u32) -> Checked {
    let given = match figures {
        PerNode::All(_) => return Ok(()),
        PerNode::Each(figures) => figures.len(),
    };
    require(given == nodes as usize, key, || {
        format!("{given} numbers for {nodes} nodes")
    })
}

/// Checks the bandwidths of nodes.
fn bandwidths(key: &str, figures: Option<&PerNode<f64>>, nodes: u32) -> Checked {
    let Some(figures) = figures else {
        return Ok(());
    };
    one_for_each(key, figures, nodes)?;
    let mut given = figures.given().iter();
    given.try_for_each(|&figure| positive(key, Some(figure)))
}

fn matrix(key: &str, rows: Option<&Vec<Vec<f64>>>, nodes: usize) -> Checked {
    let Some(rows) = rows else { return Ok(()) };
    of(key, figures::square(rows, nodes))?;
    let mut all = rows.iter().flatten();
    all.try_for_each(|&value| positive(key, Some(value)))
}

impl Machine {
    /// Checks the figures. [`Machine::parse`] does so itself; for a machine built in code, [`Machine::topology`] does.
    pub(super) fn check(&self) -> Checked {
        let has_name = !self.name.trim().is_empty();
        require(has_name, "name", || "a machine needs a name")?;
        require(
            !self.source.trim().is_empty(),
            "source",
            || "give the source of the figures, even if it is \"my own choice\"",
        )?;
        self.check_shape()?;
        for (index, cache) in self.caches.iter().enumerate() {
            self.check_cache(index, cache)?;
        }
        self.check_memory()?;
        self.tlb.as_ref().map_or(Ok(()), check_tlb)?;
        self.check_core()
    }

    fn check_shape(&self) -> Checked {
        const DOMAINS: &str = "shape.domains_per_node";
        const MEMORY: &str = "shape.memory_per_node_mib";
        let shape = &self.shape;
        let nodes = shape.nodes;
        at_least_one("shape.nodes", nodes)?;
        at_least_one("shape.cores_per_domain", shape.cores_per_domain)?;
        at_least_one("shape.threads_per_core", shape.threads_per_core)?;
        at_least_one("shape.nodes_per_package", shape.nodes_per_package)?;
        require(nodes <= LARGEST_NODES, "shape.nodes", || {
            format!("{nodes} nodes; more than {LARGEST_NODES} are taken for a mistake")
        })?;
        one_for_each(DOMAINS, &shape.domains_per_node, nodes)?;
        one_for_each(MEMORY, &shape.memory_per_node_mib, nodes)?;
        let domains = shape.domains_per_node.list(nodes as usize);
        let with_cores = domains.iter().filter(|&&domains| domains > 0).count();
        require(with_cores > 0, DOMAINS, || "no node has cores")?;
        let of_package = shape.nodes_per_package;
        let fits = with_cores.is_multiple_of(of_package as usize);
        require(fits, "shape.nodes_per_package", || {
            format!("{with_cores} nodes with cores cannot be divided into packages of {of_package}")
        })?;
        let all = domains
            .iter()
            .fold(0u64, |all, &domains| all + u64::from(domains));
        let cpus = all
            .saturating_mul(shape.cores_per_domain.into())
            .saturating_mul(shape.threads_per_core.into());
        require(cpus <= LARGEST_PARSED.into(), "shape", || {
            format!("{cpus} CPUs; more than {LARGEST_PARSED} are taken for a mistake")
        })?;
        let memory = shape.memory_per_node_mib.given();
        for mib in memory {
            let is_memory = *mib <= u64::MAX >> 20;
            require(is_memory, MEMORY, || format!("{mib} MiB cannot be"))?;
        }
        let has_memory = memory.iter().any(|&mib| mib > 0);
        require(has_memory, MEMORY, || "no node has memory")
    }

    fn check_cache(&self, index: usize, cache: &CacheSpec) -> Checked {
        let key = |name: &str| format!("cache[{index}].{name}");
        let sharing = |by: SharedBy| match by {
            SharedBy::Core => 0,
            SharedBy::Domain => 1,
            SharedBy::Package => 2,
        };
        let (level, kib) = (cache.level, cache.size_kib);
        let (line, ways) = (u64::from(cache.line_bytes), u64::from(cache.ways));
        require(level > 0, &key("level"), || "levels count from 1")?;
        require(line.is_power_of_two(), &key("line_bytes"), || {
            format!("{line} is not a power of two")
        })?;
        let bytes = kib.checked_mul(1024).unwrap_or(0);
        require(bytes > 0, &key("size_kib"), || {
            format!("{kib} KiB cannot be")
        })?;
        let lines = bytes / line;
        require(
            lines > 0 && bytes.is_multiple_of(line),
            &key("size_kib"),
            || "is not a whole number of lines",
        )?;
        require(
            ways == 0 || lines.is_multiple_of(ways),
            &key("ways"),
            || format!("{lines} lines cannot be divided into {ways} ways"),
        )?;
        positive(&key("latency_ns"), cache.latency_ns)?;
        for nearer in &self.caches[..index] {
            require(
                nearer.level <= level,
                &key("level"),
                || "caches are listed nearest first",
            )?;
            let is_second = (nearer.level, nearer.kind) == (level, cache.kind);
            require(!is_second, &key("level"), || {
                format!("a second {:?} cache of level {level}", cache.kind)
            })?;
            let is_wider = sharing(nearer.shared_by) <= sharing(cache.shared_by);
            require(
                is_wider,
                &key("shared_by"),
                || "a nearer cache is shared by more cores",
            )?;
        }
        Ok(())
    }

    fn check_memory(&self) -> Checked {
        let nodes = self.shape.nodes as usize;
        let memory = &self.memory;
        if let Some(rows) = &memory.distance {
            let ids: Vec<NodeId> = (0..self.shape.nodes).map(NodeId).collect();
            of("memory.distance", figures::distances(rows, &ids))?;
        }
        let links = memory.link_matrix_gb_per_s.as_ref();
        let modified = memory.modified_line_ns.as_ref();
        let sustained = memory.node_sustained_gb_per_s.as_ref();
        matrix("memory.latency_ns", memory.latency_ns.as_ref(), nodes)?;
        matrix("memory.modified_line_ns", modified, nodes)?;
        let all = self.shape.nodes;
        bandwidths("memory.node_gb_per_s", memory.node_gb_per_s.as_ref(), all)?;
        bandwidths("memory.node_sustained_gb_per_s", sustained, all)?;
        positive("memory.link_gb_per_s", memory.link_gb_per_s)?;
        matrix("memory.link_matrix_gb_per_s", links, nodes)?;
        let are_both = links.is_some() && memory.link_gb_per_s.is_some();
        require(
            !are_both,
            "memory.link_gb_per_s",
            || "give either this or link_matrix_gb_per_s, not both",
        )
    }

    fn check_core(&self) -> Checked {
        let core = &self.core;
        positive("core.ns_per_instruction", core.ns_per_instruction)?;
        positive("core.clock_ghz", core.clock_ghz)?;
        positive("core.cycles_scale", core.cycles_scale)?;
        let throughput = core.smt_throughput.unwrap_or(2.0);
        let in_reach = (1.0..=2.0).contains(&throughput);
        require(in_reach, "core.smt_throughput", || {
            format!("{throughput} is not from 1 (siblings get done no more than one alone) to 2")
        })?;
        at_least_one("core.misses_in_flight", core.misses_in_flight.unwrap_or(1))?;
        at_least_one("core.reorder_window", core.reorder_window.unwrap_or(1))
    }
}

fn check_tlb(tlb: &TlbSpec) -> Checked {
    let (kib, ns) = (tlb.page_kib, tlb.miss_ns);
    let is_page = kib.is_power_of_two() && kib <= u64::MAX >> 10;
    require(is_page, "tlb.page_kib", || {
        format!("{kib} is not a power of two")
    })?;
    require(ns.is_finite() && ns >= 0.0, "tlb.miss_ns", || {
        format!("{ns} is not 0 or more")
    })?;
    positive("tlb.miss_ns", (ns > 0.0).then_some(ns))?;
    check_tlb_level("tlb.l1", &tlb.l1)?;
    require(
        tlb.l1.latency_ns.is_none(),
        "tlb.l1.latency_ns",
        || "it is part of the instruction: leave it out",
    )?;
    let Some(l2) = &tlb.l2 else { return Ok(()) };
    check_tlb_level("tlb.l2", l2)?;
    require(
        l2.entries >= tlb.l1.entries,
        "tlb.l2.entries",
        || "the second level contains the entries of the first, so it needs at least as many",
    )
}

fn check_tlb_level(level: &str, spec: &TlbLevelSpec) -> Checked {
    let (entries, ways) = (spec.entries, spec.ways);
    let fits = entries > 0 && ways > 0 && entries.is_multiple_of(ways);
    require(fits, &format!("{level}.entries"), || {
        format!("{entries} entries are not a multiple of {ways} ways")
    })?;
    positive(&format!("{level}.latency_ns"), spec.latency_ns)
}
