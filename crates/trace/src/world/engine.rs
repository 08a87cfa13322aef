//! The engine: the core that is furthest behind runs until it is a quantum ahead of the next.
//!
//! Cores share caches, controllers and pages in the order in which they are run, so they are kept close together in
//! modelled time. A core that is alone, or whose fellows are all idle, runs to the end of the step.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use numaherd_topology::{CpuId, CpuSet};
use numaherd_world::{ProcessId, ThreadId};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::accesses::{Memory, Stop, Who};
use super::cores::CoreState;
use super::figures::Figures;
use super::machine::Hardware;
use super::options::{Options, SampleEvery, Start};
use super::pages::PageTable;
use super::scan::Scan;
use super::schedule::tick_ps;
use super::threads::{Process, Release, State, Thread};
use super::unit::Unit;
use crate::{Error, Trace};

/// Events that are played before a core's time is checked again.
const AT_A_TIME: usize = 32;

pub struct Engine {
    pub(super) hardware: Hardware,
    pub(super) memory: Memory,
    pub(super) cores: Vec<CoreState>,
    pub(super) threads: Vec<Thread>,
    pub(super) scan: Scan,
    pub(super) all_cpus: Arc<CpuSet>,
    /// The loop's time in ns.
    pub(super) clock_ns: u64,
    /// Modelled time in picoseconds up to which everything is played.
    pub(super) now_ps: u64,
    /// Loops that have begun.
    pub(super) loops: u32,
    /// The figures of the first loop; `None` while it lasts.
    pub(super) first_loop: Option<Box<Figures>>,
    /// In the first loop: the thread that last woke again a thread that it had made, and how often it had slept before.
    pub(super) release: Option<(usize, u64)>,
    pub(super) is_over: bool,
    /// When idle cores next look for work elsewhere.
    pub(super) next_tick_ps: u64,
    /// Threads that wait for a core, in all queues.
    pub(super) waiting: usize,
    /// Breaks ties in where threads begin.
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) done: Happened,
    quantum_ps: u64,
}

/// What has happened so far, besides what the hardware counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Happened {
    pub(super) thread_moves: u64,
    pub(super) pages_not_moved: u64,
    /// Sleeps that only someone outside the trace can have ended.
    pub(super) released: u64,
    /// Why threads' events broke off.
    pub(super) failures: Vec<String>,
}

impl Engine {
    /// A machine at the moment before its first thread begins.
    pub(super) fn new(hardware: Hardware, trace: &Trace, options: Options) -> Result<Self, Error> {
        options.check()?;
        let machine = hardware.build()?;
        let topology = &hardware.topology;
        let all_cpus: Arc<CpuSet> = Arc::new(topology.online_cpus());
        let (mut threads, processes) = named(trace, &all_cpus);
        if threads.is_empty() {
            return Err(Error::NoThreads);
        }
        check_start(&options, &hardware, threads.len())?;
        let unit = options
            .ipm
            .filter(|_| hardware.config.tlb.is_some())
            .map(|config| {
                Unit::new(
                    config,
                    &hardware.config,
                    processes.len(),
                    &mut threads,
                    options.races,
                )
            })
            .transpose()?;
        let pages = PageTable::new(hardware.page_bytes(), &hardware.spans(), processes.len());
        let random = Xoshiro256PlusPlus::seed_from_u64(options.seed);
        let mut of_pages = random.clone();
        // Skips 2^128 numbers, so that threads and pages never draw the same ones.
        of_pages.jump();
        let memory = Memory::new(
            machine, pages, unit, &options, &hardware, of_pages, processes,
        );
        let mut engine = Self {
            cores: (0..hardware.config.cores())
                .map(|core| CoreState::new(&memory.machine, core))
                .collect(),
            scan: Scan::new(&options, memory.processes.len()),
            quantum_ps: options.quantum_ns * 1000,
            loops: 0,
            first_loop: None,
            release: None,
            memory,
            threads,
            all_cpus,
            clock_ns: 0,
            now_ps: 0,
            is_over: false,
            next_tick_ps: tick_ps(&options),
            waiting: 0,
            random,
            done: Happened::default(),
            hardware,
        };
        engine.begin_loop();
        Ok(engine)
    }

    /// The present places of threads that have run and of pages that were touched.
    pub(super) fn placement(&self) -> Start {
        let cpus = self.hardware.topology.cpus();
        let has_run = |thread: &Thread| thread.was_born.then(|| cpus[thread.core].id);
        let pages = self.memory.pages.iter().map(|page| {
            let process = self.memory.processes[page.process as usize].id.pid;
            let node = self.memory.nodes[page.node as usize];
            ((process, page.number), node)
        });
        Start {
            cpus: self.threads.iter().map(has_run).collect(),
            nodes: pages.collect(),
        }
    }

