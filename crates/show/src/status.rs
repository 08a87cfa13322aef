//! The present state of a herd as text, for a terminal: `ctl status`.

use std::time::Duration;

use crate::losses;
use crate::run::{Node, RunModel, Subject, sum};
use crate::words::{
    at, count, counted, listed, nanoseconds_of, paragraph, percent, sentence, short, stopped, time,
};

/// Most processes that are shown.
const MOST_PROCESSES: usize = 15;

/// Most decisions that are shown.
const MOST_DECISIONS: usize = 5;

/// Most notices that are shown.
const MOST_NOTICES: usize = 3;

/// The state of a herd and its machine, in some lines. `silent` is how long no line has come, if that is known. Control
/// characters in names are replaced.
pub fn text(run: &RunModel, silent: Option<Duration>) -> String {
    let Some(machine) = &run.machine else {
        return "The herd has not begun yet.\n".to_owned();
    };
    let does = match run {
        RunModel { ended: Some(_), .. } => "has ended",
        RunModel { paused: true, .. } => "is paused: it observes and decides nothing",
        RunModel { dry_run: true, .. } => "decides and carries nothing out (dry run)",
        _ => "is herding",
    };
    let mut lines = vec![format!(
        "{} on {} ({}, {}) {does}.",
        run.policy,
        machine.name,
        counted(machine.nodes, "node"),
        counted(machine.cpus, "CPU"),
    )];
    lines.push(seen(run, silent));
    let totals = &run.totals;
    lines.push(format!(
        "Since the start: {}, of which {} undone and {} given to idle nodes; {} moved; {}.",
        counted(totals.thread_moves, "thread move"),
        count(totals.undone),
        count(totals.stolen),
        counted(totals.pages_moved, "page"),
        counted(sum(totals.refusals.values().copied()), "refusal"),
    ));
    if run.lateness.intervals > 0 {
        let late = &run.lateness;
        lines.push(format!(
            "Intervals were late by {} on average and {} at most.",
            time(nanoseconds_of(late.sum_s / late.intervals as f64)),
            time(nanoseconds_of(late.most_s)),
        ));
    }
    lines.extend(run.losses.as_ref().map(losses::sentence));
    lines.push(String::new());
    lines.extend(run.nodes.iter().map(node));
    processes(run, &mut lines);
    if !run.decisions.is_empty() {
        lines.push(String::new());
        lines.push("Latest decisions:".to_owned());
    }
    for decision in run.decisions.iter().rev().take(MOST_DECISIONS) {
        let rule = match decision.rule.as_str() {
            "" => String::new(),
            rule => format!("{rule}: "),
        };
        let Subject::Thread { from, to, .. } = decision.subject else {
            continue;
        };
        let to = match to {
            Some(cpu) => format!("CPU {cpu}"),
            None => "the kernel's choice".to_owned(),
        };
        lines.push(format!(
            "  {:>9}  {} {} from CPU {from} to {to}: {rule}{}",
            at(decision.time_ns),
            decision.thread_name,
            decision.thread.tid,
            stopped(decision.reason()),
        ));
    }
    for notice in run.notices.iter().rev().take(MOST_NOTICES) {
        let told = sentence(&stopped(&notice.text));
        lines.push(format!("Note ({}): {told}", at(notice.time_ns)));
    }
    let wrapped = |line: &String| match line.starts_with(' ') {
        true => shown(line) + "\n",
        false => paragraph(shown(line)),
    };
    let mut text: String = lines.iter().map(wrapped).collect();
    if run.more.lines_lost > 0 {
        text += &format!(
            "{} of the ledger were dropped before they were read; sums do not include them.\n",
            counted(run.more.lines_lost, "line")
        );
    }
    text
}

fn seen(run: &RunModel, silent: Option<Duration>) -> String {
    let now = &run.now;
    let mut parts = vec![format!(
        "Last seen at {}: {} of {}, {} left alone; {} CPUs in use",
        at(run.time_ns),
        counted(now.threads, "thread"),
        counted(run.processes.len(), "process"),
        count(now.hands_off),
        short(now.cpus_used),
    )];
    parts.extend(local(now.local_access_ratio));
    let imbalance = now.controller_imbalance;
    parts.extend(imbalance.map(|share| format!("controller imbalance {}", percent(share))));
    let late = run.overdue(silent);
    parts.extend(late.map(|late| format!("the loop has been silent for {} s", late.as_secs())));
    format!("{}.", parts.join("; "))
}

fn local(share: Option<f64>) -> Option<String> {
    share.map(|share| format!("{} local", percent(share)))
}

fn node(node: &Node) -> String {
    let (used, cpus) = (short(node.cpus_used), counted(node.cpus, "CPU"));
    let mut parts = vec![
        format!("{used} of {cpus} in use"),
        counted(node.threads, "thread"),
    ];
    if let (Some(all), Some(free)) = (node.memory_bytes, node.free_bytes) {
        let (free, all) = (count(free >> 20), count(all >> 20));
        parts.push(format!("{free} of {all} MiB free"));
    }
    parts.extend(local(node.local_access_ratio));
    let load = node.controller_load;
    parts.extend(load.map(|load| format!("controller {}", percent(load))));
    format!("node {}: {}", node.id, parts.join(", "))
}

fn processes(run: &RunModel, lines: &mut Vec<String>) {
    let busiest = run.busiest();
    if !busiest.is_empty() {
        lines.push(String::new());
    }
    for process in busiest.iter().take(MOST_PROCESSES) {
        let name = match &process.guest {
            Some(guest) => format!("vm {}", guest.name),
            None => process.name.clone(),
        };
        let mut parts = vec![format!("{} CPUs", short(process.cpus_used))];
        parts.extend(process.class.map(|class| class.to_string()));
        if !process.threads_on.is_empty() {
            let on = process.threads_on.iter();
            let on = on.map(|(node, number)| format!("{number} on node {node}"));
            parts.push(format!("threads {}", listed(on)));
        }
        parts.extend(process.home.map(|home| format!("home node {home}")));
        parts.extend(local(process.local_access_ratio));
        if process.thread_moves > 0 {
            parts.push(counted(process.thread_moves, "move"));
        }
        parts.extend(process.group.as_ref().map(|group| format!("group {group}")));
        lines.push(format!("{name} {}: {}", process.id.pid, parts.join(", ")));
    }
    if let Some(more) = busiest.len().checked_sub(MOST_PROCESSES).filter(|&n| n > 0) {
        lines.push(format!(
            "and {} that use less CPU",
            counted(more, "process")
        ));
    }
}

/// A line without characters that could control a terminal.
fn shown(line: &str) -> String {
    line.chars().map(crate::markup::seen).collect()
}
