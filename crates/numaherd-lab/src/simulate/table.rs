//! The tables of `simulate`: policies side by side, then program by program.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::figures::{PolicyFigures, ProgramFigures, Saved};

/// One line for each policy.
pub fn policies(all: &[PolicyFigures]) -> String {
    let mut table = table(&[
        "policy",
        "slowdown",
        "worst",
        "dev. %",
        "saves %",
        "of worst %",
        "of dev. %",
        "thread moves",
        "a process·hour",
        "pages moved",
        "local %",
    ]);
    for policy in all {
        let saved = saved_cells(policy.saved.as_ref());
        let cells = [
            format!("{:.3}", policy.slowdown),
            format!("{:.3}", policy.worst_slowdown),
            percent(policy.deviation),
        ];
        let moves = [
            with_ordered(policy.thread_moves, policy.thread_moves_ordered),
            format!("{:.1}", policy.thread_moves_per_hour),
            format!("{:.0}", policy.pages_moved),
            percent(policy.local_access_ratio),
        ];
        add(
            &mut table,
            &[&policy.policy],
            cells.into_iter().chain(saved).chain(moves),
        );
    }
    trimmed(&table)
}

/// One line for each program and policy.
pub fn programs(all: &[PolicyFigures]) -> String {
    let serves = |program: &ProgramFigures| program.request_s.is_some();
    let requests = all.iter().any(|policy| policy.programs.iter().any(serves));
    let mut headings = vec![
        "program",
        "policy",
        "alone s",
        "mean s",
        "worst s",
        "dev. %",
        "slowdown",
        "saves %",
        "of worst %",
        "of dev. %",
        "moves an hour",
    ];
    if requests {
        headings.extend(["request ms", "saves %"]);
    }
    let mut table = table(&headings);
    let Some(first) = all.first() else {
        return String::new();
    };
    for at in 0..first.programs.len() {
        for policy in all {
            let program = &policy.programs[at];
            let (name, alone) = if std::ptr::eq(policy, first) {
                (program.program.as_str(), format!("{:.2}", program.alone_s))
            } else {
                ("", String::new())
            };
            let times = [
                alone,
                format!("{:.2}", program.mean_s),
                format!("{:.2}", program.worst_s),
                percent(program.deviation),
                format!("{:.3}", program.slowdown),
            ];
            let saved = saved_cells(program.saved.as_ref());
            let moves = format!("{:.1}", program.thread_moves_per_hour);
            let request = requests.then(|| {
                let shown = |seconds: f64| format!("{:.3}", seconds * 1e3);
                [
                    program.request_s.map_or_else(unknown, shown),
                    percent(program.saved.as_ref().and_then(|saved| saved.request)),
                ]
            });
            let cells = times.into_iter().chain(saved).chain([moves]);
            let cells = cells.chain(request.into_iter().flatten());
            add(&mut table, &[name, &policy.policy], cells);
        }
    }
    trimmed(&table)
}

/// What the columns mean.
pub const LEGEND: &str = "\
Slowdown is completion time over that alone on the machine; worst, the longest of all copies and
repeats; dev., the standard deviation over the mean. Saved is against the first policy. Thread moves
are those between memory domains, by whomever; in brackets, what the policy ordered.";

/// What the last policy saves, or loses, against the first.
pub fn verdict(all: &[PolicyFigures]) -> Option<String> {
    let (first, last) = (all.first()?, all.last()?);
    let saved = last.saved?;
    let side = |share: f64| match percent(Some(share.abs())) {
        shown if shown == "0.0" => "as much".to_owned(),
        shown if share > 0.0 => format!("{shown} % less"),
        shown => format!("{shown} % more"),
    };
    let mean = side(saved.mean);
    let than = if mean == "as much" { "as" } else { "than" };
    let mut sentence = format!(
        "With {} programs take {mean} time {than} with {} on average, the worst off {}",
        last.policy,
        first.policy,
        side(saved.worst),
    );
    let programs = last.programs.iter().filter_map(|program| {
        let saved = program.saved?.mean;
        Some((saved, program.program.as_str()))
    });
    let mut programs: Vec<(f64, &str)> = programs.collect();
    programs.sort_by(|a, b| a.0.total_cmp(&b.0));
    if let [least, .., most] = programs[..] {
        let each = |(saved, program): (f64, &str)| format!("{program} {}", side(saved));
        sentence += &format!("; from {} to {}", each(least), each(most));
    }
    Some(sentence + ".")
}

fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let right = |heading: &&str| match *heading {
        "policy" | "program" => Cell::new(heading),
        _ => Cell::new(heading).set_alignment(CellAlignment::Right),
    };
    table.set_header(headings.iter().map(right));
    table
}

fn add(table: &mut Table, left: &[&str], right: impl Iterator<Item = String>) {
    let left = left.iter().map(Cell::new);
    let right = right.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
    table.add_row(left.chain(right));
}

fn trimmed(table: &Table) -> String {
    table.trim_fmt()
}

fn saved_cells(saved: Option<&Saved>) -> [String; 3] {
    [
        percent(saved.map(|saved| saved.mean)),
        percent(saved.map(|saved| saved.worst)),
        percent(saved.and_then(|saved| saved.deviation)),
    ]
}

fn unknown() -> String {
    "-".to_owned()
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| {
        // No "-0.0".
        let shown = format!("{:.1}", share * 100.0);
        if shown == "-0.0" {
            "0.0".to_owned()
        } else {
            shown
        }
    })
}

fn with_ordered(all: f64, ordered: f64) -> String {
    if ordered > 0.0 {
        format!("{all:.0} ({ordered:.0})")
    } else {
        format!("{all:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(policy: &str, scale: f64, saved: Option<Saved>) -> PolicyFigures {
        let program = |name: &str, alone_s: f64, request_s: Option<f64>| ProgramFigures {
            program: name.to_owned(),
            alone_s,
            mean_s: alone_s * scale,
            worst_s: alone_s * scale * 1.1,
            deviation: (scale != 1.0).then_some(0.05),
            slowdown: scale,
            request_s,
            thread_moves_per_hour: 12.5,
            saved,
        };
        PolicyFigures {
            policy: policy.to_owned(),
            trials: 10,
            slowdown: scale,
            worst_slowdown: scale * 1.1,
            deviation: None,
            saved,
            thread_moves: 20.0,
            thread_moves_ordered: if saved.is_some() { 16.0 } else { 0.0 },
            pages_moved: 4096.0,
            thread_moves_per_hour: 12.5,
            miss_rate: 10.0,
            local_access_ratio: Some(0.75),
            programs: vec![
                program("mcf", 300.0, None),
                program("apache", 20.0, Some(0.0213)),
            ],
        }
    }

    fn both() -> [PolicyFigures; 2] {
        let saved = Saved {
            mean: 0.2,
            worst: -0.1,
            deviation: None,
            request: Some(0.15),
        };
        [
            figures("linux", 1.5, None),
            figures("dino", 1.2, Some(saved)),
        ]
    }

    #[test]
    fn the_tables_show_every_figure_and_a_dash_for_what_is_unknown() {
        insta::assert_snapshot!("policies", policies(&both()));
        insta::assert_snapshot!("programs", programs(&both()));
    }

    #[test]
    fn the_sentence_says_what_is_saved_and_what_is_lost() {
        insta::assert_snapshot!(verdict(&both()).unwrap(), @"With dino programs take 20.0 % less time than with linux on average, the worst off 10.0 % more; from mcf 20.0 % less to apache 20.0 % less.");
        assert_eq!(verdict(&both()[..1]), None);
    }

    #[test]
    fn nothing_saved_is_shown_without_a_sign() {
        assert_eq!(percent(Some(-0.0001)), "0.0");
        assert_eq!(percent(Some(-0.01)), "-1.0");
    }
}
