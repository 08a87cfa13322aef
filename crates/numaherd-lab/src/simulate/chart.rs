//! Bar charts of `simulate --svg`: a group of bars for each program, a bar for each policy.
//!
//! Text stays text. Colours of ground and text follow the reader's light or dark scheme by a style
//! sheet within the file; those of the bars (Okabe and Ito's, which colour-blind people can tell
//! apart) are readable on both.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::figures::{PolicyFigures, ProgramFigures};
use crate::chart_style::{FAINT, GROUND, INK, STYLE};

/// Bars of policies, in their order; begun again when there are more.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x8c, 0x8c, 0x8c),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x3a, 0x9f, 0xd6),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x6f, 0x6f, 0xd8),
];
/// Height, and width beside the bars, in pixels.
const HEIGHT: i32 = 420;
const BESIDE: u32 = 110;

/// A chart: its file's name, its title, in which `{first}` stands for the first policy, and its
/// figure, in the title's unit.
type Chart = (
    &'static str,
    &'static str,
    fn(&ProgramFigures) -> Option<f64>,
);

const CHARTS: [Chart; 4] = [
    (
        "slowdown",
        "Slowdown against alone on the machine",
        |program| Some(program.slowdown),
    ),
    (
        "mean",
        "Mean completion time: saved against {first}, %",
        |program| Some(program.saved?.mean * 100.0),
    ),
    (
        "worst",
        "Longest completion time: saved against {first}, %",
        |program| Some(program.saved?.worst * 100.0),
    ),
    (
        "deviation",
        "Deviation: saved against {first}, %",
        |program| Some(program.saved?.deviation? * 100.0),
    ),
];

/// Draws every chart that there are figures for into a folder, which is made if need be.
///
/// # Errors
/// A file cannot be written.
pub fn draw(folder: &Path, scenario: &str, policies: &[PolicyFigures]) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create {}", folder.display()))?;
    for (file, title, figure) in CHARTS {
        let shown: Vec<&PolicyFigures> = policies
            .iter()
            .filter(|policy| {
                policy
                    .programs
                    .iter()
                    .any(|program| figure(program).is_some())
            })
            .collect();
        if shown.is_empty() {
            continue;
        }
        let path = folder.join(format!("{file}.svg"));
        let first = policies.first().map_or("", |policy| &policy.policy);
        let title = format!("{scenario}: {}", title.replace("{first}", first));
        let svg = chart(&title, policies, &shown, figure)?;
        std::fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One chart as the text of an SVG file; colours are by the place of a policy among `all`.
fn chart(
    title: &str,
    all: &[PolicyFigures],
    shown: &[&PolicyFigures],
    figure: fn(&ProgramFigures) -> Option<f64>,
) -> Result<String> {
    let names: Vec<&str> = shown[0]
        .programs
        .iter()
        .map(|program| program.program.as_str())
        .collect();
    let longest = names
        .iter()
        .map(|name| name.chars().count())
        .max()
        .unwrap_or(0);
    let group = (shown.len() * 14 + 16).max(longest * 7 + 10).max(60);
    // Room for the title and the legend, too.
    let width = (BESIDE + u32::try_from(group * names.len()).unwrap_or(u32::MAX / 2))
        .max(title.chars().count() as u32 * 9 + BESIDE)
        .max(640);
    let bars = shown.iter().flat_map(|policy| &policy.programs);
    let figures: Vec<f64> = bars.filter_map(figure).filter(|f| f.is_finite()).collect();
    let top = figures.iter().copied().fold(0.0, f64::max) * 1.1;
    let bottom = figures.iter().copied().fold(0.0, f64::min) * 1.1;
    let top = if top - bottom > 0.0 { top } else { 1.0 };
    let mut svg = String::new();
    paint(&mut svg, width, title, &names, bottom..top, |place| {
        let (at, slot) = place;
        let policy = shown.get(slot)?;
        let colour = all.iter().position(|other| std::ptr::eq(other, *policy))?;
        let bar = policy.programs.get(at).and_then(figure);
        Some((policy.policy.as_str(), COLOURS[colour % COLOURS.len()], bar))
    })
    .map_err(|error| anyhow!("cannot draw {title:?}: {error}"))?;
    let end_of_tag = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(end_of_tag, STYLE);
    Ok(svg)
}

/// A policy's name, colour, and figure of a program, by the places of program and policy.
type Bar<'a> = (&'a str, RGBColor, Option<f64>);

fn paint<'a>(
    svg: &mut String,
    width: u32,
    title: &str,
    names: &[&str],
    range: std::ops::Range<f64>,
    bar: impl Fn((usize, usize)) -> Option<Bar<'a>>,
) -> Result<(), Box<dyn std::error::Error>> {
    let slots = (0..).take_while(|&slot| bar((0, slot)).is_some()).count();
    let root = SVGBackend::with_string(svg, (width, HEIGHT.cast_unsigned())).into_drawing_area();
    root.fill(&GROUND)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let mut context = ChartBuilder::on(&root)
        .caption(title, text(20))
        .margin(10)
        .margin_top(6)
        .x_label_area_size(50)
        .y_label_area_size(50)
        .build_cartesian_2d(-0.5..names.len() as f64 - 0.5, range.clone())?;
    context
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .axis_style(INK)
        .y_label_style(text(16))
        .draw()?;
    for slot in 0..slots {
        let Some((_, colour, _)) = bar((0, slot)) else {
            continue;
        };
        let wide = 0.8 / slots as f64;
        let rectangles = (0..names.len()).filter_map(|at| {
            let (_, _, figure) = bar((at, slot))?;
            let left = at as f64 - 0.4 + slot as f64 * wide;
            let corners = [
                (left, 0.0),
                (left + wide * 0.92, figure.filter(|f| f.is_finite())?),
            ];
            Some(Rectangle::new(corners, colour.filled()))
        });
        context.draw_series(rectangles)?;
    }
    // The line that bars stand on.
    let ends = [(-0.5, 0.0), (names.len() as f64 - 0.5, 0.0)];
    context.draw_series([PathElement::new(ends, INK)])?;
    let centred = text(16).pos(Pos::new(HPos::Center, VPos::Top));
    for (at, name) in names.iter().enumerate() {
        let (x, _) = context.backend_coord(&(at as f64, range.start));
        root.draw(&Text::new(*name, (x, HEIGHT - 56), centred.clone()))?;
    }
    let mut x = 60;
    let y = HEIGHT - 28;
    for slot in 0..slots {
        let Some((policy, colour, _)) = bar((0, slot)) else {
            continue;
        };
        root.draw(&Rectangle::new(
            [(x, y + 2), (x + 11, y + 13)],
            colour.filled(),
        ))?;
        root.draw(&Text::new(policy.to_owned(), (x + 16, y + 1), text(16)))?;
        x += 40 + i32::try_from(policy.chars().count() * 8).unwrap_or(0);
    }
    root.present()?;
    drop(context);
    drop(root);
    Ok(())
}

#[cfg(test)]
mod tests;
