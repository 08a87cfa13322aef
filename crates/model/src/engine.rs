//! The machine at work: processes, threads, pages and time, from event to event.
//!
//! Between two events nothing changes: every thread goes on at the speed that [`crate::solve`] found.
//! Events are the end of a phase, of a program or of a pause, the start of a job, and what is done
//! from outside (threads and pages moved). An epoch is the time between two of them; a thread that
//! sleeps now and then is counted with the share of the time that it wants a CPU.
//!
//! What moves cost. A thread that comes to another memory domain finds none of its lines in the
//! cache: it loses the time to fetch what it held, at its lines in flight. Pages take
//! [`Options::page_move_ns`] each, which the thread they are moved for loses: the mover needs a CPU,
//! and the process waits for its page tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{AffinityOrder, AffinityResult, PageOrder, PageOutcome, ProcessId, ThreadId};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::hardware::{Hardware, LINE_BYTES};
use crate::job::{Binding, Completion, Job, Placement, Until, Work};
use crate::kernel::Loads;
use crate::memory::Memory;
use crate::program::Phase;
use crate::solve::{Factors, Running, Solution, Speed, solve};
use crate::steady::alone;
use crate::world::Options;

/// Bytes of a base page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The first process's number.
const FIRST_PID: u32 = 1000;
const SECOND_NS: f64 = 1e9;

/// A process that runs.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) job: usize,
    pub(crate) memory: Memory,
    started_ns: f64,
    threads_left: u32,
}

/// A thread that runs.
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    pub(crate) process: ProcessId,
    pub(crate) job: usize,
    /// Which of its process's threads.
    pub(crate) index: usize,
    pub(crate) cpu: CpuId,
    pub(crate) affinity: Arc<CpuSet>,
    pub(crate) assigned: Option<CpuId>,
    pub(crate) bound_by_user: bool,
    phase: usize,
    /// Instructions of the phase that are left.
    left: f64,
    /// Time that it must still wait before it goes on.
    pause_ns: f64,
    /// Where its lines come from.
    memory: Vec<(usize, f64)>,
    /// How much more or less than its profile it asks for just now, 1 on average.
    pub(crate) intensity: f64,
    /// How it goes on, as found last.
    pub(crate) speed: Speed,
    /// Share of the time that it has a CPU.
    share: f64,
    /// Instructions per ns, waiting for a CPU or for its gang included.
    pace: f64,
    pub(crate) seen: Seen,
}

/// What a thread has done since it was last looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) instructions: f64,
    pub(crate) busy_ns: f64,
    pub(crate) lines: f64,
    pub(crate) remote_lines: f64,
}

/// How often a job has run, and what it did.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    runs: u32,
    running: bool,
    work: Work,
}

/// See the top of this file.
pub(crate) struct Engine {
    pub(crate) hardware: Hardware,
    jobs: Vec<Job>,
    until: Until,
    options: Options,
    random: Xoshiro256PlusPlus,
    pub(crate) now_ns: f64,
    progress: Vec<Progress>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    next_pid: u32,
    pub(crate) used_pages: Vec<u64>,
    all_cpus: Arc<CpuSet>,
    solution: Solution,
    /// Something changed since the solution was found.
    stale: bool,
    completions: Vec<Completion>,
    next_variation_ns: f64,
    pub(crate) epochs: u64,
}

impl Engine {
    pub(crate) fn new(hardware: Hardware, jobs: Vec<Job>, until: Until, options: Options) -> Self {
        let nodes = hardware.nodes();
        let all_cpus = Arc::new(hardware.topology().online_cpus());
        Self {
            random: Xoshiro256PlusPlus::seed_from_u64(options.seed),
            progress: vec![Progress::default(); jobs.len()],
            hardware,
            jobs,
            until,
            options,
            now_ns: 0.0,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            next_pid: FIRST_PID,
            used_pages: vec![0; nodes],
            all_cpus,
            solution: Solution::default(),
            stale: true,
            completions: Vec::new(),
            next_variation_ns: SECOND_NS,
            epochs: 0,
        }
    }

    pub(crate) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    pub(crate) fn completions(&self) -> &[Completion] {
        &self.completions
    }

    pub(crate) fn work(&self, job: usize) -> Work {
        self.progress[job].work
    }

    pub(crate) fn solution(&mut self) -> &Solution {
        self.settle();
        &self.solution
    }

    /// The phase that a thread is in.
    pub(crate) fn phase(&self, thread: &Thread) -> &Phase {
        &self.jobs[thread.job].program.phases[thread.phase]
    }

