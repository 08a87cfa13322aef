//! What the machine can do and what its threads demand, by each draw.

use std::sync::LazyLock;

use numaherd_contention::{Channel, Curve, Figures, LINE_BYTES, loaded};
use numaherd_topology::Topology;

use super::caches::USUAL_CACHE;
use super::cores::Cores;
use super::kinds::Kinds;
use super::sharing::shared;
use super::threads::{Load, QUIET, Seats};

/// One set of assumptions about what counters do not show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Draw {
    /// What a distance of 10 more (SLIT) adds to the local latency, as a share of it.
    pub(super) hop: f64,
    /// What a controller carries, as a share of what its description says or is usual.
    pub(super) capacity: f64,
    /// Whether a thread with more cache than it ever had reads fewer lines, down to none when all its process's
    /// pages fit.
    pub(super) cache_helps: bool,
    /// Whether the remote lines of a thread that reads other memory than its process's other threads come from all nodes
    /// alike, or as its process's pages are.
    pub(super) evenly: bool,
    /// Of a process's lines that may be shared or private, the share that turns out to be private once its memory
    /// follows its threads to several nodes.
    pub(super) private: f64,
    /// In how many pieces the private part of each thread is.
    pub(super) pieces: f64,
}

/// The latency of a hit in the last-level cache as a share of that of local memory (FACTS 7.1: 19.5 of
/// 83 ns on Skylake-SP).
const LLC_PART: f64 = 0.2;
/// What a controller carries, as a share of what its node's cores can ask for (chosen here: cores ask for more than
/// controllers carry; by how much is not in sysfs).
const USUAL_CAPACITY: f64 = 0.5;
/// Cache lines that a core has in flight at most (FACTS 1 counts with 10).
const IN_FLIGHT: f64 = 10.0;
/// Lines in flight of a thread whose requests are not counted (chosen here).
const USUAL_IN_FLIGHT: f64 = 3.0;
/// The least share of a thread's time that is not spent on memory, where nothing shows it.
pub(super) const LEAST_BASE: f64 = 0.2;
/// The largest share of a controller that is taken to be in use: above it, a wait says hardly anything (chosen here).
pub(super) const MOST_IN_USE: f64 = 0.95;
/// Lines written back per line read: not counted, so a middle value.
pub(super) const WRITTEN: f64 = 0.25;
/// Lines fall with this power of the cache where nothing else was seen: by a factor of the root of two for twice the
/// cache (Hartstein, Srinivasan, Puzak and Emma, "Cache miss behavior: is it sqrt 2?", CF 2006).
const USUAL_POWER: f64 = 0.5;
/// Doublings of the cache for which that goes on: no cache has a share that is many times another.
const DOUBLINGS: i32 = 3;
/// What two SMT siblings get done together in what one does alone (chosen here; Linux counted with 1.15).
const SMT_THROUGHPUT: f64 = 1.25;

/// What a thread demands, by one draw.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// Time for 1000 instructions without memory, with a core to itself.
    pub(super) base_ns: f64,
    /// The same beside the siblings that it had.
    pub(super) shared_base_ns: f64,
    pub(super) in_flight: f64,
    /// Requests per 1000 instructions for lines of other threads of its process.
    pub(super) shared: f64,
    pub(super) curve: Curve,
    /// Time for 1000 instructions alone on the machine.
    pub(super) alone_ns: f64,
}

pub(super) fn figures(topology: &Topology, draw: &Draw, local_ns: f64, llc: &[f64]) -> Figures {
    let nodes = topology.nodes();
    let timing = topology.timing();
    let latency_ns: Vec<f64> = match &timing.latency_ns {
        Some(rows) => rows.concat(),
        None => (nodes.iter())
            .flat_map(|from| nodes.iter().map(move |to| (from.id, to.id)))
            .map(|(from, to)| {
                let distance = f64::from(topology.distance(from, to).unwrap_or(10));
                local_ns * (1.0 + draw.hop * (distance - 10.0) / 10.0)
            })
            .collect(),
    };
    let local = |node: usize| latency_ns[node * nodes.len() + node];
    let controllers = (0..nodes.len()).map(|node| {
        let given = timing
            .node_gb_per_s
            .as_ref()
            .map(|rows| rows[node] / LINE_BYTES);
        let cores = topology.cores().iter();
        let cores = cores.filter(|core| {
            let domain = &topology.domains()[core.domain.index()];
            domain.node == nodes[node].id
        });
        // A node without cores is as good as the others are on average, for want of anything better.
        let cores = match cores.count() {
            0 => topology.cores().len() / nodes.len(),
            cores => cores,
        };
        let asked = cores.max(1) as f64 * IN_FLIGHT / local(node);
        Channel {
            capacity: given.unwrap_or(asked * USUAL_CAPACITY) * draw.capacity,
            service_ns: local(node),
        }
    });
    let llc_ns = (0..nodes.len()).map(local).fold(f64::INFINITY, f64::min) * LLC_PART;
    let has_siblings = topology.cores().iter().any(|core| core.cpus.len() > 1);
    Figures {
        channels: controllers.collect(),
        nodes: nodes.len(),
        latency_ns,
        caches: None,
        ways: vec![Vec::new(); nodes.len() * nodes.len()],
        broadcast_probes: false,
        llc_bytes: llc.to_vec(),
        llc_ns,
        private_bytes: 0.0,
        own_bytes: 0.0,
        own_ns: llc_ns,
        in_flight: IN_FLIGHT,
        clock_ghz: 1.0,
        smt_throughput: if has_siblings { SMT_THROUGHPUT } else { 2.0 },
        write_turnaround: 0.0,
        own_lines_wait: true,
        ns_per_reference_cycle: 1.0,
    }
}

