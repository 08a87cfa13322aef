//! The live machine as a world.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, Node, Topology};
use numaherd_world::in_step::lock;
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Bound, Bounds, Effort, Enforcement, Kinship,
    NewPages, Orders, Outcome, PageOutcome, Pager, Process, ProcessId, Progress, Search, Sharing,
    Signal, SignalReport, Snapshot, ThreadId, Waker, World, WorldError,
};

use crate::affinity;
use crate::agent::Agents;
use crate::assignments::Assignments;
use crate::counters::Counters;
use crate::damon::Damon;
use crate::end_of_run::Ending;
use crate::error::HostError;
use crate::event_choice;
use crate::files::Root;
use crate::groups::GroupRules;
use crate::ipm_unit::{self, IpmUnit};
use crate::kernel::{Kernel, births_now, monotonic_ns, of_root, since_boot_ns};
use crate::latest::Latest;
use crate::memory_blocks::MemoryBlocks;
use crate::movers::Movers;
use crate::new_pages;
use crate::node_states::NodeStates;
use crate::open_files;
use crate::options::HostOptions;
use crate::pager::HostPager;
use crate::perf_errors::Reasons;
use crate::proc::cpuinfo;
use crate::proc::cpuinfo::Processor;
use crate::residency::{Residencies, Seen};
use crate::samples::{self, Recipe, Roster, Sampler};
use crate::scan::{Scanner, Tick};
use crate::scx::{self, Hints};
use crate::stop::{Stop, WakeEvent};
use crate::sweep::{Sweep, Wanted, kinship};
use crate::threads;
use crate::vm::Machines;

/// The live machine.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    options: HostOptions,
    signals: Vec<SignalReport>,
    scanner: Scanner,
    /// Finds threads that are in no scan.
    sweep: Sweep,
    node_states: NodeStates,
    assignments: Assignments,
    counters: Option<Counters>,
    recipe: Option<Recipe>,
    residencies: Residencies,
    /// In place of masks.
    hints: Option<Hints>,
    /// Beside `movers`.
    pub(crate) damon: Option<Damon>,
    machines: Machines,
    agents: Agents,
    /// `None` once the pager has it.
    movers: Option<Movers>,
    waker: WakeEvent,
    /// Whether any source identifies threads by their number alone.
    needs_roster: bool,
    sequence: u64,
    observed_ns: u64,
}

/// What the world and its pager share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) root: Root,
    pub(crate) topology: Arc<Topology>,
    pub(crate) kernel: Arc<dyn Kernel>,
    pub(crate) roster: Roster,
    /// The IPM unit, in the lab.
    ipm: Option<Mutex<IpmUnit>>,
    /// Whether a policy needs the unit.
    attends_unit: AtomicBool,
    /// What the pager missed, for the next snapshot.
    pub(crate) pager_gaps: Mutex<Vec<String>>,
    /// Processes whose pages the pager has moved since the last snapshot, and the ns that took.
    pub(crate) moved: Mutex<HashMap<ProcessId, u64>>,
    pub(crate) stop: Stop,
    pub(crate) ending: Ending,
    pub(crate) page_bytes: u64,
    pub(crate) began_ns: u64,
}

impl Shared {
    /// The CPUs that are online now.
    pub(crate) fn online(&self) -> CpuSet {
        let online = self.root.online_cpus();
        online.unwrap_or_else(|| self.topology.online_cpus())
    }

    /// The IPM unit, if there is one and a policy needs it.
    pub(crate) fn attended_unit(&self) -> Option<MutexGuard<'_, IpmUnit>> {
        let is_attended = self.attends_unit.load(Ordering::Relaxed);
        self.ipm.as_ref().filter(|_| is_attended).map(lock)
    }
}

