//! Tiered: cold memory goes to nodes without CPUs, and comes back when it is used.
//!
//! Problem: some machines have memory apart from their CPUs (CXL expanders, HBM beside DRAM). The kernel fills the nodes
//! with CPUs first, so unused memory keeps out memory that is used, which then lies far from all CPUs. And when the
//! controller of a near node is saturated, memory that is farther away may answer sooner.
//!
//! Rule: a node with memory and CPUs is *near*, one with memory alone is *apart*. Private memory moves by blocks of 2 MiB.
//!
//! 1. *Cold.* If less than `tiered.keep_free` of a near node's memory is free, as many cold blocks of its processes as are
//!    missing go to a node apart: the nearest that has more than that free and no more bandwidth. Files that have not been
//!    used of late count as free. A block is cold if no access to it was sampled for at least `tiered.cold_after_s`, while
//!    blocks that were used have eight samples each on average, and stores are among what is sampled. Without samples, or
//!    with samples of loads alone, use cannot be seen. Then memory is cold only if all threads of its process together used
//!    less than 1 % of a CPU during that time.
//! 2. *Used.* A block on a node apart that was sampled twice comes back, the most used block first. It goes to the near
//!    node from which it was used, or the nearest to that, while more than `tiered.keep_free` is free there. Otherwise, it
//!    counts as missing in 1. It does not come back if accesses to that near node took longer in the last turn than
//!    accesses to the node apart.
//! 3. *Loaded.* If the lines that threads read from their own node take more than half of its bandwidth, latencies of
//!    sampled accesses are compared once a turn. If the near node's latency is longer than that of a node apart, blocks
//!    with an eighth of its samples go there, the coldest first. The latency of a node apart that is not used is estimated:
//!    the shortest that was seen of the near node, times the ratio of their latencies in the machine's description. Without
//!    a description, nothing is done. Such blocks come back by 2 once both latencies are known.
//!
//! A block that has come back stays near for twice `tiered.cold_after_s`, and for twice as long each time after. Processes
//! whose memory is fixed, or was placed by their user, are left alone. While memory is not short, no node is loaded and
//! nothing is apart, nothing is sampled.
//!
//! Terms: a *turn* is a period of `tiered.cold_after_s` in which accesses are sampled. Source: pages move while the loaded
//! latency of their node is longer: Colloid (SOSP 2024); cold memory goes first to the far tier: TPP (ASPLOS 2023); counts
//! are chosen here.
//!
//! Properties: no order takes a node below `tiered.keep_free`, as far as it was seen; no block is ordered away again within
//! the time that it stays; without nodes apart there are no orders.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use numaherd_files::settings;
use numaherd_topology::{Node, NodeId, Topology};
use numaherd_world::{
    BLOCK_PAGES, PageOrder, PageOutcome, Pages, Process, ProcessId, Sample, Signal, Snapshot,
    ThreadId,
};

use crate::policy::{Optional, Paging, PagingNeeds, PlacedThread, Random};
use crate::rules::Rule;
use crate::settings::Settings;
use accesses::{Accesses, Used};
use moves::{Move, orders};
use room::Room;
use seen::{loaded, movable};

mod accesses;
mod moves;
mod room;
mod seen;

/// The rules that orders name.
pub const RULES: &[Rule] = &[COLD, USED, LOADED];
const COLD: Rule = Rule {
    name: "tiered: cold",
    source: "TPP; counts chosen here",
    what: "A near node is short of memory, and these pages have not been used for long: they go to a node without CPUs.",
};
const USED: Rule = Rule {
    name: "tiered: used",
    source: "TPP; counts chosen here",
    what: "These pages are on a node without CPUs and are used: they come back to a near node.",
};
const LOADED: Rule = Rule {
    name: "tiered: loaded",
    source: "Colloid; counts chosen here",
    what: "A near node answers later than a node without CPUs would: its pages that are used least go there.",
};

