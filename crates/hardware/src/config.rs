//! The shape and speed of a modelled machine, as a user writes it down, and its validation.
//!
//! Times are in nanoseconds or picoseconds and bandwidths in GB/s (10^9 bytes a second), as the
//! names say; inside the crate everything is picoseconds and lines.

mod machine_file;
mod tlb;

use numaherd_topology::Link;
use serde::{Deserialize, Serialize};

pub use self::tlb::{Tlb, TlbLevel};
use crate::directory;
use crate::error::{HardwareError, check, not_negative, positive};

/// A NUMA machine: cores, caches, memory nodes and what lies between them.
///
/// Any number of cores, memory domains and nodes; a node may have no domain (memory only), and
/// several domains may share a node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Bytes of a cache line; a power of two.
    pub line_bytes: u64,
    /// Core clock in MHz; only turns times into cycles.
    pub core_mhz: u64,
    /// Time of one instruction with its data in the first-level cache, in picoseconds.
    pub picoseconds_per_instruction: u64,
    /// Requests that one core can have outstanding beyond its first-level cache.
    pub in_flight_per_core: usize,
    /// Instructions that a core can execute beyond a load that waits for its data.
    pub reorder_window_instructions: u64,
    /// An access depends on an outstanding load whose value is less than this below its address.
    pub dependence_bytes: u64,
    /// The stream prefetcher of each core; absent for none.
    pub prefetch: Option<Prefetch>,
    /// First-level data cache of each core. Its `hit_ns` is part of the instruction and must be 0.
    pub l1: Cache,
    /// Second-level cache of each core, if there is one.
    pub l2: Option<Cache>,
    /// Last-level cache of each memory domain.
    pub llc: Cache,
    /// TLBs of each core; absent where translation costs nothing.
    pub tlb: Option<Tlb>,
    /// Which of the cores are SMT siblings; absent without SMT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<Smt>,
    /// Memory domain of each core.
    pub domain_of_core: Vec<usize>,
    /// Node of each memory domain.
    pub node_of_domain: Vec<usize>,
    /// Total latency without load from a core on the row's node to memory of the column's, in ns.
    /// Its length is the number of nodes.
    pub latency_ns: Vec<Vec<f64>>,
    /// Bandwidth of each node's memory controller, reads and writes together.
    pub controller_gb_per_s: Vec<f64>,
    /// The links between nodes, one entry for each direction. Lines take the shortest way. Empty
    /// when links are no bottleneck.
    pub links: Vec<Link>,
    /// Length of the windows in which bandwidth is accounted, in ns. It bounds the error of waits
    /// between cores at different points of time.
    pub bandwidth_window_ns: f64,
}

/// Size and speed of a cache.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Lines in a set.
    pub ways: usize,
    /// Time from a request to its data on a hit, in ns.
    pub hit_ns: f64,
}

/// SMT siblings: cores that are threads of one physical core and share its issue slots, its
/// requests in flight and its private caches. Each thread has its own TLBs and prefetcher.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Smt {
    /// The physical core of each entry of [`Config::domain_of_core`], numbered from 0 without gaps.
    pub core_of_thread: Vec<usize>,
    /// Throughput of two siblings relative to one alone: from 1 (each half as fast) to 2 (as much
    /// as two cores, where issue slots are concerned).
    pub throughput: f64,
}

/// Size of a stream prefetcher.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Prefetch {
    /// Streams followed at a time.
    pub streams: usize,
    /// Lines that a stream runs ahead.
    pub depth_lines: u64,
}

