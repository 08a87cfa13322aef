//! The outcome of a trial: its result as it was printed, how it was made, and its pairs.

use maud::{Markup, html};

use super::Escaped;
use crate::markup::seen;
use crate::report::Run;
use crate::report::draw::pairs;
use crate::words::{sentence, stopped};

/// A run's trial; nothing if the run was not a trial.
pub(super) fn trial(number: usize, run: &Run) -> Markup {
    let Some(trial) = &run.charts.trial else {
        return Markup::default();
    };
    let sentences = trial.sentences();
    let description: String = sentences.join(". ").chars().map(seen).collect();
    html! {
        h3 { "Trial" }
        @for (at, sentence) in sentences.iter().enumerate() {
            p { @if at == 0 { b { (Escaped(sentence)) } } @else { (Escaped(sentence)) } }
        }
        @for (title, what) in trial.details(&run.model.totals, run.model.ended.as_ref()) {
            p { (sentence(title)) ": " (Escaped(&stopped(&what))) }
        }
        @if run.source.later_part {
            p.warn role="note" { "The result is of the pairs in this file; those before it are missing." }
        }
        (pairs(&format!("run-{number}-pairs"), trial, &stopped(&description)))
    }
}
