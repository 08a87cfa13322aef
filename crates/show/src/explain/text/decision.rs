//! One decision in labelled sentences: its name and headline, what was seen, the rule, the reason, the alternative and
//! the costs of both, what the governor said, what happened, where things were found afterwards, and what followed.

use itertools::Itertools as _;
use numaherd_topology::{CpuId, NodeId};
use numaherd_world::MemoryKind;

use super::{settings_of, stays};
use crate::explain::followed::LEAST_CHANGE;
use crate::explain::{
    Change, CitedRule, Cost, Decision, Followed, Happened, PagesMoved, Run, Seen, Side,
    SpeedChange, Verdict, Wanted, Way,
};
use crate::summary;
use crate::words::{
    at, count, counted, cpus, entry, indented, many, misses, percent, sentence, short, stopped,
    time,
};

/// Where the sentences after the labels begin.
const COLUMN: usize = 17;

/// A decision as text of some lines.
pub(super) fn text(decision: &Decision, run: Option<&Run>) -> String {
    let mut text = indented(4, headline(decision));
    let mut say = |label, sentence: String| text += &entry(6, label, COLUMN, &sentence);
    if let Some(seen) = &decision.seen {
        say("seen", saw(seen));
    }
    if let Some(sampled) = &decision.sampled {
        let (all, remote) = (counted(sampled.accesses, "access"), count(sampled.remote));
        say(
            "sampled",
            format!("{all} in the interval, {remote} of them to other nodes."),
        );
    }
    if let Some(rule) = &decision.rule {
        say("rule", cited(rule));
    }
    if let Some(why) = &decision.why {
        say("because", stopped(why));
    }
    if let Some(instead_of) = &decision.instead_of {
        say("instead of", stopped(instead_of));
    }
    if let Some(alternative) = &decision.alternative {
        let pages = matches!(decision.wanted, Wanted::Pages { .. });
        let (stay, go, cost): (_, _, fn(&Cost) -> String) = if pages {
            ("left there", "moved", remote)
        } else {
            ("staying", "going", cost)
        };
        say(stay, cost(&alternative.staying));
        say(go, cost(&alternative.going));
    }
    if let Some(said) = governor(decision) {
        say("governor", said);
    }
    if let (Verdict::Refused { settings, .. }, Some(run)) = (&decision.governor, run)
        && !settings.is_empty()
    {
        say("settings", settings_of(settings, run));
    }
    if let Some(happened) = &decision.happened {
        say("happened", what_happened(happened));
    }
    if let Some(followed) = &decision.followed {
        say("verified", verified(followed));
        say("after", after(followed));
        if let Some(settled) = settled(followed) {
            say("settled", settled);
        }
        say("meanwhile", meanwhile(followed));
    }
    text
}

/// What a place would cost.
fn cost(cost: &Cost) -> String {
    let neighbours = match cost.neighbours {
        0 => "alone on its cache".to_owned(),
        threads => format!(
            "on its cache with {} of {} misses per 1000 together",
            counted(threads, "other thread"),
            misses(cost.pressure)
        ),
    };
    let place = format!("CPU {}, {neighbours}", cost.cpu);
    match cost.remote_pages {
        Some(_) => format!("{place}; {}", remote(cost)),
        None => stopped(&place),
    }
}

/// What the pages on other nodes would cost.
fn remote(cost: &Cost) -> String {
    let share = cost.remote_pages.map_or_else(
        || "where pages are is not known".to_owned(),
        |share| format!("{} of the process's pages remote", percent(share)),
    );
    match cost.slowdown {
        Some(slowdown) => format!("{share}: {slowdown:.2} times the cycles of local memory."),
        None => stopped(&share),
    }
}

/// Where thread and pages were found afterwards.
fn verified(followed: &Followed) -> String {
    let intervals = followed.after.intervals;
    let (next, stays) = (counted(intervals, "interval"), stays(&followed.after.ran));
    let mut text = format!("Over the next {next} it was found on {stays}");
    match followed.as_ordered {
        Some(within) if within == intervals => text += ", always where it was ordered to be",
        Some(within) => text += &format!(", {} times where it was ordered to be", count(within)),
        None => {}
    }
    text += ".";
    let shares = [
        (Some(&followed.before), "before"),
        (Some(&followed.after), "then"),
        (followed.settled.as_ref(), "once settled"),
    ];
    let mut shares = shares
        .into_iter()
        .filter_map(|(side, when)| Some(format!("{} {when}", percent(side?.pages_on_node?))))
        .peekable();
    if let (Some(node), Some(_)) = (followed.node, shares.peek()) {
        text += &format!(
            " Of the process's pages on node {node}: {}.",
            shares.format(", ")
        );
    }
    text
}

