//! The fixed point of an epoch: how fast each thread runs while all of them go on as they are.
//!
//! Time for 1000 instructions of a thread, in ns:
//!
//! ```text
//! t = 1000 cpi k  +  lines(c) sum_n m_n (L_n + w_n - L_llc) / F  +  sum_o x_o (T_o + w_o + q - L_llc) / F
//! ```
//!
//! with `cpi` cycles of the reference core at `k` ns each; `lines(c)` cache lines read from memory
//! with `c` bytes of cache; `m_n` the share of them that comes from node `n`, at an idle latency
//! `L_n` and a wait `w_n` in the queues of the controller and the links on the way; `L_llc` the
//! latency of a hit, which the base cycles hold already; and `F` lines in flight on average while
//! the thread waits (Little's law): the program's own, or what the core can hold if that is less.
//! Lines that it writes back load controllers and links, but nobody waits for them. `x_o` lines that
//! another thread of the process wrote last come from that thread's cache, at an idle latency `T_o`,
//! and cross links, not controllers; `q` is the wait for threads that want the same line.
//!
//! Of the same terms come the two counts of the uncore penalty (BRM §3.1), so that they never tell
//! another story than the time. *Requests* are what a thread's own caches do not answer and no
//! prefetcher asked for: `demand(o)`, with `o` the bytes of the core's own caches, and `x_o`. *Busy*
//! is the time with one of them outstanding: all that is waited for, hits of the last-level cache
//! included, over `F` (`F` in flight on average while any is, by Little's law):
//!
//! ```text
//! busy = (lines(c) sum_n m_n (L_n + w_n) + (demand(o) - demand(c)) L_llc + sum_o x_o (T_o + w_o + q)) / F
//! ```
//!
//! Lines that a prefetcher fetched are no requests, but where they come late a demand access waits
//! for them: they count in the time as they do above.
//!
//! Three things depend on each other: shares of the caches on the threads' speeds
//! ([`shares`]), waits on the lines asked for ([`loaded`]), speeds on both. They are
//! found together by iteration, the waits by Newton's method on each channel with the others held,
//! until no speed changes by more than a millionth part. Demand falls as waits grow, so there is
//! one answer, and no channel ever carries more than it can: where many threads want too much, waits
//! grow until their lines in flight allow no more.
//!
//! All of it is pure: a machine is its [`Figures`], a thread what it [demands](Running), and the answer
//! depends on nothing else. Nodes, domains and channels are known by their places.
//!
//! A factor of contention can be taken away ([`Factors`]) to see what it costs: the split of DINO
//! §2.1 without its difficulty of telling overlapping causes apart.

mod curve;
pub mod loaded;
pub mod shares;

use crate::program::Phase;
pub use curve::{Curve, LINE_BYTES};
use shares::{User, shares};

/// Speeds that change by less than this part are settled.
const SETTLED: f64 = 1e-6;
/// Rounds after which an answer must do; settling takes some ten to thirty.
const MOST_ROUNDS: usize = 300;

/// The figures of a machine that the equations need.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How many nodes there are.
    pub nodes: usize,
    /// Idle latency in ns from the cores of each node to the memory of each: row `core * nodes + memory`.
    pub latency_ns: Vec<f64>,
    /// The controllers, one a node, in their order; then the links, each direction.
    pub channels: Vec<Channel>,
    /// The links that a line takes from each node to each, as channels: row `from * nodes + to`.
    pub ways: Vec<Vec<u32>>,
    /// Whether every line read from memory is asked after in all nodes' caches.
    pub broadcast_probes: bool,
    /// Bytes of the last-level cache of each domain.
    pub llc_bytes: Vec<f64>,
    /// Latency in ns of a hit there.
    pub llc_ns: f64,
    /// Bytes of a core's own caches that come on top of the last-level cache.
    pub private_bytes: f64,
    /// Bytes of the last of a core's own caches: what misses it asks the uncore.
    pub own_bytes: f64,
    /// Latency in ns of a hit there.
    pub own_ns: f64,
    /// Cache lines that a core has in flight at most, over a longer time.
    pub in_flight: f64,
    /// Clock in GHz.
    pub clock_ghz: f64,
    /// ns that a core takes for one cycle of the core that profiles were measured on.
    pub ns_per_reference_cycle: f64,
}