impl Host {
    /// The machine under the options' root, described by `topology`. A root other than `/` is a
    /// captured tree: it can be observed, but has no counters and takes no orders.
    ///
    /// On the live machine the soft limit of open files is raised to the hard one: each watched
    /// thread takes up to nine. Programs started later inherit it.
    ///
    /// # Errors
    /// When /proc cannot be read, or a selected process does not exist.
    pub fn new(options: HostOptions, topology: Arc<Topology>) -> Result<Self, HostError> {
        let root = Root::new(&options.root);
        if root.is_live() {
            open_files::make_room();
        }
        let kernel = of_root(&root);
        let page_bytes = rustix::param::page_size() as u64;
        let processor = processor(&root);
        let equipment = Equipment::find(&root, &options, &topology, &*kernel, &processor);
        let mut nodes = topology.memory_nodes();
        let only_node = nodes.first().filter(|_| nodes.len() == 1);
        if nodes.is_empty() {
            nodes = topology.nodes().iter().map(|node| node.id).collect();
        }
        let now = monotonic_ns();
        let share = options.residency_share;
        let mut host = Self {
            scanner: Scanner::new(root.clone(), &options, nodes),
            sweep: Sweep::new(root.clone()),
            node_states: NodeStates::of(&options),
            assignments: Assignments::default(),
            residencies: Residencies::new(root.clone(), page_bytes, share, only_node)
                .with_extents(topology.nodes().iter().any(Node::is_apart)),
            hints: None,
            damon: None,
            machines: Machines::new(root.clone()),
            agents: Agents::default(),
            movers: Some(Movers::new(&root, options.pages, page_bytes)),
            needs_roster: equipment.recipe.is_some() || equipment.ipm.is_some(),
            signals: equipment.signals,
            counters: equipment.counters,
            recipe: equipment.recipe,
            waker: WakeEvent::new()?,
            sequence: 0,
            observed_ns: now,
            shared: Arc::new(Shared {
                ending: Ending::new(&root, &options.selection)?,
                root,
                topology,
                kernel,
                roster: Latest::new(HashMap::new()),
                ipm: equipment.ipm.map(Mutex::new),
                attends_unit: AtomicBool::new(true),
                pager_gaps: Mutex::default(),
                moved: Mutex::default(),
                stop: Stop::new()?,
                page_bytes,
                began_ns: now,
            }),
            options,
        };
        // The first interval begins here: what threads did before it is not theirs.
        let looked = host.look().map(drop);
        looked.map_err(HostError::read(
            &host.shared.root,
            "proc",
            "is /proc mounted?",
        ))?;
        Ok(host)
    }

    /// The same host, but hints carry out placements instead of masks.
    #[must_use]
    pub fn with_hints(mut self, hints: Hints) -> Self {
        self.hints = Some(hints);
        self
    }

    /// A way to stop this world from elsewhere.
    pub fn stop(&self) -> Stop {
        self.shared.stop.clone()
    }

    /// The rules by which processes are grouped, to replace them while this world runs.
    pub fn groups(&self) -> GroupRules {
        self.scanner.groups()
    }

    /// Scans, counts, and writes the roster for the sampler.
    fn look(&mut self) -> std::io::Result<Look> {
        self.sweep.begin_started();
        let kernel = &*self.shared.kernel;
        let now = kernel.now_ns().max(self.observed_ns);
        let interval_ns = now - self.observed_ns;
        self.observed_ns = now;
        let online = self.shared.online();
        let busy_cpus = (self.node_states).busy_cpus(&self.shared.root, &self.shared.topology);
        let mut tick = Tick {
            kernel,
            assignments: &mut self.assignments,
            began_ns: now,
            interval_ns,
            threads: Vec::new(),
        };
        let mut gaps = self.scanner.scan(&mut tick, &online, since_boot_ns())?;
        let mut threads = tick.threads;
        let scanner = &self.scanner;
        self.assignments.retain(
            |thread| is_among(&threads, thread),
            |pid| scanner.has_process(pid),
        );
        if let Some(counters) = &mut self.counters {
            for thread in &mut threads {
                if counters.wants(thread) {
                    thread.counts = counters.read(kernel, thread.id);
                }
            }
            gaps.extend(counters.end_tick(|thread| is_among(&threads, thread)));
        }
        let processes = self.scanner.processes();
        let named = processes.map(|process| (process.id, process.name.as_str()));
        self.machines.observe(named, &mut threads, now, &mut gaps);
        if self.needs_roster {
            let ids = threads.iter().map(|t| (t.id.tid, (t.id, t.process)));
            self.shared.roster.set(ids.collect());
        }
        Ok(Look {
            threads,
            gaps,
            busy_cpus,
            online,
            interval_ns,
        })
    }

