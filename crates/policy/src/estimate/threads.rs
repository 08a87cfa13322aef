//! The threads of an interval: what was counted of them, where their lines come from.

use std::collections::BTreeMap;

use numaherd_contention::{Lane, Seat};
use numaherd_topology::{Cpu, CpuId, Node, NodeId, Topology};
use numaherd_world::{Mapped, MemoryKind, ProcessId, Residency, Thread, ThreadId};

use super::Basis;
use super::demands::Draw;
use super::sharing::Apart;
use crate::busy::wanted;
use crate::stage::Stage;

/// Lines or requests per 1000 instructions below which a thread takes no cache from others.
pub(super) const QUIET: f64 = 0.5;
/// What a thread is assumed to read where nothing is counted: lines from memory per 1000 instructions, at an instruction
/// per ns. So little that remote memory costs it some 5 % of its time, and no controller is ever full (chosen here).
const ASSUMED_LINES: f64 = 2.0;
/// How much more of one memory than of another must be on a thread's node for its local lines to show which of the two it
/// reads (chosen here).
const TOLD_APART: f64 = 0.5;
/// Requests per 1000 instructions that differ by less than this share are of one phase (chosen here).
pub const ONE_PHASE: f64 = 0.15;
/// Memory counts as private if at least this share of it is (chosen here).
const PRIVATE: f64 = 0.95;

/// One thread in this interval.
#[derive(Clone, Debug)]
pub struct Load {
    /// Which thread.
    pub id: ThreadId,
    /// Its place in the snapshot.
    pub at: usize,
    /// Its process, as a place among [`Picture::processes`].
    pub process: usize,
    /// Where it is.
    pub cpu: CpuId,
    /// Whether it may be placed.
    pub is_free: bool,
    /// The share of a CPU that it wants.
    pub wanted: f64,
    /// The same at its busiest of late: the room that it needs.
    pub peak: f64,
    /// Instructions per ns on a CPU; 0 where it was not counted, while others were.
    pub speed: f64,
    /// For how long it has been seen, in ns.
    pub age_ns: u64,
    /// Lines from memory per 1000 instructions.
    pub lines: f64,
    /// Bytes of cache that it has.
    pub held: f64,
    /// Whether nothing was counted of it or any other.
    pub(super) is_assumed: bool,
    pub(super) requests: Option<f64>,
    pub(super) busy_ns: Option<f64>,
    /// Nodes (places) and the share of its lines from each.
    pub memory: Vec<(usize, f64)>,
    /// The same if its lines from other nodes come from each of them alike; only for a thread that reads other memory than
    /// its process's other threads.
    pub(super) evenly: Option<Vec<(usize, f64)>>,
    /// The share of its lines from memory that its process has in common with others.
    pub common: f64,
    /// Whether its own memory is known to be beside it, as far as the process's private memory is.
    pub(super) is_at_home: bool,
    pub(super) seen: Vec<(f64, f64)>,
    pub(super) footprint: f64,
    /// Of its requests per 1000 instructions, those for lines that other threads of its process have in their caches; 0: none
    /// are known.
    pub(super) shared: f64,
    /// Where those threads are.
    pub(super) apart: Apart,
}

impl Load {
    pub(super) fn ns(&self) -> f64 {
        1000.0 / self.speed.max(1e-9)
    }

    /// Whether anything is known or assumed of what it reads.
    pub(super) fn is_known(&self) -> bool {
        self.speed > 0.0
    }

    pub(super) fn is_counted(&self) -> bool {
        self.is_known() && !self.is_assumed
    }

    /// What its figures are based on.
    pub(super) fn from(&self) -> Basis {
        match self.busy_ns {
            _ if self.is_assumed => Basis::Residency,
            Some(_) => Basis::Uncore,
            None => Basis::Counters,
        }
    }

    /// Whether it reads lines from memory or from other threads' caches.
    pub fn reads(&self) -> bool {
        self.lines > 0.0 || self.shared > 0.0
    }

    /// Whether a thread did the same in another interval, as far as is counted.
    pub fn does_as(&self, other: &Self) -> bool {
        are_one_phase(self.requests, other.requests)
    }

    /// Where its lines come from by a draw.
    pub(super) fn memory_by(&self, draw: &Draw) -> &[(usize, f64)] {
        let evenly = self.evenly.as_ref().filter(|_| draw.evenly);
        evenly.unwrap_or(&self.memory)
    }

    /// A thread of a machine on which nothing is counted.
    pub(super) fn assumed(mut self) -> Self {
        self.speed = 1.0;
        self.lines = ASSUMED_LINES;
        self.is_assumed = true;
        self
    }
}

