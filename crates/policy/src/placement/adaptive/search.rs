//! The search for the layout that loses fewest cores: seeds, then moves and swaps.

use numaherd_topology::CpuId;

use super::SUFFERS;
use super::action::moving;
use super::home;
use crate::busy::LEAST_CPU_SHARE;
use crate::estimate::{Basis, Load, Lost, Memory, Picture, Rough};
use crate::stage::Stage;

/// CPUs that the threads of a domain may want beyond the cores or CPUs that it has.
pub(super) const ROOM: f64 = 0.1;
/// Lines per instruction that differ by less than this share are alike.
const ALIKE: f64 = 0.1;
/// Common memory is spread only if more than this share of it must move for that (chosen here).
const UNEVEN: f64 = 0.1;
/// A search goes on while it gains more than this share of what is lost.
const WORTH_A_MOVE: f64 = 0.005;

/// A layout, what becomes of each process's memory, and what is lost.
pub(crate) struct Candidate {
    pub(crate) cpus: Vec<CpuId>,
    pub(crate) memory: Vec<Memory>,
    /// What is lost by the draws that a search uses.
    rough: Rough,
    /// Their mean, in cores.
    pub(crate) lost: f64,
}

impl Candidate {
    fn new(cpus: Vec<CpuId>, memory: Vec<Memory>, rough: Rough) -> Self {
        let lost = rough.mean();
        Self {
            cpus,
            memory,
            rough,
            lost,
        }
    }

    /// Whether it gains, compared with another.
    fn is_worth_it(&self, beside: &Self) -> bool {
        self.lost < beside.lost * (1.0 - WORTH_A_MOVE)
    }

    /// Whether it loses no more than another.
    fn is_as_good(&self, beside: &Self) -> bool {
        self.lost <= beside.lost * (1.0 + WORTH_A_MOVE)
    }

    /// Whether more of some process's memory follows than in another candidate.
    fn moves_more(&self, than: &Self) -> bool {
        let mut both = self.memory.iter().zip(&than.memory);
        both.any(|(one, other)| one.follows > other.follows)
    }

    /// What is lost by all draws.
    pub(crate) fn lost(&self, picture: &Picture) -> Lost {
        picture.lost_with(&self.cpus, &self.memory, &self.rough)
    }
}

/// Whether a thread may be placed on a CPU.
pub(super) fn may_have(stage: &Stage<'_>, thread: usize, cpu: CpuId) -> bool {
    let thread = stage.thread(thread);
    let allowed = thread.cpuset.contains(cpu) && stage.snapshot.online.contains(cpu);
    allowed && thread.unmanaged.is_none()
}

/// The CPU of a domain for a thread that comes there: the idlest CPU of the idlest core.
pub(super) fn freest(
    stage: &Stage<'_>,
    picture: &Picture,
    cpus: &[CpuId],
    thread: usize,
    domain: usize,
) -> Option<CpuId> {
    let there = &stage.topology.domains()[domain].cpus;
    let here: Vec<CpuId> = (cpus.iter().copied())
        .filter(|&cpu| there.contains(cpu))
        .collect();
    let on = |cpu: CpuId| {
        let core = picture.core(cpu);
        let on_core = here.iter().filter(|&&on| picture.core(on) == core);
        (
            on_core.count(),
            here.iter().filter(|&&on| on == cpu).count(),
        )
    };
    let at = picture.threads[thread].at;
    let allowed = there.iter().filter(|&cpu| may_have(stage, at, cpu));
    allowed.min_by_key(|&cpu| on(cpu))
}

/// Where the threads will be once the kernel has balanced them. If threads want more cores of a domain than it has, those
/// that the kernel places and that suffer least go where cores are idle; then likewise for CPUs. What that gains is no gain
/// of ours.
#[derive(Clone)]
pub(crate) struct Balanced {
    pub(super) cpus: Vec<CpuId>,
    /// What is then lost, in cores.
    pub(crate) lost: Lost,
}

impl Balanced {
    pub(crate) fn of(stage: &Stage<'_>, picture: &Picture) -> Self {
        let now = picture.now();
        let mut cpus = now.clone();
        let cores = &picture.cores;
        balance(stage, picture, cores.cores(), &mut cpus);
        if cores.cores() != cores.cpus() {
            balance(stage, picture, cores.cpus(), &mut cpus);
        }
        let lost = match cpus == now {
            true => picture.lost_now(),
            false => picture.lost(&cpus, &vec![Memory::default(); picture.processes.len()]),
        };
        Self { cpus, lost }
    }