impl Config {
    /// A machine of equal nodes to start from, one memory domain each: 2 GHz cores with first-level
    /// caches of 32 KiB and no second level, last-level caches of 2 MiB, ten requests in flight.
    ///
    /// `latency_ns` is the matrix of [`Config::latency_ns`]; controllers get `controller_gb_per_s`
    /// each; links are left out.
    pub fn of_equal_nodes(
        cores_per_node: usize,
        latency_ns: Vec<Vec<f64>>,
        controller_gb_per_s: f64,
    ) -> Self {
        let nodes = latency_ns.len();
        Self {
            line_bytes: 64,
            core_mhz: 2000,
            picoseconds_per_instruction: 500,
            in_flight_per_core: 10,
            reorder_window_instructions: 224,
            dependence_bytes: 4096,
            prefetch: Some(Prefetch {
                streams: 16,
                depth_lines: 16,
            }),
            l1: Cache {
                bytes: 32 << 10,
                ways: 8,
                hit_ns: 0.0,
            },
            l2: None,
            llc: Cache {
                bytes: 2 << 20,
                ways: 16,
                hit_ns: 15.0,
            },
            tlb: None,
            smt: None,
            domain_of_core: (0..nodes * cores_per_node)
                .map(|core| core / cores_per_node)
                .collect(),
            node_of_domain: (0..nodes).collect(),
            latency_ns,
            controller_gb_per_s: vec![controller_gb_per_s; nodes],
            links: Vec::new(),
            bandwidth_window_ns: 40.0,
        }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.latency_ns.len()
    }

    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.domain_of_core.len()
    }

    /// Number of physical cores: SMT siblings count as one.
    pub(crate) fn physical_cores(&self) -> usize {
        let smt = self.smt.as_ref();
        smt.map_or(self.cores(), |smt| {
            smt.core_of_thread.iter().max().map_or(0, |last| last + 1)
        })
    }

    /// The physical core of a core.
    pub(crate) fn physical_core(&self, thread: usize) -> usize {
        self.smt
            .as_ref()
            .map_or(thread, |smt| smt.core_of_thread[thread])
    }

    /// Number of memory domains.
    pub fn domains(&self) -> usize {
        self.node_of_domain.len()
    }

    /// Node of a core's memory domain.
    ///
    /// # Panics
    /// When there is no such core, or the configuration is not valid.
    pub fn node_of_core(&self, core: usize) -> usize {
        self.node_of_domain[self.domain_of_core[core]]
    }

    /// Whole cycles of the core clock in `ps` picoseconds.
    #[inline]
    pub fn cycles(&self, ps: u64) -> u64 {
        const PS_PER_US: u64 = 1_000_000;
        ps / PS_PER_US * self.core_mhz + ps % PS_PER_US * self.core_mhz / PS_PER_US
    }

    /// Time of this many cycles of the core clock, in picoseconds, rounded up: after it, that many
    /// more cycles have ended.
    #[inline]
    pub fn picoseconds_of(&self, cycles: u64) -> u64 {
        const PS_PER_US: u64 = 1_000_000;
        let rest = cycles % self.core_mhz * PS_PER_US;
        cycles / self.core_mhz * PS_PER_US + rest.div_ceil(self.core_mhz)
    }

    /// Checks everything but the routes over the links, which [`crate::Machine::new`] finds.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), HardwareError> {
        let line = self.line_bytes;
        let is_line = line.is_power_of_two() && line >= 8;
        check(
            "line_bytes",
            line as f64,
            is_line,
            "a power of two from 8 on",
        )?;
        for (what, value) in [
            ("core_mhz", self.core_mhz as f64),
            (
                "picoseconds_per_instruction",
                self.picoseconds_per_instruction as f64,
            ),
            ("in_flight_per_core", self.in_flight_per_core as f64),
            ("bandwidth_window_ns", self.bandwidth_window_ns),
        ] {
            positive(what, value)?;
        }
        if let Some(prefetch) = self.prefetch {
            positive("prefetch.streams", prefetch.streams as f64)?;
            positive("prefetch.depth_lines", prefetch.depth_lines as f64)?;
        }
        let hit_ns = self.l1.hit_ns;
        check(
            "l1.hit_ns",
            hit_ns,
            hit_ns == 0.0,
            "0: it is part of the instruction",
        )?;
        let l2 = self.l2.iter().map(|l2| ("l2", l2));
        for (name, cache) in [("l1", &self.l1), ("llc", &self.llc)].into_iter().chain(l2) {
            cache.validate(name, line)?;
        }
        if let Some(tlb) = &self.tlb {
            tlb.validate(line)?;
        }
        self.validate_shape()?;
        self.validate_smt()?;
        self.validate_links()
    }

    fn validate_shape(&self) -> Result<(), HardwareError> {
        let (nodes, domains) = (self.nodes(), self.domains());
        positive("the length of latency_ns", nodes as f64)?;
        for (what, places, count, of) in [
            ("domain_of_core", &self.domain_of_core, domains, "domains"),
            ("node_of_domain", &self.node_of_domain, nodes, "nodes"),
        ] {
            let length = format!("the length of {what}");
            positive(&length, places.len() as f64)?;
            let counted = places.len() <= directory::MOST;
            let must = "at most 32766, as the directory counts";
            check(length, places.len() as f64, counted, must)?;
            for (at, &place) in places.iter().enumerate() {
                in_range(format!("{what}[{at}]"), place, count, of)?;
            }
        }
        let of_nodes = |what: String, length: usize| {
            let must = format!("{nodes}, the number of nodes");
            check(
                format!("the length of {what}"),
                length as f64,
                length == nodes,
                must,
            )
        };
        for (from, row) in self.latency_ns.iter().enumerate() {
            of_nodes(format!("latency_ns[{from}]"), row.len())?;
            for (to, &ns) in row.iter().enumerate() {
                positive(format!("latency_ns[{from}][{to}]"), ns)?;
            }
        }
        of_nodes(
            "controller_gb_per_s".to_owned(),
            self.controller_gb_per_s.len(),
        )?;
        for (node, &gb_per_s) in self.controller_gb_per_s.iter().enumerate() {
            bandwidth(&format!("controller_gb_per_s[{node}]"), gb_per_s)?;
        }
        Ok(())
    }

    fn validate_smt(&self) -> Result<(), HardwareError> {
        let Some(smt) = &self.smt else { return Ok(()) };
        let throughput = smt.throughput;
        let in_reach = (1.0..=2.0).contains(&throughput);
        check("smt.throughput", throughput, in_reach, "from 1 to 2")?;
        let (given, cores) = (smt.core_of_thread.len(), self.cores());
        let what = "the length of smt.core_of_thread";
        let must = format!("{cores}, the number of cores");
        check(what, given as f64, given == cores, must)?;
        let mut domains = vec![None; cores];
        for (thread, &core) in smt.core_of_thread.iter().enumerate() {
            let what = format!("smt.core_of_thread[{thread}]");
            in_range(what.clone(), core, cores, "cores")?;
            let domain = self.domain_of_core[thread];
            let own = *domains[core].get_or_insert(domain) == domain;
            check(what, core as f64, own, "a core of the same memory domain")?;
        }
        let gap = domains.iter().position(Option::is_none).unwrap_or(cores);
        let last = domains.iter().rposition(Option::is_some).unwrap_or(0);
        let must = format!("without gaps: core {gap} has no thread");
        check("smt.core_of_thread", last as f64, last < gap, must)
    }

    fn validate_links(&self) -> Result<(), HardwareError> {
        for (index, &Link { from, to, gb_per_s }) in self.links.iter().enumerate() {
            for (end, node) in [("from", from), ("to", to)] {
                in_range(format!("links[{index}].{end}"), node, self.nodes(), "nodes")?;
            }
            bandwidth(&format!("links[{index}].gb_per_s"), gb_per_s)?;
            let what = format!("links[{index}].to");
            check(what, to as f64, from != to, "another node than `from`")?;
            let mut earlier = self.links[..index].iter();
            if earlier.any(|link| (link.from, link.to) == (from, to)) {
                return Err(HardwareError::LinkTwice { from, to });
            }
        }
        Ok(())
    }
}

