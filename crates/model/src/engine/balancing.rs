//! The modelled kernel's NUMA balancing ([`Options::numa_balancing`]): it unmaps pages to see which thread
//! faults on them next, moves pages towards the threads that use them, and threads to where their pages are.
//!
//! Rule of Linux 6.x (recalled from `kernel/sched/fair.c`), for processes whose pages are known by regions:
//! 1. *Scan.* Each scan unmaps the next 256 MiB of a process, in the order of addresses. The first scan comes 1 s after
//!    the start, the next ones after a period of at least 1 s (at least 100 ms where the process has many scans' worth
//!    of memory) and at most 60 s, both divided by the number of scans that a pass takes. A page faults unless nobody
//!    touches it before its next scan.
//! 2. *Pages.* A fault by a thread on node `n` moves a page of another node to `n` if the page's last fault came
//!    from `n`, too, and either was the same thread's or the process's threads fault on `n` far more, as in the
//!    paging `numa-balancing`. In the first pass every fault moves its page. Threads fault on shared pages in
//!    proportion to their accesses, independently of who faulted last.
//! 3. *Period.* After each pass, the period changes by how many of 10 faults were local or private. With at least 7 it
//!    grows, by a tenth for each one beyond 7 and by at least one tenth. With fewer it shrinks, by a tenth for each one
//!    that is missing. Without faults it doubles.
//! 4. *Threads.* After each pass, each thread that no policy has placed goes to the node that it faults on most; where
//!    threads share pages, the faults of the whole process count. It goes to an idle CPU there from which the scheduler
//!    would not take it again, or changes places with the thread that gains most, or loses least, by going the other
//!    way.
//!
//! A fault costs its thread 1.5 us (the middle of 1 to 2 us for a minor fault [C]); a page that moves costs what it
//! costs under any policy. Chance plays no part: among pages that are alike, the expected number moves.
//!
//! Left out: huge pages, groups of processes that share memory, rate limits, the time of scans themselves.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use numaherd_topology::CpuId;
use numaherd_world::{Pages, ProcessId, ThreadId};

use super::{Engine, PAGE_BYTES, SECOND_NS, Thread};

/// Pages that a scan unmaps (`scan_size_mb`).
const SCAN_PAGES: u64 = (256 << 20) / PAGE_BYTES;
/// Time until the first scan of a process (`scan_delay_ms`).
const DELAY_NS: f64 = SECOND_NS;
/// Shortest and longest time of a pass over a process's memory (`scan_period_min_ms`, `scan_period_max_ms`), and
/// the shortest time between two scans (`MAX_SCAN_WINDOW`: 2560 MiB a second).
const SHORTEST_PASS_NS: f64 = SECOND_NS;
const LONGEST_PASS_NS: f64 = 60.0 * SECOND_NS;
const SHORTEST_PERIOD_NS: f64 = 0.1 * SECOND_NS;
/// Time that a minor fault takes.
const FAULT_NS: f64 = 1500.0;
/// Tenths of faults that must be local or private for the period to grow (`NUMA_PERIOD_THRESHOLD`).
const ENOUGH: f64 = 7.0;
/// How many times as many faults on a node outweigh where pages are (`ACTIVE_NODE_FRACTION`).
const FAR_MORE: f64 = 3.0;
/// Least gain, as a share of a thread's faults, for which threads change places (`SMALLIMP`).
const LEAST_GAIN: f64 = 0.03;

/// What the kernel knows about the running processes.
#[derive(Clone, Debug, Default)]
pub(super) struct Balancing {
    scans: BTreeMap<ProcessId, Scan>,
}

/// The scans of a process.
#[derive(Clone, Debug)]
struct Scan {
    next_ns: f64,
    period_ns: f64,
    /// Pages done in this pass.
    done: u64,
    passes: u32,
    /// Faults by the node of the thread, and by the node of the page; halved after each pass.
    on: Vec<f64>,
    of: Vec<f64>,
    /// Faults of this pass; among them, those on the thread's own node, and those by the thread that also faulted last.
    faults: f64,
    local: f64,
    private: f64,
    /// Whether its threads share pages, and so go as a group.
    is_group: bool,
    /// By thread.
    threads: BTreeMap<ThreadId, Seen>,
}

/// What scans saw of a thread.
#[derive(Clone, Debug)]
struct Seen {
    node: usize,
    /// The scan at which it was first seen there, counted in passes.
    since: f64,
    /// Its faults by the node of the page, halved after each pass.
    of: Vec<f64>,
}

