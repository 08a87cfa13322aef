//! The heat map.

use ratatui_core::layout::Rect;

use super::super::Top;
use super::super::canvas::{Canvas, wrapped};
use super::super::figures;
use super::super::heat::{Heat, HeatSource};
use super::super::theme::Tone;
use crate::run::Node;

/// Columns that the numbers of nodes take on the left.
const LABEL: u16 = 8;

/// Columns of a cell with its figure.
const WIDE: u16 = 8;

/// Draws how much the threads on each node take from the memory of each node.
pub(super) fn heat(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    let state = top.timeline.state();
    let heat = Heat::of(state);
    let mut y = 0;
    for line in wrapped(&about(heat.source), usize::from(area.width)) {
        canvas.text(area, 0, y, &line, Tone::Dim);
        y += 1;
    }
    if heat.source == HeatSource::Nothing {
        return;
    }
    let cells = Cells::of(&state.nodes, area);
    cells.head(canvas, area, y);
    let first_row = (y + 1).min(area.height);
    let rows = Rect {
        y: area.y + first_row,
        height: area.height - first_row,
        ..area
    };
    cells.rows(&heat, canvas, rows, top.ui.cursor().at);
}

/// What is drawn, as a sentence.
fn about(source: HeatSource) -> String {
    match source {
        HeatSource::Lines {
            estimated,
            unassigned,
        } => {
            let mut about = "lines per second from the threads on a row's node to the memory of a \
                             column's, as counted"
                .to_owned();
            if estimated > 0.0 {
                let share = figures::percent(estimated);
                about += &format!("; {share} of them estimated from where pages are");
            }
            if unassigned > 0.0 {
                let share = figures::percent(unassigned);
                about += &format!("; {share} from unknown nodes");
            }
            about
        }
        HeatSource::Pages => "CPUs in use on a row's node times pages on a column's: the traffic \
                              if all pages were used alike (lines are not counted by node here)"
            .to_owned(),
        HeatSource::Nothing => {
            "nothing to draw: neither lines nor the places of pages are known".to_owned()
        }
    }
}

/// The cells of an area: with their figures if there is room for a column for each node, otherwise one letter for `by`
/// nodes by `by`.
struct Cells<'n> {
    /// The nodes of each row and column.
    nodes: Vec<&'n [Node]>,
    by: usize,
    /// Columns of a cell.
    wide: u16,
}

impl<'n> Cells<'n> {
    fn of(nodes: &'n [Node], area: Rect) -> Self {
        let room = area.width.saturating_sub(LABEL);
        let (wide, by) = match usize::from(room / WIDE) >= nodes.len() {
            true => (WIDE, 1),
            false => (1, nodes.len().div_ceil(usize::from(room).max(1)).max(1)),
        };
        let nodes = nodes.chunks(by).collect();
        Self { nodes, by, wide }
    }

    fn have_figures(&self) -> bool {
        self.wide == WIDE
    }

    fn head(&self, canvas: &mut Canvas<'_>, area: Rect, y: u16) {
        canvas.text(area, 0, y, "FROM\\TO", Tone::Head);
        if self.have_figures() {
            for (x, nodes) in (0..).zip(&self.nodes) {
                let end = LABEL + (x + 1) * self.wide;
                let label = format!("node {}", nodes[0].id);
                canvas.right(area, end - self.wide, end, y, &label, Tone::Head);
            }
            return;
        }
        let mut all = self.nodes.iter().flat_map(|nodes| nodes.iter());
        let first = all.next().map_or(0, |node| node.id.0);
        let last = all.last().map_or(first, |node| node.id.0);
        let each = match self.by {
            1 => "a letter for each node".to_owned(),
            by => format!("a letter for {by} nodes by {by}"),
        };
        let label = format!("{first}-{last}, {each}");
        canvas.text(area, LABEL, y, &label, Tone::Head);
    }

    /// Draws the rows that fit, down to that of the node at `cursor`.
    fn rows(&self, heat: &Heat, canvas: &mut Canvas<'_>, area: Rect, cursor: usize) {
        let heat = heat.together(self.by);
        let most = heat.most();
        let skip = (cursor / self.by + 1).saturating_sub(usize::from(area.height).max(1));
        for ((from, nodes), y) in (self.nodes.iter().enumerate().skip(skip)).zip(0..area.height) {
            let label = format!("node {}", nodes[0].id);
            canvas.text(area, 0, y, &label, Tone::Strong);
            for (to, x) in (0..self.nodes.len()).zip(0u16..) {
                let x = LABEL.saturating_add(x.saturating_mul(self.wide));
                let cell = heat.cell(from, to);
                let share = if most > 0.0 { cell / most } else { 0.0 };
                let tone = match (from == to, cell > 0.0) {
                    (_, false) => Tone::Dim,
                    (true, true) => Tone::Good,
                    (false, true) => Tone::Bad,
                };
                let mut text = canvas.look.shade(share).to_string();
                if self.have_figures() {
                    let figure = match heat.source {
                        HeatSource::Pages => format!("{cell:.2}"),
                        _ => figures::count(cell),
                    };
                    text += &format!("{figure:>6}");
                }
                canvas.right(area, x, x.saturating_add(self.wide), y, &text, tone);
            }
        }
    }
}
