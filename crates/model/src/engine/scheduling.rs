//! What the modelled kernel does with threads that nobody has placed: where they start, when it moves them, and where
//! they wake up. The rules of both schedulers are in [`crate::kernel`].

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::ThreadId;
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::{Engine, SECOND_NS, Thread};
use crate::kernel::credit::TICK_NS;
use crate::kernel::{Loads, Scheduler};

impl Engine {
    /// The CPU for a thread that starts, or that loses its CPU.
    pub(super) fn new_place(&mut self, loads: &Loads, allowed: &CpuSet) -> CpuId {
        match self.options.scheduler {
            Scheduler::Linux => loads.idlest(allowed, &mut self.random),
            Scheduler::XenCredit => loads.any_idle(allowed, &mut self.random),
        }
    }

    /// Lets the kernel move threads that it finds badly balanced; returns the loads afterwards.
    pub(super) fn balance(&mut self) -> Loads {
        let mut loads = self.loads();
        if !loads.is_lopsided() {
            return loads;
        }
        self.each_moves(&mut loads, |engine, loads, id| {
            let thread = &engine.threads[&id];
            let (cpu, load) = (thread.cpu, engine.phase(thread).busy);
            let random = &mut engine.random;
            match engine.options.scheduler {
                Scheduler::Linux => loads.pulls(cpu, load, &thread.affinity, random),
                Scheduler::XenCredit if loads.waits(cpu, load) => {
                    loads.stolen_by(&thread.affinity, random)
                }
                Scheduler::XenCredit => None,
            }
        });
        loads
    }

    /// Draws when the next thread wakes up elsewhere.
    pub(super) fn plan_wandering(&mut self) {
        if self.options.wakes_elsewhere_s > 0.0 {
            let cpus = self.all_cpus.len() as f64;
            let mean_ns = self.options.wakes_elsewhere_s * SECOND_NS / cpus;
            let drawn: f64 = self.random.random();
            self.next_wander_ns = self.now_ns - (1.0 - drawn).ln() * mean_ns;
        }
    }

    /// Wakes a thread up on another CPU, or under Xen a vCPU outside the model, when that is due.
    pub(super) fn wander(&mut self) {
        if self.now_ns < self.next_wander_ns {
            return;
        }
        self.plan_wandering();
        let a = drawn(&mut self.random, &self.all_cpus);
        match self.options.scheduler {
            Scheduler::Linux => self.wake_elsewhere(a),
            Scheduler::XenCredit => self.wake_another(a),
        }
    }

    /// Swaps the thread on CPU `a` with that on a CPU drawn from all. Both must be threads that sleep now and then,
    /// that nobody has placed, and that may run on each other's CPU.
    fn wake_elsewhere(&mut self, a: CpuId) {
        let b = drawn(&mut self.random, &self.all_cpus);
        let sleeps = |thread: &Thread| self.phase(thread).busy < 1.0;
        let wanders = |cpu: CpuId, to: CpuId| {
            self.free_on(cpu, |thread| sleeps(thread) && thread.affinity.contains(to))
        };
        let (Some(from_a), Some(from_b)) = (wanders(a, b), wanders(b, a)) else {
            return;
        };
        self.move_thread(from_a, b);
        self.move_thread(from_b, a);
    }

    /// A vCPU outside the model wakes up on `cpu` and goes first; an idle CPU steals the thread that ran there.
    fn wake_another(&mut self, cpu: CpuId) {
        let Some(id) = self.free_on(cpu, |_| true) else {
            return;
        };
        let loads = self.loads();
        let allowed = self.threads[&id].affinity.clone();
        if let Some(to) = loads.stolen_by(&allowed, &mut self.random) {
            self.move_thread(id, to);
        }
    }

    /// A thread on that CPU that nobody has placed and that `may` accepts.
    fn free_on(&self, cpu: CpuId, may: impl Fn(&Thread) -> bool) -> Option<ThreadId> {
        let mut there = self.threads.values().filter(|thread| thread.cpu == cpu);
        let thread = there.find(|thread| thread.assigned.is_none() && may(thread))?;
        Some(thread.id)
    }

    /// After a change, Xen looks at running vCPUs at the next tick; without a change it would find what it found
    /// before.
    pub(super) fn plan_tick(&mut self) {
        if self.options.scheduler == Scheduler::XenCredit && self.next_tick_ns.is_infinite() {
            self.next_tick_ns = ((self.now_ns / TICK_NS).floor() + 1.0) * TICK_NS;
        }
    }

    /// Lets Xen look at running vCPUs.
    pub(super) fn tick(&mut self) {
        if self.now_ns < self.next_tick_ns {
            return;
        }
        self.next_tick_ns = f64::INFINITY;
        let mut loads = self.loads();
        self.each_moves(&mut loads, |engine, loads, id| {
            let thread = &engine.threads[&id];
            if thread.assigned.is_some() {
                return None;
            }
            let topology = engine.hardware.topology();
            let allowed = &thread.affinity;
            loads.idler_neighbours(topology, thread.cpu, allowed, &mut engine.random)
        });
    }

    /// Asks `to` for each thread in turn where it goes, and moves it there.
    fn each_moves(
        &mut self,
        loads: &mut Loads,
        to: impl Fn(&mut Self, &Loads, ThreadId) -> Option<CpuId>,
    ) {
        let ids: Vec<ThreadId> = self.threads.keys().copied().collect();
        for id in ids {
            if let Some(to) = to(self, loads, id) {
                let thread = &self.threads[&id];
                let (from, load) = (thread.cpu, self.phase(thread).busy);
                loads.add(from, -load);
                loads.add(to, load);
                self.move_thread(id, to);
            }
        }
    }
}

fn drawn(random: &mut Xoshiro256PlusPlus, cpus: &CpuSet) -> CpuId {
    let at = random.random_range(0..cpus.len());
    cpus.iter().nth(at).expect("one of the CPUs")
}