/// A thread as a scan finds it.
#[derive(Clone, Copy)]
struct User {
    id: ThreadId,
    index: usize,
    node: usize,
    /// Its share of the accesses to the pages.
    share: f64,
    /// Whether it was on that node when the pages were scanned last.
    is_settled: bool,
}

impl Scan {
    fn new(now_ns: f64, pages: u64, nodes: usize, is_group: bool) -> Self {
        Self {
            next_ns: now_ns + DELAY_NS,
            period_ns: shortest_ns(pages),
            done: 0,
            passes: 0,
            on: vec![0.0; nodes],
            of: vec![0.0; nodes],
            faults: 0.0,
            local: 0.0,
            private: 0.0,
            is_group,
            threads: BTreeMap::new(),
        }
    }

    /// Whether pages go from one node to another although several threads use them.
    fn should_move(&self, from: usize, to: usize) -> bool {
        self.on[to] > self.on[from] * FAR_MORE
            || self.on[to] * self.of[from] * 3.0 > self.on[from] * self.of[to] * 4.0
    }

    /// The share of pages on `from` that a fault sends to `to`.
    fn share_moved(&self, users: &[User], from: usize, to: usize) -> f64 {
        let there = || users.iter().filter(|one| one.node == to);
        let faults: f64 = there().map(|one| one.share).sum();
        if self.passes == 0 {
            return faults;
        }
        let settled = there().filter(|one| one.is_settled);
        let (mut before, mut private) = (0.0, 0.0);
        for one in settled {
            before += one.share;
            private += one.share * one.share;
        }
        let shared = faults * before - private;
        private
            + if self.should_move(from, to) {
                shared
            } else {
                0.0
            }
    }

    /// Ends a pass.
    fn adapt(&mut self, pages: u64) {
        if self.faults > 0.0 {
            let tenths = |faults: f64| (10.0 * faults / self.faults).floor();
            let (local, private) = (tenths(self.local), tenths(self.private));
            let by = if private >= ENOUGH {
                (private - ENOUGH).max(1.0)
            } else if local >= ENOUGH {
                (local - ENOUGH).max(1.0)
            } else {
                local.max(private) - ENOUGH
            };
            self.period_ns *= 1.0 + by / 10.0;
        } else {
            self.period_ns *= 2.0;
        }
        let longest = LONGEST_PASS_NS / scans(pages);
        let shortest = shortest_ns(pages);
        self.period_ns = self.period_ns.clamp(shortest, longest.max(shortest));
        (self.faults, self.local, self.private) = (0.0, 0.0, 0.0);
        let by_thread = self.threads.values_mut().flat_map(|thread| &mut thread.of);
        for faults in self.on.iter_mut().chain(&mut self.of).chain(by_thread) {
            *faults /= 2.0;
        }
        self.done = 0;
        self.passes += 1;
    }
}

/// How many scans a pass over `pages` pages takes.
fn scans(pages: u64) -> f64 {
    pages.div_ceil(SCAN_PAGES).max(1) as f64
}

fn shortest_ns(pages: u64) -> f64 {
    (SHORTEST_PASS_NS / scans(pages)).max(SHORTEST_PERIOD_NS)
}

/// Takes the first `pages` pages off some runs.
fn take(runs: &mut VecDeque<Range<u64>>, mut pages: u64) -> Vec<Range<u64>> {
    let mut taken = Vec::new();
    while pages > 0
        && let Some(run) = runs.front_mut()
    {
        let end = run.end.min(run.start + pages);
        pages -= end - run.start;
        taken.push(run.start..end);
        run.start = end;
        if run.is_empty() {
            runs.pop_front();
        }
    }
    taken
}

/// How a thread changes its place.
enum Way {
    /// It goes to an idle CPU.
    To(CpuId),
    /// It and another thread go to each other's CPU.
    Swap(ThreadId),
}

impl Engine {
    /// When the next scan is.
    pub(super) fn next_scan_ns(&self) -> f64 {
        let scans = self.balancing.scans.values();
        scans.map(|scan| scan.next_ns).fold(f64::INFINITY, f64::min)
    }

