//! Where Xen's credit scheduler runs vCPUs: its rules that pick a CPU, for vCPUs that do not outnumber the CPUs.
//!
//! Behaviour of Xen 4.0 (its wiki's "Credit Scheduler"; the rules of idle neighbours are those of its sources):
//!
//! 1. *Start.* A virtual machine's vCPUs are dealt to the CPUs in turn, and its kernel, to which all are alike,
//!    chooses on which of them a thread runs. So a thread starts on any idle CPU.
//! 2. *Tick.* Every 10 ms a running vCPU goes to an idle CPU with idler neighbours: in its own socket, one whose core
//!    has more idle CPUs; in another socket, if that has more than twice as many idle CPUs. Its own CPU counts as idle.
//!    Memory nodes play no part.
//! 3. *Steal.* An idle CPU takes a vCPU that waits for another CPU, whichever it is.
//! 4. *Boost.* A vCPU that wakes up on a busy CPU goes first. The one that ran there waits, and so an idle CPU steals
//!    it.
//!
//! Xen takes the next CPU in turn, or that of whichever idle CPU is first to look; here chance decides between CPUs that
//! are as good. Left out is what decides only where vCPUs outnumber CPUs for long: credits by weight every 30 ms, and
//! slices of 30 ms. There, vCPUs on one CPU have equal shares.

use numaherd_topology::{Cpu, CpuId, CpuSet, Topology};
use rand::Rng;
use rand::seq::IndexedRandom;

use super::{Loads, ROUNDING, least};

/// Time in ns between two looks at a running vCPU.
pub(crate) const TICK_NS: f64 = 10e6;
/// Another socket must have more than this many times as many idle CPUs.
const OTHER_SOCKET: usize = 2;

impl Loads {
    /// An idle CPU of `allowed`, or one of the least loaded where none is idle; of the whole machine where `allowed` is
    /// offline.
    pub(crate) fn any_idle(&self, allowed: &CpuSet, random: &mut impl Rng) -> CpuId {
        let cpus = allowed.intersection(&self.online);
        let cpus = if cpus.is_empty() { &self.online } else { &cpus };
        let least = least(cpus.iter().map(|cpu| self.of(cpu)));
        let tied = cpus.iter().filter(|&cpu| self.of(cpu) <= least + ROUNDING);
        let tied: Vec<CpuId> = tied.collect();
        *tied.choose(random).expect("a set that is not empty")
    }

    /// The idle CPU that steals a vCPU which lost its own; `None` if none is idle.
    pub(crate) fn stolen_by(&self, allowed: &CpuSet, random: &mut impl Rng) -> Option<CpuId> {
        let cpu = self.any_idle(allowed, random);
        self.is_idle(cpu).then_some(cpu)
    }

    /// Whether a vCPU of that load on `cpu` has to wait for another there.
    pub(crate) fn waits(&self, cpu: CpuId, load: f64) -> bool {
        self.of(cpu) - load > ROUNDING
    }

    /// Where a vCPU that runs on `from` goes at a tick; `None` if it stays.
    pub(crate) fn idler_neighbours(
        &self,
        topology: &Topology,
        from: CpuId,
        allowed: &CpuSet,
        random: &mut impl Rng,
    ) -> Option<CpuId> {
        let own = topology.cpu(from)?;
        let idle: Vec<&Cpu> = topology
            .cpus()
            .iter()
            .filter(|cpu| cpu.online && (cpu.id == from || self.is_idle(cpu.id)))
            .collect();
        let socket = |of: &Cpu| idle.iter().filter(|cpu| cpu.package == of.package).count();
        let core = |of: &Cpu| idle.iter().filter(|cpu| cpu.core == of.core).count();
        // Sockets count before cores; of the vCPU's own socket only cores do.
        let rank = |cpu: &Cpu| {
            let (is_better, of_socket) = if cpu.package == own.package {
                (core(cpu) > core(own), 0)
            } else {
                let there = socket(cpu);
                (there > OTHER_SOCKET * socket(own), there)
            };
            is_better.then(|| (of_socket, core(cpu)))
        };
        let free = idle.iter().filter(|cpu| allowed.contains(cpu.id));
        let ranked: Vec<((usize, usize), CpuId)> =
            free.filter_map(|cpu| Some((rank(cpu)?, cpu.id))).collect();
        let best = ranked.iter().map(|one| one.0).max()?;
        let tied: Vec<CpuId> = ranked
            .into_iter()
            .filter_map(|(rank, cpu)| (rank == best).then_some(cpu))
            .collect();
        tied.choose(random).copied()
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.of(cpu) <= ROUNDING
    }
}

#[cfg(test)]
mod tests;
