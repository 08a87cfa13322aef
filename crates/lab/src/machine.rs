//! From a machine file to what the guest looks like and to what the plugin models.
//!
//! Both come from the same figures, so that what the guest's firmware says of distances is what
//! its memory accesses cost. What a machine file leaves out is not guessed: the lab refuses and
//! names the key.
//!
//! CPUs are numbered node by node, domain by domain, core by core; SMT siblings follow each other,
//! because that is how QEMU and the guest's kernel number them. The model takes every CPU for a
//! core of its own.

use numaherd_hardware::{Cache, Config, Prefetch};
use numaherd_topology::{CacheKind, Machine, SharedBy};

use crate::command_line::{Model, Time};
use crate::error::{Error, Result};
use crate::files::find_plugin;
use crate::shape::{NodeShape, Shape};

/// What the guest for a machine looks like; `memory_mib`, when given, replaces the machine's
/// memory per node.
///
/// # Errors
/// [`Error::Shape`] where QEMU cannot build it.
pub fn shape(machine: &Machine, memory_mib: Option<u64>) -> Result<Shape> {
    let refuse = |reason| Error::Shape {
        machine: machine.name.clone(),
        reason,
    };
    let shape = &machine.shape;
    let cpus_per_node = shape.domains_per_node * shape.cores_per_domain * shape.threads_per_core;
    let nodes = (0..shape.nodes)
        .map(|node| NodeShape {
            cpus: if shape.memory_only_nodes.contains(&node) {
                0
            } else {
                cpus_per_node
            },
            memory_mib: memory_mib.unwrap_or(shape.memory_per_node_mib),
        })
        .collect();
    let distances = match &machine.memory.distance {
        Some(rows) => rows
            .iter()
            .map(|row| {
                row.iter()
                    .map(|&value| u8::try_from(value).unwrap_or(u8::MAX))
                    .collect()
            })
            .collect(),
        None => Shape::uniform(shape.nodes as usize, 1, 0).distances,
    };
    let shape = Shape {
        nodes,
        threads_per_core: shape.threads_per_core,
        cores_per_socket: shape.cores_per_domain,
        distances,
    };
    shape.check().map_err(refuse)?;
    Ok(shape)
}

