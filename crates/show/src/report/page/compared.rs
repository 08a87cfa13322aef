//! Several runs side by side: the means of each policy's runs with their intervals, and each run.

use std::collections::BTreeSet;

use maud::{Markup, html};
use numaherd_quantity::statistics::Mean;

use super::{Escaped, name};
use crate::report::Run;
use crate::report::compare::{Group, MEASURES, Measure, Unit, figures, groups, programs};
use crate::report::draw::{Dots, brief, dots};
use crate::words::{count, misses};

/// Most programs that are compared by name.
const MOST_PROGRAMS: usize = 50;

pub(super) fn compared(runs: &[Run]) -> Markup {
    let groups = groups(runs);
    if groups.is_empty() {
        return Markup::default();
    }
    let machines: BTreeSet<&str> = groups.iter().map(|group| group.machine).collect();
    let alike = machines.len() == 1;
    let titles: Vec<String> = groups
        .iter()
        .map(|group| title(group, (!alike).then_some(group.machine)))
        .collect();
    html! {
        h2.first #compared { "Compared" }
        p {
            "Means over the runs of each policy" @if !alike { " on each machine" }
            ", ± half of the 95 % confidence interval (Student's t) where there is more than one run; n is \
             the number of runs. Intervals of few runs are wide: overlapping ones do not show that two \
             policies are alike, nor does one run alone show that they differ. In the charts there is a \
             ring for each run, a bar at the mean and a line for the interval; scales need not begin at 0, and \
             what is the same in all runs is not drawn."
        }
        (means(&groups, &titles))
        @for (number, measure) in MEASURES.iter().enumerate() {
            (chart(number, measure, &groups, &titles))
        }
        (by_program(&groups, &titles))
        (each(runs))
    }
}

/// The title of a group, with its machine if `machine` is given.
fn title(group: &Group<'_>, machine: Option<&str>) -> String {
    let mut title = name(group.policy);
    if let Some(machine) = machine {
        title += &format!(" on {}", name(machine));
    }
    if group.dry_run {
        title += " (dry run)";
    }
    title
}

/// A figure without its unit, and the unit.
fn parts(unit: Unit, figure: f64) -> (String, &'static str) {
    match unit {
        Unit::Seconds if figure < 1e6 => (format!("{figure:.2}"), " s"),
        Unit::Seconds => (brief(figure), " s"),
        Unit::Percent => (format!("{figure:.1}"), " %"),
        Unit::PerSecond => (brief(figure), "/s"),
        Unit::Plain if figure.fract() == 0.0 && figure.abs() < 1e15 => (count(figure as u64), ""),
        Unit::Plain if figure.abs() < 1e4 => (misses(figure), ""),
        Unit::Plain => (brief(figure), ""),
    }
}

/// A figure in its unit.
fn shown(unit: Unit, figure: f64) -> String {
    let (figure, unit) = parts(unit, figure);
    figure + unit
}

fn mean_shown(unit: Unit, mean: &Mean) -> String {
    match mean.half {
        Some(half) => {
            let ((mean, _), (half, unit)) = (parts(unit, mean.mean), parts(unit, half));
            format!("{mean} ± {half}{unit}")
        }
        None => shown(unit, mean.mean),
    }
}

