//! A machine made up for tests: nodes of equal CPUs, threads that obey or fail as scripted. Its
//! `run_for` returns at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use numaherd_policy::{Paging, Place, Policy, Random, Settled};
use numaherd_topology::{
    Cache, CacheKind, CpuId, CpuPart, CpuSet, Node, NodeId, NodeSet, Parts, Timing, Topology,
};
use numaherd_world::{
    AffinityOrder, AffinityOutcome, AffinityResult, Agent, Counts, NewPages, NodeState, Notice,
    Orders, Outcome, PageOrder, PageOutcome, Pager, Pages, Placement, Process, ProcessId, Progress,
    Residency, Sample, Sharing, Signal, SignalReport, SignalState, Snapshot, Thread, ThreadId,
    VirtualCpu, VirtualMachine, World, WorldError,
};

pub const MIB: u64 = 1 << 20;
pub const SECOND_NS: u64 = 1_000_000_000;
const PAGE_BYTES: u64 = 4096;

/// A machine of `nodes` nodes of `cpus` CPUs each that share a last-level cache; 1 GiB a node.
pub fn machine(nodes: u32, cpus: u32) -> Arc<Topology> {
    let of = |node: u32| -> CpuSet { (node * cpus..(node + 1) * cpus).map(CpuId).collect() };
    let cpu = |id: u32| CpuPart {
        id: CpuId(id),
        online: true,
        package: None,
        siblings: [CpuId(id)].into_iter().collect(),
        capacity: None,
    };
    let parts = Parts {
        name: "made up".to_owned(),
        nodes: (0..nodes)
            .map(|id| Node {
                id: NodeId(id),
                online: true,
                cpus: of(id),
                memory_bytes: 1024 * MIB,
            })
            .collect(),
        cpus: (0..nodes * cpus).map(cpu).collect(),
        caches: (0..nodes)
            .map(|node| Cache {
                level: 3,
                kind: CacheKind::Unified,
                size_bytes: None,
                line_bytes: None,
                ways: None,
                cpus: of(node),
            })
            .collect(),
        distances: Vec::new(),
        timing: Timing::default(),
    };
    Arc::new(Topology::new(parts).unwrap())
}

pub fn tid(number: u32) -> ThreadId {
    ThreadId {
        tid: number,
        born: 7,
    }
}

pub fn pid(number: u32) -> ProcessId {
    ProcessId {
        pid: number,
        born: 7,
    }
}

pub fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub fn nodes(list: &str) -> NodeSet {
    list.parse().unwrap()
}

/// One thread of process `process`, on `cpu`, free to run anywhere on the machine.
pub fn thread(number: u32, process: u32, cpu: u32, topology: &Topology) -> Thread {
    let all: Arc<CpuSet> = Arc::new(topology.cpus().iter().map(|cpu| cpu.id).collect());
    Thread {
        id: tid(number),
        process: pid(process),
        name: format!("t{number}"),
        cpu: CpuId(cpu),
        assigned: None,
        affinity: all.clone(),
        cpuset: all,
        cpu_share: 1.0,
        wait_share: 0.0,
        tag: None,
        counts: Some(Counts {
            instructions: 1_000_000_000,
            cycles: None,
            lines: 1_000_000,
            local: Some(750_000),
            remote: Some(250_000),
            uncore_busy_cycles: None,
            uncore_requests: None,
            counted_share: 1.0,
        }),
        hands_off: None,
    }
}

/// A snapshot of these threads at `seconds`.
pub fn snapshot(topology: &Topology, seconds: f64, threads: &[Thread]) -> Snapshot {
    let mut threads = threads.to_vec();
    threads.sort_by_key(|thread| thread.id);
    let mut processes: BTreeMap<ProcessId, Process> = BTreeMap::new();
    for thread in &threads {
        processes.entry(thread.process).or_insert_with(|| Process {
            id: thread.process,
            name: thread.name.clone(),
            allowed_nodes: Arc::new(topology.memory_nodes()),
            sharing: None,
            machine: None,
            group: None,
            residency: Some(Residency {
                pages: vec![(NodeId(0), 4096)],
            }),
        });
    }
    Snapshot {
        sequence: 0,
        time_ns: (seconds * 1e9) as u64,
        interval_ns: SECOND_NS,
        page_bytes: PAGE_BYTES,
        online: topology.online_cpus(),
        threads,
        processes: processes.into_values().collect(),
        nodes: topology
            .nodes()
            .iter()
            .map(|node| NodeState {
                id: node.id,
                total_bytes: node.memory_bytes,
                free_bytes: node.memory_bytes / 2,
            })
            .collect(),
        gaps: Vec::new(),
    }
}

