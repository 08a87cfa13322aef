//! The heat map.

use ratatui::layout::Rect;

use super::super::Top;
use super::super::canvas::Canvas;
use super::super::figures;
use super::super::heat::{Heat, HeatSource};
use super::super::theme::Tone;

/// Columns of the numbers of nodes on the left.
const LABEL: u16 = 8;

/// Columns of a cell with its figure.
const WIDE: u16 = 8;

/// Draws what the threads on each node take from the memory of each.
pub(super) fn heat(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    let state = top.timeline.state();
    let heat = Heat::of(state);
    let told = match heat.source {
        HeatSource::Lines {
            estimated,
            unassigned,
        } => {
            let mut told = "lines per second from the threads on a row's node to the memory of a \
                            column's, as counted"
                .to_owned();
            if estimated > 0.0 {
                told += &format!(
                    "; {} of them estimated from where pages are",
                    figures::percent(estimated)
                );
            }
            if unassigned > 0.0 {
                told += &format!("; {} from unknown nodes", figures::percent(unassigned));
            }
            told
        }
        HeatSource::Pages => "CPUs in use on a row's node times pages on a column's: the traffic \
                              if all pages were used alike (lines are not counted by node here)"
            .to_owned(),
        HeatSource::Nothing => {
            "nothing to draw: neither lines nor the places of pages are known".to_owned()
        }
    };
    let mut y = 0;
    for line in super::super::canvas::wrapped(&told, usize::from(area.width)) {
        canvas.text(area, 0, y, &line, Tone::Dim);
        y += 1;
    }
    if heat.source == HeatSource::Nothing {
        return;
    }
    let nodes = &state.nodes;
    let room = area.width.saturating_sub(LABEL);
    let fits = usize::from(room / WIDE) >= nodes.len();
    let wide = if fits { WIDE } else { 1 };
    let by = if fits {
        1
    } else {
        nodes.len().div_ceil(usize::from(room).max(1)).max(1)
    };
    let heat = heat.together(by);
    let kept: Vec<_> = nodes.chunks(by).collect();
    canvas.text(area, 0, y, "FROM\\TO", Tone::Head);
    if fits {
        for (x, nodes) in (0..).zip(&kept) {
            let end = LABEL + (x + 1) * wide;
            let label = format!("node {}", nodes[0].id);
            canvas.right(area, end - wide, end, y, &label, Tone::Head);
        }
    } else {
        let first = nodes.first().map_or(0, |node| node.id.0);
        let last = nodes.last().map_or(0, |node| node.id.0);
        let each = if by == 1 {
            "a letter for each node".to_owned()
        } else {
            format!("a letter for {by} nodes by {by}")
        };
        let label = format!("{first}-{last}, {each}");
        canvas.text(area, LABEL, y, &label, Tone::Head);
    }
    let most = heat.most();
    let first_row = (y + 1).min(area.height);
    let rows = Rect {
        y: area.y + first_row,
        height: area.height - first_row,
        ..area
    };
    let top_row = top.ui.cursor().at / by;
    let skip = (top_row + 1).saturating_sub(usize::from(rows.height).max(1));
    for ((from, nodes), y) in kept.iter().enumerate().skip(skip).zip(0..rows.height) {
        let label = format!("node {}", nodes[0].id);
        canvas.text(rows, 0, y, &label, Tone::Strong);
        for (to, x) in (0..kept.len()).zip(0u16..) {
            let x = LABEL.saturating_add(x.saturating_mul(wide));
            let cell = heat.cell(from, to);
            let shade = canvas
                .look
                .shade(if most > 0.0 { cell / most } else { 0.0 });
            let tone = match (from == to, cell > 0.0) {
                (_, false) => Tone::Dim,
                (true, true) => Tone::Good,
                (false, true) => Tone::Bad,
            };
            let text = if fits {
                let figure = match heat.source {
                    HeatSource::Pages => format!("{cell:.2}"),
                    _ => figures::count(cell),
                };
                format!("{shade}{figure:>6}")
            } else {
                shade.to_string()
            };
            canvas.right(rows, x, x.saturating_add(wide), y, &text, tone);
        }
    }
}
