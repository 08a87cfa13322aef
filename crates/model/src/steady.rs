//! Threads that run on for ever as they are: one epoch, without the world around it.
//!
//! For questions about a placement and nothing else: what it costs, and which factor of contention
//! costs how much. The answers are those that [`crate::Model`] moves on by.

use numaherd_topology::{CpuId, NodeId};

use crate::hardware::Hardware;
use crate::program::Phase;
use crate::solve::{Factors, Running, Solution, Speed, solve};

/// A thread, where it runs and where its memory is.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// What it does.
    pub phase: &'a Phase,
    /// The CPU that it has to itself, unless others are placed on the same.
    pub cpu: CpuId,
    /// The node that all its lines come from.
    pub home: NodeId,
}

/// How each thread goes on, in their order, with that contention.
///
/// # Panics
/// For a CPU or node that the machine does not have.
pub fn steady(hardware: &Hardware, threads: &[Placed<'_>], factors: Factors) -> Vec<Speed> {
    let on = |cpu: CpuId| threads.iter().filter(move |placed| placed.cpu == cpu);
    let running: Vec<Running<'_>> = threads
        .iter()
        .map(|placed| {
            let wanted: f64 = on(placed.cpu).map(|other| other.phase.busy).sum();
            Running {
                phase: placed.phase,
                seat: hardware.seat(placed.cpu),
                cpu_share: placed.phase.busy / wanted.max(1.0),
                intensity: 1.0,
                memory: vec![(hardware.place(placed.home), 1.0)],
                transfers: Vec::new(),
                queue_ns: 0.0,
            }
        })
        .collect();
    let mut solution = Solution::default();
    solve(hardware, &running, factors, &mut solution);
    solution.speeds
}

/// How a thread goes on that is alone on the machine, its memory local: the papers' solo mode.
pub fn alone(hardware: &Hardware, phase: &Phase, cpu: CpuId) -> Speed {
    let node = hardware
        .topology()
        .node_of(cpu)
        .expect("a CPU of this machine");
    let placed = Placed {
        phase,
        cpu,
        home: node,
    };
    steady(hardware, &[placed], Factors::ALL)[0]
}

/// CPI of a thread alone with its memory on `home`, over its CPI with local memory: the NUMA penalty
/// (N-MASS, equation 1).
pub fn numa_penalty(hardware: &Hardware, phase: &Phase, cpu: CpuId, home: NodeId) -> f64 {
    let remote = Placed { phase, cpu, home };
    steady(hardware, &[remote], Factors::ALL)[0].ns / alone(hardware, phase, cpu).ns
}