    /// The pages, by process and page number, that samples or the IPM unit could have shown to a policy.
    pub(super) fn pages_seen(&self) -> HashSet<(u32, u64)> {
        let Memory { pages, unit, .. } = &self.memory;
        let is_seen = |place: usize| {
            let in_unit = unit
                .as_ref()
                .is_some_and(|unit| unit.knows(pages.tlb_page(place)));
            in_unit || pages.get(place).is_sampled
        };
        let seen = (0..pages.len()).filter(|&place| is_seen(place));
        seen.map(|place| {
            let page = pages.get(place);
            (
                self.memory.processes[page.process as usize].id.pid,
                page.number,
            )
        })
        .collect()
    }

    /// Advances by that much of the loop's time.
    pub(super) fn pass(&mut self, time: Duration) {
        let loop_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.clock_ns = self.clock_ns.saturating_add(loop_ns);
        let until_ps = self.memory.options.modelled_ps(self.clock_ns);
        while !self.is_over {
            match self.furthest_behind() {
                None => self.nobody_runs(),
                Some((_, time_ps, _)) if time_ps >= until_ps => break,
                Some((core, time_ps, next_ps)) => {
                    self.look_after_pages(time_ps);
                    if time_ps >= self.next_tick_ps {
                        self.balance(time_ps);
                    }
                    let ahead_ps = next_ps.saturating_add(self.quantum_ps);
                    self.run(core, ahead_ps.min(until_ps).min(self.next_due_ps()));
                }
            }
        }
        if !self.is_over {
            self.now_ps = until_ps;
        }
    }

    /// The busy core that is furthest behind, its time, and that of the next one.
    fn furthest_behind(&self) -> Option<(usize, u64, u64)> {
        let mut first = None;
        let mut next_ps = u64::MAX;
        for (at, core) in self.cores.iter().enumerate() {
            if core.running.is_none() {
                continue;
            }
            match first {
                Some((_, time_ps)) if core.time_ps >= time_ps => {
                    next_ps = next_ps.min(core.time_ps);
                }
                _ => {
                    if let Some((_, time_ps)) = first {
                        next_ps = time_ps;
                    }
                    first = Some((at, core.time_ps));
                }
            }
        }
        let (core, time_ps) = first?;
        Some((core, time_ps, next_ps))
    }

    /// When the kernel or the unit next has something to do; no core may run past that time by itself.
    fn next_due_ps(&self) -> u64 {
        let unit = self.memory.unit.as_ref();
        let pass_ps = unit.and_then(Unit::next_pass_ps).unwrap_or(u64::MAX);
        let tick_ps = if self.waiting > 0 {
            self.next_tick_ps
        } else {
            u64::MAX
        };
        pass_ps.min(tick_ps).min(self.scan.next_ps())
    }

    /// Does what the kernel and the unit do to pages from time to time.
    fn look_after_pages(&mut self, now_ps: u64) {
        let unit = self.memory.unit.as_ref();
        let next_pass_ps = unit.and_then(Unit::next_pass_ps);
        if next_pass_ps.is_some_and(|next| now_ps >= next) {
            for core in 0..self.cores.len() {
                self.may_forget(core, now_ps);
            }
            let (cores, threads) = (&self.cores, &self.threads);
            let thread_on = |node: usize| -> Option<ThreadId> {
                let there = cores.iter().filter(|core| core.node == node);
                let thread = there.filter_map(|core| core.running.or(core.last)).next()?;
                Some(threads[thread].id)
            };
            self.memory.pass(now_ps, thread_on);
        }
        if self.scan.is_due(now_ps) {
            self.scan_pages(now_ps);
        }
    }

    /// Runs a core until that time.
    fn run(&mut self, at: usize, until_ps: u64) {
        while let Some(number) = self.cores[at].running {
            let who = self.who(number, at);
            if self.run_thread(at, number, &who, until_ps) {
                return;
            }
        }
    }

