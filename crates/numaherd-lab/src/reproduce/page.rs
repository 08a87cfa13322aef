//! What people see of a record: the table on a terminal, and `docs/FIDELITY.md`.

use std::fmt::Write as _;

use comfy_table::{
    Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets,
};

use super::claim::{POINTS, SLOPE_SHARE};
use super::record::{Line, Record};
use super::{Claim, Kind, Paper, Says};

/// Columns that claims and notes are wrapped to.
const WORDS: u16 = 52;

/// How many of some lines hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    hold: usize,
    all: usize,
}

impl Tally {
    fn of<'a>(lines: impl Iterator<Item = &'a Line>) -> Self {
        lines.fold(Self::default(), |tally, line| Self {
            hold: tally.hold + usize::from(line.holds),
            all: tally.all + 1,
        })
    }

    /// `9 of 10 (90 %)`.
    fn shown(self) -> String {
        match self.all {
            0 => "none".to_owned(),
            all => format!(
                "{} of {all} ({:.0} %)",
                self.hold,
                (self.hold * 100) as f64 / all as f64
            ),
        }
    }
}

/// What a line is counted under.
fn group(line: &Line) -> usize {
    match (line.says, line.kind) {
        (Says::Ranking, _) => 1,
        (_, Kind::Stated) => 0,
        (_, Kind::Proxy) => 2,
    }
}

const GROUPS: [&str; 3] = [
    "figures and bounds that the paper states",
    "rankings",
    "proxies of figures and bounds",
];

fn tally(lines: &[Line], of: usize, paper: Option<Paper>) -> Tally {
    let wanted = |line: &&Line| group(line) == of && paper.is_none_or(|paper| line.paper == paper);
    Tally::of(lines.iter().filter(wanted))
}

/// What was found, in three lines.
pub fn summary(lines: &[Line]) -> String {
    let mut text = String::new();
    for (at, what) in GROUPS.iter().enumerate() {
        let shown = tally(lines, at, None).shown();
        let _ = writeln!(text, "{:<42} {shown} hold", format!("{what}:"));
    }
    text
}

/// The table for a terminal: one line for each claim.
pub fn table(lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["where", "claim", "paper", "ours", "holds", ""]);
    let wide = ColumnConstraint::UpperBoundary(Width::Fixed(WORDS));
    for line in lines {
        let (paper, ours) = figures(line);
        table.add_row([
            Cell::new(format!("{} {}", line.paper.name(), line.section)),
            Cell::new(&line.what),
            Cell::new(paper),
            Cell::new(ours).set_alignment(CellAlignment::Right),
            Cell::new(if line.holds { "yes" } else { "NO" }),
            Cell::new(match line.kind {
                Kind::Stated => "",
                Kind::Proxy => "proxy",
            }),
        ]);
    }
    if let Some(claims) = table.column_mut(1) {
        claims.set_constraint(wide);
    }
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(140);
    table.trim_fmt()
}

/// Both sides of a line with their unit.
fn figures(line: &Line) -> (String, String) {
    let claim = Claim {
        id: String::new(),
        section: String::new(),
        what: String::new(),
        unit: String::new(),
        says: line.says,
        kind: line.kind,
        ours: line.ours.unwrap_or(f64::NAN),
        note: String::new(),
    };
    let with_unit = |figure: String| match line.unit.as_str() {
        "" => figure,
        unit => format!("{figure} {unit}"),
    };
    let paper = match line.says {
        Says::Ranking => claim.paper(),
        _ => with_unit(claim.paper()),
    };
    let ours = line
        .ours
        .map_or_else(|| "no figure".to_owned(), |f| with_unit(short(f)));
    (paper, ours)
}

/// A figure with three significant digits, or all before the point.
fn short(figure: f64) -> String {
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

/// The page `docs/FIDELITY.md`.
pub fn page(record: &Record) -> String {
    let mut text = head(record);
    for paper in Paper::ALL {
        let lines: Vec<&Line> = record.lines.iter().filter(|l| l.paper == paper).collect();
        if lines.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| where | claim | paper | ours | holds | |\n|---|---|---|---|---|---|\n",
            paper.title(),
            paper.about(),
        );
        let mut notes: Vec<&str> = Vec::new();
        for line in &lines {
            let (figure, ours) = figures(line);
            let mut what = cell(&line.what);
            if !line.note.is_empty() {
                let known = notes.iter().position(|note| *note == line.note);
                let at = known.unwrap_or_else(|| {
                    notes.push(&line.note);
                    notes.len() - 1
                });
                let _ = write!(what, " ({})", at + 1);
            }
            let _ = writeln!(
                text,
                "| {} | {what} | {} | {} | {} | {} |",
                cell(&line.section),
                cell(&figure),
                cell(&ours),
                if line.holds { "yes" } else { "**no**" },
                match line.kind {
                    Kind::Stated => "",
                    Kind::Proxy => "proxy",
                },
            );
        }
        if !notes.is_empty() {
            text += "\n";
        }
        for (at, note) in notes.iter().enumerate() {
            let _ = writeln!(text, "{}. {note}", at + 1);
        }
    }
    text
}

