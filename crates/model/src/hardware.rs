//! The figures of a machine that the model counts with, taken from a machine file.
//!
//! What a file leaves out is never guessed: without idle latencies, controllers' bandwidth, a
//! last-level cache, the clock or the lines in flight there is no model, and the error names all
//! keys that are missing. Five figures may be missing, each with a meaning of its own: without
//! bandwidths of links no link is ever a bottleneck; without the latency of the last-level cache it
//! is that of the machine which program profiles were measured on (their cycles hold its hits);
//! without `cycles_scale` the core is like theirs; without `modified_line_ns` a line that another
//! core has written costs a hit within the domain, and elsewhere what memory of that node costs; without TLBs a page is
//! found at no cost.
//!
//! A core's lines in flight are those that the file gives, or fewer where prefetchers stop at pages.
//!
//! A controller's capacity is the bandwidth that programs reach (`node_sustained_gb_per_s`, or else `node_gb_per_s`,
//! which is then a measured figure), for reads and write-backs together. SMT siblings count as cores of their own
//! unless the file's `smt_throughput` or [`Options::smt_throughput`] says what they get done together; the smaller of
//! the two counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_contention::{Channel, Figures, LINE_BYTES, Lane, Seat};
use numaherd_topology::machine::{CacheSpec, TlbSpec};
use numaherd_topology::{
    CacheKind, CpuId, Domain, Link, Machine, NodeId, PackageId, SharedBy, Topology, ways,
};

use crate::error::ModelError;
use crate::world::Options;

/// Latency of a hit in the last-level cache of a Skylake-SP, in ns (FACTS 7.1): what the base cycles
/// of profiles measured on it hold.
const REFERENCE_LLC_NS: f64 = 19.5;

/// A machine that the model can count with.
#[derive(Clone, Debug)]
pub struct Hardware {
    topology: Arc<Topology>,
    /// What the equations need.
    pub figures: Figures,
    modified_ns: Option<Vec<f64>>,
    tlb: Option<TlbSpec>,
    /// What SMT siblings get done together, relative to one alone, as the file gives it.
    smt_throughput: f64,
}

impl Hardware {
    /// The figures of a machine file.
    ///
    /// # Errors
    /// [`ModelError::Machine`] names every key that is missing, or what is wrong.
    pub fn of(machine: &Machine) -> Result<Self, ModelError> {
        let refuse = |reason: String| ModelError::Machine {
            machine: machine.name.clone(),
            reason,
        };
        let topology = machine
            .topology()
            .map_err(|error| refuse(error.to_string()))?;
        let memory = &machine.memory;
        let peak = memory.node_gb_per_s.as_ref();
        let gb_per_s = memory.node_sustained_gb_per_s.as_ref().or(peak);
        let last = last_level(machine);
        let missing: Vec<&str> = [
            ("memory.latency_ns", memory.latency_ns.is_none()),
            ("memory.node_gb_per_s", gb_per_s.is_none()),
            ("a last-level cache ([[cache]])", last.is_none()),
            ("core.clock_ghz", machine.core.clock_ghz.is_none()),
            (
                "core.misses_in_flight",
                machine.core.misses_in_flight.is_none(),
            ),
        ]
        .into_iter()
        .filter_map(|(key, missing)| missing.then_some(key))
        .collect();
        let (Some(rows), Some(gb_per_s), Some(last), Some(clock_ghz), Some(in_flight)) = (
            &memory.latency_ns,
            gb_per_s,
            last,
            machine.core.clock_ghz,
            machine.core.misses_in_flight,
        ) else {
            return Err(refuse(format!("its file lacks {}", missing.join(", "))));
        };
        let nodes = topology.nodes().len();
        let links = machine.links();
        let ways = ways(nodes, &links).map_err(|error| refuse(error.to_string()))?;
        let bytes = |cache: &CacheSpec| cache.size_kib as f64 * 1024.0;
        let own = machine.caches.iter().filter(|cache| {
            cache.shared_by == SharedBy::Core
                && cache.kind != CacheKind::Instruction
                && cache.level < last.level
        });
        let own = own.max_by_key(|cache| cache.level);
        let private = own.filter(|cache| !last.inclusive && cache.level > 1);
        let in_flight = f64::from(in_flight);
        let channel = |gb_per_s: f64, service_ns: f64| Channel {
            capacity: gb_per_s / LINE_BYTES,
            service_ns,
        };
        let controllers = (0..nodes).map(|node| channel(gb_per_s.of(node), rows[node][node]));
        let of_links = links
            .iter()
            .map(|link| channel(link.gb_per_s, hop_ns(rows, link)));
        let places = |way: Vec<usize>| way.into_iter().map(|link| (nodes + link) as u32).collect();
        let llc_ns = last.latency_ns.unwrap_or(REFERENCE_LLC_NS);
        let smt_throughput = machine.core.smt_throughput.unwrap_or(2.0);
        let figures = Figures {
            nodes,
            latency_ns: rows.concat(),
            channels: controllers.chain(of_links).collect(),
            ways: ways.into_iter().map(places).collect(),
            broadcast_probes: memory.broadcast_probes,
            llc_bytes: llc_bytes(&topology, last),
            llc_ns,
            private_bytes: private.map_or(0.0, bytes),
            own_bytes: own.map_or(0.0, bytes),
            own_ns: own.and_then(|cache| cache.latency_ns).unwrap_or(llc_ns),
            in_flight: match machine.core.prefetch_stops_at_pages {
                true => within_pages(in_flight),
                false => in_flight,
            },
            clock_ghz,
            caches: None,
            smt_throughput,
            write_turnaround: 0.0,
            own_lines_wait: true,
            ns_per_reference_cycle: machine.core.cycles_scale.unwrap_or(1.0) / clock_ghz,
        };
        Ok(Self {
            modified_ns: memory.modified_line_ns.as_ref().map(|rows| rows.concat()),
            tlb: machine.tlb.clone(),
            topology: Arc::new(topology),
            figures,
            smt_throughput,
        })
    }

