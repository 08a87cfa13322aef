//! The table of `lab compare`, and the sentence that sums it up.

use numaherd_experiment::Scenario;
use numaherd_experiment::in_lab::{Better, Measure, Source};
use numaherd_experiment::scenario::BEST_KNOWN;
use numaherd_experiment::table::{Table, figure, with_ordered};

use super::BASELINES;
use super::outcome::Summary;

/// The table, one line for each policy, in the order of the summaries.
pub fn table(measure: &Measure, summaries: &[Summary]) -> String {
    let of = |what: &str| format!("{what} {}", measure.unit).trim_end().to_owned();
    let mut headings = ["mean", "worst", "dev."].map(of).to_vec();
    headings.insert(0, "policy".to_owned());
    let rest = ["misses/1000", "local %", "thread moves", "pages moved"];
    headings.extend(rest.map(str::to_owned));
    let mut table = Table::new(1, headings.iter().map(String::as_str));
    for summary in summaries {
        table.row([
            summary.policy.clone(),
            figure(summary.mean, digits(summary.mean)),
            figure(summary.worst, digits(summary.mean)),
            figure(summary.deviation, digits(summary.mean)),
            figure(summary.misses_per_1000_instructions, 1),
            figure(summary.local_access_ratio.map(|share| share * 100.0), 0),
            with_ordered(summary.thread_moves, summary.thread_moves_ordered),
            with_ordered(summary.pages_moved, summary.pages_moved_ordered),
        ]);
    }
    table.text()
}

/// Digits after the point that suit a figure: two of a time in seconds, none of thousands of requests.
fn digits(value: f64) -> usize {
    match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        _ => 2,
    }
}

/// What the columns mean.
pub fn legend(measure: &Measure) -> String {
    let (what, better) = match (&measure.from, measure.better) {
        (Source::Completion, _) => ("Completion time", ""),
        (Source::Output(_), Better::Higher) => ("Figure in the output", " (higher is better)"),
        (Source::Output(_), Better::Lower) => ("Figure in the output", " (lower is better)"),
        (Source::Counter(_), _) => ("Rate", " (higher is better)"),
    };
    format!(
        "{what} of the measured programs{better}; misses are cache lines fetched from memory, prefetches\n\
         included; local is the share of them from the core's own node; in brackets, what the policy ordered."
    )
}

/// What the last policy gains, or loses, against the kernel as it is and against the best of the others.
pub fn verdict(scenario: &Scenario, summaries: &[Summary]) -> String {
    let Some(ours) = summaries
        .iter()
        .rev()
        .find(|s| !BASELINES.contains(&s.policy.as_str()))
    else {
        return "No policy was compared: add one to --policies, for instance dino.".to_owned();
    };
    let (what, name) = (&scenario.measured_are, &ours.policy);
    let measure = scenario.measure();
    let is_time = measure.from == Source::Completion;
    let shown = |value: f64| {
        let shown = format!("{} {}", figure(value, digits(value)), measure.unit);
        shown.trim_end().to_owned()
    };
    let Some(linux) = summaries.iter().find(|s| s.policy == "linux") else {
        let verb = if is_time { "took" } else { "reached" };
        return format!(
            "With {name} the {what} {verb} {} on average.",
            shown(ours.mean)
        );
    };
    let less = |other: &Summary| (1.0 - ours.mean / other.mean) * 100.0;
    let word = |less: f64| match (is_time, less >= 0.0) {
        (true, true) => "sooner",
        (true, false) => "later",
        (false, true) => "lower",
        (false, false) => "higher",
    };
    let gain = less(linux);
    let were = if is_time {
        "the {what} were done"
    } else {
        "the figure of the {what} was"
    };
    let mut sentence = format!(
        "With {name} {} {:.0} % {} than on Linux as it is ({} instead of {})",
        were.replace("{what}", what),
        gain.abs(),
        word(gain),
        shown(ours.mean),
        shown(linux.mean),
    );
    let others = summaries
        .iter()
        .filter(|s| BASELINES[1..].contains(&s.policy.as_str()) && s.policy != BEST_KNOWN);
    let order = |a: &&Summary, b: &&Summary| match measure.better {
        Better::Lower => a.mean.total_cmp(&b.mean),
        Better::Higher => b.mean.total_cmp(&a.mean),
    };
    if let Some(best) = others.min_by(order) {
        let gain = less(best);
        sentence += &format!(
            " and {:.0} % {} than with {}, the best of the alternatives that can be had today",
            gain.abs(),
            word(gain),
            best.policy,
        );
    }
    if let Some(local) = ours.local_access_ratio {
        sentence += &format!(
            "; {:.0} % of its memory accesses stayed on their own node",
            local * 100.0
        );
    }
    sentence.push('.');
    if let Some(best) = summaries.iter().find(|s| s.policy == BEST_KNOWN) {
        sentence += &format!(
            " With the best placement known, from the start, they {} {}.",
            if is_time { "take" } else { "reach" },
            shown(best.mean)
        );
    }
    sentence
}

#[cfg(test)]
mod tests {
    use numaherd_experiment::World;

    use super::*;

    fn summary(policy: &str, mean: f64, ordered: f64) -> Summary {
        Summary {
            policy: policy.to_owned(),
            trials: 3,
            mean,
            worst: mean * 1.1,
            deviation: (policy != "numad").then_some(0.25),
            misses_per_1000_instructions: Some(123.4),
            local_access_ratio: (policy != "numad").then_some(0.5),
            thread_moves: Some(12.0 + ordered),
            thread_moves_ordered: ordered,
            pages_moved: 1000.0 * ordered,
            pages_moved_ordered: 1000.0 * ordered,
        }
    }

    fn scenario() -> Scenario {
        Scenario::find("devils-on-one-node", World::Lab).unwrap()
    }

    #[test]
    fn the_table_shows_every_figure_and_a_dash_for_what_is_unknown() {
        insta::assert_snapshot!(table(
            &Measure::default(),
            &[
                summary("linux", 8.0, 0.0),
                summary("numad", 9.0, 0.0),
                summary("dino", 6.0, 4.0),
            ]
        ));
    }

    #[test]
    fn the_sentence_says_what_was_gained() {
        let all = [
            summary("linux", 8.0, 0.0),
            summary("linux-balancing", 7.5, 0.0),
            summary("dino", 6.0, 4.0),
        ];
        insta::assert_snapshot!(verdict(&scenario(), &all), @"With dino the devils were done 25 % sooner than on Linux as it is (6.00 s instead of 8.00 s) and 20 % sooner than with linux-balancing, the best of the alternatives that can be had today; 50 % of its memory accesses stayed on their own node.");
    }

    #[test]
    fn the_best_placement_known_is_a_bound_and_no_rival() {
        let all = [
            summary("linux", 8.0, 0.0),
            summary("best-known", 4.0, 0.0),
            summary("adaptive", 5.0, 4.0),
        ];
        let told = verdict(&scenario(), &all);
        assert!(!told.contains("the best of the alternatives"), "{told}");
        let end = "With the best placement known, from the start, they take 4.00 s.";
        assert!(told.ends_with(end), "{told}");
    }

    #[test]
    fn the_sentence_says_so_when_it_loses() {
        let all = [summary("linux", 5.0, 0.0), summary("dino", 6.0, 4.0)];
        let told = verdict(&scenario(), &all);
        assert!(told.contains("20 % later than on Linux as it is"), "{told}");
        let told = verdict(&scenario(), &all[..1]);
        assert!(told.contains("No policy was compared"), "{told}");
    }
}
