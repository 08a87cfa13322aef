//! Reads `data/claims/*.toml`. Errors name file, line and key.

use std::collections::BTreeSet;
use std::ops::Range;

use numaherd_files::Document;
use serde::Deserialize;
use toml::Spanned;

use super::{Claim, Claims, ClaimsError, Kind, Paper, RunsOn, Statement, Variation};

/// How far a measured figure may be from the paper's, by the name that files use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tolerance {
    /// A quarter of the figure.
    #[default]
    Quarter,
    /// For a share in percent: a quarter of it, but at most ten points.
    Share,
    /// For a size that the paper computes and rounds: 5 % of it.
    Rounded,
}

impl Tolerance {
    /// The largest difference of a measured figure from the paper's.
    pub fn of(self, figure: f64) -> f64 {
        let quarter = figure.abs() * 0.25;
        match self {
            Self::Quarter => quarter,
            Self::Share => quarter.min(10.0),
            Self::Rounded => figure.abs() * 0.05,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileTable {
    paper: Paper,
    title: String,
    about: String,
    #[serde(default, rename = "variation")]
    variations: Vec<Spanned<Variation>>,
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

/// A tolerance by name, or another one, whose reason `why` gives.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "a number, or one of quarter, share, rounded")]
enum ToleranceValue {
    Named(Tolerance),
    Own(f64),
}

/// Parses a file's text. The path is only for messages.
///
/// # Errors
/// The malformed part, with file, line and key.
pub fn parse(text: &str, path: &str) -> Result<Claims, ClaimsError> {
    let document = Document::new(text, path);
    let file: FileTable = document.parse()?;
    let mut names = BTreeSet::new();
    let mut variations = Vec::with_capacity(file.variations.len());
    for (number, table) in file.variations.into_iter().enumerate() {
        let at = table.span();
        let variation = table.into_inner();
        if let Some((key, why)) = fault_of(&variation, &mut names) {
            return Err(document
                .wrong(at, &format!("variation[{number}].{key}"), why)
                .into());
        }
        variations.push(variation);
    }
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
        variations,
        claims,
    })
}

/// What is wrong with a variation: its key and the reason.
fn fault_of(variation: &Variation, names: &mut BTreeSet<String>) -> Option<(&'static str, String)> {
    let Variation { name, what, .. } = variation;
    if name.is_empty() || name.contains([':', '}']) {
        return Some((
            "name",
            "a name is not empty, and has neither : nor }".to_owned(),
        ));
    }
    if !names.insert(name.clone()) {
        return Some(("name", format!("`{name}` is there twice")));
    }
    if what.trim().is_empty() {
        return Some(("what", "it is empty".to_owned()));
    }
    if variation.machines.is_empty() && variation.programs.is_empty() && variation.model.is_empty()
    {
        let why = "it changes neither a machine nor a program nor the model";
        return Some(("machine", why.to_owned()));
    }
    let is_wrong = |times: f64| !(times.is_finite() && times > 0.0);
    let mut changes = variation.programs.iter();
    let (program, _) = changes.find(|(_, change)| {
        is_wrong(change.misses_in_flight) || is_wrong(change.cycles_per_instruction)
    })?;
    let why =
        format!("what changes of {program} is a number above 0, how many times as much it is");
    Some(("program", why))
}

/// An error: its place in the text, its key and the reason.
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
        (_, Some(figure), tolerance) => (figure, tolerance),
    };
    let (at, figure) = (figure.span(), *figure.get_ref());
    if !figure.is_finite() {
        return fault(at, "figure", "it must be finite");
    }
    if table.says == Says::Point && figure == 0.0 && tolerance.is_none() {
        return fault(at, "tolerance", "it is missing: a quarter of 0 is nothing");
    }
    let value = match tolerance.as_ref().map(Spanned::get_ref) {
        Some(ToleranceValue::Named(named)) => named.of(figure),
        Some(ToleranceValue::Own(own)) => *own,
        None if table.says == Says::Point => Tolerance::default().of(figure),
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
