//! Charts as SVG: [`bars`] side by side, [`lines`] in panels, [`heat_map`]s, one style for all.
//!
//! Text stays text. A style sheet in the file makes the colours of background and text follow the reader's light or
//! dark scheme. The colours of figures (Okabe and Ito's, which colour-blind people can distinguish) are readable on
//! both. Lengths are in pixels.

pub mod bars;
pub mod heat_map;
pub mod lines;

use maud::{Markup, PreEscaped, html};
use numaherd_quantity::round_up;

const STYLE: &str = "text{font-family:system-ui,sans-serif;fill:#222}.ground{fill:#fefefe}\
.grid{stroke:#d8d8d8}.axis{stroke:#222}\
@media(prefers-color-scheme: dark){text{fill:#e4e4e4}.ground{fill:#16181c}\
.grid{stroke:#3a3d43}.axis{stroke:#e4e4e4}}";

/// Colours of series, in their order; they repeat if there are more series.
const COLOURS: [&str; 7] = [
    "#8c8c8c", "#e69f00", "#3a9fd6", "#009e73", "#cc79a7", "#d55e00", "#6f6fd8",
];

/// Most lines of a grid.
const MOST_TICKS: f64 = 8.0;

/// A series: one figure for each place of a chart's axis.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its figures; `None` leaves a place empty.
    pub figures: Vec<Option<f64>>,
}

fn colour(at: usize) -> &'static str {
    COLOURS[at % COLOURS.len()]
}

/// A length rounded to a tenth.
fn px(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// The text of an SVG file of this width and height.
fn svg(title: &str, (width, height): (f64, f64), drawn: &Markup) -> String {
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(width) height=(height)
            viewBox={ "0 0 " (width) " " (height) } role="img" {
            title { (title) }
            style { (PreEscaped(STYLE)) }
            rect.ground width="100%" height="100%" {}
            (drawn)
        }
    };
    picture.into_string() + "\n"
}

/// Text of this size, with its base line and its `anchor` (`start`, `middle`, `end`) at a place.
fn text(anchor: &str, size: u32, (x, y): (f64, f64), text: &str) -> Markup {
    html! { text x=(px(x)) y=(px(y)) text-anchor=(anchor) font-size=(size) { (text) } }
}

/// The name of each series, by its number, beside its colour, from this place to the right.
fn legend<'n>((x, y): (f64, f64), names: impl Iterator<Item = (usize, &'n str)>) -> Markup {
    let places = names.scan(x, |next, (number, name)| {
        let x = *next;
        *next += 40.0 + name.chars().count() as f64 * 8.0;
        Some((x, number, name))
    });
    html! {
        @for (x, number, name) in places {
            rect x=(x) y=(y - 11.0) width="11" height="11" fill=(colour(number)) {}
            (text("start", 13, (x + 16.0, y), name))
        }
    }
}

/// The area for figures: its edges, and the figures at its bottom and top.
struct Plot {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    figures: (f64, f64),
}

impl Plot {
    /// The height at which a figure is drawn.
    fn y(&self, figure: f64) -> f64 {
        let (low, high) = self.figures;
        px(self.bottom - (figure - low) / (high - low) * (self.bottom - self.top))
    }

    /// A horizontal line across the area.
    fn across(&self, class: &str, figure: f64) -> Markup {
        html! { path class=(class) d={ "M" (px(self.left)) " " (self.y(figure)) "H" (px(self.right)) } {} }
    }

    /// Faint lines at round figures, with labels on the left.
    fn grid(&self, size: u32) -> Markup {
        let (low, high) = self.figures;
        let step = round_up((high - low) / MOST_TICKS);
        let decimals = (0..9).find(|&decimals| (step * 10f64.powi(decimals)).fract() < 1e-6);
        let decimals = decimals.unwrap_or(9) as usize;
        let first = (low / step).ceil() as i64;
        let ticks = (first..).map(|tick| tick as f64 * step);
        html! {
            @for figure in ticks.take_while(|&figure| figure <= high) {
                (self.across("grid", figure))
                (text("end", size, (self.left - 6.0, self.y(figure) + 4.0), &format!("{figure:.decimals$}")))
            }
        }
    }
}
