//! Estimates: what threads demand of caches and memory, from their counters, and what a layout of them would lose.
//!
//! Problem: the contention model knows its programs; a live machine has counters. Rule: each thread's demands
//! are those under which the equations of contention ([`numaherd_contention`]) give, where the threads are now,
//! the speeds that were measured. The same equations then say how fast they would be elsewhere.
//!
//! *Lost cores* are what is minimised: the sum over threads of the CPU that each wants, less the part of it that
//! it would need alone on the machine, with a core and the last-level cache to itself and its memory local. Within a
//! domain the kernel spreads threads over its cores ([`Cores`]): what siblings cost follows from how many there are.
//!
//! From an interval's counts, with `T` ns on a CPU per 1000 instructions, `M` lines from memory, `q` requests and `B` ns
//! with any outstanding (BRM §3.1), `L` the mean latency of a line where the thread is, waits included:
//! * lines in flight `F = (M L + (q - M) L_llc) / B` (Little's law), at least 1;
//! * time without memory `T - M (L - L_llc) / F`. Where requests are not counted, `F` is 3, or as much as leaves a
//!   fifth of the time;
//! * where its lines come from: the local share is counted, the rest is distributed as its process's pages are on other
//!   nodes, or as was known where the thread was before, for as long as the local share agrees with that (`known.rs`);
//! * the cache that it has: what it brought in within a time that is the same for all threads that share the cache;
//! * lines against cache: the rates that were seen with larger and smaller shares of a cache while the thread did the same,
//!   which neighbours that come and go reveal, or that others showed that do the same (`alike.rs`). With more cache than a
//!   thread ever had, its lines go on falling by the same power of the cache, or by the square root if one rate was seen.
//!
//! What counters do not show is assumed in several ways: how much farther remote memory is; how much a controller carries;
//! whether more cache than a thread ever had would spare it lines; from which nodes a thread that reads other memory than its
//! process's other threads gets its remote lines; and which part of a process's memory is private, before that has followed
//! its threads to several nodes once. The first two are learned from the outcomes of moves, the second also from long waits
//! (`beliefs.rs`). A gain counts if it shows in the mean of these ways and none of them loses much. Latencies that the
//! machine's description has are used as they are; what it says of controllers is where the beliefs begin. Otherwise the
//! latency of local memory follows from the threads that have one line in flight: the longest that was seen per line.
//!
//! Lines that threads of one process take from each other's caches show only in the counter of waits: see `sharing.rs`.
//! Where nothing is counted, threads are assumed to read a little, and evenly from all pages of their process.
//!
//! Terms: a *draw* is one set of assumptions about what is not known. Source: the equations and their sources are
//! `numaherd-contention`'s; that ranking layouts needs no exact figures: Pandia (EuroSys 2017).
//!
//! Properties: where threads are, each draw gives the measured speeds, as far as its figures allow; equal input
//! gives equal output; cost linear in threads. With 256 threads or more, like threads are treated as one (`kinds.rs`).

mod alike;
mod beliefs;
mod caches;
mod cores;
mod covered;
mod demands;
mod each;
mod kinds;
mod known;
mod memory;
mod page_moves;
mod parts;
mod sharing;
mod threads;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use numaherd_contention::{Demands, Figures, Running, Seat, Solution, Speed, solve};
use numaherd_topology::CpuId;
use numaherd_world::{ProcessId, ThreadId};
use serde::{Deserialize, Serialize};

use crate::busy::wanted;
use crate::memory::PerThread;
use crate::settings::ByUseSettings;
use crate::stage::Stage;
use beliefs::Beliefs;
use caches::{llc_bytes, share_caches};
pub use cores::Cores;
use cores::Unwatched;
pub use covered::Covered;
use demands::{Demand, Draw, WRITTEN, demands, figures};
use kinds::Kinds;
use known::Known;
use memory::Moved;
pub use memory::{Memory, PORTIONS};
use page_moves::PageMoves;
pub use parts::Parts;
use parts::Without;
pub use threads::{Load, ONE_PHASE, Owner};
use threads::{Seats, load, owner, room, seats, tell_shared_from_private};

