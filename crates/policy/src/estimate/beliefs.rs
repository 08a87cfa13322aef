//! What is believed of the machine where its description does not say, and how that is learned.
//!
//! Rule: how much farther remote memory is and what a controller carries begin as usual values with much doubt. After
//! threads or memory were moved, the beliefs become those under which the equations, given the lines that threads then
//! read, best predict the speeds that were measured (by the mean of squared logarithms), with less doubt. So a plan that
//! disappointed is expected to gain less the next time. Before that, waits that no latency explains show that a controller
//! carries less than was believed. How many lines more cache spares a thread is no such belief: it is counted (`known.rs`,
//! `alike.rs`).

use numaherd_contention::{Curve, Solution, Speed, loaded};
use numaherd_topology::{CpuId, Topology};
use numaherd_world::PageOutcome;

use super::caches::llc_bytes;
use super::demands::{Draw, MOST_IN_USE, asked, demands, figures, flat};
use super::threads::{Load, Seats};
use super::{Basis, DRAWS, Estimator, LEAST_PEAK, Measured, Memory, PRECISION, Picture};
use crate::stage::Stage;

/// Local latency in ns before a longer one was seen (chosen here; FACTS 7.1 has 50 to 160).
const LEAST_LOCAL_NS: f64 = 70.0;
/// The longest that is believed: what takes longer waits for a controller or a link (chosen here).
const MOST_LOCAL_NS: f64 = 200.0;

/// What is believed of a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beliefs {
    /// What a distance of 10 more (SLIT) adds to the local latency, as a share of it.
    pub(super) hop: f64,
    /// What a controller carries, as a share of what its description says or of what is usual: links and probes that are
    /// not described take their part.
    capacity: f64,
    /// By which factor either may be wrong.
    doubt: f64,
}

impl Default for Beliefs {
    /// Chosen here. Remote memory at a distance of 20 is mostly 1.5 to 1.8 times as far (FACTS 8, traps).
    fn default() -> Self {
        Self {
            hop: 0.67,
            capacity: 1.0,
            doubt: 2.0,
        }
    }
}

/// Of memory that may be shared or private, the share that is assumed to be private (chosen here: the middle).
const LIKELY_PRIVATE: f64 = 0.5;
/// In how many pieces the private part of a thread is at worst: programs have some arrays, and each thread a part of each
/// (chosen here).
const PIECES: f64 = 8.0;
/// The doubt that is left once speeds were foretold and measured (chosen here).
const LEARNED: f64 = 1.25;
/// Beliefs are learned with up to so many busy threads: with more it would take too long (chosen here).
const MOST_THREADS: usize = 2048;
/// In how many rounds each unknown is varied in turn, with the others at their best (chosen here): 23 attempts at most,
/// where all combinations would be up to 72.
const ROUNDS: usize = 2;
/// What is tried when beliefs are learned (chosen here).
const HOPS: [f64; 3] = [0.4, 0.67, 1.0];
const CAPACITIES: [f64; 8] = [0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.4, 2.0];

impl Beliefs {
    /// The draws: the belief itself with caches that help, and the worst; then the belief with caches that do not help,
    /// and the best. A search uses the first two.
    pub(super) fn draws(self) -> [Draw; DRAWS] {
        let Self {
            hop,
            capacity,
            doubt,
        } = self;
        let farther = doubt.sqrt();
        let draw = |hop, capacity, cache_helps, private| Draw {
            hop,
            capacity,
            cache_helps,
            evenly: false,
            private,
            pieces: 1.0,
        };
        [
            draw(hop, capacity, true, LIKELY_PRIVATE),
            Draw {
                evenly: true,
                pieces: PIECES,
                ..draw(hop * farther, capacity / doubt, false, 0.0)
            },
            draw(hop, capacity, false, LIKELY_PRIVATE),
            draw(hop / farther, capacity * doubt, true, 1.0),
        ]
    }
}

/// The places of the draws, those first in which caches do not help: the belief, and the worst.
const WARY: [usize; DRAWS] = [2, 1, 0, 3];

