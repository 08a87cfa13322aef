//! Lines: panels side by side, in each a line for each series over the same places of an axis.

use plotters::prelude::*;

use super::{Area, Drawn, FAINT, INK, Series, colour, legend, svg, text};
use crate::ExperimentError;

/// Size of a panel, and height of what stands above and below them, in pixels.
const PANEL: (u32, u32) = (340, 240);
const TITLE: u32 = 34;
const LEGEND: u32 = 34;
/// Panels side by side.
const ACROSS: usize = 3;

/// One panel.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What stands above it.
    pub caption: String,
    /// Its lines, in percent: from 0 to 100. All panels have the same names in the same order.
    pub series: Vec<Series>,
}

/// The chart as the text of an SVG file; `places` are the names along each panel's axis.
///
/// # Errors
/// It cannot be drawn.
pub fn lines(title: &str, places: &[String], panels: &[Panel]) -> Result<String, ExperimentError> {
    let across = panels.len().clamp(1, ACROSS);
    let down = panels.len().max(1).div_ceil(across);
    // Two panels' width at least, for the title and the legend.
    let width = PANEL.0 * across.max(2) as u32;
    let height = PANEL.1 * down as u32;
    svg(title, (width, TITLE + height + LEGEND), |root| {
        root.draw(&Text::new(title.to_owned(), (12, 8), text(18)))?;
        let (_, below) = root.split_vertically(TITLE);
        let (area, names) = below.split_vertically(height);
        for (shown, area) in panels.iter().zip(area.split_evenly((down, across))) {
            panel(&area, shown, places)?;
        }
        let series = panels.first().into_iter().flat_map(|panel| &panel.series);
        legend(
            &names,
            (14, 8),
            series.map(|series| series.name.as_str()).enumerate(),
        )
    })
}

/// One panel. Its places are spread evenly.
fn panel(area: &Area<'_>, panel: &Panel, places: &[String]) -> Drawn {
    let last = places.len().max(2) as f64 - 1.0;
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.caption, text(15))
        .margin(8)
        .margin_right(18)
        .x_label_area_size(26)
        .y_label_area_size(36)
        .build_cartesian_2d(0.0..last, 0.0..100.0)?;
    let name = |at: &f64| {
        let is_place = (at - at.round()).abs() < 1e-9;
        let place = is_place.then(|| places.get(at.round() as usize)).flatten();
        place.cloned().unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(places.len().min(8))
        .x_label_formatter(&name)
        .y_labels(5)
        .y_label_formatter(&|share| format!("{share:.0}"))
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text(13))
        .draw()?;
    for (number, series) in panel.series.iter().enumerate() {
        let points = (0..).map(f64::from).zip(&series.figures);
        let points: Vec<(f64, f64)> = points
            .filter_map(|(at, figure)| Some((at, (*figure)?)))
            .collect();
        let line = colour(number).stroke_width(2);
        chart.draw_series(LineSeries::new(points.iter().copied(), line))?;
        let dots = points.iter();
        chart.draw_series(dots.map(|&point| Circle::new(point, 2, colour(number).filled())))?;
    }
    Ok(())
}