/// How many draws there are.
const DRAWS: usize = 4;
/// How many of the draws a search uses.
const SEARCHED: usize = 2;

/// With so many threads or more, like threads are one to the equations (chosen here).
const BUNDLED_FROM: usize = 256;
/// A thread that wanted less of a CPU than this at its busiest of late takes no room (chosen here).
const LEAST_PEAK: f64 = 0.1;
/// A process pauses if its threads want less than this share of what they wanted at their busiest of late (chosen here).
const PAUSES: f64 = 1.0 / 3.0;
/// Speeds that differ by less are one speed.
const PRECISION: f64 = 0.01;

/// Learns from each interval.
#[derive(Clone, Debug, Default)]
pub struct Estimator {
    threads: PerThread<Known>,
    /// The longest latency that a line from local memory was seen to have, in ns.
    local_ns: f64,
    beliefs: Beliefs,
    page_moves: PageMoves,
    unwatched: Unwatched,
    /// How memory follows threads to several nodes.
    by_use: ByUseSettings,
}

/// What lost cores are estimated from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Counters, with the uncore penalty.
    Uncore,
    /// Counters without the uncore penalty: how many lines are in flight is assumed.
    Counters,
    /// Where pages are and the use of CPUs: how much is read of them is assumed.
    Residency,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uncore => "lines from memory and uncore penalties",
            Self::Counters => "lines from memory; uncore penalties are not counted",
            Self::Residency => "CPU use and residency alone; nothing is counted",
        })
    }
}

/// The machine with its threads, as estimated; answers what layouts would lose.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What it is made from: the weakest basis of any thread.
    pub from: Basis,
    /// The threads that use CPUs, in the snapshot's order.
    pub threads: Vec<Load>,
    /// Their processes.
    pub processes: Vec<Owner>,
    seats: Seats,
    /// Pages of the blocks in which memory goes to several nodes.
    block_pages: u64,
    /// What moving a page takes, in ns.
    pub page_move_ns: f64,
    /// CPUs and cores of each domain.
    pub cores: Cores,
    figures: Vec<Figures>,
    /// By each draw, the latency of the memory that is farthest.
    farthest_ns: Vec<f64>,
    draws: [Draw; DRAWS],
    /// By each draw, the demands of each kind of thread.
    demands: Vec<Vec<Demand>>,
    kinds: Kinds,
    /// By each draw, the solution for the present layout, from which those for other layouts are found sooner.
    starts: Vec<Solution>,
    /// For each thread that is known and has a seat, which of their speeds is its.
    speeds_now: Vec<usize>,
    lost_now: Lost,
}

/// What the equations say of a layout.
struct Solved {
    lost: f64,
    solution: Solution,
    /// For each thread that is known and has a seat, which of the solution's speeds is its.
    speeds: Vec<usize>,
}

/// What was measured of a thread while it did the same as in a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// Instructions per ns on a CPU; 0 where nothing was measured.
    pub speed: f64,
    /// Lines from memory per 1000 instructions.
    pub lines: f64,
}

impl Measured {
    fn is_any(&self) -> bool {
        self.speed > 0.0
    }
}

/// Lost cores by each draw.
pub type Lost = [f64; DRAWS];

/// Lost cores by each of the draws that a search uses, which are the first.
#[derive(Clone, Copy, Debug)]
pub struct Rough([f64; SEARCHED]);

impl Rough {
    /// The first of what is known by all draws.
    pub fn of(lost: &Lost) -> Self {
        Self(std::array::from_fn(|draw| lost[draw]))
    }

    /// Lost cores by the first draw.
    pub fn first(&self) -> f64 {
        self.0[0]
    }

    /// Their mean, in cores.
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / SEARCHED as f64
    }
}

impl Estimator {
    /// Nothing seen yet; memory that follows threads to several nodes does so in these blocks.
    pub fn new(by_use: ByUseSettings) -> Self {
        Self {
            by_use,
            ..Self::default()
        }
    }

