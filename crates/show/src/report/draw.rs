//! Charts as SVG within the page.
//!
//! Rules for all charts: a title and a description say in words what is drawn; text stays text; things that differ in
//! colour also differ in place; colours are the page's variables, so that one drawing serves light, dark and print.
//! Lengths are in pixels of a chart that is [`WIDTH`] wide and scales with the page.

mod dots;
mod matrix;
mod pairs;
mod placements;
mod strips;

use std::fmt::Write;

use maud::{Markup, html};

use super::columns::Clock;

pub(super) use dots::{Dots, dots};
pub(super) use matrix::matrix;
pub(super) use pairs::pairs;
pub(super) use placements::placements;
pub(super) use strips::{Chart, Drawn, Strip};

/// Width of every chart over time.
const WIDTH: f64 = 960.0;

/// The left and right ends of what is drawn over time.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 870.0;

/// Room for the axis of time.
const AXIS: f64 = 22.0;

/// The number of colours for nodes; further nodes reuse them.
const COLOURS: usize = 8;

/// The class that gives an element the colour of the node with this index.
pub(super) fn colour(place: usize) -> String {
    format!("c{}", place % COLOURS)
}

/// A chart with its title, and its description for people who do not see it.
fn figure(
    id: &str,
    title: &str,
    about: &str,
    description: &str,
    height: f64,
    drawn: &Markup,
) -> Markup {
    let (title_id, description_id) = (format!("{id}-t"), format!("{id}-d"));
    let size = format!("0 0 {WIDTH} {}", Px(height));
    html! {
        figure id=(id) {
            figcaption { b { (title) } " " (about) }
            svg viewBox=(size) role="img" aria-labelledby={ (title_id) " " (description_id) } {
                title id=(title_id) { (title) }
                desc id=(description_id) { (description) }
                (drawn)
            }
        }
    }
}

/// A length in pixels, written to a tenth; always a number that fits a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Px(pub(crate) f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round();
        // The cast turns NaN into 0.
        let tenths = tenths.clamp(-1e6, 1e6) as i64;
        if tenths % 10 == 0 {
            write!(f, "{}", tenths / 10)
        } else {
            let sign = if tenths < 0 { "-" } else { "" };
            let tenths = tenths.abs();
            write!(f, "{sign}{}.{}", tenths / 10, tenths % 10)
        }
    }
}

impl maud::Render for Px {
    fn render_to(&self, buffer: &mut String) {
        write!(buffer, "{self}").expect("a string takes whatever is written");
    }
}

/// Where a point in time, in ns from the clock's origin, is drawn.
fn x(clock: &Clock, since_ns: u64) -> f64 {
    let share = since_ns.min(clock.span_ns) as f64 / clock.span_ns.max(1) as f64;
    LEFT + share * (RIGHT - LEFT)
}

/// Where a column begins and ends.
fn column(clock: &Clock, number: u64) -> (f64, f64) {
    let begin = number << clock.shift;
    let end = begin.saturating_add(clock.width_ns());
    (x(clock, begin), x(clock, end))
}

/// The axis of time, in the world's time, with faint lines up to `top`.
fn time_axis(clock: &Clock, top: f64, bottom: f64) -> Markup {
    let step = time_step(clock.span_ns);
    let first = clock.origin_ns.div_ceil(step);
    let end = clock.origin_ns.saturating_add(clock.span_ns);
    let ticks = (first..).map(|number| number.saturating_mul(step));
    let ticks = ticks.take_while(|&at| at <= end).take(40);
    html! {
        @for at in ticks {
            @let x = x(clock, clock.since(at));
            path.grid d={ "M" (Px(x)) " " (Px(top)) "V" (Px(bottom)) } {}
            text.tick x=(Px(x)) y=(Px(bottom + 15.0)) text-anchor="middle" { (tick_time(at, step)) }
        }
        path.axis d={ "M" (Px(LEFT)) " " (Px(bottom)) "H" (Px(RIGHT)) } {}
    }
}

