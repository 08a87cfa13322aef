//! NUMA penalties of programs: from the profile or, if it has none, measured on the model.
//!
//! Definition (N-MASS §3.2, formula 1): cycles per instruction with all memory remote over those
//! with all of it local, alone on the machine. Remote is the nearest other node, local the node
//! where the program is fastest. Phases are weighted by their cycles.

use std::collections::BTreeMap;

use numaherd_model::{Hardware, Program, alone, numa_penalty};
use numaherd_topology::{CpuId, NodeId};

/// The penalty of each program, by name; empty if the machine has only one node with memory.
pub fn of<'a>(
    hardware: &Hardware,
    programs: impl IntoIterator<Item = &'a Program>,
) -> BTreeMap<String, f64> {
    let mut known = BTreeMap::new();
    for program in programs {
        if known.contains_key(&program.name) {
            continue;
        }
        let penalty = program.numa_penalty.or_else(|| measured(hardware, program));
        if let Some(penalty) = penalty {
            known.insert(program.name.clone(), penalty.max(1.0));
        }
    }
    known
}

/// Adds to the policies' settings the penalties that they do not give.
pub fn fill(settings: &mut numaherd_policy::Settings, known: BTreeMap<String, f64>) {
    for (program, penalty) in known {
        settings.penalty.programs.entry(program).or_insert(penalty);
    }
}

/// The penalty that the model gives for the profile.
fn measured(hardware: &Hardware, program: &Program) -> Option<f64> {
    let topology = hardware.topology();
    let takes = |cpu: CpuId| -> f64 {
        let phases = program.phases.iter();
        phases
            .map(|phase| phase.instructions * alone(hardware, phase, cpu).ns)
            .sum()
    };
    let memory = topology.memory_nodes();
    let firsts = memory.iter().filter_map(|node| {
        let cpu = topology.cpus().iter().find(|cpu| cpu.node == node)?;
        Some((cpu.id, node))
    });
    let (cpu, local) = firsts
        .map(|(cpu, node)| (takes(cpu), cpu, node))
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, cpu, node)| (cpu, node))?;
    let place = |node: NodeId| topology.node_index(node);
    let far = |node: NodeId| Some(hardware.figures.latency_ns(place(local)?, place(node)?));
    let home = memory
        .iter()
        .filter(|&node| node != local)
        .min_by(|&a, &b| {
            let far = |node| far(node).unwrap_or(f64::INFINITY);
            far(a).total_cmp(&far(b))
        })?;
    let remote: f64 = program
        .phases
        .iter()
        .map(|phase| {
            let local = phase.instructions * alone(hardware, phase, cpu).ns;
            local * numa_penalty(hardware, phase, cpu, home)
        })
        .sum();
    Some(remote / takes(cpu))
}

#[cfg(test)]
mod tests {
    use numaherd_model::Library;
    use numaherd_topology::Machine;

    use super::*;

    fn hardware(machine: &str) -> Hardware {
        Hardware::of(&Machine::preset(machine).unwrap()).unwrap()
    }

    fn penalty(machine: &str, name: &str) -> Option<f64> {
        let program = Library::built_in().get(name).unwrap();
        of(&hardware(machine), [&**program]).get(name).copied()
    }

    #[test]
    fn who_goes_to_memory_has_a_penalty_and_who_does_not_has_none() {
        let mcf = penalty("xeon-e5520-2s", "mcf").unwrap();
        let povray = penalty("xeon-e5520-2s", "povray").unwrap();
        assert!(mcf > 1.1, "{mcf}");
        assert!((1.0..1.01).contains(&povray), "{povray}");
    }

    #[test]
    fn one_node_has_no_far_memory() {
        let mut machine = Machine::preset("xeon-e5520-2s").unwrap();
        machine.shape.nodes = 1;
        machine.memory.latency_ns = Some(vec![vec![50.0]]);
        let program = Library::built_in().get("mcf").unwrap();
        assert!(of(&Hardware::of(&machine).unwrap(), [&**program]).is_empty());
    }

    #[test]
    fn what_is_said_goes_before_what_is_measured() {
        let mut settings = numaherd_policy::Settings::default();
        settings.penalty.programs.insert("mcf".to_owned(), 1.5);
        let known = [("mcf".to_owned(), 1.2), ("lbm".to_owned(), 1.3)];
        fill(&mut settings, known.into_iter().collect());
        assert_eq!(settings.penalty.programs["mcf"], 1.5);
        assert_eq!(settings.penalty.programs["lbm"], 1.3);
    }
}
