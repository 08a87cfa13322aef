//! Line charts: panels side by side, with a line for each series over the same places of an axis.

use maud::{Markup, html};

use super::{Plot, Series, colour, legend, px, svg, text};

/// Size of a panel, and heights of the title above and the legend below the panels.
const PANEL: (f64, f64) = (340.0, 240.0);
const TITLE: f64 = 34.0;
const LEGEND: f64 = 34.0;
/// Panels side by side.
const ACROSS: usize = 3;
/// The most places of an axis with a name.
const MOST_NAMES: usize = 8;

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The text above it.
    pub caption: String,
    /// Its lines, in percent from 0 to 100. All panels have the same names in the same order.
    pub series: Vec<Series>,
}

/// The chart as the text of an SVG file; `places` are the names along each panel's axis.
pub fn lines(title: &str, places: &[String], panels: &[Panel]) -> String {
    let across = panels.len().clamp(1, ACROSS);
    let down = panels.len().max(1).div_ceil(across);
    // At least the width of two panels, for the title and the legend.
    let width = PANEL.0 * across.max(2) as f64;
    let height = TITLE + PANEL.1 * down as f64 + LEGEND;
    let corner = |at: usize| {
        let (row, column) = (at / across, at % across);
        (PANEL.0 * column as f64, TITLE + PANEL.1 * row as f64)
    };
    let series = panels.first().into_iter().flat_map(|panel| &panel.series);
    let names = series.map(|series| series.name.as_str()).enumerate();
    let drawn = html! {
        (text("start", 16, (12.0, 22.0), title))
        @for (at, shown) in panels.iter().enumerate() { (panel(corner(at), shown, places)) }
        (legend((14.0, height - 12.0), names))
    };
    svg(title, (width, height), &drawn)
}

/// One panel. Its places are spread evenly.
fn panel((left, top): (f64, f64), panel: &Panel, places: &[String]) -> Markup {
    let plot = Plot {
        left: left + 44.0,
        right: left + PANEL.0 - 18.0,
        top: top + 30.0,
        bottom: top + PANEL.1 - 34.0,
        figures: (0.0, 100.0),
    };
    let apart = (plot.right - plot.left) / (places.len().max(2) as f64 - 1.0);
    let x = |at: usize| px(plot.left + apart * at as f64);
    let named = places.len().div_ceil(MOST_NAMES).max(1);
    let points = |series: &Series| -> Vec<(f64, f64)> {
        let figures = series.figures.iter().enumerate();
        let known = figures.filter_map(|(at, figure)| Some((x(at), plot.y((*figure)?))));
        known.collect()
    };
    html! {
        (text("middle", 14, ((plot.left + plot.right) / 2.0, top + 18.0), &panel.caption))
        (plot.grid(12))
        (plot.across("axis", 0.0))
        @for (at, place) in places.iter().enumerate().step_by(named) {
            (text("middle", 12, (x(at), plot.bottom + 18.0), place))
        }
        @for (number, series) in panel.series.iter().enumerate() {
            @let points = points(series);
            polyline fill="none" stroke=(colour(number)) stroke-width="2"
                points=(points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")) {}
            @for (x, y) in &points { circle cx=(x) cy=(y) r="2" fill=(colour(number)) {} }
        }
    }
}
