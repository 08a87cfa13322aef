//! The live machine as a world.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet, Topology};
use numaherd_world::{
    AffinityOutcome, NewPages, NodeState, Orders, Outcome, PageOutcome, Pager, Process, ProcessId,
    Progress, Sharing, Signal, SignalReport, SignalState, Snapshot, ThreadId, Waker, World,
    WorldError,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::affinity;
use crate::agent::Agents;
use crate::assignments::Assignments;
use crate::counters::Counters;
use crate::end_of_run::Ending;
use crate::error::HostError;
use crate::event_choice;
use crate::files::Root;
use crate::groups::GroupRules;
use crate::ipm_unit::{self, IpmUnit};
use crate::kernel::{Captured, Hands, Live, Senses, monotonic_ns, since_boot_ns};
use crate::memory_blocks::MemoryBlocks;
use crate::new_pages;
use crate::options::HostOptions;
use crate::pager::HostPager;
use crate::pages::Mover;
use crate::perf_errors::{Reasons, Refusal};
use crate::proc::{cpuinfo, meminfo};
use crate::residency::Residencies;
use crate::samples::{self, Recipe, Roster, Sampler};
use crate::scan::Scanner;
use crate::stop::{Nudge, Stop};
use crate::vm::Machines;

/// The live machine.
#[derive(Debug)]
pub struct Host {
    options: HostOptions,
    root: Root,
    topology: Arc<Topology>,
    hands: Arc<dyn Hands>,
    senses: Arc<dyn Senses>,
    signals: Vec<SignalReport>,
    scanner: Scanner,
    assignments: Assignments,
    counters: Option<Counters>,
    recipe: Option<Recipe>,
    residencies: Residencies,
    machines: Machines,
    agents: Agents,
    /// The IPM unit, in the lab; shared with the pager.
    ipm: Option<Arc<Mutex<IpmUnit>>>,
    /// Whether anybody wants to know what the unit says; shared with the pager.
    attends_unit: Arc<AtomicBool>,
    roster: Roster,
    pager_gaps: Arc<Mutex<Vec<String>>>,
    /// `None` once the pager has it.
    mover: Option<Mover>,
    stop: Stop,
    nudge: Nudge,
    ending: Arc<Ending>,
    page_bytes: u64,
    sequence: u64,
    began_ns: u64,
    observed_ns: u64,
}

impl Host {
    /// The machine under the options' root, which `topology` describes. A root other than `/` is
    /// a captured tree: it can be observed, but has no counters and takes no orders.
    ///
    /// On the live machine the soft limit of open files is raised to the hard one: each watched
    /// thread takes up to nine. Programs started later inherit it.
    ///
    /// # Errors
    /// When /proc cannot be read, or a selected process does not exist.
    pub fn new(options: HostOptions, topology: Arc<Topology>) -> Result<Self, HostError> {
        let root = Root::new(&options.root);
        if root.is_live() {
            raise_open_files();
            let live = Arc::new(Live::new(root));
            Self::with_kernel(options, topology, live.clone(), live)
        } else {
            let captured = Arc::new(Captured::new(root));
            Self::with_kernel(options, topology, captured.clone(), captured)
        }
    }

    /// As [`Host::new`], with another kernel behind it.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn with_kernel(
        options: HostOptions,
        topology: Arc<Topology>,
        hands: Arc<dyn Hands>,
        senses: Arc<dyn Senses>,
    ) -> Result<Self, HostError> {
        let root = Root::new(&options.root);
        let ending = Arc::new(Ending::new(&root, &options.selection)?);
        let page_bytes = rustix::param::page_size() as u64;
        let equipment = Equipment::find(&root, &options, &topology, &*senses);
        let mut nodes = topology.memory_nodes();
        let only_node = nodes.first().filter(|_| nodes.len() == 1);
        if nodes.is_empty() {
            nodes = topology.nodes().iter().map(|node| node.id).collect();
        }
        let now = monotonic_ns();
        let mut host = Self {
            scanner: Scanner::new(root.clone(), &options, nodes),
            assignments: Assignments::set_before(&options.set_before),
            residencies: Residencies::new(
                root.clone(),
                page_bytes,
                options.residency_share,
                only_node,
            ),
            machines: Machines::new(root.clone()),
            agents: Agents::default(),
            mover: Some(Mover::new(root.clone(), options.pages.clone(), page_bytes)),
            signals: equipment.signals,
            counters: equipment.counters,
            recipe: equipment.recipe,
            ipm: equipment.ipm.map(|unit| Arc::new(Mutex::new(unit))),
            attends_unit: Arc::new(AtomicBool::new(true)),
            roster: Arc::new(RwLock::new(HashMap::new())),
            pager_gaps: Arc::default(),
            stop: Stop::new()?,
            nudge: Nudge::new()?,
            options,
            root,
            topology,
            hands,
            senses,
            ending,
            page_bytes,
            sequence: 0,
            began_ns: now,
            observed_ns: now,
        };
        // The first interval begins here: what threads did before it is not theirs.
        host.look().map_err(|source| HostError::Read {
            path: host.root.path("proc"),
            source,
            remedy: "is /proc mounted?",
        })?;
        Ok(host)
    }

    /// A way to stop this world from elsewhere.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// The rules by which processes are grouped, to replace them while this world runs.
    pub fn groups(&self) -> GroupRules {
        self.scanner.groups()
    }

    fn online(&self) -> CpuSet {
        self.root
            .online_cpus()
            .unwrap_or_else(|| self.topology.online_cpus())
    }

    /// Scans, counts, and writes the roster for the sampler.
    fn look(&mut self) -> std::io::Result<Look> {
        let now = self.hands.now_ns().max(self.observed_ns);
        let interval_ns = now - self.observed_ns;
        self.observed_ns = now;
        let online = self.online();
        let mut seen = self.scanner.scan(
            &*self.hands,
            &mut self.assignments,
            &online,
            interval_ns,
            since_boot_ns(),
        )?;
        let alive: HashSet<_> = seen.threads.iter().map(|thread| thread.id).collect();
        let scanner = &self.scanner;
        self.assignments.retain(
            |thread| alive.contains(&thread),
            |pid| scanner.has_process(pid),
        );
        if let Some(counters) = &mut self.counters {
            for thread in &mut seen.threads {
                thread.counts = counters.read(&*self.senses, thread.id);
            }
            seen.gaps
                .extend(counters.end_tick(|thread| alive.contains(&thread)));
        }
        let processes = self.scanner.processes();
        self.machines.observe(
            processes.map(|process| (process.id, process.name.as_str())),
            &mut seen.threads,
            now,
            &mut seen.gaps,
        );
        let mut roster = self
            .roster
            .write()
            .unwrap_or_else(|poison| poison.into_inner());
        roster.clear();
        let ids = seen.threads.iter().map(|t| (t.id.tid, (t.id, t.process)));
        roster.extend(ids);
        drop(roster);
        Ok(Look {
            threads: seen.threads,
            gaps: seen.gaps,
            online,
            interval_ns,
        })
    }

    /// How much threads shared pages since the last call, where there is a unit that tells.
    fn sharing(&mut self, gaps: &mut Vec<String>) -> HashMap<ProcessId, Sharing> {
        let attended = self.attends_unit.load(Ordering::Relaxed);
        let Some(unit) = self.ipm.as_ref().filter(|_| attended) else {
            return HashMap::new();
        };
        let roster = self
            .roster
            .read()
            .unwrap_or_else(|poison| poison.into_inner());
        let mut unit = unit.lock().unwrap_or_else(|poison| poison.into_inner());
        unit.sharing(&roster).unwrap_or_else(|error| {
            gaps.push(format!("the IPM unit does not report sharing: {error}"));
            HashMap::new()
        })
    }

    fn processes(
        &mut self,
        interval_ns: u64,
        mut sharing: HashMap<ProcessId, Sharing>,
    ) -> Vec<Process> {
        let ran: Vec<_> = self
            .scanner
            .processes()
            .map(|process| (process.id, process.ran_ns > 0))
            .collect();
        self.residencies.refresh(&*self.hands, &ran, interval_ns);
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
            })
            .collect();
        processes.sort_unstable_by_key(|process| process.id);
        processes
    }

    fn nodes(&self) -> Vec<NodeState> {
        let only = self.topology.nodes().len() == 1;
        self.topology
            .nodes()
            .iter()
            .filter_map(|node| {
                let of_node = format!("sys/devices/system/node/node{}/meminfo", node.id);
                let read = |path: &str| self.root.read(path).ok();
                let text = read(&of_node)
                    // A kernel without NUMA has one node and no folder for it.
                    .or_else(|| read("proc/meminfo").filter(|_| only))?;
                let (total_bytes, free_bytes) = meminfo::parse(&text)?;
                Some(NodeState {
                    id: node.id,
                    total_bytes,
                    free_bytes,
                })
            })
            .collect()
    }
}

