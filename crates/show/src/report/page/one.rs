//! One run: what it was, what it came to, and its charts and tables.

use maud::{Markup, html};
use numaherd_herd::Guard;

use super::tables;
use super::{Escaped, name, process_name};
use crate::report::Run;
use crate::report::draw::{Drawn, Strip, Strips, brief, colour, matrix, placements, strips};
use crate::report::history::NodeTrack;
use crate::report::history::{Seen, total, whole_imbalance};
use crate::run::sum;
use crate::summary::ending;
use crate::words::{count, counted, date, misses, percent, stopped, time};

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
            (counted(machine.nodes().len() as u64, "node")) ", "
            (counted(machine.domains().len() as u64, "memory domain")) ", "
            (counted(machine.online_cpus().len() as u64, "CPU")) ". Seed " (start.seed) ". "
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
    let figure = |shown: String, what: &str| html! { li { b { (shown) } span { (what) } } };
    let maybe = |shown: Option<String>, what: &str| match shown {
        Some(shown) => figure(shown, what),
        None => Markup::default(),
    };
    let is_dry = run.is_dry();
    let (threads, pages) = if is_dry {
        (totals.planned_thread_moves, totals.planned_pages)
    } else {
        (totals.thread_moves, totals.pages_moved)
    };
    let would = if is_dry { " (would have)" } else { "" };
    html! {
        ul.key {
            (maybe(seen.map(|seen| time(seen.clock.span_ns)), "drawn"))
            (maybe(run.local_access_ratio().map(percent), "of counted lines local"))
            (maybe(run.miss_rate().map(misses), "lines per 1000 instructions"))
            (maybe(seen.and_then(|s| s.all.speed()).map(brief), "instructions per CPU second"))
            (maybe(
                whole_imbalance(&run.model).map(|of| format!("{of:.0} %")),
                "controller imbalance",
            ))
            (maybe(
                seen.and_then(|s| s.all.uncore_penalty()).map(|of| format!("{of:.1}")),
                "cycles per uncore request",
            ))
            (figure(count(threads), &format!("threads moved{would}")))
            (figure(count(pages), &format!("pages moved{would}")))
            (figure(count(totals.undone), "moves undone"))
            (figure(count(sum(totals.refusals.values().copied())), "decisions refused"))
        }
    }
}

/// What is said of a chart, and what it draws.
struct Chart<'t> {
    name: &'t str,
    title: &'t str,
    about: String,
    unit: &'t str,
    drawn: Drawn,
    top: Option<f64>,
    strips: Vec<Strip>,
}

fn charts(number: usize, run: &Run, seen: &Seen) -> Markup {
    let id = |name: &str| format!("run-{number}-{name}");
    let drawn = |chart: Chart<'_>| {
        strips(&Strips {
            id: id(chart.name),
            title: chart.title,
            about: chart.about,
            unit: chart.unit,
            drawn: chart.drawn,
            top: chart.top,
            clock: &seen.clock,
            strips: chart.strips,
        })
    };
    let column = time(seen.clock.width_ns());
    html! {
        p.soft {
            "A column of the charts over time is " (column) "; lines are means, the band around a line is from \
             least to greatest."
        }
        (placements(&id("placements"), run, seen))
        (drawn(cpus(seen)))
        (drawn(local(run, seen)))
        (drawn(local_by_process(run)))
        @if let Some(chart) = controllers(run, seen) { (drawn(chart)) }
        (drawn(imbalance(seen)))
        (drawn(fetched(seen)))
        (drawn(misses_over_time(run, seen)))
        (drawn(penalty(seen)))
        (drawn(acts(run, seen, &column)))
        (drawn(pages(run, seen)))
        (matrices(number, run))
    }
}