settings! {
    /// Which memory goes to nodes without CPUs.
    #[derive(Copy)]
    pub struct TieredSettings {
        /// For how long memory must not have been used to count as cold.
        cold_after_s: u64 = 30, unit: "s", range: 1.0..=86_400.0, source: "chosen here";
        /// Share of a node's memory that is kept free: by sending cold memory away from nodes with CPUs, and by sending
        /// no more to nodes without.
        keep_free: f64 = 0.1, unit: "share", range: 0.0..=1.0, source: "twice `limits.node_reserve`; chosen here";
    }
}

/// A process whose threads together use less of a CPU than this rests (chosen here).
const RESTS: f64 = 0.01;
/// So many samples show that a block on a node apart is used: one may be chance (chosen here, as Linux waits for a second
/// fault).
const IS_USED: u64 = 2;
/// Blocks with one in so many of a loaded node's samples go away in one turn (chosen here).
const PART: u64 = 8;
/// The most blocks that are ordered in one interval (chosen here).
const MOST_BLOCKS: usize = 64;

/// See the top of this file.
#[derive(Debug)]
pub struct Tiered {
    cold_after_ns: u64,
    keep_free: f64,
    /// The machine, if it has nodes apart.
    machine: Option<Arc<Topology>>,
    page_bytes: u64,
    now_ns: u64,
    accesses: Accesses,
    /// Since when everything is sampled; `None` while nothing is.
    turn_since_ns: Option<u64>,
    processes: BTreeMap<ProcessId, Watched>,
    /// The blocks that were last ordered away from a loaded node.
    for_load: HashSet<(ProcessId, u64)>,
}

/// What is known of a process.
#[derive(Clone, Debug, Default)]
struct Watched {
    /// Since when it is known, in ns.
    since_ns: u64,
    /// Since when its threads have hardly used CPUs, in ns.
    rests_since_ns: Option<u64>,
    /// The blocks that were sent away, and whether that was from a loaded node.
    away: HashMap<u64, bool>,
    /// The blocks that were ordered to move and did not, and until when they are not ordered again, in ns.
    waits: HashMap<u64, u64>,
    /// The blocks that came back: how often, and until when they stay, in ns.
    back: HashMap<u64, (u32, u64)>,
}

/// What the orders of one interval are made from.
struct Interval<'a> {
    topology: &'a Topology,
    room: Room,
    /// Processes whose memory may move, and for which of their threads.
    movable: Vec<(&'a Process, ThreadId)>,
    /// The blocks of these that were used.
    used: HashMap<ProcessId, BTreeMap<u64, Used>>,
    moves: Vec<Move>,
}

impl Interval<'_> {
    /// Notes a move for which there is room.
    fn add(&mut self, to_move: Move) {
        self.room.take(to_move.to);
        self.moves.push(to_move);
    }

    fn is_full(&self) -> bool {
        self.moves.len() >= MOST_BLOCKS
    }

    fn used(&self, process: ProcessId) -> impl Iterator<Item = (u64, Used)> {
        let used = self.used.get(&process).into_iter().flatten();
        used.map(|(&block, &used)| (block, used))
    }
}

impl Tiered {
    /// The paging; nothing seen yet.
    pub fn new(settings: &Settings) -> Self {
        Self {
            cold_after_ns: settings.tiered.cold_after_s.saturating_mul(1_000_000_000),
            keep_free: settings.tiered.keep_free,
            machine: None,
            page_bytes: numaherd_world::USUAL_PAGE_BYTES,
            now_ns: 0,
            accesses: Accesses::default(),
            turn_since_ns: None,
            processes: BTreeMap::new(),
            for_load: HashSet::new(),
        }
    }

    /// Takes in an interval.
    fn see(&mut self, snapshot: &Snapshot) {
        self.page_bytes = snapshot.page_bytes.max(1);
        self.now_ns = snapshot.time_ns;
        let is_there = |process| snapshot.process(process).is_some();
        self.accesses.keep_only(is_there);
        self.processes.retain(|&process, _| is_there(process));
        let mut use_of: HashMap<ProcessId, f64> = HashMap::new();
        for thread in &snapshot.threads {
            *use_of.entry(thread.process).or_default() += thread.cpu_share;
        }
        for process in &snapshot.processes {
            let watched = self.processes.entry(process.id).or_insert(Watched {
                since_ns: snapshot.time_ns,
                ..Watched::default()
            });
            let is_resting = use_of.get(&process.id).is_none_or(|&used| used < RESTS);
            watched.rests_since_ns = match is_resting {
                true => watched.rests_since_ns.or(Some(snapshot.time_ns)),
                false => None,
            };
            watched
                .waits
                .retain(|_, until_ns| *until_ns > snapshot.time_ns);
        }
    }

