//! A herd as a page that a browser shows live: its nodes, processes and virtual machines, the latest
//! decisions with their reasons, and how to stop it.
//!
//! The page has no script: HTML itself reloads it every few seconds. Its style sheet is [`STYLE`], which the server
//! serves under [`STYLE_PATH`]. [`POLICY`] forbids everything else. Names and reasons can come from anyone: all of them
//! are text, escaped where they are written and cut if they are too long ([`Escaped`]).

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};
use numaherd_topology::NodeId;

use crate::guards;
use crate::losses;
use crate::markup::{Escaped, name, table};
use crate::metrics::View;
use crate::run::{Decision, DecisionOutcome, Node, Process, RunModel, Subject, sum};
use crate::words::{
    at, count, counted, listed, misses, nanoseconds, nanoseconds_of, percent, sentence, short,
    stopped, time,
};

/// The style sheet.
pub const STYLE: &str = include_str!("page/style.css");

/// The path of the style sheet, relative to the page.
pub const STYLE_PATH: &str = "style.css";

/// What the page lets a browser fetch, run or embed: only its style sheet, from its own origin.
pub const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; \
                          form-action 'none'; frame-ancestors 'none'";

/// How often the page is loaded again, in seconds.
const REFRESH_S: u64 = 5;

/// Most processes that are shown.
const MOST_PROCESSES: usize = 100;

/// Most decisions that are shown.
const MOST_DECISIONS: usize = 20;

/// Most notices that are shown.
const MOST_NOTICES: usize = 10;

/// The page. `silent` is how long no line has come, if that is known.
pub fn page(view: View<'_>, silent: Option<Duration>) -> String {
    let run = view.run;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("numaherd ", env!("CARGO_PKG_VERSION")));
                meta http-equiv="refresh" content=(REFRESH_S);
                title { (Escaped(&title(run))) }
                link rel="stylesheet" href=(STYLE_PATH);
            }
            body {
                h1 { (Escaped(&title(run))) }
                (state(run, silent))
                (key_figures(run))
                (stopping(run))
                (nodes(run))
                (processes(run))
                (decisions(run))
                (notices(run))
                (refusals(run))
                p.soft {
                    "Loaded again every " (REFRESH_S) " s. Drawn from the ledger's lines alone by numaherd "
                    (env!("CARGO_PKG_VERSION")) "; a figure that was not measured is not shown. Times are \
                    the machine's own, from when it began to be watched. The same as "
                    a href="status" { "JSON" } " and for " a href="metrics" { "Prometheus" } "."
                }
            }
        }
    };
    page.into_string()
}

fn title(run: &RunModel) -> String {
    match &run.machine {
        Some(machine) => format!("Numaherd: {} on {}", name(&run.policy), name(&machine.name)),
        None => "Numaherd".to_owned(),
    }
}

/// What it does, in a sentence, and what is wrong.
fn state(run: &RunModel, silent: Option<Duration>) -> Markup {
    let does = match run {
        RunModel { machine: None, .. } => "It has not begun yet.",
        RunModel { ended: Some(_), .. } => "It has ended, and holds no thread.",
        RunModel { paused: true, .. } => "It is paused: it observes and decides nothing.",
        RunModel { dry_run: true, .. } => "It is a dry run: decisions are not carried out.",
        _ => "It is herding.",
    };
    html! {
        p { b { (does) } " Last seen at " (at(run.time_ns)) "." }
        @if let Some(losses) = &run.losses { p { (losses::sentence(losses)) } }
        @if let Some(silent) = run.overdue(silent) {
            p.warn {
                "The loop has been silent for " (time(nanoseconds(silent)))
                ": it hangs or gets no CPU time. " code { "numaherd ctl status" } " and the system log say more."
            }
        }
        @if run.machine.is_some() && !run.is_complete && run.ended.is_none() {
            p.warn { "The present state is incomplete until the next snapshot." }
        }
        @if run.more.lines_lost > 0 {
            p.warn {
                (counted(run.more.lines_lost, "line")) " of the ledger were dropped before they were read, \
                so that the loop never waits: sums do not include them."
            }
        }
        @for gap in &run.gaps {
            p.warn { "Not observed in this interval: " (Escaped(&stopped(gap))) }
        }
    }
}