    /// Runs a thread on its core until that time, or until it leaves the core. Returns whether it is another core's
    /// turn.
    fn run_thread(&mut self, at: usize, number: usize, who: &Who, until_ps: u64) -> bool {
        let core = &mut self.cores[at];
        let thread = &mut self.threads[number];
        let (began_ps, began) = (core.time_ps, core.executed);
        let counts = core.core.counts();
        let lines = (counts.dram_local, counts.dram_remote);
        let requested = (counts.uncore_requests(), core.core.outstanding_ps());
        let by_accesses = matches!(self.memory.options.sample_every, SampleEvery::Accesses(_));
        let left = loop {
            let next = thread.next();
            if next.is_empty() {
                match thread.fetch() {
                    Ok(true) => continue,
                    Ok(false) => break Some(Stop::Over),
                    Err(error) => {
                        let name = &thread.name;
                        self.done
                            .failures
                            .push(format!("events of thread {number} ({name}) end: {error}"));
                        break Some(Stop::Over);
                    }
                }
            }
            let mut most = AT_A_TIME.min(next.len());
            if by_accesses {
                most = most.min(usize::try_from(thread.until_sample).unwrap_or(most));
            }
            let played = self.memory.play(core, who, &next[..most]);
            let time_ps = core.tell_time();
            let counted = if by_accesses {
                played.events as u64
            } else {
                u64::from(played.fetched.is_some())
            };
            if counted >= thread.until_sample {
                let last = &next[played.events - 1];
                self.memory.memory_sample(core, who, last, played.fetched);
                thread.until_sample = self.memory.options.sample_every.every();
            } else {
                thread.until_sample -= counted;
            }
            thread.happened(played.events);
            if played.stop != Stop::Over {
                break Some(played.stop);
            }
            let is_expired = time_ps >= core.slice_end_ps && !core.queue.is_empty();
            if time_ps >= until_ps || is_expired {
                break None;
            }
        };
        let core = &mut self.cores[at];
        let thread = &mut self.threads[number];
        let time_ps = core.tell_time();
        let counts = core.core.counts();
        thread.done.instructions += core.executed - began;
        thread.executed += core.executed - began;
        thread.done.busy_ps += time_ps - began_ps;
        thread.done.local += counts.dram_local - lines.0;
        thread.done.remote += counts.dram_remote - lines.1;
        thread.done.requests += counts.uncore_requests() - requested.0;
        thread.done.requested_ps += core.core.outstanding_ps() - requested.1;
        match left {
            Some(Stop::Over) => self.ends(number),
            Some(Stop::Sleep) => self.sleeps(number),
            Some(Stop::Wake(woken)) => {
                self.wakes(number, woken, time_ps);
                // Another core may have work now, and be behind.
                return true;
            }
            None => self.may_give_way(at),
        }
        self.cores[at].time_ps >= until_ps
    }

    pub(super) fn who(&self, number: usize, core: usize) -> Who {
        let thread = &self.threads[number];
        Who {
            thread: thread.id,
            process: self.memory.processes[thread.process as usize].id,
            place: thread.process,
            core,
            cpu: self.cpu(core),
        }
    }

    pub(super) fn cpu(&self, core: usize) -> CpuId {
        self.hardware.topology.cpus()[core].id
    }

    /// Begins a loop: the threads that nobody has to make begin at once.
    ///
    /// From the second loop on, only the workers begin again, all at once. The threads that did next to nothing (they
    /// made the others and waited) do not, since that would look like a program that starts; their wakes come at once.
    /// If such a maker woke all workers again after it had made them (when they had set up), the workers begin from
    /// there.
    pub(super) fn begin_loop(&mut self) {
        self.loops += 1;
        let releases = self.releases();
        let executed: Vec<u64> = self.threads.iter().map(|thread| thread.executed).collect();
        let least = executed.iter().max().copied().unwrap_or(0) / 100;
        let is_idle = |thread: usize| match releases.get(thread) {
            Some(release) => release.is_none(),
            None => executed[thread] < least,
        };
        for number in 0..self.threads.len() {
            if is_idle(number) {
                continue;
            }
            let thread = &mut self.threads[number];
            let release = releases.get(number).and_then(Option::as_ref);
            let begun = match release {
                Some(release) => thread.rewind_to(release),
                None => {
                    thread.rewind();
                    thread.fetch()
                }
            };
            let has_events = begun.unwrap_or_else(|error| {
                self.done.failures.push(error.to_string());
                false
            });
            if !has_events {
                thread.state = State::Ended;
                thread.ended_ps = self.now_ps;
            } else if number == 0 || thread.begins_asleep() || thread.was_born {
                if thread.was_born {
                    let others = releases.iter().flatten();
                    let woken = others.map(|other| other.woke(number)).sum();
                    thread.goes_round(release, woken, self.now_ps, is_idle);
                }
                self.is_born(number, self.now_ps);
            }
        }
    }