    /// The machine's topology.
    pub fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    /// Idle latency in ns for a core at `reader` of a line that another core, at `owner`, wrote last.
    pub(crate) fn modified_ns(&self, reader: Seat, owner: Seat) -> f64 {
        let given = |rows: &Vec<f64>| rows[reader.node * self.figures.nodes + owner.node];
        let same = reader.domain == owner.domain;
        match &self.modified_ns {
            // The file only distinguishes cores of the same domain from cores of other nodes.
            Some(rows) if same || reader.node != owner.node => given(rows),
            _ if same => self.figures.llc_ns,
            _ => self.figures.latency_ns(reader.node, owner.node),
        }
    }

    /// Mean time in ns to find the page of an access, for random accesses to `bytes` bytes; 0 where the file has no
    /// TLBs.
    ///
    /// The file's `miss_ns` is the time of a walk whose entry is in the core's own caches. There, lines with entries
    /// alternate with lines of the program's data, so that entries have half of the room; a walk to any other entry
    /// costs a hit in the last-level cache as well.
    pub(crate) fn walk_ns(&self, bytes: f64) -> f64 {
        /// Bytes of a page's entry.
        const ENTRY_BYTES: f64 = 8.0;
        let Some(tlb) = &self.tlb else {
            return 0.0;
        };
        let page_bytes = tlb.page_kib as f64 * 1024.0;
        let entries = f64::from(tlb.l2.as_ref().unwrap_or(&tlb.l1).entries);
        let pages = bytes / page_bytes;
        let missed = (1.0 - entries / pages).max(0.0);
        let far = (1.0 - self.figures.own_bytes / 2.0 / (pages * ENTRY_BYTES)).max(0.0);
        missed * (tlb.miss_ns + far * self.figures.llc_ns)
    }

    /// The indices of a CPU's domain and of its node.
    ///
    /// # Panics
    /// For a CPU that the machine does not have.
    pub(crate) fn seat(&self, cpu: CpuId) -> Seat {
        let cpu = self.topology.cpu(cpu).expect("a CPU of this machine");
        Seat {
            domain: cpu.domain.index(),
            node: self.place(cpu.node),
        }
    }

    /// The same machine with the figures that the options set.
    #[must_use]
    pub fn with(mut self, options: &Options) -> Self {
        let figures = &mut self.figures;
        figures.smt_throughput = options.smt_throughput.min(self.smt_throughput);
        figures.write_turnaround = options.write_turnaround;
        figures.own_lines_wait = options.own_lines_wait;
        if let Some(first) = figures.caches.take() {
            figures.channels.truncate(first);
        }
        if options.llc_gb_per_s > 0.0 {
            figures.caches = Some(figures.channels.len());
            let door = Channel {
                capacity: options.llc_gb_per_s / LINE_BYTES,
                service_ns: figures.llc_ns,
            };
            let doors = std::iter::repeat_n(door, figures.llc_bytes.len());
            figures.channels.extend(doors);
        }
        self
    }

    /// The hardware thread that a CPU is.
    ///
    /// # Panics
    /// For a CPU that the machine does not have.
    pub(crate) fn lane(&self, cpu: CpuId) -> Lane {
        let there = self.topology.cpu(cpu).expect("a CPU of this machine");
        Lane {
            core: there.core.index(),
            cpu: cpu.index(),
        }
    }

