//! The pages on policies in `docs/` are what the registry and the policies' own files say.

mod all;
mod policy;

use std::fs;
use std::path::{Path, PathBuf};

use numaherd_policy::registry;
use numaherd_world::Signal;

const RENEW: &str = "NUMAHERD_RENEW=1 cargo test -p numaherd-policy --test pages";

fn docs() -> PathBuf {
    policy::root().join("docs")
}

/// Holds a page against its file, or writes it where pages are to be renewed.
fn assert_current(path: &Path, page: &str) {
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        fs::create_dir_all(path.parent().expect("pages are in folders")).expect("can be made");
        fs::write(path, page).expect("pages can be written");
    }
    let written = fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "{} is stale: run {RENEW}", path.display());
}

#[test]
fn the_page_on_policies_is_up_to_date() {
    assert_current(&docs().join("policies.md"), &all::policies());
}

#[test]
fn every_policy_has_its_page_and_no_other_has() {
    let folder = docs().join("policies");
    for entry in registry::POLICIES.iter() {
        let path = folder.join(format!("{}.md", entry.name));
        assert_current(&path, &policy::page(entry));
    }
    for entry in fs::read_dir(&folder).expect("the folder is there") {
        let path = entry.expect("can be listed").path();
        let name = path
            .file_stem()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        assert!(
            registry::POLICIES.iter().any(|entry| entry.name == name),
            "{} is the page of no policy: remove it",
            path.display()
        );
    }
}

#[test]
fn the_researchers_guide_shows_the_file_that_is_compiled() {
    let path = docs().join("researchers.md");
    let guide = fs::read_to_string(&path).expect("the guide is here");
    let example = policy::root().join("crates/policy/src/added/homeward.rs");
    let example = fs::read_to_string(example).expect("sources are UTF-8");
    let (code, _) = example.split_once("#[cfg(test)]").expect("it has tests");
    let (before, rest) = guide
        .split_once("```rust\n")
        .expect("the guide has a block of Rust");
    let (_, after) = rest.split_once("```\n").expect("a block ends");
    let page = format!("{before}```rust\n{}\n```\n{after}", code.trim_end());
    assert_current(&path, &page);
}

#[test]
fn every_half_states_problem_rule_terms_source_and_properties() {
    let placements = registry::PLACEMENTS.iter();
    let placements = placements.map(|half| policy::file_of("placement", half.name, half.rules));
    let pagings = registry::PAGINGS.iter();
    let pagings = pagings.map(|half| policy::file_of("paging", half.name, half.rules));
    for file in placements.chain(pagings) {
        let header: Vec<String> = policy::first_lines(&file)
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let header = header.join(" ");
        for word in ["Problem: ", "Rule", "Terms: ", "Source: ", "Propert"] {
            assert!(header.contains(word), "{}: no {word:?}", file.display());
        }
    }
}

#[test]
fn the_glossary_is_in_order_and_has_every_signal() {
    let text = fs::read_to_string(docs().join("glossary.md")).expect("the glossary is here");
    let terms: Vec<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("**")?.split_once("** ")?.0.to_lowercase()))
        .collect();
    assert!(terms.len() > 60, "only {} terms were found", terms.len());
    for (before, after) in terms.iter().zip(&terms[1..]) {
        assert!(before < after, "{after} is to come before {before}");
    }
    let known: Vec<&str> = terms.iter().flat_map(|terms| terms.split(", ")).collect();
    for signal in Signal::ALL {
        let name = signal.to_string().to_lowercase();
        assert!(known.contains(&name.as_str()), "the glossary lacks {name}");
    }
}

#[test]
fn every_setting_is_some_policys_and_no_policy_has_others() {
    let placements = registry::PLACEMENTS.iter().flat_map(|half| half.settings);
    let pagings = registry::PAGINGS.iter().flat_map(|half| half.settings);
    let named: Vec<&str> = placements.chain(pagings).copied().collect();
    for name in &named {
        let known = !all::settings_of(&[name]).is_empty();
        assert!(known, "{name} is no setting");
    }
    let used: Vec<String> = all::settings_of(&named)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    for (name, _) in all::settings_of(&[]) {
        assert!(used.contains(&name), "{name} is nobody's");
    }
}
