//! The columns of the tables of processes and threads: what each shows, by what it sorts, and which
//! there is room for.

use numaherd_policy::classes::Class;
use numaherd_world::{Process, Thread};

use super::figures::{ago, bytes, percent, rate};
use super::theme::{Look, Tone};
use crate::run::work::share;
use crate::run::{self, Decision, DecisionOutcome, RunModel, Subject};
use crate::words::left_alone;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    /// The process's number.
    Pid,
    /// The thread's number.
    Tid,
    /// Its name; of a virtual machine the machine's.
    Name,
    /// The name of a thread's process.
    Process,
    /// The group of the configuration that the process is in.
    Group,
    /// DINO's class.
    Class,
    /// How many threads.
    Threads,
    /// CPU use, in percent of one CPU.
    Cpu,
    /// Time spent waiting for a CPU, in percent of one CPU.
    Wait,
    /// The CPU that the thread last ran on.
    On,
    /// The core that it was given by order.
    Given,
    /// The node of its CPU.
    Node,
    /// Lines fetched from memory per 1000 instructions.
    Misses,
    /// Share of lines from the core's own node.
    Local,
    /// The node with most of its pages.
    Home,
    /// Resident memory.
    Memory,
    /// Resident pages by node.
    Pages,
    /// Threads by node.
    Spread,
    /// What last moved, and how long ago.
    Moved,
    /// Why it moved.
    Why,
}

/// What a row is.
#[derive(Clone, Copy, Debug)]
pub enum Row<'s> {
    /// A process, with its place in the snapshot.
    Process(usize, &'s Process, &'s run::Process),
    /// A thread.
    Thread(&'s Thread, &'s run::Thread),
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String, Tone),
    /// A letter for each share of 0 to 1.
    Levels(Vec<f64>),
}

/// By what a row is sorted. What is not known comes last, whichever way it is sorted.
#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    /// By number.
    Number(f64),
    /// By letters.
    Text(String),
    /// Not known.
    Unknown,
}

/// Columns of the table of processes.
pub const PROCESS: &[Column] = &[
    Column::Pid,
    Column::Name,
    Column::Group,
    Column::Class,
    Column::Threads,
    Column::Cpu,
    Column::Wait,
    Column::Misses,
    Column::Local,
    Column::Home,
    Column::Memory,
    Column::Pages,
    Column::Spread,
    Column::Moved,
    Column::Why,
];

/// Columns of the table of threads.
pub const THREAD: &[Column] = &[
    Column::Tid,
    Column::Name,
    Column::Process,
    Column::Class,
    Column::Cpu,
    Column::Wait,
    Column::On,
    Column::Node,
    Column::Given,
    Column::Home,
    Column::Misses,
    Column::Local,
    Column::Moved,
    Column::Why,
];

/// Columns of a screen on which nodes are given more room.
const WIDE: u16 = 160;

/// The border at which a column's text is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// The rows that come first when a column is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Largest,
    Smallest,
}

impl Column {
    /// Title, least width in columns of the screen, rank, alignment, and which rows come first. Where
    /// there is no room for all, columns of the largest rank are left out first.
    fn layout(self) -> (&'static str, u16, u8, Align, First) {
        use Align::{Left, Right};
        use First::{Largest, Smallest};
        match self {
            Self::Pid => ("PID", 7, 0, Right, Smallest),
            Self::Tid => ("TID", 7, 0, Right, Smallest),
            Self::Name => ("NAME", 15, 0, Left, Smallest),
            Self::Process => ("PROCESS", 15, 12, Left, Smallest),
            Self::Group => ("GROUP", 10, 13, Left, Smallest),
            Self::Class => ("CLASS", 11, 3, Left, Largest),
            Self::Threads => ("THR", 4, 9, Right, Largest),
            Self::Cpu => ("CPU%", 5, 1, Right, Largest),
            Self::Wait => ("WAIT%", 5, 15, Right, Largest),
            Self::On => ("ON", 4, 7, Right, Largest),
            Self::Given => ("GIVEN", 5, 14, Right, Largest),
            Self::Node => ("NODE", 4, 2, Right, Largest),
            Self::Misses => ("MISS", 5, 11, Right, Largest),
            Self::Local => ("LOCAL", 5, 6, Right, Largest),
            Self::Home => ("HOME", 4, 2, Right, Largest),
            Self::Memory => ("MEM", 6, 10, Right, Largest),
            Self::Pages => ("PAGES", 5, 4, Left, Largest),
            Self::Spread => ("THREADS", 7, 5, Left, Largest),
            Self::Moved => ("LAST MOVE", 17, 5, Left, Largest),
            Self::Why => ("WHY", 20, 8, Left, Smallest),
        }
    }

