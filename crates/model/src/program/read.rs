//! Reading program profiles: TOML to checked [`Program`]s, with errors that name file, line, key.
//!
//! The reader keeps the place of every figure in the text, so that an error names the line even where only the meaning
//! is wrong (a negative figure, a curve that rises).

use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use numaherd_files::{Document, FileError, shortened};
use serde::Deserialize;
use toml::Spanned;

use super::{Curve, Hot, Phase, Program};

mod sweep;

use sweep::{ReferenceTable, References, SweepTable};

/// Limits beyond which a figure is taken for a mistake.
const MOST_PROGRAMS: usize = 4096;
/// Phases of a program, each counted as often as it is run through.
const MOST_PHASES: usize = 65_536;
/// Phases of all programs of a file, counted likewise: otherwise 4 MiB of text could ask for tens of GiB.
const MOST_PHASES_OF_ALL: usize = 1 << 20;
const MOST_POINTS: usize = 1024;
const MOST_THREADS: u32 = 1 << 20;
const LONGEST_NAME: usize = 64;
/// 10^18: ten years of a fast core.
const MOST_INSTRUCTIONS: f64 = 1e18;
const MOST_CYCLES: f64 = 1e4;
/// Ten lines per instruction, as a gather may fetch.
const MOST_LINES: f64 = 1e4;
const LINES: RangeInclusive<f64> = 0.0..=MOST_LINES;
const IN_FLIGHT: RangeInclusive<f64> = 1.0..=1e4;
const SHARE: RangeInclusive<f64> = 0.0..=1.0;
/// 1 PiB.
const MOST_MIB: f64 = (1_u64 << 30) as f64;
/// A day.
const LONGEST_SLEEP_MS: f64 = 86_400_000.0;

const MIB: f64 = (1 << 20) as f64;

type Figure = Spanned<f64>;
/// Pairs of MiB and lines per 1000 instructions.
type Points = Spanned<Vec<(f64, f64)>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    source: Spanned<String>,
    #[serde(default, rename = "reference")]
    references: Vec<ReferenceTable>,
    #[serde(default, rename = "program")]
    programs: Vec<Spanned<ProgramTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramTable {
    name: Spanned<String>,
    about: String,
    source: Option<String>,
    threads: Option<Spanned<u32>>,
    footprint_mib: Figure,
    hot_pages: Option<Figure>,
    hot_accesses: Option<Figure>,
    shared_accesses: Option<Figure>,
    shared_written: Option<Figure>,
    numa_penalty: Option<Figure>,
    request_instructions: Option<Figure>,
    #[serde(default)]
    repeat: bool,
    times: Option<Spanned<u32>>,
    #[serde(default, rename = "phase")]
    phases: Vec<PhaseTable>,
    sweep: Option<Spanned<SweepTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PhaseTable {
    instructions: Figure,
    cycles_per_instruction: Figure,
    cache_accesses: Figure,
    lines: Points,
    demand: Option<Points>,
    misses_in_flight: Figure,
    written_per_line: Option<Figure>,
    busy: Option<Figure>,
    sleep_ms: Option<Figure>,
}

/// A mistake, and where it is in the text.
#[derive(Debug)]
struct Wrong {
    at: Range<usize>,
    key: String,
    why: String,
}

fn wrong<T>(at: Range<usize>, key: &str, why: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong {
        at,
        key: key.to_owned(),
        why: why.into(),
    })
}

/// The programs of a file, in its order.
pub(super) fn programs(document: Document<'_>) -> Result<Vec<Program>, FileError> {
    checked(document.parse()?).map_err(|wrong| document.wrong(wrong.at, &wrong.key, wrong.why))
}

fn checked(file: FileTable) -> Result<Vec<Program>, Wrong> {
    if file.source.get_ref().trim().is_empty() {
        let why = "give the source of the figures, even if it is \"my own choice\"";
        return wrong(file.source.span(), "source", why);
    }
    if let Some(beyond) = file.programs.get(MOST_PROGRAMS) {
        let why = format!("more than {MOST_PROGRAMS} programs in one file; split it");
        return wrong(beyond.span(), "program", why);
    }
    let references = References::checked(&file.references)?;
    let mut seen = BTreeSet::new();
    let mut programs = Vec::with_capacity(file.programs.len());
    let mut phases = 0;
    for table in file.programs {
        let at = table.span();
        let table = table.into_inner();
        let name_at = table.name.span();
        let program = program(table, at, file.source.get_ref(), &references)?;
        if !seen.insert(program.name.clone()) {
            let why = format!("a second program {:?} in this file", program.name);
            return wrong(name_at, "name", why);
        }
        phases += program.phases.len();
        if phases > MOST_PHASES_OF_ALL {
            let why = format!(
                "more than {MOST_PHASES_OF_ALL} phases in one file, counted as often as they are run \
                 through; split it"
            );
            return wrong(name_at, "program", why);
        }
        programs.push(program);
    }
    Ok(programs)
}

