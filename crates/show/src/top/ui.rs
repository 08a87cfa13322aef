//! What a person chose to see: which table, how it is sorted and filtered, which row, and what is open.

use std::cmp::Ordering;
use std::sync::Arc;

use numaherd_world::{ProcessId, ThreadId};

use super::columns::{self, Column, Row, SortKey};
use super::filter::Filter;
use crate::run::{Decision, RunModel};

/// What fills most of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    /// The table of processes and virtual machines.
    #[default]
    Processes,
    /// The table of threads, of one process or of all.
    Threads,
    /// The heat map, from node to node.
    Heat,
    /// The decisions, latest first.
    Decisions,
}

impl Tab {
    /// All tabs, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Processes, Self::Threads, Self::Heat, Self::Decisions];

    /// Its title.
    pub fn title(self) -> &'static str {
        ["Processes", "Threads", "Heat map", "Decisions"][self.place()]
    }

    /// Its place among [`Tab::ALL`].
    pub(super) fn place(self) -> usize {
        self as usize
    }

    /// The columns that it can be sorted by.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Processes => columns::PROCESS,
            Self::Threads => columns::THREAD,
            Self::Heat | Self::Decisions => &[],
        }
    }
}

/// What lies over the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Open {
    /// Nothing.
    #[default]
    Nothing,
    /// The keys.
    Help,
    /// A decision: its reason, its alternative, its outcome.
    Decision(Arc<Decision>),
    /// A thread, with the decisions about it.
    Thread(ThreadId),
}

/// The identity of a row, which stays the same wherever the row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowId {
    /// A process.
    Process(ProcessId),
    /// A thread.
    Thread(ThreadId),
    /// A decision, by its number.
    Decision(u64),
    /// A node, by its place.
    Node(usize),
}

/// The position in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    /// The row's identity: the cursor follows it wherever it is sorted to.
    pub row: Option<RowId>,
    /// The row's place, or its last place if it has gone.
    pub at: usize,
    /// The first row that is shown.
    pub top: usize,
}

/// What a table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The column.
    pub column: Column,
    /// Whether the order is the reverse of the column's default.
    pub reversed: bool,
}

/// What a person chose to see.
#[derive(Clone, Debug)]
pub struct Ui {
    /// What fills most of the screen.
    pub tab: Tab,
    /// What lies over it.
    pub open: Open,
    /// The first line that is shown of what is open.
    pub open_top: usize,
    /// The process whose threads are shown; `None` for all.
    pub within: Option<ProcessId>,
    /// What the tables of processes and of threads are sorted by.
    pub sorts: [Sort; 2],
    /// The position in each of [`Tab::ALL`].
    pub cursors: [Cursor; 4],
    /// Which rows are shown.
    pub filter: Filter,
    /// While a filter is typed, the one before.
    pub typing: Option<String>,
    /// Whether the nodes are shown above the table.
    pub nodes: bool,
}

impl Default for Ui {
    fn default() -> Self {
        let by_cpu = Sort {
            column: Column::Cpu,
            reversed: false,
        };
        Self {
            tab: Tab::default(),
            open: Open::default(),
            open_top: 0,
            within: None,
            sorts: [by_cpu; 2],
            cursors: [Cursor::default(); 4],
            filter: Filter::default(),
            typing: None,
            nodes: true,
        }
    }
}

impl Ui {
    /// What the table that is shown is sorted by.
    pub fn sort(&self) -> Option<Sort> {
        self.sorts.get(self.tab.place()).copied()
    }

    /// The position in the table that is shown.
    pub fn cursor(&self) -> Cursor {
        self.cursors[self.tab.place()]
    }

    pub(super) fn sort_mut(&mut self) -> Option<&mut Sort> {
        self.sorts.get_mut(self.tab.place())
    }

    pub(super) fn cursor_mut(&mut self) -> &mut Cursor {
        &mut self.cursors[self.tab.place()]
    }
}

/// The rows of a tab, filtered and sorted: places in the snapshot's list of processes or of threads, in
/// the list of nodes, or numbers of decisions.
pub fn order(ui: &Ui, state: &RunModel) -> Vec<u64> {
    match ui.tab {
        Tab::Processes | Tab::Threads => table(ui, state),
        Tab::Heat => (0..state.nodes.len() as u64).collect(),
        Tab::Decisions => {
            let admits =
                |one: &&Arc<Decision>| ui.filter.is_empty() || ui.filter.admits(&known(one));
            let admitted = state.log.latest().rev().filter(admits);
            admitted.map(|decision| decision.number).collect()
        }
    }
}

