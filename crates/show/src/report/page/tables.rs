//! The tables of a run.

use std::cmp::Reverse;

use itertools::Itertools as _;
use maud::{Markup, html};
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::{Agent, MemoryKind, ProcessId, Residency, SignalState};

use super::{Escaped, name, process_name, row_name, table};
use crate::guards::meaning;
use crate::reading::Homes;
use crate::report::Run;
use crate::report::draw::brief;
use crate::report::tracks::{LAST, ProcessTrack};
use crate::run::{Decision, DecisionOutcome, RuleSums, Subject, Work};
use crate::summary::failures;
use crate::words::{at, count, counted, misses, or_dash, percent, sentence, short, stopped};

/// Most processes that are listed: those that used most CPU time.
const MOST_PROCESSES: usize = 100;

/// Each process before and after.
pub(super) fn processes(run: &Run) -> Markup {
    let processes = run.busiest_processes();
    if processes.is_empty() {
        return Markup::default();
    }
    let left_out = processes.len().saturating_sub(MOST_PROCESSES);
    html! {
        h3 { "Processes" }
        p.soft {
            "Before, and since the first of a process's threads or pages was moved; then its last "
            (LAST) " intervals at most. This is what followed, not necessarily what was caused: \
             other threads moved too, and programs have phases. Speed is instructions per second of CPU time."
            @if left_out > 0 { " The " (MOST_PROCESSES) " that used most CPU time; " (left_out) " more are not shown." }
        }
        div.wide { table {
            thead { tr {
                th { "process" } th.n { "threads" } th.n { "CPU time" } th.n { "moves" } th.n { "pages moved" }
                th { } th.n { "intervals" } th.n { "speed" } th.n { "change" } th.n { "local" } th.n { "miss rate" }
                th.n { "uncore penalty" } th { "pages by node" }
            } }
            @for (id, track) in processes.into_iter().take(MOST_PROCESSES) {
                tbody { (process(run, id, track)) }
            }
        } }
    }
}

fn process(run: &Run, id: ProcessId, track: &ProcessTrack) -> Markup {
    let homes = |of: fn(&Homes) -> &Residency| match &track.homes {
        Some(homes) => pages(of(homes)),
        None => "not read".to_owned(),
    };
    let (end, end_intervals) = track.at_the_end();
    let before = &track.before.0;
    let sides = if track.is_moved() {
        vec![
            ("before", before, track.before.1, homes(|of| &of.first)),
            ("after", &track.after.0, track.after.1, String::new()),
            ("at the end", &end, end_intervals, homes(|of| &of.last)),
        ]
    } else {
        vec![("not moved", before, track.before.1, homes(|of| &of.last))]
    };
    let rows = sides.len();
    html! {
        @for (place, (side, work, intervals, homes)) in sides.into_iter().enumerate() {
            tr {
                @if place == 0 {
                    th scope="rowgroup" rowspan=(rows) { bdi { (process_name(run, id)) } }
                    td.n rowspan=(rows) { (track.threads) }
                    td.n rowspan=(rows) { (short(track.all.cpu_seconds)) " s" }
                    td.n rowspan=(rows) { (count(track.thread_moves)) }
                    td.n rowspan=(rows) { (count(track.pages_moved)) }
                }
                td.t { (side) }
                td.n { (intervals) }
                td.n { (or_dash(work.speed().map(brief))) }
                td.n { @if place > 0 { (or_dash(change(before, work))) } }
                td.n { (or_dash(work.counted.local_access_ratio().map(percent))) }
                td.n { (or_dash(work.counted.miss_rate().map(misses))) }
                td.n { (or_dash(work.counted.uncore_penalty().map(|of| format!("{of:.1}")))) }
                td { (homes) }
            }
        }
    }
}

/// How the speed changed.
fn change(before: &Work, after: &Work) -> Option<String> {
    let change = (after.speed()? / before.speed()? - 1.0) * 100.0;
    change.is_finite().then(|| format!("{change:+.1} %"))
}

/// Pages by node, most first; at most four nodes.
fn pages(residency: &Residency) -> String {
    let nodes = residency.pages.iter();
    let nodes = nodes.sorted_by_key(|&&(node, pages)| (Reverse(pages), node));
    let total = residency.total();
    let share = |&(node, pages): &(NodeId, u64)| {
        format!("{node}: {}", percent(pages as f64 / total as f64))
    };
    let shown = nodes.filter(|(_, pages)| *pages > 0).take(4);
    let each = shown.map(share).join(", ");
    let more = if residency.pages.len() > 4 {
        ", …"
    } else {
        ""
    };
    let kinds = [
        (MemoryKind::Shared, "shared"),
        (MemoryKind::File, "of files"),
    ];
    let kinds = kinds.into_iter().filter_map(|(kind, what)| {
        let pages = residency.of_kind(kind)?.total();
        (pages > 0).then(|| format!("{} {what}", count(pages)))
    });
    let total = count(total);
    match (each.as_str(), kinds.collect_vec().as_slice()) {
        ("", _) => "none".to_owned(),
        (each, []) => format!("{each}{more} of {total}"),
        (each, kinds) => format!("{each}{more} of {total} ({})", kinds.join(", ")),
    }
}

