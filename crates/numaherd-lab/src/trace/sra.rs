//! `numaherd trace sra`: which pages should follow a thread that was moved.

use std::fmt::Write as _;

use anyhow::Result;
use numaherd_experiment::chart::Series;
use numaherd_experiment::chart::lines::{Panel, lines};
use numaherd_experiment::table::Table;
use numaherd_hardware::Config;
use numaherd_quantity::{bytes, count, counted};
use numaherd_topology::Machine;
use numaherd_trace::sra::{Caches, Options, Sra, Strategy, sra as run};

use super::opened;

use crate::cli::TraceSra;
use numaherd::exit::{Exit, OrExit};
use numaherd::print;

/// Runs the trace and prints what was saved.
///
/// # Errors
/// The trace cannot be read, the machine has no caches that can be modelled, or a file cannot be
/// written.
pub fn sra(options: &TraceSra) -> Result<()> {
    let trace = opened(&options.file)?;
    let found = run(&trace, &tried(options)?)?;
    let title = options
        .file
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    for (path, text) in [
        (&options.csv, csv as fn(&Sra, &str) -> Result<String>),
        (&options.svg, svg),
    ] {
        if let Some(path) = path {
            print::file(path, &text(&found, &title)?)?;
        }
    }
    print::shown(options.json, &found, || shown(&found))
}

/// The options that are tried: the user's, and the paper's for the rest.
fn tried(options: &TraceSra) -> Result<Options> {
    let usual = Options::default();
    let caches = match &options.machine {
        None => usual.caches,
        Some(name) => {
            let machine = Machine::find(name).or_exit(Exit::Usage)?;
            let config = Config::of(&machine).or_exit(Exit::Usage)?;
            Caches::of(&config)
        }
    };
    Ok(Options {
        strategies: given(&options.strategies, usual.strategies),
        pages: given(&options.pages, usual.pages),
        one_in: given(&options.one_in, usual.one_in),
        caches,
        seed: options.seed,
    })
}

/// The given values, or the usual ones if none are given.
fn given<T: Clone>(given: &[T], usual: Vec<T>) -> Vec<T> {
    match given {
        [] => usual,
        given => given.to_vec(),
    }
}

/// One table for each strategy: K down, N across.
fn shown(found: &Sra) -> String {
    let caches = &found.options.caches;
    let l2 = caches
        .l2
        .map_or_else(String::new, |l2| format!("{}, ", bytes(l2.bytes)));
    let mut text = format!(
        "{} accesses to memory of {} ({}, {l2}{} shared by {}), by {} to {}\n",
        count(found.remote),
        count(found.accesses),
        bytes(caches.l1.bytes),
        bytes(caches.llc.bytes),
        caches.cores_per_domain,
        counted(found.threads as u64, "thread"),
        counted(found.touched_pages, "page"),
    );
    if let Some(damage) = &found.damage {
        writeln!(text, "{damage}; all figures are of what lies before")
            .expect("a string takes all");
    }
    text.push_str(
        "Saved remote accesses, % (pages moved, % of those touched), by one in N sampled:\n",
    );
    for &strategy in &found.options.strategies {
        text.push_str(&format!(
            "\n{}\n{}\n",
            strategy.name(),
            table(found, strategy)
        ));
    }
    text
}

fn table(found: &Sra, strategy: Strategy) -> String {
    let rates = found.options.one_in.iter().map(|&one_in| match one_in {
        1 => "every".to_owned(),
        one_in => format!("1 in {}", count(one_in)),
    });
    let headings: Vec<String> = std::iter::once("K".to_owned()).chain(rates).collect();
    let mut table = Table::new(0, headings.iter().map(String::as_str));
    for &pages in &found.options.pages {
        let cells = found.options.one_in.iter().map(|&one_in| {
            let cell = found.cell(strategy, pages, one_in);
            let per_cent = cell.and_then(|cell| Some((cell.sra? * 100.0, cell.moved_pages)));
            per_cent.map_or_else(
                || "–".to_owned(),
                |(sra, moved)| {
                    let moved = 100.0 * moved as f64 / found.touched_pages.max(1) as f64;
                    format!("{sra:.1} ({moved:.0})")
                },
            )
        });
        table.row(std::iter::once(count(pages)).chain(cells));
    }
    table.text()
}

