//! The trace as a world: policies, the governor and the ledger see it as they see a live machine.
//!
//! Counts are exact. All times are the loop's (see the module's "Two times").

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use numaherd_topology::{CpuSet, NodeSet};
use numaherd_world::in_step::{InStep, Machine, Shared};
use numaherd_world::{
    AffinityOrder, AffinityResult, Counts, NewPages, NodeState, Notice, PageOrder, PageOutcome,
    Process, Residency, Sample, Signal, SignalReport, Snapshot, Thread, ThreadId, World,
    WorldError,
};

use super::accesses::Sampled;
use super::analysis::SetUp;
use super::engine::Engine;
use super::figures::Figures;
use super::machine::Hardware;
use super::options::{Options, Start};
use super::threads::Done;
use crate::{Error, Trace};

/// A trace on a machine.
pub struct TraceWorld {
    shared: Shared<Engine>,
    observed_ns: u64,
}

impl TraceWorld {
    /// The machine at the moment before the first thread begins.
    ///
    /// # Errors
    /// An option or a start is invalid, the machine cannot be built, or the trace has no threads.
    pub fn new(hardware: Hardware, trace: &Trace, options: Options) -> Result<Self, Error> {
        let topology = hardware.topology.clone();
        let signals = signals(&hardware, &options);
        let engine = Engine::new(hardware, trace, options)?;
        Ok(Self {
            shared: Shared::new(engine, topology, signals),
            observed_ns: 0,
        })
    }

    /// The results so far.
    pub fn figures(&self) -> Figures {
        self.engine().figures()
    }

    /// The results of all loops after the first; `None` while the first lasts.
    pub fn figures_again(&self) -> Option<Figures> {
        self.engine().figures_again()
    }

    /// Where threads and pages are now: threads that have run, by their numbers in the trace, and all
    /// pages that were touched.
    pub fn placement(&self) -> Start {
        self.engine().placement()
    }

    /// The pages, by process and page number, that a policy could have learned about so far: an access to them was
    /// sampled, or the IPM unit has credited them.
    pub fn pages_seen(&self) -> HashSet<(u32, u64)> {
        self.engine().pages_seen()
    }

    /// The part of the trace that is played only once. It is known once all threads were released.
    pub fn set_up(&self) -> SetUp {
        SetUp {
            releases: self.engine().releases(),
        }
    }

    /// Whether all threads have ended for good.
    pub fn is_over(&self) -> bool {
        self.engine().is_over
    }

    pub(super) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.shared.machine()
    }
}

impl fmt::Debug for TraceWorld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceWorld")
            .field("machine", &self.topology().name())
            .finish_non_exhaustive()
    }
}

impl InStep for TraceWorld {
    type Machine = Engine;

    fn shared(&self) -> &Shared<Engine> {
        &self.shared
    }

    fn shared_mut(&mut self) -> &mut Shared<Engine> {
        &mut self.shared
    }

    fn snapshot(&mut self, sequence: u64) -> Snapshot {
        let topology = self.topology().clone();
        let mut engine = self.shared.machine();
        let interval_ns = engine.clock_ns - self.observed_ns;
        let threads = threads(&mut engine, interval_ns);
        let processes = processes(&mut engine);
        let nodes = topology.nodes().iter().enumerate();
        let snapshot = Snapshot {
            sequence,
            time_ns: engine.clock_ns,
            interval_ns,
            page_bytes: engine.hardware.page_bytes(),
            online: (*engine.all_cpus).clone(),
            threads,
            processes,
            nodes: nodes
                .map(|(place, node)| NodeState {
                    id: node.id,
                    total_bytes: node.memory_bytes,
                    free_bytes: node
                        .memory_bytes
                        .saturating_sub(engine.memory.pages.used_bytes(place)),
                    old_file_bytes: 0,
                    busy_cpus: None,
                })
                .collect(),
            gaps: Vec::new(),
        };
        self.observed_ns = engine.clock_ns;
        snapshot
    }
}

impl Machine for Engine {
    fn is_over(&self) -> bool {
        self.is_over
    }

    fn advance(&mut self, interval: Duration) {
        self.memory.listening = false;
        self.pass(interval);
    }

    fn advance_sampled(&mut self, interval: Duration) {
        self.memory.samples.clear();
        self.memory.notices.clear();
        self.memory.listening = true;
        self.pass(interval);
    }

    fn samples(&mut self) -> Vec<Sample> {
        let mut samples = std::mem::take(&mut self.memory.samples);
        // The times of cores differ by up to a quantum.
        samples.sort_by_key(|sample| sample.time_ns);
        samples
    }

