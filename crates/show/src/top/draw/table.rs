//! The table of processes or of threads. Only the rows on the screen are written.

use ratatui::layout::Rect;

use super::super::Top;
use super::super::canvas::Canvas;
use super::super::columns::{Cell, Row, fit};
use super::super::theme::Tone;
use super::super::ui::Tab;
use super::Layout;

/// Draws the table.
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
        put(
            canvas,
            layout.table,
            x,
            wide,
            0,
            column.is_right(),
            &title,
            Tone::Head,
        );
    }
    let Some(snapshot) = state.snapshot() else {
        return;
    };
    let rows = layout.rows();
    let cursor = top.ui.cursor();
    let shown = top.order.iter().enumerate().skip(cursor.top);
    for ((place, &entry), y) in shown.zip(0..rows.height) {
        let at = usize::try_from(entry).unwrap_or(usize::MAX);
        let row = match top.ui.tab {
            Tab::Processes => {
                let pair = snapshot.processes.get(at).zip(state.processes.get(at));
                pair.map(|(process, track)| Row::Process(at, process, track))
            }
            _ => {
                let pair = snapshot.threads.get(at).zip(state.threads.get(at));
                pair.map(|(thread, track)| Row::Thread(thread, track))
            }
        };
        let Some(row) = row else {
            continue;
        };
        for &(column, x, wide) in &columns {
            match column.cell(state, row, canvas.look) {
                Cell::Text(text, tone) => {
                    put(canvas, rows, x, wide, y, column.is_right(), &text, tone);
                }
                Cell::Levels(shares) => levels(canvas, rows, x, wide, y, &shares),
            }
        }
        if place == cursor.at {
            canvas.select(rows, y);
        }
    }
}

/// Text in a column.
#[expect(
    clippy::too_many_arguments,
    reason = "a place, a text and how it looks"
)]
fn put(
    canvas: &mut Canvas<'_>,
    area: Rect,
    x: u16,
    wide: u16,
    y: u16,
    right: bool,
    text: &str,
    tone: Tone,
) {
    let end = x.saturating_add(wide);
    if right {
        canvas.right(area, x, end, y, text, tone);
    } else {
        let within = Rect {
            width: area.width.min(end),
            ..area
        };
        canvas.text(within, x, y, text, tone);
    }
}

/// A letter for each share; the most of each few where there are more than columns.
fn levels(canvas: &mut Canvas<'_>, area: Rect, x: u16, wide: u16, y: u16, shares: &[f64]) {
    let by = shares.len().div_ceil(usize::from(wide).max(1)).max(1);
    for (x, shares) in (x..).zip(shares.chunks(by)) {
        let most = shares.iter().copied().fold(0.0, f64::max);
        let letter = canvas.look.level(most);
        let tone = if most > 0.0 { Tone::Accent } else { Tone::Dim };
        canvas.text(area, x, y, letter.encode_utf8(&mut [0; 4]), tone);
    }
}