    /// Forgets that blocks are away if accesses show that they have been brought back.
    fn forget_near(&mut self, interval: &Interval<'_>) {
        for (process, used) in &interval.used {
            let is_near = |block: &u64| {
                let used = used.get(block);
                used.is_some_and(|used| !interval.room.is_apart(used.on))
            };
            if let Some(known) = self.processes.get_mut(process) {
                known.away.retain(|block, _| !is_near(block));
            }
        }
    }

    /// Rule 2: what is used comes back.
    fn bring_back(&self, interval: &mut Interval<'_>) {
        let mut wanted = Vec::new();
        for &(process, _) in &interval.movable {
            let Some(known) = self.processes.get(&process.id) else {
                continue;
            };
            for (block, used) in interval.used(process.id) {
                let (allowed, topology) = (&process.allowed_nodes, interval.topology);
                let near = interval.room.near_to(used.by, allowed, topology);
                let is_to_come = interval.room.is_apart(used.on)
                    && used.samples >= IS_USED
                    && !known.waits.contains_key(&block);
                if let Some(near) = near.filter(|_| is_to_come)
                    && self.is_slower(used.on, near, known.away.get(&block) == Some(&true))
                {
                    wanted.push((Reverse(used.samples), process.id, block, used, near));
                }
            }
        }
        wanted.sort_unstable_by_key(|&(samples, process, block, ..)| (samples, process, block));
        for (_, process, block, used, near) in wanted {
            if interval.room.has(near) && !interval.is_full() {
                interval.add(Move {
                    process,
                    thread: used.thread,
                    block,
                    to: near,
                    rule: USED,
                    near: used.by,
                });
            } else {
                interval.room.want(near);
            }
        }
    }

    /// Whether a node apart answers later than a near one; if that is not known, whether it need not be.
    fn is_slower(&self, apart: NodeId, near: NodeId, must_be_known: bool) -> bool {
        match (self.accesses.latency(apart), self.accesses.latency(near)) {
            (Some(apart), Some(near)) => apart > near,
            _ => !must_be_known,
        }
    }

    /// Rule 1: what is cold goes away where memory is short.
    fn send_cold(&self, interval: &mut Interval<'_>) {
        for near in interval.room.short() {
            // Processes that rest come first: their memory is surely cold.
            for is_resting in [true, false] {
                for (process, thread) in interval.movable.clone() {
                    let Some(known) = self.processes.get(&process.id) else {
                        continue;
                    };
                    if self.rests(known) == is_resting {
                        self.send_cold_of(process, thread, known, near, interval);
                    }
                }
            }
        }
    }

    fn send_cold_of(
        &self,
        process: &Process,
        thread: ThreadId,
        known: &Watched,
        near: NodeId,
        interval: &mut Interval<'_>,
    ) {
        if !self.rests(known) && !self.shows_unused(process.id, known, interval) {
            return;
        }
        let used: HashSet<u64> = interval.used(process.id).map(|(block, _)| block).collect();
        for extent in process.extents.iter() {
            let on_near = extent.on.iter().find(|(node, _)| *node == near);
            // An extent has no more blocks there than would hold its pages, but they may lie anywhere in it.
            let mut left = on_near.map_or(0, |(_, pages)| pages.div_ceil(BLOCK_PAGES));
            let first = extent.pages.start.div_ceil(BLOCK_PAGES);
            for block in first..extent.pages.end / BLOCK_PAGES {
                let to = interval
                    .room
                    .apart_from(near, &process.allowed_nodes, interval.topology);
                let Some(to) = to.filter(|_| interval.room.is_short(near)) else {
                    return;
                };
                if left == 0 || interval.is_full() {
                    break;
                }
                if used.contains(&block) || !self.may_go(known, block) {
                    continue;
                }
                left -= 1;
                interval.room.free(near);
                interval.add(Move {
                    process: process.id,
                    thread,
                    block,
                    to,
                    rule: COLD,
                    near,
                });
            }
        }
    }

