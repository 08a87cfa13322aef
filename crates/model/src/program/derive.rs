//! A program's phase, derived from a sweep of cache sizes on a machine that the model need not know.
//!
//! A sweep gives, at a few sizes of cache, the cycles per instruction and the lines that demand accesses fetch with
//! prefetchers off, and at some of the sizes the lines fetched in all. The figures that the model needs are derived as
//! follows:
//!
//! * **Exposed cycles per line**, E: the cycles lost for each additional line fetched, from the largest to the smallest
//!   size, `E = 1000 x (cpi_small - cpi_large) / (lines_small - lines_large)`. Figures are rounded to 0.01 cycles, so
//!   that E is known only where the cycles differ by at least 0.02 and the lines by at least a twentieth. Otherwise
//!   fetching has no measurable cost: the prefetcher runs ahead, and the program has as many lines in flight as the
//!   core allows. A difference of a tenth of a cycle between the sizes gives E to within a tenth. Where the size
//!   matters less than that, the prefetchers give more: switched off at the largest size, they turn lines that came in
//!   time into demand misses, and `E_d = 1000 x (cpi_without - cpi) / (demand_without - demand)` cycles are lost for
//!   each. With prefetchers on, each remaining demand miss costs that much, and lines in time cost nothing, so that
//!   `E = E_d x demand / lines`.
//! * **Misses in flight**, M: a wait of `memory_beyond_llc` that costs E per line is shared by
//!   `M = memory_beyond_llc / E` lines (Little's law); at least 1, at most what the core allows.
//! * **Cycles per instruction** with the last-level cache answering all:
//!   `cpi_large - lines_large x memory_beyond_llc / M / 1000`; at least the inverse of the core's width, the limit of
//!   any core, even where E was misjudged.
//!
//! Where no lines are given, they are estimated:
//! * At the smallest size (none known, or known for one of several inputs only, which must not stand for the program:
//!   one input of gcc fetches five times the program's mean): the demand without prefetch there, times the lines per
//!   demand miss at the largest size, which says how much the prefetcher overshoots; that factor is between 1 (each
//!   demand miss is a line) and [`MOST_LINES_PER_DEMAND_MISS`].
//! * Between: in proportion to the demand without prefetch. The size is left out if the demand does not fall.
//! * At the size of the core's private cache: the lines at the smallest size, plus the private cache's demand misses
//!   that the last-level cache answered there.
//! * Below: the program's own power law (lines ~ size^-a, a from the demand at the two smallest sizes), a at most 0.5,
//!   the square-root rule that holds for programs at large (Hartstein et al., Cache miss behavior: is it sqrt 2?, CF
//!   2006), down to [`SMALLEST_MIB`]; below that the figure is constant, also with no cache at all.
//!
//! The lines written per line read are taken from the smallest size.

/// Lines per demand miss (prefetchers off) are at most this: the most of any CPU2006 program whose lines are known for
/// the whole program (xalancbmk: 9.96 for 6.07). More is rounding of small figures.
pub(super) const MOST_LINES_PER_DEMAND_MISS: f64 = 1.64;

/// The smallest private cache of the machines that run the papers' programs (Nehalem's level 2).
pub(super) const SMALLEST_MIB: f64 = 0.25;

/// Cycles per instruction that differ by less are the same: both are rounded to 0.01.
const TELLING_CYCLES: f64 = 0.02;

/// Cycles per instruction that differ by this much give a slope well: rounding is a tenth of the difference.
const WELL_TOLD_CYCLES: f64 = 0.1;

/// Lines that differ by less, as a share of the larger, are the same.
const TELLING_LINES: f64 = 0.05;

/// Rounding of decimal figures must not decide a comparison.
const ROUNDING: f64 = 1e-9;

/// The machine that a sweep was measured on.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub clock_ghz: f64,
    /// Idle latency of memory beyond that of a hit in the last-level cache.
    pub memory_beyond_llc_ns: f64,
    /// Lines that one core can have in flight, its prefetchers' among them.
    pub lines_in_flight: f64,
    pub instructions_per_cycle: f64,
    pub private_cache_mib: f64,
}

/// Lines read and written per 1000 instructions at one size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub written: f64,
    pub lines: f64,
}

/// The figures of a sweep, the smallest size first; checked: two sizes at least, lines and demand
/// that never rise, lines at the largest size.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    pub cache_mib: Vec<f64>,
    pub cycles_per_instruction: Vec<f64>,
    /// Lines of each size, where known.
    pub lines: Vec<Option<f64>>,
    pub demand_without_prefetch: Vec<f64>,
    pub demand: Option<Vec<f64>>,
    /// Cycles per instruction at the largest size with prefetchers off.
    pub cycles_without_prefetch_at_largest: Option<f64>,
    /// Demand misses of the private cache.
    pub l2_misses: Option<f64>,
    pub written: Option<Written>,
}

/// What a phase takes from a sweep; curves as pairs of MiB and lines per 1000 instructions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Derived {
    pub cycles_per_instruction: f64,
    pub misses_in_flight: f64,
    pub cache_accesses: f64,
    pub lines: Vec<(f64, f64)>,
    pub demand: Option<Vec<(f64, f64)>>,
    pub written_per_line: f64,
}

