//! A machine and one snapshot of it, to which a test adds threads.

use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{Counts, Placement, ProcessId, Sample, Snapshot, Thread};

use crate::seen::{empty, pid, process, thread_on, tid};
use crate::{Shape, orders};

/// A machine and a snapshot of it.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The machine.
    pub topology: Topology,
    /// The snapshot, over one second.
    pub snapshot: Snapshot,
    all: Arc<CpuSet>,
}

impl Scene {
    /// Nodes of one domain each, with the same number of cores; nothing runs.
    pub fn uniform(domains: usize, cores: u32) -> Self {
        Self::new(&Shape::uniform(domains, cores))
    }

    /// A machine of that shape; nothing runs.
    pub fn new(shape: &Shape) -> Self {
        let topology = shape.topology();
        Self {
            snapshot: Snapshot {
                nodes: Vec::new(),
                ..empty(&topology)
            },
            all: Arc::new(topology.cpus().iter().map(|cpu| cpu.id).collect()),
            topology,
        }
    }

    /// Adds a thread with the next number, from 0, on a CPU, with its process and miss rate. It is
    /// busy all the time, may run anywhere, and is not assigned to a core.
    pub fn thread(&mut self, process: u32, miss_rate: f64, cpu: u32) -> &mut Thread {
        let number = u32::try_from(self.snapshot.threads.len()).expect("few threads");
        let thread = thread_on(number, process, cpu, &self.all);
        self.snapshot.threads.push(thread);
        self.set_miss_rate(number as usize, miss_rate);
        self.snapshot.threads.last_mut().expect("pushed above")
    }

    /// The process with this number.
    pub fn process(number: u32) -> ProcessId {
        pid(number)
    }

    /// Gives a process a name, and puts all its pages on a node.
    pub fn home(&mut self, number: u32, name: &str, node: u32) {
        let process = process(number, name, &[(node, 1000)], &self.topology);
        let processes = &mut self.snapshot.processes;
        match processes.binary_search_by_key(&process.id, |process| process.id) {
            Ok(at) => processes[at] = process,
            Err(at) => processes.insert(at, process),
        }
    }

    /// An access of a thread from a CPU to a page on node `home`. A thread that is not in the scene
    /// belongs to process 1.
    pub fn access(&self, number: u32, cpu: u32, page: u64, home: u32, time_ns: u64) -> Sample {
        let known = self.snapshot.thread(tid(number)).cloned();
        let thread = known.unwrap_or_else(|| thread_on(number, 1, cpu, &self.all));
        let thread = Thread {
            cpu: CpuId(cpu),
            ..thread
        };
        Sample {
            time_ns,
            ..orders::sample(&thread, page, home, &self.topology)
        }
    }

    /// Sets a thread's miss rate, in lines per 1000 instructions.
    pub fn set_miss_rate(&mut self, thread: usize, miss_rate: f64) {
        self.snapshot.threads[thread].counts = Some(Counts {
            instructions: 1_000_000_000,
            lines: (miss_rate * 1e6) as u64,
            counted_share: 1.0,
            ..Counts::default()
        });
    }

    /// Carries out a plan's placements.
    pub fn carry_out(&mut self, plan: &[Placement]) {
        for placement in plan {
            let threads = &mut self.snapshot.threads;
            let at = threads.binary_search_by_key(&placement.thread, |thread| thread.id);
            let thread = &mut threads[at.expect("a plan names threads of the snapshot")];
            thread.assigned = Some(placement.to);
            thread.cpu = placement.to;
        }
    }

    /// The CPU of each thread.
    pub fn places(&self) -> Vec<u32> {
        self.snapshot.threads.iter().map(|t| t.place().0).collect()
    }
}
