//! Claims of papers as data, and their comparison with experiments.
//!
//! A [`Claim`] is an entry of `data/claims/PAPER.toml`: the paper's statement, its section, and how close a measured
//! figure must be. Experiments contain no statements of papers: they return [`Measured`], figures by the ids of claims.
//! Only [`Claims::judge`] compares the two. It returns one [`CheckedClaim`] for each claim; [`Record`] is the file that
//! keeps them (`docs/fidelity.json`).

mod file;
mod measured;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use numaherd_files::FileError;
use serde::{Deserialize, Serialize};

pub use file::{Tolerance, parse};
pub use measured::{Measured, changes, jackknife, list, short};
pub use record::{CheckedClaim, Measurement, Record, Varied};

/// An error in claims, in a record of them, or in measurements for them.
#[derive(Debug, thiserror::Error)]
pub enum ClaimsError {
    /// A file cannot be read, or a file of claims is malformed.
    #[error(transparent)]
    File(#[from] FileError),
    /// No experiment measured a claim's figure.
    #[error("no experiment measures {0}'s claim `{1}`")]
    NoFigure(Paper, String),
    /// An experiment measured a figure twice, or one that no claim asks for.
    #[error("data/claims has no claim `{1}` of {0}, or an experiment measured it twice")]
    NoClaim(Paper, String),
    /// An experiment returned several figures for a claim that is no ranking.
    #[error("`{1}` of {0} is no ranking, but an experiment measured several figures for it")]
    NoRanking(Paper, String),
    /// A note needs a detail that no experiment returned, or a detail is in no note.
    #[error("{0}: the detail `{{{1}}}` is in a note or in an experiment, but not in both")]
    Detail(Paper, String),
    /// A file is not a record of claims.
    #[error("{} is not a record of claims: {source}", file.display())]
    NoRecord {
        /// The file.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
}

/// A paper whose claims are checked, in the order in which papers are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// A case for NUMA-aware contention management on multicore systems.
    Dino,
    /// Memory management in NUMA multicore systems: trapped between cache contention and
    /// interconnect overhead.
    NMass,
    /// Optimizing virtual machine scheduling in NUMA multicore systems.
    Brm,
    /// Hardware-assisted thread and data mapping in hierarchical multi-core architectures.
    Ipm,
    /// autonuma-benchmark, of the authors of AutoNUMA.
    Autonuma,
    /// No paper: the requirements on this project's own policy.
    Adaptive,
}

impl Paper {
    /// All papers, and the requirements on `adaptive`.
    pub const ALL: [Self; 6] = [
        Self::Dino,
        Self::NMass,
        Self::Brm,
        Self::Ipm,
        Self::Autonuma,
        Self::Adaptive,
    ];

    /// The name of the paper's policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dino => "DINO",
            Self::NMass => "N-MASS",
            Self::Brm => "BRM",
            Self::Ipm => "IPM",
            Self::Autonuma => "autonuma",
            Self::Adaptive => "adaptive",
        }
    }
}

impl std::fmt::Display for Paper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A paper's statement about a figure, which determines whether the measured figure agrees.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "kebab-case")]
pub enum Statement {
    /// The figure is this one.
    Point {
        /// The paper's figure.
        figure: f64,
        /// The largest difference of the measured figure, either way.
        tolerance: f64,
    },
    /// The figure is at most this one.
    AtMost {
        /// The paper's figure.
        figure: f64,
        /// How far above it the measured figure may be.
        tolerance: f64,
    },
    /// The figure is at least this one.
    AtLeast {
        /// The paper's figure.
        figure: f64,
        /// How far below it the measured figure may be.
        tolerance: f64,
    },
    /// One thing comes before another. The measured figure is the margin. The order is the paper's if the margin is
    /// positive and, with chance in it, its confidence interval excludes zero.
    Ranking,
}

impl Statement {
    /// Whether a measured figure agrees; `interval` is half of its confidence interval, 0 without chance. NaN never
    /// does.
    pub fn holds(&self, measured: f64, interval: f64) -> bool {
        match *self {
            Self::Point { figure, tolerance } => (measured - figure).abs() <= tolerance,
            Self::AtMost { figure, tolerance } => measured <= figure + tolerance,
            Self::AtLeast { figure, tolerance } => measured >= figure - tolerance,
            Self::Ranking => measured > interval,
        }
    }
}