    /// Its head.
    pub fn title(self) -> &'static str {
        self.layout().0
    }

    /// Columns of the screen that it takes, on a machine of so many nodes, of which at most `most` have
    /// a letter each.
    fn width(self, nodes: u16, most: u16) -> u16 {
        let least = self.layout().1;
        match self {
            Self::Pages | Self::Spread => nodes.clamp(least, most),
            _ => least,
        }
    }

    fn rank(self) -> u8 {
        self.layout().2
    }

    /// Whether its text ends at its right border.
    pub fn is_right(self) -> bool {
        self.layout().3 == Align::Right
    }

    /// Whether it sorts from the largest down unless it is asked to sort the other way.
    pub fn falls(self) -> bool {
        self.layout().4 == First::Largest
    }

    /// By what a row is sorted.
    pub fn key(self, state: &RunModel, row: Row<'_>) -> Key {
        let number = |number: Option<f64>| {
            number
                .filter(|n| !n.is_nan())
                .map_or(Key::Unknown, Key::Number)
        };
        match (self, row) {
            (Self::Pid, Row::Process(_, process, _)) => number(Some(f64::from(process.id.pid))),
            (Self::Tid, Row::Thread(thread, _)) => number(Some(f64::from(thread.id.tid))),
            (Self::Class, row) => number(class_of(row).map(|class| f64::from(class as u8))),
            (Self::Threads, Row::Process(_, _, track)) => number(Some(track.threads as f64)),
            (Self::Cpu, Row::Process(_, _, track)) => number(Some(track.cpus_used)),
            (Self::Cpu, Row::Thread(thread, _)) => number(Some(share(thread.cpu_share))),
            (Self::Wait, Row::Process(_, _, track)) => number(Some(track.cpus_waited)),
            (Self::Wait, Row::Thread(thread, _)) => number(Some(share(thread.wait_share))),
            (Self::On, Row::Thread(thread, _)) => number(Some(f64::from(thread.cpu.0))),
            (Self::Given, Row::Thread(thread, _)) => {
                number(thread.assigned.map(|cpu| f64::from(cpu.0)))
            }
            (Self::Node, Row::Thread(_, track)) => number(track.node.map(|place| place as f64)),
            (Self::Misses, row) => number(misses(row)),
            (Self::Local, row) => number(local(row)),
            (Self::Home, row) => number(home(state, row).map(f64::from)),
            (Self::Memory, Row::Process(_, process, _)) => {
                let pages = process.residency.as_ref();
                number(pages.map(|pages| pages.total() as f64))
            }
            (Self::Pages, Row::Process(_, process, _)) => number(
                process
                    .residency
                    .as_ref()
                    .map(|pages| evenness(pages.pages.iter().map(|&(_, n)| n as f64))),
            ),
            (Self::Spread, Row::Process(_, _, track)) => {
                let spread = track.threads_on.iter();
                number(Some(evenness(spread.map(|&(_, n)| n as f64))))
            }
            (Self::Moved, row) => number(last_move(row).map(|last| last.number as f64)),
            (_, row) => match self.cell(state, row, Look::default()) {
                Cell::Text(text, _) if !text.is_empty() => Key::Text(text.to_lowercase()),
                _ => Key::Unknown,
            },
        }
    }

    /// What it shows of a row.
    pub fn cell(self, state: &RunModel, row: Row<'_>, look: Look) -> Cell {
        let plain = |text: String| Cell::Text(text, Tone::Plain);
        let known = |text: Option<String>| match text {
            Some(text) => Cell::Text(text, Tone::Plain),
            None => Cell::Text("-".to_owned(), Tone::Dim),
        };
        match (self, row) {
            (Self::Pid, Row::Process(_, process, _)) => plain(process.id.pid.to_string()),
            (Self::Tid, Row::Thread(thread, _)) => plain(thread.id.tid.to_string()),
            (Self::Name, row) => Cell::Text(name(state, row), Tone::Strong),
            (Self::Process, Row::Thread(_, track)) => {
                known(process_of(state, track).map(shown_name))
            }
            (Self::Group, Row::Process(_, process, _)) => {
                known(process.group.as_deref().map(str::to_owned))
            }
            (Self::Class, row) => class(class_of(row)),
            (Self::Threads, Row::Process(_, _, track)) => plain(track.threads.to_string()),
            (Self::Cpu, Row::Process(_, _, track)) => plain(whole_percent(track.cpus_used)),
            (Self::Cpu, Row::Thread(thread, _)) => plain(whole_percent(share(thread.cpu_share))),
            (Self::Wait, Row::Process(_, _, track)) => plain(whole_percent(track.cpus_waited)),
            (Self::Wait, Row::Thread(thread, _)) => plain(whole_percent(share(thread.wait_share))),
            (Self::On, Row::Thread(thread, _)) => plain(thread.cpu.to_string()),
            (Self::Given, Row::Thread(thread, _)) => {
                known(thread.assigned.map(|cpu| cpu.to_string()))
            }
            (Self::Node, Row::Thread(_, track)) => {
                let node = track.node.and_then(|place| state.nodes.get(place));
                known(node.map(|node| node.id.to_string()))
            }
            (Self::Misses, row) => known(misses(row).map(rate)),
            (Self::Local, row) => match local(row) {
                Some(local) => Cell::Text(percent(local), local_tone(local)),
                None => known(None),
            },
            (Self::Home, row) => known(home(state, row).map(|node| node.to_string())),
            (Self::Memory, Row::Process(_, process, _)) => {
                let page = state.snapshot().map_or(0, |snapshot| snapshot.page_bytes);
                let pages = process.residency.as_ref();
                known(pages.map(|pages| bytes(pages.total().saturating_mul(page))))
            }
            (Self::Pages, Row::Process(_, process, _)) => match &process.residency {
                Some(pages) => {
                    let all = pages.total().max(1) as f64;
                    let nodes = state.nodes.iter();
                    Cell::Levels(nodes.map(|n| pages.on(n.id) as f64 / all).collect())
                }
                None => known(None),
            },
            (Self::Spread, Row::Process(_, _, track)) => {
                let all = track.threads.max(1) as f64;
                let on = |node: &run::Node| {
                    let on = track.threads_on.iter().find(|on| on.0 == node.id);
                    on.map_or(0.0, |&(_, n)| n as f64 / all)
                };
                Cell::Levels(state.nodes.iter().map(on).collect())
            }
            (Self::Moved, row) => moved(state, last_move(row), look),
            (Self::Why, row) => match (last_move(row), row) {
                (None, Row::Thread(thread, _)) if thread.unmanaged.is_some() => {
                    let reason = thread.unmanaged.as_ref().map(left_alone);
                    let reason = reason.unwrap_or_default();
                    Cell::Text(format!("left alone: {reason}"), Tone::Dim)
                }
                (last, _) => plain(last.map(|last| last.why.clone()).unwrap_or_default()),
            },
            _ => plain(String::new()),
        }
    }
}

