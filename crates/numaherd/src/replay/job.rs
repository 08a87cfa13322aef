//! A job for the model, made of what was counted of a thread.
//!
//! * *Memory*: the share of lines that came from its own node, where that is counted; the rest is divided like its
//!   process's pages. Where it is not counted, the pages alone decide. Pages stay where they were recorded.
//! * *Time* for 1000 instructions: `t = a + x y`, where `x` is how long it would wait for its lines one by one, and
//!   `y` is one over the lines in flight (as in the model's `solve`). Least squares over its intervals give `a` and
//!   `y`. While the intervals say little, `y` stays near a prior: from the uncore's counts if there are any (Little's
//!   law: lines and hits times their latencies, over the time with one outstanding), or else from the program's
//!   profile, or else a usual figure.
//! * *Lines* fetched from memory per 1000 instructions: as counted, for the cache that the model let it hold then.
//!   For more or less cache, they follow the curve of the profile of that name. Without a profile, counts under one
//!   placement do not suffice, and a general rule applies: lines go with the inverse square root of the cache
//!   (Hartstein et al., Cache miss behavior: is it sqrt 2?, CF 2006).
//!
//! Left out: lines that are written back, lines that come from other caches.

use std::sync::Arc;

use numaherd_model::program::{Curve, Phase};
use numaherd_model::{Hardware, Program};
use numaherd_topology::{DomainId, NodeId};
use numaherd_world::{Snapshot, Thread};

/// Lines in flight of an unknown thread: the middle of the programs in data/programs.
const USUAL_IN_FLIGHT: f64 = 4.0;

/// Relative errors: of that figure, and of one from counts or from a profile.
const UNKNOWN: f64 = 0.5;
const KNOWN: f64 = 0.1;

/// Relative standard deviation of a thread's time for an instruction from one interval to the next, with everything
/// the same. Chosen here; it weighs the intervals against the prior.
const NOISE: f64 = 0.03;

/// The factor for the weight of earlier intervals when a further one comes.
const MEMORY: f64 = 0.98;

/// The most instructions that a core executes in a cycle.
const WIDEST: f64 = 8.0;

/// The power with which lines fall as the cache grows, for programs in general.
const FALL: f64 = 0.5;

/// Sizes of cache for which that is computed: powers of four from 64 KiB to 256 MiB.
const SIZES: std::ops::RangeInclusive<i32> = 8..=14;

/// What is known of a thread.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// Its program's profile, where there is one of that name.
    program: Option<Arc<Program>>,
    /// Weighted sums of 1, x, t, x², x t.
    sums: [f64; 5],
    /// Lines in flight by the uncore's counts: weighted sums of 1 and of them.
    in_flight: [f64; 2],
    /// Lines per 1000 instructions.
    lines: f64,
    /// Time for 1000 instructions in the latest interval, in ns.
    pub ns: f64,
    /// Share of a CPU that it wants.
    pub wants: f64,
    /// Nodes and the share of its lines that each answers.
    pub memory: Vec<(NodeId, f64)>,
    /// Where it was.
    pub domain: Option<DomainId>,
    /// How long each of its lines waited in queues in the model's latest answer, in ns.
    pub queue_ns: f64,
    /// Bytes of cache that the model last let it hold.
    pub held_bytes: Option<f64>,
}

/// What was counted of a thread in an interval; lines and times are for 1000 instructions.
pub struct Counted {
    /// Time on a CPU in ns.
    pub ns: f64,
    lines: f64,
    /// Nodes and the share of its lines that each answered.
    pub memory: Vec<(NodeId, f64)>,
    /// Requests to the uncore, and the time with one outstanding at least, in ns.
    uncore: Option<(f64, f64)>,
}

impl Job {
    /// A thread with its profile, if it has one, and nothing counted yet.
    pub fn of(program: Option<Arc<Program>>) -> Self {
        Self {
            program,
            ..Self::default()
        }
    }

    /// Takes in one more interval, in which fetching a line took `waited_ns`.
    pub fn take(&mut self, counted: Counted, waited_ns: f64, hardware: &Hardware) {
        let beyond = (waited_ns - hardware.figures.llc_ns).max(0.0);
        let (x, t) = (counted.lines * beyond, counted.ns);
        for (sum, more) in self.sums.iter_mut().zip([1.0, x, t, x * x, x * t]) {
            *sum = *sum * MEMORY + more;
        }
        if let Some((requests, busy_ns)) = counted.uncore {
            let hits = (requests - counted.lines).max(0.0);
            let one_by_one = counted.lines * waited_ns + hits * hardware.figures.llc_ns;
            for (sum, more) in self.in_flight.iter_mut().zip([1.0, one_by_one / busy_ns]) {
                *sum = *sum * MEMORY + more;
            }
        }
        self.ns = t;
        self.lines = counted.lines;
        self.memory = counted.memory;
    }

    /// The prior of its lines in flight, and its relative error.
    fn known_in_flight(&self) -> (f64, f64) {
        let [times, sum] = self.in_flight;
        if times > 0.0 {
            return (sum / times, KNOWN);
        }
        match self.profile() {
            Some(phase) => (phase.misses_in_flight, KNOWN),
            None => (USUAL_IN_FLIGHT, UNKNOWN),
        }
    }

    /// The phase of its profile that it is most like now.
    fn profile(&self) -> Option<&Phase> {
        let held = self.held_bytes?;
        let unlike = |phase: &Phase| {
            (phase.lines.at(held).max(1e-9) / self.lines.max(1e-9))
                .ln()
                .abs()
        };
        let phases = self.program.as_ref()?.phases.iter();
        phases.min_by(|a, b| unlike(a).total_cmp(&unlike(b)))
    }