    /// Takes in an interval.
    pub fn observe(&mut self, stage: &Stage<'_>) -> Picture {
        let topology = stage.topology;
        let mut busy: Vec<(usize, bool)> = stage.busy().map(|(_, at)| (at, true)).collect();
        busy.extend(stage.unmanaged.iter().map(|&at| (at, false)));
        busy.sort_unstable();
        let llc = llc_bytes(topology);
        let known = self.threads.line_up(&stage.snapshot.threads);
        let now_ns = stage.snapshot.time_ns;
        for (known, thread) in known.iter_mut().zip(&stage.snapshot.threads) {
            let ran_ns = thread.cpu_share * stage.snapshot.interval_ns as f64;
            (known.since_ns).get_or_insert_with(|| now_ns.saturating_sub(ran_ns as u64));
            known.wants(wanted(thread).min(1.0), stage.snapshot.interval_ns);
        }
        busy.extend(others(&busy, known, stage));
        busy.sort_unstable();
        let is_counted = |&(at, _): &(usize, bool)| stage.thread(at).counts.is_some();
        let any_counted = busy.iter().any(is_counted);
        let mut threads: Vec<Load> = Vec::with_capacity(busy.len());
        let mut processes: Vec<Owner> = Vec::new();
        let mut place_of: BTreeMap<ProcessId, usize> = BTreeMap::new();
        let room = room(stage);
        for (at, is_free) in busy {
            let thread = stage.thread(at);
            let place = *place_of.entry(thread.process).or_insert_with(|| {
                processes.push(owner(stage, at, &room, &llc));
                processes.len() - 1
            });
            processes[place].threads.push(threads.len());
            let age_ns = now_ns.saturating_sub(known[at].since_ns.unwrap_or(now_ns));
            // Where others are counted, a thread that is not counted yet is left to the kernel.
            let is_free = is_free && (thread.counts.is_some() || !any_counted);
            let load = Load {
                age_ns,
                peak: known[at].peak,
                ..load(stage, thread, at, (place, &processes[place]), is_free)
            };
            threads.push(if any_counted { load } else { load.assumed() });
        }
        leave_those_that_pause(&mut threads, &processes);
        let from = threads
            .iter()
            .filter(|load| load.is_known())
            .map(Load::from)
            .max();
        let seats = seats(topology);
        let node = |cpu: CpuId| seats.get(cpu).map(|(seat, _)| seat.node);
        for load in threads.iter_mut().filter(|load| load.is_counted()) {
            let known = &mut known[load.at];
            let here = node(load.cpu);
            let stayed = known.cpu.is_none_or(|was| node(was) == here);
            known.reads(&mut load.memory, here, stayed);
        }
        for owner in (processes.iter_mut()).filter(|owner| owner.threads.len() > 1) {
            owner.private = tell_shared_from_private(&mut threads, &owner.threads, &seats);
        }
        share_caches(&mut threads, &seats, &llc);
        self.learn_waits(&threads, &seats, stage);
        let draws = self.beliefs.draws();
        let figures: Vec<Figures> = (draws.iter())
            .map(|draw| figures(topology, draw, self.local_ns, &llc))
            .collect();
        let known = self.threads.line_up(&stage.snapshot.threads);
        sharing::find(&mut threads, &processes, known, &seats, &figures[0]);
        for load in &mut threads {
            let known = &mut known[load.at];
            load.seen = known.sees(load, known.cpu == Some(load.cpu));
            known.cpu = Some(load.cpu);
        }
        alike::tell(&mut threads);
        let cores = Cores::of(stage, &self.unwatched.take(stage));
        let kinds = Kinds::of(&threads, &seats);
        let demands = (draws.iter().zip(&figures))
            .map(|(draw, figures)| demands(draw, figures, &threads, &kinds, &seats, &cores))
            .collect();
        let mut picture = Picture {
            from: from.unwrap_or(Basis::Residency),
            threads,
            processes,
            seats,
            block_pages: self.by_use.block_pages,
            page_move_ns: self.page_moves.each_ns(),
            starts: vec![Solution::within(PRECISION); DRAWS],
            speeds_now: Vec::new(),
            lost_now: [0.0; DRAWS],
            cores,
            farthest_ns: (figures.iter())
                .map(|figures| figures.latency_ns.iter().copied().fold(0.0, f64::max))
                .collect(),
            draws,
            figures,
            demands,
            kinds,
        };
        let stays = vec![Memory::default(); picture.processes.len()];
        let now = picture.now();
        for draw in 0..DRAWS {
            let solved = picture.solve(draw, &now, &stays);
            (picture.lost_now[draw], picture.starts[draw]) = (solved.lost, solved.solution);
            picture.speeds_now = solved.speeds;
        }
        picture
    }
}

