//! A claim of a paper, held against the model: one line of the table.

use serde::{Deserialize, Serialize};

/// How far a figure in percent may be from the paper's to hold: ten percentage points, for all of
/// them alike. The programs are other compilers' and the core another's than the papers'; what is
/// held is the size of an effect, not its last digits.
pub const POINTS: f64 = 10.0;
/// How far a slope or a count may be from the paper's, as a share of it.
pub const SLOPE_SHARE: f64 = 0.5;

/// What the paper says of a figure, and so when ours holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "says", rename_all = "kebab-case")]
pub enum Says {
    /// A figure: ours holds within the tolerance.
    Point {
        /// The paper's figure.
        figure: f64,
        /// How far ours may be from it, either way.
        tolerance: f64,
    },
    /// At most so much, as far as the paper saw; ours holds up to the tolerance beyond.
    AtMost {
        /// The paper's figure.
        figure: f64,
        /// How far beyond it ours may be.
        tolerance: f64,
    },
    /// At least so much.
    AtLeast {
        /// The paper's figure.
        figure: f64,
        /// How far below it ours may be.
        tolerance: f64,
    },
    /// Which of several is first: holds or not; ours is the margin, positive when it holds.
    Ranking,
}

/// How sure it is that a line holds the paper's own figure against ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A figure or bound that the paper's text states.
    Stated,
    /// Not printed: a figure from elsewhere, or derived, stands for it.
    Proxy,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Short and stable, for instance `fig3-mcf-mpki-shared`: what the record of earlier results
    /// knows it by.
    pub id: String,
    /// Section or figure of the paper.
    pub section: String,
    /// The claim in words.
    pub what: String,
    /// `%`, `points`, `per hour`…
    pub unit: String,
    /// What the paper says.
    pub says: Says,
    /// Stated or proxy.
    pub kind: Kind,
    /// The model's figure.
    pub ours: f64,
    /// What must be known to read the line, if anything: assumptions, why it does not hold.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// One line that the paper's text states, without a note.
pub fn claim(
    id: impl Into<String>,
    section: &str,
    what: impl Into<String>,
    unit: &str,
    says: Says,
    ours: f64,
) -> Claim {
    Claim {
        id: id.into(),
        section: section.to_owned(),
        what: what.into(),
        unit: unit.to_owned(),
        says,
        kind: Kind::Stated,
        ours,
        note: String::new(),
    }
}

/// A figure in percent that the paper prints.
pub fn points(figure: f64) -> Says {
    Says::Point {
        figure,
        tolerance: POINTS,
    }
}

/// A bound from above, without tolerance.
pub fn at_most(figure: f64) -> Says {
    Says::AtMost {
        figure,
        tolerance: 0.0,
    }
}

/// A bound from below, without tolerance.
pub fn at_least(figure: f64) -> Says {
    Says::AtLeast {
        figure,
        tolerance: 0.0,
    }
}

impl Claim {
    /// With what must be known to read the line.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// As one that stands for what the paper does not print; the note says what was chosen.
    pub fn proxy(mut self, note: impl Into<String>) -> Self {
        self.kind = Kind::Proxy;
        self.note(note)
    }

    /// Whether it holds. A figure that is no number never does.
    pub fn holds(&self) -> bool {
        match self.says {
            Says::Point { figure, tolerance } => (self.ours - figure).abs() <= tolerance,
            Says::AtMost { figure, tolerance } => self.ours <= figure + tolerance,
            Says::AtLeast { figure, tolerance } => self.ours >= figure - tolerance,
            Says::Ranking => self.ours > 0.0,
        }
    }

    /// The paper's side as people read it: `47 ± 10`, `at most 4`, `is first`.
    pub fn paper(&self) -> String {
        match self.says {
            Says::Point { figure, tolerance } => format!("{figure} ± {tolerance}"),
            Says::AtMost {
                figure,
                tolerance: 0.0,
            } => format!("at most {figure}"),
            Says::AtMost { figure, tolerance } => format!("at most {figure} + {tolerance}"),
            Says::AtLeast {
                figure,
                tolerance: 0.0,
            } => format!("at least {figure}"),
            Says::AtLeast { figure, tolerance } => format!("at least {figure} - {tolerance}"),
            Says::Ranking => "so it is".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(says: Says, ours: f64) -> bool {
        let claim = Claim {
            id: String::new(),
            section: String::new(),
            what: String::new(),
            unit: String::new(),
            says,
            kind: Kind::Stated,
            ours,
            note: String::new(),
        };
        claim.holds()
    }

    #[test]
    fn a_line_holds_within_its_tolerance_and_never_without_a_figure() {
        let point = Says::Point {
            figure: 47.0,
            tolerance: 10.0,
        };
        assert!(holds(point, 37.0) && holds(point, 57.0) && !holds(point, 57.1));
        let most = Says::AtMost {
            figure: 4.0,
            tolerance: 0.0,
        };
        assert!(holds(most, 4.0) && holds(most, -9.0) && !holds(most, 4.1));
        let least = Says::AtLeast {
            figure: 4.0,
            tolerance: 1.0,
        };
        assert!(holds(least, 3.0) && !holds(least, 2.9));
        assert!(holds(Says::Ranking, 0.1) && !holds(Says::Ranking, 0.0));
        for says in [point, most, least, Says::Ranking] {
            assert!(!holds(says, f64::NAN));
        }
    }
}
