//! What is in `contrib/` for Prometheus and Grafana uses only metrics and labels that there are, and every
//! alert says what to do.

use std::collections::BTreeSet;
use std::path::Path;

use numaherd_show::metrics::{Kind, METRICS, Metric};
use serde_json::Value;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The metric that a name in an expression is, and whether it is a histogram's bucket.
fn metric_of(name: &str) -> Option<(&'static Metric, bool)> {
    METRICS.iter().find_map(|metric| {
        let parts = ["", "_bucket", "_sum", "_count"];
        let is_it = |part: &&&str| match metric.kind {
            Kind::Histogram => !part.is_empty() && name == format!("{}{part}", metric.name()),
            _ => part.is_empty() && name == metric.name(),
        };
        let part = parts.iter().find(is_it)?;
        Some((metric, *part == "_bucket"))
    })
}

/// Every metric of ours in an expression, with the labels that are asked of it in braces.
fn metrics_in(expression: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find("numaherd_") {
        rest = &rest[at..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let braces = after
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        let asked = braces.map_or("", |(inner, _)| inner).split(',');
        let labels = asked.filter_map(|one| Some(one.split_once('=')?.0.trim().to_owned()));
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// Labels that an expression groups by.
fn grouped_by(expression: &str) -> Vec<String> {
    let mut groups = expression.split("by (").skip(1);
    let mut labels = Vec::new();
    for group in &mut groups {
        let inner = group.split(')').next().unwrap_or_default();
        labels.extend(inner.split(',').map(|label| label.trim().to_owned()));
    }
    labels
}

/// Fails unless all metrics and labels of an expression are there; says which it uses.
#[track_caller]
fn assert_known(expression: &str) -> Vec<&'static Metric> {
    let used = metrics_in(expression);
    let mut metrics = Vec::new();
    for (name, labels) in used {
        let known = metric_of(&name);
        let (metric, is_bucket) = known.unwrap_or_else(|| panic!("no metric {name}: {expression}"));
        let has = |label: &String| {
            ["instance", "job"].contains(&label.as_str())
                || metric.labels.contains(&label.as_str())
                || is_bucket && label == "le"
        };
        for label in labels.iter().chain(&grouped_by(expression)) {
            assert!(has(label), "{name} has no label {label}: {expression}");
        }
        metrics.push(metric);
    }
    metrics
}

/// The `{{labels}}` of a text.
fn labels_shown(text: &str) -> impl Iterator<Item = &str> {
    let each = text.split("{{").skip(1);
    each.filter_map(|rest| Some(rest.split_once("}}")?.0.trim()))
}

/// What there is for Grafana and Prometheus.
pub const DASHBOARDS: [&str; 2] = ["grafana/numaherd.json", "grafana/numaherd-fleet.json"];
pub const ALERTS: &str = "prometheus/alerts.yml";

/// The titles and expressions of a dashboard's panels.
pub fn queries(file: &str) -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read(file)).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            queries.push((text(&panel["title"]), text(&target["expr"])));
        }
    }
    queries
}

/// The names and expressions of alerts.
pub fn alerts(file: &str) -> Vec<(String, String)> {
    let text = read(file);
    let named = |alert: &str| {
        let expression = alert
            .lines()
            .find_map(|line| line.trim().strip_prefix("expr: "));
        let name = alert.lines().next().unwrap().to_owned();
        (name, expression.unwrap().to_owned())
    };
    text.split("- alert: ").skip(1).map(named).collect()
}

#[test]
fn the_dashboards_use_what_there_is() {
    let used = DASHBOARDS.map(metrics_of_dashboard);
    assert!(used[0].len() >= 20, "{used:?}");
    for used in used {
        for shown in ["numaherd_lost_cores", "numaherd_recoverable_cores"] {
            assert!(used.contains(shown), "no panel shows {shown}");
        }
    }
}

#[test]
fn no_panel_of_a_dashboard_covers_another() {
    for file in DASHBOARDS {
        let dashboard: Value = serde_json::from_str(&read(file)).unwrap();
        let mut taken = BTreeSet::new();
        for panel in dashboard["panels"].as_array().unwrap() {
            let [x, y, w, h] =
                ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
            assert!(x + w <= 24, "{file}: {}", panel["title"]);
            for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{file}: {} at {cell:?}", panel["title"]);
            }
        }
    }
}

/// The metrics that a dashboard shows; fails if something of it is not right.
fn metrics_of_dashboard(file: &str) -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(&read(file)).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut used = BTreeSet::new();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let title = panel["title"].as_str().unwrap();
        assert!(
            !panel["description"].as_str().unwrap().is_empty(),
            "{title}"
        );
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            let metrics = assert_known(expression);
            assert!(!metrics.is_empty(), "{title} shows nothing of ours");
            for label in labels_shown(target["legendFormat"].as_str().unwrap()) {
                let has = |m: &&Metric| m.labels.contains(&label) || label == "instance";
                assert!(metrics.iter().all(has), "{title}: {label}");
            }
            used.extend(metrics.iter().map(|metric| metric.name()));
        }
    }
    let annotations = dashboard["annotations"]["list"].as_array();
    for annotation in annotations.into_iter().flatten() {
        assert_known(annotation["expr"].as_str().unwrap());
    }
    let ids: BTreeSet<u64> = panels
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len());
    used
}

#[test]
fn every_alert_uses_what_there_is_and_says_what_to_do() {
    let text = read(ALERTS);
    let mut alerts = 0;
    for alert in text.split("- alert: ").skip(1) {
        alerts += 1;
        let name = alert.lines().next().unwrap();
        let field = |key: &str| {
            let found = alert.lines().find_map(|line| line.trim().strip_prefix(key));
            found
                .unwrap_or_else(|| panic!("{name} has no {key}"))
                .trim()
        };
        let expression = field("expr:");
        let known = assert_known(expression);
        assert!(
            !known.is_empty() || expression.contains("up{job=\"numaherd\"}"),
            "{name}"
        );
        assert!(
            ["info", "warning", "critical"].contains(&field("severity:")),
            "{name}"
        );
        assert!(field("summary:").len() > 20, "{name}");
        let description = field("description:");
        let does = description.contains("Do: ");
        assert!(
            does && description.ends_with(".\""),
            "{name} does not say what to do"
        );
        for metric in metrics_in(description) {
            assert!(metric_of(&metric.0).is_some(), "{name}: {}", metric.0);
        }
        for label in labels_shown(alert) {
            assert_eq!(label, "$labels.instance", "{name}");
        }
        for (metric, labels) in metrics_in(expression) {
            for label in labels.iter().filter(|&label| label == "guard") {
                let value = expression.split(&format!("{label}=\"")).nth(1).unwrap();
                let value = value.split('"').next().unwrap();
                let guards =
                    numaherd_show::guards::ALL.map(|guard| serde_json::to_value(guard).unwrap());
                assert!(
                    guards.contains(&Value::String(value.to_owned())),
                    "{metric}: {value}"
                );
            }
        }
    }
    assert!(alerts >= 8);
}

#[test]
fn what_to_scrape_is_where_serve_listens() {
    assert!(read("prometheus/scrape.yml").contains("targets: [\"127.0.0.1:9741\"]"));
}