fn program(
    table: ProgramTable,
    at: Range<usize>,
    source: &str,
    references: &References,
) -> Result<Program, Wrong> {
    let name = name(&table.name)?;
    program_named(&name, table, at, source, references).map_err(|wrong| Wrong {
        key: format!("{name}: {}", wrong.key),
        ..wrong
    })
}

fn name(name: &Spanned<String>) -> Result<String, Wrong> {
    let text = name.get_ref();
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "._+-".contains(letter);
    if text.is_empty() || text.len() > LONGEST_NAME || !text.chars().all(fits) {
        let why = format!(
            "{:?} is no name: 1 to {LONGEST_NAME} letters, digits, dots, hyphens, underscores, plus signs",
            shortened(text)
        );
        return wrong(name.span(), "name", why);
    }
    Ok(text.clone())
}

fn program_named(
    name: &str,
    table: ProgramTable,
    at: Range<usize>,
    source: &str,
    references: &References,
) -> Result<Program, Wrong> {
    let footprint_bytes = above(&table.footprint_mib, "footprint_mib", MOST_MIB)? * MIB;
    if footprint_bytes < 4096.0 {
        let why = "less than a page of 4 KiB";
        return wrong(table.footprint_mib.span(), "footprint_mib", why);
    }
    let threads = match &table.threads {
        None => 1,
        Some(threads) if (1..=MOST_THREADS).contains(threads.get_ref()) => *threads.get_ref(),
        Some(threads) => {
            let why = format!("{} is not within 1 to {MOST_THREADS}", threads.get_ref());
            return wrong(threads.span(), "threads", why);
        }
    };
    let once = phases(&table, at, references, footprint_bytes)?;
    let phases = vec![&once[..]; times(&table, once.len())?].concat();
    let requests = table.request_instructions.as_ref();
    let requests = requests.map(|figure| above(figure, "request_instructions", MOST_INSTRUCTIONS));
    let shared = given(&table.shared_accesses, "shared_accesses", SHARE)?;
    let written = given(&table.shared_written, "shared_written", LINES)?;
    Ok(Program {
        name: name.to_owned(),
        source: table.source.unwrap_or_else(|| source.to_owned()),
        about: table.about,
        threads,
        footprint_bytes: footprint_bytes as u64,
        hot: hot(table.hot_pages.as_ref(), table.hot_accesses.as_ref())?,
        shared_accesses: shared.unwrap_or(0.0),
        shared_written: written.unwrap_or(0.0),
        numa_penalty: given(&table.numa_penalty, "numa_penalty", 0.5..=100.0)?,
        request_instructions: requests.transpose()?,
        repeat: table.repeat,
        phases,
    })
}

fn phases(
    table: &ProgramTable,
    at: Range<usize>,
    references: &References,
    footprint_bytes: f64,
) -> Result<Vec<Phase>, Wrong> {
    match &table.sweep {
        Some(sweep) if !table.phases.is_empty() => {
            let why = "give either this or phases, not both";
            wrong(sweep.span(), "sweep", why)
        }
        Some(sweep) => {
            let phase = sweep::phase(sweep.get_ref(), references, footprint_bytes)?;
            Ok(vec![phase])
        }
        None if table.phases.is_empty() => {
            let why = "the program has no phases: add [[program.phase]] or [program.sweep]";
            wrong(at, "phase", why)
        }
        None if table.phases.len() > MOST_PHASES => {
            wrong(at, "phase", format!("more than {MOST_PHASES} phases"))
        }
        None => table
            .phases
            .iter()
            .map(|table| phase(table, footprint_bytes))
            .collect(),
    }
}

/// How often the phases are run through.
fn times(table: &ProgramTable, phases: usize) -> Result<usize, Wrong> {
    let Some(given) = &table.times else {
        return Ok(1);
    };
    if table.repeat {
        let why = "give either this or repeat, which never ends, not both";
        return wrong(given.span(), "times", why);
    }
    let most = MOST_PHASES / phases;
    match *given.get_ref() as usize {
        times if (1..=most).contains(&times) => Ok(times),
        times => {
            let why = format!("{times} is not within 1 to {most}, for {phases} phases");
            wrong(given.span(), "times", why)
        }
    }
}

fn hot(pages: Option<&Figure>, accesses: Option<&Figure>) -> Result<Option<Hot>, Wrong> {
    match (pages, accesses) {
        (None, None) => Ok(None),
        (Some(one), None) => wrong(one.span(), "hot_pages", "give hot_accesses with it"),
        (None, Some(one)) => wrong(one.span(), "hot_accesses", "give hot_pages with it"),
        (Some(pages_given), Some(accesses_given)) => {
            let pages = above(pages_given, "hot_pages", 1.0)?;
            let accesses = within(accesses_given, "hot_accesses", SHARE)?;
            if accesses < pages {
                let why = format!("{accesses} of the accesses to {pages} of the pages is not hot");
                return wrong(accesses_given.span(), "hot_accesses", why);
            }
            Ok(Some(Hot { pages, accesses }))
        }
    }
}