/// The distance of ticks of time, in ns: a round time that gives at most twelve.
fn time_step(span_ns: u64) -> u64 {
    const MS: u64 = 1_000_000;
    const DAY_MS: u64 = 86_400_000;
    // From 1 ms to 500 ms, from 1 s to 30 s, from 1 min to 30 min, from 1 h to 1 d.
    const STEPS_MS: [u64; 27] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000,
        120_000, 300_000, 600_000, 1_200_000, 1_800_000, 3_600_000, 7_200_000, 14_400_000,
        21_600_000, 43_200_000, DAY_MS,
    ];
    let mut steps = STEPS_MS.into_iter().map(|step| step * MS);
    let enough = steps.find(|step| span_ns / step <= 12);
    // Beyond twelve days: whole days.
    enough.unwrap_or_else(|| (span_ns / 12).div_ceil(DAY_MS * MS) * DAY_MS * MS)
}

fn tick_time(at_ns: u64, step_ns: u64) -> String {
    let seconds = at_ns / 1_000_000_000;
    match step_ns {
        0..1_000_000_000 if at_ns < 1_000_000_000 => format!("{} ms", at_ns / 1_000_000),
        0..1_000_000_000 => format!("{} s", crate::words::short(at_ns as f64 / 1e9)),
        1_000_000_000..60_000_000_000 if seconds < 120 => format!("{seconds} s"),
        1_000_000_000..60_000_000_000 => format!("{}:{:02} min", seconds / 60, seconds % 60),
        60_000_000_000..3_600_000_000_000 if seconds < 7_200 => format!("{} min", seconds / 60),
        60_000_000_000..3_600_000_000_000 => {
            format!("{}:{:02} h", seconds / 3_600, seconds / 60 % 60)
        }
        3_600_000_000_000..86_400_000_000_000 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A figure in few letters: `0.25`, `4.5`, `120`, `1.2 k`, `3.4 M`.
pub(super) fn brief(figure: f64) -> String {
    let size = figure.abs();
    let scaled = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    if let Some((by, name)) = scaled.into_iter().find(|(by, _)| size >= *by) {
        let by = if name == "k" { 1e3 } else { by };
        return format!("{} {name}", significant(figure / by));
    }
    significant(figure)
}

/// About three significant digits, without trailing zeros.
fn significant(figure: f64) -> String {
    let decimals = match figure.abs() {
        0.0 => return "0".to_owned(),
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        size if size >= 0.001 => 4,
        _ => return format!("{figure:.1e}"),
    };
    let text = format!("{figure:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_are_brief() {
        let shown = [
            0.0, 0.254, 4.5, 12.04, 1204.0, 12_040.0, 3.4e6, 2e9, 0.012, 1e-9,
        ];
        let shown: Vec<String> = shown.into_iter().map(brief).collect();
        let expected = [
            "0", "0.25", "4.5", "12", "1204", "12 k", "3.4 M", "2 G", "0.012", "1.0e-9",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn ticks_have_the_unit_of_their_distance() {
        const S: u64 = 1_000_000_000;
        assert_eq!(tick_time(250 * S / 1000, S / 20), "250 ms");
        assert_eq!(tick_time(15 * S, 5 * S), "15 s");
        assert_eq!(tick_time(150 * S, 30 * S), "2:30 min");
        assert_eq!(tick_time(900 * S, 300 * S), "15 min");
        assert_eq!(tick_time(9_000 * S, 1_800 * S), "2:30 h");
        assert_eq!(tick_time(100 * 3_600 * S, 7_200 * S), "100 h");
    }

    proptest! {
        #[test]
        fn lengths_are_numbers_whatever_they_are_of(bits in any::<u64>()) {
            let shown = Px(f64::from_bits(bits)).to_string();
            let back: f64 = shown.parse().unwrap();
            prop_assert!(back.abs() <= 1e5);
        }

        #[test]
        fn there_are_few_ticks_and_they_are_apart(span in 1..u64::MAX) {
            let step = time_step(span);
            prop_assert!(step > 0 && span / step <= 12);
        }
    }
}
