//! The figures that the model needs of the recorded machine: latencies and bandwidths, which no kernel reports and a
//! ledger rarely holds.

use anyhow::Result;
use numaherd_model::Hardware;
use numaherd_topology::{CpuId, DomainId, Machine, NodeId, Topology};

use crate::exit::ended;

/// Whether there are figures.
pub enum Figures {
    /// Those of this machine.
    Known(Box<Hardware>),
    /// There are none, and why: the rest of a sentence.
    Unknown(String),
}

/// The figures of the machine that a ledger was recorded on: those that are named, or else those of the
/// preset that the ledger's machine is.
///
/// # Errors
/// The named machine is unknown, cannot be modelled or is not laid out as the recorded one.
pub fn of(named: Option<&str>, recorded: &Topology) -> Result<Figures> {
    let Some(name) = named else {
        return Ok(preset(recorded));
    };
    let wrong = |error: &dyn std::fmt::Display| ended!(Usage, "--machine: {error}");
    let machine = Machine::find(name).map_err(|error| wrong(&error))?;
    let hardware = Hardware::of(&machine).map_err(|error| wrong(&error))?;
    if layout(hardware.topology()) != layout(recorded) {
        return Err(wrong(&format!(
            "{name} is not laid out as the recorded machine: its CPUs are not on the same nodes and memory \
             domains; compare `numaherd topology {name}` with the machine's own"
        )));
    }
    Ok(Figures::Known(Box::new(hardware)))
}

fn preset(recorded: &Topology) -> Figures {
    let unknown = |why: &str| {
        Figures::Unknown(format!(
            "{why}; --machine names a preset or a file with the machine's latencies and bandwidths \
             (docs/model.md)"
        ))
    };
    let name = recorded.name();
    let Some(machine) = Machine::presets()
        .find(|&preset| preset == name)
        .and_then(|preset| Machine::preset(preset).ok())
    else {
        return unknown("the recorded machine's latencies and bandwidths are not known");
    };
    match Hardware::of(&machine) {
        Ok(hardware) if layout(hardware.topology()) == layout(recorded) => {
            Figures::Known(Box::new(hardware))
        }
        Ok(_) => unknown("the recorded machine has a preset's name and another layout"),
        Err(error) => unknown(&error.to_string()),
    }
}

/// What model and recording must have in common: which CPU is where.
fn layout(topology: &Topology) -> Vec<(CpuId, DomainId, NodeId)> {
    let cpus = topology.cpus().iter();
    cpus.map(|cpu| (cpu.id, cpu.domain, cpu.node)).collect()
}