/// The virtual machine of that name, whose vCPUs are these threads in their order.
pub fn virtual_machine(name: &str, threads: &[Thread]) -> Arc<VirtualMachine> {
    let vcpus = (0..).zip(threads);
    Arc::new(VirtualMachine {
        name: name.to_owned(),
        vcpus: vcpus
            .map(|(index, thread)| VirtualCpu {
                index,
                thread: thread.id,
            })
            .collect(),
        memory_bytes: None,
        source: "made up".to_owned(),
        agent: Agent::Silent,
    })
}

pub fn place(thread: &Thread, to: u32) -> Placement {
    Placement {
        thread: thread.id,
        from: thread.place(),
        to: CpuId(to),
        rule: "test: as told".into(),
        why: "the test says so".to_owned(),
        instead_of: String::new(),
    }
}

pub fn window(thread: &Thread, first: u64, count: u64, to: u32) -> PageOrder {
    PageOrder {
        process: thread.process,
        thread: thread.id,
        pages: Pages::Window { first, count },
        to: NodeId(to),
        rule: "test: as told".into(),
        why: "the test says so".to_owned(),
    }
}

pub fn all_pages(thread: &Thread, to: u32) -> PageOrder {
    PageOrder {
        pages: Pages::All,
        ..window(thread, 0, 1, to)
    }
}

/// Page 1 of process 1 on node 0 is used by thread 1 on that node.
pub fn notice(time_ns: u64, to: u32) -> Notice {
    Notice {
        time_ns,
        thread: tid(1),
        process: pid(1),
        page: 1,
        from: NodeId(0),
        to: NodeId(to),
    }
}

/// What a world says that moved every page it was told to.
pub fn moved(order: &PageOrder, moved: u64) -> PageOutcome {
    PageOutcome {
        process: order.process,
        thread: order.thread,
        pages: order.pages,
        to: order.to,
        moved,
        already_there: 0,
        failed: BTreeMap::new(),
        not_tried: 0,
        took_ns: 1000,
        longest_batch_ns: 1000,
        error: None,
    }
}

pub fn measured() -> Vec<SignalReport> {
    let report = |signal| SignalReport {
        signal,
        state: SignalState::Measured {
            source: "made up".to_owned(),
            caveat: None,
        },
    };
    Signal::ALL.into_iter().map(report).collect()
}

/// What happens to the machine before each interval: interval number, machine.
pub type Script = Box<dyn FnMut(u64, &mut Fake)>;

/// What a world is told before time passes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To place new pages by this rule.
    NewPages(NewPages),
    /// To attend to these signals.
    Attend(Vec<Signal>),
    /// For its pager.
    Pager,
}

/// A scripted machine.
pub struct Fake {
    pub topology: Arc<Topology>,
    pub signals: Vec<SignalReport>,
    pub threads: Vec<Thread>,
    pub online: CpuSet,
    /// Threads whose affinity the kernel will not set, with its reason.
    pub refuses: BTreeMap<ThreadId, String>,
    /// Threads that end between the snapshot and the order.
    pub dies: Vec<ThreadId>,
    /// Threads that are there, but not among those that are observed.
    pub unseen: Vec<ThreadId>,
    /// Intervals until the world ends.
    pub ends_after: u64,
    /// The interval in which nothing can be seen any more.
    pub blind_from: u64,
    /// All orders it was given, in order.
    pub applied: Vec<Orders>,
    pub pager: Option<Box<dyn Pager>>,
    /// The rules by which it can place new pages.
    pub can_place_new_pages: Vec<NewPages>,
    /// What it was told before time passed.
    pub asked: Vec<Asked>,
    /// Intervals in the middle of which it is woken.
    pub woken_in: Vec<u64>,
    script: Option<Script>,
    intervals: u64,
    observed: u64,
    now_ns: u64,
    interval_ns: u64,
    is_observed: bool,
}

