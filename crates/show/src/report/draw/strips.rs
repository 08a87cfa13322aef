//! Figures over time: one strip for each of the things compared, below one another on the same scale.

use std::fmt::Write;

use itertools::Itertools as _;
use maud::{Markup, html};
use numaherd_quantity::round_up;

use super::{AXIS, LEFT, Px, RIGHT, brief, column, figure, time_axis};
use crate::report::columns::{Amount, Cell, Clock, Spread};

/// Height of a strip that stands alone, and of one among others.
const ALONE: f64 = 110.0;
const AMONG: f64 = 46.0;

/// The distance between two strips.
const BETWEEN: f64 = 10.0;

/// Most strips of a chart.
const MOST: usize = 16;

/// What is drawn in a column: the column's number, and the least, mean and greatest figure.
type Point = (u64, f64, f64, f64);

/// How a strip is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Drawn {
    /// A line of means in a band from least to greatest.
    Line,
    /// A bar for each column.
    Bars,
}

/// One strip.
pub(in crate::report) struct Strip {
    label: String,
    /// Its class, which gives it a colour.
    class: String,
    points: Vec<Point>,
    /// The text for the whole strip, at its end.
    whole: String,
}

impl Strip {
    /// A strip of a figure over time, multiplied by `factor`.
    pub(in crate::report) fn spread<'c>(
        label: &str,
        class: &str,
        cells: impl Iterator<Item = (u64, &'c Spread)>,
        factor: f64,
        unit: &str,
    ) -> Self {
        let mut all = Spread::default();
        let points = cells.filter_map(|(number, cell)| {
            let (least, greatest) = cell.ends?;
            let mean = cell.mean()?;
            all.merge(cell);
            Some((number, least * factor, mean * factor, greatest * factor))
        });
        let points = points.collect();
        let whole = all.mean().map_or_else(
            || "not measured".to_owned(),
            |mean| format!("{}{unit} mean", brief(mean * factor)),
        );
        Self {
            label: label.to_owned(),
            class: class.to_owned(),
            points,
            whole,
        }
    }

    /// A strip of a number of things over time, multiplied by `factor`; `whole` is the text for the total.
    pub(in crate::report) fn amount<'c>(
        label: &str,
        class: &str,
        cells: impl Iterator<Item = (u64, &'c Amount)>,
        factor: f64,
        whole: String,
    ) -> Self {
        let points = cells.filter(|(_, cell)| cell.0 > 0);
        let points = points.map(|(number, cell)| {
            let amount = cell.0 as f64 * factor;
            (number, amount, amount, amount)
        });
        Self {
            label: label.to_owned(),
            class: class.to_owned(),
            points: points.collect(),
            whole,
        }
    }

    /// Whether there is anything to draw.
    pub(in crate::report) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn greatest(&self) -> f64 {
        let greatest = self.points.iter().map(|point| point.3);
        greatest.filter(|f| f.is_finite()).fold(0.0, f64::max)
    }
}

/// A chart of strips.
pub(in crate::report) struct Chart {
    /// Its name, from which its id on the page is made.
    pub(in crate::report) name: &'static str,
    pub(in crate::report) title: &'static str,
    /// What is drawn, as a sentence below the title.
    pub(in crate::report) about: String,
    /// The unit of its scale.
    pub(in crate::report) unit: &'static str,
    pub(in crate::report) drawn: Drawn,
    /// The end of the scale, if the measure has a greatest value.
    pub(in crate::report) top: Option<f64>,
    pub(in crate::report) strips: Vec<Strip>,
}

