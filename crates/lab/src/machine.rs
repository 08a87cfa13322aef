//! From a machine file to what the guest looks like and to what the plugin models.
//!
//! Both come from the same figures, so that what the guest's firmware says of distances is what
//! its memory accesses cost. What a machine file leaves out is not guessed: the lab refuses and
//! names the key.
//!
//! CPUs are numbered node by node, domain by domain, core by core; SMT siblings follow each other,
//! because that is how QEMU and the guest's kernel number them. The model takes every CPU for a
//! core of its own.

use numaherd_hardware::Config;
use numaherd_topology::Machine;

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

/// What the plugin models for a machine: all that its file gives but the TLBs.
///
/// # Errors
/// [`Error::Shape`] names what the machine file leaves out or the model cannot hold.
pub fn hardware(machine: &Machine) -> Result<Config> {
    let whole = Config::of(machine).map_err(|error| Error::Shape {
        machine: error.machine,
        reason: error.reason,
    })?;
    Ok(Config { tlb: None, ..whole })
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
        recording: None,
    })
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