impl std::fmt::Display for Statement {
    /// `47 ± 10`, `at most 4`, `at least 0 - 0.5`, `so it is`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bound = |f: &mut std::fmt::Formatter<'_>, bound, figure, sign, tolerance| {
            write!(f, "{bound} {figure}")?;
            match tolerance {
                0.0 => Ok(()),
                _ => write!(f, " {sign} {}", shown(tolerance)),
            }
        };
        match *self {
            Self::Point { figure, tolerance } => write!(f, "{figure} ± {}", shown(tolerance)),
            Self::AtMost { figure, tolerance } => bound(f, "at most", figure, "+", tolerance),
            Self::AtLeast { figure, tolerance } => bound(f, "at least", figure, "-", tolerance),
            Self::Ranking => f.write_str("so it is"),
        }
    }
}

/// A tolerance without the rounding error of a product of decimal fractions.
fn shown(tolerance: f64) -> f64 {
    (tolerance * 1e9).round() / 1e9
}

/// Where the paper's figure is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The paper's text states the figure, the bound or the order.
    #[default]
    Stated,
    /// The paper does not print it: a figure from elsewhere, or a choice that the note names, replaces it.
    Proxy,
    /// A parameter of ours was fitted to this figure, so agreement proves nothing.
    Fitted,
    /// It follows from the experiment's design, and cannot fail.
    Certain,
    /// Not from a paper: this project requires it of its own policy.
    Required,
}

impl Kind {
    /// Whether a claim of this kind tests the model.
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Fitted | Self::Certain)
    }
}

/// What a claim's experiment runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunsOn {
    /// The contention model, which needs nothing else.
    #[default]
    Model,
    /// Memory traces, which the lab records.
    Traces,
}

/// One claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// A short, stable name that experiments and records refer to, for instance `fig3-mpki-mcf`.
    pub id: String,
    /// Section or figure of the paper.
    pub section: String,
    /// The claim in words.
    pub what: String,
    /// Unit of both figures: `%`, `points`, `per hour`; empty for a ratio.
    pub unit: String,
    /// What the paper says.
    pub statement: Statement,
    /// Where its figure is from.
    pub kind: Kind,
    /// What its experiment runs on.
    pub runs_on: RunsOn,
    /// Notes for readers: assumptions, or why the claim does not hold. `{name}` stands for a detail that the experiment
    /// measures.
    pub note: String,
}

impl Claim {
    /// The names of the details that its note needs.
    pub fn details(&self) -> impl Iterator<Item = &str> {
        measured::parts(&self.note).filter_map(|part| match part {
            measured::Part::Detail(name) => Some(name),
            measured::Part::Text(_) => None,
        })
    }
}

/// Other figures of machines, programs or the model, with which a paper's experiments run again. Notes refer to what they then give:
/// `{name}` is the figure of the same claim, `{name:id}` that of another.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variation {
    /// What notes and records call it, for instance `remote-130`.
    pub name: String,
    /// What it changes, in words.
    pub what: String,
    /// In how many runs, each with its own seed; no more than the paper's experiments have. With 0, only the experiments
    /// run whose figures are exact.
    #[serde(default = "once")]
    pub runs: u32,
    /// For each machine, the keys of its file that change, with their values.
    #[serde(default, rename = "machine")]
    pub machines: BTreeMap<String, toml::Table>,
    /// For each program, what changes.
    #[serde(default, rename = "program")]
    pub programs: BTreeMap<String, ProgramChange>,
    /// Options of the model that change, with their values, in every experiment.
    #[serde(default)]
    pub model: toml::Table,
}

/// What changes in each phase of a program: how many times as much it is.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramChange {
    /// Lines in flight.
    #[serde(default = "as_it_is")]
    pub misses_in_flight: f64,
    /// Cycles of the reference core per instruction while the last-level cache answers all.
    #[serde(default = "as_it_is")]
    pub cycles_per_instruction: f64,
}

const fn as_it_is() -> f64 {
    1.0
}

const fn once() -> u32 {
    1
}

/// The claims of one paper, in the order in which they are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims {
    /// The paper that makes them.
    pub paper: Paper,
    /// Heading of the paper's part of the page.
    pub title: String,
    /// What the experiments run on, and notes on all of them.
    pub about: String,
    /// What else the experiments run with, to show what decides.
    pub variations: Vec<Variation>,
    /// The claims.
    pub claims: Vec<Claim>,
}

