//! One run: what it was, its results, and its charts and tables.

use std::cmp::Reverse;

use itertools::Itertools as _;
use maud::{Markup, html};

use super::tables;
use super::trial::trial;
use super::{Escaped, name, process_name};
use crate::losses;
use crate::report::Run;
use crate::report::draw::{Chart, Drawn, Strip, brief, colour, matrix, placements};
use crate::report::history::{Event, Figure, Seen, whole_imbalance};
use crate::run::sum;
use crate::summary::ending;
use crate::words::{count, counted, date, misses, percent, short, stopped, time};

/// Most sharing matrices: of the processes that shared most.
const MOST_MATRICES: usize = 4;

/// Most processes whose local access ratio is drawn: those that used most CPU time.
const MOST_PROCESSES: usize = 12;

/// A run's part of the page.
pub(super) fn one(number: usize, run: &Run, is_only: bool) -> Markup {
    html! {
        section id={ "run-" (number) } {
            @if is_only {
                h2.first { "The run" }
            } @else {
                h2 { "Run " (number) ": " bdi { (name(super::policy(run))) } }
            }
            (what(run))
            (told(run))
            (trial(number, run))
            (key(run))
            @match &run.charts.seen {
                Some(seen) => (charts(number, run, seen)),
                None => p { "The ledger ends before the first snapshot." },
            }
            (tables::processes(run))
            (tables::machines(run))
            (tables::rules(run))
            (tables::moves(run))
            (tables::refusals(run))
            (tables::said(run))
            (tables::signals(run))
            (tables::settings(run))
        }
    }
}

/// What it was: policy, machine, when.
fn what(run: &Run) -> Markup {
    let Some(start) = run.model.start() else {
        return html! { p { "Ledger " b { (Escaped(&run.name)) } " of " (Escaped(&run.source.program)) "." } };
    };
    let machine = &start.topology;
    let about = crate::explain::about(&start.policy);
    html! {
        p {
            "Ledger " b { (Escaped(&run.name)) } " of " (Escaped(&run.source.program))
            @if let Some(begun) = run.source.begun_unix_ms { ", begun " (date(begun)) }
            ". Policy " b { bdi { (name(&start.policy)) } } " on " b { bdi { (name(machine.name())) } } ": "
            (counted(machine.nodes().len(), "node")) ", "
            (counted(machine.domains().len(), "memory domain")) ", "
            (counted(machine.online_cpus().len(), "CPU")) ". Seed " (start.seed) ". "
            @if start.settings.dry_run { b { "Dry run: nothing was carried out. " } }
            @match run.model.end() {
                Some(end) => { "It went on until " (Escaped(&ending(&end.ending))) },
                None => "The ledger does not say how it ended: it is still running, was killed, or the end is lost.",
            }
        }
        @if let Some(about) = about {
            p.soft { (Escaped(&stopped(&about.what))) " From: " (Escaped(&about.source)) "." }
        }
    }
}

/// What is wrong with the ledger.
fn told(run: &Run) -> Markup {
    html! {
        @if let Some(damage) = &run.source.damage {
            p.warn role="note" { b { "Damaged ledger. " } "The page shows what comes before the damage. " (Escaped(&stopped(damage))) }
        }
        @if run.source.later_part {
            p.warn role="note" {
                "This file begins in the middle of the run: the part before it is in the file of the same name \
                 with .1 at its end, unless that was written over. Totals are of the whole run where the end is \
                 in the file; charts, and what is counted by process, are of this part."
            }
        }
        @if run.source.unknown_records > 0 {
            p.warn role="note" {
                (counted(run.source.unknown_records, "record"))
                " of kinds that this program does not know were skipped."
            }
        }
    }
}

/// The figures that matter most.
fn key(run: &Run) -> Markup {
    let totals = &run.model.totals;
    let seen = run.charts.seen.as_ref();
    let is_dry = run.is_dry();
    let (threads, pages) = if is_dry {
        (totals.planned_thread_moves, totals.planned_pages)
    } else {
        (totals.thread_moves, totals.pages_moved)
    };
    let would = if is_dry { " (would have)" } else { "" };
    let refused = sum(totals.refusals.values().copied());
    let known = |figure: Option<String>, of: &str| Some((figure?, of.to_owned()));
    let counted = |figure: u64, of: String| Some((count(figure), of));
    let speed = seen.and_then(|seen| seen.all.speed());
    let penalty = seen.and_then(|seen| seen.all.counted.uncore_penalty());
    let (imbalance, lost) = (whole_imbalance(&run.model), losses::mean(&totals.lost));
    let figures = [
        known(seen.map(|seen| time(seen.clock.span_ns)), "drawn"),
        known(
            run.local_access_ratio().map(percent),
            "of counted lines local",
        ),
        known(run.miss_rate().map(misses), "lines per 1000 instructions"),
        known(speed.map(brief), "instructions per CPU second"),
        known(
            imbalance.map(|of| format!("{of:.0} %")),
            "controller imbalance",
        ),
        known(
            penalty.map(|of| format!("{of:.1}")),
            "cycles per uncore request",
        ),
        known(
            lost.map(short),
            "cores lost to caches and memory, on average",
        ),
        counted(threads, format!("threads moved{would}")),
        counted(pages, format!("pages moved{would}")),
        counted(totals.undone, "moves undone".to_owned()),
        counted(refused, "decisions refused".to_owned()),
    ];
    html! {
        ul.key {
            @for (figure, of) in figures.into_iter().flatten() {
                li { b { (figure) } span { (of) } }
            }
        }
    }
}