    fn notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.memory.notices);
        notices.sort_by_key(|notice| notice.time_ns);
        notices
    }

    fn attend(&mut self, needs: &[Signal]) {
        self.memory.sampled = if needs.contains(&Signal::TlbMisses) {
            Sampled::TlbMisses
        } else if needs.contains(&Signal::HintFaults) {
            Sampled::HintFaults
        } else {
            Sampled::Memory
        };
        self.scan.is_on = needs.contains(&Signal::HintFaults);
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        self.memory.new_pages = rule;
        Ok(())
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        let number = self.number(thread)?;
        Some((*self.threads[number].affinity).clone())
    }

    fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult {
        Self::set_affinity(self, order)
    }

    fn placed(&mut self) {
        self.settle();
    }

    fn move_pages(&mut self, order: &PageOrder) -> PageOutcome {
        Self::move_pages(self, order)
    }
}

/// The threads that exist, ascending by number, with what they did since the last call.
fn threads(engine: &mut Engine, interval_ns: u64) -> Vec<Thread> {
    let interval_ps = engine.memory.options.modelled_ps(interval_ns);
    let share = |ps: u64| {
        if interval_ps > 0 {
            (ps as f64 / interval_ps as f64).min(1.0)
        } else {
            0.0
        }
    };
    let mut threads = Vec::new();
    for number in 0..engine.threads.len() {
        let done = std::mem::take(&mut engine.threads[number].done);
        let thread = &engine.threads[number];
        if !thread.is_there(engine.goes_round()) {
            continue;
        }
        threads.push(Thread {
            id: thread.id,
            process: engine.memory.processes[thread.process as usize].id,
            name: thread.name.clone(),
            cpu: engine.cpu(thread.core),
            assigned: thread.assigned.map(|core| engine.cpu(core)),
            affinity: thread.affinity.clone(),
            cpuset: engine.all_cpus.clone(),
            cpu_share: share(done.busy_ps),
            wait_share: share(done.waited_ps),
            tag: None,
            counts: counts(engine, done),
            unmanaged: None,
        });
    }
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// A thread's counts: what it would have done in the loop's time, so that rates are the modelled ones.
fn counts(engine: &Engine, done: Done) -> Option<Counts> {
    let dilation = engine.memory.options.dilation;
    let counted = |modelled: u64| modelled.saturating_mul(dilation);
    let cycles = |ps| counted(engine.hardware.config.cycles(ps));
    (done.busy_ps > 0).then(|| Counts {
        instructions: counted(done.instructions),
        cycles: Some(cycles(done.busy_ps)),
        lines: counted(done.local + done.remote),
        local: Some(counted(done.local)),
        remote: Some(counted(done.remote)),
        uncore_busy_cycles: Some(cycles(done.requested_ps)),
        uncore_requests: Some(counted(done.requests)),
        counted_share: 1.0,
    })
}

fn processes(engine: &mut Engine) -> Vec<Process> {
    let nodes: Arc<NodeSet> = Arc::new(engine.memory.nodes.iter().copied().collect());
    let mut processes = Vec::new();
    for place in 0..engine.memory.processes.len() {
        let is_there = engine
            .threads
            .iter()
            .any(|thread| thread.process as usize == place && thread.is_there(engine.goes_round()));
        let memory = &mut engine.memory;
        let threads = &engine.threads;
        let sharing = memory
            .unit
            .as_mut()
            .map(|unit| Arc::new(unit.shared_since(place, threads)));
        if !is_there {
            continue;
        }
        let resident = memory.pages.resident(place).iter().zip(&memory.nodes);
        processes.push(Process {
            id: memory.processes[place].id,
            name: memory.processes[place].name.clone(),
            allowed_nodes: nodes.clone(),
            residency: Some(Residency {
                pages: resident
                    .filter(|&(&pages, _)| pages > 0)
                    .map(|(&pages, &node)| (node, pages))
                    .collect(),
                kinds: None,
            }),
            memory_policy: None,
            extents: Arc::default(),
            sharing,
            machine: None,
            group: None,
        });
    }
    processes.sort_by_key(|process| process.id);
    processes
}

fn signals(hardware: &Hardware, options: &Options) -> Vec<SignalReport> {
    let has_tlbs = hardware.config.tlb.is_some();
    let remedy = "a machine file with [tlb], and the option ipm";
    let report = |signal| match signal {
        Signal::TlbMisses if !has_tlbs => SignalReport::missing(
            signal,
            "the machine has no TLBs",
            "a machine file with [tlb]",
        ),
        Signal::TlbResidency if !has_tlbs => SignalReport::missing(
            signal,
            "the machine has no TLBs, whose entries an IPM unit watches",
            remedy,
        ),
        Signal::TlbResidency if options.ipm.is_none() => {
            SignalReport::missing(signal, "the machine has no IPM unit", remedy)
        }
        _ => SignalReport::measured(signal, "the trace on modelled hardware", None),
    };
    Signal::ALL.map(report).to_vec()
}