impl Claims {
    /// The claims that this program was built with.
    ///
    /// # Errors
    /// A file of `data/claims` is malformed; a test reads them all.
    pub fn built_in(paper: Paper) -> Result<Self, ClaimsError> {
        let (file, text) = match paper {
            Paper::Dino => ("dino", include_str!("../../../data/claims/dino.toml")),
            Paper::NMass => ("n-mass", include_str!("../../../data/claims/n-mass.toml")),
            Paper::Brm => ("brm", include_str!("../../../data/claims/brm.toml")),
            Paper::Ipm => ("ipm", include_str!("../../../data/claims/ipm.toml")),
            Paper::Autonuma => (
                "autonuma",
                include_str!("../../../data/claims/autonuma.toml"),
            ),
            Paper::Adaptive => (
                "adaptive",
                include_str!("../../../data/claims/adaptive.toml"),
            ),
        };
        parse(text, &format!("data/claims/{file}.toml"))
    }

    /// Those of the claims that have a figure.
    #[must_use]
    pub fn measured_in(mut self, measured: &Measured) -> Self {
        self.claims
            .retain(|claim| measured.figures_of(&claim.id).is_some());
        self
    }

    /// Compares measured figures with the paper's statements. Leaves out claims about traces if there were none
    /// ([`Measured::without_traces`]).
    ///
    /// # Errors
    /// A claim has no figure, a figure has no claim, or the details of notes and experiments differ.
    pub fn judge(&self, measured: &Measured) -> Result<Vec<CheckedClaim>, ClaimsError> {
        let wrong = |error: fn(Paper, String) -> ClaimsError, name: &str| {
            Err(error(self.paper, name.to_owned()))
        };
        let mut unused: BTreeSet<&str> = measured.details().collect();
        let mut without_claim: BTreeSet<&str> = BTreeSet::new();
        if let Some(twice) = measured.ids().find(|id| !without_claim.insert(id)) {
            return wrong(ClaimsError::NoClaim, twice);
        }
        let mut lines = Vec::with_capacity(self.claims.len());
        for claim in &self.claims {
            let ours = match (measured.figures_of(&claim.id), claim.statement) {
                (Some(figures), Statement::Ranking) => measured::margin(figures),
                (Some(&[figure]), _) => figure,
                (Some(_), _) => return wrong(ClaimsError::NoRanking, &claim.id),
                (None, _)
                    if claim.runs_on == RunsOn::Traces && measured.without_traces.is_some() =>
                {
                    continue;
                }
                (None, _) => return wrong(ClaimsError::NoFigure, &claim.id),
            };
            without_claim.remove(claim.id.as_str());
            let mut note = String::new();
            for part in measured::parts(&claim.note) {
                let name = match part {
                    measured::Part::Text(text) => {
                        note += text;
                        continue;
                    }
                    measured::Part::Detail(name) => name,
                };
                unused.remove(name);
                match (
                    self.varied(measured, claim, name)?,
                    measured.detail_of(name),
                ) {
                    (Some(figure), None) => note += &figure,
                    (None, Some(detail)) => note += detail,
                    _ => return wrong(ClaimsError::Detail, name),
                }
            }
            let interval = measured.interval_of(&claim.id);
            lines.push(CheckedClaim::of(self.paper, claim, ours, interval, note));
        }
        match (without_claim.first(), unused.first()) {
            (Some(id), _) => wrong(ClaimsError::NoClaim, id),
            (None, Some(detail)) => wrong(ClaimsError::Detail, detail),
            (None, None) => Ok(lines),
        }
    }

    /// The figure that a note's `{variation}` or `{variation:id}` stands for, with its unit; `None` if it is no
    /// variation's.
    fn varied(
        &self,
        measured: &Measured,
        claim: &Claim,
        detail: &str,
    ) -> Result<Option<String>, ClaimsError> {
        let (name, id) = detail.split_once(':').unwrap_or((detail, &claim.id));
        let mut variations = self.variations.iter();
        if !variations.any(|variation| variation.name == name) {
            return Ok(None);
        }
        let claim = self.claims.iter().find(|claim| claim.id == id);
        let claim = claim.ok_or_else(|| ClaimsError::Detail(self.paper, detail.to_owned()))?;
        let Some(measured) = measured.under(name) else {
            return Ok(Some("(not run)".to_owned()));
        };
        let figures = measured.figures_of(id);
        let figures = figures.ok_or_else(|| ClaimsError::NoFigure(self.paper, id.to_owned()))?;
        let space = if claim.unit.is_empty() { "" } else { " " };
        let figure = short(measured::margin(figures));
        Ok(Some(format!("{figure}{space}{}", claim.unit)))
    }
}

#[cfg(test)]
mod tests;