/// What the plugin models for a machine.
///
/// # Errors
/// [`Error::Shape`] names what the machine file leaves out or the model cannot hold.
pub fn hardware(machine: &Machine) -> Result<Config> {
    let refuse = |reason: String| Error::Shape {
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

    let domains = domains(machine);
    let line_bytes = machine
        .caches
        .first()
        .map_or(64, |cache| u64::from(cache.line_bytes));
    let links = machine.links();
    let base = Config::of_equal_nodes(1, latency_ns, controller);
    let config = Config {
        line_bytes,
        core_mhz: rounded(clock_ghz * 1000.0),
        picoseconds_per_instruction: rounded(instruction_ns * 1000.0),
        in_flight_per_core: in_flight as usize,
        reorder_window_instructions: u64::from(window),
        // Machine files give the prefetcher's depth alone; the rest is the model's own.
        prefetch: base.prefetch.filter(|_| depth > 0).map(|own| Prefetch {
            depth_lines: u64::from(depth),
            ..own
        }),
        l1: Cache {
            hit_ns: 0.0,
            ..cache(machine, 1, false)?.ok_or_else(|| missing("a first-level data cache"))?
        },
        l2: cache(machine, 2, true)?,
        llc: last_level(machine)?,
        domain_of_core: domains.of_cpu,
        node_of_domain: domains.nodes,
        links,
        ..base
    };
    config
        .validate()
        .map_err(|error| refuse(error.to_string()))?;
    Ok(config)
}

/// The model of a machine: its [`hardware`], the plugin that [`find_plugin`] finds, modelled time.
///
/// # Errors
/// As [`hardware`] and [`find_plugin`].
pub fn model(machine: &Machine) -> Result<Model> {
    let configuration =
        serde_json::to_string(&hardware(machine)?).map_err(|error| Error::Shape {
            machine: machine.name.clone(),
            reason: error.to_string(),
        })?;
    Ok(Model {
        plugin: find_plugin()?,
        configuration,
        time: Time::Modelled,
        arguments: Vec::new(),
    })
}

struct Domains {
    of_cpu: Vec<usize>,
    nodes: Vec<usize>,
}

fn domains(machine: &Machine) -> Domains {
    let shape = &machine.shape;
    let nodes: Vec<usize> = (0..shape.nodes)
        .filter(|node| !shape.memory_only_nodes.contains(node))
        .flat_map(|node| (0..shape.domains_per_node).map(move |_| node as usize))
        .collect();
    let cpus = (shape.cores_per_domain * shape.threads_per_core) as usize;
    let of_cpu = (0..nodes.len())
        .flat_map(|domain| (0..cpus).map(move |_| domain))
        .collect();
    Domains { of_cpu, nodes }
}

/// A cache that every core has for itself, as the model wants it.
fn cache(machine: &Machine, level: u8, needs_latency: bool) -> Result<Option<Cache>> {
    let spec = machine.caches.iter().find(|spec| {
        spec.level == level
            && spec.kind != CacheKind::Instruction
            && spec.shared_by == SharedBy::Core
    });
    spec.map(|spec| modelled(machine, spec, needs_latency))
        .transpose()
}

/// The cache that the cores of a domain share.
fn last_level(machine: &Machine) -> Result<Cache> {
    let last = machine
        .caches
        .iter()
        .rfind(|spec| spec.kind != CacheKind::Instruction);
    match last {
        Some(spec) if spec.shared_by == SharedBy::Domain => modelled(machine, spec, true),
        Some(spec)
            if spec.shared_by == SharedBy::Package && machine.shape.nodes_per_package == 1 =>
        {
            modelled(machine, spec, true)
        }
        _ => Err(Error::Shape {
            machine: machine.name.clone(),
            reason:
                "its last cache is not shared by a memory domain, which the hardware model needs"
                    .to_owned(),
        }),
    }
}

fn modelled(
    machine: &Machine,
    spec: &numaherd_topology::machine::CacheSpec,
    needs_latency: bool,
) -> Result<Cache> {
    let hit_ns = match spec.latency_ns {
        Some(latency) => latency,
        None if !needs_latency => 0.0,
        None => {
            return Err(Error::Shape {
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

/// A positive figure of a machine file as a whole number; the file's check keeps it in range.
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> Machine {
        Machine::preset(name).expect("a preset of the lab")
    }

    #[test]
    fn every_lab_preset_can_be_booted_and_modelled() {
        for name in Machine::presets().filter(|name| name.starts_with("lab-")) {
            let machine = preset(name);
            let shape = shape(&machine, None).unwrap_or_else(|error| panic!("{name}: {error}"));
            let config = hardware(&machine).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(config.cores(), shape.cpus() as usize, "{name}");
            assert_eq!(config.nodes(), shape.nodes.len(), "{name}");
        }
    }

    #[test]
    fn what_the_file_leaves_out_is_named() {
        let mut machine = preset("lab-4x2");
        machine.core.clock_ghz = None;
        let message = hardware(&machine).expect_err("no clock").to_string();
        assert!(message.contains("core.clock_ghz"), "{message}");
        let mut machine = preset("lab-4x2");
        for cache in &mut machine.caches {
            cache.latency_ns = None;
        }
        let message = hardware(&machine).expect_err("no latency").to_string();
        assert!(
            message.contains("latency of the level-3 cache"),
            "{message}"
        );
    }

    #[test]
    fn memory_can_be_set_apart_from_the_machine_file() {
        let shape = shape(&preset("lab-4x2"), Some(256)).expect("a shape");
        assert!(
            shape
                .nodes
                .iter()
                .all(|node| node.memory_mib == 256 && node.cpus == 2)
        );
        assert_eq!(shape.distances[0], [10, 20, 20, 30]);
    }
}
