//! Heat maps: a square for each pair of items, darker for a larger figure.

use maud::html;

use super::{svg, text};

/// Side of a square, and width of the margin.
const SQUARE: f64 = 12.0;
const MARGIN: f64 = 24.0;

/// The map as the text of an SVG file: a row of squares for each row of figures. Black is the largest figure, or 1 if
/// all are smaller.
pub fn heat_map(title: &str, rows: &[Vec<f64>]) -> String {
    let place = |number: usize| number as f64 * SQUARE;
    let side = place(rows.len()) + 2.0 * MARGIN;
    let most = rows.iter().flatten().copied().fold(1.0, f64::max);
    let shade = |figure: f64| 255 - (figure / most * 255.0) as u8;
    let drawn = html! {
        @for (row, figures) in rows.iter().enumerate() {
            @for (column, &figure) in figures.iter().enumerate() {
                @let shade = format!("{:02x}", shade(figure));
                rect x=(MARGIN + place(column)) y=(MARGIN + place(row)) width=(SQUARE) height=(SQUARE)
                    fill={ "#" (shade) (shade) (shade) } {}
            }
        }
        (text("start", 12, (MARGIN, 16.0), title))
    };
    svg(title, (side, side), &drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_a_square_for_every_pair() {
        let svg = heat_map("made", &vec![vec![1.0; 4]; 4]);
        assert_eq!(svg.matches("<rect").count(), 1 + 16);
        assert_eq!(svg.matches("#000000").count(), 16);
    }
}