    /// Its mean by the draws that a search uses, in cores.
    pub(crate) fn roughly(&self) -> f64 {
        Rough::of(&self.lost).mean()
    }
}

/// Moves threads that the kernel places from domains in which more is wanted than `holds` to others with room.
fn balance(stage: &Stage<'_>, picture: &Picture, holds: &[f64], cpus: &mut [CpuId]) {
    let domains = stage.topology.domains();
    let wanted = picture.wanted_in(cpus);
    let beyond = wanted.iter().zip(holds);
    let mut beyond: Vec<f64> = beyond.map(|(wanted, holds)| wanted - holds).collect();
    // For each domain that is short of CPUs: the threads that the kernel places, and how much they suffer.
    let mut here = vec![Vec::new(); domains.len()];
    for (at, load) in picture.threads.iter().enumerate() {
        let thread = stage.thread(load.at);
        let is_the_kernel_s = thread.unmanaged.is_none() && thread.assigned.is_none();
        let seat = picture.seat(cpus[at]).filter(|_| is_the_kernel_s);
        if let Some(seat) = seat.filter(|seat| beyond[seat.domain] > ROOM) {
            here[seat.domain].push((picture.suffers(at), at));
        }
    }
    for (domain, mut here) in here.into_iter().enumerate() {
        here.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, at) in here {
            if beyond[domain] <= ROOM {
                break;
            }
            let load = &picture.threads[at];
            let freest = (0..domains.len()).min_by(|&a, &b| beyond[a].total_cmp(&beyond[b]));
            let Some(to) = freest.filter(|&to| beyond[to] + load.wanted <= ROOM) else {
                break;
            };
            let allowed = |&cpu: &CpuId| may_have(stage, load.at, cpu);
            if let Some(cpu) = domains[to].cpus.iter().find(allowed) {
                cpus[at] = cpu;
                beyond[domain] -= load.wanted;
                beyond[to] += load.wanted;
            }
        }
    }
}

/// The best candidate found by trying at most `most` layouts, beginning with `balanced` and `layouts`. The memory of a
/// process follows only where its `credit`, in ns, pays for it.
pub(crate) fn best(
    stage: &Stage<'_>,
    picture: &Picture,
    layouts: Vec<Vec<CpuId>>,
    credit: &[f64],
    balanced: Balanced,
    most: usize,
) -> Candidate {
    let may_follow = |&process: &usize| {
        let owner = &picture.processes[process];
        let suffers = |&thread: &usize| picture.suffers(thread) >= SUFFERS;
        let has_pages = owner.pages.iter().any(|&pages| pages > 0);
        has_pages && owner.threads.iter().any(suffers)
    };
    let mut search = Search {
        stage,
        picture,
        credit,
        may_follow: (0..picture.processes.len()).filter(may_follow).collect(),
        may_spread: may_spread(picture),
        left: most,
    };
    let before = picture.peaks_in(&balanced.cpus);
    let begins = Rough::of(&balanced.lost);
    let stays = vec![Memory::default(); picture.processes.len()];
    let mut best = Candidate::new(balanced.cpus, stays, begins);
    let mut beside = vec![(best.cpus.clone(), begins)];
    if let Some(cpus) = home::layout(stage, picture, &best.cpus)
        && let Some(rough) = search.roughly(&cpus, &best.memory, &best.rough)
    {
        // First with memory where it is: it need not move if the threads do.
        let candidate = Candidate::new(cpus.clone(), best.memory.clone(), rough);
        if candidate.is_worth_it(&best) {
            best = candidate;
            beside.push((cpus, rough));
        }
    }
    for (cpus, stays) in &beside {
        let candidate = search.with_memory(cpus, Some(*stays), &best.rough);
        if let Some(candidate) = candidate.filter(|candidate| candidate.is_worth_it(&best)) {
            best = candidate;
        }
    }
    for cpus in layouts {
        if is_crowded(picture, &before, &cpus) {
            continue;
        }
        let candidate = search.with_memory(&cpus, None, &best.rough);
        if let Some(candidate) = candidate.filter(|candidate| candidate.is_worth_it(&best)) {
            best = candidate;
        }
    }
    search.improve(&mut best);
    // The last first: threads that are home again stay beside their memory.
    for (cpus, stays) in beside.iter().rev() {
        let candidate = search.with_memory(cpus, Some(*stays), &best.rough);
        if let Some(candidate) = candidate.filter(|candidate| candidate.is_as_good(&best)) {
            best = candidate;
            break;
        }
    }
    let home = beside.get(1).map(|(cpus, _)| &cpus[..]);
    search.spare(&mut best, home);
    best
}