fn phase(table: &PhaseTable, footprint_bytes: f64) -> Result<Phase, Wrong> {
    let accesses = within(&table.cache_accesses, "cache_accesses", LINES)?;
    let curve = |points, key| curve(points, key, accesses, footprint_bytes);
    let lines = curve(&table.lines, "lines")?;
    let demand = table.demand.as_ref().map(|points| curve(points, "demand"));
    let busy = table.busy.as_ref().map(|figure| above(figure, "busy", 1.0));
    let busy = busy.unwrap_or(Ok(1.0))?;
    let written = given(&table.written_per_line, "written_per_line", LINES)?;
    let sleep_ms = match (&table.sleep_ms, &table.busy) {
        (None, Some(figure)) if busy < 1.0 => {
            let why = "busy below 1 requires sleep_ms";
            return wrong(figure.span(), "busy", why);
        }
        (Some(figure), _) if busy == 1.0 => {
            let why = "sleep_ms requires busy below 1";
            return wrong(figure.span(), "sleep_ms", why);
        }
        (Some(figure), _) => above(figure, "sleep_ms", LONGEST_SLEEP_MS)?,
        (None, _) => 0.0,
    };
    let cycles = &table.cycles_per_instruction;
    Ok(Phase {
        demand: demand.transpose()?,
        misses_in_flight: within(&table.misses_in_flight, "misses_in_flight", IN_FLIGHT)?,
        written_per_line: written.unwrap_or(0.0),
        busy,
        sleep_ns: sleep_ms * 1e6,
        ..Phase::new(
            above(&table.instructions, "instructions", MOST_INSTRUCTIONS)?,
            above(cycles, "cycles_per_instruction", MOST_CYCLES)?,
            lines,
        )
    })
}

fn curve(points: &Points, key: &str, accesses: f64, footprint_bytes: f64) -> Result<Curve, Wrong> {
    let given = points.get_ref();
    if given.len() > MOST_POINTS {
        let why = format!("more than {MOST_POINTS} points");
        return wrong(points.span(), key, why);
    }
    for &(mib, lines) in given {
        if !(mib > 0.0 && mib <= MOST_MIB) {
            return wrong(points.span(), key, not_a_size(mib));
        }
        if !LINES.contains(&lines) {
            return wrong(points.span(), key, not_lines(lines));
        }
    }
    curve_of_mib(given, points.span(), key, accesses, footprint_bytes)
}

/// A curve through pairs of MiB and lines; `at` is their place in the text.
fn curve_of_mib(
    points: &[(f64, f64)],
    at: Range<usize>,
    key: &str,
    accesses: f64,
    footprint_bytes: f64,
) -> Result<Curve, Wrong> {
    let bytes: Vec<(f64, f64)> = points.iter().map(|&(mib, n)| (mib * MIB, n)).collect();
    Curve::new(accesses, &bytes, footprint_bytes).or_else(|error| wrong(at, key, error.why))
}

/// A figure above 0 and at most `most`.
fn above(figure: &Figure, key: &str, most: f64) -> Result<f64, Wrong> {
    let value = *figure.get_ref();
    if value > 0.0 && value <= most {
        return Ok(value);
    }
    let (value, most) = (plain(value), plain(most));
    let why = format!("{value} is not above 0 and at most {most}");
    wrong(figure.span(), key, why)
}

/// A figure in a range.
fn within(figure: &Figure, key: &str, range: RangeInclusive<f64>) -> Result<f64, Wrong> {
    let value = *figure.get_ref();
    if range.contains(&value) {
        return Ok(value);
    }
    let [value, least, most] = [value, *range.start(), *range.end()].map(plain);
    let why = format!("{value} is not within {least} to {most}");
    wrong(figure.span(), key, why)
}

/// The same, where it is given.
fn given(
    figure: &Option<Figure>,
    key: &str,
    range: RangeInclusive<f64>,
) -> Result<Option<f64>, Wrong> {
    let figure = figure.as_ref();
    figure.map(|figure| within(figure, key, range)).transpose()
}

fn not_a_size(mib: f64) -> String {
    let (mib, most) = (plain(mib), plain(MOST_MIB));
    format!("{mib} MiB of cache is not above 0 and at most {most}")
}

fn not_lines(lines: f64) -> String {
    format!("{} lines are not within 0 to {MOST_LINES}", plain(lines))
}

/// A number as people write it: without hundreds of digits.
fn plain(value: f64) -> String {
    let size = value.abs();
    if size.is_finite() && size != 0.0 && !(1e-4..1e7).contains(&size) {
        format!("{value:e}")
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests;
