//! `docs/configuration.md`, generated from [`super::keys`] and the defaults; tests check that it
//! and `contrib/numaherd.toml` are up to date.

use std::fmt::Write as _;
use std::path::Path;

use super::example;
use super::keys::{self, Key};

/// What the page says before the keys.
const INTRODUCTION: &str = include_str!("introduction.md");

/// The page `docs/configuration.md`.
fn page() -> String {
    let mut page = String::from(
        "<!-- Generated from crates/numaherd/src/config. To renew: NUMAHERD_RENEW=1 cargo test -p numaherd \
         the_pages -->\n",
    );
    page += INTRODUCTION;
    for table in keys::tables() {
        let title = match table.name.as_str() {
            "" => "Before any heading".to_owned(),
            _ => format!("`{}`", table.heading()),
        };
        let about = table.section.about;
        write!(page, "\n### {title}\n\n{about}\n").expect("text can be written");
        let keys = keys::of_table(&table);
        if keys.is_empty() {
            continue;
        }
        page += "\n| key | default | unit | what it does |\n|---|---|---|---|\n";
        page.extend(keys.iter().map(row));
    }
    page
}

fn row(key: &Key) -> String {
    let default = match key.default() {
        Ok(value) => format!("`{value}`"),
        Err(left_out) => left_out.to_owned(),
    };
    let restart = if key.setting.restart {
        " *Read at the start only.*"
    } else {
        ""
    };
    format!(
        "| `{}` | {default} | {} | {}{restart} |\n",
        key.setting.name,
        key.setting.counts(),
        key.what()
    )
}

#[test]
fn the_pages_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, text) in [
        ("docs/configuration.md", page()),
        ("contrib/numaherd.toml", example::example()),
    ] {
        let path = root.join(name);
        if std::env::var_os("NUMAHERD_RENEW").is_some() {
            std::fs::write(&path, &text).expect("the page can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "{name} is stale: run NUMAHERD_RENEW=1 cargo test -p numaherd the_pages"
        );
    }
}
