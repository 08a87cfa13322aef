//! The shape and speed of a modelled machine, as a user writes it down, and the check that it
//! makes sense.
//!
//! Times are in nanoseconds or picoseconds and bandwidths in GB/s (10^9 bytes a second), as the
//! names say; inside the crate everything is picoseconds and lines.

mod machine_file;
mod tlb;

use numaherd_topology::Link;
use serde::{Deserialize, Serialize};

pub use self::machine_file::NotModelled;
pub use self::tlb::{Tlb, TlbLevel, TlbManagement};
use crate::directory;

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
    /// Time of one instruction whose data are in the first-level cache, in picoseconds.
    pub picoseconds_per_instruction: u64,
    /// Requests that one core can have outstanding beyond its first-level cache.
    pub in_flight_per_core: usize,
    /// Instructions that a core can execute beyond a load that waits for its data.
    pub reorder_window_instructions: u64,
    /// An access this close after a value that an outstanding load returns depends on that load.
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
    /// Memory domain of each core.
    pub domain_of_core: Vec<usize>,
    /// Node of each memory domain.
    pub node_of_domain: Vec<usize>,
    /// From a core on the row's node to data in the column's memory, unloaded and everything
    /// included, in ns. Its length is the number of nodes.
    pub latency_ns: Vec<Vec<f64>>,
    /// Bandwidth of each node's memory controller, reads and writes together.
    pub controller_gb_per_s: Vec<f64>,
    /// The links between nodes, one entry for each direction. Lines take the shortest way. Empty
    /// when links are no bottleneck.
    pub links: Vec<Link>,
    /// Length of the windows in which bandwidth is accounted, in ns: the most by which cores that
    /// are at different points of time get in each other's way wrongly.
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
    /// From a request to the data when they are here, in ns.
    pub hit_ns: f64,
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

/// Why a [`Config`] describes no machine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A number is zero, negative, not finite or otherwise outside what is possible.
    #[error("{what} is {value}; it must be {must}")]
    Number {
        /// The field.
        what: String,
        /// What it holds.
        value: f64,
        /// What it may hold.
        must: &'static str,
    },
    /// A list is empty.
    #[error("{what} is empty; give at least one")]
    Empty {
        /// The field.
        what: &'static str,
    },
    /// A list or matrix has another length than the machine's shape asks for.
    #[error("{what} has {length} entries; the machine has {expected} {of}")]
    Length {
        /// The field.
        what: String,
        /// Its length.
        length: usize,
        /// The length it should have.
        expected: usize,
        /// What is counted.
        of: &'static str,
    },
    /// An index points outside its list.
    #[error("{what} names {of} {index}; there are {count}, counted from 0")]
    Index {
        /// The field.
        what: String,
        /// Kind of thing it names.
        of: &'static str,
        /// The index.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A cache's size is no whole number of sets.
    #[error(
        "{cache}: {bytes} bytes are no whole number of sets of {ways} lines of {line_bytes} bytes"
    )]
    CacheShape {
        /// Which cache.
        cache: &'static str,
        /// Its size.
        bytes: u64,
        /// Its ways.
        ways: usize,
        /// The line size.
        line_bytes: u64,
    },
    /// A TLB level's size is no whole number of sets.
    #[error(
        "{level}: {entries} entries are no whole number of sets of {ways}; make entries a multiple of ways"
    )]
    TlbShape {
        /// Which level.
        level: &'static str,
        /// Its entries.
        entries: usize,
        /// Its ways.
        ways: usize,
    },
    /// An IPM unit is asked for on a machine without TLBs.
    #[error(
        "the machine has no TLBs, whose entries an IPM unit watches; give it some (key tlb), or have no IPM unit"
    )]
    NoTlb,
    /// The same link direction is given twice.
    #[error("the link from node {from} to node {to} is given twice")]
    LinkTwice {
        /// Node that sends.
        from: usize,
        /// Node that receives.
        to: usize,
    },
    /// Links are given, but two nodes are not joined.
    #[error(
        "no way over the links from node {from} to node {to}; add a link, or leave out all links if none is a bottleneck"
    )]
    NoRoute {
        /// Node that would send.
        from: usize,
        /// Node that would receive.
        to: usize,
    },
}

