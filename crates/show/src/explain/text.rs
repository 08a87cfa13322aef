//! An explanation in sentences: of what was chosen, or of everything.
//!
//! A thread may have thousands of decisions. If a process was chosen, the text shows the first and last decisions of
//! each thread, how many it leaves out and how to see them. Chosen threads and chosen decisions are shown in full.

mod decision;

use itertools::Itertools as _;
use numaherd_world::{MemoryKind, Residency, SignalReport, SignalState};

use super::{CitedRule, Decision, Explanation, ProcessStory, Ran, Run, Source, ThreadStory};
use crate::guards::each_refused;
use crate::reading::Homes;
use crate::summary;
use crate::words::{
    at, count, counted, cpus, date, entry, indented, listed, misses, nanoseconds, paragraph,
    sentence, stopped, time,
};

/// Most decisions that are shown of each chosen thread: the first and the last.
const MOST_OF_CHOSEN: (usize, usize) = (8, 4);

/// All decisions.
const ALL: (usize, usize) = (usize::MAX, 0);

/// Most notices that are shown, and most gaps.
const MOST_SENTENCES: usize = 20;

/// What was chosen, as text of many lines.
pub fn text(explanation: &Explanation) -> String {
    let chosen = &explanation.chosen;
    let few = chosen.tid.is_none() && !chosen.is_of_decisions();
    told(explanation, if few { MOST_OF_CHOSEN } else { ALL })
}

/// The same with nothing left out.
pub fn whole(explanation: &Explanation) -> String {
    told(explanation, ALL)
}

fn told(explanation: &Explanation, most: (usize, usize)) -> String {
    let ledger = &explanation.ledger;
    let begun = ledger.begun_unix_ms;
    let begun = begun.map_or_else(String::new, |ms| format!(", begun {}", date(ms)));
    let mut text = paragraph(format!("Ledger of {}{begun}.", ledger.program));
    text += &damage(ledger);
    match &explanation.run {
        Some(run) if explanation.chosen.is_of_decisions() => text += &which_run(run),
        Some(run) => text += &whole_run(run),
        None => text += &paragraph("The ledger ends before the run's start was recorded."),
    }
    text += &processes(explanation, most);
    text
}

/// What is missing from a ledger.
pub(super) fn damage(source: &Source) -> String {
    let mut text = String::new();
    if source.later_part {
        text += &paragraph(
            "This file begins in the middle of the run: the part before it is in the file of the \
             same name with .1 at its end, unless that was written over.",
        );
    }
    if let Some(damage) = &source.damage {
        text += &entry(0, "DAMAGED:", 9, &stopped(damage));
    }
    if source.unknown_records > 0 {
        let records = counted(source.unknown_records, "record");
        text += &paragraph(format!(
            "{records} of kinds that this program does not know were skipped."
        ));
    }
    text
}

fn which_run(run: &Run) -> String {
    let machine = &run.machine;
    let settings = &run.settings;
    let pages = if run.pager {
        "pages in a thread of their own every "
    } else {
        "pages along with them, at most every "
    };
    let mut text = paragraph(format!(
        "{} on {}: {}, {}, {}. Seed {}. Threads were placed every {}, {pages}{}.",
        run.policy,
        machine.name,
        counted(machine.nodes, "node"),
        counted(machine.domains, "memory domain"),
        counted(machine.cpus, "CPU"),
        run.seed,
        time(nanoseconds(settings.placement_interval(u64::MAX))),
        time(nanoseconds(settings.paging_interval())),
    ));
    if let Some(about) = &run.about {
        let what = stopped(&format!("{}: {}", run.policy, about.what));
        text += &paragraph(format!("{what} From: {}.", about.source));
    }
    text
}