/// Each virtual machine.
pub(super) fn machines(run: &Run) -> Markup {
    let processes = run.charts.processes.iter();
    let machines = processes.filter_map(|(&id, track)| Some((id, track, track.machine.as_ref()?)));
    let mut machines = machines.take(MOST_PROCESSES).peekable();
    if machines.peek().is_none() {
        return Markup::default();
    }
    html! {
        h3 { "Virtual machines" }
        (table(&["machine", "#process", "#vCPUs", "#memory", "home", "found by", "agent"], &html! {
            @for (id, track, machine) in machines {
                tr {
                    th scope="row" { bdi { (name(&machine.name)) } }
                    td.n { (id.pid) }
                    td.n { (machine.vcpus.len()) }
                    td.n { (or_dash(machine.memory_bytes.map(|b| format!("{} MiB", count(b >> 20))))) }
                    td { (or_dash(track.home().map(|node| format!("node {node}")))) }
                    td { (Escaped(&machine.source)) }
                    td {
                        @match machine.agent {
                            Agent::Silent => "none",
                            Agent::Telling => "reports which vCPUs run node-sensitive threads",
                            Agent::Distrusted => "cut off: its reports were impossible or late",
                        }
                    }
                }
            }
        }))
    }
}

/// What each rule wanted, and the outcome.
pub(super) fn rules(run: &Run) -> Markup {
    let (threads, pages) = (&run.model.more.rules, &run.model.more.page_rules);
    let row = |rule: &str, what: &str, tally: &RuleSums| {
        let cited = crate::explain::cited(rule);
        html! {
            tr {
                th scope="row" { bdi { (name(rule)) } }
                td { (what) }
                td.n { (count(tally.wanted)) }
                td.n { (count(tally.refused)) }
                td.n { @if what == "threads" { (count(tally.moved)) } @else { "–" } }
                td { (Escaped(&tally.why)) }
                td { @match cited.source { Some(source) => (source), None => "–" } }
            }
        }
    };
    html! {
        @if !(threads.is_empty() && pages.is_empty()) {
            h3 { "Decisions by rule" }
            (table(&["rule", "of", "#wanted", "#refused", "#moved", "why, the first time", "from"], &html! {
                @for (rule, tally) in threads { (row(rule, "threads", tally)) }
                @for (rule, tally) in pages { (row(rule, "pages", tally)) }
            }))
        }
    }
}

/// Moves of threads one by one.
pub(super) fn moves(run: &Run) -> Markup {
    let moves = &run.charts.moves;
    if moves.first.is_empty() {
        return Markup::default();
    }
    html! {
        h3 { "Thread moves" }
        (table(&["#at", "thread", "process", "what", "from", "to", "why"], &html! {
            @for one in &moves.first { (moved(run, one)) }
            @if moves.left_out > 0 {
                tr { td colspan="7" { "… " (counted(moves.left_out, "more move")) " in between …" } }
            }
            @for one in &moves.last { (moved(run, one)) }
        }))
    }
}

fn moved(run: &Run, one: &Decision) -> Markup {
    let (thread, process) = match run.charts.threads.get(&one.thread) {
        Some(track) => (
            row_name(run, one.thread, track),
            process_name(run, track.process),
        ),
        None => (one.thread.tid.to_string(), String::new()),
    };
    html! {
        tr {
            td.n { (at(one.time_ns)) }
            td { bdi { (thread) } }
            td { bdi { (process) } }
            td.t {
                @match one.outcome {
                    DecisionOutcome::Moved => "moved",
                    DecisionOutcome::Undone => "undone",
                    DecisionOutcome::Stolen => "given to an idle node",
                    DecisionOutcome::Planned => "would move",
                    DecisionOutcome::Failed => "failed",
                    DecisionOutcome::Refused(_) | DecisionOutcome::Waiting => "",
                }
            }
            @if let Subject::Thread { from, to, .. } = one.subject {
                td.t { (place(run, from)) }
                td.t { @match to { Some(to) => (place(run, to)), None => "the kernel" } }
            }
            td {
                @if !one.rule.is_empty() { b { (Escaped(&one.rule)) } " " }
                (Escaped(&stopped(one.reason())))
                @if !one.instead_of.is_empty() { br; small { "Instead of: " (Escaped(&stopped(&one.instead_of))) } }
            }
        }
    }
}

