//! Pools: the threads that may be placed, by the CPUs that they are allowed.
//!
//! Problem: the papers place any thread on any core, but a thread's cpuset may forbid some, and the governor
//! refuses a plan for a forbidden core. Rule: threads with the same allowed CPUs (the online CPUs of their
//! cpuset) form a pool, and every pool is placed on its own CPUs as if it were alone on the machine, the pool
//! with the fewest CPUs first; CPUs that earlier pools and unmanaged threads hold are *taken* in later pools.
//! So containers with CPUs of their own are placed exactly as the paper describes, and if cpusets overlap, the
//! wider pool avoids the narrower one. Without cpusets there is one pool.
//!
//! Properties: every managed thread that has an allowed online CPU is in one pool; no other is.

use std::collections::HashMap;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::Snapshot;

use crate::classes::Class;

/// Threads with the same allowed CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// CPUs that are allowed and online.
    pub cpus: CpuSet,
    /// Places of the threads in [`Snapshot::threads`], ascending.
    pub threads: Vec<usize>,
    /// Those of them that are busy ([`crate::busy`]).
    pub busy: Vec<usize>,
}

/// The pools of a snapshot, the one with the fewest CPUs first. No thread is busy yet.
pub fn pools(snapshot: &Snapshot, topology: &Topology) -> Vec<Pool> {
    let known: CpuSet = topology.cpus().iter().map(|cpu| cpu.id).collect();
    let online = snapshot.online.intersection(&known);
    // Threads of one cgroup share one set, so that most are found by its address alone.
    let mut by_address: HashMap<*const CpuSet, usize> = HashMap::new();
    let mut by_cpus: HashMap<CpuSet, usize> = HashMap::new();
    let mut pools: Vec<Pool> = Vec::new();
    for (index, thread) in snapshot.threads.iter().enumerate() {
        if thread.unmanaged.is_some() {
            continue;
        }
        let pool = *by_address
            .entry(std::sync::Arc::as_ptr(&thread.cpuset))
            .or_insert_with(|| {
                let cpus = thread.cpuset.intersection(&online);
                *by_cpus.entry(cpus).or_insert_with_key(|cpus| {
                    pools.push(Pool {
                        cpus: cpus.clone(),
                        threads: Vec::new(),
                        busy: Vec::new(),
                    });
                    pools.len() - 1
                })
            });
        pools[pool].threads.push(index);
    }
    pools.retain(|pool| !pool.cpus.is_empty());
    pools.sort_by(|a, b| {
        let key = |pool: &Pool| pool.cpus.len();
        key(a)
            .cmp(&key(b))
            .then_with(|| a.cpus.as_words().cmp(b.cpus.as_words()))
    });
    pools
}

/// Slots that are held already: by unmanaged threads, and by pools placed before.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    by_cpu: Vec<Held>,
}

/// What is held of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Threads.
    pub threads: usize,
    /// Of those, devils and super-devils.
    pub devils: usize,
}

impl Taken {
    /// Notes that one more thread holds a slot of the CPU.
    pub fn hold(&mut self, cpu: CpuId, class: Option<Class>) {
        if self.by_cpu.len() <= cpu.index() {
            self.by_cpu.resize(cpu.index() + 1, Held::default());
        }
        let held = &mut self.by_cpu[cpu.index()];
        held.threads += 1;
        held.devils += usize::from(class.is_some_and(|class| class != Class::Turtle));
    }

    /// What is held of a CPU.
    pub fn of(&self, cpu: CpuId) -> Held {
        self.by_cpu.get(cpu.index()).copied().unwrap_or_default()
    }
}