/// What the threads ask of each node's controller (place), by a draw, in lines per ns, with those that they write.
pub(super) fn asked(draw: &Draw, nodes: usize, threads: &[Load]) -> Vec<f64> {
    let mut asked = vec![0.0; nodes];
    for load in threads.iter().filter(|load| load.is_known()) {
        for &(home, share) in load.memory_by(draw) {
            asked[home] += load.wanted * load.speed * load.lines / 1000.0 * share * (1.0 + WRITTEN);
        }
    }
    asked
}

/// The demands under which each kind of thread is as fast as it was measured.
pub(super) fn demands(
    draw: &Draw,
    figures: &Figures,
    threads: &[Load],
    kinds: &Kinds,
    seats: &Seats,
    cores: &Cores,
) -> Vec<Demand> {
    let asked = asked(draw, figures.nodes, threads);
    let waits: Vec<f64> = (asked.iter().zip(&figures.channels))
        .map(|(asked, channel)| {
            loaded::wait((asked / channel.capacity).min(MOST_IN_USE)) * channel.service_ns
        })
        .collect();
    let of = |(load, curves): (&Load, &Curves)| {
        let curve = curves.if_cache(draw.cache_helps).clone();
        let (Some((seat, _)), true) = (seats.get(load.cpu), load.is_known()) else {
            return Demand {
                base_ns: 1.0,
                shared_base_ns: 1.0,
                in_flight: 1.0,
                shared: 0.0,
                curve,
                alone_ns: 1.0,
            };
        };
        let node = seat.node;
        let (llc_ns, lines, ns) = (figures.llc_ns, load.lines, load.ns());
        let parts = load.memory_by(draw).iter();
        let latency: f64 = parts
            .map(|&(home, share)| share * (figures.latency_ns(node, home) + waits[home]))
            .sum();
        let taken = shared(load, figures, *seat, latency);
        let in_flight = match (load.busy_ns, load.requests) {
            _ if taken.is_some() => 1.0,
            (Some(busy_ns), Some(requests)) if busy_ns > 0.0 => {
                (lines * latency + (requests - lines).max(0.0) * llc_ns) / busy_ns
            }
            _ => USUAL_IN_FLIGHT.max(lines * (latency - llc_ns) / (ns * (1.0 - LEAST_BASE))),
        };
        let in_flight = in_flight.clamp(1.0, figures.in_flight);
        let stall = |latency: f64, lines: f64| lines * (latency - llc_ns).max(0.0) / in_flight;
        let (shared, sharing_ns) = taken.unwrap_or((load.shared, 0.0));
        let base_ns = (ns - stall(latency, lines) - sharing_ns).max(ns * 0.02);
        let local = figures.latency_ns(node, node);
        let best = curve.at(figures.llc_bytes[seat.domain]).min(lines);
        let alone_ns = (base_ns + stall(local, best)).min(ns);
        Demand {
            base_ns,
            shared_base_ns: base_ns,
            in_flight,
            shared,
            curve,
            alone_ns,
        }
    };
    let each = kinds.first.iter().map(|&first| &threads[first]);
    let mut demands: Vec<Demand> = each.zip(&kinds.curves).map(of).collect();
    if figures.smt_throughput < 2.0 {
        take_out_siblings(figures, threads, kinds, seats, cores, &mut demands);
    }
    demands
}

/// Removes from each thread's time what siblings took, by the same equation that adds it: as often as the threads of its
/// domain shared cores, beside the mean of the others.
fn take_out_siblings(
    figures: &Figures,
    threads: &[Load],
    kinds: &Kinds,
    seats: &Seats,
    cores: &Cores,
    demands: &mut [Demand],
) {
    let domain = |load: &Load| seats.get(load.cpu).map(|(seat, _)| seat.domain);
    let computes = |demand: &Demand, load: &Load| (demand.base_ns / load.ns()).min(1.0);
    // For each domain: the CPUs that are wanted; of these, by threads of which more is known; of these, to compute.
    let mut sums = vec![(0.0, 0.0, 0.0); cores.cpus().len()];
    for (load, &kind) in threads.iter().zip(&kinds.of) {
        let Some(domain) = domain(load) else { continue };
        let (wanted, known, computing) = &mut sums[domain];
        *wanted += load.wanted;
        if load.is_known() {
            *known += load.wanted;
            *computing += load.wanted * computes(&demands[kind], load);
        }
    }
    let stretch = 2.0 / figures.smt_throughput - 1.0;
    for (demand, &first) in demands.iter_mut().zip(&kinds.first) {
        let load = &threads[first];
        let Some(domain) = domain(load).filter(|_| load.is_known()) else {
            continue;
        };
        let (wanted, known, computing) = sums[domain];
        let others = (known - load.wanted).max(1e-9);
        let computing = (computing - load.wanted * computes(demand, load)).max(0.0);
        let beside = cores.siblings(domain, wanted) * (computing / others).min(1.0);
        demand.base_ns = demand.shared_base_ns / (1.0 + stretch * beside);
        demand.alone_ns -= demand.shared_base_ns - demand.base_ns;
    }
}

