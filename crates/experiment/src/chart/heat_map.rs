//! Heat maps: a square for each pair of things, darker for a larger figure.

use plotters::prelude::*;

use super::{svg, text};
use crate::ExperimentError;

/// Side of a square and of what is beside the map, in pixels.
const SQUARE: i32 = 12;
const MARGIN: i32 = 24;

/// The map as the text of an SVG file: a row of squares for each row of figures. Black stands for the largest of
/// them, or for 1 if all are smaller.
///
/// # Errors
/// It cannot be drawn.
pub fn heat_map(title: &str, rows: &[Vec<f64>]) -> Result<String, ExperimentError> {
    let place = |number: usize| i32::try_from(number).unwrap_or(i32::MAX / (2 * SQUARE)) * SQUARE;
    let side = (place(rows.len()) + 2 * MARGIN).unsigned_abs();
    let most = rows.iter().flatten().copied().fold(1.0, f64::max);
    svg(title, (side, side), |area| {
        for (row, figures) in rows.iter().enumerate() {
            for (column, figure) in figures.iter().enumerate() {
                let shade = 255 - (figure / most * 255.0) as u8;
                let (x, y) = (MARGIN + place(column), MARGIN + place(row));
                let corners = [(x, y), (x + SQUARE, y + SQUARE)];
                let colour = RGBColor(shade, shade, shade).filled();
                area.draw(&Rectangle::new(corners, colour))?;
            }
        }
        area.draw(&Text::new(title.to_owned(), (MARGIN, 6), text(12)))?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_square_for_every_pair() {
        let svg = heat_map("made", &vec![vec![1.0; 4]; 4]).unwrap();
        assert_eq!(svg.matches("<rect").count(), 1 + 16);
    }
}