    /// All CPUs, which no cpuset of this machine narrows.
    pub(crate) fn all_cpus(&self) -> &Arc<CpuSet> {
        &self.all_cpus
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        match self.until {
            Until::Time(time) => self.now_ns >= time.as_nanos() as f64,
            Until::Completions(each) => {
                let mut measured = self.jobs.iter().zip(&self.progress);
                measured.all(|(job, progress)| !job.measured || progress.runs >= each)
            }
        }
    }

    /// Goes on for so many ns, or until the run is over.
    pub(crate) fn advance(&mut self, interval_ns: f64) {
        let end = self.now_ns + interval_ns;
        loop {
            self.start_jobs();
            if self.is_over() || self.now_ns >= end {
                return;
            }
            self.settle();
            let next = self.next_event(end);
            self.pass(next - self.now_ns);
            self.now_ns = next;
            self.finish_phases();
            self.vary();
        }
    }

    /// Starts the jobs whose time has come, in their order.
    fn start_jobs(&mut self) {
        for job in 0..self.jobs.len() {
            let due = self.jobs[job].starts_after.as_nanos() as f64 <= self.now_ns;
            if due && !self.progress[job].running {
                self.start(job);
            }
        }
    }

    fn start(&mut self, at: usize) {
        let job = self.jobs[at].clone();
        let born = (self.now_ns / 1e7) as u64;
        let id = ProcessId {
            pid: self.next_pid,
            born,
        };
        let mut loads = self.loads();
        let mut cpus = Vec::new();
        for thread in 0..job.program.threads as usize {
            let (mask, bound) = match &job.binding {
                Binding::Free | Binding::StartOn(_) => (self.all_cpus.clone(), false),
                Binding::Within(cpus) => (Arc::new(cpus.clone()), true),
                Binding::Each(cpus) => {
                    let cpu = cpus[thread % cpus.len()];
                    (Arc::new([cpu].into_iter().collect()), true)
                }
            };
            let cpu = match &job.binding {
                Binding::StartOn(cpus) => cpus[thread % cpus.len()],
                _ => loads.idlest(&mask, &mut self.random),
            };
            loads.add(cpu, job.program.phases[0].busy);
            cpus.push((cpu, mask, bound));
        }
        let memory = self.first_touch(&job, &cpus);
        for (index, (cpu, affinity, bound_by_user)) in cpus.into_iter().enumerate() {
            let thread = Thread {
                id: ThreadId {
                    tid: self.next_pid,
                    born,
                },
                process: id,
                job: at,
                index,
                cpu,
                affinity,
                assigned: None,
                bound_by_user,
                phase: 0,
                left: job.program.phases[0].instructions,
                pause_ns: 0.0,
                memory: memory.answered_by(index, self.hardware.nodes()),
                intensity: 1.0,
                speed: Speed::default(),
                share: 0.0,
                pace: 0.0,
                seen: Seen::default(),
            };
            self.next_pid += 1;
            self.threads.insert(thread.id, thread);
        }
        let process = Process {
            id,
            job: at,
            memory,
            started_ns: self.now_ns,
            threads_left: job.program.threads,
        };
        self.processes.insert(id, process);
        self.progress[at].running = true;
        self.stale = true;
    }

    /// The pages of a process that starts with its threads on these CPUs.
    fn first_touch(&mut self, job: &Job, cpus: &[(CpuId, Arc<CpuSet>, bool)]) -> Memory {
        let hardware = &self.hardware;
        let used = &mut self.used_pages;
        let nodes = hardware.topology().nodes();
        let room = |used: &[u64], node: usize| {
            (nodes[node].memory_bytes / PAGE_BYTES).saturating_sub(used[node])
        };
        let with_memory: Vec<usize> = (0..nodes.len())
            .filter(|&node| nodes[node].memory_bytes > 0)
            .collect();
        let node_of = |thread: Option<usize>| hardware.seat(cpus[thread.unwrap_or(0)].0).node;
        Memory::new(&job.program, PAGE_BYTES, |thread, pages| {
            let mut parts: Vec<(usize, u64)> = Vec::new();
            let wanted: Vec<(usize, u64)> = match &job.memory {
                Placement::FirstTouch => vec![(node_of(thread), pages)],
                Placement::On(node) => vec![(hardware.place(*node), pages)],
                Placement::Interleave => {
                    let among = with_memory.len() as u64;
                    let each = |at: u64| pages * (at + 1) / among - pages * at / among;
                    let places = with_memory.iter().zip(0..);
                    places.map(|(&node, at)| (node, each(at))).collect()
                }
            };
            for (node, mut left) in wanted {
                let mut by_distance = with_memory.clone();
                by_distance.sort_by(|&a, &b| {
                    let far = |to: usize| hardware.latency_ns(node, to);
                    (a != node, far(a))
                        .partial_cmp(&(b != node, far(b)))
                        .expect("figures")
                });
                for to in by_distance {
                    let fits = left.min(room(used, to));
                    used[to] += fits;
                    left -= fits;
                    if fits > 0 {
                        parts.push((to, fits));
                    }
                }
                // More memory than the machine has is checked for before a run begins.
                if left > 0 {
                    used[node] += left;
                    parts.push((node, left));
                }
            }
            parts
        })
    }

