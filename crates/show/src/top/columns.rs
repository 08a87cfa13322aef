//! The columns of the tables of processes and threads: what each shows, what it sorts by, and which columns fit.

use numaherd_policy::classes::Class;
use numaherd_world::{MemoryKind, Process, Thread};

use super::figures::{ago, bytes, percent, rate};
use super::theme::{Look, Tone};
use super::ui::Tab;
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
    /// Its name; for a virtual machine, the machine's name.
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
    /// The part of it that is shared memory.
    Shared,
    /// The part of it that is of files.
    Files,
    /// Resident pages by node.
    Pages,
    /// Threads by node.
    Spread,
    /// Its last move, and how long ago that was.
    Moved,
    /// Why it moved.
    Why,
}

/// What a row is.
#[derive(Clone, Copy, Debug)]
pub enum Row<'s> {
    /// A process.
    Process(&'s Process, &'s run::Process),
    /// A thread.
    Thread(&'s Thread, &'s run::Thread),
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Text.
    Text(String, Tone),
    /// Shares of 0 to 1, shown as one letter each.
    Levels(Vec<f64>),
}

/// The sort key of a row. Unknown keys come last, in either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum SortKey {
    /// By number.
    Number(f64),
    /// By letters.
    Text(String),
    /// Not known.
    Unknown,
}

/// A column's value in a row; sort keys and cells are made from it.
enum Value<'s> {
    /// A number, and how it is written.
    Number(f64, fn(f64) -> String),
    /// A share of local accesses.
    Local(f64),
    Class(Class),
    /// Shares of something, by node.
    Shares(Vec<f64>),
    Move(&'s Decision),
    Text(String, Tone),
    Unknown,
}

/// Columns of the table of processes.
pub const PROCESS: &[Column] = {
    use Column::{Class, Cpu, Files, Group, Home, Local, Memory, Misses, Moved};
    use Column::{Name, Pages, Pid, Shared, Spread, Threads, Wait, Why};
    &[
        Pid, Name, Group, Class, Threads, Cpu, Wait, Misses, Local, Home, Memory, Shared, Files,
        Pages, Spread, Moved, Why,
    ]
};

/// Columns of the table of threads.
pub const THREAD: &[Column] = {
    use Column::{Class, Cpu, Given, Home, Local, Misses, Moved, Name};
    use Column::{Node, On, Process, Tid, Wait, Why};
    &[
        Tid, Name, Process, Class, Cpu, Wait, On, Node, Given, Home, Misses, Local, Moved, Why,
    ]
};

/// The least width, in columns, of a screen on which nodes get more room.
const WIDE: u16 = 160;

/// The side at which a column's text is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// The rows that come first when sorting by a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Largest,
    Smallest,
}

impl Column {
    /// Title, least width in columns of the screen, rank, alignment, and which rows come first. If not all fit, columns
    /// of the largest rank are left out first.
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
            Self::Shared => ("SHARED", 6, 16, Right, Largest),
            Self::Files => ("FILES", 6, 17, Right, Largest),
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

    /// Columns of the screen that it takes on a machine of `nodes` nodes, at most `most` of which have a letter each.
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

    /// Whether it sorts from the largest down by default.
    pub fn falls(self) -> bool {
        self.layout().4 == First::Largest
    }

    /// The sort key of a row.
    pub fn key(self, state: &RunModel, row: Row<'_>) -> SortKey {
        let number = match self.value(state, row) {
            Value::Number(number, _) | Value::Local(number) => number,
            Value::Class(class) => f64::from(class as u8),
            Value::Shares(shares) => evenness(&shares),
            Value::Move(last) => last.number as f64,
            Value::Text(text, _) if !text.is_empty() => return SortKey::Text(text.to_lowercase()),
            Value::Text(..) | Value::Unknown => f64::NAN,
        };
        match number.is_nan() {
            true => SortKey::Unknown,
            false => SortKey::Number(number),
        }
    }

    /// The cell that it shows for a row.
    pub fn cell(self, state: &RunModel, row: Row<'_>, look: Look) -> Cell {
        let (text, tone) = match self.value(state, row) {
            Value::Number(number, written) => (written(number), Tone::Plain),
            Value::Local(share) => (percent(share), local_tone(share)),
            Value::Class(class) => (class.to_string(), class_tone(class)),
            Value::Shares(shares) => return Cell::Levels(shares),
            Value::Move(last) => {
                let since = ago(state.at().1.saturating_sub(last.time_ns));
                (format!("{since} {}", went(last, look)), outcome_tone(last))
            }
            Value::Text(text, tone) => (text, tone),
            Value::Unknown => ("-".to_owned(), Tone::Dim),
        };
        Cell::Text(text, tone)
    }

