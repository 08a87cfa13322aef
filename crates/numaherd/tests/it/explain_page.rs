//! docs/explain.md shows what the program prints of the ledger that lies beside it, and names all that is
//! in its JSON form. `NUMAHERD_RENEW=1` puts what is printed now into the page.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What stands before an example: the command that prints it.
const MARK: &str = "<!-- numaherd ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn page() -> PathBuf {
    root().join("docs/explain.md")
}

fn printed(words: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_numaherd"))
        .arg0("numaherd")
        .args(words.split_whitespace())
        .current_dir(root())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// The page with each example as it is printed now.
fn renewed(page: &str) -> String {
    let mut parts = page.split(MARK);
    let mut renewed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (command, rest) = part.split_once(" -->\n```text\n").expect("an example");
        let (_, rest) = rest.split_once("```").expect("its end");
        let text = printed(command);
        renewed += &format!("{MARK}{command} -->\n```text\n{text}```{rest}");
    }
    renewed
}

#[test]
fn the_examples_are_what_is_printed() {
    let shown = fs::read_to_string(page()).unwrap();
    let now = renewed(&shown);
    assert!(now.matches(MARK).count() >= 2);
    if std::env::var_os("NUMAHERD_RENEW").is_some() {
        fs::write(page(), now).unwrap();
    } else {
        assert_eq!(shown, now, "NUMAHERD_RENEW=1 renews the page");
    }
}

/// The names of all members of an explanation, but those of what is described elsewhere.
fn members(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                into.insert(name.clone());
                let elsewhere = [
                    "settings",
                    "totals",
                    "signals",
                    "machine",
                    "about",
                    "classes",
                    "refusals",
                    "wanted",
                    "rule",
                    "seen",
                    "governor",
                    "happened",
                    "ending",
                    "miss_rate",
                    "ran",
                    "first",
                    "last",
                ];
                if !elsewhere.contains(&name.as_str()) {
                    members(value, into);
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| members(value, into)),
        _ => {}
    }
}

#[test]
fn the_page_names_every_member_of_the_json_form_and_its_version() {
    let json = printed("explain docs/examples/devils.jsonl --json");
    let json: Value = serde_json::from_str(&json).unwrap();
    let page = fs::read_to_string(page()).unwrap();
    let version = format!("`schema` is {},", json["schema"]);
    assert!(page.contains(&version), "{version}");
    let mut names = BTreeSet::new();
    members(&json, &mut names);
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<&String> = names
        .iter()
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "not in docs/explain.md: {missing:?}");
}