fn place(run: &Run, cpu: CpuId) -> String {
    match run.model.node_of(cpu) {
        Some(node) => format!("CPU {cpu}, node {node}"),
        None => format!("CPU {cpu}"),
    }
}

/// What was refused, and what could not be moved.
pub(super) fn refusals(run: &Run) -> Markup {
    let refusals = run.model.totals.refusals.iter();
    let refusals = refusals.sorted_by_key(|&(&guard, &times)| (Reverse(times), guard));
    let errors = &run.charts.page_errors;
    let failed = &run.model.totals.pages_failed;
    html! {
        @if refusals.len() > 0 {
            h3 { "Refused by the governor" }
            (table(&["guard", "#times", "what it means", "why, the first time"], &html! {
                @for (guard, times) in refusals {
                    tr {
                        th.t scope="row" { (guard) }
                        td.n { (count(*times)) }
                        td { (sentence(&stopped(meaning(*guard)))) }
                        td {
                            @if let Some(why) = run.model.more.first_refusals.get(guard) { (Escaped(&stopped(why))) }
                            @else { "in a part of the ledger that is not here" }
                        }
                    }
                }
            }))
        }
        @if !failed.is_empty() || !errors.said.is_empty() {
            h3 { "Pages that were not moved" }
            @if !failed.is_empty() { p { (sentence(&failures(failed))) "." } }
            (sentences(errors, "time"))
        }
    }
}

/// Notices and gaps.
pub(super) fn said(run: &Run) -> Markup {
    html! {
        @if !run.charts.notices.said.is_empty() {
            h3 { "Notices" }
            (sentences(&run.charts.notices, "time"))
        }
        @if !run.charts.gaps.said.is_empty() {
            h3 { "Gaps: what could not be observed at times" }
            (sentences(&run.charts.gaps, "interval"))
        }
    }
}

fn sentences(sentences: &crate::report::history::Sentences, of: &str) -> Markup {
    html! {
        ul {
            @for (text, first_ns, times) in &sentences.said {
                li {
                    (Escaped(&stopped(text))) " "
                    span.soft { "(" (counted(*times, of)) ", first at " (at(*first_ns)) ")" }
                }
            }
            @if sentences.left_out > 0 { li { "… and " (counted(sentences.left_out, "more sentence")) } }
        }
    }
}

/// What could be measured.
pub(super) fn signals(run: &Run) -> Markup {
    let Some(start) = run.model.start() else {
        return Markup::default();
    };
    html! {
        h3 { "Signals" }
        (table(&["signal", "measured", "by what, or why not"], &html! {
            @for report in start.signals.iter().take(64) {
                tr {
                    th.t scope="row" { (report.signal) }
                    @match &report.state {
                        SignalState::Measured { source, caveat } => {
                            td { "yes" }
                            td {
                                (Escaped(source))
                                @if let Some(caveat) = caveat { "; " (Escaped(caveat)) }
                            }
                        },
                        SignalState::Missing { reason, remedy } => {
                            td { "no" }
                            td { (Escaped(&sentence(&stopped(reason)))) " Remedy: " (Escaped(&stopped(remedy))) }
                        },
                    }
                }
            }
        }))
    }
}

/// The settings, as used.
pub(super) fn settings(run: &Run) -> Markup {
    let Some(start) = run.model.start() else {
        return Markup::default();
    };
    html! {
        h3 { "Settings" }
        (table(&["setting", "value"], &html! {
            @for (key, value) in listed(&start.settings) {
                tr { th scope="row" { (key) } td { (Escaped(&value)) } }
            }
            tr { th scope="row" { "pages in a thread of their own" } td { (if start.pager { "yes" } else { "no" }) } }
        }))
    }
}

/// Settings by their names in the configuration file; settings that are not set are left out.
fn listed(settings: &numaherd_herd::Settings) -> Vec<(String, String)> {
    let mut listed = Vec::new();
    let value = serde_json::to_value(settings).unwrap_or_default();
    flatten("", &value, &mut listed);
    listed
}

fn flatten(key: &str, value: &serde_json::Value, listed: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, value) in members {
                let key = match key {
                    "" => name.clone(),
                    key => format!("{key}.{name}"),
                };
                flatten(&key, value, listed);
            }
        }
        serde_json::Value::String(text) => listed.push((key.to_owned(), text.clone())),
        other => listed.push((key.to_owned(), other.to_string())),
    }
}
