//! The iteration: shares, waits and speeds found together.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::shares::{User, shares};
use crate::solution::{SETTLED, Solution};
use crate::steps::Steps;
use crate::{Factors, Figures, LINE_BYTES, Running, Speed, loaded};

/// Rounds after which an answer must do; settling takes some ten to thirty.
const MOST_ROUNDS: usize = 300;
/// Shares of a cache are found to this part of the precision of speeds: where lines fall steeply, speeds answer them
/// more than in proportion, and would not settle.
const SHARES_PRECISION: f64 = 0.1;
/// The least share of a wait that a line sees, so that waits bound what can be asked of a channel in any case.
const LEAST_SEEN: f64 = 0.01;

/// What stays the same while the answer is searched, except for what siblings take and what share of waits lines see.
struct Thread {
    base_ns: f64,
    /// The same with the core to itself.
    own_base_ns: f64,
    /// Latency beyond a hit of a line from memory, without waits.
    idle_ns: f64,
    /// Latency of a line from another cache beyond what the base cycles hold of it, without waits on
    /// links; and what they hold.
    transfer_ns: f64,
    transfer_base_ns: f64,
    transfers: f64,
    in_flight: f64,
    /// The same with the core to itself.
    own_in_flight: f64,
    /// Threads on the other hardware threads of its core.
    siblings: Vec<usize>,
    /// How many siblings it has on average, where it is not known which.
    beside: f64,
    domain: usize,
    /// Bytes of its core's own caches: the last of them, and what comes on top of the last level.
    own_bytes: f64,
    private_bytes: f64,
    cpu_share: f64,
    alike: f64,
    /// The way into its last-level cache, and the lines that take it.
    door: Option<u32>,
    passing: f64,
    /// The channels of a line: which, how much of the line waits there, and how much loads it.
    lines: Uses,
    /// The same for a line from another cache.
    moved: Uses,
}

/// Room for the controllers of four nodes without an allocation; machines with more, or with links, allocate.
type Uses = SmallVec<[Use; 4]>;

#[derive(Clone, Copy)]
struct Use {
    channel: u32,
    waits: f64,
    loads: f64,
    /// Of the load, what is written.
    written: f64,
    /// Share of the channel's wait that a line of the thread sees.
    seen: f64,
}

