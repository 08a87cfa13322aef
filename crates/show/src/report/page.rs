//! The page: its head, several runs side by side where there are several, then each run.

mod compared;
mod one;
mod tables;

use std::fmt::Write;

use maud::{DOCTYPE, Escaper, Markup, PreEscaped, Render, html};
use numaherd_world::{ProcessId, ThreadId};

use super::Run;
use super::tracks::ThreadTrack;
use crate::words::counted;

/// The style sheet: one drawing for light, dark and print by its variables.
const STYLE: &str = include_str!("page/style.css");

/// What the page lets a browser fetch or run: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Letters of a name that are shown.
const MOST_NAME: usize = 40;

/// Letters of any other text that are shown.
const MOST_SAID: usize = 1_000;

/// Runs as a page of HTML.
pub fn page(runs: &[Run]) -> String {
    let title = match runs {
        [only] => format!("Numaherd: {}", policy(only)),
        _ => format!("Numaherd: {}", counted(runs.len() as u64, "run")),
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(concat!("numaherd ", env!("CARGO_PKG_VERSION")));
                title { (Said(&title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (Said(&title)) }
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
            }
        }
    };
    page.into_string()
}

fn contents(runs: &[Run]) -> Markup {
    html! {
        nav {
            ol {
                @for (number, run) in (1..).zip(runs) {
                    li { a href={ "#run-" (number) } title=(Said(&run.name)) { (number) " " (name(policy(run))) } }
                }
            }
        }
    }
}

fn policy(run: &Run) -> &str {
    run.start
        .as_ref()
        .map_or("a run whose start is lost", |start| &start.policy)
}

/// Text that a ledger holds: escaped, cut where it is too long, and with what would not be shown, or would change how what
/// follows is shown (control characters, marks of writing direction), replaced.
pub(super) struct Said<'t>(pub(super) &'t str);

impl Render for Said<'_> {
    fn render_to(&self, buffer: &mut String) {
        let mut escaper = Escaper::new(buffer);
        let mut letters = self.0.chars();
        for letter in letters.by_ref().take(MOST_SAID) {
            let letter = if is_seen(letter) { letter } else { '\u{fffd}' };
            // An escaper takes whatever is written.
            let _ = escaper.write_char(letter);
        }
        if letters.next().is_some() {
            let _ = escaper.write_char('…');
        }
    }
}

fn is_seen(letter: char) -> bool {
    let is_mark = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let is_none = matches!(letter, '\u{fdd0}'..='\u{fdef}') || u32::from(letter) & 0xfffe == 0xfffe;
    !(letter.is_control() || is_mark || is_none)
}

/// A name, cut where it is too long, with what cannot be seen replaced.
fn name(text: &str) -> String {
    let mut letters = text
        .chars()
        .map(|letter| if is_seen(letter) { letter } else { '\u{fffd}' });
    let mut name: String = letters.by_ref().take(MOST_NAME).collect();
    if letters.next().is_some() {
        name.push('…');
    }
    name
}

/// How people are shown a process: a virtual machine by its own name.
pub(super) fn process_name(run: &Run, process: ProcessId) -> String {
    match run.processes.get(&process) {
        Some(track) => match &track.machine {
            Some(machine) => format!("machine {} ({})", name(&machine.name), process.pid),
            None if track.name.is_empty() => process.pid.to_string(),
            None => format!("{} ({})", name(&track.name), process.pid),
        },
        None => process.pid.to_string(),
    }
}

/// How people are shown a thread beside its process: a machine's CPU by its number.
pub(super) fn row_name(run: &Run, thread: ThreadId, track: &ThreadTrack) -> String {
    let process = run.processes.get(&track.process);
    let machine = process.and_then(|process| process.machine.as_ref());
    match machine.and_then(|machine| machine.vcpu_of(thread)) {
        Some(vcpu) => format!("vCPU {vcpu} ({})", thread.tid),
        None => format!("{} {}", name(&track.name), thread.tid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ledger_says_is_never_markup() {
        let said = Said("<script>\"&'\u{202e}\u{0}\u{ffff}</script>")
            .render()
            .into_string();
        assert_eq!(
            said,
            "&lt;script&gt;&quot;&amp;'\u{fffd}\u{fffd}\u{fffd}&lt;/script&gt;"
        );
    }

    #[test]
    fn names_are_cut() {
        assert_eq!(name("chase"), "chase");
        let said = Said(&"&".repeat(MOST_SAID + 1)).render().into_string();
        assert_eq!(said, format!("{}…", "&amp;".repeat(MOST_SAID)));
        assert_eq!(name(&"ü".repeat(41)), format!("{}…", "ü".repeat(40)));
    }
}
