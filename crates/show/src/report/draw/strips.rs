//! Figures over time, a strip for each of what is compared, below one another on the same scale.

use std::fmt::Write;

use maud::{Markup, html};

use super::{AXIS, LEFT, Px, RIGHT, brief, column, figure, round_up, time_axis};
use crate::report::columns::{Amount, Clock, Columns, Spread};

/// Height of a strip that stands alone, and of one among others.
const ALONE: f64 = 110.0;
const AMONG: f64 = 46.0;

/// Between two strips.
const BETWEEN: f64 = 10.0;

/// Most strips of a chart.
const MOST: usize = 16;

/// What is drawn in a column: least, mean and greatest.
type Point = (u64, f64, f64, f64);

/// How it is drawn.
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
    /// What is said of the whole of it, at its end.
    whole: String,
}

impl Strip {
    /// A figure over time, times a factor.
    pub(in crate::report) fn spread(
        label: String,
        class: String,
        columns: &Columns<Spread>,
        factor: f64,
        unit: &str,
    ) -> Self {
        let mut all = Spread::default();
        let points = columns.iter().filter_map(|(number, cell)| {
            let (least, greatest) = cell.ends?;
            let mean = cell.mean()?;
            crate::report::columns::Cell::merge(&mut all, cell);
            Some((number, least * factor, mean * factor, greatest * factor))
        });
        let points = points.collect();
        let whole = all.mean().map_or_else(
            || "not measured".to_owned(),
            |mean| format!("{}{unit} mean", brief(mean * factor)),
        );
        Self {
            label,
            class,
            points,
            whole,
        }
    }

    /// How many of something over time, times a factor; `whole` says what it comes to.
    pub(in crate::report) fn amount(
        label: String,
        class: String,
        columns: &Columns<Amount>,
        factor: f64,
        whole: String,
    ) -> Self {
        let points = columns.iter().filter(|(_, cell)| cell.0 > 0);
        let points = points.map(|(number, cell)| {
            let amount = cell.0 as f64 * factor;
            (number, amount, amount, amount)
        });
        Self {
            label,
            class,
            points: points.collect(),
            whole,
        }
    }

    /// Whether there is anything to draw.
    pub(in crate::report) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    fn greatest(&self) -> f64 {
        let finite = self
            .points
            .iter()
            .map(|point| point.3)
            .filter(|f| f.is_finite());
        finite.fold(0.0, f64::max)
    }
}

/// A chart of strips.
pub(in crate::report) struct Strips<'c> {
    /// The chart's id on the page.
    pub(in crate::report) id: String,
    pub(in crate::report) title: &'c str,
    /// What is drawn, as a sentence below the title.
    pub(in crate::report) about: String,
    /// The unit of its scale.
    pub(in crate::report) unit: &'c str,
    pub(in crate::report) drawn: Drawn,
    /// The end of the scale, where that is given by what is measured.
    pub(in crate::report) top: Option<f64>,
    pub(in crate::report) clock: &'c Clock,
    pub(in crate::report) strips: Vec<Strip>,
}

/// Draws strips; nothing where there is nothing to draw.
pub(in crate::report) fn strips(chart: &Strips<'_>) -> Markup {
    if chart.strips.iter().all(Strip::is_empty) {
        return Markup::default();
    }
    let shown = &chart.strips[..chart.strips.len().min(MOST)];
    let left_out = chart.strips.len() - shown.len();
    let greatest = shown.iter().map(Strip::greatest).fold(0.0, f64::max);
    let top = chart.top.unwrap_or_else(|| round_up(greatest));
    let height = if shown.len() == 1 { ALONE } else { AMONG };
    let step = height + BETWEEN;
    let bottom = 8.0 + step * shown.len() as f64 - BETWEEN;
    let mut about = chart.about.clone();
    if left_out > 0 {
        let _ = write!(about, " The first {MOST} are drawn; {left_out} are not.");
    }
    let drawn = html! {
        (time_axis(chart.clock, 4.0, bottom))
        @for (at, strip) in shown.iter().enumerate() {
            @let base = 8.0 + step * at as f64 + height;
            g class=(strip.class) {
                (one(chart, strip, base, height, top))
            }
        }
    };
    let said: Vec<String> = shown
        .iter()
        .map(|strip| described(strip, chart.unit))
        .collect();
    let description = format!("{}.", said.join("; "));
    figure(
        &chart.id,
        chart.title,
        &about,
        &description,
        bottom + AXIS,
        &drawn,
    )
}

fn described(strip: &Strip, unit: &str) -> String {
    let least = strip
        .points
        .iter()
        .map(|point| point.1)
        .fold(f64::INFINITY, f64::min);
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

fn one(chart: &Strips<'_>, strip: &Strip, base: f64, height: f64, top: f64) -> Markup {
    let y = |value: f64| base - (value / top).clamp(0.0, 1.0) * height;
    let clock = chart.clock;
    let paths = match chart.drawn {
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
            (brief(top)) (chart.unit)
        }
        text.tick x=(Px(LEFT - 6.0)) y=(Px(base)) text-anchor="end" { "0" }
        text.tick x=(Px(RIGHT + 6.0)) y=(Px(base - height / 2.0 + 4.0)) { (strip.whole) }
        (paths)
    }
}

/// Columns next to one another, of which a line is drawn through.
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

/// From least to greatest; `None` where that is one line.
fn band(clock: &Clock, points: &[Point], y: impl Fn(f64) -> f64) -> Option<String> {
    if points
        .iter()
        .all(|point| Px(y(point.1)).to_string() == Px(y(point.3)).to_string())
    {
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
        // Seen even where it is little.
        let (top, end) = (y(amount).min(base - 1.5), end.max(begin + 1.5));
        let _ = write!(
            path,
            "M{} {}V{}H{}V{}z",
            Px(begin),
            Px(base),
            Px(top),
            Px(end),
            Px(base)
        );
    }
    path
}