    /// Time for 1000 instructions without waiting for memory in ns, and lines in flight.
    fn parts(&self, hardware: &Hardware) -> (f64, f64) {
        let [weight, x, t, xx, xt] = self.sums;
        let (x, t) = (x / weight, t / weight);
        let (varies, together) = ((xx / weight - x * x).max(0.0), xt / weight - x * t);
        let (known, off) = self.known_in_flight();
        let known = 1.0 / known.clamp(1.0, hardware.figures.in_flight.max(1.0));
        let trust = (NOISE * t).powi(2) / (off * known).powi(2) / weight;
        let y = (together + trust * known) / (varies + trust);
        let least = 1000.0 / hardware.figures.clock_ghz / WIDEST;
        let most = if x > 0.0 { (t - least) / x } else { 1.0 };
        let y = y.clamp(1.0 / hardware.figures.in_flight.max(1.0), 1.0);
        let y = y.min(most.max(1e-3));
        ((t - x * y).max(least), 1.0 / y)
    }

    /// Lines against cache.
    fn curve(&self) -> Option<Curve> {
        let footprint = f64::from(1 << 30);
        let lines = self.lines;
        let Some(held) = self.held_bytes.filter(|&held| held > 0.0 && lines > 0.0) else {
            let flat = [(f64::from(1 << 20), lines)];
            return Curve::new(lines, &flat, footprint).ok();
        };
        if let Some(phase) = self.profile() {
            let scale = lines / phase.lines.at(held).max(1e-9);
            let points: Vec<(f64, f64)> = phase
                .lines
                .points()
                .map(|(bytes, lines)| (bytes, lines * scale))
                .collect();
            let most = phase.lines.cache_accesses() * scale;
            return Curve::new(most, &points, footprint).ok();
        }
        let at = |bytes: f64| lines * (held / bytes).powf(FALL);
        let points: Vec<(f64, f64)> = SIZES
            .map(|power| 4_f64.powi(power))
            .map(|bytes| (bytes, at(bytes)))
            .collect();
        Curve::new(points[0].1, &points, footprint).ok()
    }

    /// The phase for the model; `None` if its figures make no sense.
    pub fn phase(&self, hardware: &Hardware) -> Option<Phase> {
        let (base_ns, misses_in_flight) = self.parts(hardware);
        // A ledger can come from anywhere, and the model would look for an answer to nonsense for ever.
        let sound = |figure: f64| figure.is_finite() && figure > 0.0 && figure < 1e15;
        if !(sound(base_ns) && sound(misses_in_flight) && self.lines < 1e6) {
            return None;
        }
        Some(Phase {
            instructions: 1e9,
            cycles_per_instruction: base_ns / 1000.0 / hardware.figures.ns_per_reference_cycle,
            lines: self.curve()?,
            demand: None,
            misses_in_flight,
            written_per_line: 0.0,
            busy: 1.0,
            sleep_ns: 0.0,
            shared_writes: None,
        })
    }
}

/// What was counted of a thread, if enough was: instructions, lines, and where the lines are.
pub fn counted(snapshot: &Snapshot, thread: &Thread, hardware: &Hardware) -> Option<Counted> {
    let counts = thread.counts.as_ref()?;
    let lines = counts.miss_rate()?;
    let per = 1000.0 / counts.instructions as f64;
    let ns = thread.cpu_share * snapshot.interval_ns as f64 * per;
    if !(ns.is_finite() && ns > 0.0) {
        return None;
    }
    let uncore = counts.uncore_busy_cycles.zip(counts.uncore_requests);
    let uncore = uncore.filter(|&(busy, requests)| busy > 0 && requests > 0);
    let cycle_ns = 1.0 / hardware.figures.clock_ghz;
    Some(Counted {
        ns,
        lines,
        memory: memory(snapshot, thread, hardware)?,
        uncore: uncore
            .map(|(busy, requests)| (requests as f64 * per, busy as f64 * per * cycle_ns)),
    })
}

/// Nodes and the share of a thread's lines that each answers.
fn memory(snapshot: &Snapshot, thread: &Thread, hardware: &Hardware) -> Option<Vec<(NodeId, f64)>> {
    let topology = hardware.topology();
    let here = topology.cpu(thread.cpu)?.node;
    let residency = snapshot.process(thread.process)?.residency.as_ref();
    let known = |node: NodeId| topology.node_index(node).is_some();
    let pages: Vec<(NodeId, f64)> = residency
        .iter()
        .flat_map(|residency| &residency.pages)
        .filter(|&&(node, _)| known(node))
        .map(|&(node, pages)| (node, pages as f64))
        .collect();
    let local = thread.counts.as_ref()?.local_access_ratio();
    let Some(local) = local else {
        return shares(pages);
    };
    let mut elsewhere: Vec<_> = pages
        .into_iter()
        .filter(|&(node, _)| node != here)
        .collect();
    if elsewhere.is_empty() && local < 1.0 {
        let others = topology.memory_nodes();
        let others = others.iter().filter(|&node| node != here);
        elsewhere = others.map(|node| (node, 1.0)).collect();
    }
    let mut memory = shares(elsewhere).unwrap_or_default();
    for (_, share) in &mut memory {
        *share *= 1.0 - local;
    }
    memory.push((here, if memory.is_empty() { 1.0 } else { local }));
    memory.sort_by_key(|&(node, _)| node);
    Some(memory)
}

/// Amounts as shares of all of them; `None` for nothing.
fn shares(mut amounts: Vec<(NodeId, f64)>) -> Option<Vec<(NodeId, f64)>> {
    let all: f64 = amounts.iter().map(|&(_, amount)| amount).sum();
    for (_, amount) in &mut amounts {
        *amount /= all;
    }
    (all > 0.0).then_some(amounts)
}
