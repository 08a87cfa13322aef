//! The page: its head, a comparison if there are several runs, then each run.

mod compared;
mod one;
mod tables;
mod trial;

use maud::{Markup, html};
use numaherd_world::{ProcessId, ThreadId};

use super::Run;
use super::tracks::ThreadTrack;
use crate::markup::document;
pub(super) use crate::markup::{Escaped, name, table};
use crate::words::counted;

/// Runs as a page of HTML.
pub fn page(runs: &[Run]) -> String {
    let title = match runs {
        [only] => format!("Numaherd: {}", policy(only)),
        _ => format!("Numaherd: {}", counted(runs.len(), "run")),
    };
    let body = html! {
        @if runs.is_empty() {
            p { "No ledger was given." }
        }
        @if runs.len() > 1 {
            (contents(runs))
            (compared::compared(runs))
        }
        @for (number, run) in (1..).zip(runs) {
            (one::one(number, run, runs.len() == 1))
        }
        p.soft {
            "Drawn from ledgers alone by numaherd " (env!("CARGO_PKG_VERSION")) ". A figure that \
             was not measured is not shown; none is made up. Times are the machine's own, from \
             when it began to be watched."
        }
    };
    document(&title, &body)
}

fn contents(runs: &[Run]) -> Markup {
    html! {
        nav {
            ol {
                @for (number, run) in (1..).zip(runs) {
                    li { a href={ "#run-" (number) } title=(Escaped(&run.name)) { (number) " " (name(policy(run))) } }
                }
            }
        }
    }
}

fn policy(run: &Run) -> &str {
    run.model
        .start()
        .map_or("a run whose start is lost", |start| &start.policy)
}

/// A process's name for people; a virtual machine has its own name.
pub(super) fn process_name(run: &Run, process: ProcessId) -> String {
    match run.charts.processes.get(&process) {
        Some(track) => match &track.machine {
            Some(machine) => format!("vm {} ({})", name(&machine.name), process.pid),
            None if track.name.is_empty() => process.pid.to_string(),
            None => format!("{} ({})", name(&track.name), process.pid),
        },
        None => process.pid.to_string(),
    }
}

/// A thread's name for people, beside its process; a virtual machine's CPU has its number.
pub(super) fn row_name(run: &Run, thread: ThreadId, track: &ThreadTrack) -> String {
    let process = run.charts.processes.get(&track.process);
    let machine = process.and_then(|process| process.machine.as_ref());
    match machine.and_then(|machine| machine.vcpu_of(thread)) {
        Some(vcpu) => format!("vCPU {vcpu} ({})", thread.tid),
        None => format!("{} {}", name(&track.name), thread.tid),
    }
}
