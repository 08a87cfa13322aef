//! Where threads were: a row for each thread, with a lane for each node, the first at the top. A line in a lane shows
//! when the thread was on that node; a bar over all lanes is a column in which the thread was on several nodes.

use std::collections::BTreeSet;
use std::fmt::Write;

use maud::{Markup, html};
use numaherd_topology::NodeId;
use numaherd_world::{ProcessId, ThreadId};

use super::{AXIS, Px, RIGHT, colour, column, figure, time_axis};
use crate::report::Run;
use crate::report::columns::{Clock, Stay};
use crate::report::history::Seen;
use crate::report::page::{process_name, row_name};
use crate::report::tracks::ThreadTrack;
use crate::run::sum;
use crate::words::{counted, percent};

/// Most threads that are drawn: those that used most CPU time.
const MOST: usize = 400;

/// Least height of a row with a name, and most rows that have one.
const NAMED: f64 = 11.0;
const MOST_NAMED: usize = 100;

/// The distance between processes.
const BETWEEN: f64 = 18.0;

/// Draws where threads were; nothing if none was seen on a known node.
pub(in crate::report) fn placements(id: &str, run: &Run, seen: &Seen) -> Markup {
    let nodes = &seen.nodes;
    let (rows, left_out) = rows(run);
    if rows.is_empty() || nodes.is_empty() {
        return Markup::default();
    }
    let is_named = rows.len() <= MOST_NAMED;
    let lane = (16.0 / nodes.len() as f64).clamp(0.5, 4.0);
    let lanes = lane * nodes.len() as f64;
    let row = if is_named {
        (lanes + 2.0).max(NAMED)
    } else {
        lanes + 1.5
    };
    let mut body = String::new();
    let mut y = 4.0;
    for group in rows.chunk_by(|one, next| one.1.process == next.1.process) {
        // A process with one thread needs no heading: the thread has its name.
        let process = group[0].1.process;
        let is_headed = group.len() > 1 || is_machine(run, process) || !is_named;
        if is_headed {
            body += &heading(run, process, group.len(), y).into_string();
            y += BETWEEN;
        }
        for &(thread, track) in group {
            let drawn = html! {
                g {
                    title { (summary(run, thread, track, nodes)) }
                    @if is_named {
                        text.row x=(Px(if is_headed { 12.0 } else { 4.0 })) y=(Px(y + row / 2.0 + 3.0)) {
                            (row_name(run, thread, track))
                        }
                    }
                    (stays(&seen.clock, track, y, lane, lanes))
                }
            };
            body += &drawn.into_string();
            y += row;
        }
        if is_headed {
            y += 3.0;
        }
    }
    let drawn = html! {
        (time_axis(&seen.clock, 4.0, y))
        (maud::PreEscaped(body))
    };
    let mut about =
        "Where each thread was found at the end of each interval. Each row has a lane for \
        each node, the first at the top; a grey bar over all lanes is a column in which the \
        thread was found on more than one."
            .to_owned();
    if left_out > 0 {
        let _ = write!(
            about,
            " Drawn are the {} that used most CPU time; {left_out} more are not.",
            counted(rows.len(), "thread")
        );
    }
    let description = format!(
        "{} on {}; the rows' titles say for how much of the time each was on which node.",
        counted(rows.len(), "thread"),
        counted(nodes.len(), "node"),
    );
    html! {
        (figure(id, "Placements", &about, &description, y + AXIS, &drawn))
        (legend(nodes))
    }
}

/// The threads to draw, by process, and how many are left out.
fn rows(run: &Run) -> (Vec<(ThreadId, &ThreadTrack)>, usize) {
    let threads = run.charts.threads.iter();
    let mut rows: Vec<(ThreadId, &ThreadTrack)> = threads.map(|(&id, track)| (id, track)).collect();
    let all = rows.len();
    if all > MOST {
        rows.sort_by(|one, other| other.1.cpu_seconds.total_cmp(&one.1.cpu_seconds));
        rows.truncate(MOST);
    }
    rows.sort_by_key(|&(id, track)| (track.process, id));
    (rows, all.saturating_sub(MOST))
}

fn is_machine(run: &Run, process: ProcessId) -> bool {
    let track = run.charts.processes.get(&process);
    track.is_some_and(|track| track.machine.is_some())
}

fn heading(run: &Run, process: ProcessId, threads: usize, y: f64) -> Markup {
    let name = process_name(run, process);
    html! {
        path.grid d={ "M0 " (Px(y + 2.0)) "H" (Px(RIGHT)) } {}
        text.name x=(Px(4.0)) y=(Px(y + 14.0)) {
            (name) " · " (counted(threads, "thread"))
        }
    }
}

/// The lines of a row, by lane.
fn stays(clock: &Clock, track: &ThreadTrack, y: f64, lane: f64, lanes: f64) -> Markup {
    let mut nodes: BTreeSet<Stay> = BTreeSet::new();
    let columns: Vec<(u64, Stay)> = track.stays.iter().map(|(at, &stay)| (at, stay)).collect();
    nodes.extend(columns.iter().map(|&(_, stay)| stay));
    let path = |of: Stay, middle: f64| {
        let mut path = String::new();
        for stretch in columns.chunk_by(|one, next| one.1 == next.1) {
            if stretch[0].1 != of {
                continue;
            }
            let (begin, _) = column(clock, stretch[0].0);
            let (_, end) = column(clock, stretch[stretch.len() - 1].0);
            let _ = write!(
                path,
                "M{} {}h{}",
                Px(begin),
                Px(middle),
                Px(end.max(begin + 0.8) - begin)
            );
        }
        path
    };
    html! {
        @for &stay in &nodes {
            @match stay {
                Stay::Absent => {},
                Stay::On(place) => {
                    path class={ "lane " (colour(place.into())) }
                        stroke-width=(Px(lane.max(0.8)))
                        d=(path(stay, y + 1.0 + lane * (f64::from(place) + 0.5))) {}
                },
                Stay::Several => {
                    path.several stroke-width=(Px(lanes)) d=(path(stay, y + 1.0 + lanes / 2.0)) {}
                },
            }
        }
    }
}

/// Where a thread was, in words.
fn summary(run: &Run, thread: ThreadId, track: &ThreadTrack, nodes: &[NodeId]) -> String {
    let all = sum(track.on_ns.values().copied());
    let mut said = row_name(run, thread, track);
    let mut separator = ": ";
    for (&place, &on_ns) in &track.on_ns {
        if let Some(node) = nodes.get(usize::from(place)) {
            let share = percent(on_ns as f64 / all.max(1) as f64);
            let _ = write!(said, "{separator}node {node} {share}");
            separator = ", ";
        }
    }
    if track.moves > 0 {
        let _ = write!(said, "; {} by order", counted(track.moves, "move"));
    }
    said
}

fn legend(nodes: &[NodeId]) -> Markup {
    html! {
        p.legend {
            @for (place, node) in nodes.iter().enumerate().take(64) {
                span {
                    svg viewBox="0 0 22 12" width="22" height="12" aria-hidden="true" {
                        path class={ "lane " (colour(place)) } stroke-width="5" d="M0 6h22" {}
                    }
                    " node " (node)
                }
            }
            span { "lanes from top to bottom in this order" }
        }
    }
}
