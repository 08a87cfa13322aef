//! Turns a machine file into the guest's shape and the plugin's model.
//!
//! Both come from the same figures, so the distances in the guest's firmware agree with the costs
//! of its memory accesses. What a machine file leaves out is not guessed: the error names the
//! missing key.
//!
//! CPUs are numbered node by node, domain by domain, core by core, with SMT siblings next to each
//! other. QEMU and the guest's kernel number them so, whatever numbers the file gives.

use numaherd_hardware::{Config, IpmConfig};
use numaherd_topology::Machine;
use serde_json::{Value, json};

use crate::command_line::Model;
use crate::error::{Error, Result};
use crate::files::find_plugin;
use crate::shape::{NodeShape, Shape};

/// The shape of the guest for a machine; `memory_mib`, if given, replaces the machine's memory per
/// node.
///
/// # Errors
/// [`Error::Shape`] if QEMU cannot build it.
pub fn shape(machine: &Machine, memory_mib: Option<u64>) -> Result<Shape> {
    let shape = &machine.shape;
    let cpus_per_domain = shape.cores_per_domain * shape.threads_per_core;
    let nodes = (0..shape.nodes as usize)
        .map(|node| NodeShape {
            cpus: shape.domains_per_node.of(node) * cpus_per_domain,
            memory_mib: match (shape.memory_per_node_mib.of(node), memory_mib) {
                (0, _) => 0,
                (own, other) => other.unwrap_or(own),
            },
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
    shape.check().map_err(|reason| refused(machine, reason))?;
    Ok(shape)
}

/// Checks that a machine's nodes together have no more memory than the host's `host_mib`.
///
/// # Errors
/// [`Error::Shape`] if they have more.
pub fn fits(machine: &Machine, shape: &Shape, host_mib: u64) -> Result<()> {
    let own = shape.memory_mib();
    if own <= host_mib {
        return Ok(());
    }
    let reason = format!(
        "its nodes have {own} MiB of memory together, and there are {host_mib} MiB here; lower \
         shape.memory_per_node_mib in its file"
    );
    Err(refused(machine, reason))
}

/// The memory of the host, in MiB.
#[must_use]
pub fn host_mib() -> u64 {
    let memory = rustix::system::sysinfo();
    (memory.totalram * u64::from(memory.mem_unit)) >> 20
}

/// The plugin's model of a machine: all that its file gives except the TLBs.
///
/// # Errors
/// [`Error::Hardware`] names what the machine file leaves out or the model cannot hold.
pub fn hardware(machine: &Machine) -> Result<Config> {
    Ok(Config {
        tlb: None,
        ..Config::of(machine).map_err(Error::Hardware)?
    })
}

fn refused(machine: &Machine, reason: impl ToString) -> Error {
    Error::Shape {
        machine: machine.name.clone(),
        reason: reason.to_string(),
    }
}

/// The model with the machine's TLBs and an IPM unit, as the plugin's configuration.
fn with_ipm(machine: &Machine, ipm: &IpmConfig) -> Result<Value> {
    let whole = Config::of(machine).map_err(Error::Hardware)?;
    if whole.tlb.is_none() {
        let missing = "its file does not give the table [tlb], which an IPM unit needs";
        return Err(refused(machine, missing));
    }
    ipm.validate().map_err(Error::Hardware)?;
    let mut configuration = json!(whole);
    configuration["ipm"] = json!(ipm);
    Ok(configuration)
}

/// The model of a machine: its [`hardware`], and the plugin that [`find_plugin`] finds. With `ipm`,
/// the TLBs and an IPM unit are modelled, too; without it, times are those of caches and memory
/// alone.
///
/// # Errors
/// As [`hardware`] and [`find_plugin`]; [`Error::Shape`] with `ipm` if the machine file gives no
/// TLBs.
pub fn model(machine: &Machine, ipm: Option<&IpmConfig>) -> Result<Model> {
    let hardware = hardware(machine)?;
    let last_level_bytes = hardware.llc.bytes as u64;
    let configuration = match ipm {
        Some(ipm) => with_ipm(machine, ipm)?,
        None => json!(hardware),
    };
    Ok(Model {
        plugin: find_plugin()?,
        last_level_bytes,
        configuration: configuration.to_string(),
        recording: None,
        kernel_accesses: false,
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
    fn a_machine_with_more_memory_than_the_host_is_refused() {
        let machine = preset("lab-uneven");
        let shape = shape(&machine, None).unwrap();
        assert!(fits(&machine, &shape, 2560).is_ok());
        let refused = fits(&machine, &shape, 2559).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the lab cannot build the machine lab-uneven: its nodes have 2560 MiB of memory together, and there are \
             2559 MiB here; lower shape.memory_per_node_mib in its file"
        );
        assert!(host_mib() > 0);
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
    fn an_ipm_unit_comes_with_the_machines_tlbs() {
        let ipm = IpmConfig::of_paper();
        let machine = preset("lab-4x2");
        let told = with_ipm(&machine, &ipm).expect("a machine with TLBs");
        assert_eq!(told["ipm"]["cr_shift"], json!(ipm.cr_shift));
        assert_eq!(told["tlb"]["page_bytes"], 4096);
        assert_eq!(hardware(&machine).expect("a machine").tlb, None);
        let none = Machine {
            tlb: None,
            ..machine
        };
        let message = with_ipm(&none, &ipm).expect_err("no TLBs").to_string();
        assert!(message.contains("[tlb]"), "{message}");
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
