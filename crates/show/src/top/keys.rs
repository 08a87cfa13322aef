//! What a key does: it changes what the person chose or the time that is shown, and nothing else.

use super::ui::{Open, RowId, Tab, row_id};
use super::{Effect, Top};
use crate::top::filter::Filter;

/// A key, or an action of the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A letter.
    Char(char),
    /// A letter with the control key.
    Control(char),
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Tab.
    Tab,
    /// Tab backwards.
    BackTab,
    /// Backspace.
    Backspace,
    /// A click at a column and row of the screen.
    Click(u16, u16),
    /// The wheel, up or down.
    Wheel {
        /// Down.
        down: bool,
    },
}

/// Speeds at which a ledger is played, in seconds of the run per second.
pub(super) const SPEEDS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0, 300.0, 3600.0];

/// Rows that the wheel moves by.
const WHEEL: isize = 3;

impl Top {
    /// Does what a key asks for.
    pub fn key(&mut self, key: Key) -> Effect {
        if self.ui.typing.is_some() {
            self.type_filter(key);
            return Effect::Redraw;
        }
        match key {
            Key::Char('q') | Key::Control('c') => return Effect::Quit,
            Key::Control('z') => return Effect::Suspend,
            Key::Control('l') => return Effect::Repaint,
            _ => {}
        }
        if self.ui.open != Open::Nothing && self.key_over(key) {
            return Effect::Redraw;
        }
        match key {
            Key::Char('?' | 'h') => self.open(Open::Help),
            Key::Char('/') => {
                self.ui.typing = Some(self.ui.filter.text().to_owned());
            }
            Key::Char(number @ '1'..='4') => {
                self.ui.tab = Tab::ALL[number as usize - '1' as usize];
            }
            Key::Tab => self.ui.tab = Tab::ALL[(self.ui.tab.place() + 1) % 4],
            Key::BackTab => self.ui.tab = Tab::ALL[(self.ui.tab.place() + 3) % 4],
            Key::Char('<' | ',') => self.sort_by(-1),
            Key::Char('>' | '.') => self.sort_by(1),
            Key::Char('r') => {
                if let Some(sort) = self.ui.sort_mut() {
                    sort.reversed = !sort.reversed;
                }
            }
            Key::Char('n') => self.ui.nodes = !self.ui.nodes,
            Key::Enter => self.enter(),
            Key::Escape | Key::Backspace => self.back(),
            Key::Click(x, y) => self.click(x, y),
            _ => {
                if !self.key_rows(key) && !self.key_time(key) {
                    return Effect::Nothing;
                }
            }
        }
        Effect::Redraw
    }

    /// Handles a key while a page lies over the tables. Returns whether the key was for that page.
    fn key_over(&mut self, key: Key) -> bool {
        let page = usize::from(self.size.1).saturating_sub(2).max(1);
        let top = &mut self.ui.open_top;
        match key {
            Key::Escape | Key::Enter | Key::Backspace | Key::Click(..) => {
                self.ui.open = Open::Nothing;
            }
            Key::Char('?' | 'h') if self.ui.open == Open::Help => self.ui.open = Open::Nothing,
            Key::Up | Key::Char('k') | Key::Wheel { down: false } => *top = top.saturating_sub(1),
            Key::Down | Key::Char('j') | Key::Wheel { down: true } => *top = top.saturating_add(1),
            Key::PageUp => *top = top.saturating_sub(page),
            Key::PageDown => *top = top.saturating_add(page),
            _ => return false,
        }
        true
    }

    fn open(&mut self, what: Open) {
        self.ui.open = what;
        self.ui.open_top = 0;
    }

    fn type_filter(&mut self, key: Key) {
        let mut text = self.ui.filter.text().to_owned();
        match key {
            Key::Enter => self.ui.typing = None,
            Key::Escape | Key::Control('c') => {
                text = self.ui.typing.take().unwrap_or_default();
            }
            Key::Backspace => drop(text.pop()),
            Key::Control('u') => text.clear(),
            Key::Char(letter) => text.push(letter),
            _ => {}
        }
        if text != self.ui.filter.text() {
            self.ui.filter = Filter::new(&text);
        }
    }

    fn sort_by(&mut self, step: isize) {
        let columns = self.ui.tab.columns();
        let Some(sort) = self.ui.sort_mut() else {
            return;
        };
        let at = columns.iter().position(|&column| column == sort.column);
        let all = columns.len();
        let next = match (at, step < 0) {
            (Some(at), true) => (at + all - 1) % all,
            (Some(at), false) => (at + 1) % all,
            (None, _) => 0,
        };
        sort.column = columns[next];
        sort.reversed = false;
    }

    /// Goes into the row that is selected.
    fn enter(&mut self) {
        let Some(row) = self.row() else {
            return;
        };
        match row {
            RowId::Process(process) => {
                self.ui.within = Some(process);
                self.ui.tab = Tab::Threads;
                *self.ui.cursor_mut() = super::ui::Cursor::default();
            }
            RowId::Thread(thread) => self.open(Open::Thread(thread)),
            RowId::Decision(number) => {
                if let Some(decision) = self.timeline.state().log.get(number).cloned() {
                    self.open(Open::Decision(decision));
                }
            }
            RowId::Node(_) => {}
        }
    }