impl Chart {
    /// The same with a unit.
    #[must_use]
    pub(in crate::report) fn per(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// The same for percentages, on a scale up to 100 %.
    #[must_use]
    pub(in crate::report) fn of_shares(self) -> Self {
        let top = Some(100.0);
        Self {
            top,
            ..self.per(" %")
        }
    }

    /// Draws the chart; nothing if all strips are empty.
    pub(in crate::report) fn draw(&self, id: &str, clock: &Clock) -> Markup {
        if self.strips.iter().all(Strip::is_empty) {
            return Markup::default();
        }
        let shown = &self.strips[..self.strips.len().min(MOST)];
        let left_out = self.strips.len() - shown.len();
        let greatest = shown.iter().map(Strip::greatest).fold(0.0, f64::max);
        let top = self.top.unwrap_or_else(|| round_up(greatest));
        let height = if shown.len() == 1 { ALONE } else { AMONG };
        let step = height + BETWEEN;
        let bottom = 8.0 + step * shown.len() as f64 - BETWEEN;
        let mut about = self.about.clone();
        if left_out > 0 {
            let _ = write!(about, " The first {MOST} are drawn; {left_out} are not.");
        }
        let drawn = html! {
            (time_axis(clock, 4.0, bottom))
            @for (at, strip) in shown.iter().enumerate() {
                @let base = 8.0 + step * at as f64 + height;
                g class=(strip.class) {
                    (self.one(clock, strip, base, height, top))
                }
            }
        };
        let said = shown.iter().map(|strip| described(strip, self.unit));
        let description = format!("{}.", said.format("; "));
        figure(id, self.title, &about, &description, bottom + AXIS, &drawn)
    }

    fn one(&self, clock: &Clock, strip: &Strip, base: f64, height: f64, top: f64) -> Markup {
        let y = |value: f64| base - (value / top).clamp(0.0, 1.0) * height;
        let paths = match self.drawn {
            Drawn::Line => html! {
                @if let Some(band) = band(clock, &strip.points, y) {
                    path.band d=(band) {}
                }
                path.line d=(line(clock, &strip.points, y)) {}
            },
            Drawn::Bars => html! { path.bar d=(bars(clock, &strip.points, base, y)) {} },
        };
        html! {
            path.grid d={ "M" (Px(LEFT)) " " (Px(base - height)) "H" (Px(RIGHT)) } {}
            path.axis d={ "M" (Px(LEFT)) " " (Px(base)) "H" (Px(RIGHT)) } {}
            text.name x=(Px(4.0)) y=(Px(base - height / 2.0 + 4.0)) { (strip.label) }
            text.tick x=(Px(LEFT - 6.0)) y=(Px(base - height + 8.0)) text-anchor="end" {
                (brief(top)) (self.unit)
            }
            text.tick x=(Px(LEFT - 6.0)) y=(Px(base)) text-anchor="end" { "0" }
            text.tick x=(Px(RIGHT + 6.0)) y=(Px(base - height / 2.0 + 4.0)) { (strip.whole) }
            (paths)
        }
    }
}

fn described(strip: &Strip, unit: &str) -> String {
    let least = strip.points.iter().map(|point| point.1);
    let least = least.fold(f64::INFINITY, f64::min);
    let mut said = match strip.label.as_str() {
        "" => strip.whole.clone(),
        label => format!("{label}: {}", strip.whole),
    };
    if !strip.is_empty() {
        let (least, greatest) = (brief(least), brief(strip.greatest()));
        let _ = write!(said, ", from {least} to {greatest}{unit}");
    }
    said
}

/// Runs of adjacent columns; each is drawn as one line.
fn stretches(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    points.chunk_by(|one, next| one.0 + 1 == next.0)
}

fn line(clock: &Clock, points: &[Point], y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for stretch in stretches(points) {
        let mut command = "M";
        let mut last = None;
        for &(number, _, mean, _) in stretch {
            let (begin, end) = column(clock, number);
            let height = Px(y(mean)).to_string();
            if command == "M" {
                let _ = write!(path, "M{} {height}", Px(begin));
                command = "V";
            } else if last.as_ref() != Some(&height) {
                let _ = write!(path, "V{height}");
            }
            let _ = write!(path, "H{}", Px(end));
            last = Some(height);
        }
    }
    path
}

/// The band from least to greatest; `None` if the band is flat.
fn band(clock: &Clock, points: &[Point], y: impl Fn(f64) -> f64) -> Option<String> {
    let is_flat = |point: &Point| Px(y(point.1)).to_string() == Px(y(point.3)).to_string();
    if points.iter().all(is_flat) {
        return None;
    }
    let mut path = String::new();
    for stretch in stretches(points) {
        let mut command = 'M';
        for &(number, _, _, greatest) in stretch {
            let (begin, end) = column(clock, number);
            let height = Px(y(greatest));
            let _ = match command {
                'M' => write!(path, "M{} {height}H{}", Px(begin), Px(end)),
                _ => write!(path, "V{height}H{}", Px(end)),
            };
            command = 'V';
        }
        for &(number, least, ..) in stretch.iter().rev() {
            let (begin, _) = column(clock, number);
            let _ = write!(path, "V{}H{}", Px(y(least)), Px(begin));
        }
        path.push('z');
    }
    Some(path)
}

fn bars(clock: &Clock, points: &[Point], base: f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for &(number, _, amount, _) in points {
        let (begin, end) = column(clock, number);
        // Even a small amount is visible.
        let (top, end) = (y(amount).min(base - 1.5), end.max(begin + 1.5));
        let (begin, end, top, base) = (Px(begin), Px(end), Px(top), Px(base));
        let _ = write!(path, "M{begin} {base}V{top}H{end}V{base}z");
    }
    path
}
