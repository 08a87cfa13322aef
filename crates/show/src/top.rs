//! `numaherd top`: a run on a terminal, as it is now or was at any moment.
//!
//! [`Top`] takes a ledger's lines as they come ([`Top::take`]), keys ([`Top::key`]) and time ([`Top::tick`]), and draws
//! a frame into a buffer ([`Top::draw`]). It reads no file and knows no terminal: it asks a callback for lines of the
//! past ([`Again`]), and frames can be made into text ([`text`]) or SVG ([`svg()`]).
//!
//! ```text
//!  lines ─▶ timeline ─▶ RunModel ─▶ ui: order ─▶ draw ─▶ Buffer
//!                          ▲            ▲
//!  keys ───────────────────┴────────────┘
//! ```
//!
//! Sums, classes and the places of threads are derived once from each snapshot, when it is folded. The order of rows is
//! computed only when the state or the person's choice has changed, and only the rows on the screen are written.

mod canvas;
mod columns;
mod draw;
mod figures;
mod filter;
mod heat;
mod keys;
mod printable;
mod svg;
mod theme;
mod timeline;
mod ui;

use std::sync::Arc;

use numaherd_herd::Line;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

pub use filter::Filter;
pub use heat::{Heat, HeatSource};
pub use keys::Key;
pub use svg::{svg, text};
pub use theme::{Colors, Look, Tone};
pub use timeline::{Again, Moment, Timeline};
pub use ui::{Open, Tab, Ui};

use draw::Layout;

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// Draw again.
    Redraw,
    /// Draw again, over whatever is on the screen.
    Repaint,
    /// Suspend the program (the shell's job control).
    Suspend,
    /// End.
    Quit,
}

/// A run on a screen.
#[derive(Debug, Default)]
pub struct Top {
    timeline: Timeline,
    ui: Ui,
    look: Look,
    /// Where the lines come from, for people.
    source: String,
    /// Whether lines may still come.
    grows: bool,
    /// What went wrong with the source, or what is being done.
    said: Option<String>,
    /// Whether `said` is bad news.
    bad: bool,
    /// The time up to which the run is played, in ns since the world began; `None` if it is not played.
    playing: Option<f64>,
    /// The speed of playing, as an index of [`keys::SPEEDS`].
    speed: usize,
    /// The moment to be shown next.
    wanted: Option<usize>,
    /// Columns and rows of the screen.
    size: (u16, u16),
    /// Rows of the table on the screen.
    rows: usize,
    /// The rows of the table, filtered and sorted; `ordered` is what they were made of.
    order: Vec<u64>,
    ordered: Option<Ordered>,
    /// Increases when the state that is shown changes.
    version: u64,
}

/// The inputs from which the order of rows was made.
#[derive(Clone, Debug, PartialEq)]
struct Ordered {
    version: u64,
    tab: Tab,
    sort: Option<ui::Sort>,
    within: Option<numaherd_world::ProcessId>,
    filter: String,
}

impl Top {
    /// A run that comes from `source` (for people).
    pub fn new(timeline: Timeline, source: &str, look: Look) -> Self {
        Self {
            timeline,
            look,
            source: source.to_owned(),
            speed: 3,
            size: (80, 24),
            rows: 1,
            ..Self::default()
        }
    }

    /// The same for a run from which lines may still come.
    #[must_use]
    pub fn growing(self) -> Self {
        Self {
            grows: true,
            ..self
        }
    }

    /// Takes in the next line.
    pub fn take(&mut self, line: &Arc<Line>) {
        self.timeline.take(line);
        if self.timeline.is_newest() {
            self.version += 1;
        }
    }

    /// Notes that no more lines will come; `error` says why, if that is not simply the end.
    pub fn ended(&mut self, error: Option<String>) {
        self.grows = false;
        self.bad = error.is_some();
        self.said = error;
    }

    /// Shows what is being done; `None` for nothing in particular.
    pub fn say(&mut self, what: Option<String>) {
        self.bad = false;
        self.said = what;
    }

    /// The run over time.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// What the person chose.
    pub fn ui(&self) -> &Ui {
        &self.ui
    }

