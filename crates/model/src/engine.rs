//! The machine at work: processes, threads, pages and time, from event to event.
//!
//! Between two events nothing changes: every thread runs at the speed that [`numaherd_contention`] found. Events are
//! the end of a phase, a program, a pause or a copy of pages; the start of a job; what the modelled kernel does by
//! itself (scans, ticks, wake-ups elsewhere); new draws of intensities; and moves of threads and pages from outside. An
//! epoch is the time between two events; a thread that sleeps now and then is counted with the share of the time that
//! it wants a CPU.
//!
//! Moves have costs. A thread that moves to another memory domain finds none of its lines in the cache there. It loses
//! the time to fetch what it held, with as many lines in flight as usual. Its requests to the uncore are counted, but
//! the lines are not counted as misses, so that miss rates stay those of the profile. Each page that moves takes
//! [`Options::page_move_ns`], which the thread that it is moved for loses: the mover needs a CPU, and the process waits
//! for its page tables. Moves also take bandwidth from other threads (`copy`), unless
//! [`Options::page_moves_disturb`] is false.

mod balancing;
mod copy;
mod joint;
mod orders;
mod scheduling;
mod sharing;
mod speeds;
mod start;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use numaherd_contention::{Curve, Solution, Speed};
use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{ProcessId, Tag, ThreadId};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use self::balancing::Balancing;
use crate::hardware::Hardware;
use crate::job::{Completion, Job, Placement, Until, Work};
use crate::kernel::Loads;
use crate::memory::Memory;
use crate::program::Phase;
use crate::world::Options;

/// Bytes of a base page.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The number of the first process.
const FIRST_PID: u32 = 1000;
const SECOND_NS: f64 = 1e9;
/// A process that runs.
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    pub(crate) job: usize,
    pub(crate) memory: Memory,
    started_ns: f64,
    threads_left: u32,
    /// Sum of the run times of its threads that have ended.
    ran_ns: f64,
}

/// A thread that runs.
pub(crate) struct Thread {
    pub(crate) id: ThreadId,
    pub(crate) process: ProcessId,
    pub(crate) job: usize,
    /// Its index among its process's threads.
    pub(crate) index: usize,
    pub(crate) cpu: CpuId,
    pub(crate) affinity: Arc<CpuSet>,
    pub(crate) assigned: Option<CpuId>,
    pub(crate) bound_by_user: bool,
    pub(crate) tag: Option<Tag>,
    phase: usize,
    /// Instructions of the phase that are left.
    left: f64,
    /// Time that it must still wait before it continues.
    pause_ns: f64,
    /// The part of the pause in which it fetches lines again after a move.
    refill: Refill,
    /// Pages that are moved for it, before it continues.
    copies: VecDeque<Copying>,
    /// How many of these pages it copies per ns.
    copied: f64,
    /// The nodes that its lines come from, each with its share of them.
    memory: Vec<(usize, f64)>,
    /// How much more or less than its profile it asks for just now, 1 on average.
    pub(crate) intensity: f64,
    /// Its speed, as found last.
    pub(crate) speed: Speed,
    /// Bytes that it holds of its cache, also while it goes over a shared area and uses none of them.
    held_bytes: f64,
    /// Share of the time that it has a CPU, 0 to 1.
    share: f64,
    /// The share of that time in which it waits for its gang.
    idle: f64,
    /// Instructions per ns, waiting for a CPU or for its gang included.
    pace: f64,
    pub(crate) seen: Seen,
}

/// Pages on the way from one node to another.
#[derive(Clone, Copy, Debug)]
struct Copying {
    from: usize,
    to: usize,
    pages: f64,
}

/// What a thread that has moved must still fetch again.
#[derive(Clone, Copy, Debug, Default)]
struct Refill {
    left_ns: f64,
    /// Time for one line.
    line_ns: f64,
}