impl Fake {
    pub fn new(topology: Arc<Topology>, threads: Vec<Thread>) -> Self {
        Self {
            online: topology.online_cpus(),
            topology,
            signals: measured(),
            threads,
            refuses: BTreeMap::new(),
            dies: Vec::new(),
            unseen: Vec::new(),
            ends_after: u64::MAX,
            blind_from: u64::MAX,
            applied: Vec::new(),
            pager: None,
            can_place_new_pages: vec![NewPages::FirstTouch],
            asked: Vec::new(),
            woken_in: Vec::new(),
            script: None,
            intervals: 0,
            observed: 0,
            now_ns: 0,
            interval_ns: 0,
            is_observed: false,
        }
    }

    pub fn scripted(mut self, script: impl FnMut(u64, &mut Self) + 'static) -> Self {
        self.script = Some(Box::new(script));
        self
    }

    pub fn thread(&mut self, number: u32) -> &mut Thread {
        let found = self.threads.iter_mut().find(|t| t.id == tid(number));
        found.unwrap()
    }

    pub fn masks(&self) -> BTreeMap<ThreadId, CpuSet> {
        let mask = |t: &Thread| (t.id, (*t.affinity).clone());
        self.threads.iter().map(mask).collect()
    }

    fn set(&mut self, order: &AffinityOrder) -> AffinityResult {
        self.threads.retain(|t| !self.dies.contains(&t.id));
        if let Some(error) = self.refuses.get(&order.thread) {
            return AffinityResult::Failed {
                error: error.clone(),
            };
        }
        let Some(thread) = self.threads.iter_mut().find(|t| t.id == order.thread) else {
            return AffinityResult::Gone;
        };
        let now = order.cpus.intersection(&thread.cpuset);
        let Some(first) = now.intersection(&self.online).first() else {
            return AffinityResult::Failed {
                error: "sched_setaffinity: EINVAL: no CPU is left".to_owned(),
            };
        };
        thread.affinity = Arc::new(now.clone());
        thread.assigned = order.core;
        if let Some(core) = order.core {
            thread.cpu = core;
        } else if !now.contains(thread.cpu) {
            thread.cpu = first;
        }
        if now == *order.cpus {
            AffinityResult::Done
        } else {
            AffinityResult::Narrowed { now }
        }
    }
}

impl World for Fake {
    fn topology(&self) -> &Arc<Topology> {
        &self.topology
    }

    fn signals(&self) -> &[SignalReport] {
        &self.signals
    }

    fn attend(&mut self, needs: &[Signal]) {
        self.asked.push(Asked::Attend(needs.to_vec()));
    }

    fn place_new_pages(&mut self, rule: NewPages) -> Result<(), WorldError> {
        self.asked.push(Asked::NewPages(rule));
        if self.can_place_new_pages.contains(&rule) {
            return Ok(());
        }
        Err(WorldError {
            world: "the made-up machine".to_owned(),
            reason: format!("it cannot place new pages by the rule {rule}; have it learn that"),
        })
    }

    fn run_for(&mut self, interval: Duration) -> Progress {
        assert!(self.asked.contains(&Asked::Pager), "told first, then run");
        if self.intervals == self.ends_after {
            return Progress::Ended;
        }
        if self.is_observed {
            self.interval_ns = 0;
            self.is_observed = false;
        }
        let woken = self.woken_in.iter().position(|&at| at == self.intervals);
        let passes = woken.map_or(interval, |_| interval / 2);
        self.interval_ns += u64::try_from(passes.as_nanos()).unwrap();
        self.now_ns += u64::try_from(passes.as_nanos()).unwrap();
        if let Some(mut script) = self.script.take() {
            script(self.intervals, self);
            self.script = Some(script);
        }
        if let Some(woken) = woken {
            self.woken_in.remove(woken);
            return Progress::Woken {
                left: interval - passes,
            };
        }
        self.intervals += 1;
        Progress::Ran
    }

    fn observe(&mut self) -> Result<Snapshot, WorldError> {
        if self.intervals > self.blind_from {
            return Err(WorldError {
                world: "the made-up machine".to_owned(),
                reason: "reading /proc: EIO".to_owned(),
            });
        }
        let seconds = self.now_ns as f64 / 1e9;
        self.observed += 1;
        self.is_observed = true;
        let mut seen = self.threads.clone();
        seen.retain(|thread| !self.unseen.contains(&thread.id));
        Ok(Snapshot {
            sequence: self.observed - 1,
            interval_ns: self.interval_ns,
            online: self.online.clone(),
            ..snapshot(&self.topology, seconds, &seen)
        })
    }