/// Whether a domain gets threads that want more CPUs at their busiest than it has: threads of a parallel program that wait
/// for each other want little now, but much a moment later. `before` is what threads want where they are.
fn is_crowded(picture: &Picture, before: &[f64], cpus: &[CpuId]) -> bool {
    let wanted = picture.peaks_in(cpus);
    let domains = wanted.iter().zip(before).zip(picture.cores.cpus());
    domains
        .into_iter()
        .any(|((&wanted, &before), &cpus)| wanted > before.max(cpus) + ROOM)
}

/// The processes whose common memory may be spread. It is not known which process has which of it, so it is spread for all
/// whose threads wait for it, or for none.
fn may_spread(picture: &Picture) -> Vec<usize> {
    let has_common = |&process: &usize| {
        let owner = &picture.processes[process];
        owner.common.iter().any(|&pages| pages > 0)
    };
    let all: Vec<usize> = (0..picture.processes.len()).filter(has_common).collect();
    let is_held = |process: &usize| !picture.processes[*process].fits.contains(&true);
    // Without counters, no controller is ever seen to be full.
    if picture.from == Basis::Residency || all.iter().any(is_held) {
        return Vec::new();
    }
    let waits = |process: &usize| {
        let threads = &picture.processes[*process].threads;
        threads
            .iter()
            .any(|&thread| picture.suffers(thread) >= SUFFERS)
    };
    all.into_iter().filter(waits).collect()
}

/// Whether nothing changes if two threads change places, as with threads that share all that they read.
fn are_alike(one: &Load, other: &Load) -> bool {
    let apart = (one.lines - other.lines).abs();
    one.process == other.process
        && one.memory == other.memory
        && apart <= ALIKE * one.lines.max(other.lines)
}

/// A local search.
struct Search<'a> {
    stage: &'a Stage<'a>,
    picture: &'a Picture,
    credit: &'a [f64],
    /// Processes with memory that a thread waits for.
    may_follow: Vec<usize>,
    /// Processes with common memory that a thread waits for; none if any process with common memory may not have it moved.
    may_spread: Vec<usize>,
    left: usize,
}