/// Saved remote accesses over K, a line for each strategy, a panel for each rate of sampling.
fn svg(found: &Sra, title: &str) -> Result<String> {
    let options = &found.options;
    // K is doubled from one place to the next.
    let places: Vec<String> = options.pages.iter().map(|&pages| short(pages)).collect();
    let panels = options.one_in.iter().map(|&one_in| Panel {
        caption: match one_in {
            1 => "every access sampled".to_owned(),
            one_in => format!("one in {} sampled", count(one_in)),
        },
        series: options
            .strategies
            .iter()
            .map(|&strategy| Series {
                name: strategy.name().to_owned(),
                figures: options
                    .pages
                    .iter()
                    .map(|&pages| Some(found.cell(strategy, pages, one_in)?.sra? * 100.0))
                    .collect(),
            })
            .collect(),
    });
    let title = format!("{title}: remote accesses saved, %, by pages moved at a time (K)");
    Ok(lines(&title, &places, &panels.collect::<Vec<_>>()))
}

/// K in few letters.
fn short(pages: u64) -> String {
    match pages {
        1024.. if pages.is_multiple_of(1024) => format!("{}Ki", pages / 1024),
        _ => pages.to_string(),
    }
}

/// All cells, one a line.
fn csv(found: &Sra, _title: &str) -> Result<String> {
    let mut text = "strategy,pages,one_in,sra,saved,remote,triggers,moved_pages\n".to_owned();
    for cell in &found.cells {
        let sra = cell.sra.map_or_else(String::new, |sra| format!("{sra:.6}"));
        writeln!(
            text,
            "{},{},{},{sra},{},{},{},{}",
            cell.strategy.name(),
            cell.pages,
            cell.one_in,
            cell.saved,
            found.remote,
            cell.triggers,
            cell.moved_pages
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use numaherd_trace::{Encoder, Event, FRAME_EVENTS, ThreadInfo, Trace, Writer};

    use super::*;

    /// Three sweeps over 800 pages, more than the last-level cache holds, the second downwards.
    fn found() -> Sra {
        let mut encoder = Encoder::new();
        let about = serde_json::Map::new();
        let mut writer = Writer::new(Vec::new(), 4096, &about).expect("memory takes all");
        let thread = writer.thread(&ThreadInfo::default());
        let lines = 800 * 64;
        let up = || 0..lines;
        let events: Vec<_> = up()
            .chain(up().rev())
            .chain(up())
            .map(|line| Event::load(0x7f00_0000_0000 + 64 * line, 8, 4))
            .collect();
        for events in events.chunks(FRAME_EVENTS) {
            let frame = encoder.encode(thread, 0, events).expect("it fits");
            writer.append(frame).expect("memory takes all");
        }
        let bytes = writer.finish().expect("memory takes all");
        let trace = Trace::from_bytes(bytes).expect("a trace");
        let options = Options {
            pages: vec![1, 16, 256],
            one_in: vec![1, 100, 10_000],
            ..Options::default()
        };
        run(&trace, &options).expect("it can be read")
    }

    #[test]
    fn what_was_saved_is_a_table_for_each_strategy() {
        insta::assert_snapshot!(shown(&found()));
    }

    #[test]
    fn cells_are_lines_of_csv() {
        let text = csv(&found(), "").expect("a string takes all");
        assert_eq!(text.lines().count(), 1 + 4 * 3 * 3);
        insta::assert_snapshot!(text.lines().take(4).collect::<Vec<_>>().join("\n"));
    }

    #[test]
    fn the_chart_has_a_panel_for_each_rate_and_a_line_for_each_strategy() {
        let found = found();
        let svg = svg(&found, "sweep").expect("it can be drawn");
        let has = |text: &str| svg.contains(&format!(">{text}</text>"));
        for text in [
            "sweep: remote accesses saved, %, by pages moved at a time (K)",
            "every access sampled",
            "one in 100 sampled",
            "one in 10,000 sampled",
            "256",
        ] {
            assert!(has(text), "{text}\n{svg}");
        }
        for strategy in &found.options.strategies {
            assert!(has(strategy.name()), "{strategy:?}");
        }
        for colour in ["#8c8c8c", "#e69f00", "#3a9fd6", "#009e73"] {
            // A line in each of three panels.
            let lines = svg.matches(&format!("stroke=\"{colour}\"")).count();
            assert_eq!(lines, 3, "{colour}");
        }
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn k_is_short() {
        assert_eq!(
            [1, 512, 1024, 16_384, 1500].map(short),
            ["1", "512", "1Ki", "16Ki", "1500"]
        );
    }
}
