//! The Helm chart and the plain manifests: one source, the chart, whose templates hold nothing but values.
//!
//! `NUMAHERD_RENEW=1 cargo test -p numaherd-nri --test it chart` renews `packaging/kubernetes/numaherd.yaml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The namespace of the plain manifests.
const NAMESPACE: &str = "kube-system";

const HEAD: &str = "\
# Numaherd on every node of a cluster: kubectl apply -f numaherd.yaml, after the steps of docs/kubernetes.md.
# Generated from the chart beside it, with its default values; a test says how.
";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes")
}

fn text(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap()
}

/// The values of a file of nested maps and plain values, by their dotted names.
fn values(text: &str) -> BTreeMap<String, String> {
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut values = BTreeMap::new();
    for line in text.lines() {
        let inner = line.trim_start();
        if inner.is_empty() || inner.starts_with('#') {
            continue;
        }
        let depth = line.len() - inner.len();
        path.retain(|(at, _)| *at < depth);
        let (key, value) = inner.split_once(':').expect("a key");
        path.push((depth, key.to_owned()));
        if !value.trim().is_empty() {
            let names: Vec<&str> = path.iter().map(|(_, name)| name.as_str()).collect();
            values.insert(
                format!("Values.{}", names.join(".")),
                value.trim().trim_matches('"').to_owned(),
            );
        }
    }
    values
}

/// A template with its values.
fn rendered(template: &str, values: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{ .") {
        let (name, after) = after.split_once(" }}").expect("the end of a value");
        let value = values
            .get(name)
            .unwrap_or_else(|| panic!("no value {name}"));
        text += before;
        text += value;
        rest = after;
    }
    text += rest;
    assert!(!text.contains("{{"), "templates hold values only");
    text
}

fn manifests() -> String {
    let mut values = values(&text("chart/values.yaml"));
    values.insert("Release.Namespace".to_owned(), NAMESPACE.to_owned());
    let of = |name: &str| rendered(&text(&format!("chart/templates/{name}.yaml")), &values);
    format!("{HEAD}---\n{}---\n{}", of("configmap"), of("daemonset"))
}

#[test]
fn the_plain_manifests_are_the_charts() {
    let path = folder().join("numaherd.yaml");
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        fs::write(&path, manifests()).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), manifests());
}

#[test]
fn every_value_is_used() {
    let templates =
        text("chart/templates/configmap.yaml") + &text("chart/templates/daemonset.yaml");
    for name in values(&text("chart/values.yaml")).keys() {
        assert!(templates.contains(&format!("{{{{ .{name} }}}}")), "{name}");
    }
}

#[test]
fn no_container_is_privileged_and_each_capability_has_its_reason() {
    let manifests = manifests();
    assert_eq!(manifests.matches("privileged: false").count(), 2);
    assert_eq!(manifests.matches("drop: [\"ALL\"]").count(), 2);
    let lines: Vec<&str> = manifests.lines().map(str::trim).collect();
    let add = lines.iter().position(|line| *line == "add:").unwrap();
    let added = &lines[add + 1..];
    let capabilities = ["- SYS_NICE", "- SYS_PTRACE", "- PERFMON", "- SYS_ADMIN"];
    for (pair, capability) in added.chunks(2).zip(capabilities) {
        assert!(
            pair[0].starts_with("# ") && pair[1] == capability,
            "{pair:?}"
        );
    }
    assert!(!added[2 * capabilities.len() + 1].starts_with('-'));
}

#[test]
fn what_the_config_map_holds_is_what_the_programs_read() {
    let manifests = manifests();
    let file = |name: &str| {
        let (_, after) = manifests.split_once(&format!("  {name}: |\n")).unwrap();
        let lines = after.lines().map_while(|line| line.strip_prefix("    "));
        lines.collect::<Vec<_>>().join("\n")
    };
    let rules = file("nri.toml");
    numaherd_files::setting::read::<numaherd_nri::rules::Rules>(&rules, "nri.toml").unwrap();
    let example = rules
        .lines()
        .skip(1)
        .map(|line| line.trim_start_matches("# "));
    let example = example.collect::<Vec<_>>().join("\n");
    let read = numaherd_files::setting::read::<numaherd_nri::rules::Rules>(&example, "nri.toml");
    assert_eq!(read.unwrap().0.rule.len(), 1);
    let herd: toml::Table = file("numaherd.toml").parse().unwrap();
    assert_eq!(herd["groups_from"].as_str(), Some("/run/numaherd/groups.d"));
}