/// Leaves processes alone if most of their threads that ran of late sleep: what the others do is not typical of them.
fn leave_those_that_pause(threads: &mut [Load], processes: &[Owner]) {
    for owner in processes {
        let sum = |of: fn(&Load) -> f64| owner.threads.iter().map(|&at| of(&threads[at])).sum();
        let (wanted, peaks): (f64, f64) = (sum(|load| load.wanted), sum(|load| load.peak));
        if wanted < peaks * PAUSES {
            for &at in &owner.threads {
                threads[at].is_free = false;
            }
        }
    }
}

/// Threads that are not busy enough to be placed, yet take a part of a CPU or did of late, such as those that wait for each
/// other. Of a virtual machine, only its vCPUs: its other threads would keep the memory from following them.
fn others(busy: &[(usize, bool)], known: &[Known], stage: &Stage<'_>) -> Vec<(usize, bool)> {
    let takes = |&at: &usize| {
        let is_busy = busy.binary_search_by_key(&at, |&(busy, _)| busy).is_ok();
        let thread = stage.thread(at);
        let process = stage.snapshot.process(thread.process);
        let machine = process.and_then(|process| process.machine.as_ref());
        let helps = machine.is_some_and(|machine| {
            !machine.vcpus.is_empty() && machine.vcpu_of(thread.id).is_none()
        });
        known[at].peak >= LEAST_PEAK && !is_busy && !helps
    };
    let all = (0..known.len()).filter(takes);
    all.map(|at| (at, false)).collect()
}

impl Picture {
    /// The place of a CPU's domain and node.
    pub fn seat(&self, cpu: CpuId) -> Option<Seat> {
        self.seats.get(cpu).map(|&(seat, _)| seat)
    }

    /// The place of a thread among [`Self::threads`]; `None` where it uses no CPU.
    pub fn place(&self, thread: ThreadId) -> Option<usize> {
        let threads = &self.threads;
        threads.binary_search_by_key(&thread, |load| load.id).ok()
    }

    /// A thread, by its name.
    pub fn thread(&self, thread: ThreadId) -> Option<&Load> {
        self.place(thread).map(|at| &self.threads[at])
    }

    /// Whether a CPU is in another domain than a thread is.
    pub fn is_move(&self, load: &Load, cpu: CpuId) -> bool {
        self.seat(cpu).map(|seat| seat.domain) != self.seat(load.cpu).map(|seat| seat.domain)
    }

    /// Where the threads are.
    pub fn now(&self) -> Vec<CpuId> {
        self.threads.iter().map(|load| load.cpu).collect()
    }

    /// The nodes (places) of a process's threads in a layout, ascending, each as often as it has threads. A thread that
    /// needs no room does not count if others need some: it may have loaded the memory that they use.
    pub fn nodes_of(&self, process: usize, cpus: &[CpuId]) -> Vec<usize> {
        let threads = &self.processes[process].threads;
        let runs = |&&thread: &&usize| self.threads[thread].peak >= LEAST_PEAK;
        let any_runs = threads.iter().any(|thread| runs(&thread));
        let counts = threads.iter().filter(|thread| !any_runs || runs(thread));
        let mut nodes: Vec<usize> = (counts.filter_map(|&thread| self.seat(cpus[thread])))
            .map(|seat| seat.node)
            .collect();
        nodes.sort_unstable();
        nodes
    }

