//! The first page of an explanation: what was done, why, whether it helped, how to stop it, what to ask next; then the
//! latest moves, where pages went, what was refused and what was asked, one line each.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use numaherd_herd::Ending;

use super::text::{damage, settings_of};
use super::{
    Change, Decision, Explanation, Followed, Happened, Run, SpeedChange, ThreadStory, Wanted, Way,
};
use crate::guards::{meaning, settings};
use crate::losses;
use crate::run::sum;
use crate::summary;
use crate::words::{
    at, count, counted, entry, indented, nanoseconds, paragraph, percent, sentence, short as brief,
    stopped, time,
};

/// Where the sentences after the labels begin.
const COLUMN: usize = 9;

/// Most rows of each table.
const MOST_MOVES: usize = 15;
const MOST_PROCESSES: usize = 8;
const MOST_SENTENCES: usize = 5;

/// What followed thread moves, by the speed of the moved thread: once settled if that is known, otherwise right after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Moves after which it was faster.
    pub faster: u64,
    /// Moves after which it was slower.
    pub slower: u64,
    /// Moves after which it was neither, beyond its variation before.
    pub unchanged: u64,
    /// Moves whose effect on speed was not measured on both sides.
    pub unknown: u64,
}

/// A move that was carried out, or would have been.
struct Moved<'e> {
    thread: &'e ThreadStory,
    decision: &'e Decision,
    way: Way,
}

impl Effects {
    /// The effects of the moves in an explanation.
    pub fn of(explanation: &Explanation) -> Self {
        let mut effects = Self::default();
        for moved in moves(explanation).iter().filter(|m| m.decision.is_done()) {
            let followed = moved.decision.followed.as_ref();
            let place = match followed.and_then(effect).map(|effect| effect.change) {
                Some(Change::Faster) => &mut effects.faster,
                Some(Change::Slower) => &mut effects.slower,
                Some(Change::Unchanged) => &mut effects.unchanged,
                None => &mut effects.unknown,
            };
            *place += 1;
        }
        effects
    }

    fn known(&self) -> u64 {
        self.faster + self.slower + self.unchanged
    }
}

/// The change in speed that counts: once settled if that is known.
fn effect(followed: &Followed) -> Option<SpeedChange> {
    followed.settled_speed.or(followed.speed)
}

/// The first page. `command` is the person's command (`numaherd explain FILE`), for the hints about what to ask next.
pub fn short(explanation: &Explanation, command: &str) -> String {
    let Some(run) = &explanation.run else {
        let begins = paragraph("The ledger ends before the run's start was recorded.");
        return begins + &damage(&explanation.ledger);
    };
    let moves = moves(explanation);
    let mut text = entry(0, "What", COLUMN, &what(explanation, run));
    text += &entry(0, "Why", COLUMN, &why(run, explanation, &moves));
    text += &entry(0, "Helped", COLUMN, &helped(explanation, run));
    let lost = losses::on_average(&run.totals);
    if !lost.is_empty() {
        text += &entry(0, "Lost", COLUMN, &lost.join(" "));
    }
    text += &entry(0, "Stop", COLUMN, &stop(run));
    text += &entry(0, "More", COLUMN, &more(command, &moves));
    text += &damage(&explanation.ledger);
    text += &table_of_moves(&moves, run);
    text += &table_of_pages(explanation);
    text += &refused(run);
    text += &asked(run);
    if !run.notices.is_empty() {
        text += "\n";
    }
    let earlier = run.notices.len().saturating_sub(MOST_SENTENCES);
    text + &summary::notices(run.notices[earlier..].iter().map(|said| &said.text))
}

/// Every decision, with its thread.
fn decisions(explanation: &Explanation) -> impl Iterator<Item = (&ThreadStory, &Decision)> {
    let threads = explanation.processes.iter().flat_map(|p| &p.threads);
    threads.flat_map(|thread| thread.decisions.iter().map(move |one| (thread, one)))
}