    /// Scans the processes whose time has come.
    pub(super) fn scan_processes(&mut self) {
        if !self.options.numa_balancing {
            return;
        }
        let mut balancing = std::mem::take(&mut self.balancing);
        let processes = &self.processes;
        balancing.scans.retain(|id, _| processes.contains_key(id));
        let nodes = self.hardware.figures.nodes;
        for (&id, process) in processes {
            let memory = &process.memory;
            let is_group = memory.evenly().any(|part| part.owner.is_none());
            let scan = || Scan::new(process.started_ns, memory.pages(), nodes, is_group);
            balancing.scans.entry(id).or_insert_with(scan);
        }
        let now_ns = self.now_ns;
        let is_due = |(&id, scan): (&ProcessId, &Scan)| (scan.next_ns <= now_ns).then_some(id);
        let due: Vec<ProcessId> = balancing.scans.iter().filter_map(is_due).collect();
        for id in due {
            let scan = balancing.scans.get_mut(&id).expect("one of them");
            if self.scan(id, scan) {
                self.gather(id, &balancing);
            }
        }
        self.balancing = balancing;
    }

    /// Makes one scan of a process. Returns whether it ended a pass.
    fn scan(&mut self, id: ProcessId, scan: &mut Scan) -> bool {
        let users = self.users(id, scan);
        let memory = &self.processes[&id].memory;
        let all = memory.pages();
        let window = memory.window(scan.done, SCAN_PAGES);
        let pass_ns = scan.period_ns * scans(all);
        let mut moves = Vec::new();
        let mut faults_of: BTreeMap<ThreadId, f64> = BTreeMap::new();
        for part in memory.evenly() {
            let pages = part.pages.start.max(window.start)..part.pages.end.min(window.end);
            let (users, rate) = sharing(&users, part.owner);
            if pages.is_empty() || users.is_empty() {
                continue;
            }
            let size = (part.pages.end - part.pages.start) as f64;
            let touched = -(-rate * part.accesses * pass_ns / size).exp_m1();
            let twice: f64 = users.iter().map(|user| user.share * user.share).sum();
            let mut runs: BTreeMap<usize, VecDeque<Range<u64>>> = BTreeMap::new();
            for (run, node) in memory.within(pages) {
                runs.entry(node).or_default().push_back(run);
            }
            for (from, mut runs) in runs {
                let there: u64 = runs.iter().map(|run| run.end - run.start).sum();
                let faults = there as f64 * touched;
                for to in (0..scan.on.len()).filter(|&to| to != from) {
                    let moved = faults * scan.share_moved(&users, from, to);
                    let on_node = || users.iter().filter(|user| user.node == to);
                    let faulting: f64 = on_node().map(|user| user.share).sum();
                    for user in on_node() {
                        let pages = (moved * user.share / faulting).round() as u64;
                        let taken = take(&mut runs, pages).into_iter();
                        moves.extend(taken.map(|run| (run, to, user.id)));
                    }
                }
                scan.faults += faults;
                scan.private += faults * twice;
                scan.of[from] += faults;
                for user in &users {
                    let faults = faults * user.share;
                    scan.on[user.node] += faults;
                    scan.local += if user.node == from { faults } else { 0.0 };
                    *faults_of.entry(user.id).or_default() += faults;
                    let seen = scan.threads.get_mut(&user.id).expect("seen just now");
                    seen.of[from] += faults;
                }
            }
        }
        // Periods count the time that threads run; meanwhile they take no faults.
        let all_faults: f64 = faults_of.values().sum();
        let mut kept_ns = all_faults * FAULT_NS;
        for (thread, faults) in faults_of {
            let thread = self.threads.get_mut(&thread).expect("a thread of it");
            thread.pause_ns += faults * FAULT_NS;
        }
        for (run, to, thread) in moves {
            let (first, count) = (run.start, run.end - run.start);
            let moved = self.migrate(id, Pages::Window { first, count }, to, thread);
            kept_ns += moved.pages() as f64 * self.options.page_move_ns;
        }
        let mean_ns = kept_ns / users.len().max(1) as f64;
        self.stale = true;
        scan.next_ns = self.now_ns + scan.period_ns + mean_ns;
        scan.done += window.end - window.start;
        if scan.done < all {
            return false;
        }
        scan.adapt(all);
        true
    }

    /// The threads of a process as a scan finds them, each with its rate of accesses in place of its share.
    fn users(&self, id: ProcessId, scan: &mut Scan) -> Vec<User> {
        let progress = f64::from(scan.passes)
            + scan.done as f64 / self.processes[&id].memory.pages().max(1) as f64;
        let threads = self.threads.values().filter(|thread| thread.process == id);
        let nodes = scan.on.len();
        let users = threads.map(|thread| {
            let node = self.hardware.seat(thread.cpu).node;
            let new = || Seen {
                node,
                since: progress,
                of: vec![0.0; nodes],
            };
            let seen = scan.threads.entry(thread.id).or_insert_with(new);
            if seen.node != node {
                (seen.node, seen.since) = (node, progress);
            }
            User {
                id: thread.id,
                index: thread.index,
                node,
                share: thread.pace * thread.speed.requests / 1000.0,
                is_settled: progress - seen.since >= 1.0,
            }
        });
        users.collect()
    }

