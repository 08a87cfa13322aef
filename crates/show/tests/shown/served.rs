//! What `serve` gives: metrics that a strict reader takes, documented to the last one; a page that a
//! browser need not mend, whatever the ledger says.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use numaherd_herd::{Line, Record};
use numaherd_show::metrics::{Kind, METRICS, Serving, View, text};
use numaherd_show::page::page;
use numaherd_show::run::RunModel;
use proptest::prelude::*;

use crate::openmetrics;
use crate::reported::page::Page;
use crate::runs;
use crate::status::before_the_end;

const SERVING: Serving = Serving {
    connections: 3,
    connections_refused: 1,
    answered: 40,
    refused: 2,
    watchers: 1,
    watchers_dropped: 0,
};

fn view(run: &RunModel) -> View<'_> {
    View {
        run,
        serving: Some(&SERVING),
    }
}

#[test]
fn metrics_of_a_run() {
    insta::assert_snapshot!(text(view(&before_the_end(&runs::faster()))));
}

#[test]
fn a_strict_reader_takes_them_and_finds_what_the_table_says() {
    for made in [
        runs::nothing(),
        runs::faster(),
        runs::refused_by_each_guard(),
        runs::pages_fail(),
        runs::virtual_machine(),
    ] {
        let exposed = text(view(&before_the_end(&made)));
        let mut families = openmetrics::read(&exposed).unwrap();
        for metric in METRICS {
            let name = metric.name();
            let (family, kind) = match metric.kind {
                Kind::Counter => (name.strip_suffix("_total").unwrap(), "counter"),
                Kind::Info => (name.strip_suffix("_info").unwrap(), "info"),
                Kind::Gauge => (name.as_str(), "gauge"),
                Kind::Histogram => (name.as_str(), "histogram"),
            };
            // What was not measured is left out.
            let Some(found) = families.remove(family) else {
                continue;
            };
            assert_eq!(found.kind, kind, "{name}");
            for sample in found.samples {
                let labels = sample.labels.iter().map(|(key, _)| key.as_str());
                let labels: Vec<&str> = labels.filter(|&key| key != "le").collect();
                assert_eq!(labels, metric.labels, "{name}");
            }
        }
        assert!(families.is_empty(), "not in the table: {families:?}");
    }
}

#[test]
fn names_are_as_prometheus_has_them() {
    let names: BTreeSet<String> = METRICS
        .iter()
        .map(numaherd_show::metrics::Metric::name)
        .collect();
    assert_eq!(names.len(), METRICS.len(), "a name is there twice");
    for metric in METRICS {
        let name = metric.name();
        let plain = |c: char| c.is_ascii_lowercase() || c == '_';
        assert!(
            name.starts_with("numaherd_") && name.chars().all(plain),
            "{name}"
        );
        assert_eq!(
            metric.kind == Kind::Counter,
            name.ends_with("_total"),
            "{name}"
        );
        for unit in ["_ms", "_ns", "_percent", "_mib", "_kb", "_minutes"] {
            assert!(!name.contains(unit), "{name} has no base unit");
        }
        for unbounded in ["pid", "tid", "thread", "process", "name"] {
            assert!(
                !metric.labels.contains(&unbounded),
                "{name} has the label {unbounded}"
            );
        }
        assert!(
            !metric.help.ends_with('.') && metric.help.len() > 8,
            "{name}"
        );
    }
}

/// The table of all metrics, as `docs/serve.md` has it.
fn documented() -> String {
    let mut table = "| metric | kind | labels | what |\n|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, labels, help) = (metric.name(), labels.join(", "), metric.help);
        table += &format!("| `{name}` | {kind} | {labels} | {help}. |\n");
    }
    table
}

