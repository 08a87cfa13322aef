//! How fast every thread runs: the kernel's balancing, gangs, and the solver's input.

use std::collections::BTreeMap;

use numaherd_contention::{Factors, Running, solve, speeds};
use numaherd_topology::CpuId;
use numaherd_world::ThreadId;

use super::{Engine, Thread};
use crate::kernel::Loads;
use crate::steady::alone;

/// The most rounds in which the waiting within gangs is found.
const GANG_ROUNDS: usize = 8;
/// The rounds end once no share of waiting changes by this much.
const GANG_SETTLED: f64 = 1e-3;

impl Engine {
    /// Balances, and finds the speeds anew if anything changed.
    pub(super) fn settle(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        let loads = self.balance();
        self.plan_tick();
        let gangs = self.gangs();
        let mut idle: Vec<f64> = self.threads.values().map(|thread| thread.idle).collect();
        // A thread that waits for its gang asks for no lines. A few rounds find the shares of waiting, from those found
        // last.
        let rounds = if gangs.is_empty() { 1 } else { GANG_ROUNDS };
        for _ in 0..rounds {
            let mut solution = std::mem::take(&mut self.solution);
            let mut running = self.running(&loads, &idle, |thread| thread.cpu);
            for (thread, running) in self.threads.values().zip(&mut running) {
                if let Some(copier) = self.copier(thread, running.cpu_share) {
                    *running = copier;
                }
            }
            solve(
                &self.hardware.figures,
                &running,
                Factors::ALL,
                &mut solution,
            );
            // A thread that waits for its gang keeps its CPU.
            let shares: Vec<(f64, bool)> = self
                .threads
                .values()
                .map(|thread| {
                    let phase = self.phase(thread);
                    let share = loads.share(thread.cpu, phase.busy);
                    (share, phase.shared_writes.is_none())
                })
                .collect();
            self.solution = solution;
            let found = self.solution.speeds.iter().zip(shares);
            for (thread, (&speed, (share, uses_cache))) in self.threads.values_mut().zip(found) {
                thread.share = share;
                if !thread.copies.is_empty() {
                    thread.copied = share / speed.ns;
                    thread.pace = 0.0;
                    continue;
                }
                thread.speed = speed;
                if uses_cache {
                    thread.held_bytes = speed.held_bytes;
                }
                thread.pace = 1000.0 / speed.ns * share;
            }
            let mut threads: Vec<&mut Thread> = self.threads.values_mut().collect();
            let mut change = 0.0_f64;
            for gang in &gangs {
                // The slowest sets the pace; a faster one waits busily and asks for no lines.
                let paces = gang.iter().map(|&at| threads[at].pace);
                let slowest = paces.fold(f64::INFINITY, f64::min);
                for &at in gang {
                    if !threads[at].copies.is_empty() {
                        continue;
                    }
                    let waits = 1.0 - slowest / threads[at].pace;
                    change = change.max((waits - idle[at]).abs());
                    idle[at] = waits;
                    threads[at].idle = waits;
                    threads[at].pace = slowest;
                }
            }
            if change < GANG_SETTLED {
                break;
            }
        }
    }

    /// The threads as input of the solver, in the order of `threads`, each on the CPU that `cpu` gives; `idle` is the
    /// share of its time that each waits for its gang.
    fn running(
        &self,
        loads: &Loads,
        idle: &[f64],
        cpu: impl Fn(&Thread) -> CpuId,
    ) -> Vec<Running<'_>> {
        let threads = self.threads.values().zip(idle);
        threads
            .map(|(thread, idle)| {
                let phase = self.phase(thread);
                let (transfers, queue_ns) = self.transfers(thread, loads, &cpu);
                let cpu = cpu(thread);
                let share = loads.share(cpu, phase.busy) * (1.0 - idle);
                let seat = self.hardware.seat(cpu);
                Running {
                    intensity: thread.intensity,
                    lane: Some(self.hardware.lane(cpu)),
                    transfers,
                    queue_ns,
                    ..Running::new(phase.demands(), seat, share, &*thread.memory)
                }
            })
            .collect()
    }

    /// Mean slowdown in a layout; `memory` replaces the nodes that the lines of some threads come from.
    pub(super) fn slowdown_with(
        &self,
        layout: &[(ThreadId, CpuId)],
        memory: &BTreeMap<ThreadId, Vec<(usize, f64)>>,
    ) -> Option<f64> {
        let topology = self.hardware.topology();
        let mut to: BTreeMap<ThreadId, CpuId> = self
            .threads
            .iter()
            .map(|(&id, thread)| (id, thread.cpu))
            .collect();
        for &(thread, cpu) in layout {
            topology.cpu(cpu)?;
            *to.get_mut(&thread)? = cpu;
        }
        let mut loads = Loads::new(topology);
        for (id, &cpu) in &to {
            loads.add(cpu, self.phase(&self.threads[id]).busy);
        }
        let idle = vec![0.0; self.threads.len()];
        let mut running = self.running(&loads, &idle, |thread| to[&thread.id]);
        for (id, running) in self.threads.keys().zip(&mut running) {
            if let Some(memory) = memory.get(id) {
                running.memory = memory.into();
            }
        }
        let speeds = speeds(&self.hardware.figures, &running, Factors::ALL);
        let slowdowns = self.threads.values().zip(&running).zip(speeds);
        let sum: f64 = slowdowns
            .map(|((thread, running), speed)| {
                let phase = self.phase(thread);
                let solo = alone(&self.hardware, phase, thread.cpu).ns;
                speed.ns / solo * phase.busy / running.cpu_share
            })
            .sum();
        (!self.threads.is_empty()).then(|| sum / self.threads.len() as f64)
    }

    /// See [`crate::CostModel::least_slowdown`].
    pub(crate) fn least_slowdown(&self) -> Option<f64> {
        self.least_with(|thread| vec![thread.memory.clone()])
    }

    /// The same, with each thread's memory at the best of the places that `memories` gives.
    pub(super) fn least_with(
        &self,
        memories: impl Fn(&Thread) -> Vec<Vec<(usize, f64)>>,
    ) -> Option<f64> {
        let domains = self.hardware.topology().domains().iter();
        let seats: Vec<CpuId> = domains.filter_map(|d| d.cpus.iter().next()).collect();
        let best = |thread: &Thread| {
            let phase = self.phase(thread);
            let at = |(cpu, memory): (CpuId, Vec<(usize, f64)>)| {
                let seat = self.hardware.seat(cpu);
                let alone = Running {
                    intensity: thread.intensity,
                    ..Running::new(phase.demands(), seat, phase.busy, memory)
                };
                speeds(&self.hardware.figures, &[alone], Factors::NONE)[0].ns
            };
            let memories = memories(thread);
            let pairs = seats
                .iter()
                .flat_map(|&cpu| memories.iter().map(move |m| (cpu, m.clone())));
            let fastest = pairs.map(at).fold(f64::INFINITY, f64::min);
            fastest / alone(&self.hardware, phase, thread.cpu).ns
        };
        let sum: f64 = self.threads.values().map(best).sum();
        (!self.threads.is_empty()).then(|| sum / self.threads.len() as f64)
    }

    /// Threads of each gang, as places in the order of `threads`.
    fn gangs(&self) -> Vec<Vec<usize>> {
        let mut gangs: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, thread) in self.threads.values().enumerate() {
            if let Some(gang) = self.jobs[thread.job].gang {
                gangs.entry(gang).or_default().push(at);
            }
        }
        gangs.into_values().filter(|gang| gang.len() > 1).collect()
    }
}
