//! The pairs of a trial, one after the other: a ring for each pair's gain, the gain of all so far, and its interval.

use std::fmt::Write;

use maud::{Markup, html};
use numaherd_quantity::round_up;

use super::{AXIS, LEFT, Px, RIGHT, brief, figure};
use crate::trial::{Trial, Verdict};

const TOP: f64 = 8.0;
const HEIGHT: f64 = 160.0;

/// Most pairs that are drawn: the latest.
const MOST: usize = 400;

/// Draws the pairs; nothing if there are none.
pub(in crate::report) fn pairs(id: &str, trial: &Trial, description: &str) -> Markup {
    let all = trial.pairs.len();
    if all == 0 {
        return Markup::default();
    }
    let first = all.saturating_sub(MOST);
    let percent = |share: f64| share * 100.0;
    let gains: Vec<f64> = trial.pairs[first..]
        .iter()
        .map(|pair| percent(pair.gain()))
        .collect();
    let so_far: Vec<Option<Verdict>> = (first + 1..=all)
        .map(|count| Verdict::of(&trial.pairs[..count], &trial.plan.design))
        .collect();
    let greatest = gains.iter().map(|gain| gain.abs()).fold(0.0, f64::max);
    let end = round_up(greatest);
    let x = |at: usize| LEFT + (at as f64 + 0.5) / gains.len() as f64 * (RIGHT - LEFT);
    let y = |gain: f64| TOP + (1.0 - (gain / end).clamp(-1.0, 1.0)) * HEIGHT / 2.0;
    let (mut low, mut high, mut mean) = (String::new(), Vec::new(), String::new());
    for (at, verdict) in so_far.iter().enumerate() {
        let Some(verdict) = verdict else { continue };
        let command = if low.is_empty() { 'M' } else { 'L' };
        let [least, most] = verdict.interval().map(percent);
        // Writing to a string cannot fail.
        let _ = write!(low, "{command}{} {}", Px(x(at)), Px(y(least)));
        let _ = write!(
            mean,
            "{command}{} {}",
            Px(x(at)),
            Px(y(percent(verdict.gain())))
        );
        high.push(format!("L{} {}", Px(x(at)), Px(y(most))));
    }
    high.reverse();
    let bottom = TOP + HEIGHT;
    let drawn = html! {
        @for gain in [-end, -end / 2.0, 0.0, end / 2.0, end] {
            path.grid d={ "M" (Px(LEFT)) " " (Px(y(gain))) "H" (Px(RIGHT)) } {}
            text.tick x=(Px(LEFT - 6.0)) y=(Px(y(gain) + 4.0)) text-anchor="end" { (brief(gain)) " %" }
        }
        path.axis d={ "M" (Px(LEFT)) " " (Px(y(0.0))) "H" (Px(RIGHT)) } {}
        @if !low.is_empty() {
            path.band d={ (low) (high.concat()) "z" } {}
            path.line d=(mean) {}
        }
        @for (at, &gain) in gains.iter().enumerate() {
            circle.run cx=(Px(x(at))) cy=(Px(y(gain))) r="3.5" {}
        }
        @for at in [0, gains.len() - 1] {
            text.tick x=(Px(x(at))) y=(Px(bottom + 15.0)) text-anchor="middle" { (first + at + 1) }
        }
    };
    let left_out = match first {
        0 => String::new(),
        _ => format!(" The latest {MOST} of {all} pairs are drawn."),
    };
    let about = format!(
        "A ring for each pair, in their order: how much faster the policy's block was. The line is the gain of all pairs \
         so far, the band its 95 % interval.{left_out}"
    );
    figure(
        id,
        "Gain by pair",
        &about,
        description,
        bottom + AXIS,
        &drawn,
    )
}
