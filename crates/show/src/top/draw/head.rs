//! The rows around the tables: what runs, the sums of the run, the tabs, the time line, the keys.

use ratatui_core::layout::Rect;

use super::super::canvas::Canvas;
use super::super::keys::SPEEDS;
use super::super::theme::Tone;
use super::super::ui::{Open, Tab};
use super::super::{Top, printable};
use crate::losses;
use crate::run::{RunModel, sum};
use crate::words::{at, count, counted, percent};

/// How long a notice is shown, in ns of the run.
const NOTICE_NS: u64 = 60_000_000_000;

/// What runs on what, and which moment is shown.
pub(super) fn head(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    let state = top.timeline.state();
    let when = when(top);
    let taken = u16::try_from(printable::columns(&when) + 1).unwrap_or(u16::MAX);
    let left = Rect {
        width: area.width.saturating_sub(taken),
        ..area
    };
    let x = canvas.text(left, 0, 0, "numaherd top ", Tone::Strong);
    let what = match state.current() {
        Some(start) => {
            let topology = &start.topology;
            let dry = match start.settings.dry_run {
                true => " (dry run)",
                false => "",
            };
            let paused = if start.paused { " PAUSED" } else { "" };
            format!(
                "{}{dry}{paused} on {}: {}, {}",
                start.policy,
                topology.name(),
                counted(state.nodes.len(), "node"),
                counted(topology.online_cpus().len(), "CPU"),
            )
        }
        None => top.source.clone(),
    };
    canvas.text(left, x, 0, &what, Tone::Plain);
    let tone = match top.timeline.is_newest() {
        true => Tone::Good,
        false => Tone::Warn,
    };
    canvas.right(area, 0, area.width, 0, &when, tone);
}

/// Which moment is shown, and of which run.
fn when(top: &Top) -> String {
    let now = at(top.timeline.state().at().1);
    let newest = top.timeline.newest();
    let of = at(newest.at().1);
    if top.playing.is_some() {
        return format!("playing x{} {now} of {of}", SPEEDS[top.speed]);
    }
    match (top.timeline.is_newest(), top.grows) {
        (true, _) if newest.end().is_some() => format!("ended {now}"),
        (true, true) => format!("live {now}"),
        (true, false) => format!("last {now}"),
        (false, true) => format!("held {now}, now {of}"),
        (false, false) => format!("{now} of {of}"),
    }
}

/// The sums of the run up to the moment that is shown.
pub(super) fn sums(state: &RunModel, canvas: &mut Canvas<'_>, area: Rect) {
    let Some(snapshot) = state.snapshot() else {
        canvas.text(area, 0, 0, "no snapshot yet", Tone::Dim);
        return;
    };
    let totals = &state.totals;
    let mut parts = vec![
        counted(snapshot.threads.len(), "thread"),
        counted(snapshot.processes.len(), "process"),
    ];
    parts.extend(state.losses.as_ref().and_then(losses::brief));
    let moves = counted(totals.thread_moves, "move");
    parts.push(match totals.undone {
        0 => moves,
        undone => format!("{moves} ({} undone)", count(undone)),
    });
    if state.current().is_some_and(|start| start.settings.dry_run) {
        parts.push(format!("{} planned", count(totals.planned_thread_moves)));
    }
    parts.push(format!("{} moved", counted(totals.pages_moved, "page")));
    let refused: u64 = sum(totals.refusals.values().copied());
    if refused > 0 {
        parts.push(format!("{} refused", count(refused)));
    }
    if let Some(local) = totals.counted.local_access_ratio() {
        parts.push(format!("{} local in all", percent(local)));
    }
    canvas.text(area, 0, 0, &parts.join("; "), Tone::Plain);
}