fn key_figures(run: &RunModel) -> Markup {
    let now = &run.now;
    let totals = &run.totals;
    let mut figures = vec![
        (count(now.threads), "threads seen"),
        (short(now.cpus_used), "CPUs in use"),
    ];
    let mut shown = |figure: Option<String>, of| figures.extend(figure.map(|figure| (figure, of)));
    shown(now.local_access_ratio.map(percent), "of lines local");
    shown(now.miss_rate.map(misses), "misses per 1000 instructions");
    let imbalance = now.controller_imbalance.map(percent);
    shown(imbalance, "controller imbalance");
    shown(Some(count(totals.thread_moves)), "thread moves");
    shown(Some(count(totals.undone)), "undone");
    shown(Some(count(totals.pages_moved)), "pages moved");
    let late = Some(&run.lateness).filter(|late| late.intervals > 0);
    let latest = late.map(|late| time(nanoseconds_of(late.most_s)));
    shown(latest, "latest interval");
    html! {
        ul.key {
            @for (figure, of) in figures {
                li { b { (figure) } " " span { (of) } }
            }
        }
    }
}

fn stopping(run: &RunModel) -> Markup {
    html! {
        h2 { "How to stop it" }
        ul {
            @if run.paused {
                li { code { "numaherd ctl resume" } ": decisions continue." }
            } @else {
                li { code { "numaherd ctl pause" } ": decisions stop; threads keep their affinities." }
            }
            li { code { "numaherd ctl pause --give-back" } ": threads also get their own affinities back." }
            li { code { "systemctl stop numaherd" } ", or Ctrl-C where it was started: it ends and restores every affinity." }
            li { "After a " code { "kill -9" } ": " code { "numaherd release" } " restores every affinity." }
        }
    }
}

fn nodes(run: &RunModel) -> Markup {
    html! {
        h2 { "Nodes" }
        (table(&[
            "node", "CPUs in use", "#threads", "memory in use", "#free", "#local",
            "#lines fetched a second", "#lines served a second", "controller",
        ], &html! {
            @for node in &run.nodes { (node_row(node)) }
        }))
    }
}

fn node_row(node: &Node) -> Markup {
    let memory = node.memory_bytes.zip(node.free_bytes);
    let rate = |lines: Option<f64>| lines.map(crate::words::many).unwrap_or_default();
    html! {
        tr {
            th scope="row" { (node.id) }
            td { @if node.cpus > 0 {
                meter min="0" max=(node.cpus) value=(format!("{:.2}", node.cpus_used)) {}
                " " (short(node.cpus_used)) " of " (node.cpus)
            } @else { "no CPUs" } }
            td.n { (count(node.threads)) }
            td { @if let Some((all, free)) = memory {
                meter min="0" max=(all) value=(all.saturating_sub(free)) {}
                " " (mib(all.saturating_sub(free))) " of " (mib(all))
            } }
            td.n { @if let Some((_, free)) = memory { (mib(free)) } }
            td.n { @if let Some(share) = node.local_access_ratio { (percent(share)) } }
            td.n { (rate(node.fetched_per_s)) }
            td.n { (rate(node.served_per_s)) }
            td { @if let Some(load) = node.controller_load {
                meter min="0" max="1" value=(format!("{:.3}", load.clamp(0.0, 1.0))) {}
                " " (percent(load))
            } }
        }
    }
}

fn processes(run: &RunModel) -> Markup {
    let mut shown = run.busiest();
    let left_out = shown.len().saturating_sub(MOST_PROCESSES);
    shown.truncate(MOST_PROCESSES);
    html! {
        h2 { "Processes and virtual machines" }
        (table(&[
            "process", "group", "class", "#home", "threads on", "pages on", "#CPUs", "#misses",
            "#local", "#moves", "last decision",
        ], &html! {
            @for process in shown { (process_row(process)) }
        }))
        @if left_out > 0 {
            p.soft { "And " (count(left_out)) " that use less CPU." }
        }
    }
}