#[test]
fn every_metric_is_in_the_documents() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serve.md");
    let written = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- metrics: generated -->\n", "<!-- end of metrics -->");
    let (before, rest) = written.split_once(begin).expect("where the table begins");
    let (table, after) = rest.split_once(end).expect("where the table ends");
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        let renewed = format!("{before}{begin}{}{end}{after}", documented());
        std::fs::write(&path, renewed).unwrap();
        return;
    }
    assert!(
        table == documented(),
        "docs/serve.md is stale: run NUMAHERD_RENEW=1 cargo test -p numaherd-show --test shown served"
    );
}

#[test]
fn before_the_first_line_there_are_metrics_and_a_page() {
    let status = RunModel::new();
    let exposed = text(View {
        run: &status,
        serving: None,
    });
    openmetrics::read(&exposed).unwrap();
    assert!(exposed.contains("\nnumaherd_state_complete 0.0\n"));
    Page::read(page(view(&status), None)).assert_sound();
}

#[test]
fn a_page_of_a_run() {
    let page = Page::read(page(
        view(&before_the_end(&runs::faster())),
        Some(Duration::from_millis(400)),
    ));
    page.assert_sound();
    insta::assert_snapshot!(page.text());
}

#[test]
fn a_page_of_virtual_machines() {
    let page = Page::read(page(view(&before_the_end(&runs::virtual_machine())), None));
    page.assert_sound();
    insta::assert_snapshot!(page.text());
}

#[test]
fn a_status_as_text() {
    let status = before_the_end(&runs::faster());
    insta::assert_snapshot!(numaherd_show::status::text(&status, None));
}

#[test]
fn a_page_says_what_is_wrong() {
    let mut status = before_the_end(&runs::refused_by_each_guard());
    status.lost(12);
    status.paused = true;
    let page = Page::read(page(view(&status), Some(Duration::from_secs(9))));
    page.assert_sound();
    let text = page.text();
    for said in [
        "It is paused: it observes and decides nothing.",
        "The loop has been silent for 9 s",
        "12 lines of the ledger were dropped",
        "incomplete until the next snapshot",
        "numaherd ctl resume",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
}

/// A run of which each text is this one.
fn all_saying(text: &str) -> RunModel {
    let mut status = RunModel::new();
    for line in runs::faster().lines() {
        let mut line: Line = line.clone();
        match &mut line.record {
            Record::Start(start) => text.clone_into(&mut start.policy),
            Record::Snapshot(snapshot) => {
                for thread in &mut snapshot.threads {
                    text.clone_into(&mut thread.name);
                }
                for process in &mut snapshot.processes {
                    text.clone_into(&mut process.name);
                    process.group = Some(Arc::from(text));
                }
                snapshot.gaps = vec![text.to_owned()];
            }
            Record::Placing(placing) => {
                for placement in &mut placing.plan.placements {
                    placement.rule = text.to_owned().into();
                    text.clone_into(&mut placement.why);
                    text.clone_into(&mut placement.instead_of);
                }
            }
            Record::End(_) => continue,
            _ => {}
        }
        status.take(&Arc::new(line));
    }
    status
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_in_a_ledger_makes_the_page_or_the_metrics_anything_else(
        text in prop_oneof![
            any::<String>(),
            "[<>&\"'/=a-z\\\\\n ]{0,40}",
            Just("</title><script>alert(1)</script>".to_owned()),
            Just("\"} 1\nnumaherd_paused 1\n# EOF\n".to_owned()),
            Just("\u{202e}\u{0}<img src=x onerror=alert(1)>".to_owned()),
        ],
    ) {
        let status = all_saying(&text);
        Page::read(page(view(&status), None)).assert_sound();
        let told = numaherd_show::status::text(&status, None);
        let acts = |c: char| c.is_control() && c != '\n';
        prop_assert!(!told.contains(acts));
        let exposed = numaherd_show::metrics::text(view(&status));
        let lines = numaherd_show::metrics::text(view(&all_saying("plain"))).lines().count();
        prop_assert_eq!(exposed.lines().count(), lines);
        let read = openmetrics::read(&exposed);
        prop_assert!(read.is_ok(), "{}", read.unwrap_err());
    }
}
