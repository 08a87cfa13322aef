//! Builds the model of a machine file.
//!
//! What a file leaves out is not guessed: the error names the missing key. For three figures, files
//! have no key, and the model has its own: the number of streams of a prefetcher, how near to a
//! loaded value an address must lie to depend on it, and the length of bandwidth windows.
//!
//! Cores are numbered node by node, domain by domain, core by core; SMT siblings follow each other.
//! Without `core.smt_throughput`, each thread is modelled as a core of its own.

use numaherd_topology::machine::CacheSpec;
use numaherd_topology::{CacheKind, Machine, SharedBy, TlbSpec};

use super::{Cache, Config, Prefetch, Smt, Tlb, TlbLevel};
use crate::HardwareError;

impl Config {
    /// The model of a machine file, validated. It has TLBs if the file gives them.
    ///
    /// # Errors
    /// [`HardwareError::Missing`], [`HardwareError::NotShared`] and [`HardwareError::Machine`] name the first thing
    /// that the file leaves out or the model cannot hold.
    pub fn of(machine: &Machine) -> Result<Self, HardwareError> {
        let (memory, core) = (&machine.memory, &machine.core);
        let latency_ns = given(machine, "memory.latency_ns", memory.latency_ns.clone())?;
        let controllers = memory.node_gb_per_s.as_ref();
        let controllers = given(machine, "memory.node_gb_per_s", controllers)?;
        let clock_ghz = given(machine, "core.clock_ghz", core.clock_ghz)?;
        let instruction_ns = given(machine, "core.ns_per_instruction", core.ns_per_instruction)?;
        let depth = given(machine, "core.prefetch_lines", core.prefetch_lines)?;
        let in_flight = given(machine, "core.misses_in_flight", core.misses_in_flight)?;
        let window = given(machine, "core.reorder_window", core.reorder_window)?;
        let (domain_of_core, node_of_domain) = domains(machine);
        let first = machine.caches.first();
        let base = Self::of_equal_nodes(1, latency_ns, 1.0);
        let l1 = private(machine, 1).map(|spec| cache(machine, spec, 0.0));
        let l2 = private(machine, 2);
        let config = Self {
            line_bytes: first.map_or(64, |cache| u64::from(cache.line_bytes)),
            core_mhz: rounded(clock_ghz * 1000.0),
            picoseconds_per_instruction: rounded(instruction_ns * 1000.0),
            in_flight_per_core: in_flight as usize,
            reorder_window_instructions: u64::from(window),
            prefetch: base.prefetch.filter(|_| depth > 0).map(|own| Prefetch {
                depth_lines: u64::from(depth),
                ..own
            }),
            l1: given(machine, "a first-level data cache", l1.transpose()?)?,
            l2: l2.map(|spec| outer_cache(machine, spec)).transpose()?,
            llc: last_level(machine)?,
            tlb: machine
                .tlb
                .as_ref()
                .map(|spec| tlb(machine, spec))
                .transpose()?,
            controller_gb_per_s: controllers.list(base.nodes()),
            smt: smt(machine, domain_of_core.len()),
            domain_of_core,
            node_of_domain,
            links: machine.links(),
            ..base
        };
        config.validate().map_err(|error| HardwareError::Machine {
            machine: machine.name.clone(),
            source: Box::new(error),
        })?;
        Ok(config)
    }
}

/// The value that a file gives for a key, or an error that names the key.
fn given<T>(machine: &Machine, key: &str, value: Option<T>) -> Result<T, HardwareError> {
    value.ok_or_else(|| HardwareError::Missing {
        machine: machine.name.clone(),
        key: key.to_owned(),
    })
}

/// The domain of each core, and the node of each domain.
fn domains(machine: &Machine) -> (Vec<usize>, Vec<usize>) {
    let shape = &machine.shape;
    let domains = shape.domains_per_node.list(shape.nodes as usize);
    let nodes = domains.into_iter().enumerate();
    let nodes = nodes.flat_map(|(node, domains)| (0..domains).map(move |_| node));
    let nodes: Vec<usize> = nodes.collect();
    let cores = (shape.cores_per_domain * shape.threads_per_core) as usize;
    let of_core = (0..nodes.len())
        .flat_map(|domain| (0..cores).map(move |_| domain))
        .collect();
    (of_core, nodes)
}

/// The siblings among this many threads; None without SMT or its throughput.
fn smt(machine: &Machine, threads: usize) -> Option<Smt> {
    let of_core = machine.shape.threads_per_core as usize;
    let throughput = machine.core.smt_throughput.filter(|_| of_core > 1)?;
    Some(Smt {
        core_of_thread: (0..threads).map(|thread| thread / of_core).collect(),
        throughput,
    })
}

/// The data caches of a machine.
fn data_caches(machine: &Machine) -> impl DoubleEndedIterator<Item = &CacheSpec> {
    let caches = machine.caches.iter();
    caches.filter(|spec| spec.kind != CacheKind::Instruction)
}

/// The private data cache of each core at this level, if it is not the last level.
fn private(machine: &Machine, level: u8) -> Option<&CacheSpec> {
    let last = data_caches(machine).map(|spec| spec.level).max();
    data_caches(machine).find(|spec| {
        spec.level == level
            && spec.shared_by == SharedBy::Core
            && last.is_some_and(|last| level < last)
    })
}