    fn affinity_of(&self, thread: ThreadId) -> Option<CpuSet> {
        let there = self.threads.iter().find(|there| there.id == thread);
        there.map(|there| (*there.affinity).clone())
    }

    fn apply(&mut self, orders: &Orders) -> Outcome {
        self.applied.push(orders.clone());
        let outcome = |order: &AffinityOrder| AffinityOutcome {
            thread: order.thread,
            result: self.set(order),
        };
        Outcome {
            affinities: orders.affinities.iter().map(outcome).collect(),
            pages: orders.pages.iter().map(|order| moved(order, 1)).collect(),
        }
    }

    fn pager(&mut self) -> Option<Box<dyn Pager>> {
        self.asked.push(Asked::Pager);
        self.pager.take()
    }
}

/// A placement that does as the test says.
pub struct Told<F>(pub F);

impl<F: FnMut(&Snapshot) -> Vec<Placement> + Send> Place for Told<F> {
    fn needs(&self) -> &[Signal] {
        &[Signal::MissRate]
    }

    fn place(&mut self, snapshot: &Snapshot, _: &Topology, _: &mut Random) -> Vec<Placement> {
        (self.0)(snapshot)
    }
}

/// What a paging was told and asked, shared with the test.
#[derive(Debug, Default)]
pub struct Heard {
    pub settled: Vec<Vec<Settled>>,
    pub outcomes: Vec<PageOutcome>,
    pub notices: Vec<Notice>,
}

/// A paging that orders what the test says: once for what is settled, and for each lot of samples or
/// notices.
pub struct ToldPaging {
    pub on_settled: Vec<PageOrder>,
    pub on_samples: Vec<PageOrder>,
    pub on_notices: Vec<PageOrder>,
    /// How much two threads of process 1 shared since they were asked after last.
    pub shared: u64,
    pub heard: Arc<Mutex<Heard>>,
}

impl ToldPaging {
    pub fn stay() -> Self {
        Self {
            on_settled: Vec::new(),
            on_samples: Vec::new(),
            on_notices: Vec::new(),
            shared: 0,
            heard: Arc::default(),
        }
    }
}

impl Paging for ToldPaging {
    fn needs(&self) -> &[Signal] {
        &[]
    }

    fn settled(&mut self, threads: &[Settled], _: &Snapshot) -> Vec<PageOrder> {
        self.heard.lock().unwrap().settled.push(threads.to_vec());
        self.on_settled.clone()
    }

    fn sampled(&mut self, _: &[Sample], _: &Topology, _: &mut Random) -> Vec<PageOrder> {
        self.on_samples.clone()
    }

    fn shared(&mut self) -> Vec<(ProcessId, Sharing)> {
        let sharing = Sharing::of([(tid(1), tid(2), self.shared)]);
        vec![(pid(1), sharing)]
    }

    fn noticed(&mut self, notices: &[Notice], _: &Topology) -> Vec<PageOrder> {
        let mut heard = self.heard.lock().unwrap();
        heard.notices.extend_from_slice(notices);
        self.on_notices.clone()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let mut heard = self.heard.lock().unwrap();
        heard.outcomes.extend_from_slice(outcomes);
    }
}

/// A policy of a placement that does as told and leaves pages where they are.
pub fn policy(told: impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static) -> Policy {
    policy_with(told, ToldPaging::stay())
}

pub fn policy_with(
    told: impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static,
    paging: ToldPaging,
) -> Policy {
    Policy {
        name: "as-told".to_owned(),
        placement: Box::new(Told(told)),
        paging: Box::new(paging),
        new_pages: NewPages::FirstTouch,
    }
}

/// Moves every thread that is not there yet to CPU `to`.
pub fn everyone_to(to: u32) -> impl FnMut(&Snapshot) -> Vec<Placement> + Send + 'static {
    move |snapshot| {
        let elsewhere = |thread: &&Thread| thread.assigned != Some(CpuId(to));
        let threads = snapshot.threads.iter().filter(elsewhere);
        threads.map(|thread| place(thread, to)).collect()
    }
}