    /// Shows a tab.
    pub fn show_tab(&mut self, tab: Tab) {
        self.ui.tab = tab;
    }

    /// Sorts the table that is shown by the column with this title, in any case. Returns whether there is one.
    pub fn sort_by_title(&mut self, title: &str) -> bool {
        let mut columns = self.ui.tab.columns().iter();
        let column = columns.find(|column| column.title().eq_ignore_ascii_case(title));
        match (column, self.ui.sorts.get_mut(self.ui.tab.place())) {
            (Some(&column), Some(sort)) => {
                sort.column = column;
                true
            }
            _ => false,
        }
    }

    /// The titles of the columns that the table which is shown can be sorted by.
    pub fn column_titles(&self) -> Vec<&'static str> {
        let columns = self.ui.tab.columns().iter();
        columns.map(|column| column.title()).collect()
    }

    /// Shows only rows that a text or regular expression matches.
    pub fn filter(&mut self, text: &str) {
        self.ui.filter = Filter::new(text);
    }

    /// Shows the last moment that is not after a time in ns.
    pub fn show_time(&mut self, time_ns: u64) {
        self.wanted = Some(self.timeline.moment_at(time_ns));
    }

    /// Whether the run is played, so that [`Top::tick`] must be called often.
    pub fn is_playing(&self) -> bool {
        self.playing.is_some()
    }

    /// Lets time pass, in seconds. Returns whether something must be drawn.
    pub fn tick(&mut self, seconds: f64) -> bool {
        let Some(time_ns) = &mut self.playing else {
            return false;
        };
        *time_ns += seconds * keys::SPEEDS[self.speed] * 1e9;
        let moment = self.timeline.moment_at(*time_ns as u64);
        let last = self.timeline.moments().len().saturating_sub(1);
        if moment >= last {
            self.playing = None;
            self.wanted = None;
            self.timeline.follow();
            self.version += 1;
            return true;
        }
        if moment == self.wanted.unwrap_or_else(|| self.timeline.at()) {
            return false;
        }
        self.wanted = Some(moment);
        true
    }

    /// Prepares a frame of `columns` and `rows`: the moment that is wanted, from lines that `again` reads, and the
    /// order of rows.
    pub fn prepare(&mut self, columns: u16, rows: u16, again: Again<'_>) {
        self.size = (columns, rows);
        if let Some(moment) = self.wanted.take() {
            if !self.timeline.show(moment, again) && !self.bad {
                self.said = Some("that moment is no longer available".to_owned());
            }
            self.version += 1;
        }
        let ordered = Ordered {
            version: match self.timeline.is_newest() {
                true => self.version,
                // New lines do not change a moment of the past.
                false => self.version | 1 << 63,
            },
            tab: self.ui.tab,
            sort: self.ui.sort(),
            within: self.ui.within,
            filter: self.ui.filter.text().to_owned(),
        };
        if self.ordered.as_ref() != Some(&ordered) {
            self.order = ui::order(&self.ui, self.timeline.state());
            self.ordered = Some(ordered);
        }
        let layout = self.layout();
        self.rows = usize::from(layout.rows().height);
        let state = self.timeline.state();
        let cursor = &mut self.ui.cursors[self.ui.tab.place()];
        ui::settle(cursor, state, self.ui.tab, &self.order, self.rows);
        let lines = draw::open_lines(self, layout.over);
        let most = lines.saturating_sub(usize::from(layout.over.height.saturating_sub(2)));
        self.ui.open_top = self.ui.open_top.min(most);
    }

    /// Draws what [`Top::prepare`] has prepared.
    pub fn draw(&self, buffer: &mut Buffer) {
        draw::draw(self, buffer);
    }

    /// Prepares and draws one frame of `columns` and `rows`.
    pub fn frame(&mut self, columns: u16, rows: u16, again: Again<'_>) -> Buffer {
        self.prepare(columns, rows, again);
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
        self.draw(&mut buffer);
        buffer
    }

    fn layout(&self) -> Layout {
        let (columns, rows) = self.size;
        Layout::of(self, Rect::new(0, 0, columns, rows))
    }
}
