//! The pages that lie over the tables: the keys, a decision, a thread.

use itertools::Itertools as _;
use numaherd_world::{MemoryKind, ProcessId, ThreadId};
use ratatui_core::layout::Rect;

use super::super::Top;
use super::super::canvas::{Canvas, wrapped};
use super::super::columns::{self, Row, THREAD, outcome, went};
use super::super::figures::{bytes, percent};
use super::super::theme::Tone;
use super::super::ui::{Open, Tab};
use crate::run::{Decision, DecisionOutcome, RunModel, Subject};
use crate::words::{at, counted, left_alone};

/// The keys, each with what it does.
const KEYS: &[(&str, &str)] = &[
    ("1 2 3 4, Tab", "processes, threads, heat map, decisions"),
    ("Up Down PgUp PgDn g G", "select a row (also j, k)"),
    ("Enter", "go in: threads of a process, a thread, a decision"),
    ("Esc", "go back; end a filter"),
    ("< >", "sort by the column before or after"),
    ("r", "sort the other way round"),
    ("/", "show only rows with a text or regular expression"),
    ("n", "show or hide the nodes"),
    (
        "Space",
        "live: hold this moment, continue; ledger: play, stop",
    ),
    ("p", "play from here"),
    ("+ -", "play faster, slower"),
    ("Left Right", "one moment back, forward"),
    ("[ ]", "to the decision before, after"),
    ("Home End", "to the first moment, the newest"),
    ("Ctrl-L", "redraw"),
    ("Ctrl-Z", "suspend; fg resumes"),
    ("?", "this page"),
    ("q, Ctrl-C", "quit"),
];

/// The meaning of the figures, for the page of keys.
const MEANING: &str = "PAGES and THREADS have a letter for each node: its share of the process's \
    pages and threads. CLASS is DINO's, by lines fetched from memory per 1000 instructions (MISS): \
    turtle below 2, devil up to 100, super-devil above, by the votes of ten intervals. HOME is the \
    node with most of the pages. LAST MOVE: how long ago, and from which CPU to which (1>4), or how \
    many pages to which node (10kp>n2). CONTROLLER: lines that the node's memory served, and the share \
    of its bandwidth where that is known. A dash is a figure that is not measured. docs/top.md \
    describes it all.";

/// A line of the page that is open.
pub(super) struct OpenLine {
    label: String,
    text: String,
    tone: Tone,
}

/// Columns of the labels.
const LABELS: u16 = 24;

/// Draws the page that is open, over the whole area.
pub(super) fn over(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    canvas.clear(area);
    let lines = lines(top, area);
    for (line, y) in lines.iter().skip(top.ui.open_top).zip(0..area.height) {
        let label = Rect {
            width: area.width.min(LABELS - 1),
            ..area
        };
        if line.text.is_empty() {
            canvas.text(area, 0, y, &line.label, line.tone);
        } else {
            canvas.text(label, 0, y, &line.label, Tone::Strong);
            canvas.text(area, LABELS, y, &line.text, line.tone);
        }
    }
}

/// The lines of the page that is open.
pub(super) fn lines(top: &Top, area: Rect) -> Vec<OpenLine> {
    let mut page = Page {
        lines: Vec::new(),
        width: area.width,
    };
    match &top.ui.open {
        Open::Nothing => {}
        Open::Help => {
            page.title("Keys");
            for (key, what) in KEYS {
                page.add(key, what, Tone::Plain);
            }
            page.title("");
            page.text(MEANING);
            page.title("");
            page.add("Drawn from", &top.source, Tone::Plain);
        }
        Open::Decision(one) => decision(top, one, &mut page),
        Open::Thread(thread) => one_thread(top, *thread, &mut page),
    }
    page.lines
}

/// A page to which lines are added.
struct Page {
    lines: Vec<OpenLine>,
    width: u16,
}

impl Page {
    fn line(&mut self, label: &str, text: String, tone: Tone) {
        let label = label.to_owned();
        self.lines.push(OpenLine { label, text, tone });
    }

    fn title(&mut self, text: &str) {
        self.line(text, String::new(), Tone::Head);
    }

    fn text(&mut self, text: &str) {
        for line in wrapped(text, usize::from(self.width)) {
            self.line(&line, String::new(), Tone::Plain);
        }
    }

    fn add(&mut self, label: &str, text: &str, tone: Tone) {
        let width = usize::from(self.width.saturating_sub(LABELS));
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        for (label, text) in labels.zip(wrapped(text, width)) {
            self.line(label, text, tone);
        }
    }
}