impl Config {
    /// A machine of equal nodes, one memory domain each, as a start to build on: 2 GHz cores with
    /// 32 KiB and no second level, 2 MiB last-level caches, ten requests in flight.
    ///
    /// `latency_ns` is the matrix of [`Config::latency_ns`]; controllers get `controller_gb_per_s`
    /// each; links are left out.
    #[must_use]
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
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.latency_ns.len()
    }

    /// Number of cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.domain_of_core.len()
    }

    /// Number of memory domains.
    #[must_use]
    pub fn domains(&self) -> usize {
        self.node_of_domain.len()
    }

    /// Node of a core's memory domain.
    ///
    /// # Panics
    /// When there is no such core, or the configuration is not valid.
    #[must_use]
    pub fn node_of_core(&self, core: usize) -> usize {
        self.node_of_domain[self.domain_of_core[core]]
    }

    /// Cycles of the core clock that have begun and ended in a time, in picoseconds.
    #[inline]
    #[must_use]
    pub fn cycles(&self, ps: u64) -> u64 {
        const PS_PER_US: u64 = 1_000_000;
        ps / PS_PER_US * self.core_mhz + ps % PS_PER_US * self.core_mhz / PS_PER_US
    }

    /// Time that so many cycles of the core clock take, in picoseconds, rounded up: after it, that
    /// many more cycles have ended.
    #[inline]
    #[must_use]
    pub fn picoseconds_of(&self, cycles: u64) -> u64 {
        const PS_PER_US: u64 = 1_000_000;
        let rest = cycles % self.core_mhz * PS_PER_US;
        cycles / self.core_mhz * PS_PER_US + rest.div_ceil(self.core_mhz)
    }

    /// Checks everything but the routes, which [`crate::Machine::new`] finds.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !self.line_bytes.is_power_of_two() || self.line_bytes < 8 {
            return Err(number(
                "line_bytes",
                self.line_bytes as f64,
                "a power of two from 8 on",
            ));
        }
        positive("core_mhz", self.core_mhz as f64)?;
        positive(
            "picoseconds_per_instruction",
            self.picoseconds_per_instruction as f64,
        )?;
        positive("in_flight_per_core", self.in_flight_per_core as f64)?;
        positive("bandwidth_window_ns", self.bandwidth_window_ns)?;
        if let Some(prefetch) = self.prefetch {
            positive("prefetch.streams", prefetch.streams as f64)?;
            positive("prefetch.depth_lines", prefetch.depth_lines as f64)?;
        }
        if self.l1.hit_ns != 0.0 {
            return Err(number(
                "l1.hit_ns",
                self.l1.hit_ns,
                "0: it is part of the instruction",
            ));
        }
        self.validate_cache("l1", &self.l1)?;
        if let Some(l2) = &self.l2 {
            self.validate_cache("l2", l2)?;
        }
        self.validate_cache("llc", &self.llc)?;
        if let Some(tlb) = &self.tlb {
            tlb.validate(self.line_bytes)?;
        }
        self.validate_shape()?;
        self.validate_links()
    }

    fn validate_cache(&self, name: &'static str, cache: &Cache) -> Result<(), ConfigError> {
        positive(&format!("{name}.ways"), cache.ways as f64)?;
        positive(&format!("{name}.bytes"), cache.bytes as f64)?;
        if !(cache.hit_ns.is_finite() && cache.hit_ns >= 0.0) {
            return Err(number(&format!("{name}.hit_ns"), cache.hit_ns, "0 or more"));
        }
        let set_bytes = self.line_bytes.checked_mul(cache.ways as u64);
        if !set_bytes.is_some_and(|set| cache.bytes.is_multiple_of(set)) {
            return Err(ConfigError::CacheShape {
                cache: name,
                bytes: cache.bytes,
                ways: cache.ways,
                line_bytes: self.line_bytes,
            });
        }
        Ok(())
    }

    fn validate_shape(&self) -> Result<(), ConfigError> {
        let nodes = self.nodes();
        for (what, length) in [
            ("domain_of_core", self.cores()),
            ("node_of_domain", self.domains()),
            ("latency_ns", nodes),
        ] {
            if length == 0 {
                return Err(ConfigError::Empty { what });
            }
        }
        for (what, length) in [
            ("domain_of_core's length", self.cores()),
            ("node_of_domain's length", self.domains()),
        ] {
            if length > directory::MOST {
                return Err(number(
                    what,
                    length as f64,
                    "at most 32766, as the directory counts",
                ));
            }
        }
        for (core, &domain) in self.domain_of_core.iter().enumerate() {
            in_range(
                format!("domain_of_core[{core}]"),
                "domain",
                domain,
                self.domains(),
            )?;
        }
        for (domain, &node) in self.node_of_domain.iter().enumerate() {
            in_range(format!("node_of_domain[{domain}]"), "node", node, nodes)?;
        }
        for (from, row) in self.latency_ns.iter().enumerate() {
            if row.len() != nodes {
                let what = format!("latency_ns[{from}]");
                return Err(ConfigError::Length {
                    what,
                    length: row.len(),
                    expected: nodes,
                    of: "nodes",
                });
            }
            for (to, &ns) in row.iter().enumerate() {
                positive(&format!("latency_ns[{from}][{to}]"), ns)?;
            }
        }
        if self.controller_gb_per_s.len() != nodes {
            return Err(ConfigError::Length {
                what: "controller_gb_per_s".to_owned(),
                length: self.controller_gb_per_s.len(),
                expected: nodes,
                of: "nodes",
            });
        }
        for (node, &gb_per_s) in self.controller_gb_per_s.iter().enumerate() {
            bandwidth(&format!("controller_gb_per_s[{node}]"), gb_per_s)?;
        }
        Ok(())
    }

    fn validate_links(&self) -> Result<(), ConfigError> {
        for (index, link) in self.links.iter().enumerate() {
            in_range(
                format!("links[{index}].from"),
                "node",
                link.from,
                self.nodes(),
            )?;
            in_range(format!("links[{index}].to"), "node", link.to, self.nodes())?;
            bandwidth(&format!("links[{index}].gb_per_s"), link.gb_per_s)?;
            if link.from == link.to {
                let what = format!("links[{index}].to");
                return Err(number(&what, link.to as f64, "another node than `from`"));
            }
            let earlier = &self.links[..index];
            if earlier
                .iter()
                .any(|l| (l.from, l.to) == (link.from, link.to))
            {
                return Err(ConfigError::LinkTwice {
                    from: link.from,
                    to: link.to,
                });
            }
        }
        Ok(())
    }
}