    /// The index of a node.
    pub(crate) fn place(&self, node: NodeId) -> usize {
        self.topology
            .node_index(node)
            .expect("a node of this machine")
    }
}

/// Lines in flight over a whole page when a stream begins anew in each: the first lines come one
/// after the other, before the prefetcher knows the stream, and the rest `in_flight` at a time.
fn within_pages(in_flight: f64) -> f64 {
    const PAGE_LINES: f64 = 64.0;
    /// Accesses in a row that make a stream, for the prefetchers of Nehalem and Barcelona (recalled).
    const UNKNOWN_LINES: f64 = 2.0;
    PAGE_LINES / (UNKNOWN_LINES + (PAGE_LINES - UNKNOWN_LINES) / in_flight)
}

/// The cache that the cores of a domain share.
fn last_level(machine: &Machine) -> Option<&CacheSpec> {
    machine
        .caches
        .iter()
        .filter(|cache| cache.kind != CacheKind::Instruction)
        .max_by_key(|cache| cache.level)
}

/// Bytes of last-level cache for each domain: the whole cache, or an equal part where the domains of a package share
/// one.
fn llc_bytes(topology: &Topology, last: &CacheSpec) -> Vec<f64> {
    let bytes = last.size_kib as f64 * 1024.0;
    let domains = topology.domains();
    if last.shared_by != SharedBy::Package {
        return vec![bytes; domains.len()];
    }
    let package = |domain: &Domain| topology.cpu(domain.cpus.first()?)?.package;
    let mut sharing: BTreeMap<Option<PackageId>, usize> = BTreeMap::new();
    for domain in domains {
        *sharing.entry(package(domain)).or_default() += 1;
    }
    let part = |domain| bytes / sharing[&package(domain)] as f64;
    domains.iter().map(part).collect()
}

/// What a link adds to the latency of a line in ns, compared with the nearest memory of the machine: on some machines a
/// node's own memory is hardly nearer than its neighbour's (FACTS 7.1, Barcelona).
fn hop_ns(latency_ns: &[Vec<f64>], link: &Link) -> f64 {
    let locals = latency_ns.iter().enumerate().map(|(node, row)| row[node]);
    let nearest = locals.fold(f64::INFINITY, f64::min);
    (latency_ns[link.to][link.from] - nearest).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_with_figures_can_be_modelled_and_the_others_say_what_they_lack() {
        let told: Vec<String> = Machine::presets()
            .filter_map(|name| Hardware::of(&Machine::preset(name).unwrap()).err())
            .map(|error| error.to_string())
            .collect();
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn the_machine_of_n_mass_is_as_its_table_1() {
        let hardware = Hardware::of(&Machine::preset("xeon-e5520-2s").unwrap()).unwrap();
        assert_eq!(hardware.figures.latency_ns(0, 0), 50.0);
        assert_eq!(hardware.figures.latency_ns(1, 0), 90.0);
        assert_eq!(hardware.figures.llc_bytes[1], 8.0 * 1024.0 * 1024.0);
        assert_eq!(hardware.figures.private_bytes, 0.0, "the L3 is inclusive");
        assert_eq!(hardware.figures.channels.len(), 4);
        assert_eq!(hardware.figures.channels[2].capacity * LINE_BYTES, 11.72);
        assert_eq!(hardware.figures.way(0, 1), [2]);
    }

    #[test]
    fn a_stream_that_begins_anew_in_each_page_has_fewer_lines_in_flight() {
        let hardware = Hardware::of(&Machine::preset("opteron-8356-4s").unwrap()).unwrap();
        // 2 lines at 1 and 62 at 8 in flight take 9.75 latencies for 64 lines.
        assert!((hardware.figures.in_flight - 64.0 / 9.75).abs() < 1e-12);
    }

    #[test]
    fn siblings_get_done_the_less_of_what_the_file_and_the_options_say() {
        let file = Hardware::of(&Machine::preset("lab-smt").unwrap()).unwrap();
        for (option, expected) in [(2.0, 1.15), (1.1, 1.1)] {
            let options = Options {
                smt_throughput: option,
                ..Options::default()
            };
            let figures = file.clone().with(&options).figures;
            assert_eq!(figures.smt_throughput, expected);
        }
    }

    #[test]
    fn a_level_2_beside_the_last_level_counts() {
        let hardware = Hardware::of(&Machine::preset("opteron-8356-4s").unwrap()).unwrap();
        assert_eq!(hardware.figures.private_bytes, 512.0 * 1024.0);
    }
}