    fn value<'s>(self, state: &RunModel, row: Row<'s>) -> Value<'s> {
        let whole = |number: f64| Value::Number(number, |number| format!("{number:.0}"));
        let cpus = |cpus: f64| Value::Number(cpus, |cpus| format!("{:.0}", cpus * 100.0));
        let text = |text: Option<&str>| match text {
            Some(text) => Value::Text(text.to_owned(), Tone::Plain),
            None => Value::Unknown,
        };
        let shares = |of: &dyn Fn(&run::Node) -> u64, all: u64| {
            let share = |node| of(node) as f64 / all.max(1) as f64;
            Value::Shares(state.nodes.iter().map(share).collect())
        };
        match (self, row) {
            (Self::Pid, Row::Process(process, _)) => whole(process.id.pid.into()),
            (Self::Tid, Row::Thread(thread, _)) => whole(thread.id.tid.into()),
            (Self::Name, row) => Value::Text(row.name(state), Tone::Strong),
            (Self::Process, Row::Thread(_, track)) => {
                text(process_of(state, track).map(shown_name).as_deref())
            }
            (Self::Group, Row::Process(process, _)) => text(process.group.as_deref()),
            (Self::Class, row) => row.class().map_or(Value::Unknown, Value::Class),
            (Self::Threads, Row::Process(_, track)) => whole(track.threads as f64),
            (Self::Cpu, Row::Process(_, track)) => cpus(track.cpus_used),
            (Self::Cpu, Row::Thread(thread, _)) => cpus(share(thread.cpu_share)),
            (Self::Wait, Row::Process(_, track)) => cpus(track.cpus_waited),
            (Self::Wait, Row::Thread(thread, _)) => cpus(share(thread.wait_share)),
            (Self::On, Row::Thread(thread, _)) => whole(thread.cpu.0.into()),
            (Self::Given, Row::Thread(thread, _)) => {
                let given = thread.assigned;
                given.map_or(Value::Unknown, |cpu| whole(cpu.0.into()))
            }
            (Self::Node, Row::Thread(_, track)) => {
                let node = track.node.and_then(|place| state.nodes.get(place));
                node.map_or(Value::Unknown, |node| whole(node.id.0.into()))
            }
            (Self::Misses, row) => {
                let misses = row.misses();
                misses.map_or(Value::Unknown, |misses| Value::Number(misses, rate))
            }
            (Self::Local, row) => row.local().map_or(Value::Unknown, Value::Local),
            (Self::Home, row) => {
                let home = row
                    .process(state)
                    .and_then(|p| p.residency.as_ref()?.home());
                home.map_or(Value::Unknown, |home| whole(home.0.into()))
            }
            (Self::Memory | Self::Shared | Self::Files, Row::Process(process, _)) => {
                let pages = process.residency.as_ref().and_then(|pages| match self {
                    Self::Shared => Some(pages.of_kind(MemoryKind::Shared)?.total()),
                    Self::Files => Some(pages.of_kind(MemoryKind::File)?.total()),
                    _ => Some(pages.total()),
                });
                pages.map_or(Value::Unknown, |pages| {
                    let memory = pages.saturating_mul(state.page_bytes());
                    Value::Number(memory as f64, |memory| bytes(memory as u64))
                })
            }
            (Self::Pages, Row::Process(process, _)) => match &process.residency {
                Some(pages) => shares(&|node| pages.on(node.id), pages.total()),
                None => Value::Unknown,
            },
            (Self::Spread, Row::Process(_, track)) => {
                let on = |node: &run::Node| track.threads_on.iter().find(|on| on.0 == node.id);
                shares(&|node| on(node).map_or(0, |on| on.1), track.threads)
            }
            (Self::Moved, row) => row.last_move().map_or(Value::Unknown, Value::Move),
            (Self::Why, row) => {
                let unmanaged = match row {
                    Row::Thread(thread, _) => thread.unmanaged.as_ref(),
                    Row::Process(..) => None,
                };
                match (row.last_move(), unmanaged) {
                    (Some(last), _) => text(Some(&last.why)),
                    (None, Some(reason)) => {
                        Value::Text(format!("left alone: {}", left_alone(reason)), Tone::Dim)
                    }
                    (None, None) => text(Some("")),
                }
            }
            _ => text(Some("")),
        }
    }
}