/// A memory controller, or one direction of a link.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Lines per ns that it can carry.
    pub capacity: f64,
    /// The idle time in ns that the wait in front of it is a multiple of.
    pub service_ns: f64,
}

impl Figures {
    /// Idle latency in ns from the cores of a node to the memory of another.
    pub fn latency_ns(&self, core: usize, memory: usize) -> f64 {
        self.latency_ns[core * self.nodes + memory]
    }

    /// The links that a line takes from one node to another, as channels.
    pub fn way(&self, from: usize, to: usize) -> &[u32] {
        &self.ways[from * self.nodes + to]
    }
}

/// Where a CPU is: places of its domain and its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its memory domain.
    pub domain: usize,
    /// Its node.
    pub node: usize,
}

/// Which contention there is; all of it on a real machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Threads take cache from each other.
    pub cache: bool,
    /// Lines wait for each other at controllers.
    pub controllers: bool,
    /// Lines wait for each other on links.
    pub links: bool,
}

impl Factors {
    /// All of them.
    pub const ALL: Self = Self {
        cache: true,
        controllers: true,
        links: true,
    };
    /// None: each thread as if alone, where it is.
    pub const NONE: Self = Self {
        cache: false,
        controllers: false,
        links: false,
    };
}

/// One thread that runs.
#[derive(Clone, Debug)]
pub struct Running<'a> {
    /// What it does.
    pub phase: &'a Phase,
    /// Where it runs.
    pub seat: Seat,
    /// Share of the time that it has a CPU, 0 to 1.
    pub cpu_share: f64,
    /// How many of its profile's lines it reads just now; 1 on average.
    pub intensity: f64,
    /// Nodes and the share of its lines that each answers; the shares add up to 1.
    pub memory: Vec<(usize, f64)>,
    /// Lines that other threads wrote last.
    pub transfers: Vec<Transfers>,
    /// Wait in ns of each of these for threads that want the same line.
    pub queue_ns: f64,
}

impl<'a> Running<'a> {
    /// A thread that does as its profile says and shares no lines.
    pub fn new(phase: &'a Phase, seat: Seat, cpu_share: f64, memory: Vec<(usize, f64)>) -> Self {
        Self {
            phase,
            seat,
            cpu_share,
            intensity: 1.0,
            memory,
            transfers: Vec::new(),
            queue_ns: 0.0,
        }
    }
}

/// Lines that come from other cores' caches of one node.
#[derive(Clone, Copy, Debug)]
pub struct Transfers {
    /// Place of the node.
    pub node: usize,
    /// Per 1000 instructions.
    pub lines: f64,
    /// Latency of one without any wait.
    pub idle_ns: f64,
    /// Of that, what the base cycles hold already.
    pub in_base_ns: f64,
}

/// How one thread goes on. Lines are per 1000 of its instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Time for 1000 instructions on a CPU, in ns.
    pub ns: f64,
    /// Of that, waiting in queues of controllers.
    pub controller_ns: f64,
    /// Of that, waiting in queues of links.
    pub link_ns: f64,
    /// Of that, what remote memory costs more than local memory when idle.
    pub remote_ns: f64,
    /// Bytes of cache it holds.
    pub held_bytes: f64,
    /// Lines read from memory, prefetched ones counted.
    pub lines: f64,
    /// Of those, from other nodes.
    pub remote_lines: f64,
    /// Mean latency of a line from memory, in ns.
    pub latency_ns: f64,
    /// Requests that leave the core's own caches, prefetches not counted.
    pub requests: f64,
    /// Time with one of them outstanding at least, in ns for 1000 instructions.
    pub requested_ns: f64,
    /// Time for 1000 instructions that goes to lines which other threads wrote last, in ns.
    pub sharing_ns: f64,
}