impl Search<'_> {
    /// A layout with memory where it is or, if that would lose less, with memory beside its threads and with common memory
    /// spread. `None` if each of these loses more than `than` by the first draw. `stays` is what is lost while memory
    /// stays, if that is known.
    fn with_memory(
        &mut self,
        cpus: &[CpuId],
        stays: Option<Rough>,
        than: &Rough,
    ) -> Option<Candidate> {
        let picture = self.picture;
        let mut memory = vec![Memory::default(); picture.processes.len()];
        let stays = stays.or_else(|| self.roughly(cpus, &memory, than));
        let mut best = stays.map(|rough| Candidate::new(cpus.to_vec(), memory.clone(), rough));
        for &process in &self.may_follow {
            let owner = &picture.processes[process];
            let nodes = picture.nodes_of(process, cpus);
            let all: u64 = owner.pages.iter().sum();
            let is_one = nodes.windows(2).all(|two| two[0] == two[1]);
            // What is there already need not follow.
            let is_there = is_one && nodes.iter().any(|&node| owner.pages[node] == all);
            // Only samples show which thread uses what, and only for threads that are held: the others' nodes would get
            // nothing. A thread that sleeps, as the first of a parallel program does, uses nothing.
            let held = |&thread: &usize| {
                let load = &picture.threads[thread];
                load.is_free || load.wanted < LEAST_CPU_SHARE
            };
            let all_held = picture.from != Basis::Residency && owner.threads.iter().all(held);
            let is_told = is_one || all_held;
            let fits = !nodes.is_empty() && nodes.iter().all(|&node| owner.fits[node]) && is_told;
            if fits && !is_there {
                memory[process].follows = self.paid(process, cpus, is_one);
            }
        }
        if memory.iter().any(|memory| memory.follows > 0) {
            self.instead(&mut best, cpus, memory, than);
        }
        let stays = vec![Memory::default(); picture.processes.len()];
        let memory = best.as_ref().map_or(&stays, |best| &best.memory);
        if let Some(memory) = self.spread(cpus, memory) {
            self.instead(&mut best, cpus, memory, than);
        }
        best
    }

    /// Takes the layout with this memory in place of the best, where that loses less.
    fn instead(
        &mut self,
        best: &mut Option<Candidate>,
        cpus: &[CpuId],
        memory: Vec<Memory>,
        than: &Rough,
    ) {
        let limit = best.as_ref().map_or(*than, |best| best.rough);
        if let Some(rough) = self.roughly(cpus, &memory, &limit)
            && (best.as_ref()).is_none_or(|best| rough.mean() < best.lost)
        {
            *best = Some(Candidate::new(cpus.to_vec(), memory, rough));
        }
    }

    /// How many portions of a process's memory its credit pays for. If its threads move, all or none: otherwise its memory
    /// would be divided between where they were and where they are.
    fn paid(&self, process: usize, cpus: &[CpuId], is_one: bool) -> u64 {
        let picture = self.picture;
        let (all, credit) = (picture.portions_left(process, cpus), self.credit[process]);
        let cost = picture.to_move(process, cpus) * picture.page_cost_ns();
        // On several nodes, the paging finds out which of its own pages are used.
        let has_portions = !is_one || picture.processes[process].has_portions;
        match has_portions && moving(picture, process, cpus) == 0.0 {
            _ if cost <= credit => all,
            // A cast from float rounds down.
            true => (all as f64 * credit / cost) as u64,
            false => 0,
        }
    }

    /// The same with common memory spread; `None` where it may not be, is already, or is not paid for.
    fn spread(&self, cpus: &[CpuId], memory: &[Memory]) -> Option<Vec<Memory>> {
        if self.may_spread.is_empty() {
            return None;
        }
        let picture = self.picture;
        let mut memory = memory.to_vec();
        for &process in &self.may_spread {
            memory[process].spreads = true;
        }
        let over = picture.spread_over(&memory, cpus);
        // What is used from one node now may be used from another in a moment: it would go to and fro.
        if over.len() < 2 {
            return None;
        }
        let mut is_worth_it = false;
        for &process in &self.may_spread {
            let owner = &picture.processes[process];
            let pages = picture.to_spread(process, &over);
            let spreads = picture.spreading(process, &memory, &over);
            let follows = picture.following(process, memory[process], cpus);
            let fits = over.iter().all(|&(node, _)| owner.fits[node]);
            if !fits || (spreads + follows) * picture.page_cost_ns() > self.credit[process] {
                return None;
            }
            is_worth_it |= pages > UNEVEN * owner.common.iter().sum::<u64>() as f64;
        }
        is_worth_it.then_some(memory)
    }

    /// What a layout loses; `None` where it loses more than another by the first draw.
    fn roughly(&mut self, cpus: &[CpuId], memory: &[Memory], than: &Rough) -> Option<Rough> {
        self.left = self.left.saturating_sub(1);
        let most = than.first() * (1.0 + WORTH_A_MOVE);
        self.picture.roughly(cpus, memory, most)
    }

    /// Moves and swaps threads while that gains.
    fn improve(&mut self, best: &mut Candidate) {
        let picture = self.picture;
        if self.left == 0 {
            return;
        }
        let suffering = (picture.threads.iter().enumerate())
            .filter(|(_, load)| load.is_free)
            .map(|(at, _)| (picture.suffers(at), at))
            .filter(|&(suffers, _)| suffers >= SUFFERS);
        let mut suffering: Vec<(f64, usize)> = suffering.collect();
        suffering.sort_by(|a, b| b.0.total_cmp(&a.0));
        let order: Vec<usize> = suffering.into_iter().map(|(_, at)| at).collect();
        // After one round without a gain, each thread has been tried.
        let mut since_gain = 0;
        for &thread in order.iter().cycle() {
            let mut better: Option<Candidate> = None;
            for domain in 0..self.stage.topology.domains().len() {
                if self.left == 0 {
                    return;
                }
                let Some(cpus) = self.to_domain(&best.cpus, thread, domain) else {
                    continue;
                };
                let least = better.as_ref().unwrap_or(best);
                let candidate = self.with_memory(&cpus, None, &least.rough);
                if let Some(candidate) = candidate.filter(|one| one.is_worth_it(least)) {
                    better = Some(candidate);
                }
            }
            since_gain += 1;
            if let Some(better) = better {
                *best = better;
                since_gain = 0;
            }
            if since_gain == order.len() {
                return;
            }
        }
    }

    /// The layout with a thread in another domain: on a CPU that is free there, or in place of the thread that
    /// suffers least and may go where it was.
    fn to_domain(&self, cpus: &[CpuId], thread: usize, domain: usize) -> Option<Vec<CpuId>> {
        let picture = self.picture;
        let from = picture.seat(cpus[thread])?.domain;
        if from == domain {
            return None;
        }
        let there = &self.stage.topology.domains()[domain].cpus;
        let load = &picture.threads[thread];
        let wanted = picture.peaks_in(cpus);
        let freest = freest(self.stage, picture, cpus, thread, domain)?;
        let mut cpus = cpus.to_vec();
        if self.has_room(&wanted, load, from, domain) {
            cpus[thread] = freest;
            return Some(cpus);
        }
        let swaps = (0..cpus.len()).filter(|&other| {
            let with = &picture.threads[other];
            there.contains(cpus[other])
                && with.is_free
                // One that sleeps wants its place back in a moment.
                && with.wanted >= LEAST_CPU_SHARE
                && !are_alike(load, with)
                && may_have(self.stage, with.at, cpus[thread])
                && may_have(self.stage, load.at, cpus[other])
        });
        let other = swaps.min_by(|&a, &b| picture.suffers(a).total_cmp(&picture.suffers(b)))?;
        cpus.swap(thread, other);
        Some(cpus)
    }

    /// Whether a domain has an idle core for a thread that comes from another or, if no other domain that the thread may
    /// use has one, an idle CPU. `wanted` are the CPUs that threads want in each domain at their busiest.
    fn has_room(&self, wanted: &[f64], load: &Load, from: usize, to: usize) -> bool {
        let (cores, cpus) = (self.picture.cores.cores(), self.picture.cores.cpus());
        if wanted[to] + load.peak <= cores[to] + ROOM {
            return true;
        }
        let has_idle_core = |domain: usize| {
            let stays = if domain == from { load.peak } else { 0.0 };
            let allowed = |cpu| may_have(self.stage, load.at, cpu);
            domain != to
                && wanted[domain] - stays + load.peak <= cores[domain] + ROOM
                && self.stage.topology.domains()[domain]
                    .cpus
                    .iter()
                    .any(allowed)
        };
        wanted[to] + load.peak <= cpus[to] + ROOM && !(0..cores.len()).any(has_idle_core)
    }

    /// Leaves out what gains nothing: threads that need not move, alone or in exchange for one that came to where they
    /// were, and memory that need not follow. `home` is the layout with threads back beside their memory, if that is better
    /// than where they are.
    fn spare(&mut self, best: &mut Candidate, home: Option<&[CpuId]>) {
        let picture = self.picture;
        let mut wanted = picture.peaks_in(&best.cpus);
        for (thread, load) in picture.threads.iter().enumerate() {
            if self.left == 0 {
                return;
            }
            let gone = best.cpus[thread];
            let seats = (picture.seat(load.cpu), picture.seat(gone));
            let ((Some(stays), Some(from)), true) = (seats, picture.is_move(load, gone)) else {
                continue;
            };
            let mut cpus = best.cpus.clone();
            cpus[thread] = load.cpu;
            // How much more its domain wants with it; the one that it leaves wants as much less.
            let mut more = load.peak;
            if !self.has_room(&wanted, load, from.domain, stays.domain) {
                let came = (0..cpus.len()).find(|&other| {
                    let seat = picture.seat(cpus[other]);
                    let is_here = seat.is_some_and(|seat| seat.domain == stays.domain);
                    is_here && picture.is_move(&picture.threads[other], cpus[other])
                });
                let may_go = |&came: &usize| may_have(self.stage, picture.threads[came].at, gone);
                let Some(came) = came.filter(may_go) else {
                    continue;
                };
                cpus[came] = gone;
                more -= picture.threads[came].peak;
            }
            let candidate = self.with_memory(&cpus, None, &best.rough);
            // A thread that is home again does not leave it for memory to follow.
            let is_home = home.is_some_and(|cpus| cpus[thread] == gone);
            let is_spared =
                |one: &Candidate| one.is_as_good(best) && !(is_home && one.moves_more(best));
            if let Some(candidate) = candidate.filter(is_spared) {
                *best = candidate;
                wanted[stays.domain] += more;
                wanted[from.domain] -= more;
            }
        }
        for process in 0..best.memory.len() {
            if best.memory[process].follows > 0 {
                self.leave_out(best, |at, memory| {
                    if at == process {
                        memory.follows = 0;
                    }
                });
            }
        }
        if best.memory.iter().any(|memory| memory.spreads) {
            self.leave_out(best, |_, memory| memory.spreads = false);
        }
    }

    /// The same with some memory left where it is, if that loses no more.
    fn leave_out(&mut self, best: &mut Candidate, leave: impl Fn(usize, &mut Memory)) {
        if self.left == 0 {
            return;
        }
        let mut memory = best.memory.clone();
        for (at, memory) in memory.iter_mut().enumerate() {
            leave(at, memory);
        }
        if let Some(rough) = self.roughly(&best.cpus, &memory, &best.rough) {
            let candidate = Candidate::new(best.cpus.clone(), memory, rough);
            if candidate.is_as_good(best) {
                *best = candidate;
            }
        }
    }
}

#[cfg(test)]
mod tests;