impl Refill {
    /// Fetches for at most `ns`; returns the time that it took and the number of lines that came.
    fn pass(&mut self, ns: f64) -> (f64, f64) {
        let passed = self.left_ns.min(ns);
        self.left_ns -= passed;
        if passed > 0.0 {
            (passed, passed / self.line_ns)
        } else {
            (0.0, 0.0)
        }
    }
}

/// What a thread has done since it was last observed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) instructions: f64,
    pub(crate) busy_ns: f64,
    pub(crate) lines: f64,
    pub(crate) remote_lines: f64,
    pub(crate) waited_ns: f64,
    pub(crate) requests: f64,
    pub(crate) requested_ns: f64,
}

/// How often a job has run, and what it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    runs: u32,
    running: bool,
    pub(crate) work: Work,
}

/// The machine at work.
pub struct Engine {
    pub(crate) hardware: Hardware,
    pub(crate) jobs: Vec<Job>,
    until: Until,
    pub(crate) options: Options,
    random: Xoshiro256PlusPlus,
    pub(crate) now_ns: f64,
    pub(crate) progress: Vec<Progress>,
    pub(crate) processes: BTreeMap<ProcessId, Process>,
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    next_pid: u32,
    pub(crate) used_pages: Vec<u64>,
    /// All CPUs, which no cpuset of this machine narrows.
    pub(crate) all_cpus: Arc<CpuSet>,
    /// The jobs that leave the placement of their memory to the kernel.
    left_to_kernel: Vec<usize>,
    /// The lines of a page that is copied; cache does not reduce them.
    page_lines: Curve,
    solution: Solution,
    /// Something changed since the solution was found.
    stale: bool,
    pub(crate) completions: Vec<Completion>,
    next_variation_ns: f64,
    next_wander_ns: f64,
    next_tick_ns: f64,
    balancing: Balancing,
}

impl Engine {
    pub(crate) fn new(hardware: Hardware, jobs: Vec<Job>, until: Until, options: Options) -> Self {
        let nodes = hardware.figures.nodes;
        let all_cpus = Arc::new(hardware.topology().online_cpus());
        let left = |&job: &usize| jobs[job].memory == Placement::FirstTouch;
        let mut engine = Self {
            left_to_kernel: (0..jobs.len()).filter(left).collect(),
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
            page_lines: copy::page_lines(),
            solution: Solution::default(),
            stale: true,
            completions: Vec::new(),
            next_variation_ns: SECOND_NS,
            next_wander_ns: f64::INFINITY,
            next_tick_ns: f64::INFINITY,
            balancing: Balancing::default(),
        };
        engine.plan_wandering();
        engine
    }

    /// Sets the rule that places the memory of processes that start from now on, for jobs that leave it to the kernel.
    pub(crate) fn place_new_memory(&mut self, rule: &Placement) {
        for &job in &self.left_to_kernel {
            self.jobs[job].memory = rule.clone();
        }
    }