fn whole_run(run: &Run) -> String {
    let mut text = which_run(run);
    text += "\n";
    text += &signals(&run.signals);
    text += "\n";
    text += &done(run);
    let said = run.notices.iter().map(|said| &said.text);
    text += &summary::notices(said.take(MOST_SENTENCES));
    text += &more(run.notices.len().saturating_sub(MOST_SENTENCES), "sentence");
    let gaps = &run.gaps[..run.gaps.len().min(MOST_SENTENCES)];
    if !gaps.is_empty() {
        text += "Not observed at times:\n";
    }
    for gap in gaps {
        let intervals = counted(gap.intervals, "interval");
        text += &entry(2, "*", 4, &format!("{} (in {intervals})", gap.text));
    }
    text += &more(run.gaps.len() - gaps.len(), "sentence");
    if !run.asked.is_empty() {
        text += "Requests while it ran:\n";
    }
    for asked in &run.asked {
        let label = format!("#{} at {}", asked.record, at(asked.time_ns));
        text += &entry(2, &label, 20, &sentence(&stopped(&asked.text)));
    }
    text
}

/// Settings with their values in a run, as a sentence: what to change for another result.
pub(super) fn settings_of(keys: &[&str], run: &Run) -> String {
    let limits = serde_json::to_value(&run.settings.limits).unwrap_or_default();
    let each = keys.iter().map(|key| {
        let value = limits.pointer(&format!("/{}", key.replace('.', "/")));
        match value.filter(|value| !value.is_null()) {
            Some(value) => format!("{key} = {value}"),
            None => format!("{key} (not set)"),
        }
    });
    format!("Set by [herd.limits] {}.", each.format(", "))
}

fn more(left_out: usize, what: &str) -> String {
    match left_out {
        0 => String::new(),
        _ => indented(
            4,
            format!("and {} more: see --json", counted(left_out, what)),
        ),
    }
}

fn signals(signals: &[SignalReport]) -> String {
    let mut text = String::new();
    for report in signals {
        let label = sentence(&report.signal.to_string());
        let state = match &report.state {
            SignalState::Measured { source, caveat } => {
                let caveat = caveat.as_ref().map(|caveat| format!(" ({caveat})"));
                stopped(&format!(
                    "measured by {source}{}",
                    caveat.unwrap_or_default()
                ))
            }
            SignalState::Missing { reason, remedy } => {
                format!(
                    "MISSING: {} To get it: {}",
                    stopped(reason),
                    stopped(remedy)
                )
            }
        };
        text += &entry(0, &label, 28, &state);
    }
    text
}

fn done(run: &Run) -> String {
    let totals = &run.totals;
    let length = time(totals.duration_ns);
    let intervals = counted(totals.intervals, "interval");
    let mut text = match &run.ending {
        Some(ending) => {
            let ending = summary::ending(ending);
            paragraph(format!("It ran for {length} ({intervals}) until {ending}"))
        }
        None => paragraph(format!(
            "{length} ({intervals}) can be read; the ledger does not say how the run ended. If \
                 it was killed, `numaherd release` restores the threads that it held."
        )),
    };
    let settings = &run.settings;
    text += &summary::done(totals, (!settings.dry_run).then_some(settings.enforce));
    text
}

fn processes(explanation: &Explanation, most: (usize, usize)) -> String {
    let run = explanation.run.as_ref();
    let mut rules: Vec<&CitedRule> = Vec::new();
    let mut text = String::new();
    for process in &explanation.processes {
        text += "\n";
        text += &process_story(process, run, most);
        rules.extend(rules_of(&process.threads));
    }
    if explanation.processes.is_empty() {
        text += "\nNothing was wanted for any thread or its pages.\n";
    }
    text += &left_out(explanation);
    text += &legend(rules);
    let threads = explanation.processes.iter().flat_map(|p| &p.threads);
    text + &terms(threads.flat_map(|thread| &thread.decisions))
}

