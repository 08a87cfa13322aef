//! `numaherd trace info`: what is in a trace.

use std::fmt::Write as _;

use anyhow::Result;
use numaherd_experiment::table::{Table, figure};
use numaherd_quantity::{bytes, count, counted};
use numaherd_trace::info::{Info, WINDOW_INSTRUCTIONS, info as read};

use super::opened;

use crate::cli::TraceInfo;
use numaherd::print;

/// Threads that the table lists; all are in the JSON.
const LISTED: usize = 32;

/// Prints what is in a trace.
///
/// # Errors
/// The file cannot be read or is not a trace.
pub fn info(options: &TraceInfo) -> Result<()> {
    let info = read(&opened(&options.file)?)?;
    print::shown(options.json, &info, || {
        let file = options.file.display();
        format!("{file}: {}", shown(&info))
    })
}

/// The figures as text.
fn shown(info: &Info) -> String {
    let total = &info.total;
    let mut text = format!(
        "{} of {}\n",
        counted(info.threads.len() as u64, "thread"),
        counted(info.processes as u64, "process")
    );
    let longest = info.about.keys().map(String::len).max().unwrap_or(0);
    let width = (longest + 2).max(16);
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<width$}{value}").expect("a string takes all");
    };
    for (key, value) in &info.about {
        if let Some(value) = brief(key, value) {
            line(key, value);
        }
    }
    let per_cent = |part: u64| 100.0 * part as f64 / total.accesses().max(1) as f64;
    line(
        "accesses",
        format!(
            "{} ({} loads, {:.1} %; {} stores, {:.1} %)",
            count(total.accesses()),
            count(total.loads),
            per_cent(total.loads),
            count(total.stores),
            per_cent(total.stores)
        ),
    );
    line("instructions", count(total.instructions));
    line(
        "sleeps, wakes",
        format!("{}, {}", count(total.sleeps), count(total.wakes)),
    );
    let page = bytes(info.page_bytes);
    let touched = bytes(info.pages.saturating_mul(info.page_bytes));
    line(
        "pages",
        format!("{} of {page}: {touched}", count(info.pages)),
    );
    for (threads, pages) in &info.pages_by_threads {
        let share = 100.0 * *pages as f64 / info.pages.max(1) as f64;
        let who = if *threads == 1 { "thread" } else { "threads" };
        let name = format!("  of {threads} {who}");
        line(&name, format!("{} ({share:.1} %)", count(*pages)));
    }
    if let Some(set) = &info.working_set {
        let window = count(WINDOW_INSTRUCTIONS);
        let (mean, most) = (set.mean_pages, count(set.most_pages));
        line(
            "working set",
            format!("{mean:.1} pages in {window} instructions of a thread, {most} at most"),
        );
    }
    line(
        "recorded",
        format!("{:.3} s", info.recorded_ns as f64 / 1e9),
    );
    let size = bytes(info.bytes);
    let frames = counted(info.frames, "frame");
    let each = info
        .bytes_per_event
        .map_or_else(String::new, |each| format!(", {each:.3} bytes an event"));
    line("file", format!("{size} in {frames}{each}"));
    if let Some(damage) = &info.damage {
        line(
            "damage",
            format!(
                "at byte {}: {}; all figures are of what lies before",
                damage.at, damage.why
            ),
        );
    }
    text.push('\n');
    text.push_str(&threads(info));
    text
}

/// A value from the recorder on one line, if it fits.
fn brief(key: &str, value: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Array(all) => {
            let all: Option<Vec<_>> = all.iter().map(Value::as_str).collect();
            all.map(|all| all.join(if key == "command" { " " } else { ", " }))
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// The threads with the most accesses, in the trace's order.
fn threads(info: &Info) -> String {
    let mut listed: Vec<_> = info.threads.iter().collect();
    listed.sort_by_key(|thread| (std::cmp::Reverse(thread.counts.accesses()), thread.thread));
    listed.truncate(LISTED);
    listed.sort_by_key(|thread| thread.thread);
    let headings =
        "name|thread|process|tid|loads|stores|instructions|sleeps|wakes|pages|working set";
    let mut table = Table::new(1, headings.split('|'));
    for thread in &listed {
        let counts = &thread.counts;
        table.row([
            thread.info.name.clone(),
            thread.thread.to_string(),
            thread.info.process.to_string(),
            thread.info.tid.to_string(),
            count(counts.loads),
            count(counts.stores),
            count(counts.instructions),
            count(counts.sleeps),
            count(counts.wakes),
            count(thread.pages),
            figure(thread.working_set.as_ref().map(|set| set.mean_pages), 1),
        ]);
    }
    let mut text = table.text() + "\n";
    let hidden = info.threads.len() - listed.len();
    if hidden > 0 {
        let hidden = count(hidden as u64);
        writeln!(
            text,
            "and {hidden} threads with fewer accesses; --json has all"
        )
        .expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use numaherd_trace::{Encoder, Event, ThreadInfo, Trace, Writer};
    use serde_json::json;

    use super::*;

    /// Two threads of which the second waits for the first, and pages that both touch.
    fn trace(end: usize) -> Trace {
        let about = json!({"command": ["cg", "-c", "S"], "machine": "lab-4x2", "seed": 7});
        let about = about.as_object().expect("an object");
        let mut encoder = Encoder::new();
        let mut writer = Writer::new(Vec::new(), 4096, about).expect("memory takes all");
        let mut first: Vec<_> = (0..5000)
            .map(|at| Event::load(0x10_0000 + 8 * at, 8, 3))
            .collect();
        first.push(Event::wake(1, 20));
        let mut second = vec![Event::sleep(400)];
        second.extend((0..2000).map(|at| Event::store(0x10_8000 + 8 * at, 8, 700)));
        for (tid, events) in [first, second].iter().enumerate() {
            let info = ThreadInfo {
                process: 700,
                tid: 700 + tid as u32,
                name: format!("cg-{tid}"),
            };
            let thread = writer.thread(&info);
            let time_ns = 1_250_000 * (tid as u64 + 1);
            let frame = encoder.encode(thread, time_ns, events).expect("it fits");
            writer.append(frame).expect("memory takes all");
        }
        let mut bytes = writer.finish().expect("memory takes all");
        bytes.truncate(bytes.len() - end);
        Trace::from_bytes(bytes).expect("a trace")
    }

    #[test]
    fn a_trace_in_figures() {
        insta::assert_snapshot!(shown(&read(&trace(0)).expect("it is whole")));
    }

    #[test]
    fn a_trace_in_json() {
        let info = read(&trace(0)).expect("it is whole");
        insta::assert_snapshot!(serde_json::to_string_pretty(&info).expect("it is JSON"));
    }

    #[test]
    fn damage_is_told() {
        // The end, the index and a part of the second frame are missing.
        let info = read(&trace(24 + 56 + 4 * 64 + 10)).expect("it can be read");
        insta::assert_snapshot!(shown(&info));
    }
}