    /// Where each worker was when the thread that had made the workers released them after set-up. Workers are the
    /// threads that have done something since; the maker is not among them. Empty if there was no such release.
    pub(super) fn releases(&self) -> Vec<Option<Release>> {
        let Some((maker, turn)) = self.release else {
            return Vec::new();
        };
        let since = |thread: &Thread| thread.executed - thread.executed_before_release;
        let most = self.threads.iter().map(since).max().unwrap_or(0);
        let works = |thread: &Thread| since(thread) > most / 100;
        let is_released = |number: usize| {
            let release = self.threads[number].release.as_ref();
            let is_with_others = release.is_some_and(|release| release.turn == turn);
            is_with_others && self.maker(number) == Some(maker)
        };
        let release = |thread: &Thread| thread.release.clone().filter(|_| works(thread));
        let mut workers = (0..self.threads.len()).filter(|&number| works(&self.threads[number]));
        match most > 0 && workers.all(is_released) {
            true => self.threads.iter().map(release).collect(),
            false => Vec::new(),
        }
    }

    /// Begins the next loop if there is one; otherwise ends the run.
    pub(super) fn next_loop(&mut self) {
        let ended = self.threads.iter().map(|thread| thread.ended_ps).max();
        self.now_ps = self.now_ps.max(ended.unwrap_or(0));
        if self.first_loop.is_none() {
            self.first_loop = Some(Box::new(self.figures()));
        }
        match self.goes_round() {
            true => self.begin_loop(),
            false => self.is_over = true,
        }
    }

    /// Whether another loop comes after this one.
    pub(super) fn goes_round(&self) -> bool {
        let options = &self.memory.options;
        let is_again = |first: &Figures| {
            let again_ps = options.modelled_ps(options.again_ms * 1_000_000);
            (self.now_ps as f64 * 1e-12 - first.seconds) < again_ps as f64 * 1e-12
        };
        let is_again = self
            .first_loop
            .as_deref()
            .map_or(options.again_ms > 0, is_again);
        self.loops < options.loops || is_again
    }

    /// The figures of all loops after the first; `None` while the first lasts.
    pub(super) fn figures_again(&mut self) -> Option<Figures> {
        let now = self.figures();
        Some(now.since(self.first_loop.as_deref()?))
    }

    /// Tells the page table of all accesses so far.
    pub(super) fn count_accesses(&mut self) {
        for core in &mut self.cores {
            core.recount(&mut self.memory.pages);
        }
    }
}

impl SampleEvery {
    pub(super) fn every(self) -> u64 {
        match self {
            Self::Accesses(every) | Self::LlcMisses(every) => every,
        }
    }
}

/// The threads of a trace, and their processes in the order of their first threads.
fn named(trace: &Trace, all_cpus: &Arc<CpuSet>) -> (Vec<Thread>, Vec<Process>) {
    let mut places = BTreeMap::new();
    let mut processes: Vec<Process> = Vec::new();
    let table = trace.threads().iter().zip(trace.all_threads());
    let threads = table.enumerate().map(|(number, (info, reader))| {
        let place = *places.entry(info.process).or_insert_with(|| {
            processes.push(Process {
                id: ProcessId {
                    pid: info.process,
                    born: 0,
                },
                name: info.name.clone(),
            });
            (processes.len() - 1) as u32
        });
        let id = ThreadId {
            tid: info.tid,
            // Distinguishes threads where a number was used twice.
            born: number as u64,
        };
        Thread::new(id, info.name.clone(), place, all_cpus.clone(), reader)
    });
    let threads = threads.collect();
    (threads, processes)
}

fn check_start(options: &Options, hardware: &Hardware, threads: usize) -> Result<(), Error> {
    let (start, topology) = (&options.start, &hardware.topology);
    if start.cpus.len() > threads {
        let given = start.cpus.len();
        return Err(Error::StartThreads { given, threads });
    }
    let machine = || topology.name().to_owned();
    let unknown = |cpu: &CpuId| topology.cpu(*cpu).is_none();
    if let Some(&cpu) = start.cpus.iter().flatten().find(|cpu| unknown(cpu)) {
        return Err(Error::StartCpu {
            cpu,
            machine: machine(),
        });
    }
    let with_memory = topology.memory_nodes();
    let mut nodes = start.nodes.values();
    match nodes.find(|&&node| !with_memory.contains(node)) {
        Some(&node) => Err(Error::StartNode {
            node,
            machine: machine(),
        }),
        None => Ok(()),
    }
}
