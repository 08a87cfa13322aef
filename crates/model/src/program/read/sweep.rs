//! Reading `[[reference]]` and `[program.sweep]`: checked, derived, and made a phase.

use std::ops::Range;

use numaherd_files::shortened;
use serde::Deserialize;
use toml::Spanned;

use super::{
    Figure, MIB, MOST_CYCLES, MOST_IN_FLIGHT, MOST_INSTRUCTIONS, MOST_LINES, MOST_MIB, MOST_POINTS,
    Points, Wrong, above, not_a_size, not_lines, plain, within, wrong,
};
use crate::ModelError;
use crate::program::derive::{self, Reference, Sweep, Written};
use crate::program::{Curve, Phase};

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

/// Figures of one of a program's inputs, of which only the ratio is taken.
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
                return wrong(
                    table.name.span(),
                    "reference: name",
                    "a machine needs a name",
                );
            }
            if references.iter().any(|(there, _)| there == name) {
                let why = format!("a second reference {:?} in this file", shortened(name));
                return wrong(table.name.span(), "reference: name", why);
            }
            if table.source.get_ref().trim().is_empty() {
                let why = "say where the figures are from, if only \"my own choice\"";
                return wrong(table.source.span(), "reference: source", why);
            }
            let clock_ghz = above(&table.clock_ghz, "reference: clock_ghz", 1000.0)?;
            let beyond = &table.memory_beyond_llc_ns;
            let beyond = above(beyond, "reference: memory_beyond_llc_ns", 1e6)?;
            let key = "reference: lines_in_flight";
            let in_flight = within(Some(&table.lines_in_flight), key, 1.0, MOST_IN_FLIGHT)?;
            let width = &table.instructions_per_cycle;
            let width = above(width, "reference: instructions_per_cycle", 1000.0)?;
            let private = &table.private_cache_mib;
            let private = above(private, "reference: private_cache_mib", MOST_MIB)?;
            let reference = Reference {
                clock_ghz,
                memory_beyond_llc_ns: beyond,
                lines_in_flight: in_flight.unwrap_or(1.0),
                instructions_per_cycle: width,
                private_cache_mib: private,
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
        let bytes: Vec<(f64, f64)> = points.iter().map(|&(mib, n)| (mib * MIB, n)).collect();
        Curve::new(points[0].1, &bytes, footprint_bytes).or_else(|error| match error {
            ModelError::Curve { why } => wrong(at, key, why),
            other => wrong(at, key, other.to_string()),
        })
    };
    let demand = match (&derived.demand, &table.demand) {
        (Some(points), Some(given)) => Some(curve(points, given.span(), "demand")?),
        _ => None,
    };
    Ok(Phase {
        instructions,
        cycles_per_instruction: derived.cycles_per_instruction,
        lines: curve(&derived.lines, table.lines.span(), "lines")?,
        demand,
        misses_in_flight: derived.misses_in_flight,
        written_per_line: derived.written_per_line,
        busy: 1.0,
        sleep_ns: 0.0,
        shared_writes: None,
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
    Ok(Sweep {
        lines: lines(&table.lines, &sizes)?,
        demand_without_prefetch: falling(
            &table.demand_without_prefetch,
            "demand_without_prefetch",
            &sizes,
        )?,
        demand: table
            .demand
            .as_ref()
            .map(|figures| falling(figures, "demand", &sizes))
            .transpose()?,
        cycles_without_prefetch_at_largest: within(
            table.cycles_without_prefetch_at_largest.as_ref(),
            "cycles_without_prefetch_at_largest",
            0.0,
            MOST_CYCLES,
        )?,
        l2_misses: within(table.l2_misses.as_ref(), "l2_misses", 0.0, MOST_LINES)?,
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
    if let Some(size) = sizes
        .iter()
        .find(|&&size| !(size > 0.0 && size <= MOST_MIB))
    {
        let why = not_a_size(*size);
        return wrong(given.span(), "cache_mib", why);
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
        let why = format!(
            "{} figures for {} sizes of cache",
            figures.len(),
            sizes.len()
        );
        return wrong(given.span(), key, why);
    }
    match figures
        .iter()
        .find(|figure| !(0.0..=most).contains(*figure))
    {
        Some(figure) => wrong(
            given.span(),
            key,
            format!("{} is not within 0 to {most}", plain(*figure)),
        ),
        None => Ok(figures.clone()),
    }
}

fn falling(given: &Figures, key: &str, sizes: &[f64]) -> Result<Vec<f64>, Wrong> {
    let figures = one_of_each(given, key, sizes, MOST_LINES)?;
    match figures.windows(2).find(|pair| pair[1] > pair[0]) {
        Some(pair) => {
            let why = format!(
                "more cache cannot miss more, but {} follows {}",
                pair[1], pair[0]
            );
            wrong(given.span(), key, why)
        }
        None => Ok(figures),
    }
}

/// The lines of each size, where given; those of the largest must be.
fn lines(given: &Points, sizes: &[f64]) -> Result<Vec<Option<f64>>, Wrong> {
    let refused = |why: String| wrong(given.span(), "lines", why);
    let mut lines = vec![None; sizes.len()];
    let mut before = f64::INFINITY;
    for &(mib, figure) in given.get_ref() {
        let Some(at) = sizes.iter().position(|&size| size == mib) else {
            return refused(format!("{} MiB is none of cache_mib", plain(mib)));
        };
        if !(0.0..=MOST_LINES).contains(&figure) {
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
            let key = "one_input.written";
            let written = within(Some(&one.written), key, 0.0, MOST_LINES)?.unwrap_or(0.0);
            Ok(Some(Written { written, lines }))
        }
        (Some(figure), None) => {
            let written = within(Some(figure), "written", 0.0, MOST_LINES)?.unwrap_or(0.0);
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
