//! The table of `lab compare`, and the sentence that sums it up.

use numaherd::print;
use numaherd_experiment::Scenario;
use numaherd_experiment::in_lab::{Better, Measure, Source};
use numaherd_experiment::scenario::BEST_KNOWN;
use numaherd_experiment::table::{Table, figure, with_ordered};

use super::outcome::{Results, Summary};
use super::{BASELINE, is_ours};

/// All that is shown of a scenario: its head, a table, what the table's words mean, and a sentence for each kernel.
pub fn comparison(scenario: &Scenario, results: &[&Results]) -> String {
    let measure = scenario.measure();
    let kernels = results.iter().map(|of| of.kernel.as_str());
    let kernels = kernels.collect::<Vec<_>>().join(" and ");
    let repeat = results[0].repeat;
    let repeats = if repeat == 1 { "repeat" } else { "repeats" };
    let kernel_accesses = match scenario.kernel_accesses {
        true => ", kernel accesses modelled",
        false => "",
    };
    let mut text = format!(
        "{}: {} ({}, Linux {kernels}, {repeat} {repeats}{kernel_accesses})\n{}\n{}\n{}",
        scenario.name,
        scenario.about,
        scenario.machine,
        table(&measure, results),
        legend(&measure),
        settings(results),
    );
    for of in results {
        let summaries = of.summaries(measure.better);
        let has_ours = of.policies.iter().any(|policy| is_ours(policy));
        // Its trials were not made, or failed: there is nothing to sum up.
        if has_ours && !summaries.iter().any(|one| is_ours(&one.policy)) {
            continue;
        }
        let verdict = verdict(scenario, &summaries);
        let on = match results.len() {
            1 => String::new(),
            _ => format!("On Linux {}: ", of.kernel),
        };
        text.push('\n');
        text += &print::paragraph(format!("{on}{verdict}"));
    }
    text
}

/// The table, one line for each policy on each kernel; without figures where no trial gave any.
fn table(measure: &Measure, results: &[&Results]) -> String {
    let of = |what: &str| format!("{what} {}", measure.unit).trim_end().to_owned();
    let mut headings = vec!["policy".to_owned()];
    let several = results.len() > 1;
    headings.extend(several.then(|| "Linux".to_owned()));
    headings.extend(["mean", "±", "worst"].map(of));
    let rest = [
        "trials",
        "misses/1000",
        "local %",
        "thread moves",
        "pages moved",
    ];
    headings.extend(rest.map(str::to_owned));
    let mut table = Table::new(1, headings.iter().map(String::as_str));
    for policy in &results[0].policies {
        for results in results {
            let summary = Summary::of(policy, &results.outcomes, measure.better);
            let mut row = vec![policy.clone()];
            row.extend(several.then(|| version(&results.kernel).to_owned()));
            row.extend(figures(summary.as_ref(), results.repeat));
            table.row(row);
        }
    }
    table.text()
}

fn figures(summary: Option<&Summary>, repeat: u32) -> [String; 8] {
    let Some(summary) = summary else {
        return ["-"; 8].map(str::to_owned);
    };
    let digits = digits(summary.mean);
    let trials = match summary.trials == repeat as usize {
        true => repeat.to_string(),
        false => format!("{} of {repeat}", summary.trials),
    };
    [
        figure(summary.mean, digits),
        figure(summary.interval, digits),
        figure(summary.worst, digits),
        trials,
        figure(summary.misses_per_1000_instructions, 1),
        figure(summary.local_access_ratio.map(|share| share * 100.0), 0),
        with_ordered(summary.thread_moves, summary.thread_moves_ordered),
        with_ordered(summary.pages_moved, summary.pages_moved_ordered),
    ]
}

/// `7.3.4` of `7.3.4+deb13-amd64`.
pub fn version(release: &str) -> &str {
    release.split(['+', '-']).next().unwrap_or(release)
}

/// Under the table: versions and settings of what was compared, and why something has no figures.
fn settings(results: &[&Results]) -> String {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    let mut say = |line: String, policy| match lines.iter_mut().find(|(said, _)| *said == line) {
        Some((_, policies)) if policies.contains(&policy) => {}
        Some((_, policies)) => policies.push(policy),
        None => lines.push((line, vec![policy])),
    };
    for policy in &results[0].policies {
        for results in results {
            let of_policy = |outcome: &&super::outcome::Outcome| outcome.policy == *policy;
            let outcome = results.outcomes.iter().find(of_policy);
            if let Some(settings) = outcome.and_then(|outcome| outcome.settings.clone()) {
                say(settings, policy);
            }
            if let Some(one) = results.cannot_run.iter().find(|one| one.policy == *policy) {
                say(format!("cannot run: {}", one.error), policy);
            }
            let failed = results.failed.iter().filter(|one| one.policy == *policy);
            match failed.count() {
                0 => {}
                failed => say(
                    format!("{failed} of {} trials failed", results.repeat),
                    policy,
                ),
            }
        }
    }
    let line =
        |(line, policies): &(String, Vec<&str>)| format!("{}: {line}\n", policies.join(", "));
    lines.iter().map(line).collect()
}