/// A thread whose requests are mostly for lines from memory.
struct Waiting<'a> {
    load: &'a Load,
    /// The node (place) that it is on.
    node: usize,
    /// For how many ns it waits for each line: at least, as several may be in flight.
    line_ns: f64,
}

impl<'a> Waiting<'a> {
    fn of(load: &'a Load, seats: &Seats) -> Option<Self> {
        let (requests, busy_ns) = (load.requests?, load.busy_ns?);
        let (seat, _) = seats.get(load.cpu)?;
        // If a thread hardly ran, counts of two units are not of the same moments.
        let is_counted = load.wanted >= LEAST_PEAK && load.lines >= 1.0;
        (is_counted && requests <= 1.2 * load.lines).then(|| Self {
            load,
            node: seat.node,
            line_ns: busy_ns / load.lines,
        })
    }
}

impl Picture {
    /// The same with its draws in another order, so that a search uses those in which caches do not help.
    pub fn wary(&self) -> Self {
        fn first<T: Clone>(of: &[T]) -> Vec<T> {
            WARY.iter().map(|&draw| of[draw].clone()).collect()
        }
        Self {
            figures: first(&self.figures),
            farthest_ns: first(&self.farthest_ns),
            draws: WARY.map(|draw| self.draws[draw]),
            demands: first(&self.demands),
            starts: first(&self.starts),
            lost_now: WARY.map(|draw| self.lost_now[draw]),
            ..self.clone()
        }
    }
}

impl Estimator {
    /// Takes in what moving pages took.
    pub fn moved(&mut self, outcomes: &[PageOutcome]) {
        self.page_moves.learn(outcomes);
    }

    /// Learns from how long threads wait for a line. At its first look, a thread has also waited for its pages to be made.
    pub(super) fn learn_waits(&mut self, threads: &[Load], seats: &Seats, stage: &Stage<'_>) {
        self.local_ns = self.local_ns.max(LEAST_LOCAL_NS);
        let interval_ns = stage.snapshot.interval_ns;
        let waiting: Vec<Waiting<'_>> = (threads.iter())
            .filter(|load| load.age_ns > interval_ns)
            .filter_map(|load| Waiting::of(load, seats))
            .collect();
        self.learn_latency(&waiting, stage.topology);
        self.learn_capacity(threads, &waiting, stage.topology);
    }

