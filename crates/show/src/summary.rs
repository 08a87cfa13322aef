//! The end of a run in sentences: for the last lines of `run`, and the first of `explain`.

use std::collections::BTreeMap;

use numaherd_herd::{Ending, Summary, Totals};
use numaherd_world::{Enforcement, PageFailure};

use crate::guards::meaning;
use crate::losses::on_average;
use crate::run::sum;
use crate::words::{
    count, counted, entry, listed, misses, paragraph, percent, sentence, short, stopped, time,
};

/// A run's summary as text of several lines.
pub fn summary(summary: &Summary) -> String {
    let totals = &summary.totals;
    let mut text = paragraph(format!(
        "{} ran for {} ({}) until {}",
        summary.policy,
        time(totals.duration_ns),
        counted(totals.intervals, "interval"),
        ending(&summary.ending)
    ));
    text += &done(totals, (!summary.dry_run).then_some(summary.enforce));
    text += &notices(summary.notices.iter());
    text
}

/// Why it ended, as the end of a sentence, with its full stop.
pub(crate) fn ending(ending: &Ending) -> String {
    match ending {
        Ending::Intervals => "the intervals asked for were over.".to_owned(),
        Ending::Length => "the time asked for was over.".to_owned(),
        Ending::Stopped => "it was asked to stop.".to_owned(),
        Ending::World => "the watched processes had ended.".to_owned(),
        Ending::Failed { error } => {
            let error = stopped(error);
            format!("the machine could no longer be observed: {error}")
        }
    }
}

/// What was moved, measured, refused and restored. `enforced` is how placements were carried out; `None` for a dry run.
pub(crate) fn done(totals: &Totals, enforced: Option<Enforcement>) -> String {
    let mut text = match enforced {
        None => planned(totals),
        Some(_) => moved(totals),
    };
    if let Some(measured) = measured(totals) {
        text += &paragraph(measured);
    }
    for lost in on_average(totals) {
        text += &paragraph(lost);
    }
    let refused = sum(totals.refusals.values().copied());
    if refused > 0 {
        let wishes = counted(refused, "decision");
        text += &paragraph(format!("The governor refused {wishes} of the policy:"));
        for (&guard, &times) in &totals.refusals {
            let label = format!("{:>7} {guard}", count(times));
            text += &entry(2, &label, 30, &sentence(&stopped(meaning(guard))));
        }
    }
    if let (Some(restored), Some(enforced)) = (totals.restored, enforced) {
        text += &paragraph(format!("{}.", given_back(restored, enforced)));
    }
    text
}

/// What a person should know, one sentence for each notice.
pub(crate) fn notices<'n>(notices: impl Iterator<Item = &'n String>) -> String {
    let mut text = String::new();
    for notice in notices {
        if text.is_empty() {
            text += "Notices:\n";
        }
        text += &entry(2, "*", 4, &stopped(notice));
    }
    text
}

fn planned(totals: &Totals) -> String {
    let (threads, pages) = (totals.planned_thread_moves, totals.planned_pages);
    let planned = if (threads, pages) == (0, 0) {
        "It would have moved nothing.".to_owned()
    } else {
        format!(
            "It would have ordered {} and asked for {}; a move that is wanted in several intervals \
             counts in each.",
            counted(threads, "thread move"),
            counted(pages, "page")
        )
    };
    paragraph(format!(
        "Nothing was carried out: it was a dry run. {planned}"
    ))
}

fn moved(totals: &Totals) -> String {
    let (threads, pages) = (totals.thread_moves, totals.pages_moved);
    let mut text = if (threads, pages) == (0, 0) {
        paragraph("No thread and no page was moved.")
    } else {
        let (threads, pages) = (counted(threads, "thread move"), counted(pages, "page"));
        paragraph(format!("{threads} carried out; {pages} moved."))
    };
    if totals.undone > 0 {
        let moves = match totals.undone {
            1 => "move was undone because it",
            _ => "moves were undone because they",
        };
        let undone = count(totals.undone);
        text += &paragraph(format!("{undone} {moves} had made things worse."));
    }
    if totals.stolen > 0 {
        let threads = counted(totals.stolen, "thread");
        let it = match totals.stolen {
            1 => "it was",
            _ => "they were",
        };
        text += &paragraph(format!(
            "{threads} moved to an idle node because {it} held on a busy one."
        ));
    }
    let failed = sum(totals.pages_failed.values().copied());
    if failed > 0 {
        let pages = counted(failed, "page");
        let why = failures(&totals.pages_failed);
        text += &paragraph(format!("{pages} could not be moved: {why}."));
    }
    text
}

/// How many pages failed for each reason, as a phrase.
pub(crate) fn failures(failed: &BTreeMap<PageFailure, u64>) -> String {
    let each = failed.iter();
    listed(each.map(|(&failure, &pages)| format!("{} {}", count(pages), why_a_page(failure))))
}

fn why_a_page(failure: PageFailure) -> &'static str {
    match failure {
        PageFailure::NotThere => "were not in memory",
        PageFailure::Shared => "are shared with other processes",
        PageFailure::Busy => "were in use just then",
        PageFailure::NodeFull => "found the target node full",
        PageFailure::Unmovable => "cannot be moved (zero page or device)",
        PageFailure::Other => "for another reason",
    }
}

fn measured(totals: &Totals) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(rate) = totals.counted.miss_rate() {
        let rate = misses(rate);
        parts.push(format!(
            "{rate} cache lines per 1000 instructions came from memory"
        ));
        if let Some(local) = totals.counted.local_access_ratio().map(percent) {
            parts.push(format!(
                "{local} of those whose node was counted were local"
            ));
        }
    }
    if let Some(penalty) = totals.counted.uncore_penalty().map(short) {
        parts.push(format!(
            "the uncore penalty was {penalty} cycles per request"
        ));
    }
    (!parts.is_empty()).then(|| format!("{}.", sentence(&parts.join("; "))))
}

/// How many threads were given back at the end, as a sentence without its full stop.
pub(crate) fn given_back(restored: u64, enforce: Enforcement) -> String {
    let number = count(restored);
    match (enforce, restored) {
        (Enforcement::Affinity, 0) => "No affinity had to be restored".to_owned(),
        (Enforcement::Affinity, 1) => "1 thread has its own affinity back".to_owned(),
        (Enforcement::Affinity, _) => format!("{number} threads have their own affinities back"),
        (Enforcement::Scx, 0) => "No hint had to be taken back".to_owned(),
        (Enforcement::Scx, 1) => "1 thread's hint was taken back".to_owned(),
        (Enforcement::Scx, _) => format!("{number} threads' hints were taken back"),
    }
}