/// Columns that there is room for, each with where it begins and its width; the last takes what is left.
pub fn fit(all: &[Column], state: &RunModel, width: u16) -> Vec<(Column, u16, u16)> {
    let nodes = u16::try_from(state.nodes.len()).unwrap_or(u16::MAX);
    let grouped = state
        .snapshot()
        .is_some_and(|snapshot| snapshot.processes.iter().any(|p| p.group.is_some()));
    let mut wanted: Vec<Column> = all.to_vec();
    if !grouped {
        wanted.retain(|&column| column != Column::Group);
    }
    wanted.sort_by_key(|column| column.rank());
    let most = if width < WIDE { 16 } else { 32 };
    let mut room = width;
    let mut taken = Vec::new();
    for column in wanted {
        let needs = column.width(nodes, most).saturating_add(1);
        if needs > room.saturating_add(1) && column.rank() > 0 {
            continue;
        }
        room = room.saturating_sub(needs);
        taken.push(column);
    }
    let mut x = 0u16;
    let mut fitted = Vec::new();
    for &column in all.iter().filter(|column| taken.contains(column)) {
        fitted.push((column, x, column.width(nodes, most)));
        x = x
            .saturating_add(column.width(nodes, most))
            .saturating_add(1);
    }
    if let Some((Column::Why | Column::Moved, x, wide)) = fitted.last_mut() {
        *wide = width.saturating_sub(*x);
    }
    fitted
}

/// What people know a row by.
pub fn name(state: &RunModel, row: Row<'_>) -> String {
    match row {
        Row::Process(_, process, _) => shown_name(process),
        Row::Thread(thread, track) => {
            let machine = process_of(state, track).and_then(|p| p.machine.as_ref());
            let vcpu = machine.and_then(|machine| machine.vcpu_of(thread.id));
            vcpu.map_or_else(|| thread.name.clone(), |vcpu| format!("vCPU {vcpu}"))
        }
    }
}