/// A strip of each node.
fn by_node(
    seen: &Seen,
    of: impl Fn(&NodeTrack) -> &crate::report::columns::Columns<crate::report::columns::Spread>,
) -> Vec<Strip> {
    let nodes = seen.nodes.iter().enumerate();
    let strips = nodes.map(|(place, node)| {
        Strip::spread(
            format!("node {}", node.id),
            colour(place),
            of(node),
            1.0,
            "",
        )
    });
    strips.filter(|strip| !strip.is_empty()).collect()
}

fn cpus(seen: &Seen) -> Chart<'static> {
    Chart {
        name: "cpus",
        title: "CPU use by node",
        about: "CPUs that threads kept busy on each node.".to_owned(),
        unit: "",
        drawn: Drawn::Line,
        top: None,
        strips: by_node(seen, |node| &node.cpus),
    }
}

fn local(run: &Run, seen: &Seen) -> Chart<'static> {
    let whole = run.local_access_ratio();
    let whole = whole.map_or_else(String::new, |local| {
        format!(" Of the whole run {} were.", percent(local))
    });
    Chart {
        name: "local",
        title: "Local access ratio",
        about: format!(
            "Share of the lines fetched from memory that came from the core's own node.{whole}"
        ),
        unit: " %",
        drawn: Drawn::Line,
        top: Some(100.0),
        strips: vec![Strip::spread(
            String::new(),
            "c1".to_owned(),
            &seen.local,
            100.0,
            " %",
        )],
    }
}

fn local_by_process(run: &Run) -> Chart<'static> {
    let mut processes: Vec<_> = run.charts.processes.iter().collect();
    processes.sort_by(|one, other| other.1.all.cpu_seconds.total_cmp(&one.1.all.cpu_seconds));
    // Of a single process it is the chart above.
    let most = if processes.len() > 1 {
        MOST_PROCESSES
    } else {
        0
    };
    let strips = processes.into_iter().take(most).map(|(&id, track)| {
        let label = process_name(run, id);
        Strip::spread(label, "c1".to_owned(), &track.local, 100.0, " %")
    });
    Chart {
        name: "local-processes",
        title: "Local access ratio by process",
        about: "The processes that used most CPU time.".to_owned(),
        unit: " %",
        drawn: Drawn::Line,
        top: Some(100.0),
        strips: strips.filter(|strip| !strip.is_empty()).collect(),
    }
}

/// `None` where it is not known of any line whether it was local.
fn controllers(run: &Run, seen: &Seen) -> Option<Chart<'static>> {
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
    Some(Chart {
        name: "controllers",
        title: "Controller balance",
        about,
        unit: "/s",
        drawn: Drawn::Line,
        top: None,
        strips: by_node(seen, |node| &node.served),
    })
}

fn imbalance(seen: &Seen) -> Chart<'static> {
    Chart {
        name: "imbalance",
        title: "Controller imbalance",
        about: "Standard deviation of the lines served over all controllers, in percent of their mean: 0 when \
                all serve the same."
            .to_owned(),
        unit: " %",
        drawn: Drawn::Line,
        top: None,
        strips: vec![Strip::spread(
            String::new(),
            "c4".to_owned(),
            &seen.imbalance,
            1.0,
            " %",
        )],
    }
}

fn fetched(seen: &Seen) -> Chart<'static> {
    Chart {
        name: "fetched",
        title: "Lines fetched by node",
        about: "Cache lines per second that the cores of each node fetched, from whichever memory."
            .to_owned(),
        unit: "/s",
        drawn: Drawn::Line,
        top: None,
        strips: by_node(seen, |node| &node.fetched),
    }
}

fn misses_over_time(run: &Run, seen: &Seen) -> Chart<'static> {
    let whole = run.miss_rate();
    let whole = whole.map_or_else(String::new, |rate| {
        format!(" {} over the whole run.", misses(rate))
    });
    Chart {
        name: "misses",
        title: "Miss rate",
        about: format!(
            "Cache lines fetched from memory per 1000 instructions, all threads.{whole}"
        ),
        unit: "",
        drawn: Drawn::Line,
        top: None,
        strips: vec![Strip::spread(
            String::new(),
            "c3".to_owned(),
            &seen.misses,
            1.0,
            "",
        )],
    }
}

