//! A replay as text for people.

use std::fmt::Write as _;

use itertools::Itertools as _;

use super::agreement::Shares;
use super::comparison::{Moment, Policy, Replayed};
use super::decisions::{Choice, Side};
use super::effect::{Effect, Errors, Predicted, Prediction};
use crate::words::{at, count, counted, entry, indented, listed, paragraph, percent, short, time};

/// Columns of the time line.
const SPANS: usize = 7;

/// Processes that are named in a prediction.
const MOST_PROCESSES: usize = 8;

/// A whole replay as text.
pub fn text(replayed: &Replayed) -> String {
    let mut text = head(replayed);
    text += &agreement(replayed);
    text += &over_time(replayed);
    text += &pairs(replayed);
    text += &pages(replayed);
    if let Some(prediction) = &replayed.prediction {
        text += &predicted(replayed, prediction);
    }
    if let Some(decisions) = &replayed.decisions {
        text += &side_by_side(replayed, decisions);
    }
    text
}

fn head(replayed: &Replayed) -> String {
    let mut text = paragraph(format!(
        "{}, recorded for {} ({}, {} at most) on a machine of {} and {}{}.",
        replayed.recorded,
        time(replayed.duration_ns),
        counted(replayed.intervals, "interval"),
        counted(replayed.threads, "thread"),
        counted(replayed.nodes, "node"),
        counted(replayed.cpus, "CPU"),
        match replayed.dry_run {
            true => "; a dry run, nothing was moved",
            false => "",
        }
    ));
    text += &paragraph(if replayed.from_recorded {
        "Each interval is judged as it was recorded, with threads where the recorded policy placed \
             them, and the decisions of the policies are compared. A recording does not show what \
             would have followed from another decision; --carry-on carries placements forward."
    } else {
        "Each policy's own placement is carried forward from interval to interval, and the places of \
             threads are compared. Counts stay as recorded: the further the placements diverge, the \
             less they are what that policy would have seen."
    });
    if let Some(damage) = &replayed.damage {
        text += &paragraph(format!("Replayed up to the damage in the ledger: {damage}"));
    }
    if replayed.unseen > 0 {
        text += &paragraph(format!(
            "Left out: {} of the recorded policy's decisions, drawn from intervals that are not in \
                 the ledger (record_interval_ms = 0 records each).",
            count(replayed.unseen)
        ));
    }
    if let Some(counted) = replayed.counted.filter(|&share| share < 0.995) {
        let share = percent(counted);
        text += &paragraph(format!(
            "Counters are there for {share} of the intervals in which threads ran."
        ));
    }
    text
}

fn agreement(replayed: &Replayed) -> String {
    let mut text = "\n".to_owned();
    let what = match replayed.from_recorded {
        true => "would have",
        false => "have",
    };
    text += &paragraph(format!(
        "Agreement with {}: shares of threads and intervals in which both {what} the thread on",
        replayed.recorded
    ));
    let _ = writeln!(
        text,
        "  {:<18} {:>9} {:>12} {:>10} {:>11} {:>6} {:>6}",
        "", "same core", "same domain", "same node", "other node", "kappa", "moves"
    );
    let _ = writeln!(
        text,
        "  {:<18} {:>59}",
        "(recorded)",
        count(replayed.recorded_moves)
    );
    for policy in &replayed.policies {
        text += &agreement_of(policy);
    }
    text += &paragraph(
        "kappa: agreement on the node beyond chance (Cohen); moves: threads wanted elsewhere, each time \
         that it is newly wanted.",
    );
    let recorded_ns = replayed.duration_ns / replayed.intervals.max(1);
    for policy in &replayed.policies {
        let cadence = policy.cadence_ns.filter(|&own| recorded_ns / 2 > own);
        if let Some(own) = cadence.filter(|_| policy.missing.is_none()) {
            text += &paragraph(format!(
                "{} is designed to decide every {}; here it was asked every {} on average, and what \
                     it would have done in between is unknown.",
                policy.name,
                time(own),
                time(recorded_ns)
            ));
        }
        let there = policy.missing.is_none();
        if let Some(refused) = policy.refused.filter(|&refused| there && refused > 0) {
            let refused = counted(refused, "decision");
            text += &paragraph(format!(
                "The governor would have refused {refused} of {}.",
                policy.name
            ));
        }
    }
    text
}

fn agreement_of(policy: &Policy) -> String {
    if let Some(missing) = &policy.missing {
        return indented(
            2,
            format!(
                "{}: not replayed, since the recording lacks the signals it needs: {}. If the \
                 machine has them, `numaherd record --for-policies {}` records them.",
                policy.name,
                listed(&missing.signals),
                policy.name
            ),
        );
    }
    let Some(shares) = &policy.agreement else {
        return indented(2, format!("{}: no threads to compare.", policy.name));
    };
    let mut text = row(&policy.name, shares, &count(policy.moves));
    if let Some(moved) = &policy.where_moved {
        text += &row("  if either moves", moved, "");
    }
    text
}

