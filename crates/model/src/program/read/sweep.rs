//! Reading `[[reference]]` and `[program.sweep]`: checked, derived, and made a phase.

use std::ops::Range;

use numaherd_files::shortened;
use serde::Deserialize;
use toml::Spanned;

use super::{
    Figure, IN_FLIGHT, LINES, MOST_CYCLES, MOST_INSTRUCTIONS, MOST_LINES, MOST_MIB, MOST_POINTS,
    Points, Wrong, above, curve_of_mib, given, not_a_size, not_lines, plain, within, wrong,
};
use crate::program::Phase;
use crate::program::derive::{self, Reference, Sweep, Written};

type Figures = Spanned<Vec<f64>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferenceTable {
    name: Spanned<String>,
    source: Spanned<String>,
    clock_ghz: Figure,
    memory_beyond_llc_ns: Figure,
    lines_in_flight: Figure,
    instructions_per_cycle: Figure,
    private_cache_mib: Figure,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SweepTable {
    on: Spanned<String>,
    instructions: Figure,
    cache_mib: Figures,
    cycles_per_instruction: Figures,
    lines: Points,
    demand_without_prefetch: Figures,
    demand: Option<Figures>,
    cycles_without_prefetch_at_largest: Option<Figure>,
    l2_misses: Option<Figure>,
    written: Option<Figure>,
    one_input: Option<OneInput>,
}

/// Figures of one of a program's inputs; only their ratio counts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneInput {
    lines: Figure,
    written: Figure,
}

/// The machines of a file, by name.
pub(super) struct References(Vec<(String, Reference)>);

impl References {
    pub(super) fn checked(tables: &[ReferenceTable]) -> Result<Self, Wrong> {
        let mut references: Vec<(String, Reference)> = Vec::new();
        for table in tables {
            let name = table.name.get_ref();
            if name.is_empty() {
                let why = "a machine needs a name";
                return wrong(table.name.span(), "reference: name", why);
            }
            if references.iter().any(|(there, _)| there == name) {
                let why = format!("a second reference {:?} in this file", shortened(name));
                return wrong(table.name.span(), "reference: name", why);
            }
            if table.source.get_ref().trim().is_empty() {
                let why = "give the source of the figures, even if it is \"my own choice\"";
                return wrong(table.source.span(), "reference: source", why);
            }
            let above = |figure, key: &str, most| above(figure, &format!("reference: {key}"), most);
            let in_flight = &table.lines_in_flight;
            let reference = Reference {
                clock_ghz: above(&table.clock_ghz, "clock_ghz", 1000.0)?,
                memory_beyond_llc_ns: above(
                    &table.memory_beyond_llc_ns,
                    "memory_beyond_llc_ns",
                    1e6,
                )?,
                lines_in_flight: within(in_flight, "reference: lines_in_flight", IN_FLIGHT)?,
                instructions_per_cycle: above(
                    &table.instructions_per_cycle,
                    "instructions_per_cycle",
                    1000.0,
                )?,
                private_cache_mib: above(&table.private_cache_mib, "private_cache_mib", MOST_MIB)?,
            };
            references.push((name.clone(), reference));
        }
        Ok(Self(references))
    }

    fn get(&self, name: &Spanned<String>) -> Result<&Reference, Wrong> {
        let found = self.0.iter().find(|(there, _)| there == name.get_ref());
        if let Some((_, reference)) = found {
            return Ok(reference);
        }
        let names: Vec<&str> = self.0.iter().map(|(name, _)| name.as_str()).collect();
        let why = if names.is_empty() {
            "this file has no [[reference]]".to_owned()
        } else {
            format!(
                "no [[reference]] {:?} in this file, but {}",
                shortened(name.get_ref()),
                names.join(", ")
            )
        };
        wrong(name.span(), "on", why)
    }
}

/// The phase that follows from a sweep.
pub(super) fn phase(
    table: &SweepTable,
    references: &References,
    footprint_bytes: f64,
) -> Result<Phase, Wrong> {
    let reference = references.get(&table.on)?;
    let instructions = above(&table.instructions, "instructions", MOST_INSTRUCTIONS)?;
    let sweep = checked(table, reference)?;
    let derived = derive::derived(&sweep, reference);
    let curve = |points: &[(f64, f64)], at: Range<usize>, key: &str| {
        curve_of_mib(points, at, key, points[0].1, footprint_bytes)
    };
    let demand = match (&derived.demand, &table.demand) {
        (Some(points), Some(given)) => Some(curve(points, given.span(), "demand")?),
        _ => None,
    };
    Ok(Phase {
        demand,
        misses_in_flight: derived.misses_in_flight,
        written_per_line: derived.written_per_line,
        ..Phase::new(
            instructions,
            derived.cycles_per_instruction,
            curve(&derived.lines, table.lines.span(), "lines")?,
        )
    })
}