/// Threads that had to leave their CPU by order, or would have, in time order.
fn moves<'e>(explanation: &'e Explanation) -> Vec<Moved<'e>> {
    let moved = |(thread, decision): (_, &'e Decision)| {
        let is_move = decision.is_done() || decision.happened == Some(Happened::DryRun);
        match decision.wanted {
            Wanted::Move(way) | Wanted::Steal(way) if is_move => Some(Moved {
                thread,
                decision,
                way,
            }),
            _ => None,
        }
    };
    let moves = decisions(explanation).filter_map(moved);
    moves
        .sorted_by_key(|moved| (moved.decision.last_ns, moved.thread.tid))
        .collect()
}

fn what(explanation: &Explanation, run: &Run) -> String {
    let totals = &run.totals;
    let threads = explanation.processes.iter().map(|p| p.threads.len() as u64);
    let threads = sum(threads) + explanation.left_out_threads;
    let (did, moved, pages) = if run.settings.dry_run {
        (
            "would have herded (a dry run: nothing was carried out)",
            totals.planned_thread_moves,
            format!("{} asked for", counted(totals.planned_pages, "page")),
        )
    } else {
        let watched = (totals.thread_moves, totals.pages_moved) == (0, 0);
        (
            if watched { "watched" } else { "herded" },
            totals.thread_moves,
            format!("{} moved", counted(totals.pages_moved, "page")),
        )
    };
    let policy = match run.policy == run.policy_now {
        true => run.policy.clone(),
        false => format!("{}, then {},", run.policy, run.policy_now),
    };
    let refusals = sum(totals.refusals.values().copied());
    let refused = match refusals {
        0 => String::new(),
        1 => ", 1 decision refused".to_owned(),
        _ => format!(", {} decisions refused", count(refusals)),
    };
    let end = match (&run.ending, &explanation.ledger.damage) {
        (None, None) => " Its end is not recorded: it is still running, or it was killed.",
        _ => "",
    };
    format!(
        "{policy} {did} {} on {} for {}: {}, {pages}{refused}.{end}",
        counted(threads, "thread"),
        run.machine.name,
        time(totals.duration_ns),
        counted(moved, "thread move"),
    )
}

fn why(run: &Run, explanation: &Explanation, moves: &[Moved<'_>]) -> String {
    let rules = moves.iter().filter_map(|moved| {
        let rule = moved.decision.rule.as_ref()?;
        Some((rule.name.as_str(), rule.what, moved.decision.times))
    });
    let mut parts = Vec::from_iter(most_used("move", rules));
    let pages = decisions(explanation).filter_map(|(_, decision)| {
        let wanted = matches!(decision.wanted, Wanted::Pages { .. }) && decision.happened.is_some();
        let rule = decision.rule.as_ref().filter(|_| wanted)?;
        Some((rule.name.as_str(), None, decision.times))
    });
    parts.extend(most_used("page order", pages));
    if parts.is_empty() {
        return nothing_moved(run);
    }
    parts.join(" ")
}

/// The rule that decided most of something, and what it does.
fn most_used<'e>(
    noun: &str,
    rules: impl Iterator<Item = (&'e str, Option<&'e str>, u64)>,
) -> Option<String> {
    let mut times: BTreeMap<(&str, Option<&str>), u64> = BTreeMap::new();
    for (name, what, more) in rules {
        *times.entry((name, what)).or_default() += more;
    }
    let all = sum(times.values().copied());
    let ((name, what), most) = times.into_iter().max_by_key(|(_, times)| *times)?;
    let of = match all {
        1 => format!("The one {noun} was"),
        _ if most == all => format!("All {} were", counted(all, noun)),
        _ => format!("{} of {} were", count(most), counted(all, noun)),
    };
    let what = what.map_or_else(String::new, |what| format!(": {what}"));
    Some(stopped(&format!("{of} decided by \"{name}\"{what}")))
}

