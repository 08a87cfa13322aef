//! The page for people who write profiles says what the reader reads.

use super::*;

/// The page for people who write profiles.
const PAGE: &str = include_str!("../../../../../../docs/programs.md");

#[test]
fn the_examples_of_the_documentation_are_profiles() {
    let examples: Vec<&str> = PAGE
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    let read: Vec<String> = examples
        .iter()
        .flat_map(|text| programs(text, Path::new("docs/programs.md")).unwrap())
        .map(|program| program.name)
        .collect();
    assert_eq!(read, ["tables", "paths"]);
}

/// The reader itself lists its keys when it meets one that it does not know.
#[test]
fn every_key_is_documented_under_its_table() {
    let sections = [
        ("### The file", "unknown = 1\n".to_owned() + EXAMPLE),
        ("### `[[program]]`", EXAMPLE.replace("threads", "unknown")),
        (
            "### `[[program.phase]]`",
            EXAMPLE.replace("busy", "unknown"),
        ),
        ("### `[[reference]]`", SWEEP.replace("clock_ghz", "unknown")),
        (
            "### `[program.sweep]`",
            SWEEP.replace("l2_misses", "unknown"),
        ),
    ];
    for (heading, text) in sections {
        let error = programs(&text, Path::new("x")).unwrap_err().to_string();
        let (_, keys) = error.split_once("expected one of ").expect(heading);
        let (_, section) = PAGE.split_once(heading).expect(heading);
        let section = section.split("\n## ").next().unwrap();
        let section = section.split("\n### ").next().unwrap();
        let tables = ["`program`", "`reference`", "`phase`", "`sweep`"];
        for key in keys.split(", ").filter(|key| !tables.contains(key)) {
            let row = format!("\n| {key} |");
            assert!(section.contains(&row), "{heading} does not explain {key}");
        }
    }
}
