//! The record of claims that held, `docs/fidelity.json`. `reproduce --record` renews it, later runs are compared with
//! it, and `docs/FIDELITY.md` is generated from it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Claim, ClaimsError, Kind, Paper, Statement, Variation};

/// Significant digits of recorded figures: few enough that rounding differences between processors do not show.
const DIGITS: usize = 4;

/// A larger file is not a record.
const MOST_BYTES: u64 = 16 << 20;

/// Claims and whether they hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this form.
    pub schema: u32,
    /// How the lines of each paper were measured, in the order of the papers.
    pub measurements: Vec<Measurement>,
    /// One line for each claim, paper by paper.
    pub lines: Vec<CheckedClaim>,
    /// What variations gave, paper by paper.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variations: Vec<Varied>,
}

/// What a paper's experiments gave under a [`Variation`](super::Variation), in one run each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Varied {
    /// The paper.
    pub paper: Paper,
    /// The variation's name.
    pub name: String,
    /// What it changes, in words.
    pub what: String,
    /// In how many runs, each with its own seed.
    pub runs: u32,
    /// The figure of each claim that has one.
    pub ours: BTreeMap<String, f64>,
    /// The claims that held. In one run no chance is known, so an order holds if its margin is positive.
    pub holds: BTreeSet<String>,
}

impl Varied {
    /// What a variation gave, from the claims as they were judged under it.
    pub fn new(paper: Paper, variation: &Variation, lines: &[CheckedClaim]) -> Self {
        let ours = lines
            .iter()
            .filter_map(|line| Some((line.id.clone(), line.ours?)));
        let held = lines.iter().filter(|line| line.holds);
        Self {
            paper,
            name: variation.name.clone(),
            what: variation.what.clone(),
            runs: variation.runs,
            ours: ours.collect(),
            holds: held.map(|line| line.id.clone()).collect(),
        }
    }
}

/// How the lines of a paper were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The paper.
    pub paper: Paper,
    /// The commit of the program, if known.
    pub commit: Option<String>,
    /// Runs of each experiment that depends on chance.
    pub runs: u32,
    /// Modelled seconds that stand for an hour in experiments of a fixed time.
    pub hour_s: f64,
    /// Placement intervals for which recordings were played and measured after their set-up; `None` if they were played
    /// once, or if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<u64>,
}

/// A claim and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckedClaim {
    /// The paper that makes the claim.
    pub paper: Paper,
    /// The claim's id, unique within its paper.
    pub id: String,
    /// Section or figure of the paper.
    pub section: String,
    /// The claim in words.
    pub what: String,
    /// Unit of both figures.
    pub unit: String,
    /// What the paper says.
    #[serde(flatten)]
    pub statement: Statement,
    /// Where its figure is from.
    pub kind: Kind,
    /// The measured figure; `None` when there is none.
    pub ours: Option<f64>,
    /// Half of its 95 % confidence interval; `None` if it does not depend on chance, or for fewer than three runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<f64>,
    /// Whether the claim holds.
    pub holds: bool,
    /// A note for readers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl CheckedClaim {
    /// A claim with its measured figure. The whole figure decides whether the claim holds; four significant
    /// digits are recorded.
    pub(super) fn of(
        paper: Paper,
        claim: &Claim,
        ours: f64,
        interval: Option<f64>,
        note: String,
    ) -> Self {
        Self {
            paper,
            id: claim.id.clone(),
            section: claim.section.clone(),
            what: claim.what.clone(),
            unit: claim.unit.clone(),
            statement: claim.statement,
            kind: claim.kind,
            ours: ours.is_finite().then(|| rounded(ours)),
            interval: interval.map(rounded),
            holds: claim.statement.holds(ours, interval.unwrap_or(0.0)),
            note,
        }
    }
}

/// A figure with [`DIGITS`] significant digits.
pub(super) fn rounded(figure: f64) -> f64 {
    let text = format!("{figure:.*e}", DIGITS - 1);
    text.parse().unwrap_or(figure)
}

impl Record {
    /// A record of these lines, how they were measured, and what variations gave.
    pub fn new(
        measurements: Vec<Measurement>,
        lines: Vec<CheckedClaim>,
        variations: Vec<Varied>,
    ) -> Self {
        Self {
            schema: 3,
            measurements,
            lines,
            variations,
        }
    }

    /// The record that this program was built with.
    ///
    /// # Errors
    /// `docs/fidelity.json` was damaged when the program was built; a test reads it.
    pub fn built_in() -> Result<Self, ClaimsError> {
        let text = include_str!("../../../../docs/fidelity.json");
        Self::parse(text, "docs/fidelity.json".as_ref())
    }

    /// The record in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a record.
    pub fn read(path: &Path) -> Result<Self, ClaimsError> {
        let text = numaherd_files::read::text(path, MOST_BYTES)?;
        Self::parse(&text, path)
    }

    /// Parses a file's text. The path is only for messages.
    ///
    /// # Errors
    /// The text is not a record.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ClaimsError> {
        serde_json::from_str(text).map_err(|source| ClaimsError::NoRecord {
            file: path.to_owned(),
            source,
        })
    }

    /// The text of the record's file.
    ///
    /// # Errors
    /// Never: a record consists of text and finite figures.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Keeps only the lines and measurements of these papers.
    #[must_use]
    pub fn of(mut self, papers: &[Paper]) -> Self {
        self.lines.retain(|line| papers.contains(&line.paper));
        self.measurements.retain(|one| papers.contains(&one.paper));
        self.variations.retain(|one| papers.contains(&one.paper));
        self
    }

    /// This record, with the lines of `before` for papers without lines here.
    #[must_use]
    pub fn with_others_of(mut self, before: Self) -> Self {
        let papers: Vec<Paper> = self.lines.iter().map(|line| line.paper).collect();
        let others = before.lines.into_iter();
        self.lines
            .extend(others.filter(|line| !papers.contains(&line.paper)));
        self.lines.sort_by_key(|line| line.paper);
        let others = before.measurements.into_iter();
        self.measurements
            .extend(others.filter(|one| !papers.contains(&one.paper)));
        self.measurements.sort_by_key(|one| one.paper);
        let others = before.variations.into_iter();
        self.variations
            .extend(others.filter(|one| !papers.contains(&one.paper)));
        self.variations.sort_by_key(|one| one.paper);
        self
    }

    /// The lines of `before` that held and no longer hold, or that are missing although this record has lines of their
    /// paper.
    pub fn fallen<'a>(&self, before: &'a Self) -> Vec<&'a CheckedClaim> {
        let fell = |old: &&CheckedClaim| {
            let mut of_paper = self.lines.iter().filter(|line| line.paper == old.paper);
            old.holds
                && of_paper.clone().next().is_some()
                && !of_paper.any(|line| line.id == old.id && line.holds)
        };
        before.lines.iter().filter(fell).collect()
    }
}