fn head(record: &Record) -> String {
    let share = SLOPE_SHARE * 100.0;
    let (runs, hour) = (record.runs, record.hour_s);
    let mut text = format!(
        "\
# Fidelity: what the papers say, and what the model says

<!-- Generated by `numaherd reproduce`; do not edit. scripts/fidelity.sh makes it anew. -->

This page is generated: `scripts/fidelity.sh` runs `numaherd reproduce all` and writes it, together
with `docs/fidelity.json`, the record that later runs are held against. A claim that does not hold
stays in the table as such. Experiments with chance in them were run {runs} times; those of a fixed
time for {hour} modelled seconds.

**Stated**: the paper's text says the figure, the bound or the order. **Proxy**: what the paper
shows in a drawing only, or does not print at all, is stood for by a figure from elsewhere, or by a
choice of ours; the note says which.

**When a line holds.** A figure (`47 ± 10`) within its tolerance; a bound (`at most`, `at least`) up
to the tolerance that is shown with it, if any; an order strictly, `ours` being the margin, positive
when it is as the paper says. Tolerances go by the kind of figure: {POINTS} points for figures in percent,
{share} % of it for a slope, a factor of two for a count; what is of no such kind (a correlation, a bound
at nothing) shows its own. The programs are other compilers' and the core is another's than the
papers'; what is held is the size of an effect, not its last digits.

|"
    );
    let papers: Vec<Paper> = Paper::ALL
        .into_iter()
        .filter(|paper| record.lines.iter().any(|line| line.paper == *paper))
        .collect();
    for paper in &papers {
        let _ = write!(text, " | {}", paper.name());
    }
    text += " | all |\n|---|";
    text += &"---|".repeat(papers.len() + 1);
    text += "\n";
    for (at, what) in GROUPS.iter().enumerate() {
        let _ = write!(text, "| {what}");
        for paper in &papers {
            let _ = write!(
                text,
                " | {}",
                tally(&record.lines, at, Some(*paper)).shown()
            );
        }
        let _ = writeln!(text, " | {} |", tally(&record.lines, at, None).shown());
    }
    text
}

/// Text within a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::super::Effort;
    use super::*;

    fn lines() -> Vec<Line> {
        let claim = |id: &str, says: Says, kind: Kind, ours: f64, note: &str| Claim {
            id: id.to_owned(),
            section: "§2.2, Fig 3".to_owned(),
            what: format!("what {id} | says"),
            unit: "%".to_owned(),
            says,
            kind,
            ours,
            note: note.to_owned(),
        };
        let point = Says::Point {
            figure: 47.0,
            tolerance: 10.0,
        };
        let most = Says::AtMost {
            figure: 4.0,
            tolerance: 0.0,
        };
        [
            (Paper::Dino, claim("a", point, Kind::Stated, 40.0, "")),
            (
                Paper::Dino,
                claim("b", most, Kind::Stated, 5.1234, "a note"),
            ),
            (
                Paper::Dino,
                claim("c", Says::Ranking, Kind::Stated, 0.5, "a note"),
            ),
            (
                Paper::NMass,
                claim("d", point, Kind::Proxy, f64::NAN, "chosen by us"),
            ),
        ]
        .into_iter()
        .map(|(paper, claim)| Line::of(paper, claim))
        .collect()
    }

    #[test]
    fn the_table_shows_every_line() {
        insta::assert_snapshot!("table", table(&lines()));
        insta::assert_snapshot!("summary", summary(&lines()));
    }

    #[test]
    fn the_page_says_how_it_was_made_and_shows_every_line() {
        insta::assert_snapshot!("page", page(&Record::new(&Effort::FULL, lines())));
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = [
            1234.5, 123.45, 12.345, 1.2345, 0.012_345, -0.000_01, 0.0, 10.0,
        ];
        let shown: Vec<String> = shown.into_iter().map(short).collect();
        assert_eq!(
            shown,
            ["1234", "123", "12.3", "1.23", "0.0123", "0", "0", "10"]
        );
    }

    #[test]
    fn the_page_in_docs_is_the_records() {
        let page_in_docs = include_str!("../../../../docs/FIDELITY.md");
        let record = Record::built_in().unwrap();
        assert!(
            page(&record) == page_in_docs,
            "docs/FIDELITY.md is not what docs/fidelity.json says: run scripts/fidelity.sh"
        );
    }
}
