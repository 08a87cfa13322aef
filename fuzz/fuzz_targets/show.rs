//! What people see of recordings that nobody vouches for: the live lines, the summary, `explain`,
//! `report`, of one run and of a fleet.
//!
//! The input is a ledger whose lines have no sums yet ([`sealed`] adds them).
//!
//! Holds: no recording makes any of them panic; each thread and process that a snapshot names can
//! be explained; a page has the size of a page.
//!
//! Reader: crates/show/src/fleet.rs crates/show/src/fleet crates/show/src/explain.rs crates/show/src/explain crates/show/src/report.rs crates/show/src/report crates/show/src/live.rs crates/show/src/summary.rs
#![cfg_attr(feature = "fuzz", no_main)]

use std::path::Path;
use std::sync::Arc;

use numaherd_fuzz::sealed;
use numaherd_herd::ledger::{Ledger, Reader, Record};
use numaherd_show::explain::{self, Choice, short, text, whole};
use numaherd_show::fleet;
use numaherd_show::live::Live;
use numaherd_show::report::{Reading, page};
use numaherd_show::summary::summary;

numaherd_fuzz::target!(|recording: &[u8]| {
    let Ok(reader) = Reader::of_bytes(Path::new("fuzz.ledger"), sealed(recording)) else {
        return;
    };
    let ledger = Ledger::of(reader);
    let mut reading = Reading::new("fuzz.ledger", &ledger.header);
    let lines: Vec<_> = ledger.lines.into_iter().map(Arc::new).collect();
    lines.iter().for_each(|line| reading.line(line));
    let page = page(&[reading.finish(ledger.skipped, ledger.damage.as_ref())]);
    assert!(page.ends_with("</html>") && page.len() < 5_000_000);
    let mut reading = fleet::Reading::new("fuzz", &ledger.header);
    lines.iter().for_each(|line| reading.line(line));
    let mut fleet = fleet::Gathering::default();
    fleet.host(reading.finish(ledger.damage.as_ref()));
    let fleet = fleet.finish("ledgers".to_owned());
    assert!(!fleet::text(&fleet).contains(|c: char| c.is_control() && c != '\n'));
    assert!(!fleet::page(&fleet).contains("<script"));
    let mut live = Live::new();
    let mut chosen = vec![Choice::default()];
    for line in &lines {
        let _ = live.line(line);
        match &line.record {
            Record::End(end) => drop(summary(end)),
            Record::Snapshot(snapshot) => {
                let thread = snapshot.threads.first();
                chosen.extend(thread.map(|thread| Choice {
                    tid: Some(thread.id.tid),
                    ..Choice::default()
                }));
                chosen.extend(thread.map(|thread| Choice {
                    pid: Some(thread.process.pid),
                    ..Choice::default()
                }));
                chosen.push(Choice {
                    at_ns: Some(line.time_ns),
                    ..Choice::default()
                });
            }
            Record::Placing(_) | Record::Paging(_) => chosen.push(Choice {
                decision: Some(line.sequence),
                ..Choice::default()
            }),
            _ => {}
        }
    }
    for choice in chosen {
        let mut reading = explain::Reading::new(&ledger.header, choice);
        lines.iter().for_each(|line| reading.line(line));
        match reading.finish(ledger.skipped, ledger.damage.as_ref()) {
            Ok(explanation) => {
                assert!(!text(&explanation).is_empty() && !whole(&explanation).is_empty());
                assert!(!short(&explanation, "numaherd explain fuzz.ledger").is_empty());
                serde_json::to_string(&explanation).expect("an explanation can be written");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
