//! A fleet as text: the sum, what would help, and tables of hosts, groups and programs, each cut to the length of a
//! screen.

use itertools::Itertools as _;
use numaherd_policy::losses::Parts;

use super::{Fleet, Host, Loser};
use crate::losses::likely;
use crate::markup::name;
use crate::words::{counted, entry, or_dash, paragraph, percent, short};

/// Most rows of each table.
const MOST_HOSTS: usize = 20;
const MOST_LOSERS: usize = 15;
const MOST_NOTES: usize = 20;

/// Letters of a name in a table.
const NAME: usize = 28;

/// A fleet, for a terminal.
pub fn text(fleet: &Fleet) -> String {
    let mut text = paragraph(summary(fleet));
    text += &helps(fleet);
    text += &hosts(fleet);
    text += &losers("Groups (pods, jobs, services)", &fleet.groups);
    text += &losers("Programs", &fleet.programs);
    text += &notes(fleet);
    text
}

/// What all hosts lose together, in a few sentences.
pub(super) fn summary(fleet: &Fleet) -> String {
    let all = &fleet.all;
    let mut said = format!(
        "{} with {}, from {}.",
        counted(all.hosts, "host"),
        counted(all.cpus, "core"),
        name_of_source(&fleet.drawn_from),
    );
    if let Some(lost) = likely(&all.lost).filter(|_| all.known > 0) {
        said += &format!(" {lost} cores are lost to caches and memory on average");
        if all.known < all.hosts {
            said += &format!(", as far as {} of the hosts know", all.known);
        }
        if let Some(had) = likely(&all.recoverable) {
            said += &format!("; another placement would recover {had} of them");
        }
        said.push('.');
    }
    if all.bounded > 0 {
        let (hosts, bound) = (counted(all.bounded, "host"), short(all.bound));
        said += &format!(" On {hosts} only a bound is known: {bound} cores at most.");
    }
    let unknown = all.hosts - all.known - all.bounded;
    if unknown > 0 {
        let hosts = counted(unknown, "host");
        said += &format!(" On {hosts} nothing is known, or no thread was busy.");
    }
    said
}

/// The source, with URLs uncut.
fn name_of_source(drawn_from: &str) -> String {
    drawn_from.chars().map(crate::markup::seen).collect()
}

fn helps(fleet: &Fleet) -> String {
    if fleet.helps.is_empty() {
        return String::new();
    }
    let mut text = "\nWhat would help\n".to_owned();
    for sum in &fleet.helps {
        let mut cores = String::new();
        if sum.lost > 0.0 {
            cores = format!(", {} lost", short(sum.lost));
        }
        if sum.recoverable > 0.0 {
            cores += &format!(", {} recoverable", short(sum.recoverable));
        }
        let first = sum.first.iter().map(|host| name(host)).format(", ");
        let more = match sum.hosts > sum.first.len() {
            true => ", …",
            false => "",
        };
        let label = counted(sum.hosts, "host");
        let said = format!("{}{cores} ({first}{more})", sum.words);
        text += &entry(2, &label, 13, &said);
    }
    text
}

fn hosts(fleet: &Fleet) -> String {
    let titles = [
        "Host",
        "cores",
        "lost",
        "recoverable",
        "mostly to",
        "what would help",
    ];
    let row = |host: &Host| {
        [
            name(&host.name),
            host.cpus.to_string(),
            lost(host),
            had(host),
            mostly(host.parts),
            host.help.brief().to_owned(),
        ]
    };
    let rows: Vec<[String; 6]> = fleet.hosts.iter().take(MOST_HOSTS).map(row).collect();
    columns(&titles, &rows) + &rest(fleet.hosts.len(), MOST_HOSTS)
}

/// What a host loses, in a few words.
pub(super) fn lost(host: &Host) -> String {
    let lost = host.lost.as_ref();
    or_dash(
        lost.map(|lost| likely(lost).unwrap_or_else(|| format!("{} at most", short(lost.most)))),
    )
}

/// What another placement could give back, in a few words.
pub(super) fn had(host: &Host) -> String {
    or_dash(host.recoverable.as_ref().and_then(likely))
}

/// The largest cause of the loss, with its share.
pub(super) fn mostly(parts: Option<Parts>) -> String {
    let largest = |parts: Parts| {
        let each = [
            (parts.remote, "remote memory"),
            (parts.caches, "shared caches"),
            (parts.controllers, "controllers"),
            (parts.cpus, "waits for CPUs"),
        ];
        let (part, to) = each.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
        (part > 0.0).then(|| format!("{to} {}", percent(part / parts.sum())))
    };
    or_dash(parts.and_then(largest))
}

fn losers(title: &str, losers: &[Loser]) -> String {
    if losers.is_empty() {
        return String::new();
    }
    let titles = [title, "lost", "hosts", "most on"];
    let rows: Vec<[String; 4]> = losers.iter().take(MOST_LOSERS).map(row).collect();
    columns(&titles, &rows) + &rest(losers.len(), MOST_LOSERS)
}

/// Name, cores, hosts, worst host.
pub(super) fn row(loser: &Loser) -> [String; 4] {
    let worst = loser.worst.as_ref();
    let worst = worst.map(|(host, lost)| format!("{} ({})", name(host), short(*lost)));
    [
        name(&loser.name),
        short(loser.lost),
        or_dash(loser.hosts.map(|hosts| hosts.to_string())),
        or_dash(worst),
    ]
}

fn notes(fleet: &Fleet) -> String {
    if fleet.notes.is_empty() {
        return String::new();
    }
    let mut text = "\nNot whole\n".to_owned();
    for note in fleet.notes.iter().take(MOST_NOTES) {
        text += &entry(2, &name(&note.name), NAME, &name_of_source(&note.what));
    }
    text + &rest(fleet.notes.len(), MOST_NOTES)
}

fn rest(all: usize, most: usize) -> String {
    match all.saturating_sub(most) {
        0 => String::new(),
        rest => format!("  and {rest} more: --json has all\n"),
    }
}

/// A table with columns as wide as their contents, after an empty line.
fn columns<const N: usize>(titles: &[&str; N], rows: &[[String; N]]) -> String {
    let mut widths = titles.map(|title| title.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; N]| {
        let mut cells = cells
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:width$}"));
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = format!("\n{}", line(*titles));
    text.extend(
        rows.iter()
            .map(|row| line(row.each_ref().map(String::as_str))),
    );
    text
}