fn row(name: &str, shares: &Shares, moves: &str) -> String {
    let kappa = or_minus(shares.kappa.map(hundredths));
    format!(
        "  {name:<18} {:>9} {:>12} {:>10} {:>11} {kappa:>6} {moves:>6}",
        cell(shares.same_core),
        cell(shares.same_domain),
        cell(shares.same_node),
        cell(shares.other_node),
    )
    .trim_end()
    .to_owned()
        + "\n"
}

/// A figure of a table, or a minus for a missing one.
fn or_minus(figure: Option<String>) -> String {
    figure.unwrap_or_else(|| "-".to_owned())
}

/// A share as a percentage in a narrow column.
fn cell(share: f64) -> String {
    percent(share).replace("under ", "<").replace("over ", ">")
}

/// The same without its unit.
fn bare(share: f64) -> String {
    cell(share).trim_end_matches(" %").to_owned()
}

/// Two decimals; zero has no sign.
fn hundredths(figure: f64) -> String {
    format!("{:.2}", (figure * 100.0).round() / 100.0 + 0.0)
}

fn over_time(replayed: &Replayed) -> String {
    let policies = replayed.policies.iter();
    let lines = policies
        .filter(|policy| policy.over_time.len() > 1)
        .collect_vec();
    if lines.is_empty() {
        return String::new();
    }
    let span = replayed.duration_ns / SPANS as u64;
    let ends = (1..=SPANS as u64).map(|end| span * end).collect_vec();
    let mut text =
        "\nOver time: on the same node, in % (- : nothing to compare), until\n".to_owned();
    let heads = ends
        .iter()
        .map(|&end| format!(" {:>7}", brief(end)))
        .format("");
    let _ = writeln!(text, "  {:<16}{heads}", "");
    for policy in lines {
        let mut line = format!("  {:<16}", policy.name);
        let mut from = 0;
        for &end in &ends {
            let moments = policy
                .over_time
                .iter()
                .filter(|moment| moment.until_ns > from);
            let within = moments.filter(|m| m.until_ns <= end || end == ends[SPANS - 1]);
            let _ = write!(line, " {:>7}", or_minus(on_same_node(within).map(bare)));
            from = end;
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A point in time in at most seven letters.
fn brief(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if seconds < 120.0 => format!("{} s", short(seconds)),
        _ if seconds < 7200.0 => format!("{} min", short(seconds / 60.0)),
        _ => format!("{} h", short(seconds / 3600.0)),
    }
}

fn on_same_node<'m>(moments: impl Iterator<Item = &'m Moment>) -> Option<f64> {
    let (mut all, mut same) = (0, 0.0);
    for moment in moments {
        all += moment.shares.compared;
        same += moment.shares.compared as f64 * (1.0 - moment.shares.other_node);
    }
    (all > 0).then(|| (same / all as f64).clamp(0.0, 1.0))
}

fn pairs(replayed: &Replayed) -> String {
    if replayed.pairs.is_empty() {
        return String::new();
    }
    let policies = replayed.policies.iter().map(|policy| &policy.name[..]);
    let heads = policies
        .clone()
        .map(|name| format!(" {name:>16}"))
        .format("");
    let names = std::iter::once("(recorded)").chain(policies).collect_vec();
    let mut text =
        "\nEach with each: on the same node in % of threads and intervals, and kappa\n".to_owned();
    let _ = writeln!(text, "  {:<16}{heads}", "");
    let mut pairs = replayed.pairs.iter();
    for (one, name) in names.iter().enumerate().take(names.len() - 1) {
        let mut line = format!("  {name:<16}{}", " ".repeat(17 * one));
        for pair in pairs.by_ref().take(names.len() - 1 - one) {
            let cell = pair.agreement.map(|shares| {
                let kappa = or_minus(shares.kappa.map(hundredths));
                format!("{}  {kappa}", bare(1.0 - shares.other_node))
            });
            let _ = write!(line, " {:>16}", or_minus(cell));
        }
        text += &line;
        text.push('\n');
    }
    text
}

fn pages(replayed: &Replayed) -> String {
    let mut text = String::new();
    let replayable = |policy: &&Policy| policy.missing.is_none();
    for policy in replayed.policies.iter().filter(replayable) {
        if let Some(unpaged) = &policy.unpaged {
            text += &paragraph(format!(
                "Pages of {}: not replayed. Its paging needs {}, which a ledger does not contain; what \
                     it would have moved is unknown.",
                policy.name,
                listed(&unpaged.signals)
            ));
        } else if policy.page_orders > 0 {
            text += &paragraph(format!(
                "Pages of {}: {} would have followed from its placement; pages stay as recorded \
                     nevertheless.",
                policy.name,
                counted(policy.page_orders, "order")
            ));
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\n{text}")
    }
}

fn predicted(replayed: &Replayed, prediction: &Prediction) -> String {
    let predicted = match prediction {
        Prediction::None(why) => {
            return format!("\n{}", paragraph(format!("No prediction: {why}.")));
        }
        Prediction::Predicted(predicted) => predicted,
    };
    let mut text = "\n".to_owned();
    let uncounted = match predicted.uncounted {
        0 => String::new(),
        some => format!(
            " ({} left out, threads being busy without counts)",
            count(some)
        ),
    };
    text += &paragraph(format!(
        "Predicted by the model of {}, over {}{uncounted}:",
        predicted.machine,
        counted(predicted.intervals, "interval"),
    ));
    for (policy, effect) in replayed.policies.iter().zip(&predicted.effects) {
        if let Some(effect) = effect {
            text += &effect_of(policy, effect);
        }
    }
    text += &paragraph(format!(
        "The model's error on this recording: {}. {}",
        off_by(&predicted.errors),
        on_moves(predicted)
    ));
    text
}

fn on_moves(predicted: &Predicted) -> String {
    match &predicted.moved {
        Some(moved) => {
            let skill = match moved.median < moved.as_before {
                true => "",
                false => " It is no better there than saying that nothing changes: do not trust the prediction.",
            };
            let off_by = off_by(moved);
            format!("For threads that had just moved, which matter most: {off_by}.{skill}")
        }
        None => "No thread moved to another memory domain in the recording, so the model could not be checked \
                 against a move: its predictions of moves are untested here."
            .to_owned(),
    }
}

fn off_by(errors: &Errors) -> String {
    let way = if errors.bias > 0.0 {
        "too slow"
    } else {
        "too fast"
    };
    format!(
        "{} in the middle, nine in ten within {}, {} {way} on the whole ({}; \"as before\" is {} off)",
        percent(errors.median),
        percent(errors.most),
        percent(errors.bias.abs()),
        counted(errors.checked, "check"),
        percent(errors.as_before),
    )
}

fn effect_of(policy: &Policy, effect: &Effect) -> String {
    let mut total = format!(
        "{}: all threads together {}",
        policy.name,
        change(effect.total)
    );
    if let Some(worst) = &effect.worst {
        let (tid, name, change) = (worst.tid, &worst.name, change(worst.change));
        total += &format!("; worst off: thread {tid} ({name}) {change}");
    }
    let mut text = indented(2, total + ".");
    let mut processes: Vec<_> = effect.processes.iter().collect();
    processes.retain(|process| process.change.abs() >= 0.0005);
    let unchanged = effect.processes.len() - processes.len();
    processes.sort_by(|a, b| {
        let by_size = b.change.abs().total_cmp(&a.change.abs());
        by_size.then(a.pid.cmp(&b.pid))
    });
    for process in processes.iter().take(MOST_PROCESSES) {
        let _ = writeln!(
            text,
            "    process {:>7} {:<16} {:>8}",
            process.pid,
            process.name,
            change(process.change)
        );
    }
    if processes.len() > MOST_PROCESSES {
        let rest = processes.len() - MOST_PROCESSES;
        let _ = writeln!(text, "    {} more that change less", count(rest));
    }
    if unchanged > 0 && !processes.is_empty() {
        let _ = writeln!(text, "    {} as before", counted(unchanged, "process"));
    }
    text
}

/// A change with its sign.
fn change(share: f64) -> String {
    // Adding 0 removes the sign of a negative zero.
    let tenths = (share * 1000.0).round() + 0.0;
    format!("{:+.1} %", tenths / 10.0)
}

fn side_by_side(replayed: &Replayed, decisions: &[Choice]) -> String {
    let mut text = "\nDecisions side by side; repeated requests are not shown again\n".to_owned();
    if decisions.is_empty() {
        return text + "  (no policy wanted anything)\n";
    }
    // A policy without its signals has nothing to show.
    let policies = replayed.policies.iter();
    let names = policies.map(|policy| policy.missing.is_none().then(|| policy.name.clone()));
    let recorded = Some(format!("{}, recorded", replayed.recorded));
    let names = std::iter::once(recorded).chain(names).collect_vec();
    let mut before = None;
    for choice in decisions {
        if before != Some(choice.at_ns) {
            let _ = writeln!(text, "{}", at(choice.at_ns));
            before = Some(choice.at_ns);
        }
        let _ = writeln!(
            text,
            "  thread {} ({}, process {})",
            choice.tid, choice.name, choice.pid
        );
        for (name, side) in names.iter().zip(&choice.sides) {
            if let Some(name) = name {
                text += &entry(4, name, 26, &said(side.as_ref()));
            }
        }
    }
    text
}

fn said(side: Option<&Side>) -> String {
    let Some(side) = side else {
        return "stays".to_owned();
    };
    let mut text = match side.from == side.to {
        true => format!("held on CPU {}", side.to),
        false => format!("CPU {} to {}", side.from, side.to),
    };
    let _ = write!(text, " ({}): {}", side.rule, side.why);
    if !side.instead_of.is_empty() {
        let _ = write!(text, "; instead of: {}", side.instead_of);
    }
    if let Some(refused) = &side.refused {
        let _ = write!(text, " [refused, {refused}]");
    }
    text
}

#[cfg(test)]
mod tests;