fn penalty(seen: &Seen) -> Chart<'static> {
    let whole = Strip::spread("all".to_owned(), "c6".to_owned(), &seen.penalty, 1.0, "");
    let mut strips = by_node(seen, |node| &node.penalty);
    if !whole.is_empty() {
        strips.insert(0, whole);
    }
    Chart {
        name: "penalty",
        title: "Uncore penalty",
        about: "Cycles with at least one request to the uncore outstanding, per request (BRM, section 3.1), of \
                the threads on each node."
            .to_owned(),
        unit: "",
        drawn: Drawn::Line,
        top: None,
        strips,
    }
}

fn acts(run: &Run, seen: &Seen, column: &str) -> Chart<'static> {
    let is_dry = run.is_dry();
    let strip = |label: &str, class: &str, columns| {
        let whole = count(total(columns));
        Strip::amount(label.to_owned(), class.to_owned(), columns, 1.0, whole)
    };
    let moved = if is_dry { "would move" } else { "moved" };
    let strips = vec![
        strip(moved, "c1", &seen.moves),
        strip("undone", "c4", &seen.undone),
        strip("refused", "c6", &seen.refused),
    ];
    Chart {
        name: "acts",
        title: "Thread moves",
        about: format!(
            "Threads that had to leave their CPU by order, moves undone because they had made things worse, \
             and decisions of the policy (for threads and pages) that the governor refused, in each {column}."
        ),
        unit: "",
        drawn: Drawn::Bars,
        top: None,
        strips: strips
            .into_iter()
            .filter(|strip| !strip.is_empty())
            .collect(),
    }
}

fn pages(run: &Run, seen: &Seen) -> Chart<'static> {
    let mib = run.model.page_bytes() as f64 / f64::from(1 << 20);
    let seconds = seen.clock.width_ns() as f64 / 1e9;
    let moved = total(&seen.pages);
    let whole = format!("{} MiB", brief(moved as f64 * mib));
    Chart {
        name: "pages",
        title: "Page traffic",
        about: format!(
            "{} moved, as read back, in MiB per second.",
            counted(moved, "page")
        ),
        unit: " MiB/s",
        drawn: Drawn::Bars,
        top: None,
        strips: vec![Strip::amount(
            String::new(),
            "c2".to_owned(),
            &seen.pages,
            mib / seconds,
            whole,
        )],
    }
}

fn matrices(number: usize, run: &Run) -> Markup {
    let mut sharing: Vec<_> = run
        .charts
        .processes
        .iter()
        .filter(|(_, track)| !track.sharing.is_empty())
        .map(|(&id, track)| (sum(track.sharing.values().copied()), id, &track.sharing))
        .collect();
    sharing.sort_by_key(|&(amount, ..)| std::cmp::Reverse(amount));
    let left_out = sharing.len().saturating_sub(MOST_MATRICES);
    html! {
        @for (at, (_, id, pairs)) in sharing.into_iter().take(MOST_MATRICES).enumerate() {
            (matrix(&format!("run-{number}-sharing-{at}"), run, &process_name(run, id), pairs))
        }
        @if left_out > 0 {
            p.soft { "Sharing was recorded of " (counted(left_out as u64, "process")) " more, which shared less." }
        }
    }
}

/// What a refusal by a guard means, and how often there was one.
pub(super) fn refusals_by_count(run: &Run) -> Vec<(Guard, u64)> {
    let mut refusals: Vec<(Guard, u64)> = run
        .model
        .totals
        .refusals
        .iter()
        .map(|(&guard, &times)| (guard, times))
        .collect();
    refusals.sort_by_key(|&(guard, times)| (std::cmp::Reverse(times), guard));
    refusals
}