    /// Moves the threads of a process to where their pages are.
    fn gather(&mut self, id: ProcessId, balancing: &Balancing) {
        let of_process = self.threads.values().filter(|thread| thread.process == id);
        let ids: Vec<ThreadId> = of_process.map(|thread| thread.id).collect();
        for id in ids {
            let thread = &self.threads[&id];
            let from = thread.cpu;
            if thread.assigned.is_some() {
                continue;
            }
            match self.better(thread, balancing) {
                Some(Way::To(cpu)) => self.move_thread(id, cpu),
                Some(Way::Swap(other)) => {
                    let to = self.threads[&other].cpu;
                    self.move_thread(id, to);
                    self.move_thread(other, from);
                }
                None => {}
            }
        }
    }

    /// How a thread can get to a node that it faults on more than on its own.
    fn better(&self, thread: &Thread, balancing: &Balancing) -> Option<Way> {
        let topology = self.hardware.topology();
        let node_of = |cpu: CpuId| self.hardware.seat(cpu).node;
        let here = node_of(thread.cpu);
        let busy = self.phase(thread).busy;
        let weights = balancing.weights(thread)?;
        let gain = |node: usize| weights[node] - weights[here];
        let mut nodes: Vec<usize> = (0..weights.len())
            .filter(|&node| gain(node) > 0.0)
            .collect();
        nodes.sort_by(|&a, &b| gain(b).total_cmp(&gain(a)));
        let loads = self.loads();
        for node in nodes {
            let there = thread.affinity.iter().filter(|&cpu| node_of(cpu) == node);
            let online = |cpu: &CpuId| topology.cpu(*cpu).is_some_and(|cpu| cpu.online);
            let mut there = there.filter(online);
            if let Some(cpu) = there.find(|&cpu| loads.leaves(thread.cpu, cpu, busy)) {
                return Some(Way::To(cpu));
            }
            let others = self.threads.values().filter(|other| {
                node_of(other.cpu) == node
                    && other.assigned.is_none()
                    && other.affinity.contains(thread.cpu)
                    && thread.affinity.contains(other.cpu)
            });
            let both = others.filter_map(|other| {
                let (own, theirs) = match other.process == thread.process {
                    true => (balancing.own(thread)?, balancing.own(other)?),
                    false => (weights.clone(), balancing.weights(other)?),
                };
                let both = own[node] - own[here] + theirs[here] - theirs[node];
                (both > LEAST_GAIN).then_some((both, other.id))
            });
            if let Some((_, other)) = both.max_by(|a, b| a.0.total_cmp(&b.0)) {
                return Some(Way::Swap(other));
            }
        }
        None
    }
}

impl Balancing {
    /// The share of a thread's own faults by the node of the page.
    fn own(&self, thread: &Thread) -> Option<Vec<f64>> {
        let seen = self.scans.get(&thread.process)?.threads.get(&thread.id)?;
        parts(&seen.of)
    }

    /// The same, or the share of its process's faults where its threads share pages.
    fn weights(&self, thread: &Thread) -> Option<Vec<f64>> {
        let scan = self.scans.get(&thread.process)?;
        match scan.is_group {
            true => parts(&scan.of),
            false => self.own(thread),
        }
    }
}

/// Counts as parts of their sum.
fn parts(counts: &[f64]) -> Option<Vec<f64>> {
    let all: f64 = counts.iter().sum();
    (all > 0.0).then(|| counts.iter().map(|count| count / all).collect())
}

/// The threads that use a part of the memory, each with its share of the accesses, and the rate of all their accesses.
fn sharing(users: &[User], owner: Option<usize>) -> (Vec<User>, f64) {
    let uses = |user: &&User| owner.is_none_or(|owner| user.index == owner) && user.share > 0.0;
    let mut users: Vec<User> = users.iter().filter(uses).copied().collect();
    let rate: f64 = users.iter().map(|user| user.share).sum();
    for user in &mut users {
        user.share /= rate;
    }
    (users, rate)
}

#[cfg(test)]
mod tests;