/// What else happened that may be the cause.
fn meanwhile(followed: &Followed) -> String {
    match followed.others_moved {
        0 => "No other thread was moved; the program may have changed by itself.".to_owned(),
        1 => "1 other thread was moved in these intervals, which may be the cause as well."
            .to_owned(),
        others => {
            let others = count(others);
            format!(
                "{others} other threads were moved in these intervals, which may be the cause as well."
            )
        }
    }
}

fn headline(decision: &Decision) -> String {
    let when = if decision.times == 1 {
        format!("#{} at {}", decision.first_record, at(decision.first_ns))
    } else {
        format!(
            "#{} to #{}, {} times from {} to {}",
            decision.first_record,
            decision.last_record,
            count(decision.times),
            at(decision.first_ns),
            at(decision.last_ns)
        )
    };
    format!("{when}: {}.", outcome(decision))
}

/// A verb in the forms for success and failure: after it was done (`moved`), after `refused to` (`move it`), after
/// `would have` (`moved it`).
type Verb = (&'static str, &'static str, &'static str);

const MOVE: Verb = ("moved", "move it", "moved it");
const GIVE: Verb = ("given", "give it", "given it");
const UNDO: Verb = (
    "the move was undone: taken",
    "undo the move: take it",
    "undone the move: taken it",
);
const GIVE_BACK: Verb = ("given back", "give it back", "given it back");
const SEND: Verb = ("sent", "send", "sent");

/// What was wanted and whether it came to pass, as the end of a sentence.
fn outcome(decision: &Decision) -> String {
    let ((done, plain, perfect), object) = match &decision.wanted {
        Wanted::Move(way) => (MOVE, from_to(way)),
        Wanted::Steal(way) => (GIVE, format!("{}, where CPUs were idle", from_to(way))),
        Wanted::Hold { cpu, node } => (
            GIVE,
            format!("{}, without having to move", place(*cpu, *node)),
        ),
        Wanted::Undo { from, to } => {
            let back = to.map_or_else(|| "to the kernel".to_owned(), |to| format!("to CPU {to}"));
            (UNDO, format!("from CPU {from} back {back}"))
        }
        Wanted::GiveBack => (GIVE_BACK, "to the kernel as it was found".to_owned()),
        Wanted::Pages { to, all, kind } => (SEND, pages(decision.wanted_pages, *to, *all, *kind)),
    };
    let said = match (&decision.governor, &decision.happened) {
        (Verdict::Refused { .. }, _) => format!("refused to {plain}"),
        (Verdict::Waiting, _) => format!("must wait to {plain}"),
        (_, Some(Happened::DryRun)) => format!("would have {perfect}"),
        (_, Some(Happened::Failed { .. })) => format!("failed to {plain}"),
        (_, Some(Happened::Gone)) => format!("too late to {plain}"),
        (_, None | Some(Happened::NotRecorded)) => format!("ordered to {plain}"),
        (_, Some(Happened::Done | Happened::Narrowed { .. } | Happened::Pages(_))) => {
            done.to_owned()
        }
    };
    format!("{said} {object}")
}

fn pages(wanted: Option<u64>, to: Option<NodeId>, all: bool, kind: Option<MemoryKind>) -> String {
    let which = match (wanted, kind) {
        (Some(pages), _) => counted(pages, "page"),
        (_, Some(MemoryKind::Private)) => "its private pages".to_owned(),
        (_, Some(MemoryKind::Shared)) => "its part of shared memory".to_owned(),
        (_, Some(MemoryKind::File)) => "its part of files' pages".to_owned(),
        (None, None) if all => "all pages of the process".to_owned(),
        (None, None) => "pages".to_owned(),
    };
    match to {
        Some(node) => format!("{which} to node {node}"),
        None => format!("{which} to another node"),
    }
}

fn from_to(way: &Way) -> String {
    let (from, to) = (place(way.from, way.from_node), place(way.to, way.to_node));
    format!("from {from} to {to}")
}

fn place(cpu: CpuId, node: Option<NodeId>) -> String {
    match node {
        Some(node) => format!("CPU {cpu} (node {node})"),
        None => format!("CPU {cpu} (not in the machine)"),
    }
}

fn saw(seen: &Seen) -> String {
    let mut parts = vec![match seen.miss_rate {
        Some(rate) => format!("{} misses per 1000 instructions", misses(rate)),
        None => "misses not counted".to_owned(),
    }];
    if let Some(local) = seen.local_access_ratio {
        parts.push(format!("{} of them local", percent(local)));
    }
    if let Some(penalty) = seen.uncore_penalty {
        parts.push(format!("{} cycles per uncore request", short(penalty)));
    }
    parts.push(format!("{} of a CPU used", percent(seen.cpu_share)));
    if let Some(home) = seen.home {
        parts.push(format!("memory mostly on node {home}"));
    }
    sentence(&format!("{}.", parts.join(", ")))
}

fn cited(rule: &CitedRule) -> String {
    match (rule.source, rule.what) {
        (Some(source), Some(_)) => format!("{} [{source}]", rule.name),
        _ => format!("{} (unknown to this program)", rule.name),
    }
}

fn governor(decision: &Decision) -> Option<String> {
    match &decision.governor {
        Verdict::Ordered { cpus: Some(set) } => {
            Some(format!("Allowed it; it may run on {}.", cpus(set)))
        }
        // The outcome shows that pages were let through.
        Verdict::Ordered { cpus: None } => None,
        Verdict::Refused { guard, why, .. } => Some(format!("Refused ({guard}): {}", stopped(why))),
        Verdict::Waiting => Some("Queued it until there is bandwidth.".to_owned()),
    }
}

fn what_happened(happened: &Happened) -> String {
    match happened {
        Happened::Done => "The mask was set, and read back equal.".to_owned(),
        Happened::Gone => "The thread had ended; nothing was touched.".to_owned(),
        Happened::Narrowed { now } => {
            format!(
                "The kernel keeps it to {}: its cpuset has changed.",
                cpus(now)
            )
        }
        Happened::Failed { error } => format!("The kernel refused: {}", stopped(error)),
        Happened::Pages(pages) => pages_moved(pages),
        Happened::DryRun => "Nothing: it was a dry run.".to_owned(),
        Happened::NotRecorded => "The ledger ends before the outcome.".to_owned(),
    }
}

fn pages_moved(pages: &PagesMoved) -> String {
    let mut text = format!("{} moved, as read back", counted(pages.moved, "page"));
    if pages.already_there > 0 {
        text += &format!("; {} were there already", count(pages.already_there));
    }
    if !pages.failed.is_empty() {
        text += &format!("; {}", summary::failures(&pages.failed));
    }
    if pages.not_tried > 0 {
        text += &format!("; {} not tried", count(pages.not_tried));
    }
    let (took, longest) = (time(pages.took_ns), time(pages.longest_batch_ns));
    text += &format!(". It took {took}, {longest} at a time at most.");
    if let Some(error) = &pages.error {
        text += &format!(" Stopped short: {}", stopped(error));
    }
    text
}

fn after(followed: &Followed) -> String {
    let after = &followed.after;
    let (speed, next) = (
        speed(followed.speed.as_ref()),
        counted(after.intervals, "interval"),
    );
    sentence(&format!("{speed} over the next {next}")) + &sides(&followed.before, after)
}

fn settled(followed: &Followed) -> Option<String> {
    let settled = followed.settled.as_ref()?;
    let text = format!(
        "{} over the last {} before its next move or the end",
        speed(followed.settled_speed.as_ref()),
        counted(settled.intervals, "interval")
    );
    Some(sentence(&text) + &sides(&followed.before, settled))
}

fn speed(change: Option<&SpeedChange>) -> String {
    let Some(change) = change else {
        return "speed not measured on both sides".to_owned();
    };
    let by = short(change.percent.abs());
    match change.change {
        Change::Faster => format!("{by} % faster"),
        Change::Slower => format!("{by} % slower"),
        Change::Unchanged => {
            let sign = if change.percent < 0.0 { "-" } else { "+" };
            let varied = match change.percent.abs() < LEAST_CHANGE * 100.0 {
                true => "",
                false => ", no more than it varied by before",
            };
            format!("speed unchanged ({sign}{by} %{varied})")
        }
    }
}

/// The range of the speeds before, if there are several.
fn spread(before: &Side) -> String {
    match (before.slowest, before.fastest) {
        (Some(slowest), Some(fastest)) if before.intervals > 1 => {
            let (slowest, fastest) = (many(slowest), many(fastest));
            let intervals = counted(before.intervals, "interval");
            match slowest == fastest {
                true => format!(" ({slowest} in each of {intervals})"),
                false => format!(" ({slowest} to {fastest} in {intervals})"),
            }
        }
        (Some(_), _) => " (in 1 interval)".to_owned(),
        _ => String::new(),
    }
}

/// The figures that were measured on both sides, and the end of the sentence.
fn sides(before: &Side, after: &Side) -> String {
    let mut parts = Vec::new();
    let mut pair = |what: &str, of: fn(&Side) -> Option<f64>, say: fn(f64) -> String| {
        if let (Some(was), Some(is)) = (of(before), of(after)) {
            parts.push(format!("{what} {}, was {}", say(is), say(was)));
        }
    };
    pair(
        "instructions per CPU second",
        |side| side.instructions_per_second,
        many,
    );
    pair("misses per 1000", |side| side.miss_rate, misses);
    pair("local accesses", |side| side.local_access_ratio, percent);
    pair(
        "cycles per uncore request",
        |side| side.uncore_penalty,
        short,
    );
    if parts.is_empty() {
        return ".".to_owned();
    }
    if after.instructions_per_second.is_some() && before.instructions_per_second.is_some() {
        parts[0] += &spread(before);
    }
    format!(": {}.", parts.join("; "))
}