fn process_row(process: &Process) -> Markup {
    let on = |(node, number): &(NodeId, u64)| format!("{number} on {node}");
    let threads = listed(process.threads_on.iter().map(on));
    html! {
        tr {
            th scope="row" {
                @match &process.guest {
                    Some(guest) => { bdi { "vm " (name(&guest.name)) } }
                    None => { bdi { (name(&process.name)) } }
                }
                " " small { (process.id.pid) }
            }
            td { @if let Some(group) = &process.group { bdi { (name(group)) } } }
            td { @if let Some(class) = process.class { (class) } }
            td.n { @if let Some(home) = process.home { (home) } }
            td { (threads)
                @if process.hands_off > 0 { " " small { "(" (process.hands_off) " left alone)" } }
            }
            td { @if let Some(pages) = &process.pages_on { (shares(pages)) } }
            td.n { (short(process.cpus_used)) }
            td.n { @if let Some(rate) = process.miss_rate { (misses(rate)) } }
            td.n { @if let Some(share) = process.local_access_ratio { (percent(share)) } }
            td.n { (count(process.thread_moves)) }
            td { @if let Some(last) = &process.last { (at(last.time_ns)) ": " (decided(last)) } }
        }
    }
}

/// `75 % on 0 and 25 % on 2`.
fn shares(pages: &[(NodeId, u64)]) -> String {
    let all = sum(pages.iter().map(|&(_, n)| n));
    let there = pages.iter().filter(|&&(_, n)| n > 0);
    listed(there.map(|&(node, n)| format!("{} on {node}", percent(n as f64 / all as f64))))
}

/// `chase 101 moved from CPU 0 (node 0) to CPU 4 (node 2)`.
fn decided(decision: &Decision) -> Markup {
    let place = |cpu, node: Option<NodeId>| match node {
        Some(node) => format!("CPU {cpu} (node {node})"),
        None => format!("CPU {cpu}"),
    };
    let Subject::Thread {
        from,
        from_node,
        to,
        to_node,
    } = decision.subject
    else {
        return Markup::default();
    };
    let to = match to {
        Some(cpu) => place(cpu, to_node),
        None => "the kernel's choice".to_owned(),
    };
    let outcome = match decision.outcome {
        DecisionOutcome::Moved => "moved",
        DecisionOutcome::Undone => "put back",
        DecisionOutcome::Stolen => "given to an idle node",
        DecisionOutcome::Planned => "would be moved",
        DecisionOutcome::Failed | DecisionOutcome::Refused(_) | DecisionOutcome::Waiting => {
            "could not be moved"
        }
    };
    html! {
        bdi { (name(&decision.thread_name)) } " " (decision.thread.tid) " " (outcome) " from "
        (place(from, from_node)) " to " (to)
    }
}

fn decisions(run: &RunModel) -> Markup {
    html! {
        h2 { "Latest decisions" }
        @if run.decisions.is_empty() {
            p { "None yet." }
        } @else {
            (table(&["at", "what", "process", "why"], &html! {
                @for decision in run.decisions.iter().rev().take(MOST_DECISIONS) {
                    tr {
                        td.t { (at(decision.time_ns)) }
                        td { (decided(decision)) }
                        td { bdi { (name(&decision.process_name)) } " " small { @if let Some(process) = decision.process { (process.pid) } } }
                        td {
                            @if !decision.rule.is_empty() { b { (Escaped(&decision.rule)) } " " }
                            (Escaped(&sentence(&stopped(decision.reason()))))
                            @if !decision.instead_of.is_empty() {
                                br; small { "Instead of: " (Escaped(&stopped(&decision.instead_of))) }
                            }
                        }
                    }
                }
            }))
        }
    }
}

fn notices(run: &RunModel) -> Markup {
    html! {
        @if !run.notices.is_empty() {
            h2 { "Notices" }
            ul {
                @for notice in run.notices.iter().rev().take(MOST_NOTICES) {
                    li { (at(notice.time_ns)) ": " (Escaped(&sentence(&stopped(&notice.text)))) }
                }
            }
        }
    }
}

fn refusals(run: &RunModel) -> Markup {
    html! {
        @if !run.totals.refusals.is_empty() {
            h2 { "Refused" }
            (table(&["guard", "#times", "what it means"], &html! {
                @for (&guard, &times) in &run.totals.refusals {
                    tr {
                        th scope="row" { (guard) }
                        td.n { (count(times)) }
                        td { (Escaped(&sentence(&stopped(guards::meaning(guard))))) }
                    }
                }
            }))
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", count(bytes >> 20))
}