/// Digits after the point that suit a figure: two of a time in seconds, none of thousands of requests.
pub fn digits(value: f64) -> usize {
    match value.abs() {
        1000.0.. => 0,
        100.0.. => 1,
        _ => 2,
    }
}

/// What the columns mean.
fn legend(measure: &Measure) -> String {
    let (what, better) = match (&measure.from, measure.better) {
        (Source::Completion, _) => ("Completion time", ""),
        (Source::Output(_), Better::Higher) => ("Figure in the output", " (higher is better)"),
        (Source::Output(_), Better::Lower) => ("Figure in the output", " (lower is better)"),
        (Source::Counter(_), _) => ("Rate", " (higher is better)"),
    };
    let told = format!(
        "{what} of the measured programs{better}, ± half of its mean's 95 % interval; misses: cache lines \
         fetched from memory, prefetches included; local: the share of them from the core's own node; in \
         brackets: what the policy ordered. NUMA balancing and cache-aware scheduling are off, except as \
         said:"
    );
    print::paragraph(&told).trim_end().to_owned()
}

/// What the last policy gains, or loses, against the kernel as it is and against the best of the others.
fn verdict(scenario: &Scenario, summaries: &[Summary]) -> String {
    let Some(ours) = summaries.iter().rev().find(|s| is_ours(&s.policy)) else {
        return "No policy was compared: add one to --policies, for instance adaptive.".to_owned();
    };
    let (what, name) = (&scenario.measured_are, &ours.policy);
    let measure = scenario.measure();
    let is_time = measure.from == Source::Completion;
    let shown = |value: f64| {
        let shown = format!("{} {}", figure(value, digits(value)), measure.unit);
        shown.trim_end().to_owned()
    };
    let Some(linux) = summaries.iter().find(|s| s.policy == BASELINE) else {
        let verb = if is_time { "took" } else { "reached" };
        return format!(
            "With {name}, the {what} {verb} {} on average.",
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
    let than = |less: f64| match (less.abs() < 0.5, is_time) {
        (true, true) => "as soon as".to_owned(),
        (true, false) => "the same as".to_owned(),
        _ => format!("{:.0} % {} than", less.abs(), word(less)),
    };
    let were = if is_time {
        "the {what} were done"
    } else {
        "the figure of the {what} was"
    };
    let mut sentence = format!(
        "With {name}, {} {} on plain Linux ({} instead of {})",
        were.replace("{what}", what),
        than(less(linux)),
        shown(ours.mean),
        shown(linux.mean),
    );
    let others = summaries
        .iter()
        .filter(|s| !is_ours(&s.policy) && s.policy != BASELINE && s.policy != BEST_KNOWN);
    if let Some(best) = others.min_by(|a, b| measure.better.order(a.mean, b.mean)) {
        sentence += &format!(
            " and {} with {}, the best alternative",
            than(less(best)),
            best.policy,
        );
    }
    if let Some(local) = ours.local_access_ratio {
        sentence += &format!(
            "; {:.0} % of memory accesses stayed on their own node",
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

    use super::super::outcome::{Failed, Outcome, ProgramResult};
    use super::*;

    fn summary(policy: &str, mean: f64, ordered: f64) -> Summary {
        Summary {
            policy: policy.to_owned(),
            settings: None,
            trials: 3,
            mean,
            worst: mean * 1.1,
            deviation: Some(0.25),
            interval: Some(0.62),
            misses_per_1000_instructions: Some(123.4),
            local_access_ratio: (policy != "numad").then_some(0.5),
            thread_moves: Some(12.0 + ordered),
            thread_moves_ordered: ordered,
            pages_moved: 1000.0 * ordered,
            pages_moved_ordered: 1000.0 * ordered,
        }
    }

    /// A trial in which the only program took so long.
    fn outcome(policy: &str, repeat: u32, seconds: f64, settings: Option<&str>) -> Outcome {
        let program = ProgramResult {
            name: "devil".to_owned(),
            copy: 0,
            measured: true,
            seconds,
            mean_thread_seconds: seconds,
            complete: true,
            thread_moves: (policy != "numad").then_some(12),
            figure: None,
        };
        let ordered = if is_ours(policy) { 4 } else { 0 };
        Outcome {
            policy: policy.to_owned(),
            settings: settings.map(str::to_owned),
            repeat,
            programs: vec![program],
            misses_per_1000_instructions: Some(123.4),
            local_access_ratio: (policy != "numad").then_some(0.5),
            uncore_penalty: None,
            thread_moves_ordered: ordered,
            pages_moved_ordered: 1000 * ordered,
            pages_moved: 1000 * ordered,
        }
    }

    fn failed(policy: &str, error: &str) -> Failed {
        Failed {
            policy: policy.to_owned(),
            repeat: 1,
            error: error.to_owned(),
        }
    }

    /// Two repeats on a kernel, of which one of numad failed.
    fn results(kernel: &str, slower: f64, scheduler: Option<&str>) -> Results {
        let ours = Some("numaherd 0.1.0");
        let all = [
            ("linux", 8.0, None),
            ("numad", 9.0, Some("version 20150602, without options")),
            ("scx_rusty", 7.0, scheduler),
            ("dino", 6.0, ours),
            ("adaptive", 5.0, ours),
        ];
        let trials = all.iter().flat_map(|&(policy, seconds, settings)| {
            let trial = move |at| {
                let seconds = slower * (seconds + f64::from(at) * 0.1);
                outcome(policy, at, seconds, settings)
            };
            (0..2).map(trial)
        });
        let has_figures = |trial: &Outcome| match trial.policy.as_str() {
            "numad" => trial.repeat == 0,
            "scx_rusty" => scheduler.is_some(),
            _ => true,
        };
        let no_sched_ext = failed("scx_rusty", "Linux 6.12 has no sched_ext (it has no /file)");
        Results {
            kernel: kernel.to_owned(),
            policies: all.map(|(policy, _, _)| policy.to_owned()).to_vec(),
            repeat: 2,
            outcomes: trials.filter(has_figures).collect(),
            failed: vec![failed("numad", "numad did not start")],
            cannot_run: Vec::from_iter(scheduler.is_none().then_some(no_sched_ext)),
        }
    }

    fn scenario() -> Scenario {
        Scenario::find("devils-on-one-node", World::Lab).unwrap()
    }

    #[test]
    fn kernels_and_policies_are_side_by_side_with_versions_settings_and_what_cannot_run() {
        let older = results("6.12.95+deb12-amd64", 1.0, None);
        let newer = Some("version 1.1.4, without options");
        let newer = results("7.3.4+deb13-amd64", 0.9, newer);
        insta::assert_snapshot!("of-two-kernels", comparison(&scenario(), &[&older, &newer]));
        insta::assert_snapshot!("of-one-kernel", comparison(&scenario(), &[&older]));
    }

    #[test]
    fn the_head_says_that_the_kernel_is_modelled_too() {
        let mut scenario = scenario();
        let results = results("6.12.95", 1.0, None);
        let head = |scenario: &Scenario| {
            let text = comparison(scenario, &[&results]);
            text.lines().next().unwrap_or_default().to_owned()
        };
        let usual = head(&scenario);
        scenario.kernel_accesses = true;
        assert_eq!(
            head(&scenario),
            usual.replace(", 2 repeats)", ", 2 repeats, kernel accesses modelled)")
        );
        assert_ne!(head(&scenario), usual);
    }

    #[test]
    fn the_sentence_says_what_was_gained() {
        let all = [
            summary("linux", 8.0, 0.0),
            summary("linux-balancing", 7.5, 0.0),
            summary("dino", 6.0, 4.0),
        ];
        insta::assert_snapshot!(verdict(&scenario(), &all), @"With dino, the devils were done 25 % sooner than on plain Linux (6.00 s instead of 8.00 s) and 20 % sooner than with linux-balancing, the best alternative; 50 % of memory accesses stayed on their own node.");
    }

    #[test]
    fn the_best_placement_known_is_a_bound_and_no_rival() {
        let all = [
            summary("linux", 8.0, 0.0),
            summary("best-known", 4.0, 0.0),
            summary("adaptive", 5.0, 4.0),
        ];
        let told = verdict(&scenario(), &all);
        assert!(!told.contains("the best alternative"), "{told}");
        let end = "With the best placement known, from the start, they take 4.00 s.";
        assert!(told.ends_with(end), "{told}");
    }

    #[test]
    fn the_sentence_says_so_when_it_loses() {
        let all = [summary("linux", 5.0, 0.0), summary("dino", 6.0, 4.0)];
        let told = verdict(&scenario(), &all);
        assert!(told.contains("20 % later than on plain Linux"), "{told}");
        let all = [summary("linux", 5.0, 0.0), summary("dino", 5.01, 4.0)];
        let told = verdict(&scenario(), &all);
        assert!(told.contains("done as soon as on plain Linux"), "{told}");
        let told = verdict(&scenario(), &all[..1]);
        assert!(told.contains("No policy was compared"), "{told}");
    }
}
