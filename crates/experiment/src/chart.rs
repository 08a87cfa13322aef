//! Charts as SVG: [`bars`] side by side, [`lines`] in panels, [`heat_map`]s, one style for all.
//!
//! Text stays text. Colours of ground and text follow the reader's light or dark scheme by a style sheet within
//! the file; those of the figures (Okabe and Ito's, which colour-blind people can tell apart) are
//! readable on both.

pub mod bars;
pub mod heat_map;
pub mod lines;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::ExperimentError;

/// Behind everything; like the next two, what the style sheet changes for readers in the dark.
const GROUND: RGBColor = RGBColor(0xfe, 0xfe, 0xfe);
/// Text and axes.
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Lines of the grid.
const FAINT: RGBColor = RGBColor(0xd8, 0xd8, 0xd8);
/// The style sheet, behind the file's first tag.
const STYLE: &str = "<style>text{font-family:system-ui,sans-serif}\
@media (prefers-color-scheme: dark){\
[fill=\"#FEFEFE\"]{fill:#16181c}\
[fill=\"#222222\"]{fill:#e4e4e4}\
[stroke=\"#222222\"]{stroke:#e4e4e4}\
[stroke=\"#D8D8D8\"]{stroke:#3a3d43}}</style>";

/// Colours of what is compared, in its order; begun again when there is more.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x8c, 0x8c, 0x8c),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x3a, 0x9f, 0xd6),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x6f, 0x6f, 0xd8),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Something that is compared with others, by a figure for each place of a chart's axis.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Its figures; a place without one stays empty.
    pub figures: Vec<Option<f64>>,
}

fn colour(at: usize) -> RGBColor {
    COLOURS[at % COLOURS.len()]
}

fn text(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

/// The text of an SVG file of this size, painted by `paint`.
fn svg(
    title: &str,
    size: (u32, u32),
    paint: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, ExperimentError> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&GROUND)
            .map_err(Into::into)
            .and_then(|()| paint(&area))
            .and_then(|()| Ok(area.present()?))
    };
    drawn.map_err(|error| ExperimentError::Chart {
        what: format!("{title:?}"),
        why: error.to_string(),
    })?;
    let end_of_tag = svg.find('>').map_or(0, |at| at + 1);
    svg.insert_str(end_of_tag, STYLE);
    Ok(svg)
}

/// Draws the name of each series, by its number, beside its colour, from this place to the right.
fn legend<'n>(
    area: &Area<'_>,
    mut at: (i32, i32),
    names: impl Iterator<Item = (usize, &'n str)>,
) -> Drawn {
    for (number, name) in names {
        let (x, y) = at;
        let corners = [(x, y + 2), (x + 11, y + 13)];
        area.draw(&Rectangle::new(corners, colour(number).filled()))?;
        area.draw(&Text::new(name.to_owned(), (x + 16, y + 1), text(15)))?;
        at.0 += 40 + i32::try_from(name.chars().count() * 8).unwrap_or(0);
    }
    Ok(())
}