fn charts(number: usize, run: &Run, seen: &Seen) -> Markup {
    let id = |name: &str| format!("run-{number}-{name}");
    let column = time(seen.clock.width_ns());
    html! {
        p.soft {
            "A column of the charts over time is " (column) "; lines are means, the band around a line is from \
             least to greatest."
        }
        (placements(&id("placements"), run, seen))
        @for chart in over_time(run, seen, &column) {
            (chart.draw(&id(chart.name), &seen.clock))
        }
        (matrices(number, run))
    }
}

/// The charts over time, in the order shown.
fn over_time(run: &Run, seen: &Seen, column: &str) -> Vec<Chart> {
    let cpus = "CPUs that threads kept busy on each node.";
    let imbalance = "Standard deviation of the lines served over all controllers, in percent of their mean: 0 \
                     when all serve the same.";
    let fetched =
        "Cache lines per second that the cores of each node fetched, from whichever memory.";
    let nodes = |name, title, about: &str, figure: fn(usize) -> Figure| {
        line(name, title, about, by_node(seen, figure))
    };
    let mut charts = vec![
        lost(run, seen),
        nodes("cpus", "CPU use by node", cpus, Figure::CpusOf),
        local(run, seen),
        local_by_process(run),
    ];
    charts.extend(served(run).map(|about| {
        nodes(
            "controllers",
            "Controller balance",
            &about,
            Figure::ServedOf,
        )
        .per("/s")
    }));
    let one = strip(seen, "", "c4", Figure::Imbalance);
    charts.extend([
        line("imbalance", "Controller imbalance", imbalance, [one]).per(" %"),
        nodes(
            "fetched",
            "Lines fetched by node",
            fetched,
            Figure::FetchedOf,
        )
        .per("/s"),
        missed(run, seen),
        penalty(seen),
        moves(run, seen, column),
        pages(run, seen),
    ]);
    charts
}

/// A chart of lines whose figures have no unit; empty strips are left out.
fn line(
    name: &'static str,
    title: &'static str,
    about: &str,
    strips: impl IntoIterator<Item = Strip>,
) -> Chart {
    let strips = strips.into_iter().filter(|strip| !strip.is_empty());
    Chart {
        name,
        title,
        about: about.to_owned(),
        unit: "",
        drawn: Drawn::Line,
        top: None,
        strips: strips.collect(),
    }
}

fn strip(seen: &Seen, label: &str, class: &str, figure: Figure) -> Strip {
    let unit = match figure {
        Figure::Imbalance => " %",
        _ => "",
    };
    Strip::spread(label, class, seen.figure(figure), 1.0, unit)
}

/// A strip for each node.
fn by_node(seen: &Seen, figure: fn(usize) -> Figure) -> impl Iterator<Item = Strip> {
    let nodes = seen.nodes.iter().enumerate();
    nodes.map(move |(place, node)| {
        strip(seen, &format!("node {node}"), &colour(place), figure(place))
    })
}

fn lost(run: &Run, seen: &Seen) -> Chart {
    let about = losses::on_average(&run.model.totals).join(" ");
    let losses = [
        ("lost", "c4", Figure::Lost),
        ("lost at most", "c4", Figure::LostAtMost),
        ("recoverable", "c2", Figure::Recoverable),
    ];
    let strips = losses.map(|(label, class, figure)| strip(seen, label, class, figure));
    line("lost", "Lost cores", &about, strips)
}

fn local(run: &Run, seen: &Seen) -> Chart {
    let about = "Share of the lines fetched from memory that came from the core's own node.";
    let about = match run.local_access_ratio() {
        Some(whole) => format!("{about} Over the whole run: {}.", percent(whole)),
        None => about.to_owned(),
    };
    let strip = Strip::spread("", "c1", seen.figure(Figure::Local), 100.0, " %");
    line("local", "Local access ratio", &about, [strip]).of_shares()
}