/// The curve of a thread that reads next to no lines.
static NOTHING: LazyLock<Curve> = LazyLock::new(|| flat(0.0).expect("a curve of nothing"));

/// The curve of a thread that reads so many lines with any cache; `None` unless that is finite.
pub(super) fn flat(lines: f64) -> Option<Curve> {
    Curve::new(lines, &[(USUAL_CACHE, lines)], USUAL_CACHE).ok()
}

/// A thread's lines against cache.
#[derive(Clone, Debug)]
pub(super) struct Curves {
    /// As they were seen.
    seen: Curve,
    /// Where more cache than it ever had would spare it lines.
    helped: Curve,
}

impl Curves {
    pub(super) fn of(load: &Load) -> Self {
        let of = |helps| {
            let curve = load.is_known().then(|| curve(helps, load)).flatten();
            curve.unwrap_or_else(|| NOTHING.clone())
        };
        Self {
            seen: of(false),
            helped: of(true),
        }
    }

    fn if_cache(&self, helps: bool) -> &Curve {
        if helps { &self.helped } else { &self.seen }
    }
}

/// Lines against cache; `None` for a thread that reads next to none, however little cache it had.
fn curve(cache_helps: bool, load: &Load) -> Option<Curve> {
    let mut points: Vec<(f64, f64)> = load.seen.clone();
    if points.is_empty() {
        points.push((load.held.max(1.0), load.lines));
    }
    // More cache never costs lines: a point that says so is noise, or from another phase.
    let last = points.len() - 1;
    for at in (0..last).rev() {
        points[at].1 = points[at].1.max(points[at + 1].1);
    }
    let most = points[0].1.max(load.requests.unwrap_or(0.0));
    if most < QUIET {
        return None;
    }
    let footprint = match load.footprint {
        0.0 => points[last].0 * 16.0,
        footprint => footprint,
    };
    // A thread of which nothing is counted is not assumed to gain by more cache.
    if cache_helps && !load.is_assumed && footprint > points[last].0 * 1.05 {
        let (bytes, lines) = points[last];
        let power = match points[..last].last() {
            Some(&(less, more)) if lines > 0.0 => (more / lines).ln() / (bytes / less).ln(),
            _ => USUAL_POWER,
        };
        let larger = (1..=DOUBLINGS).map(|doubling| 2f64.powi(doubling));
        let larger = larger.take_while(|times| bytes * times < footprint);
        points.extend(larger.map(|times| (bytes * times, lines * times.powf(-power))));
        points.push((footprint, 0.0));
    }
    Curve::new(most, &points, footprint.max(points[last].0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::Estimator;
    use crate::placement::adaptive::tests::{program, scene};
    use crate::stage::Stage;

    /// A thread that reads 100 lines with 1 MiB of cache, and 64 MiB of memory; and what else was seen of it.
    fn lines_with(mebibytes: f64, seen: &[(f64, f64)]) -> f64 {
        let mut scene = scene();
        program(&mut scene, 1, 0, 100.0, 16_384);
        let stage = Stage::of_all(&scene.snapshot, &scene.topology);
        let mut load = Estimator::default().observe(&stage).threads.remove(0);
        let mib = f64::from(1 << 20);
        let seen = seen.iter().chain(&[(1.0, 100.0)]);
        load.seen = seen.map(|&(size, lines)| (size * mib, lines)).collect();
        load.footprint = 64.0 * mib;
        curve(true, &load).unwrap().at(mebibytes * mib)
    }

    #[test]
    fn a_cache_four_times_as_large_halves_the_lines_where_nothing_else_was_seen() {
        assert!((lines_with(4.0, &[]) - 50.0).abs() < 1e-6);
        assert_eq!(lines_with(64.0, &[]), 0.0);
    }

    #[test]
    fn lines_go_on_falling_as_they_were_seen_to_fall() {
        // Half the lines for twice the cache.
        assert!((lines_with(4.0, &[(0.5, 200.0)]) - 25.0).abs() < 1e-6);
        // Nothing for it.
        assert!((lines_with(4.0, &[(0.5, 100.0)]) - 100.0).abs() < 1e-6);
    }
}