fn decision(top: &Top, decision: &Decision, page: &mut Page) {
    let state = top.timeline.state();
    let (number, when) = (decision.number, at(decision.time_ns));
    page.title(&format!("Decision {number} at {when}"));
    let thread = format!("{} {}", decision.thread.tid, decision.thread_name);
    page.add("thread", &thread, Tone::Strong);
    let mut plain = |label: &str, text: &str| page.add(label, text, Tone::Plain);
    if let Some(id) = decision.process {
        let process = state.snapshot().and_then(|snapshot| snapshot.process(id));
        let name = process.map_or("(no longer there)", |process| process.name.as_str());
        plain("process", &format!("{} {name}", id.pid));
    }
    match decision.subject {
        Subject::Thread { from, to, .. } => {
            let on = |cpu| match state.node_of(cpu) {
                Some(node) => format!("CPU {cpu} on node {node}"),
                None => format!("CPU {cpu}"),
            };
            plain("from", &on(from));
            let to = to.map_or_else(|| "the kernel's choice".to_owned(), on);
            plain("to", &to);
        }
        Subject::Pages { to, moved, left } => {
            plain("pages to", &format!("node {to}"));
            plain("moved", &counted(moved, "base page"));
            if left > 0 {
                page.add("not moved", &counted(left, "base page"), Tone::Warn);
            }
        }
    }
    let mut plain = |label: &str, text: &str| page.add(label, text, Tone::Plain);
    let or_none = |text: &str, none: &str| match text {
        "" => none.to_owned(),
        text => text.to_owned(),
    };
    plain("rule", &or_none(&decision.rule, "the governor's own"));
    plain("why", &decision.why);
    let none = "nothing else was considered";
    plain("instead of", &or_none(&decision.instead_of, none));
    let told = match decision.outcome {
        DecisionOutcome::Refused(_) => "refused by the governor".to_owned(),
        _ => outcome(decision),
    };
    page.add("outcome", &told, columns::outcome_tone(decision));
    page.add("", &decision.answer, Tone::Plain);
    page.add("in short", &went(decision, top.look), Tone::Dim);
}

fn one_thread(top: &Top, id: ThreadId, page: &mut Page) {
    let state = top.timeline.state();
    let threads = state
        .snapshot()
        .map_or(&[][..], |snapshot| &snapshot.threads);
    let at = threads.binary_search_by_key(&id, |thread| thread.id).ok();
    let found = at.and_then(|at| Row::at(state, Tab::Threads, at));
    let Some(row @ Row::Thread(thread, _)) = found else {
        page.title(&format!("Thread {} is not there at this moment", id.tid));
        page.text("It has not started yet, or has ended.");
        history(top, id, page);
        return;
    };
    page.title(&format!("Thread {}", id.tid));
    for &column in THREAD {
        if let columns::Cell::Text(text, tone) = column.cell(state, row, top.look) {
            page.add(column.title(), &text, tone);
        }
    }
    for kind in MemoryKind::ALL {
        if let Some(text) = pages_of_kind(state, thread.process, kind) {
            page.add(&format!("{kind} pages"), &text, Tone::Plain);
        }
    }
    page.add("may run on", &thread.affinity.to_string(), Tone::Plain);
    page.add("cpuset", &thread.cpuset.to_string(), Tone::Plain);
    if let Some(reason) = &thread.unmanaged {
        page.add("left alone", &left_alone(reason), Tone::Warn);
    }
    history(top, id, page);
}

/// How much memory of a kind a process has, and on which nodes; `None` if kinds were not distinguished.
fn pages_of_kind(state: &RunModel, process: ProcessId, kind: MemoryKind) -> Option<String> {
    let process = state.snapshot()?.process(process)?;
    let pages = process.residency.as_ref()?.of_kind(kind)?;
    let all = pages.total();
    if pages.pages.is_empty() {
        return Some("none".to_owned());
    }
    let nodes = pages.pages.iter().map(|&(node, pages)| {
        let share = percent(pages as f64 / all.max(1) as f64);
        format!("node {node} {share}")
    });
    let memory = bytes(all.saturating_mul(state.page_bytes()));
    Some(format!("{memory}: {}", nodes.format(", ")))
}

/// The decisions about a thread, the latest first.
fn history(top: &Top, id: ThreadId, page: &mut Page) {
    let state = top.timeline.state();
    let latest = state.log.latest().rev();
    let mut decisions = latest
        .filter(|decision| decision.thread == id)
        .take(50)
        .peekable();
    page.title("");
    if decisions.peek().is_none() {
        page.text("None of the latest decisions is about it.");
        return;
    }
    page.title("Decisions about it, the latest first");
    for decision in decisions {
        let label = format!("{} {}", at(decision.time_ns), went(decision, top.look));
        page.add(&label, &outcome(decision), columns::outcome_tone(decision));
        page.add("", &decision.why, Tone::Plain);
        if !decision.instead_of.is_empty() {
            let instead_of = format!("instead of: {}", decision.instead_of);
            page.add("", &instead_of, Tone::Dim);
        }
        page.add("", &decision.answer, Tone::Warn);
    }
}