fn nothing_moved(run: &Run) -> String {
    let totals = &run.totals;
    if run.paused {
        return "It is paused and decides nothing until it is resumed.".to_owned();
    }
    let most = totals.refusals.iter().max_by_key(|(_, times)| **times);
    if let Some((&guard, _)) = most {
        return format!(
            "Everything that the policy wanted was refused, mostly by the guard \"{guard}\": {}",
            stopped(meaning(guard))
        );
    }
    let interval = run.settings.placement_interval(totals.intervals);
    if totals.intervals <= 2 {
        return format!(
            "The policy wanted nothing: it saw only {} of {}, too few to decide anything. Use a \
             shorter --interval (100ms) or a longer run.",
            counted(totals.intervals, "interval"),
            time(nanoseconds(interval)),
        );
    }
    let mut said = "The policy wanted no changes.".to_owned();
    if let Some(about) = &run.about {
        said += &format!(" {}", stopped(&about.what));
    }
    said
}

fn helped(explanation: &Explanation, run: &Run) -> String {
    let effects = Effects::of(explanation);
    let known = effects.known();
    let mut said = if known > 0 {
        let unknown = match effects.unknown {
            0 => String::new(),
            more => format!(" ({} more are unknown)", count(more)),
        };
        format!(
            "The thread was faster after {} of {}, slower after {}, unchanged after {}{unknown}.",
            count(effects.faster),
            counted(known, "move"),
            count(effects.slower),
            count(effects.unchanged),
        )
    } else if run.totals.thread_moves > 0 {
        "Unknown: no moved thread was measured both before and after its move.".to_owned()
    } else if run.settings.dry_run {
        "Nothing was carried out.".to_owned()
    } else {
        "No thread was moved.".to_owned()
    };
    if let Some(trend) = run.local_access_ratio {
        let (first, last) = (percent(trend.first), percent(trend.last));
        said += &format!(" Local accesses: {first} at first, {last} at last.");
    }
    if run.totals.undone > 0 {
        let undone = counted(run.totals.undone, "move");
        said += &format!(" {undone} undone because they made things worse.");
    }
    said
}

fn stop(run: &Run) -> String {
    match &run.ending {
        Some(Ending::Failed { .. }) | None => {
            let paused = if run.paused {
                "It is paused; `numaherd ctl resume` continues it. "
            } else {
                "`numaherd ctl pause` stops all decisions of a service; with --give-back it also restores affinities. "
            };
            format!(
                "{paused}Ctrl-C or SIGTERM ends it and restores every affinity; if it was \
                 killed, run `numaherd release`."
            )
        }
        Some(_) => {
            let restored = match run.totals.restored {
                Some(0) | None => "no thread is held".to_owned(),
                Some(some) => summary::given_back(some, run.settings.enforce),
            };
            format!("It has ended, and {restored}.")
        }
    }
}

