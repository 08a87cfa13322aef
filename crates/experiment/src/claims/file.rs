//! Reading `data/claims/*.toml`. What is wrong is reported with file, line and key.

use std::collections::BTreeSet;
use std::ops::Range;

use numaherd_files::Document;
use serde::Deserialize;
use toml::Spanned;

use super::{Claim, Claims, ClaimsError, Kind, Paper, RunsOn, Statement};

/// Tolerances by the kind of figure, the same for all papers, under the names that files use. The programs'
/// compilers and the modelled core differ from the papers': the size of an effect is compared, not its last
/// digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// None: a bound, or a figure that is exact.
    Exact,
    /// Of a figure in percent: ten percentage points.
    Points,
    /// Of a ratio: ten percentage points of 1.
    Ratio,
    /// Of a slope or a deviation: half of the paper's figure.
    Half,
    /// Of a count or a share that depends on the program's size: a factor of two upwards, anything downwards.
    Double,
    /// Of a size that the paper computes and rounds: 5 % of it.
    Rounded,
}

impl Tolerance {
    /// How far from the paper's figure a measured one may be.
    pub fn of(self, figure: f64) -> f64 {
        match self {
            Self::Exact => 0.0,
            Self::Points => 10.0,
            Self::Ratio => 0.1,
            Self::Half => figure * 0.5,
            Self::Double => figure,
            Self::Rounded => figure * 0.05,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    paper: Paper,
    title: String,
    about: String,
    #[serde(default, rename = "claim")]
    claims: Vec<Spanned<ClaimTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClaimTable {
    id: Spanned<String>,
    section: String,
    what: Spanned<String>,
    #[serde(default)]
    unit: String,
    says: Says,
    figure: Option<Spanned<f64>>,
    tolerance: Option<Spanned<ToleranceValue>>,
    why: Option<Spanned<String>>,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    runs_on: RunsOn,
    #[serde(default)]
    note: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Says {
    Point,
    AtMost,
    AtLeast,
    Ranking,
}

/// A tolerance by its name, or one that no name fits, for which `why` gives the reason.
#[derive(Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "a number, or one of exact, points, ratio, half, double, rounded"
)]
enum ToleranceValue {
    Named(Tolerance),
    Own(f64),
}

/// The claims of a file's text. The path is for messages alone.
///
/// # Errors
/// What is malformed, with file, line and key.
pub fn parse(text: &str, path: &str) -> Result<Claims, ClaimsError> {
    let document = Document::new(text, path);
    let file: FileTable = document.parse()?;
    let mut ids = BTreeSet::new();
    let mut claims = Vec::with_capacity(file.claims.len());
    for (number, table) in file.claims.into_iter().enumerate() {
        let at = table.span();
        let claim = claim(table.into_inner(), &at, &mut ids)
            .map_err(|(at, key, why)| document.wrong(at, &format!("claim[{number}].{key}"), why))?;
        claims.push(claim);
    }
    Ok(Claims {
        paper: file.paper,
        title: file.title,
        about: file.about,
        claims,
    })
}

/// Where in the text something is wrong, with its key and the reason.
type Fault = (Range<usize>, &'static str, String);

fn fault<T>(at: Range<usize>, key: &'static str, why: impl Into<String>) -> Result<T, Fault> {
    Err((at, key, why.into()))
}

fn claim(table: ClaimTable, at: &Range<usize>, ids: &mut BTreeSet<String>) -> Result<Claim, Fault> {
    let statement = statement(&table, at)?;
    let mut note = table.note;
    let own = table
        .tolerance
        .filter(|tolerance| matches!(tolerance.get_ref(), ToleranceValue::Own(_)));
    match (own, table.why) {
        (Some(own), None) => {
            return fault(own.span(), "why", "a tolerance of its own needs a reason");
        }
        (Some(_), Some(why)) => {
            let separator = if note.is_empty() { "" } else { "; " };
            note += &format!("{separator}tolerance: {}", why.into_inner());
        }
        (None, Some(why)) => {
            return fault(why.span(), "why", "only a number as tolerance needs it");
        }
        (None, None) => {}
    }
    let id_at = table.id.span();
    let id = table.id.into_inner();
    if id.is_empty() {
        return fault(id_at, "id", "it is empty");
    }
    if !ids.insert(id.clone()) {
        return fault(id_at, "id", format!("`{id}` is there twice"));
    }
    if table.what.get_ref().trim().is_empty() {
        return fault(table.what.span(), "what", "it is empty");
    }
    Ok(Claim {
        id,
        section: table.section,
        what: table.what.into_inner(),
        unit: table.unit,
        statement,
        kind: table.kind,
        runs_on: table.runs_on,
        note,
    })
}

fn statement(table: &ClaimTable, at: &Range<usize>) -> Result<Statement, Fault> {
    let (figure, tolerance) = match (table.says, &table.figure, &table.tolerance) {
        (Says::Ranking, None, None) => return Ok(Statement::Ranking),
        (Says::Ranking, Some(figure), _) => {
            return fault(figure.span(), "figure", "a ranking has none");
        }
        (Says::Ranking, None, Some(tolerance)) => {
            return fault(tolerance.span(), "tolerance", "a ranking has none");
        }
        (_, None, _) => {
            return fault(
                at.clone(),
                "figure",
                "it is missing: only a ranking has none",
            );
        }
        (Says::Point, Some(figure), None) => {
            return fault(
                figure.span(),
                "tolerance",
                "it is missing: a bound alone has none",
            );
        }
        (_, Some(figure), tolerance) => (figure, tolerance),
    };
    let (at, figure) = (figure.span(), *figure.get_ref());
    if !figure.is_finite() {
        return fault(at, "figure", "it must be finite");
    }
    let value = match tolerance.as_ref().map(Spanned::get_ref) {
        Some(ToleranceValue::Named(named)) => named.of(figure),
        Some(ToleranceValue::Own(own)) => *own,
        None => 0.0,
    };
    if let Some(at) = tolerance.as_ref().map(Spanned::span)
        && !(value.is_finite() && value >= 0.0)
    {
        let why = format!("{value} is not a distance from {figure}");
        return fault(at, "tolerance", why);
    }
    let tolerance = value;
    Ok(match table.says {
        Says::AtMost => Statement::AtMost { figure, tolerance },
        Says::AtLeast => Statement::AtLeast { figure, tolerance },
        Says::Point | Says::Ranking => Statement::Point { figure, tolerance },
    })
}
