//! Machine files: descriptions of machines by shape, caches, latencies and bandwidths, with sources.
//!
//! `data/machines/*.toml` hold the presets; a user's own file has the same form. The lab boots a
//! guest with a machine file's shape and models its hardware from the same figures.
//!
//! ```toml
//! name = "example"
//! description = "Four nodes of two cores in a square"
//! source = "where the figures are from"
//!
//! [shape]
//! nodes = 4               # memory nodes
//! domains_per_node = 1    # last-level caches in each node; or a list of one number for each node:
//!                         # [2, 1, 0], 0 for a node without cores
//! cores_per_domain = 2
//! threads_per_core = 1
//! sibling_numbers = "apart"  # SMT siblings have the numbers c, c + cores, ...; or "adjacent"
//! nodes_per_package = 1   # 2 or more: sub-NUMA clustering
//! memory_per_node_mib = 1024  # or a list, 0 for a node without memory
//!
//! [[cache]]               # nearest first; shared by "core" or "domain" (or "package")
//! level = 1
//! kind = "data"
//! size_kib = 32
//! ways = 8                # left out where no source gives it
//! line_bytes = 64
//! shared_by = "core"
//! latency_ns = 1.5        # total, from the core
//! inclusive = false       # whether it also holds what nearer caches hold; false when left out
//!
//! [memory]
//! distance = [[10, 20], [20, 10]]      # SLIT
//! latency_ns = [[90, 150], [150, 90]]  # idle, from the cores of a row to the memory of a column
//! node_gb_per_s = 12.8                 # per node; or a list (that of a node without memory is never used)
//! node_sustained_gb_per_s = 11.0       # what programs reach of it, where the figure above is a peak;
//!                                      # or a list
//! modified_line_ns = [[40, 130], [130, 40]]  # of a line that a core of the column's node has written,
//!                                      # from another core of a row's; diagonal: same domain
//! link_gb_per_s = 6.4                  # per link and direction; or a full matrix: link_matrix_gb_per_s
//!                                      # (its diagonal is no link: any positive number)
//!
//! [tlb]                    # left out where nothing is known of it
//! page_kib = 4
//! managed_by = "hardware"  # or "software": the operating system's miss handler fills it
//! miss_ns = 15             # from a miss in all levels until the translation is there
//! l1 = { entries = 64, ways = 4 }                     # its hits are part of the instruction
//! l2 = { entries = 512, ways = 4, latency_ns = 3.5 }  # left out where there is none
//!
//! [core]
//! ns_per_instruction = 0.5
//! misses_in_flight = 10
//! reorder_window = 128     # instructions
//! prefetch_lines = 8       # how far the stream prefetcher runs ahead; 0 for none
//! clock_ghz = 2.3
//! prefetch_stops_at_pages = false  # streams begin anew in each 4 KiB page; false when left out
//! smt_throughput = 1.15    # what two SMT siblings get done together, in what one does alone: 1 to 2; left
//!                          # out, each is modelled as a core of its own
//! cycles_scale = 1.0       # cycles for one of the core that program profiles were measured on
//! ```

use serde::{Deserialize, Serialize};

use crate::topology::CacheKind;

mod check;
mod expand;
mod per_node;
mod presets;
mod read;

pub use per_node::PerNode;

/// A machine file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name, as used on the command line.
    pub name: String,
    /// One line on what it is.
    pub description: String,
    /// Where the figures are from, with their certainty.
    pub source: String,
    /// Nodes, domains, cores.
    pub shape: Shape,
    /// Caches, nearest first.
    #[serde(default, rename = "cache")]
    pub caches: Vec<CacheSpec>,
    /// Distances, latencies, bandwidths.
    #[serde(default)]
    pub memory: Memory,
    /// The TLBs of each core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbSpec>,
    /// What a core can do.
    #[serde(default)]
    pub core: CoreSpec,
}

/// The number of each of a machine's parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Memory nodes.
    pub nodes: u32,
    /// Last-level caches in each node; 0 for a node that has memory but no cores.
    #[serde(default = "one_in_each")]
    pub domains_per_node: PerNode<u32>,
    /// Cores that share a last-level cache.
    pub cores_per_domain: u32,
    /// SMT siblings.
    #[serde(default = "one")]
    pub threads_per_core: u32,
    /// How the CPUs of a core are numbered.
    #[serde(default, skip_serializing_if = "SiblingNumbers::is_apart")]
    pub sibling_numbers: SiblingNumbers,
    /// Nodes in a package: 2 or more with sub-NUMA clustering.
    #[serde(default = "one")]
    pub nodes_per_package: u32,
    /// Memory of each node in MiB; 0 for a node without.
    pub memory_per_node_mib: PerNode<u64>,
}