    /// Carries out an order, and notes who then owns the thread's mask.
    fn place(&mut self, order: &AffinityOrder, now: u64) -> AffinityResult {
        let kernel = &*self.shared.kernel;
        if let Some(hints) = &self.hints {
            let result = hints.carry_out(kernel, order);
            // A hint is a wish while the mask stays the same, and no thread inherits it.
            if result == AffinityResult::Done
                && let Ok(Some(mask)) = affinity::mask(kernel, order.thread)
            {
                self.assignments
                    .give(order.thread, None, order.core, &Arc::new(mask), now);
            }
            return result;
        }
        let result = threads::set(kernel, self.sweep.cpusets(&self.shared.online()), order);
        if let AffinityResult::Done | AffinityResult::Narrowed { .. } = result {
            let process = self.scanner.process_of(order.thread);
            let pid = process.map(|process| process.pid);
            self.assignments
                .give(order.thread, pid, order.core, &order.cpus, now);
            self.scanner.mask_was_set(order.thread);
            if order.core.is_none() {
                self.sweep.given_back(order.thread.tid);
            }
        }
        result
    }

    /// How much threads shared pages since the last call, if a unit reports that.
    fn sharing(&self, gaps: &mut Vec<String>) -> HashMap<ProcessId, Sharing> {
        let Some(mut unit) = self.shared.attended_unit() else {
            return HashMap::new();
        };
        unit.sharing(&self.shared.roster.now())
            .unwrap_or_else(|error| {
                gaps.push(format!("the IPM unit does not report sharing: {error}"));
                HashMap::new()
            })
    }

    fn processes(
        &mut self,
        interval_ns: u64,
        mut sharing: HashMap<ProcessId, Sharing>,
    ) -> Vec<Process> {
        let seen: Vec<Seen> = self.scanner.seen().collect();
        for (process, took_ns) in std::mem::take(&mut *lock(&self.shared.moved)) {
            self.residencies.moved(process, took_ns);
        }
        self.residencies
            .refresh(&*self.shared.kernel, &seen, interval_ns);
        let mut processes: Vec<Process> = self
            .scanner
            .processes()
            .map(|process| Process {
                id: process.id,
                name: process.name.clone(),
                allowed_nodes: process.allowed_nodes.clone(),
                sharing: sharing.remove(&process.id).map(Arc::new),
                machine: self.machines.of(process.id),
                group: process.group.as_ref().map(|group| group.name.clone()),
                residency: self.residencies.of(process.id).cloned(),
                memory_policy: self.residencies.policy_of(process.id).cloned(),
                extents: self.residencies.extents_of(process.id),
            })
            .collect();
        processes.sort_unstable_by_key(|process| process.id);
        processes
    }
}

/// Whether a scan has the thread.
fn is_among(threads: &[numaherd_world::Thread], thread: ThreadId) -> bool {
    let found = threads.binary_search_by_key(&thread, |thread| thread.id);
    found.is_ok()
}

struct Look {
    threads: Vec<numaherd_world::Thread>,
    gaps: Vec<String>,
    /// How many CPUs of each node (place) were busy until it began, if that is known.
    busy_cpus: Option<Vec<f64>>,
    online: CpuSet,
    interval_ns: u64,
}

