//! What people see of a record: the table on a terminal, and `docs/FIDELITY.md`.

use std::fmt::Write as _;

use anyhow::Result;
use numaherd_experiment::claims::{
    CheckedClaim, Claims, Kind, Measurement, Paper, Record, Statement, Tolerance, Varied, short,
};
use numaherd_experiment::table::Table;

/// Width of the column of claims.
const WORDS: u16 = 52;

/// The group in which a line counts.
fn group(line: &CheckedClaim) -> usize {
    match (line.statement, line.kind) {
        (_, Kind::Required) => 3,
        (_, kind) if !kind.counts() => 4,
        (Statement::Ranking, _) => 1,
        (_, Kind::Proxy) => 2,
        _ => 0,
    }
}

const GROUPS: [&str; 5] = [
    "figures and bounds that the paper states",
    "rankings",
    "proxies of figures and bounds",
    "what is required of `adaptive`",
    "fitted or certain: says nothing",
];

/// The groups of which there are lines, with their names.
fn groups(lines: &[CheckedClaim]) -> impl Iterator<Item = (usize, &'static str)> {
    let groups = GROUPS.into_iter().enumerate();
    groups.filter(|(at, _)| lines.iter().any(|line| group(line) == *at))
}

/// How many of a group's lines hold, of one paper or of all: `9 of 10 (90 %)`.
fn tally(lines: &[CheckedClaim], of: usize, paper: Option<Paper>) -> String {
    let wanted =
        |line: &&CheckedClaim| group(line) == of && paper.is_none_or(|paper| line.paper == paper);
    let (mut hold, mut all) = (0_usize, 0_usize);
    for line in lines.iter().filter(wanted) {
        hold += usize::from(line.holds);
        all += 1;
    }
    match all {
        0 => "none".to_owned(),
        all => format!(
            "{hold} of {all} ({:.0} %)",
            (hold * 100) as f64 / all as f64
        ),
    }
}

/// How many claims hold, a line for each group.
pub fn summary(lines: &[CheckedClaim]) -> String {
    let mut text = String::new();
    for (at, what) in groups(lines) {
        let shown = tally(lines, at, None);
        let _ = writeln!(text, "{:<42} {shown} hold", format!("{what}:"));
    }
    text
}

/// The table for a terminal: one line for each claim.
pub fn table(lines: &[CheckedClaim]) -> String {
    let headings = ["where", "claim", "paper", "ours", "holds", ""];
    let mut table = Table::new(3, headings).wrapped(1, WORDS, 140);
    for line in lines {
        let (paper, ours) = figures(line);
        table.row([
            format!("{} {}", line.paper.name(), line.section),
            line.what.clone(),
            paper,
            ours,
            if line.holds { "yes" } else { "NO" }.to_owned(),
            kind(line).to_owned(),
        ]);
    }
    table.text()
}

/// The paper's figure and ours, with their unit.
fn figures(line: &CheckedClaim) -> (String, String) {
    let with_unit = |figure: String| match line.unit.as_str() {
        "" => figure,
        unit => format!("{figure} {unit}"),
    };
    let paper = match line.statement {
        Statement::Ranking => line.statement.to_string(),
        figure => with_unit(figure.to_string()),
    };
    let ours = line.ours.map(|figure| {
        let interval = line.interval.map(|half| format!(" ± {}", short(half)));
        with_unit(short(figure) + &interval.unwrap_or_default())
    });
    (paper, ours.unwrap_or_else(|| "no figure".to_owned()))
}

/// `proxy`, `fitted` or `certain`, or nothing for what the paper states or this project requires.
fn kind(line: &CheckedClaim) -> &'static str {
    match line.kind {
        Kind::Stated | Kind::Required => "",
        Kind::Proxy => "proxy",
        Kind::Fitted => "fitted",
        Kind::Certain => "certain",
    }
}

/// The page `docs/FIDELITY.md`.
///
/// # Errors
/// A file of `data/claims` was malformed when the program was built.
pub fn page(record: &Record) -> Result<String> {
    let mut text = head(record);
    for paper in Paper::ALL {
        let lines: Vec<&CheckedClaim> = record.lines.iter().filter(|l| l.paper == paper).collect();
        if lines.is_empty() {
            continue;
        }
        let Claims { title, about, .. } = Claims::built_in(paper)?;
        let made = record.measurements.iter().find(|one| one.paper == paper);
        let made = made.map(made_by).unwrap_or_default();
        let _ = write!(
            text,
            "\n## {title}\n\n{about}\n\n{made}| where | claim | paper | ours | holds | |\n|---|---|---|---|---|---|\n"
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
                kind(line),
            );
        }
        if !notes.is_empty() {
            text += "\n";
        }
        for (at, note) in notes.iter().enumerate() {
            let _ = writeln!(text, "{}. {note}", at + 1);
        }
        let variations = record.variations.iter().filter(|one| one.paper == paper);
        text += &by_variation(&lines, &variations.collect::<Vec<_>>());
    }
    Ok(text)
}

