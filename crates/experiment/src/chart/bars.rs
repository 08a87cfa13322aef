//! Bar charts: a group for each name on the axis, with a bar for each series.

use maud::html;

use super::{Plot, Series, colour, legend, px, svg, text};

const HEIGHT: f64 = 420.0;
/// Room beside the bars, left and right.
const BESIDE: (f64, f64) = (60.0, 20.0);
/// Distances of the bars' base, the names and the legend from the bottom.
const BARS: f64 = 60.0;
const NAMES: f64 = 44.0;
const LEGEND: f64 = 8.0;
/// Height of a line of a name.
const LINE: f64 = 16.0;

/// The chart as the text of an SVG file. A series without any figure has no bars, but the others keep their colours. A
/// name may have two lines.
pub fn bars(title: &str, names: &[&str], series: &[Series]) -> String {
    let has_figures = |series: &Series| series.figures.iter().any(Option::is_some);
    let shown: Vec<(usize, &Series)> = series
        .iter()
        .enumerate()
        .filter(|(_, series)| has_figures(series))
        .collect();
    let lines = names.iter().flat_map(|name| name.lines());
    let longest = lines.map(|line| line.chars().count()).max().unwrap_or(0);
    let group = (shown.len() * 14 + 16).max(longest * 7 + 10).max(60);
    // Room for the title and the legend, too.
    let width = (group * names.len())
        .max(title.chars().count() * 9)
        .max(560) as f64
        + BESIDE.0
        + BESIDE.1;
    let figures = shown
        .iter()
        .flat_map(|(_, series)| series.figures.iter().flatten().copied());
    let figures: Vec<f64> = figures.filter(|figure| figure.is_finite()).collect();
    let high = figures.iter().copied().fold(0.0, f64::max) * 1.1;
    let low = figures.iter().copied().fold(0.0, f64::min) * 1.1;
    let plot = Plot {
        left: BESIDE.0,
        right: width - BESIDE.1,
        top: 44.0,
        bottom: HEIGHT - BARS,
        figures: (low, if high - low > 0.0 { high } else { 1.0 }),
    };
    let each = (plot.right - plot.left) / names.len().max(1) as f64;
    let wide = each * 0.8 / shown.len() as f64;
    let left = |at: usize, slot: usize| plot.left + each * (at as f64 + 0.1) + wide * slot as f64;
    let bar = |at, slot, number, figure: f64| {
        let (top, bottom) = (plot.y(figure.max(0.0)), plot.y(figure.min(0.0)));
        html! {
            rect x=(px(left(at, slot))) y=(top) width=(px(wide * 0.92)) height=(px(bottom - top))
                fill=(colour(number)) {}
        }
    };
    let middle = |at: usize| plot.left + each * (at as f64 + 0.5);
    let in_legend = shown
        .iter()
        .map(|(number, series)| (*number, series.name.as_str()));
    let drawn = html! {
        (text("middle", 16, (width / 2.0, 24.0), title))
        (plot.grid(13))
        @for (slot, (number, series)) in shown.iter().enumerate() {
            @for (at, figure) in series.figures.iter().enumerate() {
                @if let Some(figure) = figure.filter(|figure| figure.is_finite()) {
                    (bar(at, slot, *number, figure))
                }
            }
        }
        // The line that bars stand on.
        (plot.across("axis", 0.0))
        @for (at, name) in names.iter().enumerate() {
            @for (line, below) in name.lines().zip([0.0, LINE]) {
                (text("middle", 13, (middle(at), HEIGHT - NAMES + below), line))
            }
        }
        (legend((BESIDE.0, HEIGHT - LEGEND), in_legend))
    };
    svg(title, (width, HEIGHT), &drawn)
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
        let svg = bars("saved", &["mcf", "lbm &\nco"], &all);
        let has = |text: &str| svg.contains(&format!(">{text}</text>"));
        for text in ["saved", "mcf", "lbm &amp;", "co", "dino", "n-mass"] {
            assert!(has(text), "{text}\n{svg}");
        }
        // Without figures: neither bars nor a name.
        assert!(!has("linux"), "{svg}");
        // Two bars and the legend; one bar, since one figure is not a number, and the legend.
        assert_eq!(svg.matches("fill=\"#e69f00\"").count(), 3);
        assert_eq!(svg.matches("fill=\"#3a9fd6\"").count(), 2);
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn nothing_to_show_is_a_chart_all_the_same() {
        let svg = bars("saved", &["mcf"], &[series("linux", &[Some(0.0)])]);
        assert!(svg.contains(">mcf</text>") && !svg.contains("NaN"), "{svg}");
    }
}
