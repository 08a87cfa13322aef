//! All metrics in the order in which they are shown: kind, name, unit and labels if any, help, and the source of the
//! samples.

use numaherd_policy::losses::{Basis, Estimate, Known, Range};
use numaherd_world::PageFailure;
use serde::Serialize;

use super::{Kind, Metric, Samples, Value, View};
use crate::{guards, losses};

/// A row for each metric. `whole` and `real` are one figure of the run, `node` one of each node,
/// `serving` one of the server; `each` draws its samples itself.
macro_rules! metrics {
    ($($kind:ident $name:literal $(in $unit:literal)? $(by $($label:literal)+)?,
        $help:literal => $form:ident(|$($arg:ident),+| $body:expr);)*) => {
        /// Every metric.
        pub static METRICS: &[Metric] = &[$(Metric {
            name: $name,
            unit: metrics!(@unit $($unit)?),
            kind: Kind::$kind,
            labels: &[$($($label),+)?],
            help: $help,
            draw: metrics!(@$form ($($arg),+) $body),
        }),*];
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
    (@whole ($run:ident) $body:expr) => { |view, to| { let $run = view.run; to.whole(&[], $body) } };
    (@real ($run:ident) $body:expr) => { |view, to| { let $run = view.run; to.real(&[], $body) } };
    (@node ($node:ident) $body:expr) => { |view, to| {
        for $node in &view.run.nodes {
            to.real(&[&$node.id.to_string()], $body);
        }
    } };
    (@serving ($serving:ident) $body:expr) => { |view, to| {
        if let Some($serving) = view.serving {
            to.whole(&[], $body);
        }
    } };
    (@each ($view:ident, $to:ident) $body:expr) => { |$view, $to| $body };
}

metrics! {
    Info "build" by "version", "The program" => each(|_view, to| to.whole(&[env!("CARGO_PKG_VERSION")], 1));
    Info "policy" by "policy" "machine", "The current policy, and the machine by the name in its topology"
        => each(|view, to| if let Some(machine) = &view.run.machine {
            to.whole(&[&view.run.policy, &machine.name], 1);
        });
    Gauge "paused", "Whether decisions are paused (1) or not (0)" => whole(|run| run.paused.into());
    Gauge "dry_run", "Whether this is a dry run (1) or decisions are carried out (0)" => whole(|run| run.dry_run.into());
    Gauge "ended", "Whether the herd has ended (1) and is still shown" => whole(|run| run.ended.is_some().into());
    Gauge "state_complete", "Whether gauges are of the latest interval (1), or lines were dropped since (0)"
        => whole(|run| run.is_complete.into());
    Gauge "ledger_ended", "Whether the ledger can no longer be written (1) and herding goes on without it"
        => whole(|run| run.more.ledger_ended.into());

    // The loop.
    Counter "intervals", "Placement intervals seen" => whole(|run| run.totals.intervals);
    Gauge "interval_cadence" in "seconds", "How often threads are to be placed" => real(|run| run.cadence_ns.map(seconds));
    Histogram "interval_lateness" in "seconds", "How much longer than their cadence intervals were: the loop's own work, and whatever kept it from running"
        => each(|view, to| to.push(&[], Value::Late(view.run.lateness)));
    Counter "ledger_lines", "Ledger lines that these figures are computed from" => whole(|run| run.more.lines);
    Counter "ledger_lines_dropped", "Ledger lines dropped before they were read, so that the loop never waits; sums lack what was in them"
        => whole(|run| run.more.lines_lost);
    Counter "notices", "Notices for people; the page and `ctl status` show them" => whole(|run| run.more.notices);
    Counter "control_requests" by "asked" "result", "Requests to pause, resume or change, by result: `done` or `refused`"
        => each(|view, to| for (&(asked, done), &number) in &view.run.more.requests {
            to.whole(&[asked, if done { "done" } else { "refused" }], number);
        });

    // What is seen.
    Gauge "threads" by "left_alone", "Threads seen, by whether they are left alone (`true`) or may be placed (`false`)"
        => each(|view, to| {
            let now = &view.run.now;
            to.whole(&["false"], now.threads.saturating_sub(now.hands_off));
            to.whole(&["true"], now.hands_off);
        });
    Gauge "processes", "Processes seen" => whole(|run| run.processes.len() as u64);
    Gauge "virtual_machines", "Processes seen that run a virtual machine"
        => whole(|run| run.processes.iter().filter(|process| process.guest.is_some()).count() as u64);
    Gauge "gaps", "Signals that are usually available and were missing in the latest interval" => whole(|run| run.gaps.len() as u64);
    Counter "instructions", "Instructions of the threads seen, where counted" => whole(|run| run.totals.counted.instructions);
    Counter "fetched_lines", "Cache lines that the threads seen fetched from memory, where counted" => whole(|run| run.totals.counted.lines);
    Gauge "local_access" in "ratio", "Of the lines fetched in the latest interval, the share that came from the core's own node"
        => real(|run| run.now.local_access_ratio);
    Gauge "controller_imbalance" in "ratio", "Standard deviation of the lines that the memory controllers served in the latest interval, as a share of their mean"
        => real(|run| run.now.controller_imbalance);
    Gauge "lost_cores" by "estimate", "Cores that the busy threads lose to caches and memory when looked at last: estimated at least (`least`), on average (`mean`) and at most (`most`)"
        => each(|view, to| if let Some(known) = known(view) { range(&[], &known.lost, to); });
    Gauge "recoverable_cores" by "estimate", "Of the lost cores, those that another placement would give back, by the latest search; estimates as of `numaherd_lost_cores`"
        => each(|view, to| if let Some(recoverable) = known(view).and_then(|known| known.recoverable.as_ref()) {
            range(&[], recoverable, to);
        });
    Info "lost_cores_basis" by "basis", "What lost cores are estimated from: `uncore` (counters with uncore events), `counters` (without), `residency` (and CPU use alone); or that they are `unknown`, or that all is `idle`"
        => each(|view, to| if let Some(losses) = &view.run.losses {
            to.whole(&[losses::word(&losses.estimate)], 1);
        });
    Counter "lost_cpu" in "seconds" by "basis" "estimate", "CPU time that the busy threads lost to caches and memory, by what it is estimated from"
        => each(|view, to| for (&basis, sums) in &view.run.totals.lost {
            range(&[losses::basis_word(basis)], &sums.lost, to);
        });
    Gauge "lost_cores_part" by "cause", "The mean of the lost cores by what they are lost to: `controllers`, `remote` memory, shared `caches`, waits for `cpus`"
        => each(|view, to| if let Some(parts) = known(view).and_then(|known| known.parts) {
            to.real(&["controllers"], parts.controllers);
            to.real(&["remote"], parts.remote);
            to.real(&["caches"], parts.caches);
            to.real(&["cpus"], parts.cpus);
        });
    Counter "uncore_busy_cycles", "Core cycles in which requests to the uncore were outstanding, where counted"
        => whole(|run| run.totals.counted.uncore_busy_cycles);
    Counter "uncore_requests", "Requests to the uncore, where counted" => whole(|run| run.totals.counted.uncore_requests);
    Counter "memory_samples" by "remote", "Sampled memory accesses, by whether they left the core's node (`true` or `false`)"
        => each(|view, to| {
            let more = &view.run.more;
            to.whole(&["false"], more.samples.saturating_sub(more.samples_remote));
            to.whole(&["true"], more.samples_remote);
        });

    // Nodes.
    Gauge "node_cpus" by "node", "CPUs of the node that are online" => node(|node| node.cpus as f64);
    Gauge "node_threads" by "node", "Threads seen that last ran on the node" => node(|node| node.threads as f64);
    Counter "node_cpu" in "seconds" by "node", "CPU time of the threads seen on the node" => node(|node| node.sums.cpu_s);
    Gauge "node_memory_size" in "bytes" by "node", "Memory of the node" => node(|node| node.memory_bytes.map(|bytes| bytes as f64));
    Gauge "node_memory_free" in "bytes" by "node", "Free memory of the node, as the kernel counts it"
        => node(|node| node.free_bytes.map(|bytes| bytes as f64));
    Gauge "node_resident" in "bytes" by "node", "Memory that the processes seen have on the node"
        => each(|view, to| for node in &view.run.nodes {
            to.real(&[&node.id.to_string()], node.pages as f64 * view.run.page_bytes() as f64);
        });
    Counter "node_fetched_lines" by "node" "from", "Cache lines that the node's cores fetched from memory of their own node (`local`) and of others (`remote`), where counted"
        => each(|view, to| for node in &view.run.nodes {
            if node.sums.local_lines + node.sums.remote_lines > 0.0 {
                let id = node.id.to_string();
                to.real(&[&id, "local"], node.sums.local_lines);
                to.real(&[&id, "remote"], node.sums.remote_lines);
            }
        });
    Counter "node_served_lines" by "node", "Cache lines that the node's memory controller served; with more than two nodes, lines for other nodes are assigned by where pages are"
        => node(|node| {
            let is_known = node.served_per_s.is_some() || node.sums.served_lines > 0.0;
            is_known.then_some(node.sums.served_lines)
        });
    Gauge "node_local_access" in "ratio" by "node", "Of the lines that the node's cores fetched in the latest interval, the share from its own memory"
        => node(|node| node.local_access_ratio);
    Gauge "node_controller_load" in "ratio" by "node", "What the node's memory controller served in the latest interval, as a share of its bandwidth, where that is known"
        => node(|node| node.controller_load);

    // Groups of the configuration.
    Gauge "group_processes" by "group", "Processes of the group that are seen"
        => each(|view, to| for (group, now) in view.run.groups_now() { to.whole(&[group], now.processes); });
    Gauge "group_cpus_used" by "group", "CPUs that the group's threads used in the latest interval"
        => each(|view, to| for (group, now) in view.run.groups_now() { to.real(&[group], now.cpus_used); });
    Counter "group_thread_moves" by "group", "Times that one of the group's threads had to leave its CPU by order"
        => each(|view, to| for (group, sums) in &view.run.more.groups { to.whole(&[group], sums.thread_moves); });
    Counter "group_pages_moved" by "group", "Base pages of the group's processes that were moved"
        => each(|view, to| for (group, sums) in &view.run.more.groups { to.whole(&[group], sums.pages_moved); });
    Counter "group_lost_cpu" in "seconds" by "group", "CPU time that the group's threads lost to caches and memory: its part of the mean of `numaherd_lost_cpu_seconds_total`, where a mean is known"
        => each(|view, to| if view.run.totals.lost.contains_key(&Basis::Uncore) {
            for (group, sums) in &view.run.more.groups { to.real(&[group], sums.lost_cpu_s); }
        });

    // What is decided and done.
    Counter "decisions" by "rule", "Threads for which a rule of the policy named a core"
        => each(|view, to| for (rule, sums) in &view.run.more.rules { to.whole(&[rule], sums.wanted); });
    Counter "decided_moves" by "rule", "Times that a thread had to leave its CPU because of a rule of the policy"
        => each(|view, to| for (rule, sums) in &view.run.more.rules { to.whole(&[rule], sums.moved); });
    Counter "thread_moves", "Times that a thread had to leave its CPU by order" => whole(|run| run.totals.thread_moves);
    Counter "thread_moves_undone", "Thread moves undone because they had made things worse" => whole(|run| run.totals.undone);
    Counter "thread_moves_stolen", "Threads given to an idle node because they had to wait where they were held"
        => whole(|run| run.totals.stolen);
    Counter "planned_thread_moves", "Thread moves that the governor let through, carried out or not"
        => whole(|run| run.totals.planned_thread_moves);
    Counter "thread_order_failures", "Orders for threads that the kernel refused" => whole(|run| run.more.failed_orders);
    Counter "refusals" by "guard", "Entries of plans that the governor refused, by guard; `journal`: the thread's own affinity could not be saved"
        => each(|view, to| for guard in guards::ALL {
            let number = view.run.totals.refusals.get(&guard);
            to.whole(&[&word(&guard)], number.copied().unwrap_or(0));
        });

    // Pages.
    Counter "pages_planned", "Base pages that the governor let move, carried out or not" => whole(|run| run.totals.planned_pages);
    Counter "pages_moved" by "from" "to", "Base pages moved, as read back, by node; `unknown` where the source cannot be told"
        => each(|view, to| for (&(from, target), &pages) in &view.run.more.page_flows {
            let from = from.map_or_else(|| "unknown".to_owned(), |node| node.to_string());
            to.whole(&[&from, &target.to_string()], pages);
        });
    Counter "page_failures" by "reason", "Base pages that were to move and did not, by the kernel's reason"
        => each(|view, to| for reason in REASONS {
            let number = view.run.totals.pages_failed.get(&reason);
            to.whole(&[&word(&reason)], number.copied().unwrap_or(0));
        });
    Counter "pages_not_tried", "Base pages that were ordered to move and not tried (cancelled, process gone, budget used up)"
        => whole(|run| run.more.pages_not_tried);
    Counter "page_order_errors", "Page orders that something stopped" => whole(|run| run.more.page_errors);
    Counter "page_move" in "seconds", "Time spent moving pages" => real(|run| seconds(run.more.pages_ns));
    Gauge "page_batch_longest" in "seconds", "The longest single batch of pages so far: the longest pause that a thread can have seen"
        => real(|run| seconds(run.more.longest_batch_ns));

    // The server itself.
    Gauge "connections", "Open connections to the server" => serving(|serving| serving.connections);
    Counter "connections_refused", "Connections refused because there were too many" => serving(|serving| serving.connections_refused);
    Counter "requests" by "result", "Requests to the server: `answered`, or `refused` (malformed, unknown, not allowed, too slow)"
        => each(|view, to| if let Some(serving) = view.serving {
            to.whole(&["answered"], serving.answered);
            to.whole(&["refused"], serving.refused);
        });
    Gauge "watchers", "Watchers of the control socket that are streaming" => serving(|serving| serving.watchers);
    Counter "watchers_dropped", "Watchers dropped because they were too slow" => serving(|serving| serving.watchers_dropped);
}

/// Every reason for which a page does not move.
const REASONS: [PageFailure; 6] = [
    PageFailure::NotThere,
    PageFailure::Shared,
    PageFailure::Busy,
    PageFailure::NodeFull,
    PageFailure::Unmovable,
    PageFailure::Other,
];

/// The estimate of lost cores, where there is one.
fn known(view: View<'_>) -> Option<&Known> {
    match &view.run.losses.as_ref()?.estimate {
        Estimate::Known(known) => Some(known),
        Estimate::Idle | Estimate::Unknown(_) => None,
    }
}

/// The samples of a range.
fn range(labels: &[&str], range: &Range, to: &mut Samples) {
    let mut one = |estimate: &str, value: Option<f64>| {
        to.real(&[labels, &[estimate]].concat(), value);
    };
    one("least", Some(range.least));
    one("mean", range.mean);
    one("most", Some(range.most));
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The word that the ledger uses for a value.
fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "unknown".to_owned(),
    }
}