/// How fast each thread goes on, in their order, where no earlier answer is known.
pub fn speeds(figures: &Figures, running: &[Running<'_>], factors: Factors) -> Vec<Speed> {
    let mut solution = Solution::default();
    solve(figures, running, factors, &mut solution);
    solution.speeds
}

/// Finds how fast each thread goes on, from the last answer on.
pub fn solve(
    figures: &Figures,
    running: &[Running<'_>],
    factors: Factors,
    solution: &mut Solution,
) {
    let mut threads: Vec<Thread> = running.iter().map(|r| Thread::of(figures, r)).collect();
    find_siblings(figures, running, &mut threads);
    // The users of the caches, those of one domain beside each other; `places` says which thread each is.
    let domains = figures.llc_bytes.len();
    let mut places: Vec<usize> = (0..threads.len()).collect();
    places.sort_by_key(|&at| threads[at].domain);
    let user = |&at: &usize| {
        let (running, thread) = (&running[at], &threads[at]);
        User::new(
            running.demands.lines,
            0.0,
            thread.private_bytes,
            running.alike,
        )
    };
    let mut users: Vec<User<'_>> = places.iter().map(user).collect();
    solution.waits.resize(figures.channels.len(), 0.0);
    solution.windows.resize(domains, 1e6);
    for (channel, wait) in solution.waits.iter_mut().enumerate() {
        if !figures.counts(channel, factors) {
            *wait = 0.0;
        }
    }
    let mut lines: Vec<f64> = vec![0.0; running.len()];
    // The last answer is the best start where the same threads go on; else an even share of the cache, and its waits.
    let mut ns = std::mem::take(&mut solution.ns);
    if ns.len() != threads.len() {
        let mut sharers = vec![0.0; domains];
        for thread in &threads {
            sharers[thread.domain] += thread.alike;
        }
        ns.clear();
        ns.extend(threads.iter().zip(running).map(|(thread, running)| {
            let even = figures.llc_bytes[thread.domain] / sharers[thread.domain];
            let lines = running.demands.lines.at(even) * running.intensity;
            thread.ns(lines, &solution.waits)
        }));
    }
    let precision = (solution.settled * SHARES_PRECISION).max(SETTLED);
    let mut asked = Vec::new();
    let mut spread = vec![Spread::default(); domains];
    let (mut steps, mut offs) = (Steps::default(), vec![0.0; threads.len()]);
    let (mut wait_steps, mut wait_offs) = (Steps::default(), vec![0.0; figures.channels.len()]);
    for _ in 0..MOST_ROUNDS {
        share_cores(figures, &mut threads, &ns, &mut spread);
        for (user, &at) in users.iter_mut().zip(&places) {
            user.rate = 1000.0 / ns[at] * threads[at].cpu_share * running[at].intensity;
        }
        let mut others = &mut users[..];
        for members in places.chunk_by(|&a, &b| threads[a].domain == threads[b].domain) {
            let users = others.split_off_mut(..members.len()).expect("one for each");
            let domain = threads[members[0]].domain;
            let bytes = figures.llc_bytes[domain];
            if factors.cache {
                shares(users, bytes, precision, &mut solution.windows[domain]);
            } else {
                for user in users {
                    user.held = user.curve.most().min(bytes + user.private_bytes);
                }
            }
        }
        for (user, &at) in users.iter().zip(&places) {
            lines[at] = user.curve.at(user.held) * running[at].intensity;
        }
        demand(figures, &threads, &lines, &ns, &solution.waits, &mut asked);
        let mut change = adjust(
            figures,
            &asked,
            factors,
            &mut solution.waits,
            &mut wait_steps,
            &mut wait_offs,
        );
        if !figures.own_lines_wait {
            leave_out_own(&mut threads, &lines, &ns, &asked);
        }
        for (((thread, &lines), ns), off) in threads.iter().zip(&lines).zip(&ns).zip(&mut offs) {
            *off = (thread.ns(lines, &solution.waits) / ns).ln();
            change = change.max(off.abs());
        }
        let part = steps.part(&offs);
        for (ns, off) in ns.iter_mut().zip(&offs) {
            *ns *= (part * off).exp();
        }
        if change < solution.settled {
            break;
        }
    }
    solution.speeds.clear();
    solution.speeds.resize(threads.len(), Speed::default());
    for (user, &at) in users.iter().zip(&places) {
        let (thread, running) = (&threads[at], &running[at]);
        let speed = thread.speed(figures, running, ns[at], user.held, lines[at], solution);
        solution.speeds[at] = speed;
    }
    solution.ns = ns;
}

/// Finds out which threads share a core, and divides its own caches evenly among them.
fn find_siblings(figures: &Figures, running: &[Running<'_>], threads: &mut [Thread]) {
    if figures.smt_throughput >= 2.0 {
        return;
    }
    let mut cores: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, thread) in running.iter().enumerate() {
        if let Some(lane) = thread.lane {
            cores.entry(lane.core).or_default().push((lane.cpu, at));
        }
    }
    for members in cores.values() {
        for &(cpu, at) in members {
            let others = members.iter().filter(|&&(other, _)| other != cpu);
            let siblings: Vec<usize> = others.map(|&(_, other)| other).collect();
            let sharers: f64 = siblings.iter().map(|&other| threads[other].cpu_share).sum();
            threads[at].own_bytes /= 1.0 + sharers;
            threads[at].private_bytes /= 1.0 + sharers;
            threads[at].siblings = siblings;
        }
    }
    for (thread, running) in threads.iter_mut().zip(running) {
        thread.own_bytes /= 1.0 + thread.beside;
        thread.private_bytes /= 1.0 + thread.beside;
        thread.passing = passing(running, thread.own_bytes);
    }
}

/// What the threads of a domain do together where it is not known which of them share a core.
#[derive(Clone, Copy, Default)]
struct Spread {
    /// CPUs that they have.
    cpus: f64,
    /// Of these, CPUs that compute.
    computing: f64,
    /// Lines that they have in flight.
    asked: f64,
}

impl Spread {
    fn of(thread: &Thread, ns: f64) -> Self {
        let computing = thread.cpu_share * (thread.base_ns / ns).min(1.0);
        Self {
            cpus: thread.cpu_share,
            computing,
            asked: (thread.cpu_share - computing) * thread.own_in_flight,
        }
    }

    fn plus(self, other: Self, times: f64) -> Self {
        Self {
            cpus: self.cpus + other.cpus * times,
            computing: self.computing + other.computing * times,
            asked: self.asked + other.asked * times,
        }
    }
}

/// What siblings take from each other at these speeds: issue slots while they compute, lines in flight while
/// they wait.
fn share_cores(figures: &Figures, threads: &mut [Thread], ns: &[f64], spread: &mut [Spread]) {
    let stretch = 2.0 / figures.smt_throughput - 1.0;
    spread.fill(Spread::default());
    for (thread, &ns) in threads
        .iter()
        .zip(ns)
        .filter(|(thread, _)| thread.beside > 0.0)
    {
        let all = &mut spread[thread.domain];
        *all = all.plus(Spread::of(thread, ns), thread.alike);
    }
    for at in 0..threads.len() {
        if threads[at].siblings.is_empty() && threads[at].beside == 0.0 {
            continue;
        }
        let (mut computing, mut asked) = (0.0, threads[at].own_in_flight);
        for &sibling in &threads[at].siblings {
            let other = &threads[sibling];
            let computes = (other.base_ns / ns[sibling]).min(1.0);
            computing += other.cpu_share * computes;
            asked += other.cpu_share * (1.0 - computes) * other.own_in_flight;
        }
        let thread = &mut threads[at];
        if thread.beside > 0.0 {
            let others = spread[thread.domain].plus(Spread::of(thread, ns[at]), -1.0);
            let times = thread.beside / others.cpus.max(1e-9);
            computing += others.computing.max(0.0) * times;
            asked += others.asked.max(0.0) * times;
        }
        thread.base_ns = thread.own_base_ns * (1.0 + stretch * computing);
        let part = (figures.in_flight / asked).min(1.0);
        thread.in_flight = (thread.own_in_flight * part).max(1.0);
    }
}

/// Lines that a thread's own caches of so many bytes do not hold, per 1000 instructions.
fn passing(running: &Running<'_>, own_bytes: f64) -> f64 {
    running.demands.lines.at(own_bytes) * running.intensity
}

/// What is asked of each channel.
#[derive(Clone, Copy, Default)]
struct Asked {
    /// Share of its capacity.
    share: f64,
    /// How fast that falls as its wait grows.
    falls: f64,
    /// Lines per ns, and those of them that are written.
    lines: f64,
    written: f64,
}

/// Finds what is asked of each channel at these waits.
fn demand(
    figures: &Figures,
    threads: &[Thread],
    lines: &[f64],
    ns: &[f64],
    waits: &[f64],
    asked: &mut Vec<Asked>,
) {
    asked.clear();
    asked.resize(figures.channels.len(), Asked::default());
    for ((thread, &lines), &ns) in threads.iter().zip(lines).zip(ns) {
        let now = thread.ns(lines, waits);
        // Between the speed settled last and the one these waits allow; equal in the end.
        let time = (now * ns).sqrt();
        let cpu = thread.alike * thread.cpu_share;
        let mut add = |uses: &[Use], lines: f64| {
            let (rate, slows) = (lines * cpu / time, lines / thread.in_flight / time);
            for one in uses {
                let channel = &mut asked[one.channel as usize];
                let load = one.loads * rate;
                channel.lines += load;
                channel.written += one.written * rate;
                channel.falls += load * slows * one.waits * one.seen;
            }
        };
        add(&thread.lines, lines);
        add(&thread.moved, thread.transfers);
        if let Some(channel) = thread.door {
            let door = Use {
                channel,
                waits: 1.0,
                loads: 1.0,
                written: 0.0,
                seen: 1.0,
            };
            add(&[door], thread.passing);
        }
    }
    for (channel, asked) in asked.iter_mut().enumerate() {
        let mut capacity = figures.channels[channel].capacity;
        if asked.written > 0.0 && channel < figures.nodes {
            capacity *= 1.0 - figures.write_turnaround * asked.written / asked.lines;
        }
        asked.share = asked.lines / capacity;
        asked.falls /= capacity;
    }
}

/// A line that joins a queue finds the lines of other threads there, and those of its own thread in flight except
/// itself: of `F`, a share of `1 - 1 / F` (Schweitzer, in Bard, "Some extensions to multiclass queueing network
/// analysis", 1979). Lines that the thread writes back are not among those in flight, so all of them stay.
fn leave_out_own(threads: &mut [Thread], lines: &[f64], ns: &[f64], asked: &[Asked]) {
    for ((thread, &lines), &ns) in threads.iter_mut().zip(lines).zip(ns) {
        let in_flight = thread.in_flight;
        let each = |uses: &mut [Use], lines: f64, cpu: f64| {
            let rate = lines * cpu / ns;
            for one in uses {
                let own = one.waits * rate;
                let all = asked[one.channel as usize].lines.max(own);
                if own > 0.0 {
                    one.seen = (1.0 - own / all / in_flight).max(LEAST_SEEN);
                }
            }
        };
        each(&mut thread.lines, lines, thread.cpu_share);
        each(&mut thread.moved, thread.transfers, thread.cpu_share);
    }
}

/// Brings the waits nearer to those that the demand causes, by steps of Newton's method for each channel with the others
/// held, and returns by how much they were off, in parts of the time that a line takes. `offs` is scratch, one for each
/// channel.
fn adjust(
    figures: &Figures,
    asked: &[Asked],
    factors: Factors,
    waits: &mut [f64],
    steps: &mut Steps,
    offs: &mut [f64],
) -> f64 {
    let mut change = 0.0_f64;
    for (channel, (&wait, off)) in waits.iter().zip(&mut *offs).enumerate() {
        if !figures.counts(channel, factors) {
            continue;
        }
        let (asked, service) = (&asked[channel], figures.channels[channel].service_ns);
        let (allowed, growth) = loaded::in_use(wait / service);
        // Below zero where more is asked for than such a wait allows.
        let spare = allowed - asked.share;
        let step = spare / (growth / service + asked.falls);
        *off = (wait - step).max(0.0) - wait;
        change = change.max(off.abs() / (service + wait));
    }
    let part = steps.part(offs);
    for (wait, off) in waits.iter_mut().zip(offs) {
        *wait += part * *off;
    }
    change
}

impl Thread {
    fn of(figures: &Figures, running: &Running<'_>) -> Self {
        let demands = &running.demands;
        let node = running.seat.node;
        let (mut lines, mut moved) = (Uses::new(), Uses::new());
        let (mut idle_ns, mut transfer_ns, mut transfer_base_ns) = (0.0, 0.0, 0.0);
        for &(home, share) in &*running.memory {
            idle_ns += share * (figures.latency_ns(node, home) - figures.llc_ns).max(0.0);
            let written = match running.writes_to {
                None => share * demands.written_per_line,
                Some(_) => 0.0,
            };
            add(&mut lines, home as u32, share, share + written, written);
            for &link in figures.way(home, node) {
                add(&mut lines, link, share, share, 0.0);
            }
            for &link in figures.way(node, home) {
                add(&mut lines, link, 0.0, written, written);
            }
            if figures.broadcast_probes {
                probes(figures, node, home, share, written, &mut lines);
            }
        }
        for &(home, share) in running.writes_to.iter().flatten() {
            let written = share * demands.written_per_line;
            add(&mut lines, home as u32, 0.0, written, written);
            for &link in figures.way(node, home) {
                add(&mut lines, link, 0.0, written, written);
            }
        }
        let transfers: f64 = running.transfers.iter().map(|from| from.lines).sum();
        for from in &running.transfers {
            let share = from.lines / transfers;
            let idle_ns = (from.idle_ns - from.in_base_ns).max(0.0);
            transfer_ns += share * (idle_ns + running.queue_ns);
            transfer_base_ns += share * from.in_base_ns;
            for &link in figures.way(from.node, node) {
                add(&mut moved, link, share, share, 0.0);
            }
        }
        let base_ns = 1000.0 * demands.cycles_per_instruction * figures.ns_per_reference_cycle;
        let in_flight = demands.misses_in_flight.min(figures.in_flight).max(1.0);
        Self {
            base_ns,
            own_base_ns: base_ns,
            idle_ns,
            transfer_ns,
            transfer_base_ns,
            transfers,
            in_flight,
            own_in_flight: in_flight,
            siblings: Vec::new(),
            beside: match figures.smt_throughput < 2.0 {
                true => running.siblings,
                false => 0.0,
            },
            domain: running.seat.domain,
            own_bytes: figures.own_bytes,
            private_bytes: figures.private_bytes,
            cpu_share: running.cpu_share,
            alike: running.alike,
            door: figures.cache_channel(running.seat.domain),
            passing: passing(running, figures.own_bytes),
            lines,
            moved,
        }
    }

    /// Time for 1000 instructions with these waits.
    fn ns(&self, lines: f64, waits: &[f64]) -> f64 {
        self.base_ns + self.memory_ns(lines, waits) + self.sharing_ns(waits) + self.door_ns(waits)
    }

    /// Of that, waiting at the door of the last-level cache.
    fn door_ns(&self, waits: &[f64]) -> f64 {
        let wait = |channel: u32| self.passing * waits[channel as usize] / self.in_flight;
        self.door.map_or(0.0, wait)
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
                .map(|one| one.waits * one.seen * solution.waits[one.channel as usize])
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
        let demands = &running.demands;
        let own = demands.demand_at(self.own_bytes.min(held_bytes));
        let asked = own * running.intensity;
        let hits = asked - demands.demand_at(held_bytes) * running.intensity;
        let answered = (lines + hits) * figures.llc_ns + self.transfers * self.transfer_base_ns;
        let answered = answered / self.in_flight;
        let busy =
            answered + self.memory_ns(lines, waits) + self.sharing_ns(waits) + self.door_ns(waits);
        Speed {
            ns,
            controller_ns: lines * controllers / self.in_flight,
            cache_ns: self.door_ns(waits),
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
    each.map(|one| one.waits * one.seen * waits[one.channel as usize])
        .sum()
}

/// Adds what links carry besides lines where each read of a line from memory probes every node's caches: its request,
/// a probe from its home to every other node, their answers to the reader, and heads of the packets with data. Sizes
/// are HyperTransport's: 8 bytes of a request, probe or head of a write, 4 of an answer or head of a read line
/// (recalled). For four nodes in a square that all read from all, this makes 16.5 of 32 GB/s of links useful; Conway
/// and Hughes (IEEE Micro 2007) give 14.9 (recalled).
fn probes(figures: &Figures, node: usize, home: usize, share: f64, written: f64, lines: &mut Uses) {
    let mut carry = |from: usize, to: usize, bytes: f64| {
        for &link in figures.way(from, to) {
            add(lines, link, 0.0, bytes / LINE_BYTES, 0.0);
        }
    };
    carry(node, home, 8.0 * (share + written));
    carry(home, node, 4.0 * share);
    for other in (0..figures.nodes).filter(|&other| other != home) {
        carry(home, other, 8.0 * share);
        carry(other, node, 4.0 * share);
    }
}

fn add(uses: &mut Uses, channel: u32, waits: f64, loads: f64, written: f64) {
    if let Some(there) = uses.iter_mut().find(|one| one.channel == channel) {
        there.waits += waits;
        there.loads += loads;
        there.written += written;
    } else {
        uses.push(Use {
            channel,
            waits,
            loads,
            written,
            seen: 1.0,
        });
    }
}