/// Defines the decisions' figures, where there are any.
fn terms<'e>(mut decisions: impl Iterator<Item = &'e Decision> + Clone) -> String {
    let mut text = String::new();
    let mut all = decisions.clone();
    if all.any(|decision| decision.alternative.is_some()) {
        text += &entry(
            2,
            "staying, going",
            17,
            "For pages: leaving and moving them. Estimated by this program, not by the policy, from the preceding \
             interval, with all other threads where the plan puts them. Misses of neighbours: the pressure on \
             the last-level cache [N-MASS 3.3]. Cycles: per instruction, over those with all memory \
             local, by the regression of the NUMA penalty on the miss rate [N-MASS 4.5] for the share \
             of pages that is remote, capped by the firmware's distances.",
        );
    }
    if decisions.any(|decision| decision.followed.is_some()) {
        text += &entry(
            2,
            "after, settled",
            17,
            "Instructions per second of CPU time, compared with up to 3 intervals before, with their \
             spread in parentheses. The decision need not be the cause: other threads moved, and \
             programs change by themselves.",
        );
    }
    if !text.is_empty() {
        text = format!("\nWhat the figures are:\n{text}");
    }
    text
}

fn rules_of(threads: &[ThreadStory]) -> impl Iterator<Item = &CitedRule> {
    let decisions = threads.iter().flat_map(|thread| &thread.decisions);
    decisions.filter_map(|decision| decision.rule.as_ref())
}

/// What the named rules do.
fn legend(mut rules: Vec<&CitedRule>) -> String {
    rules.sort_unstable_by_key(|rule| &rule.name);
    rules.dedup();
    let mut text = String::new();
    if !rules.is_empty() {
        text += "\nRules:\n";
    }
    for rule in rules {
        let what = match (rule.what, rule.source) {
            (Some(what), Some(source)) => format!("{what} [{source}]"),
            _ => "Unknown to this program".to_owned(),
        };
        text += &entry(2, &rule.name, 34, &stopped(&what));
    }
    text
}

fn left_out(explanation: &Explanation) -> String {
    let chosen = &explanation.chosen;
    let left_out = explanation.left_out_threads;
    if left_out == 0 || chosen.is_of_decisions() {
        return String::new();
    }
    let text = format!(
        "Not shown: {} for which nothing was wanted; `--pid` or `--tid` shows one.",
        counted(left_out, "thread")
    );
    format!("\n{}", paragraph(text))
}

fn process_story(process: &ProcessStory, run: Option<&Run>, most: (usize, usize)) -> String {
    let Some(pid) = process.pid else {
        let mut text = "Threads that were named but never observed\n".to_owned();
        for thread in &process.threads {
            text += &thread_story(thread, run, most);
        }
        return text;
    };
    let name = process.name.as_deref().unwrap_or("never seen");
    let mut text = paragraph(format!("Process {pid} ({name})"));
    if let Some(group) = &process.group {
        text += &indented(2, format!("Of the group {group}."));
    }
    if let Some(guest) = &process.guest {
        let row = format!("Virtual machine {}: {}.", guest.name, guest.row());
        text += &indented(2, &row);
    }
    if let Some(policy) = &process.memory_policy {
        let row = format!("Its memory has a policy of its user's ({policy}) and is left alone.");
        text += &indented(2, row);
    }
    text += &indented(2, homes(process));
    for row in process.pages.iter().flat_map(kinds) {
        text += &indented(2, row);
    }
    for thread in &process.threads {
        text += &thread_story(thread, run, most);
    }
    text
}

fn homes(process: &ProcessStory) -> String {
    let Some(pages) = &process.pages else {
        return "The location of its pages was not read.".to_owned();
    };
    let first = where_pages_are(&pages.first);
    if pages.first == pages.last {
        return format!("Pages: {first}.");
    }
    let last = where_pages_are(&pages.last);
    let both = format!("Pages at first: {first}; at last: {last}.");
    match (pages.first.home(), pages.last.home()) {
        (Some(from), Some(to)) if from != to => {
            format!("Home moved from node {from} to node {to}. {both}")
        }
        (Some(home), Some(_)) => format!("Home is node {home}. {both}"),
        _ => both,
    }
}