fn means(groups: &[Group<'_>], titles: &[String]) -> Markup {
    html! {
        div.wide { table {
            caption { b { "Means" } }
            thead { tr {
                th { "policy" } th.n { "n" }
                @for measure in &MEASURES { th.n title=(measure.about) { (measure.name) } }
            } }
            tbody {
                @for (group, title) in groups.iter().zip(titles) {
                    tr {
                        th scope="row" { bdi { (title) } }
                        td.n { (group.runs.len()) }
                        @for measure in &MEASURES {
                            @let mean = Mean::of(&figures(group, measure));
                            td.n { (cell(measure.unit, mean.as_ref(), group.runs.len())) }
                        }
                    }
                }
            }
        } }
    }
}

/// A mean, with its n if that is not the group's.
fn cell(unit: Unit, mean: Option<&Mean>, runs: usize) -> Markup {
    html! {
        @match mean {
            Some(mean) => {
                (mean_shown(unit, mean))
                @if mean.count != runs { small { " n " (mean.count) } }
            },
            None => "–",
        }
    }
}

fn chart(number: usize, measure: &Measure, groups: &[Group<'_>], titles: &[String]) -> Markup {
    let rows: Vec<Dots> = groups
        .iter()
        .zip(titles)
        .map(|(group, title)| {
            let figures = figures(group, measure);
            let mean = Mean::of(&figures);
            let written = mean.as_ref().map_or_else(
                || "not measured".to_owned(),
                |mean| format!("{}, n {}", mean_shown(measure.unit, mean), mean.count),
            );
            Dots {
                name: title.clone(),
                figures,
                mean,
                written,
            }
        })
        .collect();
    let about = format!("{}.", crate::words::sentence(measure.about));
    let title = crate::words::sentence(measure.name);
    dots(&format!("compared-{number}"), &title, &about, &rows)
}

/// Speed and time of each program, by policy.
fn by_program(groups: &[Group<'_>], titles: &[String]) -> Markup {
    let by_group: Vec<_> = groups.iter().map(programs).collect();
    let all: BTreeSet<&str> = by_group.iter().flat_map(|by| by.keys().copied()).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let left_out = all.len().saturating_sub(MOST_PROGRAMS);
    html! {
        div.wide { table {
            caption {
                b { "Programs" } " Processes of one name together: instructions per second of CPU time, and \
                for how long they were there."
                @if left_out > 0 { " " (left_out) " more programs are not shown." }
            }
            thead {
                tr {
                    th { "program" }
                    @for title in titles { th.n { bdi { (title) } ": speed" } th.n { "time" } }
                }
            }
            tbody {
                @for program in all.iter().take(MOST_PROGRAMS) {
                    tr {
                        th scope="row" { bdi { (name(program)) } }
                        @for (group, by) in groups.iter().zip(&by_group) {
                            @let of = |figures: &[f64]| Mean::of(figures);
                            @let (speed, time) = by.get(program).map_or((None, None), |(s, t)| (of(s), of(t)));
                            td.n { (cell(Unit::PerSecond, speed.as_ref(), group.runs.len())) }
                            td.n { (cell(Unit::Seconds, time.as_ref(), group.runs.len())) }
                        }
                    }
                }
            }
        } }
    }
}

/// Each run in one line.
fn each(runs: &[Run]) -> Markup {
    html! {
        div.wide { table {
            caption { b { "Runs" } }
            thead { tr {
                th { "run" } th { "policy" } th.n { "seed" }
                @for measure in &MEASURES { th.n title=(measure.about) { (measure.name) } }
                th { "read" }
            } }
            tbody {
                @for (number, run) in (1..).zip(runs) {
                    tr {
                        th scope="row" { a href={ "#run-" (number) } { (Escaped(&run.name)) } }
                        td { bdi { (name(super::policy(run))) } }
                        td.n { @match run.model.start() { Some(start) => (start.seed), None => "–" } }
                        @for measure in &MEASURES {
                            td.n {
                                @match (measure.of)(run).filter(|figure| figure.is_finite()) {
                                    Some(figure) => (shown(measure.unit, figure)),
                                    None => "–",
                                }
                            }
                        }
                        td { (how_much(run)) }
                    }
                }
            }
        } }
    }
}

/// How much of a run its ledger holds.
fn how_much(run: &Run) -> &'static str {
    match (&run.source.damage, run.source.later_part, run.model.end()) {
        (Some(_), _, _) => "up to its damage",
        (None, true, _) => "its later part",
        (None, false, None) => "without its end",
        (None, false, Some(_)) => "whole",
    }
}