impl Cache {
    fn validate(&self, name: &str, line_bytes: u64) -> Result<(), HardwareError> {
        positive(format!("{name}.ways"), self.ways as f64)?;
        positive(format!("{name}.bytes"), self.bytes as f64)?;
        not_negative(format!("{name}.hit_ns"), self.hit_ns)?;
        let set_bytes = line_bytes.checked_mul(self.ways as u64);
        let is_whole = set_bytes.is_some_and(|set| self.bytes.is_multiple_of(set));
        let must = format!(
            "a multiple of {} ways of {line_bytes}-byte lines",
            self.ways
        );
        check(format!("{name}.bytes"), self.bytes as f64, is_whole, must)
    }
}

/// A line must take at least a picosecond, or the accounting loses it.
fn bandwidth(what: &str, gb_per_s: f64) -> Result<(), HardwareError> {
    positive(what, gb_per_s)?;
    check(what, gb_per_s, gb_per_s <= 8000.0, "at most 8000 GB/s")
}

fn in_range(what: String, index: usize, count: usize, of: &str) -> Result<(), HardwareError> {
    let must = format!("below {count}, the number of {of}");
    check(what, index as f64, index < count, must)
}

/// Nanoseconds as picoseconds, rounded.
pub(crate) fn picoseconds(ns: f64) -> u64 {
    (ns * 1000.0).round() as u64
}