/// How many of a paper's lines hold under each variation.
fn by_variation(lines: &[&CheckedClaim], variations: &[&Varied]) -> String {
    if variations.is_empty() {
        return String::new();
    }
    let lines: Vec<CheckedClaim> = lines.iter().map(|&line| line.clone()).collect();
    let groups: Vec<(usize, &str)> = groups(&lines).filter(|(at, _)| *at < 3).collect();
    let row = |what: &str, lines: &[CheckedClaim]| {
        let tallies = groups.iter().map(|&(at, _)| tally(lines, at, None));
        let cells: Vec<String> = [what.to_owned()].into_iter().chain(tallies).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let under = |one: &&Varied| {
        let mut lines = lines.clone();
        lines.retain(|line| one.ours.contains_key(&line.id));
        for line in &mut lines {
            line.holds = one.holds.contains(&line.id);
        }
        let runs = match one.runs {
            0 => "exact figures".to_owned(),
            1 => "one run".to_owned(),
            runs => format!("{runs} runs"),
        };
        row(&format!("{} ({runs})", one.what), &lines)
    };
    let names: Vec<&str> = groups.iter().map(|&(_, name)| name).collect();
    let head = format!(
        "| if | {} |\n|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    let rows: String = variations.iter().map(under).collect();
    format!(
        "\nHow many would hold, of those that were measured. In one run, an order holds if its margin is positive:\n\n{head}{}{rows}",
        row("nothing is changed (all runs)", &lines)
    )
}

/// How a paper's lines were measured, as a paragraph.
fn made_by(measurement: &Measurement) -> String {
    let (runs, hour) = (measurement.runs, measurement.hour_s);
    let commit = match &measurement.commit {
        Some(commit) => format!("on commit `{commit}`"),
        None => "on a commit that was not recorded".to_owned(),
    };
    let times = match runs {
        1 => "once".to_owned(),
        runs => format!("{runs} times, each with its own seed"),
    };
    let how = match (measurement.paper, measurement.intervals) {
        (Paper::Ipm, Some(intervals)) => format!(
            "Each recording was played until {intervals} placement intervals had passed after its first loop, which has \
             the set-up in it, and once more where the policy moves nothing; measured is what came after that loop, for \
             each loop. Runs were made {times}."
        ),
        (Paper::Ipm, None) => {
            format!("Each recording was played once, from its set-up on. Runs were made {times}.")
        }
        _ => format!(
            "Experiments with chance in them ran {times}; where they last for an hour or a part of it, {hour} modelled \
             seconds stand for the hour."
        ),
    };
    format!("Measured {commit}. {how}\n\n")
}

fn head(record: &Record) -> String {
    let quarter = Tolerance::Quarter.of(100.0);
    let mut text = format!(
        "\
# Fidelity: what the papers say, and what the model says

<!-- Generated by `numaherd reproduce`; do not edit. scripts/fidelity.sh makes it anew. -->

`scripts/fidelity.sh` generates this page: it runs `numaherd reproduce all`, which compares the claims in
`data/claims` with what the experiments measure, and writes the page together with `docs/fidelity.json`, the
record with which later runs are compared. A claim that does not hold stays in the table.

**Stated**: the paper's text states the figure, the bound or the order. **Proxy**: the paper shows it only in
a drawing, or does not print it at all; a figure from elsewhere or a choice of ours stands for it, and the note
says which. **Fitted**: a parameter of ours was chosen with the figure in sight. **Certain**: the claim follows from
how the experiment is made, and cannot fail. Neither says anything of the model; both are counted by themselves.
**Required**: no paper says it; this project requires it of its own policy.

**When a claim holds.** A figure (`47 ± 11.75`) must be within {quarter} % of itself; a share within ten points as
well, and a size that the paper computes within 5 %. Claims that this does not fit (a tie, a penalty, which is what
exceeds 1) have a tolerance of their own, and the note has the reason. A bound (`at most`, `at least`) may be exceeded
by the tolerance that is shown with it, if any; *as much as* is no bound, but the figure of the largest. An order
holds when its margin, which is `ours`, is positive, and where chance is in it, when the margin's 95 % confidence
interval excludes zero (`± `; delete-one jackknife over the runs). The programs' compilers and the
modelled core differ from the papers': the size of an effect is compared, not its last digits.

Notes say what other figures of a machine or a program, or other options of the model, would give. `numaherd reproduce` measures that,
too: a `[[variation]]` of a file in `data/claims` says what changes. `numaherd reproduce n-mass --quick --machine FILE` does so for a
changed copy of a machine's file in `data/machines`. Figures of earlier commits and recordings, which notes of IPM and `adaptive`
name as such, were measured by hand.

"
    );
    let papers: Vec<Paper> = Paper::ALL
        .into_iter()
        .filter(|paper| record.lines.iter().any(|line| line.paper == *paper))
        .collect();
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = papers.iter().map(|paper| paper.name().to_owned());
    text += &format!("| {}", row(names.chain(["all".to_owned()]).collect()));
    text += &format!("|---|{}\n", "---|".repeat(papers.len() + 1));
    for (at, what) in groups(&record.lines) {
        let papers = papers.iter().map(|&paper| Some(paper)).chain([None]);
        let tallies = papers.map(|paper| tally(&record.lines, at, paper));
        text += &row([what.to_owned()].into_iter().chain(tallies).collect());
    }
    text
}

/// A table for the end of a note, which is an item of a list.
pub fn table_in_note(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: Vec<String>| format!("    | {} |\n", cells.join(" | "));
    let head = row(headings.iter().map(|&heading| heading.to_owned()).collect());
    let rows: String = rows.into_iter().map(row).collect();
    format!("\n\n{head}    |{}\n{rows}", "---|".repeat(headings.len()))
}

/// Text within a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use numaherd_experiment::claims::Variation;

    fn line(paper: Paper, id: &str, statement: Statement, ours: f64) -> CheckedClaim {
        CheckedClaim {
            paper,
            id: id.to_owned(),
            section: "§2.2, Fig 3".to_owned(),
            what: format!("what {id} | says"),
            unit: "%".to_owned(),
            statement,
            kind: Kind::Stated,
            ours: ours.is_finite().then_some(ours),
            interval: None,
            holds: statement.holds(ours, 0.0),
            note: String::new(),
        }
    }

    fn lines() -> Vec<CheckedClaim> {
        let point = Statement::Point {
            figure: 47.0,
            tolerance: 10.0,
        };
        let most = Statement::AtMost {
            figure: 4.0,
            tolerance: 0.0,
        };
        let mut lines = vec![
            line(Paper::Dino, "a", point, 40.0),
            line(Paper::Dino, "b", most, 5.123),
            line(Paper::Dino, "c", Statement::Ranking, 0.5),
            line(Paper::NMass, "d", point, f64::NAN),
        ];
        for (at, note) in [(1, "a note"), (2, "a note"), (3, "chosen by us")] {
            lines[at].note = note.to_owned();
        }
        lines[2].interval = Some(0.123);
        lines[3].kind = Kind::Proxy;
        lines
    }

    #[test]
    fn the_table_shows_every_line() {
        insta::assert_snapshot!("table", table(&lines()));
        insta::assert_snapshot!("summary", summary(&lines()));
    }

    #[test]
    fn the_page_says_how_it_was_made_and_shows_every_line() {
        let measured = |paper, runs, commit: Option<&str>| Measurement {
            paper,
            commit: commit.map(str::to_owned),
            runs,
            hour_s: 3600.0,
            intervals: None,
        };
        let measurements = vec![
            measured(Paper::Dino, 10, Some("0123abc")),
            measured(Paper::NMass, 2, None),
        ];
        let lines = lines();
        let mut under = lines.clone();
        for line in &mut under {
            line.holds = true;
        }
        let variation = Variation {
            name: "other".to_owned(),
            what: "memory is farther".to_owned(),
            runs: 10,
            machines: Default::default(),
            programs: Default::default(),
            model: Default::default(),
        };
        let exact = Variation {
            what: "memory is nearer".to_owned(),
            runs: 0,
            ..variation.clone()
        };
        let varied = vec![
            Varied::new(Paper::Dino, &variation, &under),
            Varied::new(Paper::Dino, &exact, &under[..1]),
        ];
        let record = Record::new(measurements, lines, varied);
        insta::assert_snapshot!("page", page(&record).unwrap());
    }

    #[test]
    fn a_table_in_a_note_is_within_its_item() {
        let rows = [vec!["1 s".to_owned(), "2 ± 3".to_owned()]];
        assert_eq!(
            table_in_note(&["after", "gain"], rows),
            "\n\n    | after | gain |\n    |---|---|\n    | 1 s | 2 ± 3 |\n"
        );
    }

    #[test]
    fn the_page_in_docs_is_the_records() {
        let page_in_docs = include_str!("../../../../docs/FIDELITY.md");
        let record = Record::built_in().unwrap();
        assert!(
            page(&record).unwrap() == page_in_docs,
            "docs/FIDELITY.md is not what docs/fidelity.json says: run scripts/fidelity.sh"
        );
    }
}
