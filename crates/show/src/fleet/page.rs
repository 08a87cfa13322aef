//! A fleet as a self-contained HTML page, in the style of [`crate::report`].

use maud::{Markup, html};

use super::text::{had, lost, mostly, row, summary};
use super::{Fleet, Loser};
use crate::markup::{Escaped, document, name, table};
use crate::words::{counted, short};

/// Most rows of each table.
const MOST_HOSTS: usize = 500;
const MOST_LOSERS: usize = 200;
const MOST_NOTES: usize = 200;

/// A fleet as a page of HTML.
pub fn page(fleet: &Fleet) -> String {
    let title = format!("Numaherd: {}", counted(fleet.hosts.len(), "host"));
    let body = html! {
        p { (Escaped(&summary(fleet))) }
        (helps(fleet))
        (hosts(fleet))
        (losers("Groups (pods, jobs, services)", "group", &fleet.groups))
        (losers("Programs", "program", &fleet.programs))
        (notes(fleet))
        p.soft {
            "Cores lost are estimates, on average over the time in which there was one, with the least and the most in \
             brackets; the estimate of a group or a program is its part of the mean. Written by numaherd "
            (env!("CARGO_PKG_VERSION")) "."
        }
    };
    document(&title, &body)
}

fn helps(fleet: &Fleet) -> Markup {
    let rows = html! {
        @for sum in &fleet.helps {
            tr {
                td { (sum.words) }
                td.n { (sum.hosts) }
                td.n { (short(sum.lost)) }
                td.n { (short(sum.recoverable)) }
                td {
                    @for (number, host) in sum.first.iter().enumerate() {
                        @if number > 0 { ", " }
                        bdi { (name(host)) }
                    }
                    @if sum.hosts > sum.first.len() { ", …" }
                }
            }
        }
    };
    html! {
        h2 { "What would help" }
        (table(&["what", "#hosts", "#cores lost", "#recoverable", "first"], &rows))
    }
}

fn hosts(fleet: &Fleet) -> Markup {
    let rows = html! {
        @for host in fleet.hosts.iter().take(MOST_HOSTS) {
            tr {
                td { bdi { (name(&host.name)) } }
                td.n { (host.cpus) }
                td { bdi { (name(&host.policy)) } @if host.dry_run { " (dry run)" } @if host.paused { " (paused)" } }
                td.n { (lost(host)) }
                td.n { (had(host)) }
                td { (mostly(host.parts)) }
                td { (host.help.brief()) }
            }
        }
    };
    let titles = [
        "host",
        "#cores",
        "policy",
        "#lost",
        "#recoverable",
        "mostly to",
        "what would help",
    ];
    html! {
        h2 { "Hosts" }
        (table(&titles, &rows))
        (rest(fleet.hosts.len(), MOST_HOSTS))
    }
}

fn losers(title: &str, one: &str, losers: &[Loser]) -> Markup {
    let rows = html! {
        @for [loser, lost, hosts, worst] in losers.iter().take(MOST_LOSERS).map(row) {
            tr {
                td { bdi { (loser) } }
                td.n { (lost) }
                td.n { (hosts) }
                td { bdi { (worst) } }
            }
        }
    };
    html! {
        @if !losers.is_empty() {
            h2 { (title) }
            (table(&[one, "#lost", "#hosts", "most on"], &rows))
            (rest(losers.len(), MOST_LOSERS))
        }
    }
}

fn notes(fleet: &Fleet) -> Markup {
    let rows = html! {
        @for note in fleet.notes.iter().take(MOST_NOTES) {
            tr {
                td { bdi { (name(&note.name)) } }
                td { (Escaped(&note.what)) }
            }
        }
    };
    html! {
        @if !fleet.notes.is_empty() {
            h2 { "Not whole" }
            (table(&["host or file", "what"], &rows))
            (rest(fleet.notes.len(), MOST_NOTES))
        }
    }
}

fn rest(all: usize, most: usize) -> Markup {
    html! {
        @if all > most {
            p.soft { "And " (all - most) " more: --json has all." }
        }
    }
}