    /// The identity of the selected row.
    fn row(&self) -> Option<RowId> {
        let cursor = self.ui.cursor();
        let state = self.timeline.state();
        let there = self.order.get(cursor.at);
        cursor.row.or_else(|| row_id(self.ui.tab, state, *there?))
    }

    /// Goes back: from the threads of one process to the processes, from a filter to none.
    fn back(&mut self) {
        if !self.ui.filter.is_empty() {
            self.ui.filter = Filter::default();
        } else if self.ui.tab == Tab::Threads && self.ui.within.is_some() {
            self.ui.within = None;
            self.ui.tab = Tab::Processes;
        } else {
            self.ui.tab = Tab::Processes;
        }
    }

    /// Handles a key that moves the cursor. Returns whether it was one.
    fn key_rows(&mut self, key: Key) -> bool {
        let page = isize::try_from(self.rows.max(1)).unwrap_or(isize::MAX);
        let step = match key {
            Key::Up | Key::Char('k') => -1,
            Key::Down | Key::Char('j') => 1,
            Key::PageUp | Key::Control('b') => -page,
            Key::PageDown | Key::Control('f') => page,
            Key::Char('g') => isize::MIN,
            Key::Char('G') => isize::MAX,
            Key::Wheel { down: false } => -WHEEL,
            Key::Wheel { down: true } => WHEEL,
            _ => return false,
        };
        let last = self.order.len().saturating_sub(1);
        let at = self.ui.cursor().at.saturating_add_signed(step).min(last);
        self.select(at);
        true
    }

    fn select(&mut self, at: usize) {
        let entry = self.order.get(at).copied();
        let state = self.timeline.state();
        let row = entry.and_then(|entry| row_id(self.ui.tab, state, entry));
        let cursor = self.ui.cursor_mut();
        cursor.at = at;
        cursor.row = row;
    }

    /// Handles a key that changes the time that is shown. Returns whether it was one.
    fn key_time(&mut self, key: Key) -> bool {
        let at = self.wanted.unwrap_or_else(|| self.timeline.at());
        match key {
            Key::Left => self.go(at.saturating_sub(1)),
            Key::Right => self.go(at.saturating_add(1)),
            Key::Home => self.go(0),
            Key::End => {
                self.playing = None;
                self.wanted = None;
                self.timeline.follow();
            }
            Key::Char('[') => {
                if let Some(moment) = self.timeline.last_decided() {
                    self.go(moment);
                }
            }
            Key::Char(']') => {
                if let Some(moment) = self.timeline.next_decided() {
                    self.go(moment);
                }
            }
            Key::Char(' ') => self.pause_or_go_on(),
            Key::Char('p') => self.play(),
            Key::Char('+' | '=') => self.speed = (self.speed + 1).min(SPEEDS.len() - 1),
            Key::Char('-') => self.speed = self.speed.saturating_sub(1),
            _ => return false,
        }
        true
    }

    fn go(&mut self, moment: usize) {
        self.playing = None;
        let last = self.timeline.moments().len().saturating_sub(1);
        self.wanted = Some(moment.min(last));
    }

    /// In a run that lasts: holds this moment, or returns to the newest. In a run that is over: plays, or stops
    /// playing.
    fn pause_or_go_on(&mut self) {
        if self.playing.take().is_some() {
            return;
        }
        if !self.grows {
            self.play();
        } else if self.timeline.is_newest() {
            self.timeline.hold();
        } else {
            self.wanted = None;
            self.timeline.follow();
        }
    }

    /// Plays from the moment that is shown, or from the first if the last is shown.
    fn play(&mut self) {
        let moments = self.timeline.moments();
        let at = self.timeline.at();
        let from = if at + 1 >= moments.len() { 0 } else { at };
        let time_ns = moments.clone().nth(from).map(|moment| moment.time_ns);
        if let Some(time_ns) = time_ns {
            self.playing = Some(time_ns as f64);
            self.wanted = Some(from);
        }
    }

    /// Handles a click: on a column's head it sorts by the column, on a row it selects the row, on the selected row it
    /// goes in.
    fn click(&mut self, x: u16, y: u16) {
        let layout = self.layout();
        let (head, rows) = (layout.table.y, layout.rows());
        if y == head {
            let state = self.timeline.state();
            let columns = super::columns::fit(self.ui.tab.columns(), state, layout.table.width);
            let hit = columns
                .iter()
                .find(|&&(_, from, wide)| (from..=from.saturating_add(wide)).contains(&x));
            if let (Some(&(column, ..)), Some(sort)) = (hit, self.ui.sort_mut()) {
                sort.reversed = sort.column == column && !sort.reversed;
                sort.column = column;
            }
            return;
        }
        if rows.y <= y && y < rows.bottom() {
            let at = self.ui.cursor().top + usize::from(y - rows.y);
            if at >= self.order.len() {
                return;
            }
            if at == self.ui.cursor().at && self.ui.cursor().row.is_some() {
                self.enter();
            } else {
                self.select(at);
            }
        }
    }
}