impl World for Host {
    fn topology(&self) -> &Arc<Topology> {
        &self.shared.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn attend(&mut self, needs: &[Signal]) {
        let wants_unit = needs.contains(&Signal::TlbResidency);
        self.shared
            .attends_unit
            .store(wants_unit, Ordering::Relaxed);
        if let Some(counters) = &mut self.counters {
            let wanted = needs.contains(&Signal::UncorePenalty);
            counters.count_uncore(&*self.shared.kernel, wanted);
        }
        // What threads shared before now is of no interval.
        self.sharing(&mut Vec::new());
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        new_pages::check(&self.options, rule)
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        let Shared { ending, stop, .. } = &*self.shared;
        ending.run_for(stop, Some(&self.waker), interval)
    }

    fn enforcement(&self) -> Enforcement {
        match self.hints {
            None => Enforcement::Affinity,
            Some(_) => Enforcement::Scx,
        }
    }

    fn waker(&self) -> Option<Waker> {
        let waker = self.waker.clone();
        Some(Arc::new(move || waker.wake()))
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let look = self.look().map_err(|error| WorldError {
            world: "this machine".to_owned(),
            reason: format!(
                "cannot list {}: {error}; is /proc mounted?",
                self.shared.root.path("proc").display()
            ),
        })?;
        let (mut threads, mut gaps) = (look.threads, look.gaps);
        gaps.append(&mut lock(&self.shared.pager_gaps));
        if self.hints.is_some() && !scx::is_enabled(&self.shared.root) {
            gaps.push(
                "the sched_ext scheduler has ended, and with it the effect of all hints: start numaherd again"
                    .to_owned(),
            );
        }
        let sharing = self.sharing(&mut gaps);
        let mut processes = self.processes(look.interval_ns, sharing);
        let ports = self.machines.agent_ports();
        self.agents
            .observe(ports, &mut processes, &mut threads, &mut gaps);
        let sequence = self.sequence;
        self.sequence += 1;
        Ok(Snapshot {
            sequence,
            time_ns: self.observed_ns - self.shared.began_ns,
            interval_ns: look.interval_ns,
            page_bytes: self.shared.page_bytes,
            online: look.online,
            processes,
            nodes: NodeStates::read(
                &self.shared.root,
                &self.shared.topology,
                look.busy_cpus.as_deref(),
            ),
            threads,
            gaps,
        })
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        affinity::mask(&*self.shared.kernel, thread).ok().flatten()
    }

    fn bounds_of(&mut self, thread: ThreadId) -> Option<Bounds> {
        let cpusets = self.sweep.cpusets(&self.shared.online());
        threads::bounds_of(&*self.shared.kernel, cpusets, thread).unwrap_or_default()
    }

    fn let_masks_settle(&mut self) {
        self.shared.kernel.pause(threads::BETWEEN_LOOKS);
    }

    fn births_now(&self) -> u64 {
        births_now()
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.kernel.now_ns())
    }

    fn kinship(&self, process: ProcessId) -> Kinship {
        kinship(&self.shared.root, process.pid)
            .filter(|(born, _)| *born == process.born)
            .map_or_else(Kinship::default, |(_, kin)| kin)
    }

    fn bound_to(&mut self, masks: &[Arc<CpuSet>], since: u64, effort: Effort) -> Search {
        let wanted = Wanted {
            masks,
            since,
            effort,
            is_watched: &|pid| self.scanner.has_process(pid),
        };
        (self.sweep).find(&*self.shared.kernel, &self.shared.online(), &wanted)
    }

    fn sees_starts(&self) -> bool {
        self.shared.root.is_live()
    }

    fn started_with(&mut self, masks: &[Arc<CpuSet>], since: u64) -> Vec<Bound> {
        let shared = &*self.shared;
        (self.sweep).find_started(&*shared.kernel, || shared.online(), masks, since)
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let now = births_now();
        let affinities = orders.affinities.iter().map(|order| AffinityOutcome {
            thread: order.thread,
            result: self.place(order, now),
        });
        let affinities = affinities.collect();
        let Shared { kernel, stop, .. } = &*self.shared;
        let why = "not tried: the pager has been handed out; give it the order";
        let not_tried = |order| PageOutcome::not_tried(order, why.to_owned());
        let pages = match &mut self.movers {
            Some(movers) => movers.carry_out(&**kernel, &orders.pages, stop),
            None => orders.pages.iter().map(not_tried).collect(),
        };
        Outcome { affinities, pages }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        let movers = self.movers.take()?;
        let shared = self.shared.clone();
        let sampler = self.recipe.take().map(|recipe| {
            Sampler::new(
                shared.kernel.clone(),
                recipe,
                shared.topology.clone(),
                MemoryBlocks::read(&shared.root),
                shared.roster.clone(),
                &self.options.samples,
                shared.began_ns,
            )
        });
        Some(Box::new(HostPager {
            shared,
            sampler,
            movers,
            damon: self.damon.take(),
        }))
    }
}