    /// The phase that a thread is in.
    pub(crate) fn phase(&self, thread: &Thread) -> &Phase {
        &self.jobs[thread.job].program.phases[thread.phase]
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

    /// Advances time by `interval_ns`, or until the run is over.
    pub(crate) fn advance(&mut self, interval_ns: f64) {
        let end = self.now_ns + interval_ns;
        loop {
            self.start_jobs();
            self.scan_processes();
            if self.is_over() || self.now_ns >= end {
                return;
            }
            self.settle();
            let next = self.next_event(end);
            self.pass(next - self.now_ns);
            self.now_ns = next;
            self.finish_copies();
            self.finish_phases();
            self.vary();
            self.wander();
            self.tick();
        }
    }

    /// Starts the jobs whose time has come, in their order.
    fn start_jobs(&mut self) {
        let due = |(job, progress): (&Job, &Progress)| {
            !progress.running && job.starts_after.as_nanos() as f64 <= self.now_ns
        };
        let jobs = self.jobs.iter().zip(&self.progress).map(due);
        let due: Vec<usize> = jobs
            .enumerate()
            .filter_map(|(at, due)| due.then_some(at))
            .collect();
        if due.is_empty() {
            return;
        }
        let mut loads = self.loads();
        for job in due {
            self.start(job, &mut loads);
        }
    }

    fn loads(&self) -> Loads {
        let mut loads = Loads::new(self.hardware.topology());
        for thread in self.threads.values() {
            loads.add(thread.cpu, self.phase(thread).busy);
        }
        loads
    }

    fn next_event(&self, end: f64) -> f64 {
        let gangs = self.gang_pauses();
        let ends = self.threads.values().map(|thread| {
            let gang = self.jobs[thread.job].gang.and_then(|gang| gangs.get(&gang));
            match thread.copies.front() {
                Some(copying) => copying.pages / thread.copied,
                None => gang.unwrap_or(&thread.pause_ns) + thread.left / thread.pace,
            }
        });
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
            .min(self.next_wander_ns)
            .min(self.next_tick_ns)
            .min(self.next_scan_ns().max(self.now_ns + 1.0))
            .min(end)
    }

    /// Lets time pass in which nothing changes.
    fn pass(&mut self, ns: f64) {
        let gangs = self.gang_pauses();
        for thread in self.threads.values_mut() {
            if let Some(copying) = thread.copies.front_mut() {
                copying.pages -= thread.copied * ns;
                thread.seen.busy_ns += thread.share * ns;
                continue;
            }
            let own = thread.pause_ns.min(ns);
            thread.pause_ns -= own;
            let (refilled_ns, refilled) = thread.refill.pass(own);
            let gang = self.jobs[thread.job].gang.and_then(|gang| gangs.get(&gang));
            let paused = gang.map_or(own, |&pause| pause.min(ns));
            let instructions = (thread.pace * (ns - paused)).min(thread.left);
            thread.left -= instructions;
            let lines = instructions * thread.speed.lines / 1000.0;
            let remote_lines = instructions * thread.speed.remote_lines / 1000.0;
            thread.seen.instructions += instructions;
            thread.seen.busy_ns += thread.share * ns;
            thread.seen.lines += lines;
            thread.seen.remote_lines += remote_lines;
            let thousands = instructions / 1000.0;
            let requests = thousands * thread.speed.requests + refilled;
            let requested_ns = thousands * thread.speed.requested_ns + refilled_ns;
            thread.seen.requests += requests;
            thread.seen.requested_ns += requested_ns;
            let work = &mut self.progress[thread.job].work;
            work.instructions += instructions;
            work.lines += lines;
            work.remote_lines += remote_lines;
            work.requests += requests;
            work.requested_ns += requested_ns;
            let busy = self.jobs[thread.job].program.phases[thread.phase].busy;
            work.active_s += busy * ns / SECOND_NS;
            thread.seen.waited_ns += (busy - thread.share).max(0.0) * ns;
        }
    }

    /// How long each gang must still wait for the member that pauses longest.
    fn gang_pauses(&self) -> BTreeMap<u32, f64> {
        let mut pauses = BTreeMap::new();
        for thread in self.threads.values() {
            if let Some(gang) = self.jobs[thread.job].gang {
                let longest: &mut f64 = pauses.entry(gang).or_default();
                *longest = longest.max(thread.pause_ns);
            }
        }
        pauses
    }

    /// Moves each thread that has finished its phase to the next phase, or ends it.
    fn finish_phases(&mut self) {
        // Less than one instruction is rounding.
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
        process.ran_ns += self.now_ns - process.started_ns;
        if process.threads_left > 0 {
            return;
        }
        let process = self.processes.remove(&thread.process).expect("its process");
        for (used, pages) in self
            .used_pages
            .iter_mut()
            .zip(process.memory.by_node(self.hardware.figures.nodes))
        {
            *used -= pages;
        }
        let progress = &mut self.progress[thread.job];
        self.completions.push(Completion {
            job: thread.job,
            run: progress.runs,
            started_s: process.started_ns / SECOND_NS,
            ended_s: self.now_ns / SECOND_NS,
            thread_s: process.ran_ns / f64::from(self.jobs[thread.job].program.threads) / SECOND_NS,
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
