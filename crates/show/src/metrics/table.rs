//! Every metric, in the order in which they are shown.

use numaherd_world::PageFailure;
use serde::Serialize;

use super::{Kind, Metric, Samples, Serving, Value, View};
use crate::guards;
use crate::run::Node;

/// Shorthands, so that a metric is a few lines of the table.
const fn gauge(
    name: &'static str,
    unit: Option<&'static str>,
    labels: &'static [&'static str],
    help: &'static str,
    draw: fn(View<'_>, &mut Samples),
) -> Metric {
    let kind = Kind::Gauge;
    Metric {
        name,
        unit,
        kind,
        labels,
        help,
        draw,
    }
}

const fn counter(
    name: &'static str,
    unit: Option<&'static str>,
    labels: &'static [&'static str],
    help: &'static str,
    draw: fn(View<'_>, &mut Samples),
) -> Metric {
    let kind = Kind::Counter;
    Metric {
        name,
        unit,
        kind,
        labels,
        help,
        draw,
    }
}

/// Every metric.
pub static METRICS: &[Metric] = &[
    Metric {
        name: "build",
        unit: None,
        kind: Kind::Info,
        labels: &["version"],
        help: "The program",
        draw: |_, to| to.whole(&[env!("CARGO_PKG_VERSION")], 1),
    },
    Metric {
        name: "policy",
        unit: None,
        kind: Kind::Info,
        labels: &["policy", "machine"],
        help: "The policy that decides, and the machine as its topology names it",
        draw: |view, to| {
            if let Some(machine) = &view.run.machine {
                to.whole(&[&view.run.policy, &machine.name], 1);
            }
        },
    },
    gauge(
        "paused",
        None,
        &[],
        "Whether the loop was told to decide nothing for now (1) or not (0)",
        |view, to| to.whole(&[], view.run.paused.into()),
    ),
    gauge(
        "dry_run",
        None,
        &[],
        "Whether nothing is carried out (1) or all that is decided (0)",
        |view, to| to.whole(&[], view.run.dry_run.into()),
    ),
    gauge(
        "ended",
        None,
        &[],
        "Whether the herd has ended (1) while it is still shown",
        |view, to| to.whole(&[], view.run.ended.is_some().into()),
    ),
    gauge(
        "state_complete",
        None,
        &[],
        "Whether gauges are of the latest interval (1), or some of what they are drawn from was dropped since (0)",
        |view, to| to.whole(&[], view.run.is_complete.into()),
    ),
    gauge(
        "ledger_ended",
        None,
        &[],
        "Whether the ledger could not be written any more (1) and herding goes on without",
        |view, to| to.whole(&[], view.run.more.ledger_ended.into()),
    ),
    // The loop.
    counter(
        "intervals",
        None,
        &[],
        "Placement intervals seen",
        |view, to| to.whole(&[], view.run.totals.intervals),
    ),
    gauge(
        "interval_cadence",
        Some("seconds"),
        &[],
        "How often threads are to be placed",
        |view, to| to.real(&[], view.run.cadence_ns.map(seconds)),
    ),
    Metric {
        name: "interval_lateness",
        unit: Some("seconds"),
        kind: Kind::Histogram,
        labels: &[],
        help: "By how much intervals were longer than their cadence: the loop's own work, and whatever kept it from running",
        draw: |view, to| to.push(&[], Value::Late(view.run.lateness)),
    },
    counter(
        "ledger_lines",
        None,
        &[],
        "Lines of the ledger that these figures are drawn from",
        |view, to| to.whole(&[], view.run.more.lines),
    ),
    counter(
        "ledger_lines_dropped",
        None,
        &[],
        "Lines of the ledger that were dropped before they were drawn, so as never to hold the loop up; sums lack what was in them",
        |view, to| to.whole(&[], view.run.more.lines_lost),
    ),
    counter(
        "notices",
        None,
        &[],
        "Things that a person should know; the page and `ctl status` show them",
        |view, to| to.whole(&[], view.run.more.notices),
    ),
    counter(
        "control_requests",
        None,
        &["asked", "result"],
        "Requests to pause, resume or change, from whomever, by what came of them: `done` or `refused`",
        |view, to| {
            for (&(asked, done), &number) in &view.run.more.requests {
                let result = if done { "done" } else { "refused" };
                to.whole(&[asked, result], number);
            }
        },
    ),
    // What is seen.
    gauge(
        "threads",
        None,
        &["left_alone"],
        "Threads seen, by whether they must be left alone (`true`) or may be steered (`false`)",
        |view, to| {
            let now = &view.run.now;
            to.whole(&["false"], now.threads.saturating_sub(now.hands_off));
            to.whole(&["true"], now.hands_off);
        },
    ),
    gauge("processes", None, &[], "Processes seen", |view, to| {
        to.whole(&[], view.run.processes.len() as u64);
    }),
    gauge(
        "virtual_machines",
        None,
        &[],
        "Of the processes seen, those that run a virtual machine",
        |view, to| {
            let guests = view
                .run
                .processes
                .iter()
                .filter(|process| process.guest.is_some());
            to.whole(&[], guests.count() as u64);
        },
    ),
    gauge(
        "gaps",
        None,
        &[],
        "Things that could not be seen in the latest interval though they usually can",
        |view, to| to.whole(&[], view.run.gaps.len() as u64),
    ),
    counter(
        "instructions",
        None,
        &[],
        "Instructions of the threads seen, where counted",
        |view, to| to.whole(&[], view.run.totals.instructions),
    ),
    counter(
        "fetched_lines",
        None,
        &[],
        "Cache lines that the threads seen fetched from memory, where counted",
        |view, to| to.whole(&[], view.run.totals.lines),
    ),
    gauge(
        "local_access",
        Some("ratio"),
        &[],
        "Of the lines fetched in the latest interval, the share that came from the core's own node",
        |view, to| to.real(&[], view.run.now.local_access_ratio),
    ),
    gauge(
        "controller_imbalance",
        Some("ratio"),
        &[],
        "Standard deviation of the lines that the memory controllers served in the latest interval, as a share of their mean",
        |view, to| to.real(&[], view.run.now.controller_imbalance),
    ),
    counter(
        "uncore_busy_cycles",
        None,
        &[],
        "Core cycles in which requests to the uncore were outstanding, where counted",
        |view, to| to.whole(&[], view.run.totals.uncore_busy_cycles),
    ),
    counter(
        "uncore_requests",
        None,
        &[],
        "Requests to the uncore, where counted",
        |view, to| to.whole(&[], view.run.totals.uncore_requests),
    ),
    counter(
        "memory_samples",
        None,
        &["remote"],
        "Sampled accesses to memory, by whether they left the core's node (`true` or `false`)",
        |view, to| {
            let more = &view.run.more;
            to.whole(&["false"], more.samples.saturating_sub(more.samples_remote));
            to.whole(&["true"], more.samples_remote);
        },
    ),
    // Nodes.
    gauge(
        "node_cpus",
        None,
        &["node"],
        "CPUs of the node that are online",
        |view, to| nodes(view, to, |node| Some(node.cpus as f64)),
    ),
    gauge(
        "node_threads",
        None,
        &["node"],
        "Threads seen that last ran on the node",
        |view, to| nodes(view, to, |node| Some(node.threads as f64)),
    ),
    counter(
        "node_cpu",
        Some("seconds"),
        &["node"],
        "CPU time of the threads seen on the node",
        |view, to| nodes(view, to, |node| Some(node.sums.cpu_s)),
    ),
    gauge(
        "node_memory_size",
        Some("bytes"),
        &["node"],
        "Memory of the node",
        |view, to| nodes(view, to, |node| node.memory_bytes.map(|bytes| bytes as f64)),
    ),
    gauge(
        "node_memory_free",
        Some("bytes"),
        &["node"],
        "Free memory of the node, as the kernel counts it",
        |view, to| nodes(view, to, |node| node.free_bytes.map(|bytes| bytes as f64)),
    ),
    gauge(
        "node_resident",
        Some("bytes"),
        &["node"],
        "Memory that the processes seen have on the node",
        |view, to| {
            let page = view.run.page_bytes() as f64;
            nodes(view, to, |node| Some(node.pages as f64 * page));
        },
    ),
    counter(
        "node_fetched_lines",
        None,
        &["node", "from"],
        "Cache lines that the node's cores fetched from memory of their own node (`local`) and of others (`remote`), where counted",
        |view, to| {
            for node in &view.run.nodes {
                if node.sums.local_lines + node.sums.remote_lines > 0.0 {
                    let id = node.id.to_string();
                    to.real(&[&id, "local"], node.sums.local_lines);
                    to.real(&[&id, "remote"], node.sums.remote_lines);
                }
            }
        },
    ),
    counter(
        "node_served_lines",
        None,
        &["node"],
        "Cache lines that the node's memory controller served; with more than two nodes, those for other nodes are dealt out by where pages are",
        |view, to| {
            nodes(view, to, |node| {
                (node.served_per_s.is_some() || node.sums.served_lines > 0.0)
                    .then_some(node.sums.served_lines)
            });
        },
    ),
    gauge(
        "node_local_access",
        Some("ratio"),
        &["node"],
        "Of the lines that the node's cores fetched in the latest interval, the share from its own memory",
        |view, to| nodes(view, to, |node| node.local_access_ratio),
    ),
    gauge(
        "node_controller_load",
        Some("ratio"),
        &["node"],
        "What the node's memory controller served in the latest interval, as a share of its bandwidth, where that is known",
        |view, to| nodes(view, to, |node| node.controller_load),
    ),
    // Groups of the configuration.
    gauge(
        "group_processes",
        None,
        &["group"],
        "Processes of the group that are seen",
        |view, to| {
            for (group, now) in view.run.groups_now() {
                to.whole(&[group], now.processes);
            }
        },
    ),
    gauge(
        "group_cpus_used",
        None,
        &["group"],
        "CPUs in use by the group's threads in the latest interval",
        |view, to| {
            for (group, now) in view.run.groups_now() {
                to.real(&[group], now.cpus_used);
            }
        },
    ),
    counter(
        "group_thread_moves",
        None,
        &["group"],
        "Times that one of the group's threads had to leave its CPU by order",
        |view, to| {
            for (group, sums) in &view.run.more.groups {
                to.whole(&[group], sums.thread_moves);
            }
        },
    ),
    counter(
        "group_pages_moved",
        None,
        &["group"],
        "Base pages of the group's processes that were moved",
        |view, to| {
            for (group, sums) in &view.run.more.groups {
                to.whole(&[group], sums.pages_moved);
            }
        },
    ),
    // What is decided and done.
    counter(
        "decisions",
        None,
        &["rule"],
        "Threads that a rule of the policy named a core for",
        |view, to| {
            for (rule, sums) in &view.run.more.rules {
                to.whole(&[rule], sums.wanted);
            }
        },
    ),
    counter(
        "decided_moves",
        None,
        &["rule"],
        "Times that a thread had to leave its CPU for a rule of the policy",
        |view, to| {
            for (rule, sums) in &view.run.more.rules {
                to.whole(&[rule], sums.moved);
            }
        },
    ),
    counter(
        "thread_moves",
        None,
        &[],
        "Times that a thread had to leave its CPU by order, whoever decided",
        |view, to| to.whole(&[], view.run.totals.thread_moves),
    ),
    counter(
        "thread_moves_undone",
        None,
        &[],
        "Of these, moves undone because they had made things worse",
        |view, to| to.whole(&[], view.run.totals.undone),
    ),
    counter(
        "thread_moves_stolen",
        None,
        &[],
        "Of these, threads given to an idle node because they were held where they had to wait",
        |view, to| to.whole(&[], view.run.totals.stolen),
    ),
    counter(
        "planned_thread_moves",
        None,
        &[],
        "Thread moves that the governor let through, carried out or not",
        |view, to| to.whole(&[], view.run.totals.planned_thread_moves),
    ),
    counter(
        "thread_order_failures",
        None,
        &[],
        "Orders for threads that the kernel refused",
        |view, to| to.whole(&[], view.run.more.failed_orders),
    ),
    counter(
        "refusals",
        None,
        &["guard"],
        "Entries of plans that the governor refused, by guard; `journal`: it could not be written down how a thread was found",
        |view, to| {
            for guard in guards::ALL {
                let number = view.run.totals.refusals.get(&guard);
                to.whole(&[&word(&guard)], number.copied().unwrap_or(0));
            }
        },
    ),
    // Pages.
    counter(
        "pages_planned",
        None,
        &[],
        "Base pages that the governor let move, carried out or not",
        |view, to| to.whole(&[], view.run.totals.planned_pages),
    ),
    counter(
        "pages_moved",
        None,
        &["from", "to"],
        "Base pages moved, as read back, by node; `unknown` where it cannot be told where they came from",
        |view, to| {
            for (&(from, target), &pages) in &view.run.more.page_flows {
                let from = from.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
                to.whole(&[&from, &target.to_string()], pages);
            }
        },
    ),
    counter(
        "page_failures",
        None,
        &["reason"],
        "Base pages that were to move and did not, by the kernel's reason",
        |view, to| {
            for reason in REASONS {
                let number = view.run.totals.pages_failed.get(&reason);
                to.whole(&[&word(&reason)], number.copied().unwrap_or(0));
            }
        },
    ),
    counter(
        "pages_not_tried",
        None,
        &[],
        "Base pages that were ordered to move and not tried (cancelled, process gone, budget used up)",
        |view, to| to.whole(&[], view.run.more.pages_not_tried),
    ),
    counter(
        "page_order_errors",
        None,
        &[],
        "Page orders that something stopped",
        |view, to| to.whole(&[], view.run.more.page_errors),
    ),
    counter(
        "page_move",
        Some("seconds"),
        &[],
        "Time that moves of pages took",
        |view, to| to.real(&[], seconds(view.run.more.pages_ns)),
    ),
    gauge(
        "page_batch_longest",
        Some("seconds"),
        &[],
        "The longest single batch of pages so far: the pause that a thread can have seen",
        |view, to| to.real(&[], seconds(view.run.more.longest_batch_ns)),
    ),
    // The server itself.
    gauge(
        "connections",
        None,
        &[],
        "Connections to the server that are open",
        |view, to| serving(view, to, |serving| serving.connections),
    ),
    counter(
        "connections_refused",
        None,
        &[],
        "Connections that were refused because there were too many",
        |view, to| serving(view, to, |serving| serving.connections_refused),
    ),
    counter(
        "requests",
        None,
        &["result"],
        "Requests to the server: `answered` with what they asked for, or `refused` (malformed, unknown, not allowed, too slow)",
        |view, to| {
            if let Some(serving) = view.serving {
                to.whole(&["answered"], serving.answered);
                to.whole(&["refused"], serving.refused);
            }
        },
    ),
    gauge(
        "watchers",
        None,
        &[],
        "Watchers of the control socket that are streaming",
        |view, to| serving(view, to, |serving| serving.watchers),
    ),
    counter(
        "watchers_dropped",
        None,
        &[],
        "Watchers that were dropped because they were too slow",
        |view, to| serving(view, to, |serving| serving.watchers_dropped),
    ),
];

/// Every reason for which a page does not move.
const REASONS: [PageFailure; 6] = [
    PageFailure::NotThere,
    PageFailure::Shared,
    PageFailure::Busy,
    PageFailure::NodeFull,
    PageFailure::Unmovable,
    PageFailure::Other,
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A figure of each node.
fn nodes(view: View<'_>, to: &mut Samples, figure: impl Fn(&Node) -> Option<f64>) {
    for node in &view.run.nodes {
        to.real(&[&node.id.to_string()], figure(node));
    }
}

/// A figure of the server, where there is one.
fn serving(view: View<'_>, to: &mut Samples, figure: impl Fn(&Serving) -> u64) {
    if let Some(serving) = view.serving {
        to.whole(&[], figure(serving));
    }
}

/// The word by which the ledger names it.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}