fn more(command: &str, moves: &[Moved<'_>]) -> String {
    let example = moves
        .last()
        .map(|last| format!("--decision {}, ", last.decision.first_record));
    format!(
        "{command} with {}--name, --pid, --tid, --at, --from, --to, or --all for everything.",
        example.unwrap_or_default()
    )
}

fn table_of_moves(moves: &[Moved<'_>], run: &Run) -> String {
    if moves.is_empty() {
        return String::new();
    }
    let hidden = moves.len().saturating_sub(MOST_MOVES);
    let title = if run.settings.dry_run {
        "Planned thread moves"
    } else {
        "Thread moves"
    };
    let mut text = match hidden {
        0 => format!("\n{title}, by decision number:\n"),
        _ => format!(
            "\n{title}, the last {MOST_MOVES} of {} (--all shows all), by decision \
             number:\n",
            count(moves.len())
        ),
    };
    for moved in &moves[hidden..] {
        let decision = moved.decision;
        let label = format!(
            "{:>5} {:>8}  {} {}",
            format!("#{}", decision.first_record),
            at(decision.first_ns),
            moved.thread.tid,
            moved.thread.name,
        );
        let effect = match (&decision.followed, &decision.happened) {
            (_, Some(Happened::DryRun)) => "not carried out".to_owned(),
            (Some(followed), _) => effects(followed),
            (None, _) => "not measured on both sides".to_owned(),
        };
        let nodes = match (moved.way.from_node, moved.way.to_node) {
            (Some(from), Some(to)) if from == to => format!("node {from}"),
            (Some(from), Some(to)) => format!("node {from}→{to}"),
            _ => String::new(),
        };
        let place = format!("CPU {}→{}, {nodes}", moved.way.from, moved.way.to);
        text += &entry(0, &label, 30, &format!("{place}: {effect}"));
    }
    text
}

/// What followed, in a few words.
fn effects(followed: &Followed) -> String {
    let say = |change: &SpeedChange| {
        let by = brief(change.percent.abs());
        match change.change {
            Change::Faster => format!("{by} % faster"),
            Change::Slower => format!("{by} % slower"),
            Change::Unchanged => "unchanged".to_owned(),
        }
    };
    match (&followed.speed, &followed.settled_speed) {
        (None, None) => "speed not measured on both sides".to_owned(),
        (Some(speed), Some(settled)) if speed.change != settled.change => {
            format!("{}, then {}", say(speed), say(settled))
        }
        (_, Some(settled)) => say(settled),
        (Some(speed), None) => format!(
            "{} ({})",
            say(speed),
            counted(followed.after.intervals, "interval")
        ),
    }
}

fn table_of_pages(explanation: &Explanation) -> String {
    let mut rows: Vec<(u64, String, String)> = Vec::new();
    for process in &explanation.processes {
        let moved = sum(process.threads.iter().map(|thread| thread.pages_moved));
        let Some(pages) = process.pages.as_ref().filter(|_| moved > 0) else {
            continue;
        };
        let home = match (pages.first.home(), pages.last.home()) {
            (Some(first), Some(last)) if first != last => {
                format!("home moved from node {first} to node {last}")
            }
            (_, Some(last)) => format!("home is node {last}"),
            _ => "home not known".to_owned(),
        };
        let pid = process.pid.map(|pid| pid.to_string()).unwrap_or_default();
        let label = format!("{pid:>7} {}", process.name.as_deref().unwrap_or_default());
        let pages = counted(moved, "page");
        rows.push((moved, label, format!("{pages} moved; {home}")));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.0));
    let hidden = rows.len().saturating_sub(MOST_PROCESSES);
    let mut text = String::new();
    for (at, (_, label, row)) in rows.iter().take(MOST_PROCESSES).enumerate() {
        if at == 0 {
            text += "\nPages, by process:\n";
        }
        text += &entry(0, label, 26, row);
    }
    if hidden > 0 {
        text += &indented(8, format!("and {} more: --all", counted(hidden, "process")));
    }
    text
}

fn refused(run: &Run) -> String {
    let mut text = String::new();
    for (&guard, &times) in &run.totals.refusals {
        if text.is_empty() {
            text += "\nRefused by the governor:\n";
        }
        let label = format!("{:>7} {guard}", count(times));
        let set = match settings(guard) {
            [] => String::new(),
            keys => format!(" {}", settings_of(keys, run)),
        };
        let said = format!("{}{set}", sentence(&stopped(meaning(guard))));
        text += &entry(0, &label, 26, &said);
    }
    text
}

fn asked(run: &Run) -> String {
    let hidden = run.asked.len().saturating_sub(MOST_SENTENCES);
    let mut text = String::new();
    for asked in &run.asked[hidden..] {
        if text.is_empty() {
            text += "\nRequests while it ran:\n";
        }
        let record = format!("#{}", asked.record);
        let label = format!("{record:>7} {:>9}", at(asked.time_ns));
        text += &entry(0, &label, 20, &sentence(&stopped(&asked.text)));
    }
    if hidden > 0 {
        text += &indented(8, format!("{} earlier: --all", counted(hidden, "request")));
    }
    text
}
