//! The model as a world: policies, the governor and the ledger see it as they see a live machine.
//!
//! Counts are exact, as on a live machine whose counters are not shared. For shared counters,
//! [`Options::counter_noise`] adds the error of scaling. Memory samples are drawn from the distribution of each
//! thread's accesses. All chance is drawn from one seed: the same jobs, orders and seed give the same snapshots.

use std::fmt;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use numaherd_files::{setting, settings};
use numaherd_topology::{CpuSet, Node, NodeId, NodeSet};
use numaherd_world::in_step::{InStep, Machine, Shared, lock};
use numaherd_world::{
    AffinityOrder, AffinityResult, Counts, MemorySource, NewPages, NodeState, PageOrder,
    PageOutcome, Process, Residency, Sample, Signal, SignalReport, Snapshot, Thread, ThreadId,
    Unmanaged, World, WorldError,
};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::engine::{Engine, PAGE_BYTES, normal};
use crate::error::ModelError;
use crate::hardware::Hardware;
use crate::job::{Binding, Completion, Job, Placement, Until, Work};
use crate::kernel::Scheduler;

settings! {
    /// How a model runs.
    #[derive(Copy)]
    pub struct Options {
        /// What all chance is drawn from.
        seed: u64 = 0, internal: true;
        /// Relative standard deviation of the lines that a thread asks for from one second to the next;
        /// 0 for programs that are as even as their profiles.
        variation: f64 = 0.0, range: 0.0..=0.5;
        /// Relative standard deviation of counts, for counters that are shared; 0 where they are not.
        counter_noise: f64 = 0.0, range: 0.0..=0.5;
        /// Time to move one base page, which the thread it is moved for loses; the default is the middle of
        /// 1 to 3 us on machines of 2010 to 2020 (FACTS 7.3, recalled).
        page_move_ns: f64 = 2000.0, unit: "ns", range: 0.0..=1e9;
        /// Samples of each thread's memory accesses at every wake-up of the pager; DINO 4.2 reads one.
        samples_per_tick: u32 = 1, range: 0.0..=1000.0;
        /// What runs threads that nobody has placed.
        scheduler: Scheduler;
        /// Mean time between two times that the thread on a CPU, if it sleeps now and then and
        /// nobody has placed it, wakes up on another CPU drawn from all, and that CPU's thread on its
        /// own; 0: never. Linux before 3.8 knew of no home: it put a waking thread on its waker's CPU
        /// or an idle one, on any node (`select_task_rq_fair`, balancing of newly idle CPUs; recalled).
        /// Under `xen-credit`, mean time between two times that a vCPU which hardly ever runs wakes up on a CPU:
        /// if an idle CPU is there, it takes the thread that ran.
        wakes_elsewhere_s: f64 = 0.0, unit: "s", range: 0.0..=1e9;
        /// What two SMT siblings get done together, in what one does alone. 2: each is a core of its own, unless
        /// the machine file says less; Linux counted with 1.15 up to 4.x (`smt_gain`).
        smt_throughput: f64 = 2.0, range: 1.0..=2.0;
        /// What a last-level cache can answer, hits and misses together; 0: as much as is asked of it. No
        /// preset's source gives a figure.
        llc_gb_per_s: f64 = 0.0, unit: "GB/s", range: 0.0..=1e9;
        /// Share of a controller's bandwidth that is lost per share of writes among its lines: 0.25 on Skylake-SP
        /// and Cascade Lake, 12 to 15 % with as many writes as reads (FACTS 7.2); 0: none.
        write_turnaround: f64 = 0.0, range: 0.0..=0.9;
        /// Whether a thread's lines wait for lines of its own as they do for those of others. Without, one that has a
        /// single line in flight never waits on an idle machine (Schweitzer's approximation).
        own_lines_wait: bool = true;
        /// Whether pages that move take bandwidth of controllers and links from the other threads and wait there
        /// themselves, and the process finds none of their lines in its caches afterwards.
        page_moves_disturb: bool = true;
        /// Whether the modelled kernel balances memory between nodes (`kernel.numa_balancing`): it moves pages
        /// towards the threads that fault on them, and threads that no policy places to their pages.
        numa_balancing: bool = false;
    }
    where check = Options::wakes_rarely
}