fn checked(table: &SweepTable, reference: &Reference) -> Result<Sweep, Wrong> {
    let sizes = sizes(&table.cache_mib)?;
    if sizes[0] < reference.private_cache_mib {
        let why = format!(
            "{} MiB is less than the {} of the reference's private cache, which counts with it",
            sizes[0], reference.private_cache_mib
        );
        return wrong(table.cache_mib.span(), "cache_mib", why);
    }
    let cycles = &table.cycles_per_instruction;
    let cycles = one_of_each(cycles, "cycles_per_instruction", &sizes, MOST_CYCLES)?;
    if let Some(zero) = cycles.iter().find(|&&cycles| cycles <= 0.0) {
        let why = format!("{zero} is not above 0");
        let at = table.cycles_per_instruction.span();
        return wrong(at, "cycles_per_instruction", why);
    }
    let without = &table.demand_without_prefetch;
    let demand = table.demand.as_ref();
    Ok(Sweep {
        lines: lines(&table.lines, &sizes)?,
        demand_without_prefetch: falling(without, "demand_without_prefetch", &sizes)?,
        demand: demand
            .map(|figures| falling(figures, "demand", &sizes))
            .transpose()?,
        cycles_without_prefetch_at_largest: given(
            &table.cycles_without_prefetch_at_largest,
            "cycles_without_prefetch_at_largest",
            0.0..=MOST_CYCLES,
        )?,
        l2_misses: given(&table.l2_misses, "l2_misses", LINES)?,
        written: written(table, &sizes)?,
        cycles_per_instruction: cycles,
        cache_mib: sizes,
    })
}

fn sizes(given: &Figures) -> Result<Vec<f64>, Wrong> {
    let sizes = given.get_ref();
    if sizes.len() < 2 || sizes.len() > MOST_POINTS {
        let why = format!("{} sizes are not within 2 to {MOST_POINTS}", sizes.len());
        return wrong(given.span(), "cache_mib", why);
    }
    let fits = |size: f64| size > 0.0 && size <= MOST_MIB;
    if let Some(&size) = sizes.iter().find(|&&size| !fits(size)) {
        return wrong(given.span(), "cache_mib", not_a_size(size));
    }
    if let Some(pair) = sizes.windows(2).find(|pair| pair[1] <= pair[0]) {
        let why = format!("sizes ascend, but {} MiB follows {} MiB", pair[1], pair[0]);
        return wrong(given.span(), "cache_mib", why);
    }
    Ok(sizes.clone())
}

fn one_of_each(given: &Figures, key: &str, sizes: &[f64], most: f64) -> Result<Vec<f64>, Wrong> {
    let figures = given.get_ref();
    if figures.len() != sizes.len() {
        let (figures, sizes) = (figures.len(), sizes.len());
        let why = format!("{figures} figures for {sizes} sizes of cache");
        return wrong(given.span(), key, why);
    }
    match figures.iter().find(|&f| !(0.0..=most).contains(f)) {
        Some(&figure) => {
            let why = format!("{} is not within 0 to {most}", plain(figure));
            wrong(given.span(), key, why)
        }
        None => Ok(figures.clone()),
    }
}

fn falling(given: &Figures, key: &str, sizes: &[f64]) -> Result<Vec<f64>, Wrong> {
    let figures = one_of_each(given, key, sizes, MOST_LINES)?;
    match figures.windows(2).find(|pair| pair[1] > pair[0]) {
        Some(pair) => {
            let (before, after) = (pair[0], pair[1]);
            let why = format!("more cache cannot miss more, but {after} follows {before}");
            wrong(given.span(), key, why)
        }
        None => Ok(figures),
    }
}

/// The lines of each size, where given; those of the largest size are required.
fn lines(given: &Points, sizes: &[f64]) -> Result<Vec<Option<f64>>, Wrong> {
    let refused = |why: String| wrong(given.span(), "lines", why);
    let mut lines = vec![None; sizes.len()];
    let mut before = f64::INFINITY;
    for &(mib, figure) in given.get_ref() {
        let Some(at) = sizes.iter().position(|&size| size == mib) else {
            return refused(format!("{} MiB is not in cache_mib", plain(mib)));
        };
        if !LINES.contains(&figure) {
            return refused(not_lines(figure));
        }
        if lines[at..].iter().any(Option::is_some) {
            return refused(format!(
                "sizes ascend, but {mib} MiB follows as much or more"
            ));
        }
        if figure > before {
            return refused(format!(
                "more cache cannot fetch more, but {figure} lines follow {before}"
            ));
        }
        before = figure;
        lines[at] = Some(figure);
    }
    if lines[sizes.len() - 1].is_none() {
        return refused("give the lines of the largest size of cache at least".to_owned());
    }
    Ok(lines)
}

fn written(table: &SweepTable, sizes: &[f64]) -> Result<Option<Written>, Wrong> {
    match (&table.written, &table.one_input) {
        (None, None) => Ok(None),
        (Some(figure), Some(_)) => {
            let why = "give either this or one_input, not both";
            wrong(figure.span(), "written", why)
        }
        (None, Some(one)) => {
            let lines = above(&one.lines, "one_input.lines", MOST_LINES)?;
            let written = within(&one.written, "one_input.written", LINES)?;
            Ok(Some(Written { written, lines }))
        }
        (Some(figure), None) => {
            let written = within(figure, "written", LINES)?;
            let smallest = table.lines.get_ref().first();
            match smallest {
                Some(&(mib, lines)) if mib == sizes[0] && lines > 0.0 => {
                    Ok(Some(Written { written, lines }))
                }
                _ => wrong(
                    figure.span(),
                    "written",
                    "is per line read at the smallest size: give the lines read there, or one_input",
                ),
            }
        }
    }
}
