//! The table of processes or of threads. Only the rows on the screen are written.

use ratatui_core::layout::Rect;

use super::super::Top;
use super::super::canvas::Canvas;
use super::super::columns::{Cell, Column, Row, fit};
use super::super::theme::Tone;
use super::Layout;

pub(super) fn table(top: &Top, canvas: &mut Canvas<'_>, layout: &Layout) {
    let state = top.timeline.state();
    let columns = fit(top.ui.tab.columns(), state, layout.table.width);
    let sort = top.ui.sort();
    for &(column, x, wide) in &columns {
        let mut title = column.title().to_owned();
        if let Some(sort) = sort.filter(|sort| sort.column == column) {
            let falls = column.falls() != sort.reversed;
            title.push(match (canvas.look.ascii, falls) {
                (false, true) => '▾',
                (false, false) => '▴',
                (true, true) => 'v',
                (true, false) => '^',
            });
        }
        let field = field(layout.table, x, wide, 0);
        put(canvas, field, column, &title, Tone::Head);
    }
    let rows = layout.rows();
    let cursor = top.ui.cursor();
    let shown = top.order.iter().enumerate().skip(cursor.top);
    for ((place, &entry), y) in shown.zip(0..rows.height) {
        let at = usize::try_from(entry).unwrap_or(usize::MAX);
        let Some(row) = Row::at(state, top.ui.tab, at) else {
            continue;
        };
        for &(column, x, wide) in &columns {
            let field = field(rows, x, wide, y);
            match column.cell(state, row, canvas.look) {
                Cell::Text(text, tone) => put(canvas, field, column, &text, tone),
                Cell::Levels(shares) => levels(canvas, field, &shares),
            }
        }
        if place == cursor.at {
            canvas.select(rows, y);
        }
    }
}

/// The field of `wide` columns at `x` in row `y` of an area, cut to the area.
fn field(area: Rect, x: u16, wide: u16, y: u16) -> Rect {
    let row = Rect {
        x: area.x.saturating_add(x),
        y: area.y.saturating_add(y),
        width: wide,
        height: 1,
    };
    row.intersection(area)
}

/// Text in a column.
fn put(canvas: &mut Canvas<'_>, field: Rect, column: Column, text: &str, tone: Tone) {
    if column.is_right() {
        canvas.right(field, 0, field.width, 0, text, tone);
    } else {
        canvas.text(field, 0, 0, text, tone);
    }
}

/// A letter for each share; if there are more shares than columns, the largest of each few.
fn levels(canvas: &mut Canvas<'_>, field: Rect, shares: &[f64]) {
    let by = shares
        .len()
        .div_ceil(usize::from(field.width).max(1))
        .max(1);
    for (x, shares) in (0..).zip(shares.chunks(by)) {
        let most = shares.iter().copied().fold(0.0, f64::max);
        let letter = canvas.look.level(most);
        let tone = if most > 0.0 { Tone::Accent } else { Tone::Dim };
        canvas.text(field, x, 0, letter.encode_utf8(&mut [0; 4]), tone);
    }
}
