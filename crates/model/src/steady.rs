//! Threads in a steady state: one epoch that lasts for ever, without the world around it.
//!
//! For questions about a placement and nothing else: what it costs, and which factor of contention costs how much.
//! [`crate::Model`] advances by the same speeds.

use numaherd_contention::{Factors, Running, Speed, speeds};
use numaherd_topology::{CpuId, NodeId};

use crate::hardware::Hardware;
use crate::program::Phase;

/// A thread, where it runs and where its memory is.
#[derive(Clone, Debug)]
pub struct Placed<'a> {
    /// The phase that it runs.
    pub phase: &'a Phase,
    /// The CPU that it has to itself, unless others are placed on the same.
    pub cpu: CpuId,
    /// The node that all its lines come from.
    pub home: NodeId,
}

/// A thread whose memory is on several nodes, with the share of a CPU that it gets.
#[derive(Clone, Debug)]
pub struct Spread<'a> {
    /// The phase that it runs.
    pub phase: &'a Phase,
    /// A CPU of the memory domain that it runs in.
    pub cpu: CpuId,
    /// Share of the time that it has a CPU, 0 to 1: the caller knows which threads share CPUs.
    pub cpu_share: f64,
    /// Nodes and the share of its lines that each answers; the shares add up to 1.
    pub memory: &'a [(NodeId, f64)],
}

/// The speed of each thread, in the order of `threads`, with these factors of contention.
///
/// # Panics
/// For a CPU or node that the machine does not have.
pub fn steady(hardware: &Hardware, threads: &[Placed<'_>], factors: Factors) -> Vec<Speed> {
    let on = |cpu: CpuId| threads.iter().filter(move |placed| placed.cpu == cpu);
    let homes: Vec<[(NodeId, f64); 1]> = threads.iter().map(|t| [(t.home, 1.0)]).collect();
    let spread: Vec<Spread<'_>> = threads
        .iter()
        .zip(&homes)
        .map(|(placed, home)| {
            let wanted: f64 = on(placed.cpu).map(|other| other.phase.busy).sum();
            Spread {
                phase: placed.phase,
                cpu: placed.cpu,
                cpu_share: placed.phase.busy / wanted.max(1.0),
                memory: home,
            }
        })
        .collect();
    steady_spread(hardware, &spread, factors)
}

/// The same for threads whose lines come from several nodes each.
///
/// # Panics
/// For a CPU or node that the machine does not have.
pub fn steady_spread(hardware: &Hardware, threads: &[Spread<'_>], factors: Factors) -> Vec<Speed> {
    let memory = |spread: &Spread<'_>| -> Vec<(usize, f64)> {
        let shares = spread.memory.iter();
        shares
            .map(|&(node, share)| (hardware.place(node), share))
            .collect()
    };
    let running: Vec<Running<'_>> = threads
        .iter()
        .map(|spread| {
            let seat = hardware.seat(spread.cpu);
            Running {
                lane: Some(hardware.lane(spread.cpu)),
                ..Running::new(
                    spread.phase.demands(),
                    seat,
                    spread.cpu_share,
                    memory(spread),
                )
            }
        })
        .collect();
    speeds(&hardware.figures, &running, factors)
}

/// The speed of a thread that is alone on the machine, with its memory local: the papers' solo mode.
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
