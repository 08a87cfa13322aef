//! What lies over the tables: the keys, a decision, a thread.

use numaherd_world::ThreadId;
use ratatui::layout::Rect;

use super::super::Top;
use super::super::canvas::{Canvas, wrapped};
use super::super::columns::{self, Row, THREAD, outcome, went};
use super::super::theme::Tone;
use super::super::ui::Open;
use crate::run::{Decision, DecisionOutcome, Subject};
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

/// What the figures are, for the page of keys.
const MEANING: &str = "PAGES and THREADS have a letter for each node: its share of the process's \
    pages and threads. CLASS is DINO's, by lines fetched from memory per 1000 instructions (MISS): \
    turtle below 2, devil up to 100, super-devil above, by the votes of ten intervals. HOME is the \
    node with most of the pages. LAST MOVE: how long ago, and from which CPU to which (1>4), or how \
    many pages to which node (10kp>n2). CONTROLLER: lines that the node's memory served, and the share \
    of its bandwidth where that is known. A dash is a figure that is not measured. docs/top.md \
    describes it all.";

/// A line of what is open.
pub(super) struct OpenLine {
    label: String,
    text: String,
    tone: Tone,
}

/// Columns of the labels.
const LABELS: u16 = 24;

/// Draws what is open, over all of an area.
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

/// What is open, in lines.
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
        Open::Decision(act) => decision(top, act, &mut page),
        Open::Thread(thread) => one_thread(top, *thread, &mut page),
    }
    page.lines
}

/// Lines as they are added.
struct Page {
    lines: Vec<OpenLine>,
    width: u16,
}

impl Page {
    fn title(&mut self, text: &str) {
        self.lines.push(OpenLine {
            label: text.to_owned(),
            text: String::new(),
            tone: Tone::Head,
        });
    }

    fn text(&mut self, text: &str) {
        for line in wrapped(text, usize::from(self.width)) {
            self.lines.push(OpenLine {
                label: line,
                text: String::new(),
                tone: Tone::Plain,
            });
        }
    }

    fn add(&mut self, label: &str, text: &str, tone: Tone) {
        let width = usize::from(self.width.saturating_sub(LABELS));
        for (place, text) in wrapped(text, width).into_iter().enumerate() {
            self.lines.push(OpenLine {
                label: if place == 0 { label } else { "" }.to_owned(),
                text,
                tone,
            });
        }
    }
}

fn decision(top: &Top, act: &Decision, page: &mut Page) {
    let look = top.look;
    let state = top.timeline.state();
    page.title(&format!("Decision {} at {}", act.number, at(act.time_ns)));
    page.add(
        "thread",
        &format!("{} {}", act.thread.tid, act.thread_name),
        Tone::Strong,
    );
    if let Some(id) = act.process {
        let process = state.snapshot().and_then(|snapshot| snapshot.process(id));
        let name = process.map_or("(no longer there)", |process| process.name.as_str());
        page.add("process", &format!("{} {name}", id.pid), Tone::Plain);
    }
    let node = |cpu| state.topology().and_then(|topology| topology.node_of(cpu));
    match act.subject {
        Subject::Thread { from, to, .. } => {
            let on = |cpu| match node(cpu) {
                Some(node) => format!("CPU {cpu} on node {node}"),
                None => format!("CPU {cpu}"),
            };
            page.add("from", &on(from), Tone::Plain);
            let to = to.map_or_else(|| "the kernel's choice".to_owned(), on);
            page.add("to", &to, Tone::Plain);
        }
        Subject::Pages { to, moved, left } => {
            page.add("pages to", &format!("node {to}"), Tone::Plain);
            page.add("moved", &counted(moved, "base page"), Tone::Plain);
            if left > 0 {
                page.add("not moved", &counted(left, "base page"), Tone::Warn);
            }
        }
    }
    let or_none = |text: &str, none: &str| match text {
        "" => none.to_owned(),
        text => text.to_owned(),
    };
    page.add(
        "rule",
        &or_none(&act.rule, "the governor's own"),
        Tone::Plain,
    );
    page.add("why", &act.why, Tone::Plain);
    page.add(
        "instead of",
        &or_none(&act.instead_of, "nothing else was considered"),
        Tone::Plain,
    );
    let told = match act.outcome {
        DecisionOutcome::Refused(_) => "refused by the governor".to_owned(),
        _ => outcome(act),
    };
    page.add("outcome", &told, columns::outcome_tone(act));
    page.add("", &act.answer, Tone::Plain);
    page.add("in short", &went(act, look), Tone::Dim);
}

fn one_thread(top: &Top, id: ThreadId, page: &mut Page) {
    let state = top.timeline.state();
    let snapshot = state.snapshot();
    let found = snapshot.and_then(|snapshot| {
        let threads = &snapshot.threads;
        let at = threads.binary_search_by_key(&id, |thread| thread.id).ok()?;
        Some((threads.get(at)?, state.threads.get(at)?))
    });
    let Some((thread, track)) = found else {
        page.title(&format!("Thread {} is not there at this moment", id.tid));
        page.text("It has not started yet, or has ended.");
        history(top, id, page);
        return;
    };
    let row = Row::Thread(thread, track);
    page.title(&format!("Thread {}", id.tid));
    for &column in THREAD {
        if let columns::Cell::Text(text, tone) = column.cell(state, row, top.look) {
            page.add(column.title(), &text, tone);
        }
    }
    page.add("may run on", &thread.affinity.to_string(), Tone::Plain);
    page.add("cpuset", &thread.cpuset.to_string(), Tone::Plain);
    if let Some(reason) = &thread.unmanaged {
        page.add("left alone", &left_alone(reason), Tone::Warn);
    }
    history(top, id, page);
}

/// What was decided about a thread, the latest first.
fn history(top: &Top, id: ThreadId, page: &mut Page) {
    let state = top.timeline.state();
    let acts = state.log.latest().rev().filter(|act| act.thread == id);
    let acts: Vec<_> = acts.take(50).collect();
    page.title("");
    if acts.is_empty() {
        page.text("None of the latest decisions is about it.");
        return;
    }
    page.title("Decisions about it, the latest first");
    for act in acts {
        let label = format!("{} {}", at(act.time_ns), went(act, top.look));
        page.add(&label, &outcome(act), columns::outcome_tone(act));
        page.add("", &act.why, Tone::Plain);
        if !act.instead_of.is_empty() {
            page.add("", &format!("instead of: {}", act.instead_of), Tone::Dim);
        }
        page.add("", &act.answer, Tone::Warn);
    }
}