/// The cache that the cores of a domain share.
fn last_level(machine: &Machine) -> Result<Cache, HardwareError> {
    let shape = &machine.shape;
    let is_domains = |spec: &&CacheSpec| match spec.shared_by {
        SharedBy::Domain => true,
        SharedBy::Package => {
            let domains = shape.domains_per_node.list(shape.nodes as usize);
            shape.nodes_per_package == 1 && domains.iter().all(|&domains| domains <= 1)
        }
        SharedBy::Core => shape.cores_per_domain == 1,
    };
    match data_caches(machine).next_back().filter(is_domains) {
        Some(spec) => outer_cache(machine, spec),
        None => Err(HardwareError::NotShared {
            machine: machine.name.clone(),
        }),
    }
}

/// A cache whose latency the file must give.
fn outer_cache(machine: &Machine, spec: &CacheSpec) -> Result<Cache, HardwareError> {
    let key = format!("the latency of the level-{} cache", spec.level);
    cache(machine, spec, given(machine, &key, spec.latency_ns)?)
}

/// The most lines of a fully associative cache: each access searches all of them.
const MOST_WAYS: u64 = 4096;

fn cache(machine: &Machine, spec: &CacheSpec, hit_ns: f64) -> Result<Cache, HardwareError> {
    let bytes = spec.size_kib << 10;
    let lines = bytes / u64::from(spec.line_bytes).max(1);
    let key = format!("the ways of the level-{} cache", spec.level);
    let ways = match spec.ways {
        0 => given(machine, &key, (lines <= MOST_WAYS).then_some(lines))?,
        ways => ways.into(),
    };
    Ok(Cache {
        bytes,
        ways: ways as usize,
        hit_ns,
    })
}

fn tlb(machine: &Machine, spec: &TlbSpec) -> Result<Tlb, HardwareError> {
    let level = |entries: u32, ways: u32, hit_ns| TlbLevel {
        entries: entries as usize,
        ways: ways as usize,
        hit_ns,
    };
    let second = spec.l2.as_ref().map(|second| {
        let hit_ns = given(machine, "tlb.l2.latency_ns", second.latency_ns)?;
        Ok(level(second.entries, second.ways, hit_ns))
    });
    Ok(Tlb {
        page_bytes: spec.page_kib << 10,
        managed_by: spec.managed_by,
        miss_ns: spec.miss_ns,
        l1: level(spec.l1.entries, spec.l1.ways, 0.0),
        l2: second.transpose()?,
    })
}

/// Rounds a positive figure of a machine file; the file's validation keeps it in range.
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use numaherd_topology::TlbManagement;

    use super::*;

    fn preset(name: &str) -> Machine {
        Machine::preset(name).expect("a preset")
    }

    #[test]
    fn presets_are_modelled_or_say_what_they_lack() {
        for name in Machine::presets() {
            match Config::of(&preset(name)) {
                Ok(config) => {
                    let topology = preset(name).topology().unwrap();
                    assert_eq!(config.cores(), topology.cpus().len(), "{name}");
                    assert_eq!(config.nodes(), topology.nodes().len(), "{name}");
                    assert_eq!(config.domains(), topology.domains().len(), "{name}");
                }
                Err(error) => {
                    let said = error.to_string();
                    assert!(!name.starts_with("lab-"), "{said}");
                    assert!(said.contains(name), "{said}");
                }
            }
        }
    }

    #[test]
    fn what_the_file_leaves_out_is_named() {
        type Change = fn(&mut Machine);
        let cases: [(Change, &str); 5] = [
            (
                |m| m.caches.iter_mut().for_each(|cache| cache.ways = 0),
                "the ways of the level-3 cache",
            ),
            (|m| m.core.clock_ghz = None, "core.clock_ghz"),
            (
                |m| {
                    m.caches
                        .iter_mut()
                        .for_each(|cache| cache.latency_ns = None);
                },
                "the latency of the level-3 cache",
            ),
            (|m| m.memory.latency_ns = None, "memory.latency_ns"),
            (
                |m| {
                    m.caches[1].shared_by = SharedBy::Core;
                },
                "is not shared by a memory domain",
            ),
        ];
        for (change, expected) in cases {
            let mut machine = preset("lab-4x2");
            change(&mut machine);
            let said = Config::of(&machine).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn siblings_share_a_core_where_the_file_says_what_they_get_done() {
        let mut machine = preset("lab-smt");
        let smt = Config::of(&machine).unwrap().smt.unwrap();
        assert_eq!(smt.core_of_thread, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(smt.throughput, 1.15);
        machine.core.smt_throughput = None;
        assert_eq!(Config::of(&machine).unwrap().smt, None);
        assert_eq!(Config::of(&preset("lab-4x2")).unwrap().smt, None);
    }

    #[test]
    fn the_tlbs_of_a_file_are_modelled() {
        let config = Config::of(&preset("xeon-x7550-4s")).unwrap();
        let tlb = config.tlb.unwrap();
        assert_eq!((tlb.page_bytes, tlb.l1.entries), (4096, 64));
        assert_eq!(tlb.l2.unwrap().entries, 512);
        assert_eq!(tlb.managed_by, TlbManagement::Hardware);
        let mut without = preset("xeon-x7550-4s");
        without.tlb = None;
        assert_eq!(Config::of(&without).unwrap().tlb, None);
    }
}