fn shown_name(process: &Process) -> String {
    match &process.machine {
        Some(machine) => format!("vm {}", machine.name),
        None => process.name.clone(),
    }
}

/// The process of a thread.
pub fn process_of<'s>(state: &'s RunModel, track: &run::Thread) -> Option<&'s Process> {
    state.snapshot()?.processes.get(track.process?)
}

fn class_of(row: Row<'_>) -> Option<Class> {
    match row {
        Row::Process(_, _, track) => track.classed.class(),
        Row::Thread(_, track) => track.classed.class(),
    }
}

fn last_move(row: Row<'_>) -> Option<&Decision> {
    match row {
        Row::Process(_, _, track) => track.last_move.as_deref(),
        Row::Thread(_, track) => track.last_move.as_deref(),
    }
}

fn misses(row: Row<'_>) -> Option<f64> {
    match row {
        Row::Process(_, _, track) => track.miss_rate,
        Row::Thread(thread, _) => thread.counts?.miss_rate(),
    }
}

fn local(row: Row<'_>) -> Option<f64> {
    match row {
        Row::Process(_, _, track) => track.local_access_ratio,
        Row::Thread(thread, _) => thread.counts?.local_access_ratio(),
    }
}

fn home(state: &RunModel, row: Row<'_>) -> Option<u32> {
    let process = match row {
        Row::Process(_, process, _) => process,
        Row::Thread(_, track) => process_of(state, track)?,
    };
    Some(process.residency.as_ref()?.home()?.0)
}

/// How evenly things are spread: 1 over the sum of squared shares, 1 for all in one place.
fn evenness(amounts: impl Iterator<Item = f64> + Clone) -> f64 {
    let all: f64 = amounts.clone().sum();
    let squares: f64 = amounts.map(|amount| amount * amount).sum();
    if squares > 0.0 {
        all * all / squares
    } else {
        0.0
    }
}

fn whole_percent(cpus: f64) -> String {
    format!("{:.0}", cpus * 100.0)
}

pub(super) fn local_tone(local: f64) -> Tone {
    match local {
        _ if local >= 0.8 => Tone::Good,
        _ if local >= 0.5 => Tone::Warn,
        _ => Tone::Bad,
    }
}

fn class(class: Option<Class>) -> Cell {
    match class {
        None => Cell::Text("-".to_owned(), Tone::Dim),
        Some(class) => Cell::Text(
            class.to_string(),
            match class {
                Class::Turtle => Tone::Plain,
                Class::Devil => Tone::Warn,
                Class::SuperDevil => Tone::Bad,
            },
        ),
    }
}

fn moved(state: &RunModel, act: Option<&Decision>, look: Look) -> Cell {
    let Some(act) = act else {
        return Cell::Text("-".to_owned(), Tone::Dim);
    };
    let since = ago(state.at().1.saturating_sub(act.time_ns));
    Cell::Text(format!("{since} {}", went(act, look)), outcome_tone(act))
}

/// What went where, in a few letters.
pub(super) fn went(act: &Decision, look: Look) -> String {
    let arrow = look.arrow();
    match act.subject {
        Subject::Thread { from, to, .. } => match to {
            Some(to) => format!("{from}{arrow}{to}"),
            None => format!("{from}{arrow}any"),
        },
        Subject::Pages { to, moved, .. } if moved > 0 => {
            format!("{}p{arrow}n{to}", super::figures::count(moved as f64))
        }
        Subject::Pages { to, .. } => format!("pages{arrow}n{to}"),
    }
}

/// The outcome of a decision, in a word or two.
pub(super) fn outcome(act: &Decision) -> String {
    match act.outcome {
        DecisionOutcome::Moved => "moved".to_owned(),
        DecisionOutcome::Undone => "undone".to_owned(),
        DecisionOutcome::Stolen => "to idle node".to_owned(),
        DecisionOutcome::Planned => "dry run".to_owned(),
        DecisionOutcome::Failed => "failed".to_owned(),
        DecisionOutcome::Refused(guard) => format!("no: {guard}"),
        DecisionOutcome::Waiting => "waits".to_owned(),
    }
}

pub(super) fn outcome_tone(act: &Decision) -> Tone {
    match act.outcome {
        DecisionOutcome::Moved | DecisionOutcome::Stolen => Tone::Good,
        DecisionOutcome::Failed => Tone::Bad,
        DecisionOutcome::Planned | DecisionOutcome::Waiting => Tone::Plain,
        DecisionOutcome::Undone | DecisionOutcome::Refused(_) => Tone::Warn,
    }
}
