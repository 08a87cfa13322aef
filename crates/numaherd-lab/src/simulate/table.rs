//! The tables of `simulate`: policies side by side, then program by program.

use numaherd_experiment::figures::{PolicyFigures, ProgramFigures, Saved};
use numaherd_experiment::table::{Table, figure, percent, with_ordered};
use numaherd_policy::registry::{self, Worlds};

/// One line for each policy.
pub fn policies(all: &[PolicyFigures]) -> String {
    let headings = "policy|slowdown|worst|dev. %|saves %|of worst %|of dev. %|thread moves|\
        a process·hour|pages moved|local %";
    let mut table = Table::new(1, headings.split('|'));
    for policy in all {
        let [mean, worst, deviation] = saved(policy.saved.as_ref());
        table.row([
            policy.policy.clone(),
            figure(policy.slowdown, 3),
            figure(policy.worst_slowdown, 3),
            percent(policy.deviation),
            mean,
            worst,
            deviation,
            with_ordered(policy.thread_moves, policy.thread_moves_ordered),
            figure(policy.thread_moves_per_hour, 1),
            figure(policy.pages_moved, 0),
            percent(policy.local_access_ratio),
        ]);
    }
    table.text()
}

/// One line for each program and policy.
pub fn programs(all: &[PolicyFigures]) -> String {
    let serves = |program: &ProgramFigures| program.request_s.is_some();
    let requests = all.iter().any(|policy| policy.programs.iter().any(serves));
    let headings = "program|policy|alone s|mean s|worst s|dev. %|slowdown|saves %|of worst %|\
        of dev. %|moves an hour|request ms|saves %";
    let shown = headings.split('|').count() - if requests { 0 } else { 2 };
    let mut table = Table::new(2, headings.split('|').take(shown));
    let Some(first) = all.first() else {
        return String::new();
    };
    for at in 0..first.programs.len() {
        for policy in all {
            let program = &policy.programs[at];
            let (name, alone) = match std::ptr::eq(policy, first) {
                true => (program.program.clone(), figure(program.alone_s, 2)),
                false => (String::new(), String::new()),
            };
            let [mean, worst, deviation] = saved(program.saved.as_ref());
            let row = [
                name,
                policy.policy.clone(),
                alone,
                figure(program.mean_s, 2),
                figure(program.worst_s, 2),
                percent(program.deviation),
                figure(program.slowdown, 3),
                mean,
                worst,
                deviation,
                figure(program.thread_moves_per_hour, 1),
                figure(program.request_s.map(|seconds| seconds * 1e3), 3),
                percent(program.saved.and_then(|saved| saved.request)),
            ];
            table.row(row.into_iter().take(shown));
        }
    }
    table.text()
}

fn saved(saved: Option<&Saved>) -> [String; 3] {
    [
        percent(saved.map(|saved| saved.mean)),
        percent(saved.map(|saved| saved.worst)),
        percent(saved.and_then(|saved| saved.deviation)),
    ]
}

/// What the columns mean.
pub const LEGEND: &str = "\
Slowdown is completion time over that alone on the machine; worst, the longest of all copies and
repeats; dev., the standard deviation over the mean. Saved is against the first policy. Thread moves
are those between memory domains, by anyone; in brackets, what the policy ordered.";

/// What the best of the others saves, or loses, against the first. Policies for models alone count only if there is
/// no other: an oracle bounds what the others could save.
pub fn verdict(all: &[PolicyFigures]) -> Option<String> {
    let (first, others) = all.split_first()?;
    let saves = |figures: &&PolicyFigures| figures.saved.map_or(f64::MIN, |saved| saved.mean);
    let is_of_models = |figures: &&PolicyFigures| {
        let known = registry::POLICIES.iter();
        let mut known = known.filter(|policy| policy.name == figures.policy);
        known.any(|policy| policy.worlds != Worlds::All)
    };
    let most = |a: &&PolicyFigures, b: &&PolicyFigures| saves(a).total_cmp(&saves(b));
    let can_be_run = others.iter().filter(|figures| !is_of_models(figures));
    let best = can_be_run.max_by(most).or(others.iter().max_by(most))?;
    let saved = best.saved?;
    let side = |share: f64| match percent(share.abs()) {
        shown if shown == "0.0" => "as much".to_owned(),
        shown if share > 0.0 => format!("{shown} % less"),
        shown => format!("{shown} % more"),
    };
    let mean = side(saved.mean);
    let than = if mean == "as much" { "as" } else { "than" };
    let mut sentence = format!(
        "With {}, programs take {mean} time {than} with {} on average, the worst off {}",
        best.policy,
        first.policy,
        side(saved.worst),
    );
    let programs = best.programs.iter().filter_map(|program| {
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
        insta::assert_snapshot!(verdict(&both()).unwrap(), @"With dino, programs take 20.0 % less time than with linux on average, the worst off 10.0 % more; from mcf 20.0 % less to apache 20.0 % less.");
        assert_eq!(verdict(&both()[..1]), None);
    }

    #[test]
    fn the_sentence_is_about_the_best_that_can_be_run() {
        let saves = |mean| Saved {
            mean,
            worst: mean,
            deviation: None,
            request: None,
        };
        let all = |policies: &[(&str, f64)]| {
            let each = policies.iter();
            let others = each.map(|&(policy, mean)| figures(policy, 1.2, Some(saves(mean))));
            let all: Vec<_> = std::iter::once(figures("linux", 1.5, None))
                .chain(others)
                .collect();
            verdict(&all).unwrap()
        };
        let policies = [
            ("homeward", 0.01),
            ("dino", 0.2),
            ("di-plain", 0.1),
            ("oracle", 0.3),
        ];
        assert!(all(&policies).starts_with("With dino, programs take 20.0 % less"));
        assert!(all(&[("oracle", 0.3)]).starts_with("With oracle, programs take 30.0 % less"));
        let worse = all(&[("homeward", -0.02), ("dino", -0.01)]);
        assert!(worse.starts_with("With dino, programs take 1.0 % more"));
    }
}
