//! What experiments measured: figures by claim, and details for the claims' notes.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Display;

/// The figures that experiments measured for the claims of one paper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    figures: Vec<(String, Vec<f64>)>,
    details: BTreeMap<String, String>,
    /// Why there are no figures of claims about traces, where there are none.
    pub without_traces: Option<String>,
}

impl Measured {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The figure of a claim; of a ranking, its margin.
    pub fn figure(&mut self, id: impl Into<String>, figure: f64) {
        self.figures.push((id.into(), vec![figure]));
    }

    /// The figures of a ranking in the order in which the paper has them, the largest first.
    pub fn order(&mut self, id: impl Into<String>, figures: impl IntoIterator<Item = f64>) {
        self.figures
            .push((id.into(), figures.into_iter().collect()));
    }

    /// The text that stands where notes have `{name}`.
    pub fn detail(&mut self, name: impl Into<String>, text: impl Display) {
        self.details.insert(name.into(), text.to_string());
    }

    /// Adds what another experiment measured.
    pub fn append(&mut self, mut other: Self) {
        self.figures.append(&mut other.figures);
        self.details.append(&mut other.details);
        self.without_traces = self.without_traces.take().or(other.without_traces);
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.figures.iter().map(|(id, _)| id.as_str())
    }

    pub(super) fn details(&self) -> impl Iterator<Item = &str> {
        self.details.keys().map(String::as_str)
    }

    pub(super) fn figures_of(&self, id: &str) -> Option<&[f64]> {
        let mut figures = self.figures.iter();
        Some(&figures.find(|figure| figure.0 == id)?.1)
    }

    pub(super) fn detail_of(&self, name: &str) -> Option<&str> {
        self.details.get(name).map(String::as_str)
    }
}

/// Figures with their names, for a detail: `mcf 67, omnetpp 44`.
pub fn list<N: Display>(
    figures: impl IntoIterator<Item = (N, impl Borrow<f64>)>,
    decimals: usize,
) -> String {
    let each = figures.into_iter();
    let each = each.map(|(name, figure)| format!("{name} {:.decimals$}", figure.borrow()));
    each.collect::<Vec<_>>().join(", ")
}

/// The same with signs: `mcf +67, omnetpp -4`.
pub fn changes<N: Display>(
    figures: impl IntoIterator<Item = (N, impl Borrow<f64>)>,
    decimals: usize,
) -> String {
    let each = figures.into_iter();
    let each = each.map(|(name, figure)| format!("{name} {:+.decimals$}", figure.borrow()));
    each.collect::<Vec<_>>().join(", ")
}

/// A part of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Text as it is.
    Text(&'a str),
    /// The name of a detail, in braces in the note.
    Detail(&'a str),
}

/// The parts of a note. A brace without a partner is text.
pub(super) fn parts(note: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = note;
    std::iter::from_fn(move || {
        let open = rest.find('{').unwrap_or(rest.len());
        if open > 0 {
            let (text, other) = rest.split_at(open);
            rest = other;
            return Some(Part::Text(text));
        }
        let Some(close) = rest.find('}') else {
            let text = std::mem::take(&mut rest);
            return (!text.is_empty()).then_some(Part::Text(text));
        };
        let name = &rest[1..close];
        rest = &rest[close + 1..];
        Some(Part::Detail(name))
    })
}