/// Time of one line at a bandwidth, in picoseconds, rounded, at least 1.
pub(crate) fn picoseconds_per_line(line_bytes: u64, gb_per_s: f64) -> u64 {
    picoseconds(line_bytes as f64 / gb_per_s).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good() -> Config {
        let mut config = Config::of_equal_nodes(2, vec![vec![90.0, 150.0]; 2], 3.2);
        for (from, to) in [(0, 1), (1, 0)] {
            let gb_per_s = 3.2;
            config.links.push(Link { from, to, gb_per_s });
        }
        config
    }

    /// The error for a good configuration after a change that makes it invalid.
    fn said(change: impl FnOnce(&mut Config)) -> String {
        let mut config = good();
        change(&mut config);
        config
            .validate()
            .expect_err("the change is wrong")
            .to_string()
    }

    #[test]
    fn good_ones_of_many_shapes_pass() {
        assert_eq!(good().validate(), Ok(()));
        for nodes in [1, 3, 16, 64] {
            let config = Config::of_equal_nodes(4, vec![vec![100.0; nodes]; nodes], 10.0);
            assert_eq!(config.validate(), Ok(()));
            assert_eq!(config.cores(), nodes * 4);
            assert_eq!(config.node_of_core(nodes * 4 - 1), nodes - 1);
        }
        let mut memory_only = good();
        memory_only.node_of_domain = vec![0, 0];
        assert_eq!(
            memory_only.validate(),
            Ok(()),
            "node 1 has memory but no cores"
        );
    }

    proptest! {
        /// Work of a number of cycles ends that many cycles after any start, to within one cycle.
        #[test]
        fn cycles_and_times_agree(core_mhz in 1u64..10_000, start in 0u64..1 << 50, count in 0u64..1 << 30) {
            let config = Config { core_mhz, ..good() };
            let end = config.cycles(start + config.picoseconds_of(count));
            let took = end - config.cycles(start);
            prop_assert!(took == count || took == count + 1, "{} for {}", took, count);
            let exact = u128::from(start) * u128::from(core_mhz) / 1_000_000;
            prop_assert_eq!(u128::from(config.cycles(start)), exact);
        }
    }

    #[test]
    fn a_set_larger_than_can_be_counted_is_refused() {
        let told = said(|c| {
            c.line_bytes = 1 << 62;
            c.l1.ways = 4;
        });
        assert!(told.contains("a multiple of 4 ways"), "{told}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases: [(&str, String); 14] = [
            (
                "line_bytes is 48; it must be a power of two from 8 on",
                said(|c| c.line_bytes = 48),
            ),
            (
                "in_flight_per_core is 0; it must be more than 0",
                said(|c| c.in_flight_per_core = 0),
            ),
            (
                "l1.hit_ns is 1; it must be 0: it is part of the instruction",
                said(|c| c.l1.hit_ns = 1.0),
            ),
            (
                "llc.hit_ns is -1; it must be 0 or more",
                said(|c| c.llc.hit_ns = -1.0),
            ),
            (
                "llc.bytes is 1000; it must be a multiple of 16 ways of 64-byte lines",
                said(|c| c.llc.bytes = 1000),
            ),
            (
                "the length of domain_of_core is 0; it must be more than 0",
                said(|c| c.domain_of_core.clear()),
            ),
            (
                "domain_of_core[1] is 2; it must be below 2, the number of domains",
                said(|c| c.domain_of_core[1] = 2),
            ),
            (
                "node_of_domain[0] is 7; it must be below 2, the number of nodes",
                said(|c| c.node_of_domain[0] = 7),
            ),
            (
                "the length of latency_ns[1] is 1; it must be 2, the number of nodes",
                said(|c| c.latency_ns[1].truncate(1)),
            ),
            (
                "latency_ns[0][1] is NaN; it must be more than 0",
                said(|c| c.latency_ns[0][1] = f64::NAN),
            ),
            (
                "the length of controller_gb_per_s is 3; it must be 2, the number of nodes",
                said(|c| c.controller_gb_per_s.push(1.0)),
            ),
            (
                "links[0].to is 9; it must be below 2, the number of nodes",
                said(|c| c.links[0].to = 9),
            ),
            (
                "the link from node 0 to node 1 is given twice",
                said(|c| c.links.push(c.links[0])),
            ),
            (
                "links[1].gb_per_s is inf; it must be more than 0",
                said(|c| c.links[1].gb_per_s = f64::INFINITY),
            ),
        ];
        for (expected, said) in cases {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn siblings_that_cannot_be_are_refused() {
        let smt = |throughput: f64, core_of_thread: &[usize]| {
            let core_of_thread = core_of_thread.to_vec();
            said(|c| {
                c.smt = Some(Smt {
                    core_of_thread,
                    throughput,
                });
            })
        };
        for (said, expected) in [
            (
                smt(2.5, &[0, 0, 1, 1]),
                "smt.throughput is 2.5; it must be from 1 to 2",
            ),
            (
                smt(1.5, &[0, 0, 1]),
                "the length of smt.core_of_thread is 3; it must be 4, the number of cores",
            ),
            (
                smt(1.5, &[0, 0, 1, 4]),
                "smt.core_of_thread[3] is 4; it must be below 4, the number of cores",
            ),
            (
                smt(1.5, &[0, 1, 1, 2]),
                "smt.core_of_thread[2] is 1; it must be a core of the same memory domain",
            ),
            (
                smt(1.5, &[0, 0, 2, 2]),
                "smt.core_of_thread is 2; it must be without gaps: core 1 has no thread",
            ),
        ] {
            assert_eq!(said, expected);
        }
        let mut apart = good();
        apart.smt = Some(Smt {
            core_of_thread: vec![0, 0, 1, 1],
            throughput: 1.0,
        });
        assert_eq!(apart.validate(), Ok(()));
    }

    #[test]
    fn files_with_whole_numbers_and_without_a_prefetcher_are_read() {
        let text = toml::to_string(&good()).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), good());
        let whole = text.replace("[90.0, 150.0]", "[90, 150]");
        assert_ne!(whole, text);
        assert_eq!(toml::from_str::<Config>(&whole).unwrap(), good());
        let start = text.find("[prefetch]").unwrap();
        let end = start + text[start..].find("[l1]").unwrap();
        let without = text.replace(&text[start..end], "");
        assert_eq!(toml::from_str::<Config>(&without).unwrap().prefetch, None);
    }
}
