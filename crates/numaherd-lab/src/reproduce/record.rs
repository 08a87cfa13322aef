//! The record of what held: `docs/fidelity.json`, which `--record` renews and later runs are held
//! against, and from which `docs/FIDELITY.md` is made.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{Claim, Effort, Kind, Paper, Says};
use numaherd::exit::{Exit, ended};

/// The record that this program was built with.
const BUILT_IN: &str = include_str!("../../../../docs/fidelity.json");

/// Significant digits of recorded figures: no more than mean anything, so that another processor's
/// last digits change nothing.
const DIGITS: i32 = 4;

/// Claims and what became of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Version of this form.
    pub schema: u32,
    /// Runs of each experiment with chance in it.
    pub runs: u32,
    /// Modelled seconds of experiments of a fixed time.
    pub hour_s: f64,
    /// The claims, paper by paper, in their order.
    pub lines: Vec<Line>,
}

/// A claim and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Whose claim it is.
    pub paper: Paper,
    /// What it is known by, within its paper.
    pub id: String,
    /// Section or figure of the paper.
    pub section: String,
    /// The claim in words.
    pub what: String,
    /// Of both figures.
    pub unit: String,
    /// What the paper says.
    #[serde(flatten)]
    pub says: Says,
    /// Stated or proxy.
    pub kind: Kind,
    /// The model's figure; `None` when it has none.
    pub ours: Option<f64>,
    /// Whether it holds.
    pub holds: bool,
    /// What must be known to read the line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Line {
    /// Puts a claim down.
    pub fn of(paper: Paper, claim: Claim) -> Self {
        Self {
            paper,
            holds: claim.holds(),
            ours: claim.ours.is_finite().then(|| rounded(claim.ours)),
            id: claim.id,
            section: claim.section,
            what: claim.what,
            unit: claim.unit,
            says: claim.says,
            kind: claim.kind,
            note: claim.note,
        }
    }
}

/// A figure with [`DIGITS`] significant digits.
fn rounded(figure: f64) -> f64 {
    let text = format!("{figure:.*e}", (DIGITS - 1) as usize);
    text.parse().unwrap_or(figure)
}

impl Record {
    /// What was run with that effort.
    pub fn new(effort: &Effort, lines: Vec<Line>) -> Self {
        Self {
            schema: 1,
            runs: effort.runs,
            hour_s: effort.hour_s,
            lines,
        }
    }

    /// The record that this program was built with.
    ///
    /// # Errors
    /// Never: a test reads it.
    pub fn built_in() -> Result<Self> {
        serde_json::from_str(BUILT_IN).context("the record that numaherd was built with is damaged")
    }

    /// The record in a file.
    ///
    /// # Errors
    /// The file cannot be read, or is no record.
    pub fn read(path: &Path) -> Result<Self> {
        let shown = path.display();
        let usage = |told: String| ended(Exit::Usage, told);
        let text = fs::read_to_string(path)
            .map_err(|error| usage(format!("cannot read the record {shown}: {error}")))?;
        serde_json::from_str(&text)
            .map_err(|error| usage(format!("{shown} is no record of claims: {error}")))
    }

    /// As a file holds it.
    ///
    /// # Errors
    /// Never: it is made of text and finite figures.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The lines of these papers alone.
    #[must_use]
    pub fn of(mut self, papers: &[Paper]) -> Self {
        self.lines.retain(|line| papers.contains(&line.paper));
        self
    }

    /// This record with the lines that `before` has of papers that were not run now.
    #[must_use]
    pub fn with_others_of(mut self, before: Self) -> Self {
        let run = Paper::ALL.map(|paper| self.lines.iter().any(|line| line.paper == paper));
        let is_new = |paper: Paper| run[paper as usize];
        let kept = before.lines.into_iter().filter(|line| !is_new(line.paper));
        self.lines.extend(kept);
        self.lines.sort_by_key(|line| line.paper);
        self
    }

    /// The lines that held before and do not now, or are not there any more though their paper was
    /// run.
    pub fn fallen<'a>(&self, before: &'a Self) -> Vec<&'a Line> {
        let was_run = |paper: Paper| self.lines.iter().any(|line| line.paper == paper);
        let holds_now = |old: &Line| {
            let mut now = self.lines.iter();
            now.any(|line| line.paper == old.paper && line.id == old.id && line.holds)
        };
        let held = before.lines.iter().filter(|line| line.holds);
        held.filter(|old| was_run(old.paper) && !holds_now(old))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(paper: Paper, id: &str, ours: f64) -> Line {
        let claim = Claim {
            id: id.to_owned(),
            section: "§1".to_owned(),
            what: "it is so".to_owned(),
            unit: "%".to_owned(),
            says: Says::AtLeast {
                figure: 10.0,
                tolerance: 0.0,
            },
            kind: Kind::Stated,
            ours,
            note: String::new(),
        };
        Line::of(paper, claim)
    }

    fn record(lines: Vec<Line>) -> Record {
        Record::new(&Effort::FULL, lines)
    }

    #[test]
    fn what_held_and_does_not_now_has_fallen() {
        let before = record(vec![
            line(Paper::NMass, "stays", 11.0),
            line(Paper::NMass, "falls", 11.0),
            line(Paper::NMass, "never-held", 9.0),
            line(Paper::NMass, "gone", 11.0),
            line(Paper::Dino, "not-run", 11.0),
        ]);
        let now = record(vec![
            line(Paper::NMass, "stays", 12.0),
            line(Paper::NMass, "falls", 9.9999),
            line(Paper::NMass, "never-held", 9.0),
            line(Paper::NMass, "new", 1.0),
        ]);
        let fallen: Vec<&str> = now.fallen(&before).iter().map(|l| l.id.as_str()).collect();
        assert_eq!(fallen, ["falls", "gone"]);
        assert!(before.fallen(&before).is_empty());
    }

    #[test]
    fn a_paper_that_was_not_run_keeps_its_lines() {
        let before = record(vec![
            line(Paper::Dino, "a", 11.0),
            line(Paper::NMass, "b", 11.0),
        ]);
        let now = record(vec![line(Paper::NMass, "c", 11.0)]).with_others_of(before);
        let ids: Vec<&str> = now.lines.iter().map(|line| line.id.as_str()).collect();
        assert_eq!(ids, ["a", "c"]);
    }

    #[test]
    fn a_figure_that_is_none_is_recorded_as_none() {
        let nothing = line(Paper::Dino, "a", f64::NAN);
        assert_eq!((nothing.ours, nothing.holds), (None, false));
        let json = record(vec![nothing]).to_json().unwrap();
        let read: Record = serde_json::from_str(&json).unwrap();
        assert_eq!(read.lines[0].ours, None);
        assert_eq!(read.to_json().unwrap(), json);
    }

    #[test]
    fn figures_are_recorded_with_four_digits_and_judged_with_all() {
        let close = line(Paper::Dino, "a", 9.999_99);
        assert_eq!((close.ours, close.holds), (Some(10.0), false));
        assert_eq!(rounded(-1234.56), -1235.0);
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(0.000_123_456), 0.000_123_5);
    }
}
