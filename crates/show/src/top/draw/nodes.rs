//! The nodes: a row for each node or, if there are too many for the screen, a letter for each node in one row per
//! figure.

use ratatui_core::layout::Rect;

use super::super::canvas::Canvas;
use super::super::columns::local_tone;
use super::super::figures;
use super::super::theme::Tone;
use crate::run::{Node, RunModel};

/// Columns of a node's number, and of the texts beside the bars.
const NODE: u16 = 5;
const CPUS: u16 = 9;
const MEMORY: u16 = 13;
const CONTROLLER: u16 = 15;
const LOCAL: u16 = 6;

/// Rows that the nodes take on a screen of `screen` rows: at most a third.
pub(super) fn rows(state: &RunModel, screen: u16) -> u16 {
    let nodes = state.nodes.len();
    if nodes == 0 || screen < 8 {
        return 0;
    }
    let each = u16::try_from(nodes + 1).unwrap_or(u16::MAX);
    if each <= screen / 3 {
        each
    } else {
        5.min(screen / 3)
    }
}

pub(super) fn nodes(state: &RunModel, canvas: &mut Canvas<'_>, area: Rect) {
    let nodes = &state.nodes;
    if area.height == 0 {
        return;
    }
    if nodes.len() < usize::from(area.height) {
        each(nodes, canvas, area);
    } else {
        together(nodes, canvas, area);
    }
}

/// A row for each node.
fn each(nodes: &[Node], canvas: &mut Canvas<'_>, area: Rect) {
    let text = NODE + CPUS + MEMORY + CONTROLLER + LOCAL;
    let bar = (area.width.saturating_sub(text) / 3).min(30);
    let cpus = NODE;
    let memory = cpus + bar + CPUS;
    let controller = memory + bar + MEMORY;
    let local = controller + bar + CONTROLLER;
    let heads = [
        (0, "NODE"),
        (cpus, "CPUS IN USE"),
        (memory, "MEMORY USED"),
        (controller, "CONTROLLER"),
        (local, "LOCAL"),
    ];
    for (x, head) in heads {
        canvas.text(area, x, 0, head, Tone::Head);
    }
    let most = most_served(nodes);
    for (place, node) in nodes.iter().enumerate() {
        let y = u16::try_from(place + 1).unwrap_or(u16::MAX);
        canvas.right(area, 0, 4, y, &node.id.to_string(), Tone::Strong);
        let mut gauge = |x: u16, wide: u16, share: Option<f64>, figure: &str| {
            if let Some(share) = share {
                let drawn = canvas.look.bar(share, bar);
                canvas.text(area, x, y, &drawn, Tone::Accent);
            }
            let tone = match figure {
                "-" => Tone::Dim,
                _ => Tone::Plain,
            };
            canvas.right(area, x + bar, x + bar + wide - 2, y, figure, tone);
        };
        let in_use = (node.cpus > 0).then(|| node.cpus_used / node.cpus as f64);
        let figure = format!("{:.1}/{}", node.cpus_used, node.cpus);
        gauge(cpus, CPUS, in_use, &figure);
        let (used, figure) = memory_of(node);
        gauge(memory, MEMORY, used, &figure);
        let (load, figure) = controller_of(node, most);
        gauge(controller, CONTROLLER, load, &figure);
        if let Some(ratio) = node.local_access_ratio {
            let end = (local + LOCAL).min(area.width);
            let (figure, tone) = (figures::percent(ratio), local_tone(ratio));
            canvas.right(area, local, end, y, &figure, tone);
        } else {
            canvas.right(area, local, local + LOCAL - 1, y, "-", Tone::Dim);
        }
    }
}

/// Memory in use, as a share and in figures.
fn memory_of(node: &Node) -> (Option<f64>, String) {
    let Some(all) = node.memory_bytes else {
        return (None, "none".to_owned());
    };
    let total = figures::bytes(all);
    match node.free_bytes {
        Some(free) => {
            let used = all.saturating_sub(free);
            let share = used as f64 / all as f64;
            (Some(share), format!("{}/{total}", figures::bytes(used)))
        }
        None => (None, format!("?/{total}")),
    }
}

/// Lines per second that the busiest controller serves.
fn most_served(nodes: &[Node]) -> f64 {
    nodes
        .iter()
        .filter_map(|node| node.served_per_s)
        .fold(0.0, f64::max)
}

/// What its controller serves: a share of its bandwidth if that is known, otherwise of what the busiest serves, and the
/// figures.
fn controller_of(node: &Node, most: f64) -> (Option<f64>, String) {
    let Some(served) = node.served_per_s else {
        return (None, "-".to_owned());
    };
    let lines = format!("{}/s", figures::count(served));
    match node.controller_load {
        Some(load) => (Some(load), format!("{lines} {}", figures::percent(load))),
        None if most > 0.0 => (Some(served / most), lines),
        None => (Some(0.0), lines),
    }
}

/// A row for each figure, with a letter for each node, or for each few nodes.
fn together(nodes: &[Node], canvas: &mut Canvas<'_>, area: Rect) {
    const LABEL: u16 = 12;
    let room = usize::from(area.width.saturating_sub(LABEL)).max(1);
    let by = nodes.len().div_ceil(room).max(1);
    let kept: Vec<&[Node]> = nodes.chunks(by).collect();
    let first = nodes.first().map_or(0, |node| node.id.0);
    let last = nodes.last().map_or(0, |node| node.id.0);
    let each = match by {
        1 => "a letter each".to_owned(),
        _ => format!("the most of each {by}"),
    };
    let head = format!("NODES       {first}-{last}, {each}");
    canvas.text(area, 0, 0, &head, Tone::Head);
    let most = most_served(nodes);
    type Figure<'f> = &'f dyn Fn(&Node) -> Option<f64>;
    let rows: [(&str, Figure<'_>); 4] = [
        ("CPUs", &|node| {
            (node.cpus > 0).then(|| node.cpus_used / node.cpus as f64)
        }),
        ("memory", &|node| memory_of(node).0),
        ("controller", &|node| controller_of(node, most).0),
        ("local", &|node| node.local_access_ratio),
    ];
    for (y, (label, figure)) in (1..).zip(rows) {
        canvas.text(area, 0, y, label, Tone::Plain);
        for (x, nodes) in (LABEL..).zip(&kept) {
            let share = nodes.iter().filter_map(figure).reduce(f64::max);
            let letter = share.map_or(' ', |share| canvas.look.level(share));
            canvas.text(area, x, y, letter.encode_utf8(&mut [0; 4]), Tone::Accent);
        }
    }
}