impl Options {
    /// The same options with other values for some of them, as in the table `[model]` of a settings file.
    ///
    /// # Errors
    /// [`ModelError::Option`]: one is unknown, or cannot have this value.
    pub fn with(self, changes: &toml::Table) -> Result<Self, ModelError> {
        if changes.is_empty() {
            return Ok(self);
        }
        let mut table =
            toml::Table::try_from(self).expect("options are numbers, names and choices");
        table.extend(changes.clone());
        setting::of_tables(table).map_err(ModelError::Option)
    }

    fn wakes_rarely(&self, wrong: &mut dyn FnMut(&str, String)) {
        let seconds = self.wakes_elsewhere_s;
        if seconds > 0.0 && seconds < 1e-3 {
            wrong(
                "wakes_elsewhere_s",
                format!("must be 0, or 0.001 or more, not {seconds}"),
            );
        }
    }
}

/// A modelled machine with its jobs.
pub struct Model {
    shared: Shared<Engine>,
    options: Options,
    noise: Xoshiro256PlusPlus,
    observed_ns: f64,
}

impl Model {
    /// A machine at the moment before its first job starts.
    ///
    /// # Errors
    /// [`ModelError::Jobs`] for no job, a CPU or node that the machine does not have, or more memory than it has;
    /// [`ModelError::Option`] for an invalid option.
    pub fn new(
        hardware: Hardware,
        jobs: Vec<Job>,
        until: Until,
        options: Options,
    ) -> Result<Self, ModelError> {
        check_jobs(&hardware, &jobs)?;
        setting::check(&options).map_err(ModelError::Option)?;
        let hardware = hardware.with(&options);
        let topology = hardware.topology().clone();
        let mut noise = Xoshiro256PlusPlus::seed_from_u64(options.seed);
        // Skips 2^128 numbers, so that the noise of counters and the engine never draw the same ones.
        noise.jump();
        let engine = Engine::new(hardware, jobs, until, options);
        Ok(Self {
            shared: Shared::new(engine, topology, signals()),
            options,
            noise,
            observed_ns: 0.0,
        })
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, Engine> {
        self.shared.machine()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        self.engine().is_over()
    }

    /// Modelled time since the world began, in seconds.
    pub fn seconds(&self) -> f64 {
        self.engine().now_ns / 1e9
    }

    /// The completed runs so far, in the order in which they ended.
    pub fn completions(&self) -> Vec<Completion> {
        self.engine().completions.clone()
    }

    /// What each job has done so far, in their order.
    pub fn work(&self) -> Vec<Work> {
        let engine = self.engine();
        engine.progress.iter().map(|job| job.work).collect()
    }

    fn thread(
        &mut self,
        engine: &Engine,
        thread: &crate::engine::Thread,
        interval_ns: f64,
    ) -> Thread {
        let program = &engine.jobs[thread.job].program;
        let seen = thread.seen;
        let clock_ghz = engine.hardware.figures.clock_ghz;
        let share = |ns: f64| {
            if interval_ns > 0.0 {
                (ns / interval_ns).min(1.0)
            } else {
                0.0
            }
        };
        let mut noisy = |count: f64| {
            let error = if self.options.counter_noise > 0.0 {
                normal(&mut self.noise) * self.options.counter_noise
            } else {
                0.0
            };
            (count * (1.0 + error).max(0.0)).round() as u64
        };
        let counts = (seen.busy_ns > 0.0).then(|| {
            let instructions = noisy(seen.instructions);
            let remote = noisy(seen.remote_lines);
            let local = noisy(seen.lines - seen.remote_lines);
            Counts {
                instructions,
                cycles: Some(noisy(seen.busy_ns * clock_ghz)),
                lines: local + remote,
                local: Some(local),
                remote: Some(remote),
                uncore_busy_cycles: Some(noisy(seen.requested_ns * clock_ghz)),
                uncore_requests: Some(noisy(seen.requests)),
                counted_share: 1.0,
            }
        });
        Thread {
            id: thread.id,
            process: thread.process,
            name: program.name.clone(),
            cpu: thread.cpu,
            assigned: thread.assigned,
            affinity: thread.affinity.clone(),
            cpuset: engine.all_cpus.clone(),
            cpu_share: share(seen.busy_ns),
            wait_share: share(seen.waited_ns),
            tag: thread.tag,
            counts,
            unmanaged: thread
                .bound_by_user
                .then_some(Unmanaged::UserAffinity { cpus: None }),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("machine", &self.topology().name())
            .field("seconds", &self.seconds())
            .finish_non_exhaustive()
    }
}

impl InStep for Model {
    type Machine = Engine;

    fn shared(&self) -> &Shared<Engine> {
        &self.shared
    }

    fn shared_mut(&mut self) -> &mut Shared<Engine> {
        &mut self.shared
    }

    fn snapshot(&mut self, sequence: u64) -> Snapshot {
        let (shared, topology) = (self.shared.handle(), self.topology().clone());
        let mut engine = lock(&shared);
        let interval_ns = engine.now_ns - self.observed_ns;
        let threads: Vec<Thread> = engine
            .threads
            .values()
            .map(|thread| self.thread(&engine, thread, interval_ns))
            .collect();
        for thread in engine.threads.values_mut() {
            thread.seen = crate::engine::Seen::default();
        }
        let nodes = topology.nodes();
        let all_nodes: Arc<NodeSet> = Arc::new(nodes.iter().map(|node| node.id).collect());
        let residency = |memory: &crate::memory::Memory| Residency {
            pages: memory
                .by_node(nodes.len())
                .into_iter()
                .zip(nodes)
                .filter(|&(pages, _)| pages > 0)
                .map(|(pages, node)| (node.id, pages))
                .collect(),
            kinds: None,
        };
        let snapshot = Snapshot {
            sequence,
            time_ns: engine.now_ns as u64,
            interval_ns: interval_ns as u64,
            page_bytes: PAGE_BYTES,
            online: (*engine.all_cpus).clone(),
            threads,
            processes: engine
                .processes
                .values()
                .map(|process| Process {
                    id: process.id,
                    name: engine.jobs[process.job].program.name.clone(),
                    allowed_nodes: all_nodes.clone(),
                    sharing: None,
                    machine: None,
                    group: None,
                    residency: Some(residency(&process.memory)),
                    memory_policy: None,
                    extents: Arc::default(),
                })
                .collect(),
            nodes: nodes
                .iter()
                .zip(&engine.used_pages)
                .map(|(node, used)| NodeState {
                    id: node.id,
                    total_bytes: node.memory_bytes,
                    free_bytes: node.memory_bytes.saturating_sub(used * PAGE_BYTES),
                    old_file_bytes: 0,
                    busy_cpus: None,
                })
                .collect(),
            gaps: Vec::new(),
        };
        self.observed_ns = engine.now_ns;
        snapshot
    }
}

impl Machine for Engine {
    fn is_over(&self) -> bool {
        Self::is_over(self)
    }

    fn advance(&mut self, interval: Duration) {
        Self::advance(self, interval.as_nanos() as f64);
    }

    fn samples(&mut self) -> Vec<Sample> {
        let topology = self.hardware.topology().clone();
        let ids: Vec<ThreadId> = self.threads.keys().copied().collect();
        let time_ns = self.now_ns as u64;
        let mut samples = Vec::new();
        for id in ids {
            for _ in 0..self.options.samples_per_tick {
                let (address, at) = self.draw(id);
                let thread = &self.threads[&id];
                let node: NodeId = topology.nodes()[at].id;
                let local = topology.node_of(thread.cpu) == Some(node);
                samples.push(Sample {
                    time_ns,
                    thread: id,
                    process: thread.process,
                    address,
                    cpu: thread.cpu,
                    latency: Some(
                        (thread.speed.latency_ns * self.hardware.figures.clock_ghz) as u64,
                    ),
                    source: if local {
                        MemorySource::LocalMemory
                    } else {
                        MemorySource::RemoteMemory
                    },
                    node: Some(node),
                    store: false,
                });
            }
        }
        samples
    }

    /// The rule applies to what starts from now on, of the jobs that leave their memory to the kernel.
    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        self.place_new_memory(match rule {
            NewPages::FirstTouch => &Placement::FirstTouch,
            NewPages::Interleave => &Placement::Interleave,
            NewPages::Random => {
                let reason = "it only knows how many pages are on each node, so random nodes are the \
                              same as nodes in turn; choose interleave, or simulate a memory trace";
                return Err(WorldError {
                    world: "the modelled machine".to_owned(),
                    reason: reason.to_owned(),
                });
            }
        });
        Ok(())
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        Some((*self.threads.get(&thread)?.affinity).clone())
    }

    fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult {
        Self::set_affinity(self, order)
    }

    fn move_pages(&mut self, order: &PageOrder) -> PageOutcome {
        Self::move_pages(self, order)
    }
}

fn signals() -> Vec<SignalReport> {
    let report = |signal| match signal {
        Signal::TlbResidency | Signal::TlbMisses | Signal::HintFaults => SignalReport::missing(
            signal,
            "the model knows rates of misses, no single translations",
            "a memory trace (`numaherd trace simulate`)",
        ),
        _ => SignalReport::measured(signal, "the contention model", None),
    };
    Signal::ALL.map(report).to_vec()
}

fn check_jobs(hardware: &Hardware, jobs: &[Job]) -> Result<(), ModelError> {
    let topology = hardware.topology();
    let machine = topology.name();
    let refuse = |reason: String| Err(ModelError::Jobs { reason });
    if jobs.is_empty() {
        return refuse("there is nothing to run".to_owned());
    }
    let online = topology.online_cpus();
    let has_memory = |node: NodeId| topology.node(node).is_some_and(Node::has_memory);
    for (at, job) in jobs.iter().enumerate() {
        let refuse = |why: String| refuse(format!("job {at} ({}) {why}", job.program.name));
        let cpus: Option<CpuSet> = match &job.binding {
            Binding::Free => None,
            Binding::Within(cpus) => Some(cpus.clone()),
            Binding::StartOn(cpus) | Binding::Each(cpus) => Some(cpus.iter().copied().collect()),
        };
        if cpus.as_ref().is_some_and(CpuSet::is_empty) {
            return refuse("is bound to no CPU".to_owned());
        }
        if let Some(cpu) = cpus.and_then(|cpus| cpus.difference(&online).first()) {
            return refuse(format!(
                "is bound to CPU {cpu}, which {machine} does not have"
            ));
        }
        let nodes = match &job.memory {
            Placement::FirstTouch | Placement::Interleave => Vec::new(),
            Placement::On(node) => vec![*node],
            Placement::Split(parts) if parts.iter().all(|&(_, parts)| parts == 0) => {
                return refuse("has its memory split into no parts".to_owned());
            }
            Placement::Split(parts) => parts.iter().map(|&(node, _)| node).collect(),
        };
        if let Some(node) = nodes.into_iter().find(|&node| !has_memory(node)) {
            return refuse(format!(
                "has its memory on node {node}, where {machine} has none"
            ));
        }
    }
    let bytes = jobs.iter().map(|job| job.program.footprint_bytes);
    let wanted = bytes.fold(0, u64::saturating_add);
    let there: u64 = topology.nodes().iter().map(|node| node.memory_bytes).sum();
    if wanted > there {
        let (wanted, there) = (wanted >> 20, there >> 20);
        return refuse(format!(
            "they need {wanted} MiB of memory, and {machine} has {there}"
        ));
    }
    Ok(())
}
