//! What is modelled of a machine file.
//!
//! What a file leaves out is not guessed: it is refused, and the key named. Two figures alone are
//! the model's own where a file has no key for them: how many streams a prefetcher follows and how
//! near to a loaded value an address must lie to depend on it.
//!
//! Cores are numbered node by node, domain by domain, core by core; SMT siblings follow each other,
//! and each is a core of its own.

use numaherd_topology::machine::CacheSpec;
use numaherd_topology::{CacheKind, Machine, SharedBy, TlbManagement as Filled, TlbSpec};

use super::{Cache, Config, Prefetch, Tlb, TlbLevel, TlbManagement};

/// Why a machine file cannot be modelled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the machine {machine} cannot be modelled access by access: {reason}")]
pub struct NotModelled {
    /// The machine's name.
    pub machine: String,
    /// The key that its file leaves out, or what the model cannot hold.
    pub reason: String,
}

impl Config {
    /// The model of a machine file, checked. With TLBs where the file gives them.
    ///
    /// # Errors
    /// [`NotModelled`] names the first thing that the file leaves out or the model cannot hold.
    pub fn of(machine: &Machine) -> Result<Self, NotModelled> {
        let refuse = |reason: String| NotModelled {
            machine: machine.name.clone(),
            reason,
        };
        let missing = |key: &str| {
            refuse(format!(
                "its file does not give {key}, which the hardware model needs"
            ))
        };
        let (memory, core) = (&machine.memory, &machine.core);
        let latency_ns = memory
            .latency_ns
            .clone()
            .ok_or_else(|| missing("memory.latency_ns"))?;
        let controller = memory
            .node_gb_per_s
            .ok_or_else(|| missing("memory.node_gb_per_s"))?;
        let clock_ghz = core.clock_ghz.ok_or_else(|| missing("core.clock_ghz"))?;
        let instruction_ns = core
            .ns_per_instruction
            .ok_or_else(|| missing("core.ns_per_instruction"))?;
        let depth = core
            .prefetch_lines
            .ok_or_else(|| missing("core.prefetch_lines"))?;
        let in_flight = core
            .misses_in_flight
            .ok_or_else(|| missing("core.misses_in_flight"))?;
        let window = core
            .reorder_window
            .ok_or_else(|| missing("core.reorder_window"))?;
        let (domain_of_core, node_of_domain) = domains(machine);
        let line_bytes = machine
            .caches
            .first()
            .map_or(64, |cache| u64::from(cache.line_bytes));
        let base = Self::of_equal_nodes(1, latency_ns, controller);
        let first = private(machine, 1, false)?;
        let config = Self {
            line_bytes,
            core_mhz: rounded(clock_ghz * 1000.0),
            picoseconds_per_instruction: rounded(instruction_ns * 1000.0),
            in_flight_per_core: in_flight as usize,
            reorder_window_instructions: u64::from(window),
            prefetch: base.prefetch.filter(|_| depth > 0).map(|own| Prefetch {
                depth_lines: u64::from(depth),
                ..own
            }),
            l1: Cache {
                hit_ns: 0.0,
                ..first.ok_or_else(|| missing("a first-level data cache"))?
            },
            l2: private(machine, 2, true)?,
            llc: last_level(machine)?,
            tlb: machine
                .tlb
                .as_ref()
                .map(|spec| tlb(machine, spec))
                .transpose()?,
            domain_of_core,
            node_of_domain,
            links: machine.links(),
            ..base
        };
        config
            .validate()
            .map_err(|error| refuse(error.to_string()))?;
        Ok(config)
    }
}

/// The domain of each core, and the node of each domain.
fn domains(machine: &Machine) -> (Vec<usize>, Vec<usize>) {
    let shape = &machine.shape;
    let nodes: Vec<usize> = (0..shape.nodes)
        .filter(|node| !shape.memory_only_nodes.contains(node))
        .flat_map(|node| (0..shape.domains_per_node).map(move |_| node as usize))
        .collect();
    let cores = (shape.cores_per_domain * shape.threads_per_core) as usize;
    let of_core = (0..nodes.len())
        .flat_map(|domain| (0..cores).map(move |_| domain))
        .collect();
    (of_core, nodes)
}

/// A cache that every core has for itself.
fn private(
    machine: &Machine,
    level: u8,
    needs_latency: bool,
) -> Result<Option<Cache>, NotModelled> {
    let spec = machine.caches.iter().find(|spec| {
        spec.level == level
            && spec.kind != CacheKind::Instruction
            && spec.shared_by == SharedBy::Core
            && level < last_data_level(machine)
    });
    spec.map(|spec| cache(machine, spec, needs_latency))
        .transpose()
}

/// The level of the last cache that holds data.
fn last_data_level(machine: &Machine) -> u8 {
    let data = machine
        .caches
        .iter()
        .filter(|spec| spec.kind != CacheKind::Instruction);
    data.map(|spec| spec.level).max().unwrap_or(0)
}

/// The cache that the cores of a domain share.
fn last_level(machine: &Machine) -> Result<Cache, NotModelled> {
    let shape = &machine.shape;
    let is_domains = |shared_by| match shared_by {
        SharedBy::Domain => true,
        SharedBy::Package => shape.nodes_per_package == 1 && shape.domains_per_node == 1,
        SharedBy::Core => shape.cores_per_domain == 1,
    };
    let last = machine
        .caches
        .iter()
        .rfind(|spec| spec.kind != CacheKind::Instruction);
    match last {
        Some(spec) if is_domains(spec.shared_by) => cache(machine, spec, true),
        _ => Err(NotModelled {
            machine: machine.name.clone(),
            reason:
                "its last cache is not shared by a memory domain, which the hardware model needs"
                    .to_owned(),
        }),
    }
}

fn cache(machine: &Machine, spec: &CacheSpec, needs_latency: bool) -> Result<Cache, NotModelled> {
    let hit_ns = match spec.latency_ns {
        Some(latency) => latency,
        None if !needs_latency => 0.0,
        None => {
            return Err(NotModelled {
                machine: machine.name.clone(),
                reason: format!(
                    "its file does not give the latency of the level-{} cache, which the hardware model needs",
                    spec.level
                ),
            });
        }
    };
    let bytes = spec.size_kib << 10;
    let lines = bytes / u64::from(spec.line_bytes).max(1);
    let ways = if spec.ways == 0 {
        lines as usize
    } else {
        spec.ways as usize
    };
    Ok(Cache {
        bytes,
        ways,
        hit_ns,
    })
}

fn tlb(machine: &Machine, spec: &TlbSpec) -> Result<Tlb, NotModelled> {
    let level = |entries: u32, ways: u32, hit_ns| TlbLevel {
        entries: entries as usize,
        ways: ways as usize,
        hit_ns,
    };
    let second = spec.l2.as_ref().map(|second| {
        let hit_ns = second.latency_ns.ok_or_else(|| NotModelled {
            machine: machine.name.clone(),
            reason: "its file does not give tlb.l2.latency_ns, which the hardware model needs"
                .to_owned(),
        })?;
        Ok(level(second.entries, second.ways, hit_ns))
    });
    Ok(Tlb {
        page_bytes: spec.page_kib << 10,
        managed_by: match spec.managed_by {
            Filled::Hardware => TlbManagement::Hardware,
            Filled::Software => TlbManagement::Software,
        },
        miss_ns: spec.miss_ns,
        l1: level(spec.l1.entries, spec.l1.ways, 0.0),
        l2: second.transpose()?,
    })
}

/// A positive figure of a machine file as a whole number; the file's check keeps it in range.
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
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
        let cases: [(Change, &str); 4] = [
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