/// Whether two intervals are of one phase, by how often a thread asked the last-level cache per 1000 instructions, if that is
/// counted: that does not depend on where the thread and its memory are.
pub(super) fn are_one_phase(one: Option<f64>, other: Option<f64>) -> bool {
    let (Some(one), Some(other)) = (one, other) else {
        return true;
    };
    are_as_many(one, other)
}

/// Whether lines or requests per 1000 instructions are those of one phase.
pub(super) fn are_as_many(one: f64, other: f64) -> bool {
    let most = one.max(other);
    most < QUIET || (one - other).abs() <= ONE_PHASE * most
}

/// A process of the threads.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Which.
    pub id: ProcessId,
    /// Its threads, as places among [`Picture::threads`].
    pub threads: Vec<usize>,
    /// Its own pages by node (place), without those of files that others map too (programs and libraries), which stay where
    /// they are.
    pub pages: Vec<u64>,
    /// Pages by node (places) that it has in common with other processes.
    pub common: Vec<u64>,
    /// Of which kinds those are.
    pub common_kinds: Vec<MemoryKind>,
    /// The nodes (places) that have room for all of it, and that it may use; none where its user gave its memory a
    /// policy.
    pub fits: Vec<bool>,
    /// The share of its lines that each thread is known to have for itself.
    pub private: f64,
    /// Whether its other lines are known to be shared: its memory has followed its threads before.
    pub is_told: bool,
    /// Whether its memory can follow in portions: all of it is private, and its own.
    pub has_portions: bool,
    /// The node (place) to which its memory has followed in part, and how many portions have.
    pub followed: Option<(usize, u64)>,
}

/// For each node (place), how many bytes a process may still take: a tenth of what is free stays for all others.
pub(super) fn room(stage: &Stage<'_>) -> Vec<u64> {
    let states: BTreeMap<NodeId, u64> = (stage.snapshot.nodes.iter())
        .map(|state| (state.id, state.free_bytes))
        .collect();
    let room = |node: &Node| {
        let free = states.get(&node.id).copied().unwrap_or(0);
        if node.memory_bytes > 0 {
            free - free / 10
        } else {
            0
        }
    };
    stage.topology.nodes().iter().map(room).collect()
}

/// The process of a thread, without its threads. `room` is that of [`room()`], and `llc` that of
/// [`llc_bytes`](super::caches::llc_bytes).
pub(super) fn owner(stage: &Stage<'_>, thread: usize, room: &[u64], llc: &[f64]) -> Owner {
    let nodes = stage.topology.nodes();
    let process = stage.thread(thread).process;
    let known = stage.snapshot.process(process);
    let residency = known.and_then(|known| known.residency.as_ref());
    let all_pages: Vec<u64> = (nodes.iter())
        .map(|node| residency.map_or(0, |residency| residency.on(node.id)))
        .collect();
    let cached = llc.iter().copied().fold(0.0, f64::max) / stage.snapshot.page_bytes as f64;
    let common_kinds = residency.map_or_else(Vec::new, |all| common_kinds(all, cached));
    let of_kind = |&kind: &MemoryKind| residency?.of_kind(kind);
    let of_kinds: Vec<Residency> = common_kinds.iter().filter_map(of_kind).collect();
    let in_common = |node: &Node| of_kinds.iter().map(|pages| pages.on(node.id)).sum();
    let common: Vec<u64> = nodes.iter().map(in_common).collect();
    let programs: Vec<u64> = match residency.and_then(|residency| residency.kinds.as_ref()) {
        Some(kinds) if !common_kinds.contains(&MemoryKind::File) => {
            let of_others = |node: &Node| kinds.file.of_others_on(node.id);
            nodes.iter().map(of_others).collect()
        }
        _ => vec![0; nodes.len()],
    };
    let pages = all_pages.iter().zip(&common).zip(&programs);
    let own = |((all, common), programs): ((&u64, &u64), &u64)| {
        all.saturating_sub(*common).saturating_sub(*programs)
    };
    let pages: Vec<u64> = pages.map(own).collect();
    let all: u64 = all_pages.iter().sum();
    let is_free = known.is_none_or(|known| known.memory_policy.is_none());
    let fits = nodes
        .iter()
        .zip(&all_pages)
        .zip(room)
        .map(|((node, &there), &room)| {
            let needs = (all - there).saturating_mul(stage.snapshot.page_bytes);
            let allowed = known.is_none_or(|known| known.allowed_nodes.contains(node.id));
            is_free && allowed && node.memory_bytes > 0 && needs <= room
        });
    Owner {
        id: process,
        threads: Vec::new(),
        fits: fits.collect(),
        has_portions: residency.is_some_and(|all| is_private(all, programs.iter().sum())),
        pages,
        common,
        common_kinds,
        private: 0.0,
        is_told: false,
        followed: None,
    }
}