pub(crate) fn number(what: &str, value: f64, must: &'static str) -> ConfigError {
    ConfigError::Number {
        what: what.to_owned(),
        value,
        must,
    }
}

fn positive(what: &str, value: f64) -> Result<(), ConfigError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(number(what, value, "more than 0"))
    }
}

/// A line must take at least a picosecond, or the accounting loses it.
fn bandwidth(what: &str, gb_per_s: f64) -> Result<(), ConfigError> {
    positive(what, gb_per_s)?;
    if gb_per_s > 8000.0 {
        return Err(number(what, gb_per_s, "at most 8000 GB/s"));
    }
    Ok(())
}

fn in_range(what: String, of: &'static str, index: usize, count: usize) -> Result<(), ConfigError> {
    if index < count {
        Ok(())
    } else {
        Err(ConfigError::Index {
            what,
            of,
            index,
            count,
        })
    }
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

    /// What a change makes of a good configuration.
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
        /// What takes so many cycles ends that many cycles later, whenever it began, and not one
        /// cycle more than that.
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
        assert!(told.contains("no whole number of sets"), "{told}");
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
                "llc: 1000 bytes are no whole number of sets of 16 lines of 64 bytes",
                said(|c| c.llc.bytes = 1000),
            ),
            (
                "domain_of_core is empty; give at least one",
                said(|c| c.domain_of_core.clear()),
            ),
            (
                "domain_of_core[1] names domain 2; there are 2, counted from 0",
                said(|c| c.domain_of_core[1] = 2),
            ),
            (
                "node_of_domain[0] names node 7; there are 2, counted from 0",
                said(|c| c.node_of_domain[0] = 7),
            ),
            (
                "latency_ns[1] has 1 entries; the machine has 2 nodes",
                said(|c| c.latency_ns[1].truncate(1)),
            ),
            (
                "latency_ns[0][1] is NaN; it must be more than 0",
                said(|c| c.latency_ns[0][1] = f64::NAN),
            ),
            (
                "controller_gb_per_s has 3 entries; the machine has 2 nodes",
                said(|c| c.controller_gb_per_s.push(1.0)),
            ),
            (
                "links[0].to names node 9; there are 2, counted from 0",
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