/// The processor of the machine under a root, as far as it says.
pub(crate) fn processor(root: &Root) -> Processor {
    let text = root.read("proc/cpuinfo");
    text.map(|text| cpuinfo::parse(&text)).unwrap_or_default()
}

/// What the machine can measure, tried.
pub(crate) struct Equipment {
    pub(crate) signals: Vec<SignalReport>,
    pub(crate) reasons: Reasons,
    pub(crate) counters: Option<Counters>,
    recipe: Option<Recipe>,
    ipm: Option<IpmUnit>,
}

impl Equipment {
    pub(crate) fn find(
        root: &Root,
        options: &HostOptions,
        topology: &Topology,
        kernel: &dyn Kernel,
        processor: &Processor,
    ) -> Self {
        let reasons = Reasons::new(root, processor);
        let choice = event_choice::choose(kernel, root, &options.events, processor, &reasons);
        let a_cpu = topology.online_cpus().first().unwrap_or(CpuId(0));
        let recipe = samples::choose(kernel, root, &options.samples, &reasons, a_cpu);
        let ipm = ipm_unit::open(root);
        let cpu_use = "/proc/PID/task/TID/schedstat or stat";
        let mut signals = vec![SignalReport::measured(Signal::CpuUse, cpu_use, None)];
        signals.extend(match &choice {
            Ok(choice) => [
                choice.miss_rate(),
                choice.local_remote(),
                choice.uncore_penalty(),
            ],
            Err(refusal) => [Signal::MissRate, Signal::LocalRemote, Signal::UncorePenalty]
                .map(|s| refusal.of(s)),
        });
        signals.extend([
            match &recipe {
                Ok(recipe) => SignalReport::measured(
                    Signal::MemorySamples,
                    &recipe.source,
                    recipe.caveat.clone(),
                ),
                Err(refusal) => refusal.of(Signal::MemorySamples),
            },
            residency_signal(root, topology),
            match &ipm {
                Ok(_) => SignalReport::measured(
                    Signal::TlbResidency,
                    "the IPM unit of the lab's machine (/dev/numaherd_ipm)",
                    None,
                ),
                Err(refusal) => refusal.of(Signal::TlbResidency),
            },
            SignalReport::missing(
                Signal::TlbMisses,
                "the hardware handles TLB misses on this machine, so single misses cannot be \
                 observed",
                "a memory trace (`numaherd trace simulate`)",
            ),
            SignalReport::missing(
                Signal::HintFaults,
                "the kernel hands out no single NUMA hint faults, only their sums",
                "a memory trace (`numaherd trace simulate`), or kernel NUMA balancing itself",
            ),
        ]);
        Self {
            signals,
            reasons,
            counters: choice.ok().map(|choice| Counters::new(kernel, choice)),
            recipe: recipe.ok(),
            ipm: ipm.ok(),
        }
    }
}

fn residency_signal(root: &Root, topology: &Topology) -> SignalReport {
    let measured = |source, caveat: &str| {
        SignalReport::measured(Signal::Residency, source, Some(caveat.to_owned()))
    };
    if root.path("proc/self/numa_maps").exists() {
        let caveat = "costly for large processes, so it may be some intervals old";
        measured("/proc/PID/numa_maps", caveat)
    } else if topology.memory_nodes().len() == 1 {
        let caveat = "the kernel has no NUMA support, so everything is on the only node";
        measured("/proc/PID/statm", caveat)
    } else {
        SignalReport::missing(
            Signal::Residency,
            "there is no /proc/self/numa_maps: the kernel has no NUMA support (CONFIG_NUMA)",
            "use a kernel built with it",
        )
    }
}