struct Look {
    threads: Vec<numaherd_world::Thread>,
    gaps: Vec<String>,
    online: CpuSet,
    interval_ns: u64,
}

impl World for Host {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn attend(&mut self, needs: &[Signal]) {
        let wants_unit = needs.contains(&Signal::TlbResidency);
        self.attends_unit.store(wants_unit, Ordering::Relaxed);
        if let Some(counters) = &mut self.counters {
            counters.count_uncore(needs.contains(&Signal::UncorePenalty));
        }
        // What threads shared before now is of no interval.
        self.sharing(&mut Vec::new());
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        new_pages::check(&self.options, rule)
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        self.ending.run_for(&self.stop, Some(&self.nudge), interval)
    }

    fn waker(&self) -> Option<Waker> {
        let nudge = self.nudge.clone();
        Some(Arc::new(move || nudge.wake()))
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        let look = self.look().map_err(|error| WorldError {
            world: "this machine".to_owned(),
            reason: format!(
                "cannot list {}: {error}; is /proc mounted?",
                self.root.path("proc").display()
            ),
        })?;
        let (mut threads, mut gaps) = (look.threads, look.gaps);
        let mut from_pager = self
            .pager_gaps
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        gaps.append(&mut from_pager);
        drop(from_pager);
        let sharing = self.sharing(&mut gaps);
        let mut processes = self.processes(look.interval_ns, sharing);
        let ports = self.machines.agent_ports();
        self.agents
            .observe(ports, &mut processes, &mut threads, &mut gaps);
        let sequence = self.sequence;
        self.sequence += 1;
        Ok(Snapshot {
            sequence,
            time_ns: self.observed_ns - self.began_ns,
            interval_ns: look.interval_ns,
            page_bytes: self.page_bytes,
            online: look.online,
            processes,
            nodes: self.nodes(),
            threads,
            gaps,
        })
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        affinity::mask(&*self.hands, thread).ok().flatten()
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        let affinities = orders
            .affinities
            .iter()
            .map(|order| {
                let result = affinity::set(&*self.hands, order.thread, &order.cpus);
                if matches!(
                    result,
                    numaherd_world::AffinityResult::Done
                        | numaherd_world::AffinityResult::Narrowed { .. }
                ) {
                    let pid = self
                        .scanner
                        .process_of(order.thread)
                        .map(|process| process.pid);
                    self.assignments
                        .give(order.thread, pid, order.core, &order.cpus);
                }
                AffinityOutcome {
                    thread: order.thread,
                    result,
                }
            })
            .collect();
        let pages = match &mut self.mover {
            Some(mover) => mover.carry_out(&*self.hands, &orders.pages, &self.stop),
            None => orders
                .pages
                .iter()
                .map(|order| {
                    let why = "not tried: the pager has been handed out; give it the order";
                    PageOutcome::not_tried(order, why.to_owned())
                })
                .collect(),
        };
        Outcome { affinities, pages }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        let mover = self.mover.take()?;
        let sampler = self.recipe.take().map(|recipe| {
            Sampler::new(
                self.senses.clone(),
                recipe,
                self.topology.clone(),
                MemoryBlocks::read(&self.root),
                self.roster.clone(),
                &self.options.samples,
                self.began_ns,
            )
        });
        Some(Box::new(HostPager {
            root: self.root.clone(),
            topology: self.topology.clone(),
            hands: self.hands.clone(),
            sampler,
            ipm: self.ipm.clone(),
            attends_unit: self.attends_unit.clone(),
            roster: self.roster.clone(),
            page_bytes: self.page_bytes,
            began_ns: self.began_ns,
            mover,
            stop: self.stop.clone(),
            ending: self.ending.clone(),
            gaps: self.pager_gaps.clone(),
        }))
    }
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
        senses: &dyn Senses,
    ) -> Self {
        let processor = root
            .read("proc/cpuinfo")
            .map(|text| cpuinfo::parse(&text))
            .unwrap_or_default();
        let reasons = Reasons::new(root, &processor);
        let choice = event_choice::choose(senses, root, &options.events, &processor, &reasons);
        let a_cpu = topology.online_cpus().first().unwrap_or(CpuId(0));
        let recipe = samples::choose(senses, root, &options.samples, &reasons, a_cpu);
        let miss_rate = match &choice {
            Ok(choice) => choice.miss_rate(),
            Err(refusal) => missing(Signal::MissRate, refusal),
        };
        let local_remote = match &choice {
            Ok(choice) => choice.local_remote().unwrap_or_else(|| {
                let reason = format!(
                    "{} do not distinguish local from remote lines on this machine",
                    choice.name()
                );
                let remedy = "use hardware whose counters do, or the lab";
                missing(Signal::LocalRemote, &Refusal::new(reason, remedy))
            }),
            Err(refusal) => missing(Signal::LocalRemote, refusal),
        };
        let uncore_penalty = match &choice {
            Ok(choice) => choice.uncore_penalty(),
            Err(refusal) => missing(Signal::UncorePenalty, refusal),
        };
        let memory_samples = match &recipe {
            Ok(recipe) => measured(
                Signal::MemorySamples,
                recipe.source.clone(),
                recipe.caveat.clone(),
            ),
            Err(refusal) => missing(Signal::MemorySamples, refusal),
        };
        let ipm = ipm_unit::open(root);
        let tlb_residency = match &ipm {
            Ok(_) => {
                let source = "the IPM unit of the lab's machine (/dev/numaherd_ipm)".to_owned();
                measured(Signal::TlbResidency, source, None)
            }
            Err(refusal) => missing(Signal::TlbResidency, refusal),
        };
        let signals = vec![
            measured(
                Signal::CpuUse,
                "/proc/PID/task/TID/schedstat or stat".to_owned(),
                None,
            ),
            miss_rate,
            local_remote,
            uncore_penalty,
            memory_samples,
            residency_signal(root, topology),
            tlb_residency,
            missing(
                Signal::TlbMisses,
                &Refusal::new(
                    "the hardware handles TLB misses on this machine, so single misses cannot be \
                     observed",
                    "a memory trace (`numaherd trace simulate`)",
                ),
            ),
            missing(
                Signal::HintFaults,
                &Refusal::new(
                    "the kernel hands out no single NUMA hint faults, only their sums",
                    "a memory trace (`numaherd trace simulate`), or kernel NUMA balancing itself",
                ),
            ),
        ];
        Self {
            signals,
            reasons,
            counters: choice.ok().map(Counters::new),
            recipe: recipe.ok(),
            ipm: ipm.ok(),
        }
    }
}