/// The phase's figures.
pub(super) fn derived(sweep: &Sweep, reference: &Reference) -> Derived {
    let measured = lines_at_sizes(sweep);
    let (misses_in_flight, cycles_per_instruction) = waiting(sweep, &measured, reference);
    let hits = sweep
        .l2_misses
        .zip(sweep.demand.as_ref())
        .map_or(0.0, |(l2, demand)| (l2 - demand[0]).max(0.0));
    let steepness = steepness(sweep);
    let lines = extended(&measured, hits, steepness, reference);
    let pairs = |figures: &Vec<f64>| -> Vec<(f64, f64)> {
        let sizes = sweep.cache_mib.iter().copied();
        sizes.zip(figures.iter().copied()).collect()
    };
    let demand = sweep
        .demand
        .as_ref()
        .map(|demand| extended(&pairs(demand), hits, steepness, reference));
    Derived {
        cycles_per_instruction,
        misses_in_flight,
        cache_accesses: lines[0].1,
        lines,
        demand,
        written_per_line: sweep.written.map_or(0.0, |at| at.written / at.lines),
    }
}

/// Lines at the sweep's own sizes.
fn lines_at_sizes(sweep: &Sweep) -> Vec<(f64, f64)> {
    let demand = &sweep.demand_without_prefetch;
    let end = demand.len() - 1;
    let at_largest = sweep.lines[end].unwrap_or(demand[end]);
    let at_smallest = sweep.lines[0].unwrap_or_else(|| {
        let overshoot = if demand[end] > 0.0 {
            (at_largest / demand[end]).clamp(1.0, MOST_LINES_PER_DEMAND_MISS)
        } else {
            1.0
        };
        (demand[0] * overshoot).max(at_largest)
    });
    let fall = demand[0] - demand[end];
    let along = |at: usize| {
        let part = (demand[at] - demand[end]) / fall;
        at_largest + (at_smallest - at_largest) * part
    };
    let mut points = vec![(sweep.cache_mib[0], at_smallest)];
    for at in 1..end {
        let lines = sweep.lines[at].or_else(|| (fall > 0.0).then(|| along(at)));
        if let Some(lines) = lines {
            let before = points[points.len() - 1].1;
            points.push((sweep.cache_mib[at], lines.clamp(at_largest, before)));
        }
    }
    points.push((sweep.cache_mib[end], at_largest));
    points
}

/// Misses in flight, and cycles per instruction with the last-level cache answering all.
fn waiting(sweep: &Sweep, measured: &[(f64, f64)], reference: &Reference) -> (f64, f64) {
    let end = sweep.cycles_per_instruction.len() - 1;
    let (cycles_small, cycles_large) = (
        sweep.cycles_per_instruction[0],
        sweep.cycles_per_instruction[end],
    );
    let (lines_small, lines_large) = (measured[0].1, measured[measured.len() - 1].1);
    let (cycles, lines) = (cycles_small - cycles_large, lines_small - lines_large);
    let beyond_llc = reference.memory_beyond_llc_ns * reference.clock_ghz;
    let telling =
        cycles >= TELLING_CYCLES - ROUNDING && lines > 0.0 && lines >= TELLING_LINES * lines_small;
    let by_size = telling.then(|| 1000.0 * cycles / lines);
    let exposed = if cycles >= WELL_TOLD_CYCLES {
        by_size
    } else {
        by_prefetchers(sweep, lines_large).or(by_size)
    };
    let in_flight = exposed.map_or(reference.lines_in_flight, |exposed| {
        (beyond_llc / exposed).clamp(1.0, reference.lines_in_flight)
    });
    let base = cycles_large - lines_large * beyond_llc / in_flight / 1000.0;
    (in_flight, base.max(1.0 / reference.instructions_per_cycle))
}

/// Exposed cycles per line by what prefetchers save at the largest size, where that is enough to measure: a tenth of a
/// cycle, and a demand miss per 1000 instructions.
fn by_prefetchers(sweep: &Sweep, lines: f64) -> Option<f64> {
    let end = sweep.cycles_per_instruction.len() - 1;
    let cycles = sweep.cycles_without_prefetch_at_largest? - sweep.cycles_per_instruction[end];
    let demand = sweep.demand.as_ref()?[end];
    let saved = sweep.demand_without_prefetch[end] - demand;
    let telling = cycles >= WELL_TOLD_CYCLES && saved >= 1.0 && lines > 0.0;
    telling.then(|| 1000.0 * cycles / saved * demand / lines)
}

/// The exponent of the power law by which the demand without prefetch falls between the two smallest sizes, from 0 to
/// 0.5.
fn steepness(sweep: &Sweep) -> f64 {
    let (demand, sizes) = (&sweep.demand_without_prefetch, &sweep.cache_mib);
    if demand[0] <= demand[1] {
        return 0.0;
    }
    // No demand at the second size counts as the steepest fall.
    let fall = (demand[0] / demand[1]).ln() / (sizes[1] / sizes[0]).ln();
    fall.min(0.5)
}

/// The curve continued to the private cache's size, and from there to [`SMALLEST_MIB`].
fn extended(
    measured: &[(f64, f64)],
    hits: f64,
    steepness: f64,
    reference: &Reference,
) -> Vec<(f64, f64)> {
    let (smallest, lines) = measured[0];
    let private = reference.private_cache_mib.min(smallest);
    let at_private = lines + hits;
    let mut points = Vec::with_capacity(measured.len() + 2);
    if SMALLEST_MIB < private {
        let more = (private / SMALLEST_MIB).powf(steepness);
        points.push((SMALLEST_MIB, at_private * more));
    }
    if private < smallest {
        points.push((private, at_private));
    }
    points.extend_from_slice(measured);
    points
}

#[cfg(test)]
mod tests;
