//! The chart of `trace sra --svg`: saved remote accesses over K, a line for each strategy, a panel
//! for each rate of sampling.
//!
//! Text stays text. Colours of ground and text follow the reader's light or dark scheme by a style
//! sheet within the file; those of the lines are Okabe and Ito's, which colour-blind people can tell
//! apart.

use anyhow::{Result, anyhow};
use numaherd_trace::sra::Sra;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::counted;
use crate::chart_style::{FAINT, GROUND, INK, STYLE};

/// Lines of strategies, in their order; begun again when there are more.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x3a, 0x9f, 0xd6),
    RGBColor(0x8c, 0x8c, 0x8c),
    RGBColor(0x00, 0x9e, 0x73),
];
/// Size of a panel, and height of what stands above and below them, in pixels.
const PANEL: (u32, u32) = (340, 240);
const TITLE: u32 = 34;
const LEGEND: u32 = 34;
/// Panels side by side.
const ACROSS: usize = 3;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The chart as the text of an SVG file.
///
/// # Errors
/// It cannot be drawn.
pub fn svg(found: &Sra, title: &str) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, found, title).map_err(|error| anyhow!("cannot draw {title:?}: {error}"))?;
    let end_of_tag = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(end_of_tag, STYLE);
    Ok(svg)
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn draw(svg: &mut String, found: &Sra, title: &str) -> Result<(), Box<dyn std::error::Error>> {
    let panels = found.options.one_in.len().max(1);
    let across = panels.min(ACROSS);
    let down = panels.div_ceil(across);
    // Two panels' width at least, for the title and the legend.
    let width = PANEL.0 * across.max(2) as u32;
    let height = TITLE + PANEL.1 * down as u32 + LEGEND;
    let root = SVGBackend::with_string(svg, (width, height)).into_drawing_area();
    root.fill(&GROUND)?;
    let title = format!("{title}: remote accesses saved, %, by pages moved at a time (K)");
    root.draw(&Text::new(title, (12, 8), text(18)))?;
    let (_, below) = root.split_vertically(TITLE);
    let (area, legend) = below.split_vertically(PANEL.1 * down as u32);
    for (&one_in, area) in found
        .options
        .one_in
        .iter()
        .zip(area.split_evenly((down, across)))
    {
        panel(&area, found, one_in)?;
    }
    let mut x = 14;
    for (strategy, colour) in found.options.strategies.iter().zip(COLOURS.iter().cycle()) {
        let line = PathElement::new([(x, 16), (x + 18, 16)], colour.stroke_width(3));
        legend.draw(&line)?;
        legend.draw(&Text::new(strategy.name(), (x + 24, 8), text(15)))?;
        x += 44 + i32::try_from(strategy.name().len() * 7).unwrap_or(0);
    }
    root.present()?;
    Ok(())
}

/// One rate of sampling. K is spread evenly, as it is doubled from one to the next.
fn panel(area: &Area<'_>, found: &Sra, one_in: u64) -> Result<(), Box<dyn std::error::Error>> {
    let pages = &found.options.pages;
    let last = pages.len().max(2) as f64 - 1.0;
    let caption = match one_in {
        1 => "every access sampled".to_owned(),
        one_in => format!("one in {} sampled", counted(one_in)),
    };
    let mut chart = ChartBuilder::on(area)
        .caption(caption, text(15))
        .margin(8)
        .margin_right(18)
        .x_label_area_size(26)
        .y_label_area_size(36)
        .build_cartesian_2d(0.0..last, 0.0..100.0)?;
    let name = |at: &f64| {
        let is_one = (at - at.round()).abs() < 1e-9;
        let page = is_one.then(|| pages.get(at.round() as usize)).flatten();
        page.map_or_else(String::new, |&pages| short(pages))
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(pages.len().min(8))
        .x_label_formatter(&name)
        .y_labels(5)
        .y_label_formatter(&|share| format!("{share:.0}"))
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .label_style(text(13))
        .draw()?;
    for (&strategy, colour) in found.options.strategies.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<_> = (0..)
            .zip(pages)
            .filter_map(|(at, &pages)| {
                let sra = found.cell(strategy, pages, one_in)?.sra?;
                Some((f64::from(at), sra * 100.0))
            })
            .collect();
        chart.draw_series(LineSeries::new(
            points.iter().copied(),
            colour.stroke_width(2),
        ))?;
        chart.draw_series(
            points
                .iter()
                .map(|&point| Circle::new(point, 2, colour.filled())),
        )?;
    }
    Ok(())
}

/// K in few letters.
fn short(pages: u64) -> String {
    match pages {
        1024.. if pages.is_multiple_of(1024) => format!("{}Ki", pages / 1024),
        _ => pages.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::found;
    use super::*;

    #[test]
    fn the_chart_has_a_panel_for_each_rate_and_a_line_for_each_strategy() {
        let found = found();
        let svg = svg(&found, "sweep").expect("it can be drawn");
        let has = |text: &str| svg.lines().any(|line| line.trim() == text);
        for text in [
            "sweep: remote accesses saved, %, by pages moved at a time (K)",
            "every access sampled",
            "one in 100 sampled",
            "one in 10,000 sampled",
            "256",
        ] {
            assert!(has(text), "{text}\n{svg}");
        }
        for strategy in &found.options.strategies {
            assert!(has(strategy.name()), "{strategy:?}");
        }
        for colour in ["#E69F00", "#3A9FD6", "#8C8C8C", "#009E73"] {
            // Three panels and the legend.
            let lines = svg.matches(&format!("stroke=\"{colour}\"")).count();
            assert_eq!(lines, 4, "{colour}");
        }
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn k_is_short() {
        assert_eq!(
            [1, 512, 1024, 16_384, 1500].map(short),
            ["1", "512", "1Ki", "16Ki", "1500"]
        );
    }
}