    /// A thread that has one line in flight waits for each as long as memory takes.
    fn learn_latency(&mut self, waiting: &[Waiting<'_>], topology: &Topology) {
        for thread in waiting {
            let node = topology.nodes()[thread.node].id;
            let farther: f64 = (thread.load.memory.iter())
                .map(|&(home, share)| {
                    let home = topology.nodes()[home].id;
                    let distance = topology.distance(node, home).unwrap_or(10);
                    share * (1.0 + self.beliefs.hop * (f64::from(distance) - 10.0) / 10.0)
                })
                .sum();
            if farther > 0.0 {
                let local_ns = thread.line_ns / farther;
                self.local_ns = self.local_ns.max(local_ns.min(MOST_LOCAL_NS));
            }
        }
    }

    /// No thread has fewer than one line in flight: where one waits longer for each than any memory takes, the controller that
    /// it waits for carries no more than what makes a line wait that long. If that is less than is ever tried, something
    /// else delays lines. Memory without CPUs beside it is another kind, and says nothing of the rest.
    fn learn_capacity(&mut self, threads: &[Load], waiting: &[Waiting<'_>], topology: &Topology) {
        let Beliefs { hop, doubt, .. } = self.beliefs;
        let draw = Draw {
            hop: hop * doubt.sqrt(),
            capacity: 1.0,
            ..self.beliefs.draws()[0]
        };
        let llc = llc_bytes(topology);
        let longest = figures(topology, &draw, MOST_LOCAL_NS, &llc);
        let usual = figures(topology, &draw, self.local_ns, &llc);
        // Described latencies may be wrong, too.
        let times = match topology.timing().latency_ns {
            Some(_) => LEARNED,
            None => 1.0,
        };
        let asked = asked(&draw, usual.nodes, threads);
        let has_cpus = |node: usize| {
            let id = topology.nodes()[node].id;
            topology.domains().iter().any(|domain| domain.node == id)
        };
        for thread in waiting {
            let memory = &thread.load.memory;
            let most = memory.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let Some(&(home, _)) = most.filter(|&&(home, _)| has_cpus(home)) else {
                continue;
            };
            let of = |&(from, share): &(usize, f64)| share * longest.latency_ns(thread.node, from);
            let latency = memory.iter().map(of).sum::<f64>() * times;
            let channel = &usual.channels[home];
            let (used, _) = loaded::in_use((thread.line_ns - latency) / channel.service_ns);
            let capacity = asked[home] / used.min(MOST_IN_USE) / channel.capacity;
            if used > 0.0 && capacity >= CAPACITIES[0] {
                self.beliefs.capacity = self.beliefs.capacity.min(capacity);
            }
        }
    }

    /// Takes in the outcome of a layout: what was then measured of each thread of the picture `before` it.
    pub fn learn(
        &mut self,
        topology: &Topology,
        before: &Picture,
        (cpus, memory): (&[CpuId], &[Memory]),
        measured: &[Measured],
    ) {
        let any = measured.iter().any(Measured::is_any);
        if before.from == Basis::Residency || !any || measured.len() > MOST_THREADS {
            return;
        }
        let llc = llc_bytes(topology);
        let read = before.curves_of(measured);
        let mut picture = before.clone();
        picture.starts = vec![Solution::within(PRECISION)];
        let mut error = |draw: Draw| {
            let figures = figures(topology, &draw, self.local_ns, &llc);
            let mut demands = demands(
                &draw,
                &figures,
                &before.threads,
                &before.kinds,
                &before.seats,
                &before.cores,
            );
            for (demand, read) in demands.iter_mut().zip(&read) {
                if let Some(read) = read {
                    demand.curve = read.clone();
                }
            }
            (picture.figures, picture.demands) = (vec![figures], vec![demands]);
            picture.draws[0] = draw;
            picture.error(cpus, memory, measured)
        };
        // What of the memory was private is seen only in how fast threads are now.
        let private: &[f64] =
            match (0..memory.len()).any(|at| before.follows_use(at, cpus, memory[at])) {
                true => &[0.0, LIKELY_PRIVATE, 1.0],
                false => &[LIKELY_PRIVATE],
            };
        let mut found = Draw {
            hop: self.beliefs.hop,
            capacity: self.beliefs.capacity,
            cache_helps: true,
            evenly: false,
            private: LIKELY_PRIVATE,
            pieces: 1.0,
        };
        let mut least = error(found);
        let mut best = |mut found: Draw, tried: Vec<Draw>| {
            for draw in tried {
                let error = if draw == found { least } else { error(draw) };
                if error < least {
                    (least, found) = (error, draw);
                }
            }
            found
        };
        for _ in 0..ROUNDS {
            let before = found;
            let with = |capacity| Draw { capacity, ..found };
            found = best(found, CAPACITIES.map(with).to_vec());
            let with = |hop| Draw { hop, ..found };
            found = best(found, HOPS.map(with).to_vec());
            let with = |&private| Draw { private, ..found };
            found = best(found, private.iter().map(with).collect());
            if found == before {
                break;
            }
        }
        self.beliefs = Beliefs {
            hop: found.hop,
            capacity: found.capacity,
            doubt: LEARNED,
        };
    }
}

impl Picture {
    /// For each kind of thread, the lines that its threads were measured to read, with any cache; `None` where none were
    /// measured.
    fn curves_of(&self, measured: &[Measured]) -> Vec<Option<Curve>> {
        let mut sums = vec![(0.0, 0.0); self.kinds.first.len()];
        for (of, &kind) in measured.iter().zip(&self.kinds.of) {
            if of.is_any() {
                sums[kind].0 += of.lines;
                sums[kind].1 += 1.0;
            }
        }
        let mean = |(lines, count): (f64, f64)| (count > 0.0).then(|| flat(lines / count))?;
        sums.into_iter().map(mean).collect()
    }

    /// How far the only draw's speeds are from the measured ones: squared logarithms, weighted by CPU.
    fn error(&mut self, cpus: &[CpuId], memory: &[Memory], measured: &[Measured]) -> f64 {
        let solved = self.solve(0, cpus, memory);
        let is_solved = |at: &usize| self.threads[*at].is_known() && self.seat(cpus[*at]).is_some();
        let places = (0..self.threads.len()).filter(is_solved);
        let speeds = solved.speeds.iter().map(|&of| &solved.solution.speeds[of]);
        let is_measured = |(at, _): &(usize, &Speed)| measured[*at].is_any();
        let of = |(at, speed): (usize, &Speed)| {
            self.threads[at].wanted * (1000.0 / speed.ns / measured[at].speed).ln().powi(2)
        };
        let error = (places.zip(speeds).filter(is_measured)).map(of).sum();
        // The next answer is near this one.
        self.starts[0] = solved.solution;
        error
    }
}

#[cfg(test)]
mod tests {
    use numaherd_topology::NodeId;
    use numaherd_world::Residency;

    use super::*;
    use crate::estimate::demands::{Demand, WRITTEN};
    use crate::placement::adaptive::tests::{program, scene};

    /// The capacity that is believed after two looks at so many threads that wait 500 ns for each line, all from node 0.
    fn capacity_after(threads: u32) -> (f64, f64) {
        let mut scene = scene();
        for number in 0..threads {
            program(&mut scene, number, number, 100.0, 16_384);
            scene.snapshot.processes[number as usize].residency = Some(Residency {
                pages: vec![(NodeId(0), 16_384)],
                kinds: None,
            });
            let thread = &mut scene.snapshot.threads[number as usize];
            let counts = thread.counts.as_mut().unwrap();
            // 1 ns an instruction, and all of the 100 ms on a CPU.
            counts.instructions = 100_000_000 / 51;
            counts.lines = counts.instructions / 10;
            counts.uncore_requests = Some(counts.lines);
            counts.uncore_busy_cycles = Some(counts.lines * 500);
            let local = if number < 2 { counts.lines } else { 0 };
            (counts.local, counts.remote) = (Some(local), Some(counts.lines - local));
        }
        let mut estimator = Estimator::default();
        estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        let first = estimator.beliefs.capacity;
        scene.snapshot.time_ns += 100_000_000;
        estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        (first, estimator.beliefs.capacity)
    }

    #[test]
    fn a_line_that_no_latency_explains_has_waited_for_a_controller() {
        let (first, then) = capacity_after(8);
        assert_eq!(first, 1.0);
        // Eight threads read a line in 510 ns each, and write a quarter of it back; two cores could have 20 in flight, for 200
        // ns each, half of which is usual.
        let asked = 8.0 / 510.0 * (1.0 + WRITTEN);
        assert!((then - asked / MOST_IN_USE / 0.05).abs() < 1e-3, "{then}");
        // One thread cannot keep a controller busy by itself with a line at a time.
        assert_eq!(capacity_after(1).1, 1.0);
    }

    #[test]
    fn a_cache_that_spared_more_lines_than_expected_says_nothing_of_controllers() {
        let mut scene = scene();
        for number in 0..2 {
            program(&mut scene, number, number, 100.0, 16_384);
        }
        let mut estimator = Estimator::default();
        let before = estimator.observe(&Stage::of_all(&scene.snapshot, &scene.topology));
        // The second one goes to a cache of its own, and neither reads anything from memory then.
        let cpus = [CpuId(0), CpuId(2)];
        let stays = vec![Memory::default(); 2];
        let measured = |demand: &Demand| Measured {
            speed: 1.0 / demand.base_ns * 1000.0,
            lines: 0.0,
        };
        let measured: Vec<Measured> = before.demands[0].iter().map(measured).collect();
        estimator.learn(&scene.topology, &before, (&cpus, &stays), &measured);
        let Beliefs {
            hop,
            capacity,
            doubt,
        } = estimator.beliefs;
        assert_eq!((hop, capacity), (0.67, 1.0));
        assert_eq!(doubt, LEARNED);
    }
}
