//! The table of decisions, the latest first.

use ratatui_core::layout::Rect;

use super::super::Top;
use super::super::canvas::Canvas;
use super::super::columns::{outcome, outcome_tone, went};
use super::super::theme::Tone;
use super::Layout;
use crate::run::Decision;
use crate::words::at;

/// Where each column begins.
const WHO: u16 = 10;
const WENT: u16 = 32;
const CAME: u16 = 44;
const WHY: u16 = 58;

/// Draws the decisions up to the moment that is shown.
pub(super) fn decisions(top: &Top, canvas: &mut Canvas<'_>, layout: &Layout) {
    let heads = [
        (0, "TIME"),
        (WHO, "THREAD"),
        (WENT, "WHERE"),
        (CAME, "OUTCOME"),
        (WHY, "WHY"),
    ];
    for (x, head) in heads {
        canvas.text(layout.table, x, 0, head, Tone::Head);
    }
    let state = top.timeline.state();
    let rows = layout.rows();
    let cursor = top.ui.cursor();
    if top.order.is_empty() {
        let none = "no decisions yet";
        canvas.text(rows, 0, 0, none, Tone::Dim);
    }
    let shown = top.order.iter().enumerate().skip(cursor.top);
    for ((place, &number), y) in shown.zip(0..rows.height) {
        let Some(act) = state.log.get(number) else {
            continue;
        };
        row(act, canvas, rows, y);
        if place == cursor.at {
            canvas.select(rows, y);
        }
    }
}

fn row(act: &Decision, canvas: &mut Canvas<'_>, rows: Rect, y: u16) {
    let until = |end: u16| Rect {
        width: rows.width.min(end - 1),
        ..rows
    };
    canvas.right(rows, 0, WHO - 1, y, &at(act.time_ns), Tone::Dim);
    let who = format!("{} {}", act.thread.tid, act.thread_name);
    canvas.text(until(WENT), WHO, y, &who, Tone::Strong);
    canvas.text(until(CAME), WENT, y, &went(act, canvas.look), Tone::Plain);
    canvas.text(until(WHY), CAME, y, &outcome(act), outcome_tone(act));
    let why = if act.answer.is_empty() {
        &act.why
    } else {
        &act.answer
    };
    canvas.text(rows, WHY, y, why, Tone::Plain);
}