/// The text of a decision that a filter searches.
fn known(decision: &Decision) -> String {
    let pid = decision.process.map(|process| process.pid.to_string());
    format!(
        "{} {} {} {} {}",
        decision.thread.tid,
        pid.unwrap_or_default(),
        decision.thread_name,
        decision.rule,
        columns::outcome(decision)
    )
}

fn table(ui: &Ui, state: &RunModel) -> Vec<u64> {
    let Some(sort) = ui.sort() else {
        return Vec::new();
    };
    let is_within = |row: &Row<'_>| match row {
        Row::Process(..) => true,
        Row::Thread(thread, _) => ui.within.is_none_or(|process| process == thread.process),
    };
    let rows = (0..).map_while(|at| Some((at, Row::at(state, ui.tab, at)?)));
    let mut keyed: Vec<(SortKey, u64)> = rows
        .filter(|(_, row)| is_within(row))
        .filter(|(_, row)| ui.filter.is_empty() || ui.filter.admits(&row.known(state)))
        .map(|(at, row)| (sort.column.key(state, row), at as u64))
        .collect();
    let falls = sort.column.falls() != sort.reversed;
    keyed.sort_by(|(one, a), (other, b)| compare(one, other, falls).then(a.cmp(b)));
    keyed.into_iter().map(|(_, at)| at).collect()
}

fn compare(one: &SortKey, other: &SortKey, falls: bool) -> Ordering {
    use SortKey::{Number, Text, Unknown};
    let ordering = match (one, other) {
        (Unknown, Unknown) => return Ordering::Equal,
        (Unknown, _) | (Text(_), Number(_)) => return Ordering::Greater,
        (_, Unknown) | (Number(_), Text(_)) => return Ordering::Less,
        (Number(one), Number(other)) => one.total_cmp(other),
        (Text(one), Text(other)) => one.cmp(other),
    };
    if falls { ordering.reverse() } else { ordering }
}

/// The identity of a tab's row, by its entry in [`order`].
pub fn row_id(tab: Tab, state: &RunModel, entry: u64) -> Option<RowId> {
    let at = usize::try_from(entry).ok()?;
    let snapshot = state.snapshot();
    match tab {
        Tab::Processes => Some(RowId::Process(snapshot?.processes.get(at)?.id)),
        Tab::Threads => Some(RowId::Thread(snapshot?.threads.get(at)?.id)),
        Tab::Heat => Some(RowId::Node(at)),
        Tab::Decisions => Some(RowId::Decision(entry)),
    }
}

/// The entry of [`order`] that a row has, whether it is shown or not.
pub(super) fn entry_of(state: &RunModel, row: RowId) -> Option<u64> {
    let snapshot = || state.snapshot();
    let at = match row {
        RowId::Process(id) => snapshot()?
            .processes
            .binary_search_by_key(&id, |p| p.id)
            .ok()?,
        RowId::Thread(id) => snapshot()?
            .threads
            .binary_search_by_key(&id, |t| t.id)
            .ok()?,
        RowId::Decision(number) => return Some(number),
        RowId::Node(at) => at,
    };
    Some(at as u64)
}

/// Moves the cursor to where its row is now, or keeps its place if the row has gone, and scrolls so that it is on the
/// screen; the table has `rows` rows there.
pub(super) fn settle(cursor: &mut Cursor, state: &RunModel, tab: Tab, order: &[u64], rows: usize) {
    let entry = cursor.row.and_then(|row| entry_of(state, row));
    let found = entry.and_then(|entry| order.iter().position(|&other| other == entry));
    cursor.at = found
        .unwrap_or(cursor.at)
        .min(order.len().saturating_sub(1));
    if found.is_none() && cursor.row.is_some() {
        let there = order.get(cursor.at);
        cursor.row = there.and_then(|&entry| row_id(tab, state, entry));
    }
    let rows = rows.max(1);
    let last_top = order.len().saturating_sub(rows);
    cursor.top = cursor.top.min(cursor.at).min(last_top);
    if cursor.at >= cursor.top + rows {
        cursor.top = cursor.at + 1 - rows;
    }
}
