//! A frame, from top to bottom: what runs, the sums of the run, the nodes, a table or the heat map, the time line, the
//! keys. A page that is open lies over it.

mod decisions;
mod head;
mod heat;
mod nodes;
mod over;
mod table;

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use super::Top;
use super::canvas::Canvas;
use super::ui::{Open, Tab};

/// The least rows of a screen that shows the sums of the run, and of one that shows the time line.
const ROWS_FOR_SUMS: u16 = 10;
const ROWS_FOR_TIME: u16 = 16;

/// The areas of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// What runs, and when.
    pub(super) head: Rect,
    /// The sums of the run.
    pub(super) sums: Rect,
    /// The nodes.
    pub(super) nodes: Rect,
    /// The tabs.
    pub(super) tabs: Rect,
    /// The table with its head.
    pub(super) table: Rect,
    /// The time line.
    pub(super) time: Rect,
    /// The keys, or what is typed.
    pub(super) foot: Rect,
    /// The page that is open.
    pub(super) over: Rect,
}

impl Layout {
    /// The layout of a screen.
    pub(super) fn of(top: &Top, screen: Rect) -> Self {
        let mut left = screen;
        let mut take = |rows: u16, below: bool| {
            let rows = rows.min(left.height);
            let taken = Rect {
                y: if below { left.bottom() - rows } else { left.y },
                height: rows,
                ..left
            };
            left.height -= rows;
            if !below {
                left.y += rows;
            }
            taken
        };
        let head = take(1, false);
        let foot = take(u16::from(screen.height > 2), true);
        let sums = take(u16::from(screen.height >= ROWS_FOR_SUMS), false);
        let is_over_time = top.timeline.moments().len() > 1;
        let time = take(
            u16::from(screen.height >= ROWS_FOR_TIME && is_over_time),
            true,
        );
        let state = top.timeline.state();
        let wants = if top.ui.nodes {
            nodes::rows(state, screen.height)
        } else {
            0
        };
        let nodes = take(wants, false);
        let tabs = take(u16::from(screen.height > 4), false);
        let over = Rect {
            y: head.bottom(),
            height: foot.y.saturating_sub(head.bottom()),
            ..screen
        };
        Self {
            head,
            sums,
            nodes,
            tabs,
            table: left,
            time,
            foot,
            over,
        }
    }

    /// The rows of the table, without its head.
    pub(super) fn rows(&self) -> Rect {
        let head = self.table.height.min(1);
        Rect {
            y: self.table.y + head,
            height: self.table.height - head,
            ..self.table
        }
    }
}

pub(super) fn draw(top: &Top, buffer: &mut Buffer) {
    let layout = Layout::of(top, buffer.area);
    let mut canvas = Canvas::new(buffer, top.look);
    let canvas = &mut canvas;
    let state = top.timeline.state();
    head::head(top, canvas, layout.head);
    head::sums(state, canvas, layout.sums);
    nodes::nodes(state, canvas, layout.nodes);
    head::tabs(top, canvas, layout.tabs);
    match top.ui.tab {
        Tab::Processes | Tab::Threads => table::table(top, canvas, &layout),
        Tab::Heat => heat::heat(top, canvas, layout.table),
        Tab::Decisions => decisions::decisions(top, canvas, &layout),
    }
    head::time(top, canvas, layout.time);
    head::foot(top, canvas, layout.foot);
    if top.ui.open != Open::Nothing {
        over::over(top, canvas, layout.over);
    }
}

/// The number of lines of the page that is open.
pub(super) fn open_lines(top: &Top, area: Rect) -> usize {
    over::lines(top, area).len()
}