/// The tabs, and what the table shows.
pub(super) fn tabs(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    let mut x = 0u16;
    for (place, tab) in Tab::ALL.into_iter().enumerate() {
        let tone = match tab == top.ui.tab {
            true => Tone::Head,
            false => Tone::Dim,
        };
        x = canvas.text(area, x, 0, &format!("{} {}", place + 1, tab.title()), tone);
        x = x.saturating_add(2);
    }
    let mut said = Vec::new();
    if top.ui.tab == Tab::Threads
        && let Some(process) = top.ui.within
    {
        let seen = top.timeline.state().snapshot();
        let name = seen
            .and_then(|snapshot| snapshot.process(process))
            .map_or("(ended)", |process| process.name.as_str());
        said.push(format!("of {} {name}", process.pid));
    }
    if !top.ui.filter.is_empty() {
        let kind = match top.ui.filter.is_text() {
            true => " (as text)",
            false => "",
        };
        said.push(format!("with {}{kind}", top.ui.filter.text()));
    }
    if !said.is_empty() {
        said.push(counted(top.order.len(), "row"));
        canvas.text(area, x, 0, &said.join(", "), Tone::Accent);
        return;
    }
    let state = top.timeline.state();
    if let Some(notice) = state.notices.back()
        && state.at().1.saturating_sub(notice.time_ns) <= NOTICE_NS
    {
        let note = format!("note at {}: {}", at(notice.time_ns), notice.text);
        canvas.text(area, x, 0, &note, Tone::Warn);
    }
}

/// The time line: the moment that is shown, and the moments in which something was decided.
pub(super) fn time(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    let moments = top.timeline.moments();
    let (Some(first), Some(last)) = (moments.clone().next(), moments.clone().next_back()) else {
        return;
    };
    let (from, to) = (at(first.time_ns), at(last.time_ns));
    let begin = canvas.text(area, 0, 0, &from, Tone::Dim).saturating_add(1);
    let taken = u16::try_from(to.chars().count() + 1).unwrap_or(u16::MAX);
    let end = area.width.saturating_sub(taken);
    if end <= begin.saturating_add(1) {
        return;
    }
    canvas.right(area, end, area.width, 0, &to, Tone::Dim);
    let columns = usize::from(end - begin);
    let number = moments.len();
    let column = |moment: usize| moment * (columns - 1) / (number - 1).max(1);
    let mut decided = vec![false; columns];
    for (place, moment) in moments.enumerate() {
        decided[column(place).min(columns - 1)] |= moment.decisions > 0;
    }
    let (line, mark, here) = match canvas.look.ascii {
        true => ("-", "+", "|"),
        false => ("─", "•", "█"),
    };
    let now = column(top.timeline.at()).min(columns - 1);
    for (place, decided) in decided.into_iter().enumerate() {
        let (text, tone) = match decided {
            _ if place == now => (here, Tone::Accent),
            true => (mark, Tone::Warn),
            false => (line, Tone::Dim),
        };
        let x = begin.saturating_add(u16::try_from(place).unwrap_or(u16::MAX));
        canvas.text(area, x, 0, text, tone);
    }
}

/// What is typed, what is wrong, or the keys.
pub(super) fn foot(top: &Top, canvas: &mut Canvas<'_>, area: Rect) {
    if top.ui.typing.is_some() {
        let x = canvas.text(area, 0, 0, "show rows with: ", Tone::Strong);
        let x = canvas.text(area, x, 0, top.ui.filter.text(), Tone::Plain);
        let x = canvas.text(area, x, 0, "_", Tone::Accent);
        let help = "  (Enter: keep, Esc: as before)";
        canvas.text(area, x, 0, help, Tone::Dim);
        return;
    }
    if let Some(said) = &top.said {
        let tone = if top.bad { Tone::Bad } else { Tone::Accent };
        canvas.text(area, 0, 0, said, tone);
        return;
    }
    let keys = match top.ui.open {
        Open::Nothing => keys(top),
        _ => "Esc back  Up/Down scroll  q quit".to_owned(),
    };
    let mut x = 0u16;
    for (place, part) in keys.split("  ").enumerate() {
        let (key, what) = part.split_once(' ').unwrap_or((part, ""));
        if place > 0 {
            x = x.saturating_add(2);
        }
        // A key is shown whole or not at all, except for the first.
        let end = usize::from(x) + part.chars().count();
        if place > 0 && end > usize::from(area.width) {
            break;
        }
        x = canvas.text(area, x, 0, key, Tone::Strong).saturating_add(1);
        x = canvas.text(area, x, 0, what, Tone::Dim);
    }
}

fn keys(top: &Top) -> String {
    let time = match top.grows {
        true => "Space hold",
        false => "Space play",
    };
    let table = match top.ui.tab {
        Tab::Processes => "Enter threads  <> sort  / filter",
        Tab::Threads => "Enter thread  <> sort  / filter",
        Tab::Heat => "Tab next",
        Tab::Decisions => "Enter reason  / filter",
    };
    format!("? help  q quit  {table}  {time}  Left/Right step  [] decisions")
}