/// An answer, kept as the start of the next one: little changes from epoch to epoch.
#[derive(Clone, Debug, Default)]
pub struct Solution {
    /// How each thread goes on.
    pub speeds: Vec<Speed>,
    waits: Vec<f64>,
    windows: Vec<f64>,
    ns: Vec<f64>,
}

/// What does not change while the answer is looked for.
struct Thread {
    base_ns: f64,
    /// Latency beyond a hit of a line from memory, without waits.
    idle_ns: f64,
    /// Latency of a line from another cache beyond what the base cycles hold of it, without waits on
    /// links; and what they hold.
    transfer_ns: f64,
    transfer_base_ns: f64,
    transfers: f64,
    in_flight: f64,
    cpu_share: f64,
    /// Channels of a line: which, how much of it waits there, how much of it loads it.
    lines: Vec<Use>,
    /// The same of a line from another cache.
    moved: Vec<Use>,
}

#[derive(Clone, Copy)]
struct Use {
    channel: u32,
    waits: f64,
    loads: f64,
}

/// Finds how fast each thread goes on.
pub fn solve(
    figures: &Figures,
    running: &[Running<'_>],
    factors: Factors,
    solution: &mut Solution,
) {
    let threads: Vec<Thread> = running.iter().map(|r| Thread::of(figures, r)).collect();
    let mut domains: Vec<Vec<usize>> = vec![Vec::new(); figures.llc_bytes.len()];
    for (at, thread) in running.iter().enumerate() {
        domains[thread.seat.domain].push(at);
    }
    solution.waits.resize(figures.channels.len(), 0.0);
    solution.windows.resize(domains.len(), 1e6);
    if !factors.controllers {
        solution.waits[..figures.nodes].fill(0.0);
    }
    if !factors.links {
        solution.waits[figures.nodes..].fill(0.0);
    }
    let mut held = vec![0.0; running.len()];
    let mut lines: Vec<f64> = vec![0.0; running.len()];
    // The last answer is the best start where the same threads go on.
    let mut ns = std::mem::take(&mut solution.ns);
    if ns.len() != threads.len() {
        ns.clear();
        ns.extend(threads.iter().map(|t| t.base_ns + t.idle_ns));
    }
    let mut users = Vec::new();
    let mut shared = Vec::new();
    for round in 0..MOST_ROUNDS {
        for (domain, members) in domains.iter().enumerate() {
            users.clear();
            users.extend(members.iter().map(|&at| User {
                curve: &running[at].phase.lines,
                rate: 1000.0 / ns[at] * threads[at].cpu_share * running[at].intensity,
            }));
            let bytes = figures.llc_bytes[domain];
            let private = figures.private_bytes;
            if factors.cache {
                let window = &mut solution.windows[domain];
                shares(&users, bytes, private, window, &mut shared);
            } else {
                shared.clear();
                let alone = |user: &User<'_>| user.curve.held_after(f64::MAX);
                shared.extend(users.iter().map(|user| alone(user).min(bytes + private)));
            }
            for (&at, &bytes) in members.iter().zip(&shared) {
                held[at] = bytes;
                lines[at] = running[at].phase.lines.at(bytes) * running[at].intensity;
            }
        }
        adjust(figures, &threads, &lines, &ns, factors, solution);
        let mut change = 0.0_f64;
        for (at, thread) in threads.iter().enumerate() {
            let new = thread.ns(lines[at], &solution.waits);
            change = change.max((new / ns[at] - 1.0).abs());
            // Half way, in the logarithm: shares and speeds would otherwise answer each other
            // for ever.
            ns[at] = if round == 0 {
                new
            } else {
                (new * ns[at]).sqrt()
            };
        }
        if change < SETTLED {
            break;
        }
    }
    solution.speeds.clear();
    for (at, thread) in threads.iter().enumerate() {
        let speed = thread.speed(figures, &running[at], ns[at], held[at], lines[at], solution);
        solution.speeds.push(speed);
    }
    solution.ns = ns;
}

/// Share of each channel's capacity that is asked for, and how fast that falls as its wait grows.
fn demand(
    figures: &Figures,
    threads: &[Thread],
    lines: &[f64],
    ns: &[f64],
    waits: &[f64],
) -> (Vec<f64>, Vec<f64>) {
    let mut asked = vec![0.0; figures.channels.len()];
    let mut falls = vec![0.0; figures.channels.len()];
    for ((thread, &lines), &ns) in threads.iter().zip(lines).zip(ns) {
        let now = thread.ns(lines, waits);
        // Between the speed settled last and the one these waits allow; equal in the end.
        let time = (now * ns).sqrt();
        let mut add = |uses: &[Use], lines: f64| {
            for one in uses {
                let channel = one.channel as usize;
                let load = one.loads * lines * thread.cpu_share / time;
                asked[channel] += load;
                falls[channel] += load / time * one.waits * lines / thread.in_flight;
            }
        };
        add(&thread.lines, lines);
        add(&thread.moved, thread.transfers);
    }
    for channel in 0..asked.len() {
        asked[channel] /= figures.channels[channel].capacity;
        falls[channel] /= figures.channels[channel].capacity;
    }
    (asked, falls)
}

/// Brings the waits nearer to those that the demand makes, a few steps of Newton's method.
fn adjust(
    figures: &Figures,
    threads: &[Thread],
    lines: &[f64],
    ns: &[f64],
    factors: Factors,
    solution: &mut Solution,
) {
    for _ in 0..3 {
        let (asked, falls) = demand(figures, threads, lines, ns, &solution.waits);
        for channel in 0..asked.len() {
            let controller = channel < figures.nodes;
            if controller && !factors.controllers || !controller && !factors.links {
                continue;
            }
            let service = figures.channels[channel].service_ns;
            let wait = &mut solution.waits[channel];
            let (allowed, growth) = loaded::in_use(*wait / service);
            // Below zero where more is asked for than such a wait allows.
            let spare = allowed - asked[channel];
            let step = spare / (growth / service + falls[channel]);
            let new = (*wait - step).max(0.0);
            // Channels in one way answer each other, so no step is taken whole.
            *wait = 0.3 * *wait + 0.7 * new;
        }
    }
}

impl Thread {
    fn of(figures: &Figures, running: &Running<'_>) -> Self {
        let phase = running.phase;
        let node = running.seat.node;
        let mut lines = Vec::new();
        let mut moved = Vec::new();
        let (mut idle_ns, mut transfer_ns, mut transfer_base_ns) = (0.0, 0.0, 0.0);
        for &(home, share) in &running.memory {
            idle_ns += share * (figures.latency_ns(node, home) - figures.llc_ns).max(0.0);
            let written = share * phase.written_per_line;
            add(&mut lines, home as u32, share, share + written);
            for &link in figures.way(home, node) {
                add(&mut lines, link, share, share);
            }
            for &link in figures.way(node, home) {
                add(&mut lines, link, 0.0, written);
            }
            if figures.broadcast_probes {
                probes(figures, node, home, share, written, &mut lines);
            }
        }
        let transfers: f64 = running.transfers.iter().map(|from| from.lines).sum();
        for from in &running.transfers {
            let share = from.lines / transfers;
            let idle_ns = (from.idle_ns - from.in_base_ns).max(0.0);
            transfer_ns += share * (idle_ns + running.queue_ns);
            transfer_base_ns += share * from.in_base_ns;
            for &link in figures.way(from.node, node) {
                add(&mut moved, link, share, share);
            }
        }
        Self {
            base_ns: 1000.0 * phase.cycles_per_instruction * figures.ns_per_reference_cycle,
            idle_ns,
            transfer_ns,
            transfer_base_ns,
            transfers,
            in_flight: phase.misses_in_flight.min(figures.in_flight).max(1.0),
            cpu_share: running.cpu_share,
            lines,
            moved,
        }
    }

    /// Time for 1000 instructions with these waits.
    fn ns(&self, lines: f64, waits: &[f64]) -> f64 {
        self.base_ns + self.memory_ns(lines, waits) + self.sharing_ns(waits)
    }

    /// Of that, for lines from memory, beyond what hits would take.
    fn memory_ns(&self, lines: f64, waits: &[f64]) -> f64 {
        lines * (self.idle_ns + wait(&self.lines, waits)) / self.in_flight
    }

    /// Of that, for lines from other caches, beyond what hits would take.
    fn sharing_ns(&self, waits: &[f64]) -> f64 {
        if self.transfers > 0.0 {
            self.transfers * (self.transfer_ns + wait(&self.moved, waits)) / self.in_flight
        } else {
            0.0
        }
    }

    fn speed(
        &self,
        figures: &Figures,
        running: &Running<'_>,
        ns: f64,
        held_bytes: f64,
        lines: f64,
        solution: &Solution,
    ) -> Speed {
        let node = running.seat.node;
        let wait = |controllers: bool| -> f64 {
            self.lines
                .iter()
                .filter(|one| ((one.channel as usize) < figures.nodes) == controllers)
                .map(|one| one.waits * solution.waits[one.channel as usize])
                .sum()
        };
        let (controllers, links) = (wait(true), wait(false));
        let local = figures.latency_ns(node, node);
        let mean = |of: &dyn Fn(usize) -> f64| -> f64 {
            let parts = running.memory.iter();
            parts.map(|&(home, share)| share * of(home)).sum()
        };
        let remote = mean(&|home| f64::from(u8::from(home != node)));
        let waits = &solution.waits;
        let phase = running.phase;
        let own = phase.demand_at(figures.own_bytes.min(held_bytes));
        let asked = own * running.intensity;
        let hits = asked - phase.demand_at(held_bytes) * running.intensity;
        let answered = (lines + hits) * figures.llc_ns + self.transfers * self.transfer_base_ns;
        let answered = answered / self.in_flight;
        let busy = answered + self.memory_ns(lines, waits) + self.sharing_ns(waits);
        Speed {
            ns,
            controller_ns: lines * controllers / self.in_flight,
            link_ns: lines * links / self.in_flight,
            remote_ns: lines * mean(&|home| figures.latency_ns(node, home) - local)
                / self.in_flight,
            held_bytes,
            lines,
            remote_lines: lines * remote,
            latency_ns: mean(&|home| figures.latency_ns(node, home)) + controllers + links,
            requests: asked + self.transfers,
            requested_ns: busy.min(ns),
            sharing_ns: self.sharing_ns(waits),
        }
    }
}

/// Wait of one line on its channels.
fn wait(uses: &[Use], waits: &[f64]) -> f64 {
    let each = uses.iter();
    each.map(|one| one.waits * waits[one.channel as usize])
        .sum()
}

/// Adds what links carry beside lines where each line read from memory is asked after in every node's
/// caches: its request, a probe from its home to every other node, their answers to the reader, and
/// heads of the packets with data. Sizes are HyperTransport's: 8 bytes of a request, probe or head of
/// a write, 4 of an answer or head of a read line (recalled). For four nodes in a square that all
/// read from all this makes 16.5 of 32 GB/s of links useful; Conway and Hughes (IEEE Micro 2007)
/// give 14.9 (recalled).
fn probes(
    figures: &Figures,
    node: usize,
    home: usize,
    share: f64,
    written: f64,
    lines: &mut Vec<Use>,
) {
    let mut carry = |from: usize, to: usize, bytes: f64| {
        for &link in figures.way(from, to) {
            add(lines, link, 0.0, bytes / LINE_BYTES);
        }
    };
    carry(node, home, 8.0 * (share + written));
    carry(home, node, 4.0 * share);
    for other in (0..figures.nodes).filter(|&other| other != home) {
        carry(home, other, 8.0 * share);
        carry(other, node, 4.0 * share);
    }
}

fn add(uses: &mut Vec<Use>, channel: u32, waits: f64, loads: f64) {
    if let Some(there) = uses.iter_mut().find(|one| one.channel == channel) {
        there.waits += waits;
        there.loads += loads;
    } else {
        uses.push(Use {
            channel,
            waits,
            loads,
        });
    }
}