/// How a kernel numbers the CPUs of a core with SMT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SiblingNumbers {
    /// First one CPU of every core, then the second of every core, as firmware lists them on most x86
    /// machines.
    #[default]
    Apart,
    /// One after the other, as on POWER and in QEMU's guests.
    Adjacent,
}

impl SiblingNumbers {
    fn is_apart(&self) -> bool {
        *self == Self::Apart
    }
}

/// Who shares a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SharedBy {
    /// The SMT siblings of one core.
    Core,
    /// The cores of one memory domain.
    Domain,
    /// All cores of a package.
    Package,
}

/// One level of cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Size in KiB.
    pub size_kib: u64,
    /// Associativity; 0 where no source gives it (a model then takes a small cache as fully associative, and refuses a
    /// large one).
    #[serde(default)]
    pub ways: u32,
    /// Line size in bytes.
    #[serde(default = "line")]
    pub line_bytes: u32,
    /// Who shares one.
    pub shared_by: SharedBy,
    /// Latency of a hit in ns, from the core; `None` where no source gives one.
    pub latency_ns: Option<f64>,
    /// Whether it includes the contents of the caches nearer to its cores. If not, their capacities
    /// add up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inclusive: bool,
}

/// Distances, latencies and bandwidths; what no source gives is left out, never guessed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// SLIT.
    pub distance: Option<Vec<Vec<u32>>>,
    /// Idle latencies in ns.
    pub latency_ns: Option<Vec<Vec<f64>>>,
    /// Idle latencies in ns of a line that another core holds modified: from a core of the row's
    /// node to one of the column's; on the diagonal, to another core of the same memory domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified_line_ns: Option<Vec<Vec<f64>>>,
    /// Read bandwidth of each node in GB/s.
    pub node_gb_per_s: Option<PerNode<f64>>,
    /// The part of it that programs reach with all cores, in GB/s; left out where `node_gb_per_s`
    /// itself was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_sustained_gb_per_s: Option<PerNode<f64>>,
    /// Bandwidth of every link per direction in GB/s.
    pub link_gb_per_s: Option<f64>,
    /// Bandwidth from row to column in GB/s, where links differ.
    pub link_matrix_gb_per_s: Option<Vec<Vec<f64>>>,
    /// Whether every read of a line from memory probes the caches of all nodes; the links then
    /// carry these packets, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub broadcast_probes: bool,
}

/// The TLBs of each core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// Size of a page in KiB.
    pub page_kib: u64,
    /// Who fills them.
    pub managed_by: TlbManagement,
    /// From a miss in all levels until the translation is there, in ns.
    pub miss_ns: f64,
    /// First level.
    pub l1: TlbLevelSpec,
    /// Second level, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<TlbLevelSpec>,
}

/// One level of a TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbLevelSpec {
    /// Translations that it holds.
    pub entries: u32,
    /// Associativity; as many as `entries` for a fully associative one.
    pub ways: u32,
    /// Time from a request to the translation on a hit, in ns; left out for the first level, where
    /// it is part of the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<f64>,
}

/// Who fills a TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TlbManagement {
    /// A page walker: the core runs on meanwhile.
    Hardware,
    /// The operating system's miss handler: the core does nothing else meanwhile.
    Software,
}

/// What a core can do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CoreSpec {
    /// Modelled time of one instruction in ns.
    pub ns_per_instruction: Option<f64>,
    /// Cache lines a core can have in flight.
    pub misses_in_flight: Option<u32>,
    /// Instructions a core can run ahead of an unfinished load.
    pub reorder_window: Option<u32>,
    /// Lines the stream prefetcher runs ahead; 0 for none.
    pub prefetch_lines: Option<u32>,
    /// Clock in GHz.
    pub clock_ghz: Option<f64>,
    /// Whether its prefetchers stop at the end of each 4 KiB page, and streams start again in the
    /// next; false when left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefetch_stops_at_pages: bool,
    /// Throughput of two SMT siblings relative to one alone: from 1 (each half as fast) to 2. If it is left out, each
    /// is modelled as a core of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smt_throughput: Option<f64>,
    /// Cycles that it needs, with all data in its caches, for one cycle of the core that program
    /// profiles were measured on (see `data/programs`); 1 when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles_scale: Option<f64>,
}

fn one() -> u32 {
    1
}

fn one_in_each() -> PerNode<u32> {
    PerNode::All(1)
}

fn line() -> u32 {
    64
}