/// Where the pages of each kind are, if kinds were distinguished.
fn kinds(pages: &Homes) -> Vec<String> {
    let of = |kind: MemoryKind| {
        let last = pages.last.of_kind(kind)?;
        let first = pages.first.of_kind(kind).unwrap_or_default();
        if first.total() == 0 && last.total() == 0 {
            return None;
        }
        let kinds = pages.last.kinds.as_ref()?;
        let (what, is_again) = match kind {
            MemoryKind::Private => ("Private", false),
            MemoryKind::Shared => ("Shared memory", kinds.shared.again),
            MemoryKind::File => ("Files", kinds.file.again),
        };
        let again = match is_again {
            true => " (mapped more than once)",
            false => "",
        };
        let at_last = where_pages_are(&last);
        Some(match first == last {
            true => format!("{what}{again}: {at_last}."),
            false => {
                let at_first = where_pages_are(&first);
                format!("{what}{again}: {at_first} at first; {at_last} at last.")
            }
        })
    };
    MemoryKind::ALL.into_iter().filter_map(of).collect()
}

fn where_pages_are(residency: &Residency) -> String {
    let there = residency.pages.iter().filter(|(_, pages)| *pages > 0);
    let each = there.map(|&(node, pages)| format!("{} on node {node}", count(pages)));
    match listed(each) {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    }
}

fn thread_story(thread: &ThreadStory, run: Option<&Run>, most: (usize, usize)) -> String {
    let name = match thread.name.as_str() {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    let mut text = format!("\n  Thread {}{name}\n", thread.tid);
    if let Some(reason) = &thread.hands_off {
        text += &indented(4, format!("Left alone: {}", stopped(reason)));
    }
    if thread.intervals > 0 {
        text += &indented(4, rates(thread));
        text += &indented(4, format!("Ran on {}.", stays(&thread.ran)));
    }
    text += &indented(4, came_to(thread));
    let (first, last) = most;
    let all = thread.decisions.len();
    let hidden = all.saturating_sub(first.saturating_add(last));
    for (at, decision) in thread.decisions.iter().enumerate() {
        if at == first && hidden > 0 {
            let hidden = counted(hidden, "more decision");
            let text_of = format!("... {hidden}: `--tid {}` shows all ...", thread.tid);
            text += &indented(4, &text_of);
        }
        if hidden == 0 || at < first || at >= all - last {
            text += &decision::text(decision, run);
        }
    }
    text
}

fn rates(thread: &ThreadStory) -> String {
    let Some(rate) = &thread.miss_rate else {
        let intervals = counted(thread.intervals, "interval");
        return format!("Seen in {intervals}; its misses were not counted.");
    };
    let classes = thread.classes.iter();
    let classes = classes.map(|(class, &intervals)| match intervals == rate.intervals {
        true => format!("{class} all the time"),
        false => format!("{class} in {}", counted(intervals, "interval")),
    });
    let (least, most) = (misses(rate.min), misses(rate.max));
    let spread = match least == most {
        true => String::new(),
        false => format!(" ({least} to {most})"),
    };
    format!(
        "{} misses per 1000 instructions{spread} over {}; by DINO's borders: {}.",
        misses(rate.mean),
        counted(rate.intervals, "interval"),
        listed(classes)
    )
}

pub(super) fn stays(ran: &[Ran]) -> String {
    listed(ran.iter().map(|ran| {
        let node = match ran.node {
            Some(node) => format!("node {node}"),
            None => "no node of the machine".to_owned(),
        };
        let intervals = counted(ran.intervals, "interval");
        format!("{node} ({}) in {intervals}", cpus(&ran.cpus))
    }))
}

fn came_to(thread: &ThreadStory) -> String {
    let moved = match thread.moves {
        0 => "never moved".to_owned(),
        1 => "moved once".to_owned(),
        moves => format!("moved {} times", count(moves)),
    };
    let pages = match thread.pages_moved {
        0 => "no page moved for it".to_owned(),
        pages => format!("{} moved for it", counted(pages, "page")),
    };
    match each_refused(&thread.refusals) {
        none if none.is_empty() => format!("In total: {moved}, {pages}."),
        each => format!("In total: {moved}, {pages}, refusals: {each}."),
    }
}