    /// The place of a CPU's core.
    pub fn core(&self, cpu: CpuId) -> Option<usize> {
        self.seats.get(cpu).map(|(_, lane)| lane.core)
    }

    /// CPUs that threads want in each domain.
    pub fn wanted_in(&self, cpus: &[CpuId]) -> Vec<f64> {
        self.sum_in(cpus, |load| load.wanted)
    }

    /// The same with each thread at its busiest of late.
    pub fn peaks_in(&self, cpus: &[CpuId]) -> Vec<f64> {
        self.sum_in(cpus, |load| load.peak)
    }

    fn sum_in(&self, cpus: &[CpuId], of: impl Fn(&Load) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.cores.cpus().len()];
        for (load, &cpu) in self.threads.iter().zip(cpus) {
            if let Some(seat) = self.seat(cpu) {
                sums[seat.domain] += of(load);
            }
        }
        sums
    }

    /// CPU that the threads want together.
    pub fn busy_cores(&self) -> f64 {
        self.threads.iter().map(|load| load.wanted).sum()
    }

    /// The share of a thread's time that memory and caches cost it, by the draw in which that is most.
    pub fn suffers(&self, thread: usize) -> f64 {
        let load = &self.threads[thread];
        if !load.is_known() {
            return 0.0;
        }
        let kind = self.kinds.of[thread];
        let lost = |demands: &Vec<Demand>| 1.0 - demands[kind].shared_base_ns / load.ns();
        self.demands.iter().map(lost).fold(0.0, f64::max)
    }

    /// The share of a thread's time that memory would cost it without any cache and with all of its memory on the farthest
    /// node, by the draw in which that is most. It is small for a thread that suffers nowhere.
    pub fn could_suffer(&self, thread: usize) -> f64 {
        if !self.threads[thread].is_known() {
            return 0.0;
        }
        let could = |(demands, farthest): (&Vec<Demand>, &f64)| {
            let demand = &demands[self.kinds.of[thread]];
            let stall = demand.curve.cache_accesses() * farthest / demand.in_flight;
            stall / (stall + demand.base_ns)
        };
        let all = self.demands.iter().zip(&self.farthest_ns);
        all.map(could).fold(0.0, f64::max)
    }

    /// What is lost where the threads are, by each draw, in cores.
    pub fn lost_now(&self) -> Lost {
        self.lost_now
    }

    /// What a layout would lose by each draw, in cores. `cpus` are in the order of the threads; `memory` says for each
    /// process whether its own memory follows its threads (private memory to each, the rest evenly), and common memory is spread.
    pub fn lost(&self, cpus: &[CpuId], memory: &[Memory]) -> Lost {
        std::array::from_fn(|draw| self.solve(draw, cpus, memory).lost)
    }

    /// The same, if it is `known` by the draws that a search uses.
    pub fn lost_with(&self, cpus: &[CpuId], memory: &[Memory], known: &Rough) -> Lost {
        let of = |draw| known.0.get(draw).copied();
        std::array::from_fn(|draw| of(draw).unwrap_or_else(|| self.solve(draw, cpus, memory).lost))
    }

    /// What a layout would lose by the draws that a search uses; `None` where that is over `most` cores by the first one.
    pub fn roughly(&self, cpus: &[CpuId], memory: &[Memory], most: f64) -> Option<Rough> {
        let mut lost = [self.solve(0, cpus, memory).lost; SEARCHED];
        if lost[0] > most {
            return None;
        }
        for (draw, lost) in lost.iter_mut().enumerate().skip(1) {
            *lost = self.solve(draw, cpus, memory).lost;
        }
        Some(Rough(lost))
    }

    /// The lost cores, and the answer of the equations.
    fn solve(&self, draw: usize, cpus: &[CpuId], memory: &[Memory]) -> Solved {
        self.solve_without(draw, cpus, memory, Without::Nothing)
    }

    fn solve_without(
        &self,
        draw: usize,
        cpus: &[CpuId],
        memory: &[Memory],
        without: Without,
    ) -> Solved {
        let over = self.spread_over(memory, cpus);
        let moved = |process: usize| {
            let memory = memory[process];
            (memory.moves()).then(|| self.moved(draw, process, cpus, memory, &over))
        };
        let moved: Vec<Option<Moved>> = (0..memory.len()).map(moved).collect();
        // Within a domain the kernel spreads threads over cores, then over their CPUs.
        let in_domain = self.wanted_in(cpus);
        let share = |load: &Load, seat: Seat| {
            load.wanted * self.cores.share(seat.domain, in_domain[seat.domain])
        };
        let siblings = |domain: usize| self.cores.siblings(domain, in_domain[domain]);
        let demands = &self.demands[draw];
        let kinds = self.kinds.first.len();
        let mut running: Vec<Running<'_>> = Vec::with_capacity(kinds);
        // For each: the CPU that is wanted and had, and the time alone.
        let mut counted: Vec<(f64, f64, f64)> = Vec::with_capacity(kinds);
        // By kind and domain: the place in `running` of the threads whose memory stays and that share no lines.
        let domains = in_domain.len();
        let mut staying = match self.kinds.are_bundled {
            true => vec![usize::MAX; kinds * domains],
            false => Vec::new(),
        };
        let mut following = HashMap::new();
        let sharers = self.sharers(draw, cpus);
        let mut speeds = Vec::with_capacity(cpus.len());
        let mut lost = 0.0;
        for (at, (load, &cpu)) in self.threads.iter().zip(cpus).enumerate() {
            let Some(seat) = self.seat(cpu) else {
                continue;
            };
            let share = share(load, seat);
            if !load.is_known() {
                lost += load.wanted - share;
                continue;
            }
            let kind = self.kinds.of[at];
            let memory = moved[load.process].as_ref();
            if self.kinds.are_bundled {
                let alike = kind * domains + seat.domain;
                let place = match memory {
                    None if load.shared == 0.0 => &mut staying[alike],
                    _ => (following.entry((alike, load.process))).or_insert(usize::MAX),
                };
                *place = (*place).min(running.len());
                let place = *place;
                if let Some(first) = running.get_mut(place) {
                    first.alike += 1.0;
                    counted[place].0 += load.wanted;
                    counted[place].1 += share;
                    speeds.push(place);
                    continue;
                }
            }
            let demand = &demands[kind];
            let memory = match memory {
                _ if without >= Without::Remote => vec![(seat.node, 1.0)].into(),
                None => Cow::Borrowed(load.memory_by(&self.draws[draw])),
                Some(moved) => {
                    let stays = self.seat(load.cpu).is_some_and(|was| was.node == seat.node);
                    Cow::Owned(moved.memory(load, &self.draws[draw], seat.node, stays))
                }
            };
            let transfers = match without < Without::Remote {
                true => sharers.transfers(load, seat, demand.shared, &self.figures[draw]),
                false => Vec::new(),
            };
            speeds.push(running.len());
            running.push(Running {
                siblings: siblings(seat.domain),
                transfers,
                ..Running::new(
                    Demands {
                        cycles_per_instruction: demand.base_ns / 1000.0,
                        lines: sharers.curve(load, kind, seat).unwrap_or(&demand.curve),
                        demand: None,
                        misses_in_flight: demand.in_flight,
                        written_per_line: WRITTEN,
                    },
                    seat,
                    share,
                    memory,
                )
            });
            counted.push((load.wanted, share, demand.alone_ns));
        }
        for (running, (_, share, _)) in running.iter_mut().zip(&counted) {
            running.cpu_share = share / running.alike;
        }
        let mut solution = self.starts[draw].clone();
        solve(
            &self.figures[draw],
            &running,
            without.factors(),
            &mut solution,
        );
        let of = |((wanted, share, alone), speed): (&(f64, f64, f64), &Speed)| {
            wanted - share * (alone / speed.ns).min(1.0)
        };
        lost += counted.iter().zip(&solution.speeds).map(of).sum::<f64>();
        Solved {
            lost,
            solution,
            speeds,
        }
    }
}

#[cfg(test)]
mod tests;