    /// Whether a process has rested long enough for all that it has not used to be cold.
    fn rests(&self, known: &Watched) -> bool {
        let since = known.rests_since_ns;
        since.is_some_and(|since_ns| self.is_old(since_ns))
    }

    /// Whether samples show that all unused memory of a process is cold.
    fn shows_unused(&self, process: ProcessId, known: &Watched, interval: &Interval<'_>) -> bool {
        let used = interval.used.get(&process);
        self.is_old(known.since_ns) && used.is_some_and(|used| self.accesses.show_unused(used))
    }

    fn is_old(&self, since_ns: u64) -> bool {
        self.now_ns.saturating_sub(since_ns) >= self.cold_after_ns
    }

    /// Whether a block may be sent away: it is not away, did not fail to move of late, and has not come back of late.
    fn may_go(&self, known: &Watched, block: u64) -> bool {
        let stays = known.back.get(&block);
        let stays = stays.is_some_and(|&(_, until_ns)| until_ns > self.now_ns);
        !stays && !known.away.contains_key(&block) && !known.waits.contains_key(&block)
    }

    /// Rule 3: what is used least goes away where accesses wait for the controller.
    fn relieve(&self, loaded: &[NodeId], interval: &mut Interval<'_>) {
        for &near in loaded {
            let Some(latency) = self.accesses.latency(near) else {
                continue;
            };
            let topology = interval.topology;
            let latency_of = |apart: NodeId| {
                let sampled = self.accesses.latency(apart);
                sampled.or_else(|| self.accesses.idle_latency(near, apart, topology))
            };
            let mut on_near = Vec::new();
            for &(process, _) in &interval.movable {
                let known = self.processes.get(&process.id);
                let is_seen = |known: &&Watched| self.shows_unused(process.id, known, interval);
                let Some(known) = known.filter(is_seen) else {
                    continue;
                };
                let used = interval.used(process.id);
                let used = used.filter(|(_, used)| used.on == near);
                on_near.extend(used.map(|(block, used)| {
                    let goes = self.may_go(known, block);
                    (used.samples, process.id, block, goes, process, used.thread)
                }));
            }
            on_near
                .sort_unstable_by_key(|&(samples, process, block, ..)| (samples, process, block));
            let all: u64 = on_near.iter().map(|(samples, ..)| samples).sum();
            let mut left = all / PART;
            for (samples, _, block, goes, process, thread) in on_near {
                let shorter = |node: NodeId| latency_of(node).is_some_and(|of_it| of_it < latency);
                let allowed = &process.allowed_nodes;
                let to = interval
                    .room
                    .any_apart_from(near, allowed, topology, shorter);
                let (Some(to), Some(after)) = (to, left.checked_sub(samples)) else {
                    break;
                };
                if interval.is_full() {
                    return;
                }
                if goes {
                    left = after;
                    interval.add(Move {
                        process: process.id,
                        thread,
                        block,
                        to,
                        rule: LOADED,
                        near,
                    });
                }
            }
        }
    }

    /// Whether samples are of use: memory is short or loaded, or some is apart.
    fn wants_samples(&self, interval: &Interval<'_>, loaded: &[NodeId]) -> bool {
        let has_apart = |&(process, _): &(&Process, ThreadId)| {
            let pages = process
                .residency
                .iter()
                .flat_map(|residency| &residency.pages);
            let mut apart = pages.filter(|(node, _)| interval.room.is_apart(*node));
            let known = self.processes.get(&process.id);
            known.is_some_and(|known| !known.away.is_empty())
                || apart.any(|&(_, pages)| pages >= BLOCK_PAGES)
        };
        let is_needed = !interval.room.short().is_empty() || !loaded.is_empty();
        !interval.movable.is_empty() && (is_needed || interval.movable.iter().any(has_apart))
    }

