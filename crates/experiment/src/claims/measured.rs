//! Measurements of experiments: figures by claim, and details for the claims' notes.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use numaherd_quantity::statistics::Mean;

/// The figures that experiments measured for the claims of one paper.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    figures: Vec<(String, Vec<f64>)>,
    /// Half of the 95 % confidence interval of figures that depend on chance.
    intervals: BTreeMap<String, f64>,
    details: BTreeMap<String, String>,
    /// Claims whose figures depend neither on chance nor on the length of a run.
    exact: BTreeSet<String>,
    /// Why there are no figures for claims about traces, if so.
    pub without_traces: Option<String>,
    /// What was measured under variations, by their names.
    varied: BTreeMap<String, Measured>,
}

impl Measured {
    /// No measurements yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the figure of a claim; for a ranking, its margin.
    pub fn figure(&mut self, id: impl Into<String>, figure: f64) {
        self.figures.push((id.into(), vec![figure]));
    }

    /// Adds the figures of a ranking, in the paper's order, the largest first.
    pub fn order(&mut self, id: impl Into<String>, figures: impl IntoIterator<Item = f64>) {
        self.figures
            .push((id.into(), figures.into_iter().collect()));
    }

    /// Adds the text that replaces `{name}` in notes.
    pub fn detail(&mut self, name: impl Into<String>, text: impl Display) {
        self.details.insert(name.into(), text.to_string());
    }

    /// Adds the 95 % confidence interval of each figure, from the measurements without each of the runs in turn (the
    /// delete-one jackknife). Fewer than three runs give no interval.
    #[must_use]
    pub fn with_replicates(mut self, without: &[Self]) -> Self {
        if without.len() < 3 {
            return self;
        }
        let known = self.figures.iter().filter_map(|(id, _)| {
            let each = without.iter().map(|one| one.figures_of(id).map(margin));
            let each: Vec<f64> = each.collect::<Option<_>>()?;
            Some((id.clone(), jackknife(&each)?))
        });
        self.intervals = known.collect();
        self
    }

    /// Marks all figures so far as exact: they depend neither on chance nor on the length of a run, so any run must
    /// reproduce the record.
    #[must_use]
    pub fn exact(mut self) -> Self {
        self.exact = self.figures.iter().map(|(id, _)| id.clone()).collect();
        self
    }

    /// Whether a claim's figure is exact.
    pub fn is_exact(&self, id: &str) -> bool {
        self.exact.contains(id)
    }

    /// Adds what was measured under a variation.
    pub fn vary(&mut self, variation: impl Into<String>, measured: Self) {
        self.varied.insert(variation.into(), measured);
    }

    /// What was measured under a variation.
    pub(super) fn under(&self, variation: &str) -> Option<&Self> {
        self.varied.get(variation)
    }

    /// Adds another experiment's measurements.
    pub fn append(&mut self, mut other: Self) {
        self.figures.append(&mut other.figures);
        self.intervals.append(&mut other.intervals);
        self.details.append(&mut other.details);
        self.exact.append(&mut other.exact);
        self.varied.append(&mut other.varied);
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

    pub(super) fn interval_of(&self, id: &str) -> Option<f64> {
        self.intervals.get(id).copied()
    }

    pub(super) fn detail_of(&self, name: &str) -> Option<&str> {
        self.details.get(name).map(String::as_str)
    }
}

/// Half of the 95 % confidence interval of a figure, from its values without each of the runs in turn. `None` for fewer
/// than three runs.
pub fn jackknife(without: &[f64]) -> Option<f64> {
    // The mean's interval assumes independent figures; replicates differ less than runs, by a factor of the number of
    // runs less one.
    let half = Mean::of(without)?.half?;
    (without.len() > 2).then(|| half * (without.len() - 1) as f64)
}

/// A single figure as it is. For the figures of a ranking, largest first: the least difference of two neighbours, NaN
/// if one of them is NaN.
pub(super) fn margin(figures: &[f64]) -> f64 {
    if let [figure] = *figures {
        return figure;
    }
    let steps = figures.windows(2).map(|pair| pair[0] - pair[1]);
    let least = steps.reduce(|one, other| match one.is_nan() || other.is_nan() {
        true => f64::NAN,
        false => one.min(other),
    });
    least.unwrap_or(f64::NAN)
}

/// A figure with three significant digits, or all digits before the point.
pub fn short(figure: f64) -> String {
    let before = figure.abs().max(1e-9).log10().floor() as i32 + 1;
    let decimals = (3 - before).clamp(0, 4) as usize;
    let text = format!("{figure:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    if text == "-0" {
        "0".to_owned()
    } else {
        text.to_owned()
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

/// Like [`list`], with signs: `mcf +67, omnetpp -4`.
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