/// Whether memory is private, except for so many pages of programs and libraries; true where kinds are not told apart.
fn is_private(residency: &Residency, programs: u64) -> bool {
    let private = residency.of_kind(MemoryKind::Private);
    let all = residency.total().saturating_sub(programs);
    private.is_none_or(|private| private.total() as f64 >= PRIVATE * all as f64)
}

/// The kinds of memory that a process has in common with others: shared memory that is mapped more than once, if it is more
/// than the pages that a cache holds (no line of those comes from memory), and files that are, if most of its pages are
/// theirs, those of its program and libraries apart: what it waits for is data.
fn common_kinds(residency: &Residency, cached: f64) -> Vec<MemoryKind> {
    let Some(kinds) = &residency.kinds else {
        return Vec::new();
    };
    let sum = |mapped: &Mapped| mapped.pages.iter().map(|&(_, pages)| pages).sum::<u64>();
    let mut common = Vec::new();
    if kinds.shared.again && sum(&kinds.shared) as f64 > cached {
        common.push(MemoryKind::Shared);
    }
    let data = sum(&kinds.file).saturating_sub(kinds.file.programs);
    if kinds.file.again && data > residency.total() / 2 {
        common.push(MemoryKind::File);
    }
    common
}

pub(super) fn load(
    stage: &Stage<'_>,
    thread: &Thread,
    at: usize,
    (process, owner): (usize, &Owner),
    is_free: bool,
) -> Load {
    // Within its domain a thread runs where the kernel likes.
    let cpu = thread.cpu;
    let on_cpu_ns = thread.cpu_share * stage.snapshot.interval_ns as f64;
    let counts = thread.counts.filter(|counts| counts.instructions > 0);
    let per_1000 = |count: u64| {
        counts.map_or(0.0, |counts| {
            count as f64 * 1000.0 / counts.instructions as f64
        })
    };
    let speed = counts.map_or(0.0, |counts| {
        counts.instructions as f64 / on_cpu_ns.max(1.0)
    });
    let busy_ns = counts.and_then(|counts| {
        let busy = counts.uncore_busy_cycles? as f64 / counts.cycles.filter(|&c| c > 0)? as f64;
        Some(busy.min(1.0) * 1000.0 / speed)
    });
    Load {
        id: thread.id,
        at,
        process,
        cpu,
        is_free,
        wanted: wanted(thread).min(1.0),
        peak: 0.0,
        speed,
        age_ns: 0,
        lines: per_1000(counts.map_or(0, |counts| counts.lines)),
        held: 0.0,
        is_assumed: false,
        requests: counts.and_then(|c| Some(per_1000(c.uncore_requests?))),
        busy_ns,
        memory: memory(stage, thread, owner),
        evenly: None,
        common: common(stage, thread, owner),
        is_at_home: false,
        seen: Vec::new(),
        footprint: owner.all_pages().sum::<u64>() as f64 * stage.snapshot.page_bytes as f64,
        shared: 0.0,
        apart: Apart::default(),
    }
}

impl Owner {
    /// All of its pages by node (places).
    pub fn all_pages(&self) -> impl Iterator<Item = u64> {
        let both = self.pages.iter().zip(&self.common);
        both.map(|(own, common)| own.saturating_add(*common))
    }
}

/// The share of a thread's lines that come from common memory. If own and common memory are on different nodes, it is the
/// share under which as many lines are local as were counted. Otherwise it is that of the pages, or 0 if only files are
/// common: those of a small program are mostly its code, which it executes and does not read.
fn common(stage: &Stage<'_>, thread: &Thread, owner: &Owner) -> f64 {
    let sums = |pages: &[u64]| pages.iter().sum::<u64>() as f64;
    let (own, common) = (sums(&owner.pages), sums(&owner.common));
    if common == 0.0 || own == 0.0 {
        return if common > 0.0 { 1.0 } else { 0.0 };
    }
    let by_pages = match owner.common_kinds.contains(&MemoryKind::Shared) {
        true => common / (own + common),
        false => 0.0,
    };
    let here = stage.topology.cpu(thread.cpu).map(|cpu| cpu.node);
    let here = here.and_then(|node| stage.topology.node_index(node));
    let local = thread.counts.and_then(|counts| counts.local_access_ratio());
    let (Some(here), Some(local)) = (here, local) else {
        return by_pages;
    };
    let on = |pages: &[u64], all: f64| pages[here] as f64 / all.max(1.0);
    let (own, common) = (on(&owner.pages, own), on(&owner.common, common));
    match (own - common).abs() >= TOLD_APART {
        true => ((own - local) / (own - common)).clamp(0.0, 1.0),
        false => by_pages,
    }
}