/// The columns that fit, each with its first column on the screen and its width; a last column of text takes what is
/// left.
pub fn fit(all: &[Column], state: &RunModel, width: u16) -> Vec<(Column, u16, u16)> {
    let nodes = u16::try_from(state.nodes.len()).unwrap_or(u16::MAX);
    let any = |is: &dyn Fn(&Process) -> bool| {
        let snapshot = state.snapshot();
        snapshot.is_some_and(|snapshot| snapshot.processes.iter().any(is))
    };
    let grouped = any(&|process| process.group.is_some());
    let told_apart = any(&|process| {
        let pages = process.residency.as_ref();
        pages.is_some_and(|pages| pages.kinds.is_some())
    });
    let mut wanted: Vec<Column> = all.to_vec();
    wanted.retain(|column| match column {
        Column::Group => grouped,
        Column::Shared | Column::Files => told_apart,
        _ => true,
    });
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

impl<'s> Row<'s> {
    /// The row at a place of a table's list in the snapshot.
    pub fn at(state: &'s RunModel, tab: Tab, at: usize) -> Option<Self> {
        let snapshot = state.snapshot()?;
        match tab {
            Tab::Processes => {
                let process = snapshot.processes.get(at)?;
                Some(Self::Process(process, state.processes.get(at)?))
            }
            _ => {
                let thread = snapshot.threads.get(at)?;
                Some(Self::Thread(thread, state.threads.get(at)?))
            }
        }
    }

    /// Its name for people.
    pub fn name(self, state: &RunModel) -> String {
        match self {
            Self::Process(process, _) => shown_name(process),
            Self::Thread(thread, _) => {
                let machine = self.process(state).and_then(|p| p.machine.as_ref());
                let vcpu = machine.and_then(|machine| machine.vcpu_of(thread.id));
                vcpu.map_or_else(|| thread.name.clone(), |vcpu| format!("vCPU {vcpu}"))
            }
        }
    }

    /// The text that a filter searches: number, name, group or process, and class.
    pub fn known(self, state: &RunModel) -> String {
        let (number, of) = match self {
            Self::Process(process, _) => (process.id.pid, process.group.as_deref()),
            Self::Thread(thread, track) => {
                let process = process_of(state, track);
                (thread.id.tid, process.map(|process| process.name.as_str()))
            }
        };
        let class = self.class().map(|class| class.to_string());
        let (of, class) = (of.unwrap_or_default(), class.unwrap_or_default());
        format!("{number} {} {of} {class}", self.name(state))
    }

    /// Its process, or itself.
    fn process<'r>(self, state: &'r RunModel) -> Option<&'r Process>
    where
        's: 'r,
    {
        match self {
            Self::Process(process, _) => Some(process),
            Self::Thread(_, track) => process_of(state, track),
        }
    }

    fn class(self) -> Option<Class> {
        match self {
            Self::Process(_, track) => track.classed.class(),
            Self::Thread(_, track) => track.classed.class(),
        }
    }

    fn last_move(self) -> Option<&'s Decision> {
        match self {
            Self::Process(_, track) => track.last_move.as_deref(),
            Self::Thread(_, track) => track.last_move.as_deref(),
        }
    }

    fn misses(self) -> Option<f64> {
        match self {
            Self::Process(_, track) => track.miss_rate,
            Self::Thread(thread, _) => thread.counts?.miss_rate(),
        }
    }

    fn local(self) -> Option<f64> {
        match self {
            Self::Process(_, track) => track.local_access_ratio,
            Self::Thread(thread, _) => thread.counts?.local_access_ratio(),
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

/// How evenly things are spread: 1 over the sum of squared shares; 1 if all are in one place.
fn evenness(shares: &[f64]) -> f64 {
    let all: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares > 0.0 {
        all * all / squares
    } else {
        0.0
    }
}

pub(super) fn local_tone(local: f64) -> Tone {
    match local {
        _ if local >= 0.8 => Tone::Good,
        _ if local >= 0.5 => Tone::Warn,
        _ => Tone::Bad,
    }
}

fn class_tone(class: Class) -> Tone {
    match class {
        Class::Turtle => Tone::Plain,
        Class::Devil => Tone::Warn,
        Class::SuperDevil => Tone::Bad,
    }
}

/// A decision's move from place to place, in a few letters.
pub(super) fn went(decision: &Decision, look: Look) -> String {
    let arrow = look.arrow();
    match decision.subject {
        Subject::Thread {
            from, to: Some(to), ..
        } => format!("{from}{arrow}{to}"),
        Subject::Thread { from, to: None, .. } => format!("{from}{arrow}any"),
        Subject::Pages { to, moved, .. } if moved > 0 => {
            format!("{}p{arrow}n{to}", super::figures::count(moved as f64))
        }
        Subject::Pages { to, .. } => format!("pages{arrow}n{to}"),
    }
}

/// The outcome of a decision, in a word or two.
pub(super) fn outcome(decision: &Decision) -> String {
    match decision.outcome {
        DecisionOutcome::Moved => "moved".to_owned(),
        DecisionOutcome::Undone => "undone".to_owned(),
        DecisionOutcome::Stolen => "to idle node".to_owned(),
        DecisionOutcome::Planned => "dry run".to_owned(),
        DecisionOutcome::Failed => "failed".to_owned(),
        DecisionOutcome::Refused(guard) => format!("no: {guard}"),
        DecisionOutcome::Waiting => "waits".to_owned(),
    }
}

pub(super) fn outcome_tone(decision: &Decision) -> Tone {
    match decision.outcome {
        DecisionOutcome::Moved | DecisionOutcome::Stolen => Tone::Good,
        DecisionOutcome::Failed => Tone::Bad,
        DecisionOutcome::Planned | DecisionOutcome::Waiting => Tone::Plain,
        DecisionOutcome::Undone | DecisionOutcome::Refused(_) => Tone::Warn,
    }
}