    /// Notes what is ordered, so that it is not ordered again if it does not move.
    fn note(&mut self, moves: &[Move]) {
        let until_ns = self.now_ns.saturating_add(self.cold_after_ns);
        for one in moves {
            if let Some(known) = self.processes.get_mut(&one.process) {
                known.waits.insert(one.block, until_ns);
            }
        }
        let for_load = moves.iter().filter(|one| one.rule == LOADED);
        self.for_load = for_load.map(|one| (one.process, one.block)).collect();
    }
}

impl Paging for Tiered {
    fn needs(&self) -> PagingNeeds<'_> {
        PagingNeeds {
            also: &[Optional {
                signal: Signal::MemorySamples,
                without: "Nodes without CPUs get the memory of processes that rest, and give none back.",
            }],
            ..PagingNeeds::default()
        }
    }

    fn runs_on(&mut self, machine: &Arc<Topology>) {
        let has_some = machine.nodes().iter().any(Node::is_apart);
        self.machine = has_some.then(|| machine.clone());
    }

    fn placed(&mut self, _: &[PlacedThread], snapshot: &Snapshot) -> Vec<PageOrder> {
        let Some(topology) = self.machine.clone() else {
            return Vec::new();
        };
        self.see(snapshot);
        let loaded = loaded(snapshot, &topology);
        let is_over = self
            .turn_since_ns
            .is_some_and(|since_ns| self.is_old(since_ns));
        if is_over {
            self.accesses.turn();
            self.turn_since_ns = Some(self.now_ns);
        }
        let movable = movable(snapshot);
        let used = movable
            .iter()
            .map(|&(process, _)| (process.id, self.accesses.of(process.id)));
        let mut interval = Interval {
            topology: &topology,
            room: Room::of(
                snapshot,
                &topology,
                self.keep_free,
                BLOCK_PAGES * self.page_bytes,
            ),
            used: used.collect(),
            movable,
            moves: Vec::new(),
        };
        self.forget_near(&interval);
        let wants_samples = self.wants_samples(&interval, &loaded);
        self.bring_back(&mut interval);
        self.send_cold(&mut interval);
        if is_over {
            self.relieve(&loaded, &mut interval);
        }
        if !wants_samples {
            self.accesses.forget();
            self.turn_since_ns = None;
        } else if self.turn_since_ns.is_none() {
            self.turn_since_ns = Some(self.now_ns);
        }
        let moves = interval.moves;
        self.note(&moves);
        orders(moves, self.cold_after_ns / 1_000_000_000)
    }

    fn listens(&self) -> bool {
        self.turn_since_ns.is_some()
    }

    fn sampled(
        &mut self,
        samples: &[Sample],
        topology: &Topology,
        _: &mut Random,
    ) -> Vec<PageOrder> {
        if self.turn_since_ns.is_some() {
            self.accesses.take(samples, topology, self.page_bytes);
        }
        Vec::new()
    }

    fn moved(&mut self, outcomes: &[PageOutcome]) {
        let Some(topology) = self.machine.clone() else {
            return;
        };
        for outcome in outcomes {
            let Some(known) = self.processes.get_mut(&outcome.process) else {
                continue;
            };
            let Pages::Window { first, count } = outcome.pages else {
                // A placement has moved all memory of a process, or a part of it.
                known.away.clear();
                continue;
            };
            let is_apart = topology.node(outcome.to).is_some_and(Node::is_apart);
            let is_there = outcome.moved + outcome.already_there > 0;
            for block in first / BLOCK_PAGES..first.saturating_add(count).div_ceil(BLOCK_PAGES) {
                if outcome.not_tried > 0 && !is_there {
                    known.waits.remove(&block);
                }
                if outcome.not_tried > 0 || !is_there {
                    continue;
                }
                known.waits.remove(&block);
                self.accesses.moved(outcome.process, block);
                if is_apart {
                    let is_for_load = self.for_load.contains(&(outcome.process, block));
                    known.away.insert(block, is_for_load);
                } else {
                    known.away.remove(&block);
                    let times = known.back.get(&block).map_or(0, |&(times, _)| times) + 1;
                    let stays_ns = self.cold_after_ns.saturating_mul(1 << times.min(32));
                    known
                        .back
                        .insert(block, (times, self.now_ns.saturating_add(stays_ns)));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