/// Where a thread's lines come from: the counted share (or else that of its process's pages) from its own node, the rest
/// from the others as the pages are.
fn memory(stage: &Stage<'_>, thread: &Thread, owner: &Owner) -> Vec<(usize, f64)> {
    let nodes = stage.topology.nodes().len();
    let here = stage.topology.cpu(thread.cpu).map(|cpu| cpu.node);
    let here = here.and_then(|node| stage.topology.node_index(node));
    let pages: Vec<u64> = owner.all_pages().collect();
    let all: u64 = pages.iter().sum();
    let share = |node: usize| pages[node] as f64 / all.max(1) as f64;
    let local = thread.counts.and_then(|counts| counts.local_access_ratio());
    let mut memory: Vec<(usize, f64)> = match (local, here) {
        (Some(local), Some(here)) => {
            let elsewhere: f64 = 1.0 - share(here);
            let others = nodes.saturating_sub(1).max(1) as f64;
            let of_others = |node: usize| match all > 0 && elsewhere > 0.0 {
                true => share(node) / elsewhere,
                false => 1.0 / others,
            };
            (0..nodes)
                .map(|node| match node == here {
                    true => (node, local),
                    false => (node, (1.0 - local) * of_others(node)),
                })
                .collect()
        }
        (None, _) if all > 0 => (0..nodes).map(|node| (node, share(node))).collect(),
        (_, here) => vec![(here.unwrap_or(0), 1.0)],
    };
    memory.retain(|&(_, share)| share > 0.0);
    if memory.is_empty() {
        memory.push((here.unwrap_or(0), 1.0));
    }
    memory
}

/// A thread whose share of local lines is less than this part of its process's mean has its memory elsewhere (chosen
/// here).
const AWAY: f64 = 0.5;
/// At most this share of a process's threads can be away from the memory that is theirs: if more seem to be, all rather use
/// one memory (chosen here).
const MOST_AWAY: f64 = 0.25;

/// Local shares of lines are alike if they differ by no more than this. A thread whose local share is not like what its
/// process's other threads would have in its place reads other memory than they do (chosen here).
pub(super) const APART: f64 = 0.1;

/// For a process with threads on several nodes: all use what is shared alike, and each has a private part beside it. With
/// `l` the share of local lines on each node, and all lines from nodes with threads, the private part is
/// `(sum l - 1) / (nodes - 1)`. Returns it. It is a lower bound: private memory elsewhere looks like shared memory.
///
/// A few threads may be away from their part, like one that the kernel moved after it had touched its pages. If the private
/// part of the others is most of what they read, these few keep the memory that was counted for them. So does any thread
/// that has other local lines than the private part and what is shared would give: how many of its lines are local is
/// known, but not where the others come from.
pub(super) fn tell_shared_from_private(
    threads: &mut [Load],
    members: &[usize],
    seats: &Seats,
) -> f64 {
    let local = |at: usize| {
        let seat = seats.get(threads[at].cpu).map(|(seat, _)| seat.node);
        share_of(&threads[at].memory, seat)
    };
    let reads = |at: &&usize| threads[**at].lines > 0.0;
    let all = members.iter().filter(reads);
    let mean = all.clone().map(|&at| local(at)).sum::<f64>() / all.clone().count().max(1) as f64;
    let (at_home, away): (Vec<usize>, Vec<usize>) =
        all.copied().partition(|&at| local(at) >= AWAY * mean);
    let few = away.len() as f64 <= MOST_AWAY * members.len() as f64;
    if few && !away.is_empty() && parts_of(threads, &at_home, seats).private >= 0.5 {
        for &at in &away {
            keep_counted(&mut threads[at], seats);
        }
        return share_out(threads, &at_home, seats);
    }
    share_out(threads, members, seats)
}

/// The share of a thread's lines from a node (place).
pub(super) fn share_of(memory: &[(usize, f64)], node: Option<usize>) -> f64 {
    let of_node = memory.iter().filter(|part| Some(part.0) == node);
    of_node.map(|part| part.1).sum()
}