fn missed(run: &Run, seen: &Seen) -> Chart {
    let about = "Cache lines fetched from memory per 1000 instructions, all threads.";
    let about = match run.miss_rate() {
        Some(whole) => format!("{about} {} over the whole run.", misses(whole)),
        None => about.to_owned(),
    };
    let strip = strip(seen, "", "c3", Figure::Misses);
    line("misses", "Miss rate", &about, [strip])
}

fn penalty(seen: &Seen) -> Chart {
    let about = "Cycles with at least one request to the uncore outstanding, per request (BRM, section 3.1), of \
                 the threads on each node.";
    let all = strip(seen, "all", "c6", Figure::Penalty);
    let strips = std::iter::once(all).chain(by_node(seen, Figure::PenaltyOf));
    line("penalty", "Uncore penalty", about, strips)
}

fn local_by_process(run: &Run) -> Chart {
    let processes = run.busiest_processes();
    // For a single process, this would be the chart of all threads.
    let most = match processes.len() {
        0 | 1 => 0,
        _ => MOST_PROCESSES,
    };
    let strips = processes.into_iter().take(most).map(|(id, track)| {
        let label = process_name(run, id);
        Strip::spread(&label, "c1", track.local.iter(), 100.0, " %")
    });
    let title = "Local access ratio by process";
    let about = "The processes that used most CPU time.";
    line("local-processes", title, about, strips).of_shares()
}

/// The description of the chart of lines served; `None` if no line is known to be local or remote.
fn served(run: &Run) -> Option<String> {
    let traffic = run.model.traffic.as_ref()?;
    let all = traffic.assigned + traffic.unassigned;
    if all <= 0.0 {
        return None;
    }
    let mut about = "Cache lines per second that each node's memory controller served.".to_owned();
    if traffic.estimated > 0.0 {
        about += &format!(
            " An estimate: counters do not say which other node a remote line came from, and {} of the \
             lines were assigned by where the pages of their process were.",
            percent(traffic.estimated / all)
        );
    }
    if traffic.unassigned > 0.0 {
        about += &format!(
            " It is unknown which node served {} of the lines.",
            percent(traffic.unassigned / all)
        );
    }
    Some(about)
}

fn moves(run: &Run, seen: &Seen, column: &str) -> Chart {
    let moved = if run.is_dry() { "would move" } else { "moved" };
    let events = [
        (moved, "c1", Event::Moved),
        ("undone", "c4", Event::Undone),
        ("refused", "c6", Event::Refused),
    ];
    let strips = events.map(|(label, class, event)| {
        let total = count(seen.total(event));
        Strip::amount(label, class, seen.events(event), 1.0, total)
    });
    let about = format!(
        "Threads that had to leave their CPU by order, moves undone because they had made things worse, \
         and decisions of the policy (for threads and pages) that the governor refused, in each {column}."
    );
    Chart {
        drawn: Drawn::Bars,
        ..line("acts", "Thread moves", &about, strips)
    }
}

fn pages(run: &Run, seen: &Seen) -> Chart {
    let mib = run.model.page_bytes() as f64 / f64::from(1 << 20);
    let per_s = mib / (seen.clock.width_ns() as f64 / 1e9);
    let moved = seen.total(Event::PagesMoved);
    let whole = format!("{} MiB", brief(moved as f64 * mib));
    let strip = Strip::amount("", "c2", seen.events(Event::PagesMoved), per_s, whole);
    let pages = counted(moved, "page");
    let about = format!("{pages} moved, as read back, in MiB per second.");
    Chart {
        drawn: Drawn::Bars,
        ..line("pages", "Page traffic", &about, [strip]).per(" MiB/s")
    }
}

fn matrices(number: usize, run: &Run) -> Markup {
    let processes = run.charts.processes.iter();
    let sharing = processes
        .filter(|(_, track)| !track.sharing.is_empty())
        .map(|(&id, track)| (sum(track.sharing.values().copied()), id, &track.sharing))
        .sorted_by_key(|&(amount, ..)| Reverse(amount));
    let left_out = sharing.len().saturating_sub(MOST_MATRICES);
    html! {
        @for (at, (_, id, pairs)) in sharing.take(MOST_MATRICES).enumerate() {
            (matrix(&format!("run-{number}-sharing-{at}"), run, &process_name(run, id), pairs))
        }
        @if left_out > 0 {
            p.soft { "Sharing was recorded of " (counted(left_out, "process")) " more, which shared less." }
        }
    }
}