    fn loads(&self) -> Loads {
        let mut loads = Loads::new(self.hardware.topology());
        for thread in self.threads.values() {
            loads.add(thread.cpu, self.phase(thread).busy);
        }
        loads
    }

    /// Balances, and finds the speeds anew if anything changed.
    fn settle(&mut self) {
        if !self.stale {
            return;
        }
        self.stale = false;
        self.epochs += 1;
        let loads = self.balance();
        let gangs = self.gangs();
        let mut idle = vec![0.0; self.threads.len()];
        // Waiting for the slowest of a gang asks for no lines: found in a few rounds.
        let rounds = if gangs.is_empty() { 1 } else { 4 };
        for _ in 0..rounds {
            let mut solution = std::mem::take(&mut self.solution);
            let running = self.running(&loads, &idle, |thread| thread.cpu);
            solve(&self.hardware, &running, Factors::ALL, &mut solution);
            let shares: Vec<f64> = running.iter().map(|running| running.cpu_share).collect();
            self.solution = solution;
            let found = self.solution.speeds.iter().zip(shares);
            for (thread, (&speed, share)) in self.threads.values_mut().zip(found) {
                thread.speed = speed;
                thread.share = share;
                thread.pace = 1000.0 / speed.ns * share;
            }
            let mut threads: Vec<&mut Thread> = self.threads.values_mut().collect();
            for gang in &gangs {
                // Without waiting, how fast would each go; the slowest sets the pace.
                let free = |at: usize, idle: &[f64]| threads[at].pace / (1.0 - idle[at]);
                let paces = gang.iter().map(|&at| free(at, &idle));
                let slowest = paces.fold(f64::INFINITY, f64::min);
                for &at in gang {
                    idle[at] = 1.0 - slowest / free(at, &idle);
                }
                for &at in gang {
                    threads[at].pace = slowest;
                }
            }
        }
        // Who waits for its gang waits busily.
        for at in gangs.into_iter().flatten() {
            let thread = self.threads.values_mut().nth(at).expect("one of the gang");
            thread.share /= 1.0 - idle[at];
        }
    }