/// Leaves a thread the memory that was counted for it; where its remote lines come from is not known.
fn keep_counted(load: &mut Load, seats: &Seats) {
    let Some((seat, _)) = seats.get(load.cpu) else {
        return;
    };
    let local = share_of(&load.memory, Some(seat.node));
    let others: Vec<usize> = (load.memory.iter())
        .map(|part| part.0)
        .filter(|&node| node != seat.node)
        .collect();
    let each = (1.0 - local) / others.len().max(1) as f64;
    let remote = others.into_iter().map(|node| (node, each));
    load.evenly = Some(remote.chain([(seat.node, local)]).collect());
}

/// Gives each of these threads its private part and what all use. Returns the private part.
fn share_out(threads: &mut [Load], members: &[usize], seats: &Seats) -> f64 {
    let PartsOf { private, shared } = parts_of(threads, members, seats);
    if shared.is_empty() && private == 0.0 {
        return 0.0;
    }
    for &at in members {
        let Some((seat, _)) = seats.get(threads[at].cpu) else {
            continue;
        };
        let mut memory = shared.clone();
        if private > 0.0 {
            memory.push((seat.node, private));
        }
        let load = &mut threads[at];
        let [counted, expected] =
            [&load.memory, &memory].map(|memory| share_of(memory, Some(seat.node)));
        load.is_at_home = counted >= expected - APART;
        match (counted - expected).abs() <= APART {
            true => load.memory = memory,
            false => keep_counted(load, seats),
        }
    }
    private
}

/// The memory of these threads of a process, as [`tell_shared_from_private`] tells it apart.
struct PartsOf {
    private: f64,
    /// Nodes (places) and the share of lines from what all use there.
    shared: Vec<(usize, f64)>,
}

fn parts_of(threads: &[Load], members: &[usize], seats: &Seats) -> PartsOf {
    let mut local: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for load in members
        .iter()
        .map(|&at| &threads[at])
        .filter(|load| load.lines > 0.0)
    {
        let Some((seat, _)) = seats.get(load.cpu) else {
            continue;
        };
        let of_node = load.memory.iter().find(|&&(node, _)| node == seat.node);
        let (sum, weight) = local.entry(seat.node).or_default();
        *sum += of_node.map_or(0.0, |&(_, share)| share) * load.lines * load.speed;
        *weight += load.lines * load.speed;
    }
    if local.len() < 2 {
        return PartsOf {
            private: 0.0,
            shared: Vec::new(),
        };
    }
    let local: Vec<(usize, f64)> = (local.into_iter())
        .map(|(node, (sum, weight))| (node, sum / weight))
        .collect();
    let all: f64 = local.iter().map(|&(_, share)| share).sum();
    let private = ((all - 1.0) / (local.len() as f64 - 1.0)).clamp(0.0, 1.0);
    // What is not on a node with threads is on the others as its pages are.
    let elsewhere = (1.0 - all).max(0.0);
    let rest = threads[members[0]].memory.iter().copied();
    let rest: Vec<(usize, f64)> = rest
        .filter(|(node, _)| local.iter().all(|(with, _)| with != node))
        .collect();
    let rest_share: f64 = rest.iter().map(|&(_, share)| share).sum();
    let shared = local
        .iter()
        .map(|&(node, share)| (node, (share - private).max(0.0)));
    let rest = rest
        .iter()
        .map(|&(node, share)| (node, elsewhere * share / rest_share));
    let mut shared: Vec<(usize, f64)> = shared.chain(rest).filter(|part| part.1 > 0.0).collect();
    let sum: f64 = shared.iter().map(|&(_, share)| share).sum();
    shared
        .iter_mut()
        .for_each(|(_, share)| *share *= (1.0 - private) / sum.max(1e-12));
    PartsOf { private, shared }
}

/// Where each CPU is.
#[derive(Clone, Debug)]
pub(super) struct Seats(Vec<Option<(Seat, Lane)>>);

impl Seats {
    pub(super) fn get(&self, cpu: CpuId) -> Option<&(Seat, Lane)> {
        self.0.get(cpu.index())?.as_ref()
    }
}

pub(super) fn seats(topology: &Topology) -> Seats {
    let seat = |cpu: &Cpu| {
        let seat = Seat {
            domain: cpu.domain.index(),
            node: topology.node_index(cpu.node)?,
        };
        let lane = Lane {
            core: cpu.core.index(),
            cpu: cpu.id.index(),
        };
        Some((seat, lane))
    };
    let last = topology.cpus().iter().map(|cpu| cpu.id.index()).max();
    let mut seats = vec![None; last.map_or(0, |last| last + 1)];
    for cpu in topology.cpus() {
        seats[cpu.id.index()] = seat(cpu);
    }
    Seats(seats)
}
