//! Bars: a group for each name on the axis, in it a bar for each series.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{FAINT, INK, Series, colour, legend, svg, text};
use crate::ExperimentError;

/// Height, and width beside the bars, in pixels.
const HEIGHT: u32 = 420;
const BESIDE: u32 = 110;
/// Where names and legend stand, in pixels from the bottom.
const NAMES: i32 = 56;
const LEGEND: i32 = 22;
/// Height of a line of a name, in pixels.
const LINE: i32 = 16;

/// The chart as the text of an SVG file. A series without any figure has no bars and keeps its colour. A name may have
/// two lines.
///
/// # Errors
/// It cannot be drawn.
pub fn bars(title: &str, names: &[&str], series: &[Series]) -> Result<String, ExperimentError> {
    let has_figures = |series: &Series| series.figures.iter().any(Option::is_some);
    let shown: Vec<(usize, &Series)> = series
        .iter()
        .enumerate()
        .filter(|(_, series)| has_figures(series))
        .collect();
    let longest = names
        .iter()
        .flat_map(|name| name.lines())
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0);
    let group = (shown.len() * 14 + 16).max(longest * 7 + 10).max(60);
    // Room for the title and the legend, too.
    let width = (BESIDE + u32::try_from(group * names.len()).unwrap_or(u32::MAX / 2))
        .max(title.chars().count() as u32 * 9 + BESIDE)
        .max(640);
    let figures = shown
        .iter()
        .flat_map(|(_, series)| series.figures.iter().flatten().copied());
    let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    let top = figures.iter().copied().fold(0.0, f64::max) * 1.1;
    let bottom = figures.iter().copied().fold(0.0, f64::min) * 1.1;
    let top = if top - bottom > 0.0 { top } else { 1.0 };
    let right = names.len() as f64 - 0.5;
    svg(title, (width, HEIGHT), |root| {
        let mut context = ChartBuilder::on(root)
            .caption(title, text(20))
            .margin(10)
            .margin_top(6)
            .x_label_area_size(50)
            .y_label_area_size(50)
            .build_cartesian_2d(-0.5..right, bottom..top)?;
        context
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .bold_line_style(FAINT)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .y_label_style(text(16))
            .draw()?;
        let wide = 0.8 / shown.len() as f64;
        for (slot, (number, series)) in shown.iter().enumerate() {
            let rectangles = series
                .figures
                .iter()
                .enumerate()
                .filter_map(|(at, figure)| {
                    let left = at as f64 - 0.4 + slot as f64 * wide;
                    let height = figure.filter(|figure| figure.is_finite())?;
                    let corners = [(left, 0.0), (left + wide * 0.92, height)];
                    Some(Rectangle::new(corners, colour(*number).filled()))
                });
            context.draw_series(rectangles)?;
        }
        // The line that bars stand on.
        context.draw_series([PathElement::new([(-0.5, 0.0), (right, 0.0)], INK)])?;
        let centred = text(16).pos(Pos::new(HPos::Center, VPos::Top));
        let height = HEIGHT.cast_signed();
        for (at, name) in names.iter().enumerate() {
            let (x, _) = context.backend_coord(&(at as f64, bottom));
            for (line, y) in name.lines().zip([height - NAMES, height - NAMES + LINE]) {
                root.draw(&Text::new(line, (x, y), centred.clone()))?;
            }
        }
        let names = shown
            .iter()
            .map(|(number, series)| (*number, series.name.as_str()));
        legend(root, (60, height - LEGEND), names)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, figures: &[Option<f64>]) -> Series {
        Series {
            name: name.to_owned(),
            figures: figures.to_vec(),
        }
    }

    #[test]
    fn a_chart_has_a_bar_for_each_figure_and_keeps_text() {
        let all = [
            series("linux", &[None, None]),
            series("dino", &[Some(20.0), Some(-10.0)]),
            series("n-mass", &[Some(5.0), Some(f64::NAN)]),
        ];
        let svg = bars("saved", &["mcf", "lbm &\nco"], &all).unwrap();
        let has = |text: &str| svg.lines().any(|line| line.trim() == text);
        for text in ["saved", "mcf", "lbm &amp;", "co", "dino", "n-mass"] {
            assert!(has(text), "{text}\n{svg}");
        }
        // Without figures: neither bars nor a name.
        assert!(!has("linux"), "{svg}");
        // Two bars and the legend; one bar, as one figure is no number, and the legend.
        assert_eq!(svg.matches("fill=\"#E69F00\"").count(), 3);
        assert_eq!(svg.matches("fill=\"#3A9FD6\"").count(), 2);
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn nothing_to_show_is_a_chart_all_the_same() {
        assert!(bars("saved", &["mcf"], &[series("linux", &[Some(0.0)])]).is_ok());
    }
}