    /// The threads as the solver wants them, in the order of `threads`, each on the CPU that `cpu`
    /// gives; `idle` is the share of its time that each waits for its gang.
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
                let cpu = cpu(thread);
                Running {
                    phase,
                    seat: self.hardware.seat(cpu),
                    cpu_share: loads.share(cpu, phase.busy) * (1.0 - idle),
                    intensity: thread.intensity,
                    memory: thread.memory.clone(),
                    transfers: self.transfers(thread),
                }
            })
            .collect()
    }

    /// See [`crate::Foresight::slowdown`].
    pub(crate) fn slowdown(&self, layout: &[(ThreadId, CpuId)]) -> Option<f64> {
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
        let running = self.running(&loads, &idle, |thread| to[&thread.id]);
        let mut solution = Solution::default();
        solve(&self.hardware, &running, Factors::ALL, &mut solution);
        let slowdowns = self.threads.values().zip(&running).zip(&solution.speeds);
        let sum: f64 = slowdowns
            .map(|((thread, running), speed)| {
                let solo = alone(&self.hardware, running.phase, thread.cpu).ns;
                speed.ns / solo * running.phase.busy / running.cpu_share
            })
            .sum();
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

    /// Lines per 1000 instructions that come from other domains' caches, by their node.
    fn transfers(&self, thread: &Thread) -> Vec<(usize, f64)> {
        let program = &self.jobs[thread.job].program;
        if program.shared_written == 0.0 || program.threads == 1 {
            return Vec::new();
        }
        let own = self.hardware.seat(thread.cpu);
        let process = &self.processes[&thread.process];
        let first = process.id.pid;
        let tids = first..first + program.threads;
        let mut parts = vec![0.0; self.hardware.nodes()];
        let each = program.shared_written / f64::from(program.threads - 1);
        for tid in tids {
            let other = ThreadId {
                tid,
                born: process.id.born,
            };
            if let Some(other) = self.threads.get(&other) {
                let seat = self.hardware.seat(other.cpu);
                if seat.domain != own.domain {
                    parts[seat.node] += each;
                }
            }
        }
        let parts = parts.into_iter().enumerate();
        parts.filter(|&(_, lines)| lines > 0.0).collect()
    }

    /// Lets the kernel move threads that it finds badly balanced; gives the loads.
    fn balance(&mut self) -> Loads {
        let mut loads = self.loads();
        if !loads.is_lopsided() {
            return loads;
        }
        let ids: Vec<ThreadId> = self.threads.keys().copied().collect();
        for id in ids {
            let thread = &self.threads[&id];
            let load = self.phase(thread).busy;
            let to = loads.pulls(thread.cpu, load, &thread.affinity, &mut self.random);
            if let Some(to) = to {
                loads.add(thread.cpu, -load);
                loads.add(to, load);
                self.move_thread(id, to);
            }
        }
        loads
    }

    fn next_event(&self, end: f64) -> f64 {
        let ends = self.threads.values();
        let ends = ends.map(|thread| thread.pause_ns + thread.left / thread.pace);
        let first = ends.fold(f64::INFINITY, f64::min);
        let starts = self.jobs.iter().zip(&self.progress);
        let starts = starts.filter(|(_, progress)| !progress.running && progress.runs == 0);
        let starts = starts.map(|(job, _)| job.starts_after.as_nanos() as f64);
        let next_start = starts.fold(f64::INFINITY, f64::min);
        let over = match self.until {
            Until::Time(time) => time.as_nanos() as f64,
            Until::Completions(_) => f64::INFINITY,
        };
        let varies = if self.options.variation > 0.0 {
            self.next_variation_ns
        } else {
            f64::INFINITY
        };
        // At least one ns, so that rounding cannot stop the clock.
        (self.now_ns + first.max(1.0))
            .min(next_start)
            .min(over)
            .min(varies)
            .min(end)
    }

    /// Lets time pass in which nothing changes.
    fn pass(&mut self, ns: f64) {
        for thread in self.threads.values_mut() {
            let paused = thread.pause_ns.min(ns);
            thread.pause_ns -= paused;
            let instructions = (thread.pace * (ns - paused)).min(thread.left);
            thread.left -= instructions;
            let lines = instructions * thread.speed.lines / 1000.0;
            let remote_lines = instructions * thread.speed.remote_lines / 1000.0;
            thread.seen.instructions += instructions;
            thread.seen.busy_ns += thread.share * ns;
            thread.seen.lines += lines;
            thread.seen.remote_lines += remote_lines;
            let work = &mut self.progress[thread.job].work;
            work.instructions += instructions;
            work.lines += lines;
            work.remote_lines += remote_lines;
            let busy = self.jobs[thread.job].program.phases[thread.phase].busy;
            work.active_s += busy * ns / SECOND_NS;
        }
    }

    /// Goes on to the next phase, or ends, wherever the last instruction of one is done.
    fn finish_phases(&mut self) {
        // An instruction that is not whole is rounding.
        let done = |thread: &&Thread| thread.left < 1.0;
        let done: Vec<ThreadId> = self.threads.values().filter(done).map(|t| t.id).collect();
        for id in done {
            self.stale = true;
            let thread = self.threads.get_mut(&id).expect("found just now");
            let program = &self.jobs[thread.job].program;
            thread.phase += 1;
            if thread.phase == program.phases.len() && program.repeat {
                thread.phase = 0;
            }
            if let Some(phase) = program.phases.get(thread.phase) {
                thread.left = phase.instructions;
            } else {
                self.end(id);
            }
        }
    }

    /// Ends a thread, and with the last its process.
    fn end(&mut self, id: ThreadId) {
        let thread = self.threads.remove(&id).expect("a thread that runs");
        let process = self
            .processes
            .get_mut(&thread.process)
            .expect("its process");
        process.threads_left -= 1;
        if process.threads_left > 0 {
            return;
        }
        let process = self.processes.remove(&thread.process).expect("its process");
        for (used, pages) in self
            .used_pages
            .iter_mut()
            .zip(process.memory.by_node(self.hardware.nodes()))
        {
            *used -= pages;
        }
        let progress = &mut self.progress[thread.job];
        self.completions.push(Completion {
            job: thread.job,
            run: progress.runs,
            started_s: process.started_ns / SECOND_NS,
            ended_s: self.now_ns / SECOND_NS,
        });
        progress.runs += 1;
        progress.running = false;
    }

    /// Draws each thread's intensity anew, once a second.
    fn vary(&mut self) {
        if self.options.variation == 0.0 || self.now_ns < self.next_variation_ns {
            return;
        }
        self.next_variation_ns += SECOND_NS;
        for thread in self.threads.values_mut() {
            let drawn = normal(&mut self.random) * self.options.variation;
            thread.intensity = (1.0 + drawn).clamp(0.1, 1.9);
        }
        self.stale = true;
    }

    /// Puts a thread on a CPU; it pays for the lines that it left behind.
    fn move_thread(&mut self, id: ThreadId, to: CpuId) {
        let thread = self.threads.get_mut(&id).expect("a thread that runs");
        if thread.cpu == to {
            return;
        }
        let (from, there) = (self.hardware.seat(thread.cpu), self.hardware.seat(to));
        thread.cpu = to;
        self.stale = true;
        if from.domain != there.domain {
            let phase = &self.jobs[thread.job].program.phases[thread.phase];
            let in_flight = phase
                .misses_in_flight
                .min(self.hardware.in_flight())
                .max(1.0);
            thread.pause_ns +=
                thread.speed.held_bytes / LINE_BYTES * thread.speed.latency_ns / in_flight;
            self.progress[thread.job].work.thread_moves += 1;
        }
    }

    /// Carries out one affinity order.
    pub(crate) fn set_affinity(&mut self, order: &AffinityOrder) -> AffinityResult {
        let Some(thread) = self.threads.get_mut(&order.thread) else {
            return AffinityResult::Gone;
        };
        thread.affinity = order.cpus.clone();
        thread.assigned = order.core;
        let (cpu, allowed) = (thread.cpu, thread.affinity.clone());
        let to = match order.core {
            Some(core) if allowed.contains(core) => core,
            _ if allowed.contains(cpu) => cpu,
            _ => {
                let loads = self.loads();
                loads.idlest(&allowed, &mut self.random)
            }
        };
        self.move_thread(order.thread, to);
        self.stale = true;
        AffinityResult::Done
    }

    /// Carries out one page order.
    pub(crate) fn move_pages(&mut self, order: &PageOrder) -> PageOutcome {
        let mut outcome = PageOutcome {
            process: order.process,
            thread: order.thread,
            pages: order.pages,
            to: order.to,
            moved: 0,
            already_there: 0,
            failed: BTreeMap::new(),
            not_tried: 0,
            took_ns: 0,
            longest_batch_ns: 0,
            error: None,
        };
        let Some(to) = self.hardware.topology().node_index(order.to) else {
            outcome.error = Some(format!("there is no node {}", order.to));
            return outcome;
        };
        let Some(process) = self.processes.get_mut(&order.process) else {
            outcome.error = Some(format!("{} has ended", order.process));
            return outcome;
        };
        let bytes = self.hardware.topology().nodes()[to].memory_bytes;
        let room = (bytes / PAGE_BYTES).saturating_sub(self.used_pages[to]);
        let moved = process.memory.migrate(order.pages, to, room);
        outcome.moved = moved.pages();
        outcome.already_there = moved.already_there;
        let failed = [
            (numaherd_world::PageFailure::NodeFull, moved.no_room),
            (numaherd_world::PageFailure::NotThere, moved.not_there),
        ];
        outcome.failed = failed.into_iter().filter(|&(_, pages)| pages > 0).collect();
        if outcome.moved == 0 {
            return outcome;
        }
        let took_ns = outcome.moved as f64 * self.options.page_move_ns;
        outcome.took_ns = took_ns as u64;
        outcome.longest_batch_ns = outcome.took_ns;
        for &(from, pages) in &moved.from {
            self.used_pages[from] -= pages;
            self.used_pages[to] += pages;
        }
        let job = process.job;
        let nodes = self.hardware.nodes();
        for thread in self
            .threads
            .values_mut()
            .filter(|t| t.process == order.process)
        {
            thread.memory = process.memory.answered_by(thread.index, nodes);
        }
        if let Some(thread) = self.threads.get_mut(&order.thread) {
            thread.pause_ns += took_ns;
        }
        self.progress[job].work.pages_moved += outcome.moved;
        self.stale = true;
        outcome
    }

    /// Draws a thread's next access: its address, and the node that answers it.
    pub(crate) fn draw(&mut self, id: ThreadId) -> (u64, usize) {
        let thread = &self.threads[&id];
        let memory = &self.processes[&thread.process].memory;
        let (page, node) = memory.draw(thread.index, &mut self.random);
        let within = self.random.random_range(0..PAGE_BYTES);
        (page * PAGE_BYTES + within, node)
    }
}

/// A standard normal number (Box and Muller).
pub(crate) fn normal(random: &mut impl Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}