fn residency_signal(root: &Root, topology: &Topology) -> SignalReport {
    let has_numa_maps = root.path("proc/self/numa_maps").exists();
    if has_numa_maps {
        let caveat = "costly for large processes, so it may be some intervals old";
        let source = "/proc/PID/numa_maps".to_owned();
        return measured(Signal::Residency, source, Some(caveat.to_owned()));
    }
    if topology.memory_nodes().len() == 1 {
        let caveat = "the kernel has no NUMA support, so everything is on the only node";
        let source = "/proc/PID/statm".to_owned();
        return measured(Signal::Residency, source, Some(caveat.to_owned()));
    }
    let refusal = Refusal::new(
        "there is no /proc/self/numa_maps: the kernel has no NUMA support (CONFIG_NUMA)",
        "use a kernel built with it",
    );
    missing(Signal::Residency, &refusal)
}

fn measured(signal: Signal, source: String, caveat: Option<String>) -> SignalReport {
    let state = SignalState::Measured { source, caveat };
    SignalReport { signal, state }
}

fn missing(signal: Signal, refusal: &Refusal) -> SignalReport {
    let state = SignalState::Missing {
        reason: refusal.reason.clone(),
        remedy: refusal.remedy.clone(),
    };
    SignalReport { signal, state }
}

fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        // Without it threads beyond the limit have no counters, which their snapshot says.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}
