//! How much threads of a process shared, as a matrix: the darker a cell, the more.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use maud::{Markup, html};
use numaherd_world::ThreadId;

use super::{LEFT, Px, WIDTH, brief, figure};
use crate::report::Run;
use crate::report::page::row_name;
use crate::words::{count, counted};

/// Most threads of a matrix; those that shared most are drawn.
const MOST: usize = 48;

/// Most threads for which the figures are written into the cells.
const WRITTEN: usize = 12;

/// Draws how much threads shared, over the whole run.
pub(in crate::report) fn matrix(
    id: &str,
    run: &Run,
    whose: &str,
    sharing: &BTreeMap<(ThreadId, ThreadId), u64>,
) -> Markup {
    let (threads, left_out) = threads(sharing);
    let most = sharing.values().copied().max().unwrap_or(0);
    if threads.len() < 2 || most == 0 {
        return Markup::default();
    }
    let number = threads.len() as f64;
    let cell = ((WIDTH - LEFT - 200.0) / number).clamp(8.0, 44.0);
    let height = cell * number + 30.0;
    let name = |thread: ThreadId| match run.charts.threads.get(&thread) {
        Some(track) => row_name(run, thread, track),
        None => thread.tid.to_string(),
    };
    let between = |one: ThreadId, other: ThreadId| {
        let pair = (one.min(other), one.max(other));
        sharing.get(&pair).copied().unwrap_or(0)
    };
    let drawn = html! {
        @for (down, &one) in threads.iter().enumerate() {
            @let y = 4.0 + cell * down as f64;
            @if cell >= 11.0 {
                text.row x=(Px(LEFT - 6.0)) y=(Px(y + cell / 2.0 + 4.0)) text-anchor="end" { (name(one)) }
            }
            @for (across, &other) in threads.iter().enumerate() {
                @let amount = between(one, other);
                @if across < down && amount > 0 {
                    @let x = LEFT + cell * across as f64;
                    @let share = amount as f64 / most as f64;
                    rect.heat x=(Px(x)) y=(Px(y)) width=(Px(cell - 1.0)) height=(Px(cell - 1.0))
                        fill-opacity=(format!("{:.2}", 0.06 + 0.94 * share)) {
                        title { (name(one)) " and " (name(other)) ": " (count(amount)) }
                    }
                    @if threads.len() <= WRITTEN {
                        text class={ "cell" @if share > 0.5 { " deep" } }
                            x=(Px(x + cell / 2.0)) y=(Px(y + cell / 2.0 + 4.0))
                            text-anchor="middle" { (brief(amount as f64)) }
                    }
                }
            }
        }
        @for (across, &thread) in threads.iter().enumerate() {
            @let (x, y) = (LEFT + cell * (across as f64 + 0.5), 4.0 + cell * across as f64 + cell / 2.0 + 4.0);
            @if cell >= 11.0 && across + 1 < threads.len() {
                text.tick x=(Px(x)) y=(Px(y)) text-anchor="middle" { (thread.tid) }
            }
        }
        path.axis d={ "M" (Px(LEFT)) " 4V" (Px(4.0 + cell * number)) "H" (Px(LEFT + cell * number)) } {}
    };
    let pairs = sharing
        .iter()
        .map(|(&(one, other), &amount)| (amount, one, other));
    let pairs = pairs
        .sorted_unstable_by(|one, other| other.cmp(one))
        .take(10);
    let said = pairs
        .map(|(amount, one, other)| format!("{} and {} {}", name(one), name(other), count(amount)));
    let description = format!("The pairs that shared most: {}.", said.format("; "));
    let mut about = format!(
        "{whose}: how much each pair of threads shared over the run, in the unit of the source; the \
         fuller a cell, the more, {} at the most.",
        count(most)
    );
    if left_out > 0 {
        let threads = counted(left_out, "thread");
        about += &format!(" Only the threads that shared most are drawn; {threads} are not.");
    }
    figure(id, "Sharing", &about, &description, height, &drawn)
}

/// The threads to draw, ascending, and how many are left out.
fn threads(sharing: &BTreeMap<(ThreadId, ThreadId), u64>) -> (Vec<ThreadId>, usize) {
    let mut sums: BTreeMap<ThreadId, u64> = BTreeMap::new();
    for (&(one, other), &amount) in sharing {
        for thread in [one, other] {
            let sum = sums.entry(thread).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let by_sum = sums.iter().map(|(&id, &sum)| (sum, id));
    let by_sum = by_sum.sorted_unstable_by(|one, other| other.cmp(one));
    let shown = by_sum.take(MOST).map(|(_, id)| id).sorted_unstable();
    (shown.collect(), sums.len().saturating_sub(MOST))
}
