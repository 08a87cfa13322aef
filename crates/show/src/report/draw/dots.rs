//! Groups of runs side by side: a ring for each run, a bar at the mean, a line for the interval.

use itertools::Itertools as _;
use maud::{Markup, html};
use numaherd_quantity::round_up;
use numaherd_quantity::statistics::Mean;

use super::{LEFT, Px, RIGHT, brief, figure};

/// Height of a row.
const ROW: f64 = 26.0;

/// A group: its name, its runs' figures, their mean, and the mean as text.
pub(in crate::report) struct Dots {
    pub(in crate::report) name: String,
    pub(in crate::report) figures: Vec<f64>,
    pub(in crate::report) mean: Option<Mean>,
    pub(in crate::report) written: String,
}

/// Draws groups on one scale; nothing if fewer than two groups have figures, or all figures are equal.
pub(in crate::report) fn dots(id: &str, title: &str, about: &str, groups: &[Dots]) -> Markup {
    let measured = groups.iter().filter(|group| !group.figures.is_empty());
    if measured.count() < 2 {
        return Markup::default();
    }
    let all = groups.iter().flat_map(ends).filter(|f| f.is_finite());
    let least = all.clone().fold(f64::INFINITY, f64::min);
    let greatest = all.fold(f64::NEG_INFINITY, f64::max);
    if greatest <= least {
        // All figures are equal; the table shows that as well.
        return Markup::default();
    }
    let step = round_up((greatest - least) / 4.0);
    let (first, last) = ((least / step).floor(), (greatest / step).ceil());
    let (least, greatest) = (first * step, last * step);
    let x = |figure: f64| LEFT + (figure - least) / (greatest - least) * (RIGHT - 110.0 - LEFT);
    let bottom = 6.0 + ROW * groups.len() as f64;
    let drawn = html! {
        @for tick in 0..=((last - first) as u32).min(8) {
            @let figure = (first + f64::from(tick)) * step;
            path.grid d={ "M" (Px(x(figure))) " 4V" (Px(bottom)) } {}
            text.tick x=(Px(x(figure))) y=(Px(bottom + 15.0)) text-anchor="middle" { (brief(figure)) }
        }
        @for (at, group) in groups.iter().enumerate() {
            @let y = 6.0 + ROW * (at as f64 + 0.5);
            text.name x=(Px(4.0)) y=(Px(y + 4.0)) { (group.name) }
            @for &figure in &group.figures {
                circle.run cx=(Px(x(figure))) cy=(Px(y)) r="3.5" {}
            }
            @if let Some(mean) = group.mean {
                @if let Some(half) = mean.half {
                    path.whisker d={
                        "M" (Px(x(mean.mean - half))) " " (Px(y - 5.0)) "v10m0-5H"
                        (Px(x(mean.mean + half))) "m0-5v10"
                    } {}
                }
                path.mean d={ "M" (Px(x(mean.mean))) " " (Px(y - 8.0)) "v16" } {}
            }
            text.tick x=(Px(RIGHT - 100.0)) y=(Px(y + 4.0)) { (group.written) }
        }
    };
    let said = groups
        .iter()
        .map(|group| format!("{}: {}", group.name, group.written));
    let description = format!("{}.", said.format("; "));
    figure(id, title, about, &description, bottom + 22.0, &drawn)
}

/// A group's figures, and the ends of its interval.
fn ends(group: &Dots) -> impl Iterator<Item = f64> + Clone {
    let half = group.mean.map(|mean| (mean.mean, mean.half.unwrap_or(0.0)));
    let interval = half
        .into_iter()
        .flat_map(|(mean, half)| [mean - half, mean + half]);
    group.figures.iter().copied().chain(interval)
}
